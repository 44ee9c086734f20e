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


def _split(call: Call, stated: int | None, **by: Attribute) -> None:
    """Parts, of which ``stated`` are known from the sizes or chunks that they are split by."""
    unpacked, (noun,) = call.unpacked(), by
    count = stated or unpacked
    if count is None:
        raise Refused("its results are not unpacked at once")
    if unpacked not in (None, count):
        raise Refused(f"{count} {noun} make {unpacked} parts")
    x, dim = call.tensor("self", ANY), call.integer("dim")
    call.make_list(call.steps("split", [x], count, dim=dim, **by).__getitem__)


def split(call: Call, *, name: str) -> None:
    """Parts of stated sizes, or of one size, of which the last may be smaller."""
    sizes = call.python(name)
    _split(call, len(sizes) if isinstance(sizes, list) else None, sizes=call.integers(name))


def chunk(call: Call) -> None:
    """Equal parts."""
    _split(call, call.integer("chunks"), chunks=call.integer("chunks"))


def unbind(call: Call) -> None:
    """All slices of a dimension."""
    x, dim = call.tensor("self", ANY), call.integer("dim")
    call.make_list(lambda position: call.step("select", [x, dim, position]))
