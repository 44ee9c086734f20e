"""Lets heads of queries share those of keys and values, which models repeat before attention."""

from __future__ import annotations

from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node, Operand, Value
from torch.backends.zendnn.passes._match import each, labels, producer


@each("attention")
def share_heads(graph: Graph, node: Node) -> bool:
    """Read keys and values as they were before each head was repeated; return how often."""
    q, *repeated = node.inputs[:3]
    found = [_before(operand) for operand in repeated]
    if node.get("grouped") or node.get("additive") or None in found:
        return False
    (k, of_k), (v, of_v) = (pair for pair in found if pair is not None)
    heads = {_heads(x) for x in (q, *repeated)}
    if len(heads) > 1 or None in heads or _heads(k) is None or _heads(k) != _heads(v):
        return False
    graph.set_inputs(node, [q, k, v, *node.inputs[3:]])
    node.attributes["grouped"] = True
    node.origin = labels([*of_k, *of_v, node])
    return True


def _heads(operand: Operand) -> int | Value | None:
    """How many heads (batch, heads, time, size) has; None where that is not known."""
    dims = operand.dims if isinstance(operand, Value) else None
    return dims[1] if dims is not None and len(dims) == 4 else None


def _before(operand: Operand) -> tuple[Value, tuple[Node, ...]] | None:
    """The tensor of (batch, heads, time, size) of which each head is repeated, and what does it.

    The sizes must prove that nothing else is repeated.
    """
    view = producer(operand, "view", "flatten")
    inner = None if view is None else view.inputs[0]
    copy = producer(inner, "contiguous")
    expand = producer(copy.inputs[0] if copy else inner, "expand")
    unsqueeze = producer(expand.inputs[0], "unsqueeze") if expand else None
    if view is None or expand is None or unsqueeze is None:
        return None
    x, dims, (_, *sizes) = unsqueeze.inputs[0], expand.output.dims, expand.inputs
    if not isinstance(x, Value) or x.dims is None or dims is None or len(dims) != 5:
        return None
    batch, heads, count, time, size = dims
    kept = zip(x.dims, (batch, heads, time, size), sizes[:2] + sizes[3:], strict=True)
    if not all(n == -1 or (a is not None and a == b) for a, b, n in kept):
        return None
    if not isinstance(heads, int) or not isinstance(count, int):
        return None
    # A single size that is not known follows from the others.
    joined, viewed = (batch, heads * count, time, size), view.output.dims or ()
    same = [a is not None and a == b for a, b in zip(joined, viewed, strict=False)]
    if unsqueeze.inputs[1] not in (2, -3) or len(viewed) != 4 or not same[1] or sum(same) < 3:
        return None
    return x, tuple(node for node in (unsqueeze, expand, copy, view) if node is not None)
