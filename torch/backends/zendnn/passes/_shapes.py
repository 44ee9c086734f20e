"""What operators make of the shapes of their operands, as far as these are known.

A rule is given a node and the shapes of its operands, and returns that of each of its results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from torch.backends.zendnn.graph import Node, Operand, Value

#: The size of each dimension, where it is known.
Shape = tuple[int | None, ...]

#: None where not even the rank is known.
Shapes = Sequence[Shape | None]
Rule = Callable[[Node, Shapes], Shape | None]


def unknown(rank: int) -> Shape:
    """A shape of which only the rank is known."""
    return (None,) * rank


def same(node: Node, shapes: Shapes) -> Shape | None:
    """The shape of the first operand."""
    return shapes[0]


def as_many(more: int) -> Rule:
    """As many dimensions as the first operand has, and some more."""

    def rule(node: Node, shapes: Shapes) -> Shape | None:
        return None if shapes[0] is None else unknown(len(shapes[0]) + more)

    return rule


def always(shape: Shape) -> Rule:
    """This shape."""
    return lambda node, shapes: shape


def stated(node: Node, shapes: Shapes) -> Shape:
    """The sizes that stand behind the operand."""
    return _given(node.inputs[1:])


def _given(sizes: Iterable[Operand]) -> Shape:
    """What a view or an expansion is told; -1 means what fits, or what was there."""
    return tuple(size if isinstance(size, int) and size >= 0 else None for size in sizes)


def as_other(node: Node, shapes: Shapes) -> Shape | None:
    """The shape of the second operand."""
    return shapes[1]


def flattened(node: Node, shapes: Shapes) -> Shape | None:
    """Some neighbouring dimensions as one."""
    shape, (start, end) = shapes[0], node.inputs[1:3]
    if not isinstance(start, int) or not isinstance(end, int):
        return None
    if shape is None:
        return unknown(start + 1) if end == -1 and start >= 0 else None
    if not shape:
        return (1,)
    start, end = start % len(shape), end % len(shape)
    joined = [size for size in shape[start : end + 1] if size is not None]
    size = math.prod(joined) if len(joined) == end + 1 - start else None
    return (*shape[:start], size, *shape[end + 1 :])


def unflattened(node: Node, shapes: Shapes) -> Shape | None:
    """One dimension as several."""
    shape, dim = shapes[0], node.inputs[1]
    if not shape or not isinstance(dim, int):
        return None
    dim %= len(shape)
    return (*shape[:dim], *_given(node.inputs[2:]), *shape[dim + 1 :])


def permuted(node: Node, shapes: Shapes) -> Shape | None:
    """All dimensions in another order."""
    shape, dims = shapes[0], node.inputs[1:]
    if shape is None or len(shape) != len(dims):
        return unknown(len(dims))
    return tuple(shape[dim] for dim in dims if isinstance(dim, int))


def transposed(node: Node, shapes: Shapes) -> Shape | None:
    """Two dimensions exchanged."""
    shape, (a, b) = shapes[0], node.inputs[1:]
    if shape is None or not isinstance(a, int) or not isinstance(b, int):
        return None
    swapped = list(shape)
    swapped[a], swapped[b] = swapped[b], swapped[a]
    return tuple(swapped)


def unsqueezed(node: Node, shapes: Shapes) -> Shape | None:
    """One more dimension."""
    shape, dim = shapes[0], node.inputs[1]
    if shape is None or not isinstance(dim, int):
        return None
    dim %= len(shape) + 1
    return (*shape[:dim], 1, *shape[dim:])


def selected(node: Node, shapes: Shapes) -> Shape | None:
    """One dimension less."""
    shape, dim = shapes[0], node.inputs[1]
    if not shape or not isinstance(dim, int):
        return None
    dim %= len(shape)
    return shape[:dim] + shape[dim + 1 :]


def sliced(node: Node, shapes: Shapes) -> Shape | None:
    """All other dimensions, and the sliced one when it is known from where to where."""
    shape, (dim, start, end, step) = shapes[0], node.inputs[1:]
    if not shape or not isinstance(dim, int):
        return None
    cut = list(shape)
    size, bounds = shape[dim], [bound for bound in (start, end) if not isinstance(bound, Value)]
    cut[dim] = None
    if size is not None and len(bounds) == 2 and step in (None, 1):
        cut[dim] = len(range(size)[slice(*bounds)])
    return tuple(cut)


def split(node: Node, shapes: Shapes) -> Shape | None:
    """What all parts have: the last may be smaller than the others."""
    shape, dim = shapes[0], node.attributes["dim"]
    if not shape or not isinstance(dim, int):
        return None
    parts = list(shape)
    parts[dim] = None
    return tuple(parts)


def averaged(node: Node, shapes: Shapes) -> Shape | None:
    """Without the dimensions that are averaged over, or with 1 in their places."""
    shape, dims = shapes[0], node.attributes.get("dims")
    if not shape:
        return shape
    if not isinstance(dims, tuple):
        return None
    gone = {dim % len(shape) for dim in dims}
    kept = [1 if dim in gone else size for dim, size in enumerate(shape)]
    return tuple(
        size for dim, size in enumerate(kept) if dim not in gone or node.attributes.get("keep")
    )


def linear(node: Node, shapes: Shapes) -> Shape | None:
    """The weight's first dimension in place of the last."""
    shape, weight = shapes[:2]
    if not shape or weight is None or len(weight) != 2:
        return None
    return (*shape[:-1], weight[0])


def convolution(node: Node, shapes: Shapes) -> Shape | None:
    """The channels, of images that are known to come in batches."""
    shape, weight = shapes[:2]
    if shape is None or weight is None:
        known = shape or weight
        return None if known is None else unknown(len(known))
    if len(shape) != len(weight) or node.attributes.get("transposed"):
        return unknown(len(shape))
    return (shape[0], weight[0], *unknown(len(shape) - 2))


def matmul(node: Node, shapes: Shapes) -> Shape | None:
    """Rows of the one, columns of the other, and the batches of both."""
    a, b = shapes[:2]
    if a is None or b is None or min(len(a), len(b)) < 2:
        return None  # a product with a vector loses a dimension
    return (*_common(a[:-2], b[:-2]), a[-2], b[-1])


def broadcast(count: int) -> Rule:
    """What the first operands broadcast to, where they are tensors."""

    def rule(node: Node, shapes: Shapes) -> Shape | None:
        common: Shape = ()
        for operand, shape in zip(node.inputs[:count], shapes, strict=False):
            if shape is not None:
                common = _common(common, shape)
            elif operand is not None:
                return None
        return common

    return rule


def _common(a: Shape, b: Shape) -> Shape:
    rank = max(len(a), len(b))
    pairs = zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True)
    # What is not known may be 1, or what the other one is.
    return tuple(y if x == 1 else x if x is not None or y == 1 else y for x, y in pairs)


def embedding(node: Node, shapes: Shapes) -> Shape | None:
    """A row of the table for each index."""
    table, ids = shapes[:2]
    return None if ids is None else (*ids, None if table is None else table[1])


def embedding_bags(node: Node, shapes: Shapes) -> Shape | None:
    """A row for each bag, or for each index."""
    return None if node.attributes["mode"] == "each" else unknown(2)
