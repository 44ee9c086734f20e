"""tools/sanitize.py: builds, the tests' environment, and failures."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tools import sanitize as module
from tools.setup_helpers import build, env
from tools.setup_helpers.errors import SetupError

#: Replaces setarch, which runs Python: it records its arguments and environment, writes REPORT as a
#: sanitizer's report, and exits with FAIL_LOAD or FAIL_TESTS.
SETARCH = """#!/bin/sh
[ "$3" = true ] && exit ${{FAIL_SETARCH:-0}}
for word in "$@"; do printf '%s\\0' "$word"; done >> "{log}"
printf '\\1' >> "{log}"
env > "{folder}/environment"
[ "$4" = -c ] && exit ${{FAIL_LOAD:-0}}
options="$ASAN_OPTIONS:$TSAN_OPTIONS"
path=$(echo "$options" | tr : '\\n' | sed -n 's/^log_path=//p')
[ -n "$REPORT" ] && echo "$REPORT" > "$path.123"
exit ${{FAIL_TESTS:-0}}
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A machine whose compiler has the runtimes, whose builds succeed, and whose Python logs."""
    log, compiler = tmp_path / "log", tmp_path / "g++"
    programs = {
        "setarch": SETARCH.format(log=log, folder=tmp_path),
        "g++": f"#!/bin/sh\necho {tmp_path}/runtimes/${{1#-print-file-name=}}\n",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    builds: list[str | None] = []
    monkeypatch.setattr(build, "build", lambda sanitizer=None: builds.append(sanitizer))
    monkeypatch.setattr(build, "BUILD", tmp_path / "build")
    monkeypatch.setattr(
        env, "find_tools", lambda _: {"compiler": str(compiler), "c_compiler": str(compiler)}
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name in ("ASAN_OPTIONS", "TSAN_OPTIONS", "OMP_NUM_THREADS", "REPORT"):
        monkeypatch.delenv(name, raising=False)

    def calls() -> list[list[str]]:
        return [call.split("\0")[:-1] for call in log.read_text().split("\1")[:-1]]

    def environment() -> dict[str, str]:
        lines = (tmp_path / "environment").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    return SimpleNamespace(
        folder=tmp_path, compiler=compiler, builds=builds, calls=calls, environment=environment
    )


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_builds_the_plain_library_first_and_then_the_instrumented_one(
    machine: SimpleNamespace, sanitizer: str
) -> None:
    assert module.main([sanitizer, "test/x.py"]) == 0
    assert machine.builds == [None, sanitizer]


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_python_loads_the_runtime_and_the_instrumented_library_first(
    machine: SimpleNamespace, sanitizer: str
) -> None:
    assert module.main([sanitizer]) == 0
    reported = machine.environment()
    runtimes = [str(machine.folder / "runtimes" / name) for name in module.RUNTIMES[sanitizer]]
    assert reported["LD_PRELOAD"].split() == runtimes
    assert reported["LD_LIBRARY_PATH"] == str(machine.folder / "build" / sanitizer / "lib")


def test_the_address_sanitizer_ignores_leaks(machine: SimpleNamespace) -> None:
    assert module.main(["address"]) == 0
    reported = machine.environment()
    assert "detect_leaks=0" in reported["ASAN_OPTIONS"].split(":")
    assert "OMP_NUM_THREADS" not in reported


def test_under_the_thread_sanitizer_openmp_has_one_thread(machine: SimpleNamespace) -> None:
    assert module.main(["thread"]) == 0
    reported = machine.environment()
    assert "exitcode=66" in reported["TSAN_OPTIONS"].split(":")
    assert reported["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_pytest_gets_the_arguments_or_the_tests_of_the_sanitizer(
    machine: SimpleNamespace, sanitizer: str
) -> None:
    for given in (["test/x.py", "-k", "a or b"], []):
        assert module.main([sanitizer, *given]) == 0
        arguments = machine.calls()[-1]
        assert arguments[1] == "--addr-no-randomize"
        assert arguments[3:] == ["-m", "pytest", *(given or module.TESTS[sanitizer])]


def test_the_tests_of_each_sanitizer_exist() -> None:
    for tests in module.TESTS.values():
        paths = [build.REPO / word for word in tests if word.startswith("test/")]
        assert paths
        assert all(path.exists() for path in paths)


def test_a_report_is_a_failure_even_if_the_tests_pass(
    machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REPORT", "ERROR: AddressSanitizer: heap-buffer-overflow")
    assert module.main(["address"]) == 1
    captured = capsys.readouterr()
    assert "heap-buffer-overflow" in captured.err
    assert "address sanitizer: processes with reports: 1" in captured.out


def test_failing_tests_are_a_failure_without_a_report(
    machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIL_TESTS", "1")
    assert module.main(["thread"]) == 1
    assert "thread sanitizer: processes with reports: 0" in capsys.readouterr().out


def test_a_compiler_without_the_runtime_is_one_sentence(
    machine: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    """A compiler that does not find a file prints the given name."""
    machine.compiler.write_text("#!/bin/sh\necho ${1#-print-file-name=}\n")
    assert module.main(["thread"]) == 2
    assert capsys.readouterr().err == (
        f"error: {machine.compiler} has no libtsan.so: install the compiler's sanitizer libraries\n"
    )


def test_a_compiler_that_fails_is_one_sentence(
    machine: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.compiler.write_text("#!/bin/sh\nexit 1\n")
    assert module.main(["thread"]) == 2
    assert f"error: {machine.compiler} has no libtsan.so" in capsys.readouterr().err


def test_python_runs_without_setarch_if_it_is_refused(
    machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIL_SETARCH", "1")
    python = machine.folder / "python"
    python.write_text('#!/bin/sh\n[ "$1" = -c ] || echo "$*" > "$0.log"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert module.main(["address", "test/x.py"]) == 0
    assert (machine.folder / "python.log").read_text() == "-m pytest test/x.py\n"
    assert "setarch is refused" in capsys.readouterr().err


def test_nothing_is_tested_when_torch_loads_another_library(
    machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIL_LOAD", "1")
    with pytest.raises(SetupError, match=r"torch does not load .*/address/lib/libtorch_zendnn\.so"):
        module.run("address", [])
    (only,) = machine.calls()
    assert only[3] == "-c"


def test_a_build_that_fails_is_one_sentence(
    machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(sanitizer: str | None = None) -> None:
        raise SetupError("the compilation failed")

    monkeypatch.setattr(build, "build", fail)
    assert module.main(["address"]) == 2
    assert capsys.readouterr().err == "error: the compilation failed\n"


@pytest.mark.parametrize("arguments", [[], ["memory"]], ids=str)
def test_another_sanitizer_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        module.main(arguments)
    assert stopped.value.code == 2
