"""The machine's limit: compiles and runs ``peak.c``, multiply-adds between registers."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("peak.c")
BUILD = Path(__file__).parents[1] / "build" / "benchmarks"
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fopenmp")


class LimitError(Exception):
    """The limit could not be measured; the text says why, in one clause."""


def _output_of(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except OSError as error:
        raise LimitError(f"{command[0]} could not be started ({error.strerror})") from error
    except subprocess.CalledProcessError as error:
        said = (error.stderr.strip().splitlines() or ["no message"])[-1]
        raise LimitError(f"{Path(command[0]).name} failed on {SOURCE.name}: {said}") from error
    return done.stdout


def measure(threads: int, seconds: float = 2.0) -> dict[str, float]:
    """Gflop/s at most with so many threads, by precision; ``seconds`` is for each of them.

    bf16 is missing where the CPU has no instruction for it. Raises LimitError.
    """
    # Always compiled anew: it takes a moment, and `build` may have come from another machine.
    program = BUILD / f"peak.{os.getpid()}"
    compiler = shlex.split(os.environ.get("CC", "cc"))
    try:
        BUILD.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LimitError(f"{BUILD} cannot be made ({error.strerror})") from error
    try:
        _output_of([*compiler, *FLAGS, str(SOURCE), "-o", str(program)])
        lines = _output_of([str(program), str(threads), str(seconds)]).splitlines()
    finally:
        program.unlink(missing_ok=True)
    return {name: float(rate) for name, rate in (line.split() for line in lines)}
