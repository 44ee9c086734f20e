"""Measures the machine's limits by compiling and running two programs: ``peak.c`` (multiply-adds
between registers) and ``bandwidth.c`` (memory reads).
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

SOURCE = Path(__file__).with_name("peak.c")
BANDWIDTH_SOURCE = Path(__file__).with_name("bandwidth.c")
BUILD = Path(__file__).parents[1] / "build" / "benchmarks"
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fopenmp")
MIB = 2**20

_NO_OTHER: Mapping[str, str] = MappingProxyType({})


class LimitError(Exception):
    """The limit could not be measured; the message is a clause that gives the reason."""


def _output_of(
    command: list[str], source: Path, text: str = "", environment: Mapping[str, str] = _NO_OTHER
) -> str:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=True,
            input=text,
            env={**os.environ, **environment},
        )
    except OSError as error:
        raise LimitError(f"{command[0]} could not be started ({error.strerror})") from error
    except subprocess.CalledProcessError as error:
        said = (error.stderr.strip().splitlines() or ["no message"])[-1]
        raise LimitError(f"{Path(command[0]).name} failed on {source.name}: {said}") from error
    return done.stdout


def output_of_program(
    compile_: Sequence[str],
    source: Path,
    *arguments: float,
    libraries: Sequence[str] = (),
    text: str = "",
    environment: Mapping[str, str] = _NO_OTHER,
) -> list[str]:
    """The lines that the program prints for its arguments and ``text`` on its standard input.

    ``compile_`` is the compiler with its options; the program also has the variables of
    ``environment``. Raises LimitError.
    """
    # Always compiled again: this is quick, and `build` may have been copied from another machine.
    program = BUILD / f"{source.stem}.{os.getpid()}"
    try:
        BUILD.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LimitError(f"{BUILD} cannot be made ({error.strerror})") from error
    try:
        _output_of([*compile_, str(source), *libraries, "-o", str(program)], source)
        command = [str(program), *map(str, arguments)]
        return _output_of(command, source, text, environment).splitlines()
    finally:
        program.unlink(missing_ok=True)


def _rates(source: Path, *arguments: float) -> dict[str, float]:
    """The rates that the program prints, by name."""
    compile_ = [*shlex.split(os.environ.get("CC", "cc")), *FLAGS]
    lines = output_of_program(compile_, source, *arguments)
    return {name: float(rate) for name, rate in (line.split() for line in lines)}


def measure(threads: int, seconds: float = 2.0) -> dict[str, float]:
    """The most billions of operations per second of ``threads`` threads, by precision.

    Each is timed for ``seconds``. bf16 or int8 is missing if the CPU has no instruction for it.
    Raises LimitError.
    """
    return _rates(SOURCE, threads, seconds)


def bandwidth(threads: int, seconds: float = 2.0) -> float:
    """The highest GB/s at which ``threads`` threads read uncached memory. Raises LimitError."""
    return _rates(BANDWIDTH_SOURCE, threads, seconds, cold_bytes())["read"]


def cold_bytes(caches: str = "/sys/devices/system/cpu/cpu0/cache") -> int:
    """How many bytes must be read in turn so that none is still cached when it is read again.

    This is twice the largest cache. It is at most 1 GiB, because a virtual machine reports the
    whole cache of its host, of which it can use only a part.
    """
    try:
        sizes = [path.read_text().strip() for path in Path(caches).glob("index*/size")]
    except OSError:
        sizes = []
    largest = max((int(size.removesuffix("K")) * 1024 for size in sizes), default=0)
    return min(max(2 * largest, 256 * MIB), 1024 * MIB)
