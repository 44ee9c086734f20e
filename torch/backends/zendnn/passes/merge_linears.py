"""Merges linear layers that read the same value, such as queries, keys and values, into one."""

from __future__ import annotations

import torch
from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node
from torch.backends.zendnn.passes._match import constant, labels
from torch.backends.zendnn.passes._weights import weight_of

#: Layers with fewer features gain less than the split costs.
FEWEST_FEATURES = 64


def merge_linears(graph: Graph) -> int:
    """Replace linear layers of one input by a wider one and a split; return how many groups."""
    groups: dict[tuple[object, ...], list[Node]] = {}
    for node in graph.nodes:
        key = _key(node)
        if key is not None:
            groups.setdefault(key, []).append(node)
    merged = [members for members in groups.values() if len(members) > 1]
    for members in merged:
        _merge(graph, members)
    return len(merged)


def _key(node: Node) -> tuple[object, ...] | None:
    """What layers must have in common; None for one that is not to be merged."""
    if node.op != "linear" or len(node.inputs) != 3:
        return None
    x, weight, bias = node.inputs[0], weight_of(node), constant(node.inputs[2])
    if weight.shape[0] < FEWEST_FEATURES or (bias is not None and bias.dtype != weight.dtype):
        return None
    attributes = tuple(sorted(node.attributes.items()))
    return x, weight.shape[1], weight.dtype, bias is None, node.post_ops, attributes


def _merge(graph: Graph, members: list[Node]) -> None:
    # Plans join contiguous weights while packing them, and keep no copy.
    weights = [graph.constant(weight_of(node).contiguous()) for node in members]
    biases = [b for node in members if (b := constant(node.inputs[2])) is not None]
    first = members[0]
    joined = graph.add("cat", weights, before=first, attributes={"dim": 0}).output
    wide = graph.add(
        "linear",
        [first.inputs[0], joined, graph.constant(torch.cat(biases)) if biases else None],
        before=first,
        attributes=dict(first.attributes),
        post_ops=first.post_ops,
        origin=labels(members),
    )
    sizes = tuple(weight_of(node).shape[0] for node in members)
    split = graph.add("split", [wide.output], before=first, attributes={"dim": -1, "sizes": sizes})
    graph.take_over(split, *(node.output for node in members))
