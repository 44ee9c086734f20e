"""Lets convolutions and pools do the padding that a model does before them."""

from __future__ import annotations

import math

from torch.backends.zendnn.graph import Attribute, Graph, Node, replace_node
from torch.backends.zendnn.passes._match import constant, integers, producer, real


def fold_pad(graph: Graph) -> int:
    """Fold padding of spatial dimensions into its private readers' own; return how many."""
    folded = 0
    for node in list(graph.nodes):
        pad = producer(node.inputs[0], "pad") if node.inputs else None
        if pad is None or not graph.is_private(pad.output):
            continue
        changes = _RULES[node.op](node, pad) if node.op in _RULES else None
        if changes is None:
            continue
        graph.set_inputs(node, [pad.inputs[0], *node.inputs[1:]])
        attributes = {**node.attributes, **changes}
        if attributes.get("padding_end") == attributes["padding"]:
            del attributes["padding_end"]
        replace_node(node, attributes=attributes, origin=pad.origin + node.origin)
        folded += 1
    return folded


Pads = tuple[tuple[int, ...], tuple[int, ...]]


def _spatial(pad: Node, spatial: int) -> Pads | None:
    """What is added before and after each spatial dimension, if no other one is padded."""
    pads = tuple(pad for pad in pad.inputs[1:] if isinstance(pad, int))
    known = len(pads) == len(pad.inputs) - 1
    if not known or min(pads, default=-1) < 0 or any(pads[2 * spatial :]):
        return None
    pads = (pads + (0,) * (2 * spatial))[: 2 * spatial]
    # The last dimension stands first.
    return pads[0::2][::-1], pads[1::2][::-1]


def _sum(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _convolution(node: Node, pad: Node) -> dict[str, Attribute] | None:
    weight = constant(node.inputs[1])
    if weight is None or node.attributes.get("transposed") or real(pad, "value"):
        return None
    pads = _spatial(pad, weight.dim() - 2)
    if pads is None:
        return None
    begin = integers(node, "padding")
    end = integers(node, "padding_end") or begin
    return {"padding": _sum(begin, pads[0]), "padding_end": _sum(end, pads[1])}


def _pool(node: Node, pad: Node) -> dict[str, Attribute] | None:
    """Where a window may start depends on whose padding it is when sizes are rounded up."""
    kernel = integers(node, "kernel")
    pads = _spatial(pad, len(kernel))
    if pads is None or pads[0] != pads[1] or node.attributes.get("ceil"):
        return None
    padding = _sum(integers(node, "padding"), pads[0])
    if any(2 * p > k for p, k in zip(padding, kernel, strict=True)):
        return None  # more than torch lets a pool have
    return {"padding": padding}


def _max_pool(node: Node, pad: Node) -> dict[str, Attribute] | None:
    return _pool(node, pad) if real(pad, "value") == -math.inf else None


def _avg_pool(node: Node, pad: Node) -> dict[str, Attribute] | None:
    counted = node.attributes.get("include_pad") and not real(pad, "value")
    return _pool(node, pad) if counted else None


_RULES = {"convolution": _convolution, "max_pool": _max_pool, "avg_pool": _avg_pool}
