"""How long a compilation still takes, estimated from what each of its steps weighs.

A step's weight is the time that it took when `weights.txt` was written: `python -m
tools.setup_helpers.progress build/native/.ninja_log` writes it anew after a build without ccache.
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
#: Seconds of a step that the table does not name.
USUAL = 3.0
#: Steps that take less are not named in the table.
LEAST = 5.0

_OUTPUT = re.compile(r"(?:Building \w+ object|Linking \w+ \w+ library) (\S+)$")
_MADE = re.compile(r"\.(?:o|gch|a|so)$")
_STEP = re.compile(r"\[(\d+)/(\d+)\] (.*)")


def read_weights(path: Path = WEIGHTS) -> dict[str, float]:
    """Return the weights of a table: lines of seconds and an object's name."""
    rows = [line.split() for line in path.read_text().splitlines()]
    return {name: float(seconds) for seconds, name in rows}


def weights_of(log: str) -> dict[str, float]:
    """Return what the steps of ninja's log took, in seconds, where that is worth naming."""
    rows = [line.split("\t") for line in log.splitlines() if not line.startswith("#")]
    took = {_key(row[3]): (int(row[1]) - int(row[0])) / 1000 for row in rows}
    return {name: seconds for name, seconds in took.items() if seconds >= LEAST}


def _key(output: str) -> str:
    """Return an object's name without the folders that two trees need not share."""
    return re.sub(r"^.*CMakeFiles/", "", output)


class Estimate:
    """The time left, from the weights of the steps that are done and of those that may come."""

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
        """Count a step as done, after which so many are left; return the time that they take.

        It reads '4:05', and nothing before five seconds' weight is done.
        """
        if output is not None:
            self._done += self._coming.pop(_key(output), USUAL)
        if self._done < LEAST:
            return ""
        # Of a tree that is partly built, any steps may be left: those of the usual weight.
        each = sum(self._coming.values()) / len(self._coming) if self._coming else USUAL
        seconds = round((self._clock() - self._start) * left * each / self._done)
        return f"{seconds // 60}:{seconds % 60:02}"


def run_ninja(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run ninja, show each step that it has done and the time left; return its exit code.

    On a terminal a line follows the other in one place; what compilers print stays.
    """
    told = subprocess.run(
        [*command, "-t", "targets", "all"], capture_output=True, text=True, check=False
    )
    outputs = [line.partition(":")[0] for line in told.stdout.splitlines()]
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
