"""Recognises the interaction of features: some elements of every x·xᵀ."""

from __future__ import annotations

from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node
from torch.backends.zendnn.passes._match import each, is_swap, producer, sole, substitute

#: Batch, features, size.
RANK = 3


@each("gather_pairs")
def fuse_pairwise_dot(graph: Graph, gather: Node) -> bool:
    """Compute only the products that are read, and once; return how many were found."""
    scores, *pairs = gather.inputs
    product = sole(graph, scores, "matmul")
    if product is None:
        return False
    x, other = product.inputs
    transposed = producer(other, "transpose", "permute")
    if transposed is None or transposed.inputs[0] is not x:
        return False
    if not is_swap(transposed, RANK - 2, RANK - 1, RANK):
        return False
    substitute(graph, [transposed, product, gather], "pairwise_dot", [x, *pairs])
    return True
