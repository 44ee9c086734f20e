"""Lets linear layers of float32 multiply in bfloat16, with sums and results of float32."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node, Operand, Value
from torch.backends.zendnn.passes._match import absorb, constant, producer, sole


def round_products(graph: Graph) -> int:
    """Round the inputs and the weights of float32 layers to bfloat16; return how many layers.

    A layer whose result only another one reads rounds it itself. Biases stay as they are.
    """
    layers = []
    for node in list(graph.nodes):
        weight = _rounded_weight(graph, node)
        if weight is None:
            continue
        # Layers share no conversion: a value that the model lacks cannot leave its region.
        attributes = {"dtype": "bfloat16"}
        x = graph.add("to", node.inputs[:1], before=node, attributes=attributes).output
        graph.set_inputs(node, [x, weight, *node.inputs[2:]])
        node.attributes["dtype"] = "float32"
        layers.append(node)
    for node in layers:
        conversion = producer(node.inputs[0], "to")
        assert conversion is not None
        former = sole(graph, conversion.inputs[0], "linear")
        # What a post-op reads has the dtype of the result.
        if former in layers and all(post.operand is None for post in former.post_ops):
            del former.attributes["dtype"]
            absorb(graph, former, conversion)
    return len(layers)


def _rounded_weight(graph: Graph, node: Node) -> Value | None:
    """The weight of a layer of float32, or the ``cat`` of its weights, in bfloat16."""
    if node.op != "linear":
        return None
    x, weight = node.inputs[:2]
    joined = producer(weight, "cat")
    parts: Sequence[Operand] = [weight] if joined is None else joined.inputs
    tensors = [tensor for part in parts if (tensor := constant(part)) is not None]
    is_float32 = isinstance(x, Value) and x.dtype == "float32" and x.constant is None
    bias = constant(node.inputs[2])
    # torch raises an error for a layer of two dtypes.
    held = tensors if bias is None else [*tensors, bias]
    if not is_float32 or any(tensor.dtype != torch.float32 for tensor in held):
        return None
    rounded = [graph.constant(tensor.bfloat16()) for tensor in tensors]
    if joined is None:
        return rounded[0]
    return graph.add("cat", rounded, before=node, attributes=dict(joined.attributes)).output
