"""Views whose arguments have more to decide, and parts of tensors."""

from __future__ import annotations

from torch.backends.zendnn.frontends.aten.mappings import Importer
from torch.backends.zendnn.frontends.calls import ANY, Call, Refused
from torch.backends.zendnn.graph import Attribute
from torch.backends.zendnn.passes.remove_identities import is_open


def view_as(call: Call) -> None:
    """The sizes of another tensor."""
    sizes = call.sizes(call.tensor("other", ANY), "other")
    call.result("view", [call.tensor("self", ANY), *sizes])


def slice_(call: Call) -> None:
    """A part of a dimension."""
    start, end = call.optional_number("start"), call.optional_number("end")
    end = None if is_open(end) else end
    x = call.tensor("self", ANY)
    call.result("slice", [x, call.integer("dim"), start, end, call.number("step")])


def _split(call: Call, count: int | None, **by: Attribute) -> None:
    """Parts, of which ``count`` are stated by the sizes or chunks that they are split by."""
    parts, (noun,) = call.parts(count), by
    if count not in (None, len(parts)):
        raise Refused(f"{count} {noun} make {len(parts)} parts")
    call.results("split", [call.tensor("self", ANY)], parts, dim=call.integer("dim"), **by)


def split_equal(call: Call) -> None:
    """Parts of one size; the last may be smaller."""
    _split(call, None, sizes=(call.integer("split_size"),))


def split_sizes(name: str) -> Importer:
    """Parts of stated sizes."""
    return lambda call: _split(call, len(call.integers(name)), sizes=call.integers(name))


def chunk(call: Call) -> None:
    """Equal parts."""
    _split(call, call.integer("chunks"), chunks=call.integer("chunks"))


def unbind(call: Call) -> None:
    """All slices of a dimension."""
    x, dim = call.tensor("self", ANY), call.integer("dim")
    for position, part in call.parts_read():
        call.results("select", [x, dim, position], [part])
