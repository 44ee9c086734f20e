"""Calls: the events of a recording as trees, each operator with those that it called."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

import torch
from torch.backends.zendnn.observe.events import Event

#: The ranges of first calls: a plan's building and tuning, and Dynamo's compilation.
_PREPARATION = re.compile(r"zendnn::prepare$|.* \(dynamo_timed\)$")

#: Operators that only allocate, or compare sizes, as torch's JIT does with constants.
_NO_ELEMENTS = re.compile(r"aten::(new_)?empty|aten::resize_|aten::is_same_size$")


@dataclass
class CallEvent:
    """An operator or another range; ``reported`` is ZenDNN's own event of it, if any."""

    event: Event
    reported: Event | None = None
    children: list[CallEvent] = field(default_factory=list)

    @property
    def operator(self) -> str:
        """torch's name; for a step of a plan, the model's operators that it performs."""
        reported = self.reported
        return reported.operator if reported and reported.route == "plan" else self.event.operator

    @property
    def is_step(self) -> bool:
        """Whether it is a step of a plan, on ZenDNN."""
        return self.reported is not None and self.reported.route == "plan"

    @property
    def is_preparation(self) -> bool:
        """Whether it only happens in a first call."""
        return _PREPARATION.match(self.event.operator) is not None

    @property
    def is_region(self) -> bool:
        """Whether it is a run of a plan, whose steps are its children."""
        return any(child.is_step for child in self.children)

    @property
    def is_kernel(self) -> bool:
        """Whether it computes by itself: torch's kernel, or one that ZenDNN overrides."""
        return self.reported is not None or (
            self.event.operator.startswith("aten::")
            and not _only_provides(self.event.operator)
            and all(_only_provides(child.event.operator) for child in self.children)
        )

    @property
    def offloaded(self) -> bool:
        """Whether ZenDNN computed it, or a part of it."""
        if self.reported is not None and self.reported.route != "torch":
            return True
        return any(child.offloaded for child in self.children)

    def milliseconds(self, *, trimming: bool) -> float:
        """Return its time; ``trimming`` leaves out preparation and the making of events."""
        spent = self.event.overhead + self.preparation() if trimming else 0.0
        return max(self.event.ms - spent, 0.0)

    def preparation(self) -> float:
        """Return the milliseconds of first-call preparation in it, without making of events."""
        if self.is_preparation:
            return self.event.ms - self.event.overhead
        return sum(child.preparation() for child in self.children)

    def walk(self) -> Iterator[CallEvent]:
        """Yield it and all that it called in the order of their starts, without preparation."""
        if not self.is_preparation:
            yield self
            for child in self.children:
                yield from child.walk()


@cache
def _only_provides(name: str) -> bool:
    """Return whether an operator computes no element, such as one that makes a view."""
    if _NO_ELEMENTS.match(name):
        return True
    operator, _, overload = name.partition(".")
    try:
        schema = torch._C._get_schema(operator, overload)
    except RuntimeError:  # a range that is no operator
        return False
    aliases = [value.alias_info for value in schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)


def _is_about(reported: Event, range_: Event) -> bool:
    """Return whether ZenDNN's event and the range around it are of one operator."""
    name = range_.operator
    return name in (reported.operator, f"zendnn::{reported.implementation}") or (
        name.partition(".")[0] == reported.operator.partition(".")[0]
    )


def calls(events: Iterable[Event]) -> list[CallEvent]:
    """Return the outermost calls of all threads, in the order of their starts."""
    threads: defaultdict[int, list[tuple[int, int, int, Event]]] = defaultdict(list)
    for index, event in enumerate(events):
        # An enclosing event starts first, ends last and is recorded after the events inside it.
        threads[event.thread].append((event.start, -event.end, -index, event))
    outermost: list[CallEvent] = []
    for timeline in threads.values():
        open_: list[CallEvent] = []
        for *_, event in sorted(timeline, key=lambda item: item[:3]):
            while open_ and open_[-1].event.end < event.end:
                open_.pop()
            around = open_[-1] if open_ else None
            if (
                around
                and event.route
                and around.reported is None
                and _is_about(event, around.event)
            ):
                around.reported = event
                continue
            call = CallEvent(event, event if event.route else None)
            (around.children if around else outermost).append(call)
            open_.append(call)
    return sorted(outermost, key=lambda call: call.event.start)
