"""Lets layer normalisation add the residual that it reads."""

from __future__ import annotations

from torch.backends.zendnn.graph import Graph, Node, Operand, Value, replace_node
from torch.backends.zendnn.passes._match import producer


def fuse_layer_norm(graph: Graph) -> int:
    """Make additions before a norm its residual; return how many."""
    fused = 0
    for norm in list(graph.nodes):
        if (
            norm.op not in ("layer_norm", "rms_norm")
            or len(norm.outputs) != 1
            or norm.inputs[3:] != (None,)
        ):
            continue
        add = producer(norm.inputs[0], "binary")
        if add is None or add.attributes["algorithm"] != "add" or add.post_ops:
            continue
        if all(map(_is_whole, add.inputs)) and _fuse(graph, norm, add):
            fused += 1
    return fused


def _is_whole(operand: Operand) -> bool:
    """Whether the operand is likely to have the sum's shape; embeddings are often of one batch."""
    if not isinstance(operand, Value) or operand.kind != "tensor" or operand.constant is not None:
        return False
    return producer(operand, "embedding", "expand", "unsqueeze") is None


def _fuse(graph: Graph, norm: Node, add: Node) -> bool:
    total, result = add.output, norm.output
    alone = graph.only_user(total) is norm
    _, weight, bias, _ = norm.inputs
    if not alone:
        # Others read the sum: the norm that makes it too must come first.
        early = set(graph.nodes[: graph.nodes.index(add)])
        if any(isinstance(v, Value) and v.producer not in {None, *early} for v in (weight, bias)):
            return False
        graph.move_before(norm, add)
    a, b = add.inputs
    graph.set_inputs(norm, [a, weight, bias, b])
    replace_node(norm, origin=add.origin + norm.origin)
    if alone:
        graph.remove(add)
    else:
        graph.take_over(norm, result, total)
    return True
