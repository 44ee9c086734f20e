"""The tuning cache of a test, which decides what plans choose."""

from __future__ import annotations

from pathlib import Path

from torch.backends.zendnn import _C


class Choices:
    """What plans choose by timing: all candidates are timed, and a test may decide otherwise."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def keys(self) -> list[str]:
        """The problems for which something was chosen."""
        _, *lines = self._path.read_text().splitlines()
        return [line.split("\t")[0] for line in lines if not line.startswith("about ")]

    def choose(self, name: str) -> None:
        """Let all problems so far be solved by the implementation of this name."""
        writer = self._path.read_text().splitlines()[0]
        chosen = (f"{key}\t{name}" for key in self.keys())
        self._path.write_text("\n".join([writer, *chosen]) + "\n")
        _C._forget_tuning()
