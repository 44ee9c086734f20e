"""Lets heads of queries share those of keys and values, which models repeat before attention."""

from __future__ import annotations

from torch.backends.zendnn.graph import Graph, Node, Operand, Value
from torch.backends.zendnn.passes._match import each, labels, producer


@each("attention")
def share_heads(graph: Graph, node: Node) -> bool:
    """Read keys and values as they were before each head was repeated; return how often."""
    q, *repeated = node.inputs[:3]
    found = [_before(operand) for operand in repeated]
    if node.get("grouped") or node.get("additive") or None in found:
        return False
    (k, of_k), (v, of_v) = (pair for pair in found if pair is not None)
    heads = [x.dims[1] if isinstance(x, Value) and x.rank == 4 else None for x in (q, *repeated)]
    if heads[0] is None or len({*heads}) > 1 or k.dims is None or k.dims[:3] != v.dims[:3]:
        return False
    graph.set_inputs(node, [q, k, v, *node.inputs[3:]])
    node.attributes["grouped"] = True
    node.origin = labels([*of_k, *of_v, node])
    return True


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
    x, dims = unsqueeze.inputs[0], expand.output.dims
    if not isinstance(x, Value) or x.dims is None or dims is None or len(dims) != 5:
        return None
    batch, heads, count, time, size = dims
    apart = x.dims == (batch, heads, time, size) and None not in dims
    if not apart or not isinstance(heads, int) or not isinstance(count, int):
        return None
    if unsqueeze.inputs[1] not in (2, -3) or view.output.dims != (batch, heads * count, time, size):
        return None
    return x, tuple(node for node in (unsqueeze, expand, copy, view) if node is not None)
