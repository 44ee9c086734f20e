"""Turns arithmetic with constant numbers into one alpha·x + beta."""

from __future__ import annotations

from torch.backends.zendnn.graph import Graph, Node, Operand, replace_node
from torch.backends.zendnn.passes._match import (
    absorb,
    is_sound,
    linear_of,
    scalar,
    sole,
)


def fold_scalars(graph: Graph) -> int:
    """Rewrite binary operators with a constant number as eltwise ones, and join chains of these."""
    folded = 0
    for node in list(graph.nodes):
        if node.op == "binary" and not node.post_ops:
            folded += _from_binary(graph, node)
        if linear_of(node) is not None:
            folded += _join(graph, node)
    return folded


def _from_binary(graph: Graph, node: Node) -> int:
    a, b = node.inputs
    left, right = scalar(a), scalar(b)
    if (left is None) == (right is None):
        return 0
    algorithm = str(node.attributes["algorithm"])
    x: Operand
    if right is not None:
        x, alpha_beta = a, _of_right(algorithm, right)
    else:
        assert left is not None
        x, alpha_beta = b, _of_left(algorithm, left)
    if alpha_beta is None or not all(map(is_sound, alpha_beta)):
        return 0
    alpha, beta = alpha_beta
    graph.set_inputs(node, [x])
    attributes = {"algorithm": "linear", "alpha": alpha, "beta": beta}
    replace_node(node, op="eltwise", attributes=attributes)
    return 1


def _of_right(algorithm: str, number: float) -> tuple[float, float] | None:
    """The (alpha, beta) of ``x algorithm number``."""
    if algorithm == "div":
        return (1.0 / number, 0.0) if number and is_sound(1.0 / number) else None
    rules = {"add": (1.0, number), "sub": (1.0, -number), "mul": (number, 0.0)}
    return rules.get(algorithm)


def _of_left(algorithm: str, number: float) -> tuple[float, float] | None:
    """The (alpha, beta) of ``number algorithm x``."""
    rules = {"add": (1.0, number), "sub": (-1.0, number), "mul": (number, 0.0)}
    return rules.get(algorithm)


def _join(graph: Graph, node: Node) -> int:
    inner = sole(graph, node.inputs[0], "eltwise")
    first, second = linear_of(inner), linear_of(node)
    if inner is None or first is None or second is None:
        return 0
    alpha, beta = first[0] * second[0], first[1] * second[0] + second[1]
    # (x + b) * c is exact where x is near -b, and x * c + b * c is not: these stay two.
    if first[1] and abs(first[0]) == 1 and abs(second[0]) != 1:
        return 0
    if not is_sound(alpha) or not is_sound(beta):
        return 0
    replace_node(inner, attributes={"algorithm": "linear", "alpha": alpha, "beta": beta})
    absorb(graph, inner, node)
    return 1
