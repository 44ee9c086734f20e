"""Lets operators convert while they compute, as the conversions of autocast ask for."""

from __future__ import annotations

from torch.backends.zendnn.graph import Graph, Node, Value, replace_node
from torch.backends.zendnn.passes._match import absorb, sole


def fuse_casts(graph: Graph) -> int:
    """Fuse conversions around activations and after linear layers; return how many."""
    fused = 0
    for fuse in (_around_eltwise, _after_linear):
        for node in list(graph.nodes):
            if node.op == "to":
                fused += fuse(graph, node)
    return fused


def _around_eltwise(graph: Graph, last: Node) -> bool:
    """bfloat16 to float32, a function, and back: the function computes in float32 anyway."""
    function = sole(graph, last.inputs[0], "eltwise")
    first = None if function is None else sole(graph, function.inputs[0], "to")
    if function is None or first is None:
        return False
    before = sole(graph, first.inputs[0], "linear", "convolution")
    if (first.attributes["dtype"], last.attributes["dtype"]) != ("float32", "bfloat16"):
        return False
    if before is None or "dtype" in before.attributes or _weight_dtype(before) != "bfloat16":
        return False
    graph.set_inputs(function, [first.inputs[0]])
    replace_node(function, origin=first.origin + function.origin)
    graph.remove(first)
    absorb(graph, function, last)
    return True


def _after_linear(graph: Graph, last: Node) -> bool:
    """The product is there in float32 before it is rounded."""
    node = sole(graph, last.inputs[0], "linear")
    if node is None or node.post_ops or "dtype" in node.attributes:
        return False
    if last.attributes["dtype"] != "float32" or _weight_dtype(node) != "bfloat16":
        return False
    replace_node(node, attributes={**node.attributes, "dtype": "float32"})
    absorb(graph, node, last)
    return True


def _weight_dtype(node: Node) -> str | None:
    weight = node.inputs[1]
    return weight.dtype if isinstance(weight, Value) else None
