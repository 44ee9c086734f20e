"""Lets attention write its heads side by side, as the layer that follows wants them."""

from __future__ import annotations

from torch.backends.zendnn.graph import Graph, replace_node
from torch.backends.zendnn.passes._match import absorb, is_swap


def attention_layout(graph: Graph) -> int:
    """Swallow the exchange of heads and positions after attention; return how often."""
    swapped = 0
    for node in list(graph.nodes):
        if node.op != "attention" or node.attributes.get("swapped"):
            continue
        if node.output.rank not in (None, 4):
            continue
        reader = graph.only_user(node.output)
        # Where others read the result, they want the strides of a transposed tensor.
        if reader is None or not is_swap(reader, 1, 2, 4) or not graph.is_private(reader.output):
            continue
        replace_node(node, attributes={**node.attributes, "swapped": True})
        absorb(graph, node, reader)
        copied = graph.only_user(node.output)
        if copied is not None and copied.op == "contiguous":
            absorb(graph, node, copied)
        swapped += 1
    return swapped
