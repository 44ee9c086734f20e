"""What a graph says of the dtypes of its values, before it sees a tensor."""

from __future__ import annotations

from torch.backends.zendnn.graph import Node, Operand, Value
from torch.backends.zendnn.passes._match import VIEWS, constant

#: Operators whose results have the dtype that all of their tensors share.
_SHARE = VIEWS | {
    "eltwise",
    "binary",
    "prelu",
    "matmul",
    "softmax",
    "attention",
    "max_pool",
    "avg_pool",
    "adaptive_avg_pool",
    "mean",
    "cat",
    "stack",
    "pad",
    "roll",
    "gather_pairs",
}

#: Operators whose results have the dtype of one operand, whatever the others are.
_FOLLOW = {
    "convolution": 1,
    "linear": 1,
    "layer_norm": 0,
    "batch_norm": 0,
    "to_like": 1,
    "embedding": 0,
    "embedding_bag": 0,
}

#: Operands that do not take part: masks and indices.
_APART = {"attention": 3, "gather_pairs": 1}


def result_dtype(node: Node, known: dict[Value, str]) -> str | None:
    """The dtype of a node's results, if those of what it reads give it away."""
    if "dtype" in node.attributes:
        return str(node.attributes["dtype"])
    if node.op == "power":
        return "float32"
    if node.op in _FOLLOW:
        return dtype_of(node.inputs[_FOLLOW[node.op]], known)
    if node.op not in _SHARE:
        return None
    operands = node.inputs[: _APART.get(node.op)]
    dtypes = {
        dtype_of(operand, known)
        for operand in operands
        if isinstance(operand, Value) and operand.kind == "tensor"
    }
    return dtypes.pop() if len(dtypes) == 1 else None


def dtype_of(operand: Operand, known: dict[Value, str] | None = None) -> str | None:
    """The dtype of a tensor, given those of values that are not constants."""
    tensor = constant(operand)
    if tensor is not None:
        return str(tensor.dtype).removeprefix("torch.")
    return known.get(operand) if known and isinstance(operand, Value) else None
