"""Lets layer normalisation add the residual that it reads."""

from __future__ import annotations

from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node, Operand, Value
from torch.backends.zendnn.passes._match import each, producer


@each("layer_norm", "rms_norm")
def fuse_layer_norm(graph: Graph, norm: Node) -> bool:
    """Add residuals in norms; return how many."""
    x, weight, bias, *residual = norm.inputs
    add = producer(x, "binary.add")
    if residual != [None] or add is None or add.post_ops or not all(map(_is_whole, add.inputs)):
        return False
    total, result = add.output, norm.output
    if total.is_rounded:
        return False
    alone = graph.only_user(total) is norm
    if not alone:
        graph.move_before(norm, add)  # and so before the sum's other readers
    a, b = add.inputs
    graph.set_inputs(norm, [a, weight, bias, b])
    if add.get("in_place"):
        norm.attributes["in_place"] = True
    norm.origin = add.origin + norm.origin
    if alone:
        graph.remove(add)
    else:
        graph.take_over(norm, result, total)
    return True


def _is_whole(operand: Operand) -> bool:
    """Whether the operand is likely to have the sum's shape; embeddings are often of one batch."""
    if not isinstance(operand, Value) or operand.kind != "tensor" or operand.constant is not None:
        return False
    return producer(operand, "embedding", "expand", "unsqueeze") is None
