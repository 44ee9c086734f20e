"""Events: the route of each operator, the reason for it, and its time."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import torch
from torch.backends.zendnn import _C
from torch.backends.zendnn._table import table


@dataclass(frozen=True)
class Event:
    """An operator that ran: one that ZenDNN overrides, a packed layer, or a step of a plan."""

    #: torch's name, ``'aten::mm'``; for a step, the model's operators that it performs.
    operator: str
    #: ``'plan'``, ``'eager'`` for ZenDNN on one operator, or ``'torch'`` for torch's own kernel.
    route: str
    #: Why torch's kernel ran; empty otherwise.
    reason: str
    #: The kind of each primitive or kernel of ZenDNN that ran, and its implementation.
    implementation: str
    #: The sizes of its input tensors.
    shapes: tuple[tuple[int, ...], ...]
    #: The type of the first of them.
    dtype: torch.dtype | None
    ms: float


class Recording(Sequence[Event]):
    """The events so far; ``str()`` of it counts those of the same route."""

    def __init__(self) -> None:
        """Record from now on."""
        self._native = _C._Recording()
        self._events: list[Event] = []

    def _all(self) -> list[Event]:
        self._events += (Event(*fields) for fields in self._native.take())
        return self._events

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> list[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | list[Event]:
        """Return an event, or some."""
        return self._all()[index]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._all())

    def clear(self) -> None:
        """Forget the events so far."""
        self._all().clear()

    def stop(self) -> None:
        """Record no more."""
        self._native.stop()

    def __str__(self) -> str:
        """Return a table: count, time, route, operator, and the implementation or the reason."""
        times: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
        for event in self:
            how = event.reason or event.implementation
            times[event.route, event.operator, how].append(event.ms)
        rows = [
            (str(len(ms)), f"{sum(ms):.3f} ms", *key)
            for key, ms in sorted(times.items(), key=lambda item: -sum(item[1]))
        ]
        return "\n".join(table(rows, ">><<<"))


@contextlib.contextmanager
def record() -> Iterator[Recording]:
    """Record the events of all operators inside, in all threads of the process.

    >>> with torch.backends.zendnn.record() as events:
    ...     model(x)
    >>> print(events)

    Operators that ZenDNN does not override make no events. An operator comes after those that it
    calls.
    """
    recording = Recording()
    try:
        yield recording
    finally:
        recording.stop()
