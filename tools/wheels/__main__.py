"""Make and check wheels for shipping.

drop-in  make a torch wheel with ZenDNN inside, from an official one and torch-zendnn's
check    check wheels: platform, libraries, size, RECORD, licences, bill of materials
build    build torch-zendnn for several Pythons and torches
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools.setup_helpers import wheel, wheel_file
from tools.setup_helpers.errors import SetupError, exit_code_of
from tools.setup_helpers.options import positive
from tools.wheels import check as checks
from tools.wheels import drop_in as drop_ins
from tools.wheels import matrix
from tools.wheels.policy import tag_of


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _companion(base: Path, folder: Path) -> Path:
    """Return the companion in `folder` for the Python of `base`. Raises SetupError without one."""
    with wheel_file.opened(base) as opened:
        python = tag_of(opened).python
    pattern = f"{wheel.DISTRIBUTION.replace('-', '_')}-{wheel.version()}-{python}-*.whl"
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise SetupError(
            f"{folder} holds {len(found)} wheels {pattern}, not one: make one there with "
            f"'make wheel', or name it with --companion"
        )
    return found[0]


def drop_in(options: argparse.Namespace) -> int:
    """Make a torch wheel with ZenDNN inside."""
    companion = options.companion or _companion(options.base, options.out)
    result = drop_ins.make(options.base, companion, options.out)
    for path in (result, *wheel.write_beside(result)):
        print(path)
    return 0


def check(options: argparse.Namespace) -> int:
    """Check wheels; return 1 when something is wrong with one of them."""
    wrong = 0
    for path in options.wheels:
        findings = checks.check(path)
        rows = [
            (name, "WRONG" if finding.wrong else "ok", finding.text)
            for name, finding in findings.items()
        ]
        print(f"{path}\n{_table(rows)}", flush=True)
        wrong += sum(finding.wrong for finding in findings.values())
    return 1 if wrong else 0


def build(options: argparse.Namespace) -> int:
    """Build torch-zendnn for several Pythons and torches; return 1 when a wheel is missing."""
    chosen = matrix.cells(options.python.split(","), options.torch.split(","), options.only)
    settings = matrix.Settings(shlex.split(options.pip_torch_args), options.manylinux)
    results = matrix.build(chosen, options.out, settings, resume=options.resume, jobs=options.jobs)
    rows = [
        (found.cell.python, found.cell.torch, found.state, f"{found.seconds:.0f} s", found.remark)
        for found in results
    ]
    print(_table([("python", "torch", "state", "time", ""), *rows]))
    return 0 if all(found.made for found in results) else 1


def _drop_in_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--base", type=Path, required=True, metavar="WHEEL", help="official torch")
    parser.add_argument(
        "--companion", type=Path, metavar="WHEEL", help="torch-zendnn; default: the one of --out"
    )
    _out(parser)


def _check_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("wheels", nargs="+", type=Path, metavar="WHEEL")


def _build_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--python", required=True, metavar="VERSIONS", help="such as 3.11,3.12, found on PATH"
    )
    parser.add_argument("--torch", required=True, metavar="VERSIONS", help="such as 2.6.0,2.13.0")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only cells such as python3.11-torch2.6.0"
    )
    parser.add_argument("--resume", action="store_true", help="keep what an earlier run built")
    parser.add_argument(
        "--jobs", type=positive(int), default=1, metavar="N", help="cells at once; default: 1"
    )
    parser.add_argument(
        "--pip-torch-args", default="", metavar="ARGS", help="pip arguments for torch"
    )
    parser.add_argument(
        "--manylinux",
        default="",
        metavar="GLIBC",
        help="link for an older system, such as 2_28; default: one like this",
    )
    _out(parser)


def _out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, default=Path("dist"), metavar="DIR", help="default: dist"
    )


COMMANDS: Mapping[
    str,
    tuple[Callable[[argparse.Namespace], int], Callable[[argparse.ArgumentParser], None]],
] = {
    "drop-in": (drop_in, _drop_in_options),
    "check": (check, _check_options),
    "build": (build, _build_options),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code (1: a check failed, 2: a printed error)."""
    parser = argparse.ArgumentParser(prog="python -m tools.wheels")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (command, add_options) in COMMANDS.items():
        subparser = commands.add_parser(name, help=command.__doc__, description=command.__doc__)
        subparser.set_defaults(command=command)
        add_options(subparser)
    options = parser.parse_args(arguments)
    return exit_code_of(lambda: options.command(options))


if __name__ == "__main__":
    sys.exit(main())
