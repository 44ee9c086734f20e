"""Evaluates operators on constants, and sizes that are known."""

from __future__ import annotations

import torch
from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.infer import infer_types
from torch.backends.zendnn.ir.node import Node, Operand, Value
from torch.backends.zendnn.passes import _evaluate
from torch.backends.zendnn.passes._match import each

#: Larger results would cost a module more memory than they save time.
MOST_ELEMENTS = 1 << 24


@each()
def fold_constants(graph: Graph, node: Node) -> bool:
    """Replace results that depend on constants only; return how many nodes were removed."""
    infer_types(node)  # an operand may be a constant by now
    # A constant cannot replace a result that is read outside the graph.
    if node.is_foreign or not all(map(graph.is_private, node.outputs)) or _is_read_once(node):
        return False
    results: list[Operand]
    if node.outputs[0].kind == "number":
        number = _number(node)
        results = [] if number is None else [number]
    else:
        results = [graph.constant(tensor.contiguous()) for tensor in _tensors(node)]
    if len(results) != len(node.outputs):
        return False  # not known, or the model's own error
    for value, result in zip(node.outputs, results, strict=True):
        graph.replace_uses(value, result)
    graph.remove(node)
    return True


def _is_read_once(node: Node) -> bool:
    """Whether all readers take a repeated tensor as what it repeats, which needs no copies."""
    return node.op in ("expand", "expand_as") and all(
        reader.op in ("matmul", "attention") for reader in node.readers
    )


def _number(node: Node) -> int | None:
    match node:
        case Node("numel", (Value(constant=torch.Tensor() as tensor),)):
            return tensor.numel()
        case Node("size", (Value(dims=tuple() as dims), int() as dim)):
            size = dims[dim] if -len(dims) <= dim < len(dims) else None
            return size if isinstance(size, int) else None
        case Node("number_floordiv" | "number_remainder", (_, 0)):
            return None  # the model's own error
        case Node(op, (int() as a, int() as b)) if op in _evaluate.NUMBER:
            return _evaluate.NUMBER[op](a, b)
    return None


def _tensors(node: Node) -> tuple[torch.Tensor, ...]:
    """The results of a node; () where they are not known."""
    operands = [x.constant if isinstance(x, Value) else x for x in node.inputs]
    unknown = any(x.constant is None for x in node.values())
    if unknown or not _evaluate.can_evaluate(node):
        return ()
    if any(isinstance(x, torch.Tensor) and x.numel() > MOST_ELEMENTS for x in operands):
        return ()
    try:
        with torch.no_grad():
            output = _evaluate.evaluate(node, *operands)
    except (RuntimeError, IndexError):
        return ()  # the model's own error, raised when it runs
    results = output if isinstance(output, tuple) else (output,)
    return () if any(result.numel() > MOST_ELEMENTS for result in results) else results
