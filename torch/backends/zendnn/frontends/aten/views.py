"""Views whose arguments have more to decide, and parts of tensors."""

from __future__ import annotations

from torch.backends.zendnn.frontends.aten.mappings import Importer
from torch.backends.zendnn.frontends.calls import ANY, Call, Refused
from torch.backends.zendnn.passes.remove_identities import NO_END


def view_as(call: Call) -> None:
    """The sizes of another tensor."""
    sizes = call.sizes(call.tensor("other", ANY), "other")
    call.result("view", [call.tensor("self", ANY), *sizes])


def slice_(call: Call) -> None:
    """A part of a dimension."""
    start, end = call.optional_number("start"), call.optional_number("end")
    if isinstance(end, int) and end >= NO_END:
        end = None
    x = call.tensor("self", ANY)
    call.result("slice", [x, call.integer("dim"), start, end, call.number("step")])


def split_equal(call: Call) -> None:
    """Parts of one size; the last may be smaller."""
    parts = call.parts()
    sizes = (call.integer("split_size"),)
    dim = call.integer("dim")
    call.results("split", [call.tensor("self", ANY)], parts, dim=dim, sizes=sizes)


def split_sizes(name: str) -> Importer:
    """Parts of stated sizes."""

    def importer(call: Call) -> None:
        sizes = call.integers(name)
        parts = call.parts(len(sizes))
        if len(sizes) != len(parts):
            raise Refused(f"{len(sizes)} sizes make {len(parts)} parts")
        dim = call.integer("dim")
        call.results("split", [call.tensor("self", ANY)], parts, dim=dim, sizes=sizes)

    return importer


def chunk(call: Call) -> None:
    """Equal parts."""
    chunks = call.integer("chunks")
    parts = call.parts(chunks)
    if chunks != len(parts):
        raise Refused(f"{chunks} chunks make {len(parts)} parts")
    dim = call.integer("dim")
    call.results("split", [call.tensor("self", ANY)], parts, dim=dim, chunks=chunks)


def unbind(call: Call) -> None:
    """All slices of a dimension."""
    x, dim = call.tensor("self", ANY), call.integer("dim")
    for position, part in call.parts_read():
        call.results("select", [x, dim, position], [part])
