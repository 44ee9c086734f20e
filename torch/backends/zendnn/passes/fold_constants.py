"""Evaluates what constants alone decide, and the sizes that they give away."""

from __future__ import annotations

import torch
from torch.backends.zendnn.graph import Graph, Node, Operand, Value, infer_types
from torch.backends.zendnn.passes import _evaluate
from torch.backends.zendnn.passes._match import constant

#: Larger results would make a module larger for a moment's work.
MOST_ELEMENTS = 1 << 24


def fold_constants(graph: Graph) -> int:
    """Replace results that depend on constants only; return how many nodes went."""
    folded = 0
    for node in list(graph.nodes):
        results = None
        infer_types(node)  # an operand may be a constant by now
        # A constant cannot stand where others expect a result.
        if not node.is_foreign and all(map(graph.is_private, node.outputs)):
            is_number = node.outputs[0].kind == "number"
            results = _number(node) if is_number else _tensors(graph, node)
        if results is None:
            continue
        for value, result in zip(node.outputs, results, strict=True):
            graph.replace_uses(value, result)
        graph.remove(node)
        folded += 1
    return folded


def _number(node: Node) -> tuple[Operand, ...] | None:
    if node.op == "numel":
        tensor = constant(node.inputs[0])
        return None if tensor is None else (tensor.numel(),)
    if node.op == "size":
        x, dim = node.inputs
        dims = x.dims if isinstance(x, Value) else None
        if dims is None or not isinstance(dim, int) or not -len(dims) <= dim < len(dims):
            return None
        size = dims[dim]
        return (size,) if isinstance(size, int) else None
    if node.op not in _evaluate.NUMBER:
        return None
    a, b = node.inputs
    if not isinstance(a, int) or not isinstance(b, int):
        return None
    if node.op in ("number_floordiv", "number_remainder") and b == 0:
        return None  # the model's own error
    return (_evaluate.NUMBER[node.op](a, b),)


def _tensors(graph: Graph, node: Node) -> tuple[Operand, ...] | None:
    if not _evaluate.can_evaluate(node) or node.post_ops:
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
    wanted = tensors and (node.op != "eltwise" or tensors[0].is_floating_point())
    if not wanted and node.op != "power":
        return None
    try:
        with torch.no_grad():
            made = _evaluate.evaluate(node, *operands)
    except (RuntimeError, IndexError):
        return None  # the model's own error, raised when it runs
    results = made if isinstance(made, tuple) else (made,)
    if len(results) != len(node.outputs):
        return None  # here, too
    if any(result.numel() > MOST_ELEMENTS for result in results):
        return None
    return tuple(graph.constant(result.contiguous()) for result in results)
