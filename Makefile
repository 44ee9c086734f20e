# On a fresh machine, run `make demo` or `make test`. Each first does all the steps that it needs and
# that have not been done yet. It can be interrupted and run again.
#
#   PYTHON=python3.12          the Python with which .venv is made (3.10 or newer)
#   TORCH=torch==2.13.0        the base torch, as a requirement for pip
#   PIP_TORCH_ARGS='…'         more arguments for pip, such as the index of CPU-only builds
#   TESTS='test/tools -k x'    arguments that `make test` passes to pytest
#   FUZZ='--count 5000'        arguments that `make fuzz` passes to tools.fuzz
#   ZOO='--draw 15'            arguments that `make zoo` passes to tools.zoo
#   WHEELS='--python 3.11,3.12 --torch 2.13.0'   which wheels `make wheels` builds
#   MAX_JOBS=4                 how many compilations run at once; setup.py lists more variables
#
# The first three are remembered: a later run that does not set them uses the last values.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:

VENV := .venv
BIN := $(VENV)/bin
DONE := build/.done

# The three variables that determine .venv: as set in this run, or else in an earlier one.
define newline


endef
$(eval $(file <$(DONE)/choices.mk))
export CHOICES := $(foreach name,PYTHON TORCH PIP_TORCH_ARGS,$(if \
	$(filter-out undefined,$(origin $(name))),$(name) ?= $($(name))$(newline)))

PYTHON ?= python3
TORCH ?= torch==2.13.0
PIP_TORCH_ARGS ?=
TESTS ?= test
FUZZ ?= --count 300 --jobs 2
WHEELS ?= --python 3.11 --torch 2.13.0
ZOO ?= --resume --write

PIP := $(BIN)/python -m pip --disable-pip-version-check

# The files of this checkout that the build reads. If one changes, the build runs again, but only for
# what has changed.
INPUTS := $(shell find aten cmake third_party tools torch CMakeLists.txt setup.py version.txt \
	-type f -not -name '*.pyc' 2>/dev/null)

CXX_FILES := $(shell find aten benchmarks examples third_party torch -name '*.cpp' -o -name '*.[ch]')

# command:Debian package
NEEDED := cc:gcc c++:g++ cmake:cmake ninja:ninja-build git:git
WANTED := ccache:ccache hwloc-calc:hwloc-nox

.PHONY: help demo test nightly upstream sanitize fuzz zoo build wheel wheels drop-in setup lint format clean distclean FORCE

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

demo: $(DONE)/installed ## Run three real models on ZenDNN and compare them with stock kernels
	$(BIN)/python examples/demo.py

# Much of a test is compilation and the start of other processes, which one core does: two processes
# share the tests. Threads that wait do not spin, since they would take the other process's core.
PYTEST := OMP_WAIT_POLICY=passive $(BIN)/python -m pytest --numprocesses 2 --dist worksteal
PACKAGES := $(addprefix $(DONE)/,installed fuzz-packages zoo-packages wheel-packages)

test: $(PACKAGES) ## Run the tests, two at a time, but for those of `make nightly`
	$(PYTEST) -m 'not nightly' $(TESTS)

nightly: $(PACKAGES) ## Run all tests with ten times the examples, and 3,000 random models; takes hours
	$(BIN)/python -m tools.fuzz --count 3000 --jobs 2
	$(PYTEST) --hypothesis-profile=nightly $(TESTS)

upstream: $(DONE)/installed ## Run upstream's tests of the overridden operators and of compilers, on ours and on stock torch
	$(BIN)/python -m tools.upstream.samples
	$(BIN)/python -m tools.upstream
	$(BIN)/python -m tools.upstream --inductor

sanitize: $(DONE)/installed ## Run the engine's tests under the address and the thread sanitizer
	$(BIN)/python -m tools.sanitize address
	$(BIN)/python -m tools.sanitize thread

fuzz: $(DONE)/installed $(DONE)/fuzz-packages ## Check random models against stock torch
	$(BIN)/python -m tools.fuzz $(FUZZ)

zoo: $(DONE)/installed $(DONE)/zoo-packages ## Check the architectures of transformers and torchvision against stock torch; takes hours
	$(BIN)/python -m tools.zoo $(ZOO)

build: setup ## Build and install into the torch of .venv
	USE_ZENDNN=1 $(BIN)/python setup.py install
	@touch $(DONE)/installed

wheel: setup $(DONE)/wheel-packages ## Write a wheel to dist/ and check it
	USE_ZENDNN=1 $(BIN)/python setup.py bdist_wheel
	$(BIN)/python -m tools.wheels check dist/torch_zendnn-*.whl

wheels: $(DONE)/wheel-packages ## Build and check wheels for the Pythons and torches of WHEELS
	$(BIN)/python -m tools.wheels build $(WHEELS) --pip-torch-args '$(PIP_TORCH_ARGS)'

drop-in: wheel ## Write a torch wheel with ZenDNN inside to dist/
	rm -rf build/base
	$(PIP) download --quiet --no-deps $(PIP_TORCH_ARGS) '$(TORCH)' -d build/base
	$(BIN)/python -m tools.wheels drop-in --base build/base/torch-*.whl

setup: $(DONE)/packages ## Make .venv with everything that the build and the tests need

lint: $(DONE)/lint-packages ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/actionlint -shellcheck= -pyflakes=
	$(BIN)/zizmor --offline --quiet .github/workflows
	@echo "$(BIN)/clang-format --dry-run --Werror, $(words $(CXX_FILES)) files"
	@$(BIN)/clang-format --dry-run --Werror $(CXX_FILES)

format: $(DONE)/lint-packages ## Format the Python and C++ files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	@echo "$(BIN)/clang-format -i, $(words $(CXX_FILES)) files"
	@$(BIN)/clang-format -i $(CXX_FILES)

clean: ## Remove what was built; keep fetched sources and .venv
	rm -rf $(filter-out build/sources,$(wildcard build/*)) $(DONE)/installed dist

distclean: clean ## Remove everything that make created
	rm -rf build $(VENV)

$(DONE)/installed: $(DONE)/packages $(INPUTS)
	USE_ZENDNN=1 $(BIN)/python setup.py install
	@touch $@

$(DONE)/packages: requirements.txt $(DONE)/venv
	@echo "-- installing $(TORCH) and the packages of requirements.txt into $(VENV)"
	$(PIP) install --quiet $(PIP_TORCH_ARGS) '$(TORCH)'
	$(PIP) install --quiet '$(TORCH)' -r requirements.txt
	@rm -f $(DONE)/installed
	@touch $@

# Their dependencies are not installed, because they include another torch and much that is not used.
$(DONE)/fuzz-packages: requirements-fuzz.txt $(DONE)/packages
	$(PIP) install --quiet --no-deps -r requirements-fuzz.txt
	@touch $@

$(DONE)/wheel-packages: requirements-wheels.txt $(DONE)/venv
	$(PIP) install --quiet -r requirements-wheels.txt
	@touch $@

$(DONE)/zoo-packages: requirements-zoo.txt $(DONE)/packages
	$(PIP) install --quiet --no-deps --upgrade --target $(VENV)/zoo -r requirements-zoo.txt
	@touch $@

$(DONE)/lint-packages: requirements-lint.txt $(DONE)/venv
	$(PIP) install --quiet -r requirements-lint.txt
	@touch $@

$(DONE)/venv: $(DONE)/choices.mk | $(DONE)/system
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo 'error: $(PYTHON) is not Python 3.10 or newer: set PYTHON= to one that is' >&2; exit 2; }
	$(PYTHON) -m venv --clear $(VENV)
	@rm -f $(DONE)/*packages $(DONE)/installed
	@touch $@

$(DONE)/choices.mk: FORCE
	@mkdir -p $(DONE)
	@printf %s "$$CHOICES" | cmp -s - $@ || printf %s "$$CHOICES" > $@

# Installs only what is missing, and only if the user is root and apt exists.
$(DONE)/system:
	@mkdir -p $(DONE)
	@missing() { for pair in "$$@"; do command -v "$${pair%%:*}" >/dev/null || echo "$${pair#*:}"; done; }; \
	needed=$$(missing $(NEEDED) $(PYTHON):$(PYTHON)); \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || needed="$$needed python3-venv"; \
	$(PYTHON) -c 'import pathlib, sys, sysconfig; \
		sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists())' || \
		needed="$$needed python3-dev"; \
	wanted=$$(missing $(WANTED)); \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		if [ -n "$$needed$$wanted" ]; then \
			echo "-- installing system packages:" $$needed $$wanted; \
			{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
				--no-install-recommends $$needed $$wanted; } || \
				{ [ -z "$$needed" ] && echo "-- going on without" $$wanted; }; \
		fi; \
	elif [ -n "$$needed" ]; then \
		echo "error: these packages are missing, install them (names as on Debian):" $$needed >&2; \
		exit 2; \
	fi
	@touch $@
