"""What the backend of torch.compile logs about the graphs that it leaves as they are."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

#: Characters of a line that tables and reports have room for.
WIDTH = 200


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(first_line(record.getMessage()))


@contextlib.contextmanager
def listening() -> Iterator[list[str]]:
    """Yield a list that receives the first line of each message.

    The backend logs as long as somebody listens, and nobody else receives what it logs.
    """
    log, lines = logging.getLogger("torch.backends.zendnn._compile"), _Lines()
    before = log.level, log.propagate
    log.addHandler(lines)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield lines.found
    finally:
        log.removeHandler(lines)
        log.setLevel(before[0])
        log.propagate = before[1]


def first_line(message: object) -> str:
    """Return the first line of a text or of an error, which its type precedes."""
    text = next((line.strip() for line in str(message).splitlines() if line.strip()), "")
    name = f"{type(message).__name__}: " if isinstance(message, BaseException) else ""
    return f"{name}{text}"[:WIDTH]
