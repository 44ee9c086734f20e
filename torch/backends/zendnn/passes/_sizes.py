"""What a graph says of the sizes of its values, before it sees a tensor."""

from __future__ import annotations

from collections.abc import Callable

from torch.backends.zendnn.graph import Node, Operand, Value
from torch.backends.zendnn.passes._match import constant, result_rank

#: The size of each dimension, where it is known.
Shape = tuple[int | None, ...]


class Sizes:
    """What is known of the values that nodes make, which are shown to it in order."""

    def __init__(self) -> None:
        self._shapes: dict[Value, Shape] = {}
        self._ranks: dict[Value, int] = {}

    def of(self, operand: Operand) -> Shape | None:
        """The shape of a tensor; None when not even its rank is known."""
        tensor = constant(operand)
        if tensor is not None:
            return tuple(tensor.shape)
        return self._shapes.get(operand) if isinstance(operand, Value) else None

    def learn(self, node: Node) -> None:
        """Note what a node says of its results."""
        rank = result_rank(node, self._ranks)
        rule = _RULES.get(node.op)
        try:
            shape = rule(self, node) if rule is not None and not node.post_ops else None
        except IndexError:  # the model's own error, raised when it runs
            shape = None
        if shape is None or (rank is not None and len(shape) != rank):
            shape = None if rank is None else (None,) * rank
        if shape is not None:
            self._shapes.update(dict.fromkeys(node.outputs, shape))
            self._ranks.update(dict.fromkeys(node.outputs, len(shape)))


def _same(sizes: Sizes, node: Node) -> Shape | None:
    return sizes.of(node.inputs[0])


def _stated(sizes: Sizes, node: Node) -> Shape:
    """What a view or an expansion is told; -1 means what fits, or what was there."""
    return tuple(size if isinstance(size, int) and size >= 0 else None for size in node.inputs[1:])


def _permuted(sizes: Sizes, node: Node) -> Shape | None:
    shape, dims = sizes.of(node.inputs[0]), node.inputs[1:]
    if shape is None or len(shape) != len(dims):
        return None
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


def _linear(sizes: Sizes, node: Node) -> Shape | None:
    shape, weight = sizes.of(node.inputs[0]), sizes.of(node.inputs[1])
    return None if not shape or not weight else (*shape[:-1], weight[0])


def _convolution(sizes: Sizes, node: Node) -> Shape | None:
    """The channels, of images that are known to come in batches."""
    shape, weight = sizes.of(node.inputs[0]), sizes.of(node.inputs[1])
    if not shape or not weight or len(shape) != len(weight) or node.attributes.get("transposed"):
        return None
    return (shape[0], weight[0], *(None for _ in shape[2:]))


def _matmul(sizes: Sizes, node: Node) -> Shape | None:
    a, b = (sizes.of(operand) for operand in node.inputs[:2])
    if a is None or b is None or min(len(a), len(b)) < 2:
        return None
    batch = _broadcast(a[:-2], b[:-2])
    return (*batch, a[-2], b[-1])


def _binary(sizes: Sizes, node: Node) -> Shape | None:
    a, b = (sizes.of(operand) for operand in node.inputs[:2])
    return None if a is None or b is None else _broadcast(a, b)


def _broadcast(a: Shape, b: Shape) -> Shape:
    rank = max(len(a), len(b))
    pairs = zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True)
    # What is not known may be 1, or what the other one is.
    return tuple(y if x == 1 else x if x is not None or y == 1 else y for x, y in pairs)


def _embedding(sizes: Sizes, node: Node) -> Shape | None:
    table, ids = (sizes.of(operand) for operand in node.inputs[:2])
    return None if table is None or ids is None else (*ids, table[1])


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
            *("eltwise", "prelu", "softmax", "to", "to_like", "contiguous", "roll"),
            *("layer_norm", "rms_norm", "group_norm", "batch_norm"),
        ),
        _same,
    ),
    **dict.fromkeys(("view", "expand"), _stated),
    "permute": _permuted,
    "transpose": _transposed,
    "unsqueeze": _unsqueezed,
    "slice": _sliced,
    "select": _selected,
    "split": _split,
    "linear": _linear,
    "convolution": _convolution,
    "matmul": _matmul,
    "binary": _binary,
    "embedding": _embedding,
}
