"""Folds batch normalisation into the weights of the convolution or linear layer before it."""

from __future__ import annotations

from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node
from torch.backends.zendnn.passes._match import absorb, constant, each
from torch.backends.zendnn.passes._weights import channels, fold, foldable


@each("batch_norm")
def fold_batch_norm(graph: Graph, norm: Node) -> bool:
    """Fold batch norms; return how many."""
    node = foldable(graph, norm.inputs[0])
    # Channels are dimension 1: a linear layer's features only when the rank is 2.
    if node is None or (node.op == "linear" and node.output.rank != 2):
        return False
    weight, bias, mean, variance = map(constant, norm.inputs[1:])
    if mean is None or variance is None or mean.numel() != channels(node):
        return False
    scale = (variance.double() + norm.get("eps")).rsqrt()
    if weight is not None:
        scale = scale * weight.double()
    shift = -mean.double() * scale
    if not fold(graph, node, scale, shift if bias is None else shift + bias.double()):
        return False
    absorb(graph, node, norm)
    return True
