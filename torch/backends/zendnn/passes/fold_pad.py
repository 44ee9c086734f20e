"""Lets convolutions do the padding that a model does before them."""

from __future__ import annotations

from operator import add

from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node
from torch.backends.zendnn.passes._match import each, producer, sole
from torch.backends.zendnn.passes._weights import weight_of


@each("convolution")
def fold_pad(graph: Graph, node: Node) -> bool:
    """Fold padding of spatial dimensions into its private readers' own; return how many."""
    # Zeros are zeros in each dtype.
    reader = sole(graph, node.inputs[0], "to") or node
    pad = producer(reader.inputs[0], "pad")
    if pad is None or not graph.is_private(pad.output):
        return False
    if node.get("transposed") or pad.get("value"):
        return False
    pads = [width for width in pad.inputs[1:] if isinstance(width, int)]
    count = 2 * (weight_of(node).dim() - 2)
    if len(pads) < len(pad.inputs) - 1 or min(pads, default=-1) < 0 or any(pads[count:]):
        return False
    pads = [*pads, *[0] * count][:count]
    begin, end = node.get("padding"), node.attributes.pop("padding_end", node.get("padding"))
    # The last dimension stands first.
    begin, end = tuple(map(add, begin, pads[-2::-2])), tuple(map(add, end, pads[::-2]))
    node.attributes["padding"] = begin
    if begin != end:
        node.attributes["padding_end"] = end
    graph.set_inputs(reader, [pad.inputs[0], *reader.inputs[1:]])
    node.origin = pad.origin + node.origin
    return True
