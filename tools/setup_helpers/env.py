"""The build's environment: USE_ZENDNN, the tools, the installed torch."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.setup_helpers.errors import SetupError

OLDEST_TORCH = (2, 6)
TESTED_TORCH = "2.13.0"


def use_zendnn(environ: Mapping[str, str]) -> bool:
    """Return whether USE_ZENDNN is on: '1' is True; '0', empty and unset are False.

    Raises SetupError on any other value.
    """
    value = environ.get("USE_ZENDNN", "")
    if value not in ("", "0", "1"):
        raise SetupError(
            f"USE_ZENDNN is '{value}': it can be 1 (build and install ZenDNN), 0 or unset (leave "
            "torch unchanged)"
        )
    return value == "1"


def jobs(environ: Mapping[str, str]) -> int:
    """Return the number of parallel compilations: MAX_JOBS, or one per usable core.

    Raises SetupError when MAX_JOBS is not a positive number.
    """
    value = environ.get("MAX_JOBS", "")
    if not value:
        return len(os.sched_getaffinity(0))
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise SetupError(f"MAX_JOBS is '{value}': it has to be a positive number")
    return int(value)


def require_modules() -> None:
    """Raise SetupError when a Python package that the build imports is missing."""
    if importlib.util.find_spec("yaml") is None:
        raise SetupError(f"{sys.executable} has no PyYAML: install it (pip install pyyaml)")


@dataclass(frozen=True)
class Tool:
    """A program that the build runs: its possible names, and how to install it."""

    purpose: str
    names: tuple[str, ...]
    variable: str | None
    remedy: str


TOOLS: Mapping[str, Tool] = {
    "c_compiler": Tool(
        "a C compiler", ("cc", "gcc", "clang"), "CC", "install gcc (apt-get install gcc)"
    ),
    "compiler": Tool(
        "a C++ compiler", ("c++", "g++", "clang++"), "CXX", "install g++ (apt-get install g++)"
    ),
    "cmake": Tool(
        "CMake", ("cmake",), None, "install cmake (apt-get install cmake, or pip install cmake)"
    ),
    "ninja": Tool(
        "Ninja",
        ("ninja", "ninja-build"),
        None,
        "install ninja (apt-get install ninja-build, or pip install ninja)",
    ),
}


def find_tools(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the path of every tool of TOOLS.

    Raises SetupError naming every missing tool (or Python's headers), or a variable that holds
    options.
    """
    found: dict[str, str] = {}
    missing: list[str] = []
    for key, tool in TOOLS.items():
        named = environ.get(tool.variable or "", "").split()
        if options := [word for word in named if word.startswith("-")]:
            raise SetupError(
                f"{tool.variable} is '{' '.join(named)}': it can only name {tool.purpose}; give "
                f"{options[0]} in CFLAGS or CXXFLAGS"
            )
        for name in named[-1:] or tool.names:  # CXX may be "ccache g++"
            if path := shutil.which(name, path=environ.get("PATH")):
                found[key] = path
                break
        else:
            named_by = f" ({tool.variable} names '{named[-1]}')" if named else ""
            missing.append(f"{tool.purpose} is missing{named_by}: {tool.remedy}")
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").exists():
        missing.append(f"Python.h is missing in {headers}: install python3-dev")
    if missing:
        raise SetupError("; ".join(missing))
    return found


def public_version(version: str) -> str:
    """Return a version without its local label: '2.13.0' of '2.13.0+cpu'."""
    return version.partition("+")[0]


@dataclass(frozen=True)
class Torch:
    """An installed torch: its full version, its site-packages folder, and its files.

    `files` are the '/'-separated paths, relative to `site`, that its RECORD lists.
    """

    version: str
    site: Path
    files: frozenset[str]

    @property
    def public_version(self) -> str:
        """The version without its local label: '2.13.0' of '2.13.0+cpu'."""
        return public_version(self.version)

    @property
    def root(self) -> Path:
        """The folder that holds include/ and lib/."""
        return self.site / "torch"


def site_folders() -> tuple[Path, ...]:
    """Return the folders of this interpreter's installed packages.

    sysconfig names them, since pip hides them from sys.path while it builds a wheel.
    """
    return tuple(dict.fromkeys(Path(sysconfig.get_path(key)) for key in ("purelib", "platlib")))


def find_torch(folders: Sequence[Path]) -> Torch:
    """Return the torch that is installed in one of `folders`, without importing it.

    Raises SetupError when there is none, or it is too old.
    """
    remedy = f"install it for this interpreter (pip install torch=={TESTED_TORCH})"
    for folder in folders:
        found = importlib.metadata.distributions(name="torch", path=[str(folder)])
        for distribution in found:
            if not (folder / "torch" / "__init__.py").exists():
                continue
            version = distribution.version
            release = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
            if release < OLDEST_TORCH:
                oldest = ".".join(map(str, OLDEST_TORCH))
                raise SetupError(f"torch {version} in {folder} is older than {oldest}: {remedy}")
            files = frozenset(file.as_posix() for file in distribution.files or ())
            return Torch(version, folder, files)
    where = " or ".join(map(str, folders))
    raise SetupError(f"{sys.executable} has no torch in {where}: {remedy}")
