"""Lets the primitive that makes a value apply the activation that follows."""

from __future__ import annotations

from torch.backends.zendnn.graph import Graph, PostOp
from torch.backends.zendnn.operators import FUNCTIONS, TAKES_POST_OPS
from torch.backends.zendnn.passes._match import MOST_POST_OPS, real, sole, with_post_op


def fuse_eltwise(graph: Graph) -> int:
    """Make eltwise operators post-ops of what they read; return how many."""
    fused = 0
    for last in list(graph.nodes):
        if last.op != "eltwise" or last.is_foreign:
            continue
        node = sole(graph, last.inputs[0], *TAKES_POST_OPS)
        if node is None or len(node.post_ops) >= MOST_POST_OPS:
            continue
        algorithm = str(last.attributes["algorithm"])
        if not FUNCTIONS[algorithm].primitive:
            continue
        post = PostOp(algorithm, real(last, "alpha"), real(last, "beta"))
        with_post_op(graph, node, last, post)
        fused += 1
    return fused
