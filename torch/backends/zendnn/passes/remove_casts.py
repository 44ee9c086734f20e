"""Removes conversions to the dtype that a tensor has already, as autocast leaves them."""

from __future__ import annotations

from torch.backends.zendnn.graph import Graph, Value, infer_dtype, infer_types, replace_node
from torch.backends.zendnn.passes._match import bypass

_ENGINE_DTYPES = ("float32", "bfloat16")


def remove_casts(graph: Graph) -> int:
    """Remove conversions that convert nothing; return how many."""
    removed = 0
    for node in list(graph.nodes):
        infer_types(node)  # an operand may be another one than before
        dtype = infer_dtype(node)
        if node.op == "to_like" and dtype in _ENGINE_DTYPES:
            graph.set_inputs(node, node.inputs[:1])
            replace_node(node, op="to", attributes={"dtype": dtype})
        if node.op == "to":
            (operand,) = node.inputs
            if isinstance(operand, Value) and operand.dtype == dtype:
                removed += bypass(graph, node, operand)
    return removed
