"""Evaluates what constants alone decide."""

from __future__ import annotations

import torch
from torch.backends.zendnn.graph import Graph, Node, Operand, Value
from torch.backends.zendnn.passes import _evaluate
from torch.backends.zendnn.passes._match import constant, is_foreign

#: Larger results would make a module larger for a moment's work.
MOST_ELEMENTS = 1 << 24


def fold_constants(graph: Graph) -> int:
    """Replace results that depend on constants only; return how many nodes went."""
    folded = 0
    for node in list(graph.nodes):
        if is_foreign(node) or not all(map(graph.is_private, node.outputs)):
            continue  # a constant cannot stand where others expect a result
        results = _number(node) if node.outputs[0].kind == "number" else _tensors(graph, node)
        if results is None:
            continue
        for value, result in zip(node.outputs, results, strict=True):
            graph.replace_uses(value, result)
        graph.remove(node)
        folded += 1
    return folded


def _number(node: Node) -> tuple[Operand, ...] | None:
    if node.op in ("size", "numel"):
        tensor = constant(node.inputs[0])
        if tensor is None:
            return None
        if node.op == "numel":
            return (tensor.numel(),)
        dim = node.inputs[1]
        return (tensor.shape[dim],) if isinstance(dim, int) else None
    if node.op not in _evaluate.NUMBER:
        return None
    a, b = node.inputs
    if not isinstance(a, int) or not isinstance(b, int):
        return None
    if node.op in ("number_floordiv", "number_remainder") and b == 0:
        return None  # the model's own error
    return (_evaluate.NUMBER[node.op](a, b),)


def _tensors(graph: Graph, node: Node) -> tuple[Operand, ...] | None:
    if node.op not in _evaluate.OPERATORS or node.post_ops:
        return None
    operands: list[torch.Tensor | int | None] = []
    for operand in node.inputs:
        if isinstance(operand, Value):
            if operand.constant is None or operand.constant.numel() > MOST_ELEMENTS:
                return None
            operands.append(operand.constant)
        else:
            operands.append(operand)
    tensors = [operand for operand in operands if isinstance(operand, torch.Tensor)]
    if not tensors or (node.op == "eltwise" and not tensors[0].is_floating_point()):
        return None
    try:
        with torch.no_grad():
            made = _evaluate.OPERATORS[node.op](node, *operands)
    except (RuntimeError, IndexError):
        return None  # the model's own error, raised when it runs
    results = made if isinstance(made, tuple) else (made,)
    if any(result.numel() > MOST_ELEMENTS for result in results):
        return None
    return tuple(graph.constant(result.contiguous()) for result in results)
