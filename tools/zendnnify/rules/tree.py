"""Rules for the rest of a PyTorch tree that is converted in place: edits of upstream's own files.

Every edit stands behind ``USE_ZENDNN``: without it, the build configures, generates and compiles
what upstream's does. Texts in CMake, C++ and Python are ours; the anchors are upstream's.
"""

from tools.zendnnify.rules.model import Action, Edit, holds_for

_OPTIONS = "CMakeLists.txt"
_DEPENDENCIES = "cmake/Dependencies.cmake"
_SETUP = "setup.py"

EDITS: tuple[Edit, ...] = (
    # --- CMake ------------------------------------------------------------------------------
    Edit(
        name="option",
        file=_OPTIONS,
        anchor="set(MKLDNN_ENABLE_CONCURRENT_EXEC ${USE_MKLDNN})\n",
        action=Action.BEFORE,
        text="cmake_dependent_option(\n"
        '  USE_ZENDNN "Use ZenDNN in place of MKLDNN. Only available on Linux on x86_64." OFF\n'
        '  "CPU_INTEL AND LINUX AND BUILD_SHARED_LIBS AND NOT BUILD_LIBTORCHLESS" OFF)\n'
        "if(USE_ZENDNN)\n"
        "  set(USE_MKLDNN OFF)\n"
        "endif()\n",
        reason="the switch; ZenDNN takes the place of oneDNN's path",
    ),
    Edit(
        name="dependency",
        file=_DEPENDENCIES,
        anchor='    message("disabling MKLDNN because USE_MKLDNN is not set")\n  endif()\n',
        action=Action.AFTER,
        text="\n  if(USE_ZENDNN)\n"
        "    include(${CMAKE_CURRENT_LIST_DIR}/WholeTreeDependencies.cmake)\n"
        "  endif()\n",
        reason="libzendnn and BLIS are built as third-party libraries",
    ),
    Edit(
        name="summary",
        file="cmake/Summary.cmake",
        anchor='  message(STATUS "  USE_UCC               : ${USE_UCC}")\n',
        action=Action.BEFORE,
        text='  message(STATUS "  USE_ZENDNN            : ${USE_ZENDNN}")\n',
        reason="the summary lists every option",
    ),
    Edit(
        name="codegen-flag",
        file="cmake/Codegen.cmake",
        anchor="  set(CUSTOM_BUILD_FLAGS)\n",
        action=Action.AFTER,
        text="  if(USE_ZENDNN)\n    list(APPEND CUSTOM_BUILD_FLAGS --zendnn)\n  endif()\n",
        reason="torchgen registers the zendnn kernels only when asked to",
    ),
    Edit(
        name="codegen-sources",
        file="cmake/Codegen.cmake",
        anchor="  # Generated headers used from a CUDA (.cu) file are\n",
        action=Action.BEFORE,
        text="  if(USE_ZENDNN) # compiled into torch_zendnn, which has the kernels\n"
        '    list(FILTER generated_sources EXCLUDE REGEX "/RegisterPrivateUse1\\\\.cpp$")\n'
        "  endif()\n\n",
        reason="the registrations belong to the library of the kernels",
    ),
    Edit(
        name="library",
        file="caffe2/CMakeLists.txt",
        anchor="if(MSVC)\n  # This is used to enable the conforming lambda processor in MSVC\n",
        action=Action.BEFORE,
        text="if(USE_ZENDNN)\n  include(${TORCH_ROOT}/cmake/WholeTree.cmake)\nendif()\n\n",
        reason="libtorch_zendnn is linked against torch_cpu and torch_python",
    ),
    # --- What torch says of itself ------------------------------------------------------------
    Edit(
        name="build-settings",
        file="caffe2/core/macros.h.in",
        anchor='  {"USE_MKLDNN", "${USE_MKLDNN}"}, \\\n',
        action=Action.REPLACE,
        text='  {"USE_MKLDNN", "${USE_MKLDNN}"}, ${ZENDNN_BUILD_SETTING}\\\n',
        reason="torch.__config__.show() lists it; without ZenDNN the variable is empty",
    ),
    # --- torchgen -----------------------------------------------------------------------------
    Edit(
        name="ignore-entries",
        file="torchgen/model.py",
        anchor="                    if ignore_keys and dispatch_key in ignore_keys:\n"
        "                        continue\n",
        action=Action.AFTER,
        text="                    # The entries of ZenDNN, which only `gen.py --zendnn` uses.\n"
        "                    if (\n"
        "                        dispatch_key is DispatchKey.PrivateUse1\n"
        "                        and dispatch_key not in dispatch_keys\n"
        "                    ):\n"
        "                        continue\n",
        reason="every other reader of the table must see upstream's",
    ),
    Edit(
        name="generator-option",
        file="torchgen/gen.py",
        anchor='        help="Generate XPU registration code when set",\n    )\n',
        action=Action.AFTER,
        text="    parser.add_argument(\n"
        '        "--zendnn",\n'
        '        action="store_true",\n'
        '        help="Generate ZenDNN registration code when set",\n'
        "    )\n",
        reason="torchgen registers the zendnn kernels only when asked to",
    ),
    Edit(
        name="generator-key",
        file="torchgen/gen.py",
        anchor="    # TODO: stop generating CUDA kernels for non-CUDA builds\n",
        action=Action.BEFORE,
        text="    if options.zendnn:\n        dispatch_keys.append(DispatchKey.PrivateUse1)\n\n",
        reason="the backend's dispatch key is PrivateUse1",
    ),
    # --- setup.py -----------------------------------------------------------------------------
    Edit(
        name="setup-help",
        file=_SETUP,
        anchor="#   USE_MKLDNN=0\n",
        action=Action.BEFORE,
        text="#   USE_ZENDNN=1\n#     uses ZenDNN in place of MKLDNN\n#\n",
        reason="the list of options",
    ),
    Edit(
        name="setup-report",
        file=_SETUP,
        anchor='        if cmake_cache_vars["USE_MKLDNN"]:\n',
        action=Action.BEFORE,
        text='        if cmake_cache_vars["USE_ZENDNN"]:\n            report("-- Using ZenDNN")\n',
        reason="the report on what is used",
    ),
    Edit(
        name="setup-packages",
        file=_SETUP,
        anchor="    packages = find_packages(exclude=excludes)\n",
        action=Action.BEFORE,
        text='    if not cmake_cache_vars["USE_ZENDNN"]:\n'
        '        excludes.extend(["torch.backends.zendnn", "torch.backends.zendnn.*"])\n',
        reason="a wheel without ZenDNN has no package for it",
    ),
    Edit(
        name="setup-entry-points",
        file=_SETUP,
        anchor="    return extensions, cmdclass, packages, entry_points, extra_install_requires\n",
        action=Action.BEFORE,
        text='    if cmake_cache_vars["USE_ZENDNN"]:\n'
        '        entry_points["torch.backends"] = [\n'
        '            "zendnn = torch.backends.zendnn._hooks:install",\n'
        "        ]\n"
        '        entry_points["torch_dynamo_backends"] = [\n'
        '            "zendnn = torch.backends.zendnn._backend:zendnn",\n'
        "        ]\n",
        reason="`import torch` loads ZenDNN, and torch.compile finds its backend",
    ),
    Edit(
        name="setup-bindings",
        file=_SETUP,
        anchor='    if get_cmake_cache_vars()["USE_KINETO"]:\n',
        action=Action.BEFORE,
        text='    if get_cmake_cache_vars()["USE_ZENDNN"]:\n'
        '        torch_package_data.append("backends/zendnn/_C*.so")\n',
        reason="the Python bindings are a file of the package",
    ),
)


def hold_for(release: str) -> bool:
    """Whether these rules apply to a release of PyTorch; the others convert older ones, too."""
    return holds_for(">=2.6", release)
