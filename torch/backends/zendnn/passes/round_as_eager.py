"""Keeps eager mode's roundings of results that are less exact than float32."""

from __future__ import annotations

import torch
from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node, Operand, Value
from torch.backends.zendnn.passes._match import affine_of, each, is_one_of, scalar
from torch.backends.zendnn.table.notation import Trait


@each()
def round_as_eager(graph: Graph, node: Node) -> int:
    """Mark what later passes must leave rounded: all but float32; return how many values.

    They join operators into steps that compute in float32 and round once. A dtype that the graph
    does not state may be bfloat16.
    """
    if not node.has(Trait.COMPUTES | Trait.CASTS | Trait.ROUNDS):
        return 0
    if node.outputs[0].dtype == "bfloat16":
        _round_addend(graph, node)
    found = [v for v in node.outputs if not v.is_integer and v.dtype != "float32"]
    for value in found:
        value.is_rounded = True
    return len(found)


def _round_addend(graph: Graph, node: Node) -> None:
    """Round a number that is added to a tensor, as torch does; factors stay as they are."""
    alpha, beta = affine_of(node) or (0.0, 0.0)
    if abs(alpha) == 1:
        node.attributes["beta"] = float(torch.tensor(beta).bfloat16())
    if is_one_of(node, ("binary.add", "binary.sub")):
        graph.set_inputs(node, [_rounded(graph, operand) for operand in node.inputs])


def _rounded(graph: Graph, operand: Operand) -> Operand:
    if scalar(operand) is None:
        return operand
    assert isinstance(operand, Value)
    assert operand.constant is not None
    return graph.constant(operand.constant.bfloat16().to(operand.constant.dtype))
