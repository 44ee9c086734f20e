"""Lets the primitive that makes a value apply the activation that follows."""

from __future__ import annotations

from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node, PostOp
from torch.backends.zendnn.passes._match import MOST_POST_OPS, each, sole, with_post_op
from torch.backends.zendnn.table.operators import TAKES_POST_OPS


@each("eltwise")
def fuse_eltwise(graph: Graph, last: Node) -> bool:
    node, function = sole(graph, last.inputs[0], *TAKES_POST_OPS), last.function
    if node is None or len(node.post_ops) >= MOST_POST_OPS:
        return False
    if function is None or not function.primitive:
        return False
    with_post_op(graph, node, last, PostOp(function.name, last.get("alpha"), last.get("beta")))
    return True
