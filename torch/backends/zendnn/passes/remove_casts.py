"""Removes conversions to the dtype that a tensor has already, as autocast leaves them."""

from __future__ import annotations

from torch.backends.zendnn.graph import Graph, Node, Value, replace_node
from torch.backends.zendnn.passes._match import VIEWS, bypass

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


def remove_casts(graph: Graph) -> int:
    """Remove conversions that convert nothing; return how many."""
    removed = 0
    known: dict[Value, str] = {}
    for node in list(graph.nodes):
        dtype = result_dtype(node, known)
        if node.op == "to_like" and dtype is not None:
            graph.set_inputs(node, node.inputs[:1])
            replace_node(node, op="to", attributes={"dtype": dtype})
        if node.op == "to" and dtype is not None:
            (operand,) = node.inputs
            if isinstance(operand, Value) and dtype_of(operand, known) == dtype:
                known[node.output] = dtype
                removed += bypass(graph, node, operand)
                continue
        if dtype is not None:
            known.update(dict.fromkeys(node.outputs, dtype))
    return removed


def result_dtype(node: Node, known: dict[Value, str]) -> str | None:
    """The dtype of a node's results, if those of what it reads give it away."""
    if "dtype" in node.attributes:
        return str(node.attributes["dtype"])
    if node.op == "power":
        return "float32"
    if node.op in _FOLLOW:
        operand = node.inputs[_FOLLOW[node.op]]
        return dtype_of(operand, known) if isinstance(operand, Value) else None
    if node.op not in _SHARE:
        return None
    operands = node.inputs[: _APART.get(node.op)]
    dtypes = {
        dtype_of(operand, known)
        for operand in operands
        if isinstance(operand, Value) and operand.kind == "tensor"
    }
    return dtypes.pop() if len(dtypes) == 1 else None


def dtype_of(value: Value, known: dict[Value, str]) -> str | None:
    """The dtype of a value, given those of values that are not constants."""
    if value.constant is not None:
        return str(value.constant.dtype).removeprefix("torch.")
    return known.get(value)
