"""Folds arithmetic with constants into the weights of the layer before it."""

from __future__ import annotations

from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node
from torch.backends.zendnn.passes._match import (
    absorb,
    affine_form,
    affine_of,
    constant,
    each,
    is_sound,
)
from torch.backends.zendnn.passes._weights import Factor, fold, foldable, per_channel


@each("eltwise", "binary")
def fold_arithmetic(graph: Graph, last: Node) -> bool:
    """Fold operators with one constant for each channel, or for all; return how many."""
    for side, operand in enumerate(last.inputs):
        node = foldable(graph, operand)
        affine = None if node is None else _affine(node, last, side)
        if node is not None and affine is not None and fold(graph, node, *affine):
            absorb(graph, node, last)
            return True
    return False


#: Adding a number this large rounds to whole numbers, which may be its purpose.
_ROUNDS = 2.0**22


def _affine(node: Node, last: Node, side: int) -> tuple[Factor, Factor] | None:
    """The scale and shift that ``last`` gives to the result of ``node``, its operand ``side``."""
    if last.op == "eltwise":
        alpha, beta = affine_of(last) or (0.0, 0.0)
        sound = alpha and is_sound(alpha) and is_sound(beta) and abs(beta) < _ROUNDS
        return (alpha, beta) if sound else None
    if last.get("in_place") and side == 1:
        return None
    other = constant(last.inputs[1 - side])
    numbers = None if other is None else per_channel(node, other)
    return None if numbers is None else affine_form(last.get("algorithm"), numbers, left=side == 1)
