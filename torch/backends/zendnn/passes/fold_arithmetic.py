"""Folds arithmetic with constants into the weights of the layer before it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.backends.zendnn.graph import Graph, Node
from torch.backends.zendnn.passes._match import absorb, affine_of, constant, is_sound
from torch.backends.zendnn.passes._weights import channels, fold, foldable, per_channel


def fold_arithmetic(graph: Graph) -> int:
    """Fold operators with one constant for each channel, or for all; return how many."""
    folded = 0
    for last in list(graph.nodes):
        if last.op not in ("eltwise", "binary") or last.post_ops:
            continue
        for side, operand in enumerate(last.inputs[:2]):
            node = foldable(graph, operand)
            affine = None if node is None else _affine(node, last, side)
            if node is not None and affine is not None and fold(graph, node, *affine):
                absorb(graph, node, last)
                folded += 1
                break
    return folded


#: What is added to numbers this large is rounded to whole numbers, which may be what it is for.
_ROUNDS = 2.0**22

Affine = tuple[Tensor | None, Tensor | None]


def _affine(node: Node, last: Node, side: int) -> Affine | None:
    """The scale and shift that ``last`` gives to the result of ``node``, its operand ``side``."""
    if last.op == "eltwise":
        factors = affine_of(last)
        if factors is None or not factors[0] or not all(map(is_sound, factors)):
            return None
        if abs(factors[1]) >= _ROUNDS:
            return None
        scale, shift = (torch.tensor(f, dtype=torch.float64) for f in factors)
        count = channels(node)
        return (
            None if factors[0] == 1 else scale.expand(count),
            None if not factors[1] else shift.expand(count),
        )
    other = constant(last.inputs[1 - side])
    number = None if other is None else per_channel(node, other)
    if number is None:
        return None
    algorithm = last.attributes["algorithm"]
    if algorithm == "add":
        return None, number
    if algorithm == "mul":
        return number, None
    if algorithm == "sub":
        return (None, -number) if side == 0 else (torch.full_like(number, -1.0), number)
    if algorithm == "div" and side == 0:
        return number.reciprocal(), None
    return None
