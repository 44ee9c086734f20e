"""The profiler's region of interest: from ``enable()`` to ``disable()``."""

from __future__ import annotations

import time

from torch.backends.zendnn import _C
from torch.backends.zendnn.observe.calls import CallEvent
from torch.backends.zendnn.observe.calls import calls as calls_of
from torch.backends.zendnn.observe.events import Recording


class Interval:
    """What is recorded from its start until it stops."""

    def __init__(self) -> None:
        """Begin."""
        self.recording = Recording(ranges=True)
        #: torch's number of the thread that it began in.
        self.thread, self._overhead = _C._spent_listening()
        self._start = time.monotonic_ns()
        self._end: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether it records."""
        return self._end is None

    def stop(self) -> None:
        """Record no more."""
        self._overhead = self.overhead
        self._end = time.monotonic_ns()
        self.recording.stop()

    @property
    def ms(self) -> float:
        """How long it is, so far."""
        return ((self._end or time.monotonic_ns()) - self._start) / 1e6

    @property
    def overhead(self) -> float:
        """How many milliseconds its thread spent on making events; 0 if another thread asks."""
        if not self.is_open:
            return self._overhead
        thread, spent = _C._spent_listening()
        return float(spent - self._overhead) if thread == self.thread else 0.0


_last: Interval | None = None


def enable() -> None:
    """Profile from now on, and forget what was profiled before."""
    global _last
    disable()
    _C._restart_route()
    _last = Interval()


def disable() -> None:
    """Profile no more; ``stats()`` and ``chart`` tell of what was profiled."""
    if _last and _last.is_open:
        _last.stop()


def is_in_roi() -> bool:
    """Return whether the profiler is on."""
    return _last is not None and _last.is_open


def last() -> Interval | None:
    """Return the last region of interest, which may be open."""
    return _last


def calls() -> list[CallEvent]:
    """Return the outermost calls of the last region of interest."""
    return calls_of(_last.recording) if _last else []
