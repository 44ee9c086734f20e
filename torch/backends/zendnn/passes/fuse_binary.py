"""Lets the primitive that makes a value combine it with another tensor: a residual, a mask, a gate.

Shapes are unknown here. A primitive cannot broadcast its result to the other operand's size, so a
result that is likely to be smaller is not fused.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node, Operand, PostOp, Value
from torch.backends.zendnn.passes._match import MOST_POST_OPS, sole, with_post_op
from torch.backends.zendnn.passes._weights import channels, fold, foldable
from torch.backends.zendnn.table.functions import COMBINATIONS
from torch.backends.zendnn.table.notation import Trait


def fuse_binary(graph: Graph) -> int:
    """Make binary operators post-ops of what makes one of their operands; return how many."""
    fused = 0
    averaged = _averaged(graph)
    for last in list(graph.nodes):
        if last.op != "binary":
            continue
        algorithm, (a, b) = last.get("algorithm"), last.inputs
        kept = a if last.get("in_place") else None
        sides = [(a, b), (b, a)] if COMBINATIONS[algorithm].commutes else [(a, b)]
        found = _candidates(graph, last, sides, averaged)
        if not found and algorithm == "sub":
            found, algorithm = _candidates(graph, last, [(b, a)], averaged), "add"
            found = found if found and _negate(graph, b) else []
        if not found:
            continue
        place = graph.nodes.index
        # The later one, whose other operand exists already.
        node, other = max(found, key=lambda pair: (pair[0].op != "matmul", place(pair[0])))
        if other.producer is not None and place(other.producer) > place(node):
            graph.move_before(node, last)
        graph.set_inputs(node, [*node.inputs, other])
        keeps = "" if kept is None else "operand" if kept is other else "result"
        post = PostOp(algorithm, operand=len(node.inputs) - 1, keeps=keeps)
        with_post_op(graph, node, last, post)
        fused += 1
    return fused


def _candidates(
    graph: Graph, last: Node, sides: Iterable[tuple[Operand, Operand]], averaged: set[Value]
) -> list[tuple[Node, Value]]:
    """The nodes that may perform ``last``, each with the other operand."""
    found = []
    for result, other in sides:
        node = sole(graph, result, "convolution", "linear", "matmul")
        if node is None or not isinstance(other, Value) or other.kind != "tensor":
            continue
        count = len(node.post_ops) + 1 + len(last.post_ops)
        if count <= MOST_POST_OPS and _covers(node, other, averaged):
            found.append((node, other))
    return found


def _negate(graph: Graph, y: Operand) -> bool:
    """Let the layer that makes y, for x - y, make -y instead, so that it can add x to that."""
    layer = foldable(graph, y)
    return layer is not None and fold(graph, layer, -1.0, 0.0)


def _covers(node: Node, other: Value, averaged: set[Value]) -> bool:
    """Whether the node's result is likely to have every element of the result of both."""
    if _channels(node) == 1 and _channels(other.producer) != 1:
        return False
    rank, other_rank = node.output.rank, other.rank
    if rank is not None and other_rank is not None and rank < other_rank:
        return False
    # Squeeze and excitation: a gate of one number a channel multiplies a whole image.
    return node.output not in averaged or other in averaged


def _channels(node: Node | None) -> int | None:
    if node is None or node.op not in ("convolution", "linear"):
        return None
    return channels(node)


def _averaged(graph: Graph) -> set[Value]:
    averaged: set[Value] = set()
    for node in graph.nodes:
        read = [v for v in node.values() if v.kind == "tensor" and v.constant is None]
        keeps = node.has(Trait.KEEPS_SMALL | Trait.VIEW) and read and averaged.issuperset(read)
        if keeps or node.op in ("mean", "sum", "adaptive_avg_pool"):
            averaged.update(node.outputs)
    return averaged
