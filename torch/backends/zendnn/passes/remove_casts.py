"""Removes conversions to the dtype that a tensor has already, as autocast leaves them."""

from __future__ import annotations

from torch.backends.zendnn.graph import Graph, Value, replace_node
from torch.backends.zendnn.passes._dtypes import dtype_of, result_dtype
from torch.backends.zendnn.passes._match import bypass


def remove_casts(graph: Graph) -> int:
    """Remove conversions that convert nothing; return how many."""
    removed = 0
    known: dict[Value, str] = {}
    for node in list(graph.nodes):
        dtype = result_dtype(node, known)
        if node.op == "to_like" and dtype is not None:
            graph.set_inputs(node, node.inputs[:1])
            replace_node(node, op="to", attributes={"dtype": dtype})
        if node.op == "to" and dtype is not None:
            (operand,) = node.inputs
            if dtype_of(operand, known) == dtype:
                known[node.output] = dtype
                removed += bypass(graph, node, operand)
                continue
        if dtype is not None:
            known.update(dict.fromkeys(node.outputs, dtype))
    return removed
