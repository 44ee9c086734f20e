"""Turns arithmetic with constant numbers into one alpha·x + beta."""

from __future__ import annotations

from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node
from torch.backends.zendnn.passes._match import (
    absorb,
    affine_of,
    as_affine,
    each,
    is_no_shift,
    is_sound,
    scalar,
    sole,
)

#: How much larger than the sum of two numbers one of them may be.
_CANCELS = 1024.0


@each("binary", "eltwise.affine")
def fold_scalars(graph: Graph, node: Node) -> int:
    """Rewrite binary operators with a constant number as eltwise ones, and join chains of these."""
    return _from_binary(graph, node) + _join(graph, node)


def _from_binary(graph: Graph, node: Node) -> bool:
    if node.op != "binary":
        return False
    left, right = map(scalar, node.inputs)
    number = left if right is None else right
    if number is None or (left is not None and (right is not None or node.get("in_place"))):
        return False
    found = as_affine(node.get("algorithm"), number, left=right is None)
    if found is None:
        return False
    graph.set_inputs(node, [node.inputs[right is None]])
    node.op = "eltwise"
    node.attributes = {"algorithm": "affine", "alpha": found[0], "beta": found[1]}
    return True


def _join(graph: Graph, node: Node) -> bool:
    inner = sole(graph, node.inputs[0], "eltwise")
    first, second = affine_of(inner), affine_of(node)
    if inner is None or first is None or second is None:
        return False
    if first[1] == 0 and not is_no_shift(first[1]):
        return False  # it makes 0.0 of -0.0, and only it
    alpha = first[0] * second[0]
    beta = first[1] * second[0] + second[1] if first[1] else second[1]
    # Near x = -b, (x + b) * c is exact and x * c + b * c is not: these stay two.
    if first[1] and abs(first[0]) == 1 and abs(second[0]) != 1:
        return False
    # (x + c) - c rounds x where c is large: numbers that cancel out stay, too.
    if abs(second[1]) > _CANCELS * abs(beta) or not is_sound(alpha) or not is_sound(beta):
        return False
    inner.attributes = {"algorithm": "affine", "alpha": alpha, "beta": beta}
    absorb(graph, inner, node)
    return True
