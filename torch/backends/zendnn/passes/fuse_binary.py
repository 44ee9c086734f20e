"""Lets the primitive that makes a value combine it with another tensor: a residual, a mask, a gate.

Shapes are not known here. A primitive cannot grow its result to the other operand's size, so what
is likely to be smaller than the other operand is left alone.
"""

from __future__ import annotations

import torch
from torch.backends.zendnn.graph import Graph, Node, Operand, PostOp, Value
from torch.backends.zendnn.operators import COMBINATIONS, VIEWS
from torch.backends.zendnn.passes._match import MOST_POST_OPS, constant, sole, with_post_op
from torch.backends.zendnn.passes._weights import channels, fold, foldable, weight_of

#: What keeps a value that was averaged over its positions that small.
_KEEPS_SIZE = VIEWS | {
    "convolution",
    "linear",
    "eltwise",
    "binary",
    "batch_norm",
    "layer_norm",
    "softmax",
    "to",
    "cat",
    "stack",
}


def fuse_binary(graph: Graph) -> int:
    """Make binary operators post-ops of what makes one of their operands; return how many."""
    fused = 0
    averaged = _averaged(graph)
    for last in list(graph.nodes):
        if last.op != "binary" or len(last.inputs) != 2:
            continue
        algorithm = str(last.attributes["algorithm"])
        candidates = _candidates(graph, last, averaged)
        if not candidates and algorithm == "sub":
            candidates, algorithm = _opposite(graph, last, averaged), "add"
        if not candidates:
            continue
        place = graph.nodes.index
        # The later one: the other operand is there already, and nothing has to wait.
        node, other = max(candidates, key=lambda found: (found[0].op != "matmul", place(found[0])))
        if other.producer is not None and place(other.producer) > place(node):
            graph.move_before(node, last)
        graph.set_inputs(node, [*node.inputs, other])
        post = PostOp(algorithm, operand=len(node.inputs) - 1)
        with_post_op(graph, node, last, post)
        fused += 1
    return fused


Candidate = tuple[Node, Value]


def _candidates(graph: Graph, last: Node, averaged: set[Value]) -> list[Candidate]:
    """What may do the work of ``last``, and what it then combines its result with."""
    a, b = last.inputs
    commutes = COMBINATIONS[str(last.attributes["algorithm"])].commutes
    sides = ((a, b), (b, a)) if commutes else ((a, b),)
    found = (_candidate(graph, last, result, other, averaged) for result, other in sides)
    return [candidate for candidate in found if candidate is not None]


def _candidate(
    graph: Graph, last: Node, result: Operand, other: Operand, averaged: set[Value]
) -> Candidate | None:
    node = sole(graph, result, "convolution", "linear", "matmul")
    if node is None or not isinstance(other, Value) or other.kind != "tensor":
        return None
    count = len(node.post_ops) + 1 + len(last.post_ops)
    return (node, other) if count <= MOST_POST_OPS and _covers(node, other, averaged) else None


def _opposite(graph: Graph, last: Node, averaged: set[Value]) -> list[Candidate]:
    """The layer that makes y, for x - y: from now on it makes -y, and can add x to that."""
    x, y = last.inputs
    candidate = _candidate(graph, last, y, x, averaged)
    layer = foldable(graph, y)
    if candidate is None or layer is None:
        return []
    opposite = torch.tensor(-1.0, dtype=torch.float64).expand(channels(layer))
    return [candidate] if fold(graph, layer, opposite, None) else []


def _covers(node: Node, other: Value, averaged: set[Value]) -> bool:
    """Whether the node's result is likely to have every element of the result of both."""
    tensor, count = constant(other), _channels(node)
    if tensor is not None:
        return count is None or _fits(tensor, node, count)
    if count == 1 and _channels(other.producer) != 1:
        return False
    rank, other_rank = node.output.rank, other.rank
    if rank is not None and other_rank is not None and rank < other_rank:
        return False
    # Squeeze and excitation: the gate is one number for a channel, what it multiplies an image.
    return node.output not in averaged or other in averaged


def _fits(tensor: torch.Tensor, node: Node, count: int) -> bool:
    """Whether a constant has the layer's channels, or one, and is not of a larger batch."""
    if not tensor.dim():
        return True
    if node.op == "linear":
        return tensor.shape[-1] in (1, count)
    rank = weight_of(node).dim()
    shape = [1] * (rank - tensor.dim()) + list(tensor.shape)
    return len(shape) == rank and shape[0] == 1 and shape[1] in (1, count)


def _channels(node: Node | None) -> int | None:
    if node is None or node.op not in ("convolution", "linear"):
        return None
    return None if constant(node.inputs[1]) is None else channels(node)


def _averaged(graph: Graph) -> set[Value]:
    averaged: set[Value] = set()
    for node in graph.nodes:
        read = [v for v in node.values() if v.kind == "tensor" and v.constant is None]
        if node.op in ("mean", "sum", "adaptive_avg_pool") or (
            node.op in _KEEPS_SIZE and read and averaged.issuperset(read)
        ):
            averaged.update(node.outputs)
    return averaged
