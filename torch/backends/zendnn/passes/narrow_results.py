"""Lets linear layers that return float32 store bfloat16 where nothing else reads their results.

Autocast computes some activations in float32 and converts them for the next layer. The layer
applies them to sums in float32 anyway, and rounds once.
"""

from __future__ import annotations

from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node
from torch.backends.zendnn.passes._match import absorb, each, sole


@each("to")
def narrow_results(graph: Graph, last: Node) -> bool:
    """Convert to bfloat16 where linear layers store their results; return how often."""
    node = sole(graph, last.inputs[0], "linear")
    if node is None or (node.get("dtype"), last.get("dtype")) != ("float32", "bfloat16"):
        return False
    if any(post.operand is not None for post in node.post_ops):
        return False  # the operand is float32, too
    del node.attributes["dtype"]
    absorb(graph, node, last)
    return True
