"""Folds arithmetic with constants into the weights of the layer before it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.backends.zendnn.graph import Graph, Node
from torch.backends.zendnn.passes._match import absorb, affine_of, constant, each, is_sound
from torch.backends.zendnn.passes._weights import channels, fold, foldable, per_channel


@each("eltwise", "binary")
def fold_arithmetic(graph: Graph, last: Node) -> bool:
    """Fold operators with one constant for each channel, or for all; return how many."""
    for side, operand in enumerate(() if last.post_ops else last.inputs):
        node = foldable(graph, operand)
        affine = None if node is None else _affine(node, last, side)
        if node is not None and affine is not None and fold(graph, node, *affine):
            absorb(graph, node, last)
            return True
    return False


#: What is added to numbers this large is rounded to whole numbers, which may be what it is for.
_ROUNDS = 2.0**22


def _affine(node: Node, last: Node, side: int) -> tuple[Tensor | None, Tensor | None] | None:
    """The scale and shift that ``last`` gives to the result of ``node``, its operand ``side``."""
    if last.op == "eltwise":
        alpha, beta = affine_of(last) or (0.0, 0.0)
        if not alpha or not is_sound(alpha) or not is_sound(beta) or abs(beta) >= _ROUNDS:
            return None
        both = torch.tensor([[alpha], [beta]], dtype=torch.float64)
        scale, shift = both.expand(2, channels(node))
        return None if alpha == 1 else scale, shift if beta else None
    other = constant(last.inputs[1 - side])
    number = None if other is None else per_channel(node, other)
    if number is None:
        return None
    match last.get("algorithm"), side:
        case "add", _:
            return None, number
        case "mul", _:
            return number, None
        case "sub", 0:
            return None, -number
        case "sub", _:
            return torch.full_like(number, -1.0), number
        case "div", 0:
            return number.reciprocal(), None
    return None
