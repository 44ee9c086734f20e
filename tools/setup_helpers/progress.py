"""Estimates the remaining time of a compilation from the weights of its steps.

A step's weight is the time that it took when `weights.txt` was written. After a build without
ccache, `python -m tools.setup_helpers.progress build/native/.ninja_log` updates that file.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from tools.setup_helpers.files import write_atomic

WEIGHTS = Path(__file__).with_name("weights.txt")
#: Seconds assumed for a step outside the table.
USUAL = 3.0
#: The table omits steps that take fewer seconds.
LEAST = 5.0

_OUTPUT = re.compile(r"(?:Building \w+ object|Linking \w+ \w+ library) (\S+)$")
_MADE = re.compile(r"\.(?:o|gch|a|so)$")
_STEP = re.compile(r"\[(\d+)/(\d+)\] (.*)")


def read_weights(path: Path = WEIGHTS) -> dict[str, float]:
    """Read a table of weights: each line has seconds and an object's name."""
    rows = [line.split() for line in path.read_text().splitlines()]
    return {name: float(seconds) for seconds, name in rows}


def weights_of(log: str) -> dict[str, float]:
    """Return the seconds of the steps in ninja's log that took at least LEAST."""
    rows = [line.split("\t") for line in log.splitlines() if not line.startswith("#")]
    took = {_key(row[3]): (int(row[1]) - int(row[0])) / 1000 for row in rows}
    return {name: seconds for name, seconds in took.items() if seconds >= LEAST}


def _key(output: str) -> str:
    """Return an object's name without folders that differ between trees."""
    return re.sub(r"^.*CMakeFiles/", "", output)


class Estimate:
    """The remaining time, from the weights of the finished and the possible later steps."""

    def __init__(
        self,
        outputs: Iterable[str],
        weights: Mapping[str, float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._coming = {_key(output): weights.get(_key(output), USUAL) for output in outputs}
        self._clock = clock
        self._start = clock()
        self._done = 0.0

    def finish(self, output: str | None, left: int) -> str:
        """Count a step as done; return the time for the `left` remaining steps, such as '4:05'.

        It is empty until steps with a weight of five seconds are done.
        """
        if output is not None:
            self._done += self._coming.pop(_key(output), USUAL)
        if self._done < LEAST:
            return ""
        # In a partly built tree any steps may remain: assume their average weight.
        each = sum(self._coming.values()) / len(self._coming) if self._coming else USUAL
        seconds = round((self._clock() - self._start) * left * each / self._done)
        return f"{seconds // 60}:{seconds % 60:02}"


def run_ninja(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run ninja, show each finished step and the remaining time; return its exit code.

    On a terminal each step overwrites the previous line; compilers' messages stay.
    """
    listed = subprocess.run(
        [*command, "-t", "targets", "all"], capture_output=True, text=True, check=False
    )
    outputs = [line.partition(":")[0] for line in listed.stdout.splitlines()]
    estimate = Estimate(filter(_MADE.search, outputs), read_weights())
    in_place = sys.stdout.isatty()
    plain = {**environ, "NINJA_STATUS": "[%f/%t] "}
    with subprocess.Popen(command, env=plain, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        open_line = False
        for line in process.stdout:
            found = _STEP.match(line)
            if not found:
                print(("\n" if open_line else "") + line, end="", flush=True)
                open_line = False
                continue
            done, all_of_them, does = int(found[1]), int(found[2]), found[3]
            output = _OUTPUT.match(does)
            left = estimate.finish(output[1] if output else None, all_of_them - done)
            text = f"[{done}/{all_of_them}{f', {left} left' if left else ''}] {does}"
            print(f"\r\033[K{text[:99]}" if in_place else text, end="" if in_place else "\n")
            sys.stdout.flush()
            open_line = in_place
        if open_line:
            print()
    return process.returncode


def main(arguments: Sequence[str]) -> int:
    """Write the table of weights from ninja's log."""
    weights = weights_of(Path(arguments[0]).read_text())
    rows = sorted(weights.items(), key=lambda row: (-row[1], row[0]))
    write_atomic(WEIGHTS, "".join(f"{s:.0f} {name}\n" for name, s in rows).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
