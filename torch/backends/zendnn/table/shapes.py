"""The dims of values, and the rules that infer them for an operator's results.

A rule takes a node and the dims of its operands, and returns the dims of each result. It raises
IndexError where a dimension does not exist: the model itself is wrong.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias, Union

if TYPE_CHECKING:
    from torch.backends.zendnn.ir.node import Node, Operand, Value

#: A size: known, symbolic (the value that holds it when the plan runs) or unknown.
Dim: TypeAlias = Union[int, "Value", None]

#: The size of each dimension.
Dims: TypeAlias = tuple[Dim, ...]

#: The dims of each operand; None where not even the rank is known.
OperandDims: TypeAlias = Sequence[Dims | None]
Rule: TypeAlias = Callable[["Node", OperandDims], Dims | None]


def unknown(rank: int) -> Dims:
    """Dims of which only the rank is known."""
    return (None,) * rank


def _of(position: int) -> Rule:
    """The dims of an operand."""
    return lambda node, dims: dims[position]


same, as_other = _of(0), _of(1)


def as_many(more: int) -> Rule:
    """The rank of the first operand, plus a number."""

    def rule(node: Node, dims: OperandDims) -> Dims | None:
        return None if dims[0] is None else unknown(len(dims[0]) + more)

    return rule


def always(result: Dims) -> Rule:
    """These dims."""
    return lambda node, dims: result


def _given(sizes: Iterable[Operand]) -> Dims:
    """The sizes that a view states, of which -1 leaves one open."""
    return tuple(map(_given_size, sizes))


def _given_size(size: Operand) -> Dim:
    if isinstance(size, int):
        return size if size >= 0 else None
    # A number that is not a size may be -1 at run time.
    maker = None if size is None else size.producer
    return size if maker is not None and maker.op in ("size", "numel") else None


def given(node: Node, dims: OperandDims) -> Dims:
    """The sizes that all operands are."""
    return _given(node.inputs)


def attribute_sizes(node: Node, dims: OperandDims) -> Dims:
    """The sizes that an attribute states."""
    return tuple(node.get("sizes"))


def stated(node: Node, dims: OperandDims) -> Dims:
    """The sizes that follow the first operand."""
    return _given(node.inputs[1:])


def expanded(node: Node, dims: OperandDims) -> Dims:
    """The sizes that follow the first operand, whose own -1 keeps."""
    x, sizes = dims[0], node.inputs[1:]
    if x is None or len(x) > len(sizes):
        return _given(sizes)
    own = (*unknown(len(sizes) - len(x)), *x)
    return tuple(o if s == -1 else _given_size(s) for s, o in zip(sizes, own, strict=True))


def flattened(node: Node, dims: OperandDims) -> Dims | None:
    """Adjacent dimensions as one."""
    x, (start, end) = dims[0], node.inputs[1:3]
    if not isinstance(start, int) or not isinstance(end, int):
        return None
    if x is None:
        return unknown(start + 1) if end == -1 and start >= 0 else None
    if not x:
        return (1,)
    start, end = start % len(x), end % len(x) + 1
    joined = x[start:end]
    known = [size for size in joined if isinstance(size, int)]
    size = math.prod(known) if len(known) == len(joined) else None
    return x if len(joined) == 1 else (*x[:start], size, *x[end:])


def _replaced(sizes: Callable[[Node, Dim], Dims]) -> Rule:
    """Other sizes in the place of one dimension, which the node names."""

    def rule(node: Node, dims: OperandDims) -> Dims | None:
        x, dim = dims[0], node.inputs[1] if node.inputs[1:] else node.get("dim")
        if not x or not isinstance(dim, int):
            return None
        dim %= len(x)
        return (*x[:dim], *sizes(node, x[dim]), *x[dim + 1 :])

    return rule


def _cut(node: Node, size: Dim) -> Dims:
    """A slice's size, which is known where that of the operand and both bounds are."""
    start, end, step = node.inputs[2:]
    bounds = [bound for bound in (start, end) if bound is None or isinstance(bound, int)]
    if isinstance(size, int) and len(bounds) == 2 and step in (None, 1):
        return (len(range(size)[slice(*bounds)]),)
    return (None,)


selected = _replaced(lambda node, size: ())
unflattened = _replaced(lambda node, size: _given(node.inputs[2:]))
sliced = _replaced(_cut)
split = _replaced(lambda node, size: (None,))  # the last part may be smaller than the others


def permuted(node: Node, dims: OperandDims) -> Dims:
    """All dimensions in another order."""
    x, order = dims[0], node.inputs[1:]
    if x is None or len(x) != len(order):
        return unknown(len(order))
    return tuple(x[dim] for dim in order if isinstance(dim, int))


def transposed(node: Node, dims: OperandDims) -> Dims | None:
    """Two dimensions swapped."""
    x, (a, b) = dims[0], node.inputs[1:]
    if x is None or not isinstance(a, int) or not isinstance(b, int):
        return None
    swapped = list(x)
    swapped[a], swapped[b] = swapped[b], swapped[a]
    return tuple(swapped)


def unsqueezed(node: Node, dims: OperandDims) -> Dims | None:
    """One more dimension, of size 1."""
    x, dim = dims[0], node.inputs[1]
    if x is None or not isinstance(dim, int):
        return None
    dim %= len(x) + 1
    return (*x[:dim], 1, *x[dim:])


def reduced(node: Node, dims: OperandDims) -> Dims | None:
    """The dims without the reduced ones, or with 1 in their places; none named means all."""
    x = dims[0]
    if not x:
        return x
    gone = {dim % len(x) for dim in node.get("dims") or range(len(x))}
    if node.get("keep"):
        return tuple(1 if dim in gone else size for dim, size in enumerate(x))
    return tuple(size for dim, size in enumerate(x) if dim not in gone)


#: As many in the place of one dimension as the node counts.
counted = _replaced(lambda node, size: (node.get("k"),))


def indexed(node: Node, dims: OperandDims) -> Dims | None:
    """What indices broadcast to in the place of the dimensions that they choose from."""
    x, given = dims[0], dims[1:]
    first = sum(1 for operand in node.inputs[1:] if operand is None)
    common: Dims = ()
    for of_one in given[first:]:
        if x is None or of_one is None:
            return None
        common = _common(common, of_one)
    return None if x is None else (*x[:first], *common, *x[len(given) :])


def linear(node: Node, dims: OperandDims) -> Dims | None:
    """The first dimension of the weight in place of the last."""
    x, weight = dims[:2]
    if not x or weight is None or len(weight) != 2:
        return None
    return (*x[:-1], weight[0])


def convolution(node: Node, dims: OperandDims) -> Dims | None:
    """The channels, where the images surely come in batches."""
    x, weight = dims[:2]
    if x is None or weight is None:
        known = x or weight
        return None if known is None else unknown(len(known))
    if len(x) != len(weight) or node.get("transposed"):
        return unknown(len(x))
    return (x[0], weight[0], *unknown(len(x) - 2))


def matmul(node: Node, dims: OperandDims) -> Dims | None:
    """Rows of one, columns of the other, and the batches of both."""
    a, b = dims[:2]
    if a is None or b is None or min(len(a), len(b)) < 2:
        return None  # a product with a vector loses a dimension
    return (*_common(a[:-2], b[:-2]), a[-2], b[-1])


def broadcast(count: int) -> Rule:
    """What the first operands broadcast to, where they are tensors."""

    def rule(node: Node, dims: OperandDims) -> Dims | None:
        common: Dims = ()
        for operand, given in zip(node.inputs[:count], dims, strict=False):
            if given is not None:
                common = _common(common, given)
            elif operand is not None:
                return None
        return common

    return rule


def _common(a: Dims, b: Dims) -> Dims:
    pairs = itertools.zip_longest(a[::-1], b[::-1], fillvalue=1)
    return tuple(_common_size(*pair) for pair in pairs)[::-1]


def _common_size(a: Dim, b: Dim) -> Dim:
    for one, other in ((a, b), (b, a)):
        if isinstance(one, int):
            return other if one == 1 else one  # what is not known is 1, or the same
    return a if a is b else None


def embedding(node: Node, dims: OperandDims) -> Dims | None:
    """A row of the table for each index."""
    table, ids = dims[:2]
    return None if ids is None else (*ids, None if table is None else table[1])


def embedding_bags(node: Node, dims: OperandDims) -> Dims | None:
    """A row for each bag, or for each index."""
    return None if node.get("mode") == "each" else unknown(2)
