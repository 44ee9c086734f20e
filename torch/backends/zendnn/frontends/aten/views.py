"""Views whose arguments have more to decide, and parts of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.backends.zendnn.frontends.aten.mappings import mapped, operands
from torch.backends.zendnn.frontends.calls import ANY, MISSING, Call, Refused
from torch.backends.zendnn.ir.node import Operand, Value
from torch.backends.zendnn.table.notation import Attribute


def view_as(call: Call) -> None:
    """The sizes of another tensor."""
    sizes = call.sizes(call.tensor("other", ANY), "other")
    call.result("view", [call.tensor("self", ANY), *sizes])


def slice_(call: Call) -> None:
    """A part of a dimension."""
    x, dim, start, end, step = operands(call, "slice", "self", "dim", "start", "end", "step")
    call.result("slice", [x, dim, start, _bound(end), step])


def _bound(end: Operand) -> Operand:
    """Return the end of a slice; None for one that is beyond any size."""
    return None if isinstance(end, int) and end >= 1 << 31 else end


def slice_scatter(call: Call) -> None:
    """A tensor with another one in the place of a part of a dimension."""
    names = ("self", "src", "dim", "start", "end", "step")
    x, value, dim, start, end, step = operands(call, "slice_scatter", *names)
    _replace(call, x, value, [dim, start, _bound(end), step])


def select_scatter(call: Call) -> None:
    """A tensor with another one in the place of one index of a dimension."""
    dim, index = call.integer("dim"), call.integer("index")
    value = call.step("unsqueeze", [call.tensor("src", ANY), dim])
    end = None if index == -1 else index + 1
    _replace(call, call.tensor("self", ANY), value, [dim, index, end, 1])


def _replace(call: Call, x: Operand, value: Operand, where: list[Operand]) -> None:
    """Make a copy with another slice the call's result."""
    assert isinstance(x, Value)
    assert isinstance(value, Value)
    if x.dtype and value.dtype and x.dtype != value.dtype:
        raise Refused(f"src is {value.dtype}, and self is {x.dtype}")
    more: dict[str, Attribute] = {"dense": True} if call.is_dense() else {}
    call.result("slice_scatter", [x, value, *where], **more)


def index_select(call: Call) -> None:
    """A part of a dimension, whose indices are constant and follow one another."""
    index, x, dim = call.constant("index"), call.tensor("self", ANY), call.integer("dim")
    if not isinstance(index, torch.Tensor) or index.dim() != 1 or not index.numel():
        raise Refused("index is not a constant list")
    # A slice would end with the dimension where torch raises an error.
    size = x.dims[dim] if x.dims else None
    if not isinstance(size, int) or int(index[0]) < 0 or int(index[-1]) >= size:
        raise Refused("what it indexes is not known")
    bounds = bounds_of(index)
    if bounds is None:
        raise Refused("its indices do not follow one another")
    call.result("slice", [x, dim, *bounds, 1])


def bounds_of(index: torch.Tensor) -> tuple[int, int] | None:
    """Return the start and the end of indices that follow one another; else None."""
    start, end = int(index[0]), int(index[-1]) + 1
    expected = torch.arange(start, max(start, end), dtype=index.dtype)
    return (start, end) if torch.equal(index, expected) else None


def _split(call: Call, stated: int | None, **by: Attribute) -> None:
    """Parts, of which ``stated`` are known from the sizes or chunks that they are split by."""
    unpacked, (noun,) = call.unpacked(), by
    count = stated or unpacked
    if count is None:
        raise Refused("its results are not unpacked at once")
    _check_count(call, count, noun)
    x, dim = call.tensor("self", ANY), call.integer("dim")
    call.make_list(call.steps("split", [x], count, dim=dim, **by).__getitem__)


def split(call: Call, *, name: str) -> None:
    """Parts of stated sizes, or of one size, of which the last may be smaller."""
    sizes = call.constant(name)
    if sizes is MISSING:
        if not call.is_checked:
            raise Refused("what its sizes add up to is not known")
        _slices(call, call.numbers(name))
    elif isinstance(sizes, list) and 0 in sizes:
        _split_without_empty_parts(call, sizes)
    else:
        _split(call, len(sizes) if isinstance(sizes, list) else None, sizes=call.integers(name))


def _split_without_empty_parts(call: Call, sizes: Sequence[int]) -> None:
    """Parts of stated sizes, of which plans make no empty one; it may stand unused."""
    _check_count(call, len(sizes), "sizes")
    x, dim = call.tensor("self", ANY), call.integer("dim")
    some = tuple(size for size in sizes if size)
    if not some:
        raise Refused("all its parts are empty")
    parts = call.steps("split", [x], len(some), dim=dim, sizes=some)

    def part(position: int) -> Value:
        if sizes[position] == 0:
            return call.step("slice", [x, dim, 0, 0, 1])
        return parts[sum(size != 0 for size in sizes[:position])]

    call.make_list(part)


def _slices(call: Call, sizes: Sequence[Operand]) -> None:
    """Parts, whose sizes are numbers that only plans know."""
    bounds: list[Operand] = [0]
    for size in sizes:
        last = bounds[-1]
        if isinstance(last, int) and isinstance(size, int):
            bounds.append(last + size)
        else:
            bounds.append(call.step("number_add", [last, size]))
    x, dim = call.tensor("self", ANY), call.integer("dim")
    call.make_list(lambda i: call.step("slice", [x, dim, *bounds[i : i + 2], 1]))


def _check_count(call: Call, count: int, noun: str) -> None:
    """Refuse to unpack another number of parts, which is an error."""
    if (unpacked := call.unpacked()) not in (None, count):
        raise Refused(f"{count} {noun} make {unpacked} parts")


def cat(call: Call) -> None:
    """Tensors one after the other; empty ones have no part in it, since plans take none."""
    parts = [call.as_tensor(element, "tensors") for element in call.elements("tensors")]
    dim = call.integer("dim")
    some = [x for x in parts if not _adds_nothing(x, dim)]
    if not some or {x.dtype for x in some} != {x.dtype for x in parts}:
        mapped(call)
        return
    # torch's result has channels last if all parts have, which nothing empty and nothing flat has.
    has_empty, is_flat = len(some) < len(parts), some[0].rank not in (None, 4, 5)
    is_copy = len(some) == 1 and (has_empty or is_flat)
    x = some[0] if is_copy else call.step("cat", some, dim=dim)
    call.identity(call.step("contiguous", [x]) if is_copy or has_empty else x)


def _adds_nothing(x: Value, dim: int) -> bool:
    """Whether a part of a ``cat`` is surely empty; one of no elements may have any rank."""
    return x.dims is not None and (x.dims == (0,) or x.dims[dim] == 0)


def squeeze(call: Call) -> None:
    """A tensor without its dimensions of size 1, or without those that are named."""
    x = call.tensor("self", ANY)
    dims = x.dims
    if dims is None:
        raise Refused("how many dimensions self has is not known")
    if call.has("dim"):  # a tensor without dimensions takes -1 and 0
        gone = [dim % len(dims) for dim in call.integers("dim") if dims]
    elif all(isinstance(size, int) for size in dims):
        gone = [dim for dim, size in enumerate(dims) if size == 1]
    else:
        raise Refused("not all sizes of self are known")
    for dim in sorted(gone, reverse=True):
        x = call.step("squeeze", [x, dim])
    call.identity(x)


def repeat(call: Call) -> None:
    """A tensor several times, one after the other, along some dimensions."""
    x, times = call.tensor("self", ANY), call.numbers("repeats")
    if x.rank is None or x.rank > len(times):
        raise Refused("how many dimensions self has is not known")
    for _ in range(len(times) - x.rank):
        x = call.step("unsqueeze", [x, 0])
    for dim, count in enumerate(times):
        if count != 1:
            x = _repeated(call, x, dim, dim, count)
    call.identity(x)


def repeat_elements(call: Call) -> None:
    """Each element of a dimension several times in a row."""
    x = call.tensor("self", ANY)
    if not x.rank:
        raise Refused("how many dimensions self has is not known")
    call.require("output_size", None)
    if call.absent("dim") and x.rank != 1:
        raise Refused("dim is not given")
    dim = 0 if call.absent("dim") else call.integer("dim") % x.rank
    call.identity(_repeated(call, x, dim, dim + 1, call.number("repeats")))


def _repeated(call: Call, x: Value, dim: int, new: int, count: Operand) -> Value:
    """Return a tensor with copies along a new dimension, which becomes one with ``dim``."""
    x = call.step("unsqueeze", [x, new])
    assert x.rank is not None
    sizes = [count if place == new else -1 for place in range(x.rank)]
    return call.step("flatten", [call.step("expand", [x, *sizes]), dim, dim + 1])


def chunk(call: Call) -> None:
    """Equal parts."""
    _split(call, call.integer("chunks"), chunks=call.integer("chunks"))


def unbind(call: Call) -> None:
    """All slices of a dimension."""
    x, dim, count = call.tensor("self", ANY), call.integer("dim"), call.unpacked()
    if count is None or (x.dims is not None and x.dims[dim] == count):
        call.make_list(lambda position: call.step("select", [x, dim, position]))
        return
    # To unpack more or fewer is an error, and so is a split into more or fewer parts.
    parts = call.steps("split", [x], count, dim=dim, sizes=(1,) * count)
    call.make_list(lambda position: call.step("select", [parts[position], dim, 0]))
