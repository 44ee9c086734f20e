"""Folds batch normalisation into the weights of the convolution or linear layer before it."""

from __future__ import annotations

from torch import Tensor
from torch.backends.zendnn.graph import Graph, Node
from torch.backends.zendnn.passes._match import absorb, constant, each
from torch.backends.zendnn.passes._weights import channels, fold, foldable


@each("batch_norm")
def fold_batch_norm(graph: Graph, norm: Node) -> bool:
    node = foldable(graph, norm.inputs[0])
    # Channels are dimension 1: a linear layer's features only when the rank is 2.
    if node is None or (node.op == "linear" and node.output.rank != 2):
        return False
    affine = _affine(norm, channels(node))
    if affine is None or not fold(graph, node, *affine):
        return False
    absorb(graph, node, norm)
    return True


def _affine(norm: Node, count: int) -> tuple[Tensor, Tensor] | None:
    """The scale and shift of each channel, in float64."""
    weight, bias, mean, variance = (constant(operand) for operand in norm.inputs[1:])
    if (weight is None) != (norm.inputs[1] is None) or (bias is None) != (norm.inputs[2] is None):
        return None
    if mean is None or variance is None or mean.numel() != count:
        return None
    scale = (variance.double() + norm.get("eps")).rsqrt()
    if weight is not None:
        scale = scale * weight.double()
    shift = -mean.double() * scale
    return scale, shift if bias is None else shift + bias.double()
