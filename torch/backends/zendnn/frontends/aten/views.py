"""Views whose arguments have more to decide, and parts of tensors."""

from __future__ import annotations

from torch.backends.zendnn.frontends.aten.mappings import operands
from torch.backends.zendnn.frontends.calls import ANY, Call, Refused
from torch.backends.zendnn.graph import Attribute


def view_as(call: Call) -> None:
    """The sizes of another tensor."""
    sizes = call.sizes(call.tensor("other", ANY), "other")
    call.result("view", [call.tensor("self", ANY), *sizes])


def slice_(call: Call) -> None:
    """A part of a dimension."""
    x, dim, start, end, step = operands(call, "slice", "self", "dim", "start", "end", "step")
    is_open = isinstance(end, int) and end >= 1 << 31
    call.result("slice", [x, dim, start, None if is_open else end, step])


def _split(call: Call, count: int | None, **by: Attribute) -> None:
    """Parts, of which ``count`` are stated by the sizes or chunks that they are split by."""
    parts, (noun,) = call.parts(count), by
    if count not in (None, len(parts)):
        raise Refused(f"{count} {noun} make {len(parts)} parts")
    call.results("split", [call.tensor("self", ANY)], parts, dim=call.integer("dim"), **by)


def split_equal(call: Call) -> None:
    """Parts of one size; the last may be smaller."""
    _split(call, None, sizes=(call.integer("split_size"),))


def split_sizes(call: Call, *, name: str = "split_sizes") -> None:
    """Parts of stated sizes."""
    _split(call, len(call.integers(name)), sizes=call.integers(name))


def chunk(call: Call) -> None:
    """Equal parts."""
    _split(call, call.integer("chunks"), chunks=call.integer("chunks"))


def unbind(call: Call) -> None:
    """All slices of a dimension."""
    x, dim = call.tensor("self", ANY), call.integer("dim")
    for position, part in call.parts_read():
        call.results("select", [x, dim, position], [part])
