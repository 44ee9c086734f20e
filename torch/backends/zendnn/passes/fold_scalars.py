"""Turns arithmetic with constant numbers into one alpha·x + beta."""

from __future__ import annotations

from torch.backends.zendnn.graph import Graph, Node, replace_node
from torch.backends.zendnn.passes._match import absorb, affine_of, as_affine, is_sound, scalar, sole

#: How much larger than what is left a number may be that another one takes away.
_CANCELS = 1024.0


def fold_scalars(graph: Graph) -> int:
    """Rewrite binary operators with a constant number as eltwise ones, and join chains of these."""
    folded = 0
    for node in list(graph.nodes):
        if node.op == "binary" and not node.post_ops:
            folded += _from_binary(graph, node)
        if affine_of(node) is not None:
            folded += _join(graph, node)
    return folded


def _from_binary(graph: Graph, node: Node) -> int:
    a, b = node.inputs
    left, right = scalar(a), scalar(b)
    number = left if right is None else right
    if number is None or (left is not None and right is not None):
        return 0
    found = as_affine(str(node.attributes["algorithm"]), number, left=right is None)
    if found is None:
        return 0
    x, (alpha, beta) = b if right is None else a, found
    graph.set_inputs(node, [x])
    attributes = {"algorithm": "affine", "alpha": alpha, "beta": beta}
    replace_node(node, op="eltwise", attributes=attributes)
    return 1


def _join(graph: Graph, node: Node) -> int:
    inner = sole(graph, node.inputs[0], "eltwise")
    first, second = affine_of(inner), affine_of(node)
    if inner is None or first is None or second is None:
        return 0
    alpha, beta = first[0] * second[0], first[1] * second[0] + second[1]
    # (x + b) * c is exact where x is near -b, and x * c + b * c is not: these stay two.
    if first[1] and abs(first[0]) == 1 and abs(second[0]) != 1:
        return 0
    # (x + c) - c rounds x where c is large: what cancels out stays, too.
    if abs(second[1]) > _CANCELS * abs(beta):
        return 0
    if not is_sound(alpha) or not is_sound(beta):
        return 0
    replace_node(inner, attributes={"algorithm": "affine", "alpha": alpha, "beta": beta})
    absorb(graph, inner, node)
    return 1
