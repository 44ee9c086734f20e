"""Call trees from events: what is inside what, by start, end and thread."""

from __future__ import annotations

from torch.backends.zendnn.observe.calls import CallEvent, calls
from torch.backends.zendnn.observe.events import Event


def event(
    operator: str, start: int, end: int, *, route: str = "", thread: int = 1, overhead: float = 0.0
) -> Event:
    """An event from one nanosecond to another."""
    ms = (end - start) / 1e6
    return Event(
        operator, route, "", "", (), (), (), ms, start, thread, overhead, 0.0, 0.0, arguments=()
    )


def shape(call: CallEvent) -> tuple[object, ...]:
    """The operators of a tree, as nested tuples."""
    return (call.operator, *map(shape, call.children))


def test_events_are_inside_those_that_begin_before_and_end_after() -> None:
    found = calls(
        [
            event("aten::t", 1, 2),
            event("aten::addmm", 3, 8),
            event("aten::linear", 0, 9),
            event("aten::relu", 10, 11),
        ]
    )
    assert list(map(shape, found)) == [
        ("aten::linear", ("aten::t",), ("aten::addmm",)),
        ("aten::relu",),
    ]


def test_of_events_at_the_same_time_the_later_one_is_around() -> None:
    (found,) = calls([event("inner", 0, 5), event("outer", 0, 5)])
    assert shape(found) == ("outer", ("inner",))


def test_threads_are_apart() -> None:
    found = calls([event("a", 0, 9), event("b", 1, 2, thread=2)])
    assert list(map(shape, found)) == [("a",), ("b",)]


def test_ranges_that_overlap_are_side_by_side() -> None:
    found = calls([event("a", 0, 5), event("b", 3, 8)])
    assert list(map(shape, found)) == [("a",), ("b",)]


def test_an_event_of_zendnn_belongs_to_the_range_of_its_operator() -> None:
    (found,) = calls(
        [
            event("aten::mm", 2, 4, route="eager"),
            event("aten::mm", 1, 5),
            event("aten::linear", 0, 9),
        ]
    )
    (inner,) = found.children
    assert inner.reported is not None
    assert (inner.reported.route, inner.children, found.offloaded) == ("eager", [], True)


def test_preparation_and_making_of_events_are_trimmed() -> None:
    (found,) = calls(
        [
            event("zendnn::prepare", 1_000_000, 3_000_000, overhead=0.5),
            event("zendnn::region", 0, 9_000_000, overhead=1.0),
        ]
    )
    assert found.milliseconds(trimming=False) == 9.0
    assert found.milliseconds(trimming=True) == 9.0 - 1.0 - (2.0 - 0.5)
    assert [call.operator for call in found.walk()] == ["zendnn::region"]
