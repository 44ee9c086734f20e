"""Elements that indices choose, and the largest ones."""

from __future__ import annotations

import torch
from torch.backends.zendnn.frontends.aten import integers, views
from torch.backends.zendnn.frontends.calls import ANY, INDEX, Call, Refused
from torch.backends.zendnn.ir.node import Value
from torch.backends.zendnn.passes import _match

#: As many tensors of indices as the kernel takes.
MOST_INDICES = 4


def index(call: Call) -> None:
    """Elements of neighbouring dimensions; constant pairs have an operator of their own."""
    pair = _constant_pair(call)
    if pair:
        call.result("gather_pairs", [call.tensor("self"), *map(call.graph.constant, pair)])
        return
    x, indices = call.tensor("self", ANY), _indices(call)
    while indices and indices[-1] is None:
        indices.pop()
    first = next((at for at, one in enumerate(indices) if one is not None), 0)
    if None in indices[first:]:
        raise Refused("it indexes dimensions that are apart")
    if not 0 < len(indices) - first <= MOST_INDICES:
        raise Refused(f"it has {len(indices) - first} tensors of indices")
    bounds = _bounds(x, first, indices[first:])
    if bounds is not None:
        call.result("slice", [x, first, *bounds, 1])
    else:
        call.result("index", [x, *indices])


def _bounds(x: Value, dim: int, indices: list[Value | None]) -> tuple[int, int] | None:
    """Return the bounds of the slice that constant indices of one dimension choose, if they do."""
    index = _match.constant(indices[0]) if len(indices) == 1 else None
    size = x.dims[dim] if x.dims is not None and dim < len(x.dims) else None
    if index is None or index.dim() != 1 or not index.numel() or not isinstance(size, int):
        return None
    if x.is_state:
        return None  # these elements are a copy, which a later write must not change
    index = torch.where(index < 0, index + size, index)
    within = int(index.min()) >= 0 and int(index.max()) < size
    return views.bounds_of(index) if within else None


def _constant_pair(call: Call) -> list[torch.Tensor]:
    """Return constant rows and columns of the last two dimensions, if these are all indices."""
    constant = call.constant("indices")
    indices = constant if isinstance(constant, list) else []
    leading, pair = indices[:-2], indices[-2:]
    if len(indices) != 3 or leading != [None] or any(i is None for i in pair):
        return []
    rows, columns = pair
    known = rows.dim() == 1 and rows.shape == columns.shape and call.tensor("self", ANY).rank == 3
    fits = all(i.dtype == torch.int64 and (i >= 0).all() for i in pair)
    return pair if known and fits and not call.tensor("self", ANY).is_integer else []


def _indices(call: Call) -> list[Value | None]:
    """Return a tensor of indices for each dimension; None for those without."""
    constant = call.constant("indices")
    if isinstance(constant, list):
        found = [None if one is None else call.graph.constant(one) for one in constant]
    else:
        found = [
            None if call.constant_of(one) is None else call.as_tensor(one, "an index", INDEX)
            for one in call.elements("indices")
        ]
    if any(one and getattr(torch, one.dtype or "", None) not in INDEX for one in found):
        raise Refused("an index is not surely int32 or int64")
    return found


def topk(call: Call) -> None:
    """The largest or smallest elements along a dimension, and their indices."""
    x, dim = _line(call)
    flags = {name: bool(call.python(name)) for name in ("largest", "sorted")}
    indices = call.step("topk", [x], k=call.integer("k"), dim=dim, **flags)
    _bind_chosen(call, x, indices, dim, keep=True)


def largest(call: Call) -> None:
    """The largest element along a dimension, and its index."""
    x, dim = _line(call)
    indices = call.step("argmax", [x], dims=(dim,), keep=True)
    _bind_chosen(call, x, indices, dim, keep=bool(call.python("keepdim")))


def scatter(call: Call) -> None:
    """A tensor with a number at the places along a dimension that indices choose."""
    x, indices = integers.known(call, "self", ANY), call.tensor("index", INDEX)
    value = integers.like(call, "value", x, ANY)
    call.result("scatter", [x, indices, value], dim=call.integer("dim"))


def add_rows(call: Call) -> None:
    """A tensor plus rows of another one, each at the index that a list has for it."""
    x, source = call.tensor("self", ANY), call.tensor("source", ANY)
    index = call.tensor("index", INDEX)
    call.require("alpha", 1)
    if not x.rank or not index.dims or not source.dims or len(source.dims) != x.rank:
        raise Refused("self, index and source are not known to have dimensions")
    dim = call.integer("dim") % x.rank
    count, rows = index.dims[0], source.dims[dim]
    if count != rows and (count == 1 or not isinstance(count, int)):
        raise Refused("index is not known to have one for each row")  # and would repeat
    for place in range(x.rank):
        if place != dim:
            index = call.step("unsqueeze", [index, place])
    places = call.step("expand_as", [index, source])
    call.result("scatter", [x, places, source], dim=dim, add=True, rows=True)


def _line(call: Call) -> tuple[Value, int]:
    """Return a tensor that surely has dimensions, and one of these."""
    x = call.tensor("self")
    if not x.rank:
        raise Refused("self is not known to have dimensions")
    return x, call.integer("dim")


def _bind_chosen(call: Call, x: Value, indices: Value, dim: int, *, keep: bool) -> None:
    """Make the elements that indices choose, and these, the call's results."""
    values, places = call.outputs
    chosen = {places: indices}
    if call.is_used(values):
        chosen[values] = call.step("take_along", [x, indices], dim=dim)
    for output, result in chosen.items():
        call.bind(output, result if keep else call.step("squeeze", [result, dim]))
