"""Lets convolutions and pools do the padding that a model does before them."""

from __future__ import annotations

import math
from operator import add

from torch.backends.zendnn.graph import Attribute, Graph, Node
from torch.backends.zendnn.passes._match import each, producer
from torch.backends.zendnn.passes._weights import weight_of


@each("convolution", "max_pool", "avg_pool")
def fold_pad(graph: Graph, node: Node) -> bool:
    """Fold padding of spatial dimensions into its private readers' own; return how many."""
    pad = producer(node.inputs[0], "pad")
    if pad is None or not graph.is_private(pad.output):
        return False
    changes = _convolution(node, pad) if node.op == "convolution" else _pool(node, pad)
    if changes is None:
        return False
    graph.set_inputs(node, [pad.inputs[0], *node.inputs[1:]])
    node.attributes |= changes
    if node.get("padding_end") == node.get("padding"):
        del node.attributes["padding_end"]
    node.origin = pad.origin + node.origin
    return True


Pads = tuple[int, ...]


def _spatial(pad: Node, spatial: int) -> tuple[Pads, Pads] | None:
    """What is added before and after each spatial dimension, if no other one is padded."""
    pads = tuple(pad for pad in pad.inputs[1:] if isinstance(pad, int))
    known = len(pads) == len(pad.inputs) - 1
    if not known or min(pads, default=-1) < 0 or any(pads[2 * spatial :]):
        return None
    pads = (pads + (0,) * (2 * spatial))[: 2 * spatial]
    # The last dimension stands first.
    return pads[0::2][::-1], pads[1::2][::-1]


def _convolution(node: Node, pad: Node) -> dict[str, Attribute] | None:
    pads = _spatial(pad, weight_of(node).dim() - 2)
    if pads is None or node.get("transposed") or pad.get("value"):
        return None
    begin = node.get("padding")
    end = node.get("padding_end") or begin
    return {
        "padding": tuple(map(add, begin, pads[0])),
        "padding_end": tuple(map(add, end, pads[1])),
    }


def _pool(node: Node, pad: Node) -> dict[str, Attribute] | None:
    """With sizes rounded up, a window may start in the pool's own padding only."""
    kernel = node.get("kernel")
    pads = _spatial(pad, len(kernel))
    counts = node.op == "max_pool" or node.get("include_pad")
    if not counts or pad.get("value") != (-math.inf if node.op == "max_pool" else 0):
        return None
    if pads is None or pads[0] != pads[1] or node.get("ceil"):
        return None
    padding = tuple(map(add, node.get("padding"), pads[0]))
    # torch limits a pool's padding to half its kernel.
    too_much = any(2 * p > k for p, k in zip(padding, kernel, strict=True))
    return None if too_much else {"padding": padding}
