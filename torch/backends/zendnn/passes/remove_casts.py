"""Removes conversions to the dtype that a tensor has already, which autocast leaves."""

from __future__ import annotations

from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.infer import infer_dtype, infer_types
from torch.backends.zendnn.ir.node import Node, Value
from torch.backends.zendnn.passes._match import bypass, can_forget_like, each
from torch.backends.zendnn.table.dtypes import COMPUTED


@each()
def remove_casts(graph: Graph, node: Node) -> bool:
    """Remove conversions that convert nothing; return how many."""
    infer_types(node)  # an operand may be another one than before
    dtype = infer_dtype(node)
    if node.op == "to_like" and dtype in COMPUTED and can_forget_like(graph, node):
        graph.set_inputs(node, node.inputs[:1])
        node.op = "to"
        node.attributes = {"dtype": dtype}
    match node:
        case Node("to", (Value() as x,)) if x.dtype == dtype:
            return bypass(graph, node, x)
    return False
