"""Divides by a root what is multiplied by its reciprocal, which no plan computes."""

from __future__ import annotations

from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node, Value
from torch.backends.zendnn.passes._match import each, is_one_of


@each("eltwise.rsqrt")
def divide_by_roots(graph: Graph, node: Node) -> bool:
    """Replace x · rsqrt(y) by x / √y; return how many roots."""
    reciprocal = node.output
    readers = dict.fromkeys(reciprocal.users)
    if not graph.is_private(reciprocal) or reciprocal.is_rounded or not readers:
        return False
    if not all(_is_quotient(reader, reciprocal) for reader in readers):
        return False
    attributes = {**node.attributes, "algorithm": "sqrt"}
    root = graph.add("eltwise", node.inputs, before=node, attributes=attributes, origin=node.origin)
    for reader in readers:
        a, b = reader.inputs
        graph.set_inputs(reader, [b if a is reciprocal else a, root.output])
        reader.attributes["algorithm"] = "div"
    return True


def _is_quotient(node: Node, reciprocal: Value) -> bool:
    """Whether a node multiplies something else by the reciprocal, and not in the place of this."""
    a, b = node.inputs if is_one_of(node, ["binary.mul"]) else (None, None)
    return a is not b and not (a is reciprocal and node.get("in_place"))
