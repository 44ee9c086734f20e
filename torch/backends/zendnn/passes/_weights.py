"""Applies constant arithmetic after a convolution or a linear layer to its weights instead."""

from __future__ import annotations

from math import prod
from typing import TypeAlias

import torch
from torch import Tensor
from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node, Operand
from torch.backends.zendnn.passes._match import constant, sole

#: One number for each channel, or one for all.
Factor: TypeAlias = Tensor | float


def foldable(graph: Graph, operand: Operand) -> Node | None:
    """The convolution or linear layer whose weights can absorb the operator that follows it."""
    node = sole(graph, operand, "convolution", "linear")
    return None if node is None or node.post_ops else node


def weight_of(node: Node) -> Tensor:
    """The constant weight of a convolution or a linear layer."""
    weight = constant(node.inputs[1])
    assert weight is not None
    return weight


def channels(node: Node) -> int:
    """The number of the result's channels (features, for a linear layer)."""
    weight = weight_of(node)
    if node.get("transposed"):
        return weight.shape[1] * int(node.get("groups"))
    return weight.shape[0]


def per_channel(node: Node, tensor: Tensor) -> Tensor | None:
    """One float64 number for each channel, if ``tensor`` broadcasts to the result like that.

    None when it varies along another dimension, or would give the result more dimensions,
    more channels or another dtype.
    """
    weight, count = weight_of(node), channels(node)
    if tensor.dim():
        if torch.promote_types(tensor.dtype, weight.dtype) != weight.dtype:
            return None
        # How many dimensions the result surely has, and which one holds the channels.
        rank, channel = (weight.dim(), 1) if node.op == "convolution" else (1, 0)
        shape = [1] * (rank - tensor.dim()) + list(tensor.shape)
        if len(shape) > rank or shape[channel] not in (1, count) or prod(shape) != shape[channel]:
            return None
    return tensor.double().reshape(-1).expand(count)


def fold(graph: Graph, node: Node, scale: Factor, shift: Factor) -> bool:
    """Make ``node`` return y·scale + shift in place of y.

    Computed in float64; refused when the new weights would not be finite.
    """
    weight, bias = weight_of(node), constant(node.inputs[2])
    inputs: list[Operand] = [*node.inputs]
    offset = None if bias is None else bias.double() * scale
    if isinstance(shift, Tensor) or shift:
        every = torch.as_tensor(shift, dtype=torch.float64).expand(channels(node))
        offset = every if offset is None else offset + every
    if offset is not None:
        inputs[2] = graph.constant(offset.to(weight.dtype if bias is None else bias.dtype))
    if isinstance(scale, Tensor) or scale != 1:
        every = torch.as_tensor(scale, dtype=torch.float64).expand(channels(node))
        # A transposed weight is (in, out / groups, ...), group by group; others are (out, ...).
        groups = node.get("groups") if node.get("transposed") else channels(node)
        grouped = weight.double().reshape(groups, -1, *weight.shape[1:])
        exact = grouped * every.reshape(groups, 1, -1, *[1] * (weight.dim() - 2))
        inputs[1] = graph.constant(exact.reshape(weight.shape).to(weight.dtype))
    weights = (constant(operand) for operand in inputs[1:])
    if any(tensor is not None and not tensor.isfinite().all() for tensor in weights):
        return False
    graph.set_inputs(node, inputs)
    return True
