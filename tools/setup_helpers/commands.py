"""The commands that build and install; all assemble the same wheel.

`setup.py` offers install, develop and bdist_wheel. pip calls the functions of PEP 517 and PEP 660
(pyproject.toml names this module as the build backend).
"""

from __future__ import annotations

import argparse
import importlib.machinery
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools.setup_helpers import build, env, wheel
from tools.setup_helpers.errors import SetupError, exit_code_of


def outline() -> wheel.Wheel:
    """Return the wheel that USE_ZENDNN selects, without its files. Raises SetupError."""
    if not env.use_zendnn(os.environ):
        return wheel.empty_wheel()
    env.find_tools(os.environ)
    return wheel.native_outline(env.find_torch(env.site_folders()))


def assemble(*, editable: bool = False) -> wheel.Wheel:
    """Build and return the wheel that USE_ZENDNN selects. Raises SetupError."""
    if not env.use_zendnn(os.environ):
        print(
            "without USE_ZENDNN=1 nothing is built, and an installation removes ZenDNN: set "
            "USE_ZENDNN=1 to build and install it",
            flush=True,
        )
        return wheel.empty_wheel()
    torch, trees = build.build()
    return wheel.native_wheel(torch, editable=editable, trees=trees.sources)


def _install(editable: bool) -> None:
    # importlib.util.find_spec would also ask setuptools' finder, which then assumes that pip is
    # running: a later `import setuptools` fails in this process.
    if importlib.machinery.PathFinder.find_spec("pip") is None:
        raise SetupError(f"{sys.executable} has no pip: install it (python -m ensurepip)")
    contents = assemble(editable=editable)
    with tempfile.TemporaryDirectory(prefix="torch-zendnn-") as folder:
        wheel.install(wheel.write(contents, Path(folder)))
    print(f"installed {wheel.DISTRIBUTION} {contents.version} for {sys.executable}")


def install(_: argparse.Namespace) -> None:
    """Build and install into this interpreter's torch."""
    _install(editable=False)


def develop(_: argparse.Namespace) -> None:
    """Like install, but edits to this checkout's Python files take effect at once."""
    _install(editable=True)


def bdist_wheel(arguments: argparse.Namespace) -> None:
    """Build a wheel and write it to the folder of --dist-dir, beside it what it is made from."""
    folder = Path(arguments.dist_dir).absolute()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise SetupError(f"cannot write to {folder}: name another folder with --dist-dir")
    result = wheel.write(assemble(), folder)
    wheel.write_beside(result)
    print(result)


COMMANDS: Mapping[str, Callable[[argparse.Namespace], None]] = {
    "install": install,
    "develop": develop,
    "bdist_wheel": bdist_wheel,
}


def main(arguments: Sequence[str]) -> int:
    """Run `setup.py` with these arguments; return the exit code (2 after a printed error)."""
    parser = argparse.ArgumentParser(
        prog="setup.py",
        epilog="Without USE_ZENDNN=1 nothing is built, and install and develop remove ZenDNN.",
    )
    parser.add_argument("--version", action="version", version=wheel.version())
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        subparser = commands.add_parser(name, help=command.__doc__, description=command.__doc__)
        subparser.set_defaults(command=command)
        if command is bdist_wheel:
            subparser.add_argument("-d", "--dist-dir", default="dist", metavar="DIR")
    parsed = parser.parse_args(arguments)
    return exit_code_of(lambda: parsed.command(parsed))


def _hook(action: Callable[[], str]) -> str:
    """Return what `action` returns; an error ends the process with one line on stderr."""
    results: list[str] = []
    if code := exit_code_of(lambda: results.append(action())):
        raise SystemExit(code)
    return results[0]


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: object = None
) -> str:
    """PEP 517: write the .dist-info folder, so that pip sees errors before the long build."""
    return _hook(lambda: wheel.write_info(outline(), Path(metadata_directory)))


def prepare_metadata_for_build_editable(
    metadata_directory: str, config_settings: object = None
) -> str:
    """PEP 660: the same as for a wheel."""
    return prepare_metadata_for_build_wheel(metadata_directory)


def build_wheel(
    wheel_directory: str,
    config_settings: object = None,
    metadata_directory: str | None = None,
) -> str:
    """PEP 517: write the wheel into `wheel_directory` and return its file name."""
    return _hook(lambda: wheel.write(assemble(editable=False), Path(wheel_directory)).name)


def build_editable(
    wheel_directory: str,
    config_settings: object = None,
    metadata_directory: str | None = None,
) -> str:
    """PEP 660: write the wheel of `develop` into `wheel_directory` and return its file name."""
    return _hook(lambda: wheel.write(assemble(editable=True), Path(wheel_directory)).name)


def build_sdist(sdist_directory: str, config_settings: object = None) -> str:
    """PEP 517: refuse, since the sources are this repository."""

    def refuse() -> str:
        raise SetupError("there is no source distribution: clone the repository instead")

    return _hook(refuse)
