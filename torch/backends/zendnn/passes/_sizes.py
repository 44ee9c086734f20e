"""What a graph says of the sizes of its values, before it sees a tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from torch.backends.zendnn.graph import Node, Operand, Value
from torch.backends.zendnn.passes._match import constant, integers

#: The size of each dimension, where it is known.
Shape = tuple[int | None, ...]


class Sizes:
    """What constants and operators fix; graph inputs and opaque results have no sizes here."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._shapes: dict[Value, Shape] = {}
        for node in nodes:
            self.learn(node)

    def of(self, operand: Operand) -> Shape | None:
        """The shape of a tensor; None when not even its rank is known."""
        tensor = constant(operand)
        if tensor is not None:
            return tuple(tensor.shape)
        return self._shapes.get(operand) if isinstance(operand, Value) else None

    def rank(self, operand: Operand) -> int | None:
        """How many dimensions a tensor has."""
        shape = self.of(operand)
        return None if shape is None else len(shape)

    def learn(self, node: Node) -> None:
        """Note what a node says of its results; nodes are shown in order."""
        rule = _RULES.get(node.op)
        try:
            shape = None if rule is None else rule(self, node)
        except IndexError:  # the model's own error, raised when it runs
            return
        if shape is not None:
            # What a post-op reads may be larger.
            shape = _unknown(len(shape)) if node.post_ops else shape
            self._shapes.update(dict.fromkeys(node.outputs, shape))

    def learn_rank(self, value: Value, rank: int) -> None:
        """Note a rank that somebody else knows."""
        if self.rank(value) != rank:
            self._shapes[value] = _unknown(rank)


def _unknown(rank: int) -> Shape:
    return (None,) * rank


def _same(sizes: Sizes, node: Node) -> Shape | None:
    return sizes.of(node.inputs[0])


def _as_many(more: int) -> Callable[[Sizes, Node], Shape | None]:
    """As many dimensions as the first operand has, and some more."""

    def rule(sizes: Sizes, node: Node) -> Shape | None:
        rank = sizes.rank(node.inputs[0])
        return None if rank is None else _unknown(rank + more)

    return rule


def _stated(sizes: Sizes, node: Node) -> Shape:
    return _given(node.inputs[1:])


def _given(sizes: Iterable[Operand]) -> Shape:
    """What a view or an expansion is told; -1 means what fits, or what was there."""
    return tuple(size if isinstance(size, int) and size >= 0 else None for size in sizes)


def _flattened(sizes: Sizes, node: Node) -> Shape | None:
    shape, (start, end) = sizes.of(node.inputs[0]), node.inputs[1:3]
    if not isinstance(start, int) or not isinstance(end, int):
        return None
    if shape is None:
        return _unknown(start + 1) if end == -1 and start >= 0 else None
    if not shape:
        return (1,)
    start, end = start % len(shape), end % len(shape)
    joined = [size for size in shape[start : end + 1] if size is not None]
    size = math.prod(joined) if len(joined) == end + 1 - start else None
    return (*shape[:start], size, *shape[end + 1 :])


def _unflattened(sizes: Sizes, node: Node) -> Shape | None:
    shape, dim = sizes.of(node.inputs[0]), node.inputs[1]
    if not shape or not isinstance(dim, int):
        return None
    dim %= len(shape)
    return (*shape[:dim], *_given(node.inputs[2:]), *shape[dim + 1 :])


def _permuted(sizes: Sizes, node: Node) -> Shape | None:
    shape, dims = sizes.of(node.inputs[0]), node.inputs[1:]
    if shape is None or len(shape) != len(dims):
        return _unknown(len(dims))
    return tuple(shape[dim] for dim in dims if isinstance(dim, int))


def _transposed(sizes: Sizes, node: Node) -> Shape | None:
    shape, (a, b) = sizes.of(node.inputs[0]), node.inputs[1:]
    if shape is None or not isinstance(a, int) or not isinstance(b, int):
        return None
    swapped = list(shape)
    swapped[a], swapped[b] = swapped[b], swapped[a]
    return tuple(swapped)


def _unsqueezed(sizes: Sizes, node: Node) -> Shape | None:
    shape, dim = sizes.of(node.inputs[0]), node.inputs[1]
    if shape is None or not isinstance(dim, int):
        return None
    dim %= len(shape) + 1
    return (*shape[:dim], 1, *shape[dim:])


def _selected(sizes: Sizes, node: Node) -> Shape | None:
    shape, dim = sizes.of(node.inputs[0]), node.inputs[1]
    if not shape or not isinstance(dim, int):
        return None
    dim %= len(shape)
    return shape[:dim] + shape[dim + 1 :]


def _split(sizes: Sizes, node: Node) -> Shape | None:
    """What all parts have: the last may be smaller than the others."""
    shape, dim = sizes.of(node.inputs[0]), node.attributes["dim"]
    if not shape or not isinstance(dim, int):
        return None
    parts = list(shape)
    parts[dim] = None
    return tuple(parts)


def _mean(sizes: Sizes, node: Node) -> Shape | None:
    shape = sizes.of(node.inputs[0])
    if not shape:
        return shape
    gone = {dim % len(shape) for dim in integers(node, "dims")}
    kept = [1 if dim in gone else size for dim, size in enumerate(shape)]
    return tuple(
        size for dim, size in enumerate(kept) if dim not in gone or node.attributes.get("keep")
    )


def _linear(sizes: Sizes, node: Node) -> Shape | None:
    shape, weight = (sizes.of(operand) for operand in node.inputs[:2])
    if not shape or weight is None or len(weight) != 2:
        return None
    return (*shape[:-1], weight[0])


def _convolution(sizes: Sizes, node: Node) -> Shape | None:
    """The channels, of images that are known to come in batches."""
    shape, weight = (sizes.of(operand) for operand in node.inputs[:2])
    if shape is None or weight is None:
        known = shape or weight
        return None if known is None else _unknown(len(known))
    if len(shape) != len(weight) or node.attributes.get("transposed"):
        return _unknown(len(shape))
    return (shape[0], weight[0], *_unknown(len(shape) - 2))


def _matmul(sizes: Sizes, node: Node) -> Shape | None:
    a, b = (sizes.of(operand) for operand in node.inputs[:2])
    if a is None or b is None or min(len(a), len(b)) < 2:
        return None  # a product with a vector loses a dimension
    return (*_common(a[:-2], b[:-2]), a[-2], b[-1])


def _broadcast(sizes: Sizes, operands: Iterable[Operand]) -> Shape | None:
    common: Shape = ()
    for operand in operands:
        shape = sizes.of(operand)
        if shape is not None:
            common = _common(common, shape)
        elif operand is not None:
            return None
    return common


def _common(a: Shape, b: Shape) -> Shape:
    rank = max(len(a), len(b))
    pairs = zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True)
    # What is not known may be 1, or what the other one is.
    return tuple(y if x == 1 else x if x is not None or y == 1 else y for x, y in pairs)


def _embedding(sizes: Sizes, node: Node) -> Shape | None:
    table, ids = (sizes.of(operand) for operand in node.inputs[:2])
    return None if ids is None else (*ids, None if table is None else table[1])


def _sliced(sizes: Sizes, node: Node) -> Shape | None:
    """All other dimensions, and the sliced one when it is known from where to where."""
    shape, (dim, start, end, step) = sizes.of(node.inputs[0]), node.inputs[1:]
    if not shape or not isinstance(dim, int):
        return None
    cut = list(shape)
    size, bounds = shape[dim], [bound for bound in (start, end) if not isinstance(bound, Value)]
    cut[dim] = None
    if size is not None and len(bounds) == 2 and step in (None, 1):
        cut[dim] = len(range(size)[slice(*bounds)])
    return tuple(cut)


_RULES: dict[str, Callable[[Sizes, Node], Shape | None]] = {
    **dict.fromkeys(
        (
            *("eltwise", "nonzero", "prelu", "softmax", "to", "to_like", "contiguous", "roll"),
            *("layer_norm", "rms_norm", "group_norm", "batch_norm"),
        ),
        _same,
    ),
    **dict.fromkeys(
        (
            *("resample", "max_pool", "avg_pool", "adaptive_avg_pool"),
            *("cat", "pad", "attention"),
        ),
        _as_many(0),
    ),
    "stack": _as_many(1),
    "gather_pairs": _as_many(-1),
    "power": lambda sizes, node: (),
    "embedding_bag": lambda sizes, node: _unknown(2),
    "embedding_bags": lambda sizes, node: (
        None if node.attributes["mode"] == "each" else _unknown(2)
    ),
    **dict.fromkeys(("view", "expand"), _stated),
    "expand_as": lambda sizes, node: sizes.of(node.inputs[1]),
    "flatten": _flattened,
    "unflatten": _unflattened,
    "permute": _permuted,
    "transpose": _transposed,
    "unsqueeze": _unsqueezed,
    "slice": _sliced,
    "select": _selected,
    "split": _split,
    "mean": _mean,
    "linear": _linear,
    "convolution": _convolution,
    "matmul": _matmul,
    "binary": lambda sizes, node: _broadcast(sizes, node.inputs[:2]),
    "where": lambda sizes, node: _broadcast(sizes, node.inputs[:3]),
    "embedding": _embedding,
}
