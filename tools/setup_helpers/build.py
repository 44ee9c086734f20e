"""From sources to libtorch_zendnn.so: fetch, convert, configure, compile.

What is converted and compiled goes to build/, or to the folder that ZENDNN_BUILD_DIR names.

Every step does only the remaining work, so an interrupted build resumes where it stopped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.setup_helpers import env, progress, sources
from tools.setup_helpers.errors import SetupError
from tools.setup_helpers.files import locked

REPO = Path(__file__).resolve().parents[2]
BUILD_VARIABLE = "ZENDNN_BUILD_DIR"
REUSE_VARIABLE = "ZENDNN_BUILT_DIR"
BUILD = Path(os.environ.get(BUILD_VARIABLE) or REPO / "build").absolute()
GENERATED = BUILD / "generated"
NATIVE = BUILD / "native"
LIBRARY = NATIVE / "lib" / "libtorch_zendnn.so"
#: libzendnn in a CMake tree.
ARCHIVE = "zendnn/src/libzendnn.a"
BINDINGS = NATIVE / "lib" / f"_C{sysconfig.get_config_var('EXT_SUFFIX')}"
RENAMED_LANDMARK = "include/oneapi/zendnn/zendnn.h"


@dataclass(frozen=True)
class Trees:
    """What CMake compiles: three converted trees, and BLIS (sources.Blis lists its kinds).

    `sources` maps the names of sources.yaml to the folders of the originals.
    """

    generated: Path
    zendnn: Path
    adeep: Path
    blis_kind: str
    blis: Path
    sources: Mapping[str, Path]


def say(text: str) -> None:
    """Print the build's current step, before the output of the programs it starts."""
    print(f"-- {text}", flush=True)


def prepare() -> Trees:
    """Fetch the sources and convert them into build/generated/.

    Raises SetupError when a source cannot be fetched or converted.
    """
    fetched = _fetched("pytorch", "onednn", "ideep", "blis")
    _convert("pytorch", fetched["pytorch"], GENERATED)
    zendnn, adeep = _primitives(fetched)
    blis = sources.blis(fetched["blis"])
    return Trees(GENERATED, zendnn, adeep, blis.kind, blis.path, fetched)


def third_party() -> Mapping[str, Path]:
    """Return the third-party folders of a whole PyTorch tree, by their place in it.

    Fetches and converts them into build/ as needed. Raises SetupError as `prepare` does.
    """
    with locked(BUILD / ".lock"):
        fetched = _fetched("onednn", "ideep", "blis")
        zendnn, adeep = _primitives(fetched)
    folders = {"zendnn": zendnn, "adeep": adeep, "blis": fetched["blis"]}
    return {f"third_party/{name}": folder for name, folder in folders.items()}


def _fetched(*names: str) -> Mapping[str, Path]:
    fetched = {}
    for name in names:
        source = sources.sources()[name]
        is_local = sources.local_copy(source, os.environ) is not None
        fetched[name] = sources.fetch(name)
        say(f"{name} {'(a local copy)' if is_local else source.version}: {fetched[name]}")
    return fetched


def _primitives(fetched: Mapping[str, Path]) -> tuple[Path, Path]:
    """Convert oneDNN, unless it is converted already, and ideep; return their folders."""
    zendnn = GENERATED / "third_party" / "zendnn"
    adeep = GENERATED / "third_party" / "adeep"
    if (fetched["onednn"] / RENAMED_LANDMARK).exists():
        zendnn = fetched["onednn"]
    else:
        _convert("onednn", fetched["onednn"], zendnn)
    _convert("ideep", fetched["ideep"], adeep)
    return zendnn, adeep


def _convert(name: str, tree: Path, out: Path) -> None:
    from tools.zendnnify import generate
    from tools.zendnnify.rules.model import ZendnnifyError

    started = time.monotonic()
    try:
        generate.run(tree, out)
    except ZendnnifyError as error:
        raise SetupError(f"{name} cannot be converted: {error}") from error
    say(f"{name} converted into {out} in {time.monotonic() - started:.1f} s")


def configure_arguments(
    trees: Trees,
    torch: env.Torch,
    tools: Mapping[str, str],
    ccache: str | None,
    sanitizer: str | None = None,
    built: str = "",
) -> Sequence[str]:
    """Return the arguments of cmake, which describe this machine completely.

    `built` is a CMake tree whose libzendnn is taken. With a `sanitizer`, 'address' or 'thread',
    they configure a separate tree that takes libzendnn from build/native and compiles everything
    else for that sanitizer.
    """
    sanitized = {"ZENDNN_SANITIZER": sanitizer} if sanitizer else {}
    cache = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_MAKE_PROGRAM": tools["ninja"],
        "CMAKE_C_COMPILER": tools["c_compiler"],
        "CMAKE_CXX_COMPILER": tools["compiler"],
        "CMAKE_C_COMPILER_LAUNCHER": ccache or "",
        "CMAKE_CXX_COMPILER_LAUNCHER": ccache or "",
        "Python_EXECUTABLE": sys.executable,
        "TORCH_ROOT": str(torch.root),
        "TORCH_VERSION": torch.version,
        "ZENDNN_GENERATED_DIR": str(trees.generated),
        "ZENDNN_SOURCE_DIR": str(trees.zendnn),
        "ADEEP_INCLUDE_DIR": str(trees.adeep),
        # Both are set, since CMake caches earlier values.
        "BLIS_ROOT": str(trees.blis) if trees.blis_kind == "prefix" else "",
        "BLIS_SOURCE_DIR": str(trees.blis) if trees.blis_kind == "source" else "",
        REUSE_VARIABLE: str(NATIVE) if sanitizer else built,
        **sanitized,
    }
    return [
        *("-G", "Ninja", "-S", str(REPO), "-B", str(tree_of(sanitizer))),
        *(f"-D{name}={value}" for name, value in cache.items()),
    ]


def tree_of(sanitizer: str | None = None) -> Path:
    """Return the CMake tree of the build, or of the build for a sanitizer."""
    return BUILD / sanitizer if sanitizer else NATIVE


def ccache_environment(checkout: Path = REPO) -> Mapping[str, str]:
    """Return the settings that let ccache share results between checkouts.

    They also cache precompiled headers, and identify these by content.
    """
    return {
        "CCACHE_BASEDIR": str(checkout),
        "CCACHE_NOHASHDIR": "1",
        "CCACHE_SLOPPINESS": "pch_defines,time_macros,include_file_mtime,include_file_ctime",
    }


def _run(command: Sequence[str], environ: Mapping[str, str], failure: str) -> None:
    _check(subprocess.run(command, env=environ, check=False).returncode, failure)


def _check(code: int, failure: str) -> None:
    if code:
        raise SetupError(f"{failure} (exit code {code}); its messages are above")


def build(
    environ: Mapping[str, str] = os.environ, sanitizer: str | None = None
) -> tuple[env.Torch, Trees]:
    """Make build/native/lib/libtorch_zendnn.so; return the torch it is for and its source trees.

    With a `sanitizer` ('address' or 'thread') it makes build/<sanitizer>/lib/libtorch_zendnn.so
    from the existing libzendnn. Progress goes to stdout. MAX_JOBS limits parallel compilations.
    Raises SetupError when this machine lacks a requirement (before any fetch) or a step fails.
    """
    env.require_modules()
    torch = env.find_torch(env.site_folders())
    tools = env.find_tools(environ)
    jobs = env.jobs(environ)
    ccache = shutil.which("ccache", path=environ.get("PATH"))
    tree = tree_of(sanitizer)
    libraries = [tree / path.relative_to(NATIVE) for path in (LIBRARY, BINDINGS)]
    started = time.monotonic()
    with locked(BUILD / ".lock"):
        trees = prepare()
        if trees.blis_kind == "source" and not shutil.which("make", path=environ.get("PATH")):
            raise SetupError("make is missing, but BLIS needs it: install make")
        say(f"configuring against torch {torch.version} in {torch.site}")
        built = environ.get(REUSE_VARIABLE, "")
        arguments = configure_arguments(trees, torch, tools, ccache, sanitizer, built)
        quiet = {**environ, "CLICOLOR": "0"}
        _run([tools["cmake"], *arguments], quiet, "cmake cannot configure the build")
        say(f"compiling with {jobs} jobs" + (", through ccache" if ccache else ""))
        visible = {
            **ccache_environment(),
            **environ,
            "MAKEFLAGS": f"-j{jobs}",  # make builds BLIS
        }
        code = progress.run_ninja([tools["ninja"], "-C", str(tree), "-j", str(jobs)], visible)
        _check(code, "the compilation failed")
    for path in libraries:
        if not path.exists():
            raise SetupError(f"the compilation ended without making {path}")
    say(f"{libraries[0]} is ready after {time.monotonic() - started:.0f} s")
    return torch, trees
