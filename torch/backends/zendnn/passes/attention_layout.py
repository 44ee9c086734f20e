"""Lets attention write its heads side by side, as the layer that follows wants them."""

from __future__ import annotations

from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node
from torch.backends.zendnn.passes._match import absorb, each, is_swap


@each("attention")
def attention_layout(graph: Graph, node: Node) -> bool:
    """Absorb the exchange of heads and positions after attention; return how often."""
    if node.get("swapped") or node.output.rank not in (None, 4):
        return False
    reader = graph.only_user(node.output)
    # Readers outside the graph expect the strides of a transposed tensor.
    if reader is None or not is_swap(reader, 1, 2, 4) or not graph.is_private(reader.output):
        return False
    node.attributes["swapped"] = True
    absorb(graph, node, reader)
    copied = graph.only_user(node.output)
    if copied is not None and copied.op == "contiguous":
        absorb(graph, node, copied)
    return True
