"""Lets linear layers return float32 where their bfloat16 results would be converted to it."""

from __future__ import annotations

from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node, Value
from torch.backends.zendnn.passes._match import absorb, each, sole


@each("to")
def fuse_casts(graph: Graph, last: Node) -> bool:
    """Skip the rounding to bfloat16 of products, which are float32; return how often."""
    node = sole(graph, last.inputs[0], "linear")
    if node is None or (node.output.dtype, last.get("dtype")) != ("bfloat16", "float32"):
        return False
    bias = node.inputs[2]
    if isinstance(bias, Value) and bias.dtype != "bfloat16":
        return False  # torch raises an error
    node.attributes["dtype"] = "float32"
    absorb(graph, node, last)
    return True
