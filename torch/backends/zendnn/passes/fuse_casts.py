"""Lets operators convert while they compute, as the conversions of autocast ask for."""

from __future__ import annotations

from torch.backends.zendnn.graph import Graph, Node
from torch.backends.zendnn.passes._match import absorb, chain, each, sole


def fuse_casts(graph: Graph) -> int:
    """Fuse conversions around activations and after linear layers; return how many."""
    return _around_eltwise(graph) + _after_linear(graph)


@each("to")
def _around_eltwise(graph: Graph, last: Node) -> bool:
    """bfloat16 to float32, a function, and back: the function computes in float32 anyway."""
    function, first = chain(graph, last.inputs[0], "eltwise", "to") or (last, last)
    dtypes = [node.get("dtype") for node in (first, last)]
    before = sole(graph, first.inputs[0], "linear", "convolution")
    if dtypes != ["float32", "bfloat16"] or before is None or before.output.dtype != "bfloat16":
        return False
    graph.set_inputs(function, [first.inputs[0]])
    function.origin = first.origin + function.origin
    graph.remove(first)
    absorb(graph, function, last)
    return True


@each("to")
def _after_linear(graph: Graph, last: Node) -> bool:
    """A layer computes its product in float32 and only then rounds it."""
    node = sole(graph, last.inputs[0], "linear")
    if node is None or (node.output.dtype, last.get("dtype")) != ("bfloat16", "float32"):
        return False
    node.attributes["dtype"] = "float32"
    absorb(graph, node, last)
    return True
