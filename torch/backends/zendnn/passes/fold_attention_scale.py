"""Multiplies attention's scale by the factors that its queries and keys were given before."""

from __future__ import annotations

from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node, Operand, Value
from torch.backends.zendnn.passes._match import affine_of, each, is_sound
from torch.backends.zendnn.table.operators import NUMBERS, VIEWS

#: Views through which a factor can be moved: those with one result.
_THROUGH = VIEWS - {"split"}


@each("attention")
def fold_attention_scale(graph: Graph, node: Node) -> int:
    """Remove factors of q or k, directly or before views; return how many."""
    return sum(_fold(graph, node, side) for side in (0, 1))


def _fold(graph: Graph, node: Node, side: int) -> int:
    folded = 0
    # A scale of 0 stands for one that depends on sizes, which are not known here.
    while node.get("scale") and (found := _scaling(graph, node.inputs[side])) is not None:
        scaling, views, factor = found
        scale = node.get("scale") * factor
        if not is_sound(scale):
            break
        node.attributes["scale"] = scale
        node.origin = scaling.origin + node.origin
        graph.replace_uses(scaling.output, scaling.inputs[0])
        graph.remove(scaling)
        for view in views:  # they no longer hold the model's values
            view.source = None
        folded += 1
    return folded


def _scaling(graph: Graph, operand: Operand) -> tuple[Node, list[Value], float] | None:
    """The node that scales an operand, the private views after it, and the factor."""
    views: list[Value] = []
    while isinstance(operand, Value) and graph.is_private(operand):
        readers = [user for user in operand.users if user.op not in NUMBERS]
        node = operand.producer
        if len(readers) != 1 or node is None or operand.is_rounded:
            return None
        factor = affine_of(node)
        if factor is not None:
            return (node, views, factor[0]) if factor[0] and not factor[1] else None
        if node.op not in _THROUGH:
            return None
        views.append(operand)
        operand = node.inputs[0]
    return None
