"""Events: the route of each operator, the reason for it, and its time."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import torch
from torch.backends.zendnn import _C
from torch.backends.zendnn._columns import table


@dataclass(frozen=True)
class Event:
    """An operator that ran: one that ZenDNN overrides, a packed layer, or a step of a plan.

    Recordings of profilers also have the ranges of torch's profiler, whose route is empty: all
    operators, regions, their preparation and what users mark.
    """

    #: torch's name, ``'aten::mm'``; for a step, the model's operators that it performs.
    operator: str
    #: ``'plan'``, ``'eager'`` for ZenDNN on one operator, ``'torch'`` for torch's own kernel, or
    #: ``''`` for a range.
    route: str
    #: Why torch's kernel ran; empty otherwise.
    reason: str
    #: The kind of each primitive or kernel of ZenDNN that ran, and its implementation.
    implementation: str
    #: The sizes of its input tensors.
    shapes: tuple[tuple[int, ...], ...]
    #: Their strides, in elements.
    strides: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    ms: float
    #: When it began, in nanoseconds of ``time.monotonic_ns``.
    start: int = 0
    #: torch's number of the thread.
    thread: int = 0
    #: How many of the milliseconds were spent on making events.
    overhead: float = 0.0
    #: Floating-point operations of a step, 0 where nothing counts them.
    flops: float = 0.0
    #: The size of a step's operands and results.
    bytes: float = 0.0
    #: Of a range, where they are recorded; tensors are on the device ``meta``.
    arguments: tuple[Any, ...] = ()

    @property
    def dtype(self) -> torch.dtype | None:
        """The type of the first input tensor."""
        return self.dtypes[0] if self.dtypes else None

    @property
    def end(self) -> int:
        """When it ended, in nanoseconds of ``time.monotonic_ns``."""
        return self.start + round(self.ms * 1e6)


class Recording(Sequence[Event]):
    """The events so far; ``str()`` of it counts those of the same route."""

    def __init__(self, *, ranges: bool = False, arguments: bool = False) -> None:
        """Record from now on, with ranges of torch's profiler and their arguments if wanted."""
        self._native = _C._Recording(ranges=ranges, arguments=arguments)
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
