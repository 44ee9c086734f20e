"""Recognises the interaction of features: some elements of every x·xᵀ."""

from __future__ import annotations

from torch.backends.zendnn.graph import Graph
from torch.backends.zendnn.passes._match import constant, is_swap, producer, sole

#: Batch, features, size.
RANK = 3


def fuse_pairwise_dot(graph: Graph) -> int:
    """Compute only the products that are read, and once; return how many were found."""
    fused = 0
    for gather in list(graph.nodes):
        if gather.op != "gather_pairs" or any(constant(v) is None for v in gather.inputs[1:]):
            continue
        product = sole(graph, gather.inputs[0], "matmul")
        if product is None or len(product.inputs) != 2 or product.post_ops:
            continue
        transposed = producer(product.inputs[1], "transpose", "permute")
        if (
            transposed is None
            or transposed.inputs[0] is not product.inputs[0]
            or not is_swap(transposed, RANK - 2, RANK - 1, RANK)
        ):
            continue
        node = graph.add(
            "pairwise_dot",
            [product.inputs[0], *gather.inputs[1:]],
            before=gather,
            origin=(*transposed.origin, *product.origin, *gather.origin),
        )
        graph.take_over(node, gather.output)
        graph.remove_dead()
        fused += 1
    return fused
