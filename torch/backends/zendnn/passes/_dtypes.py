"""What a graph says of the dtypes of its values, before it sees a tensor."""

from __future__ import annotations

from torch.backends.zendnn.graph import Node, Operand, Value
from torch.backends.zendnn.passes._match import constant
from torch.backends.zendnn.passes._operators import operator


def result_dtype(node: Node, known: dict[Value, str]) -> str | None:
    """The dtype of a node's results, if those of what it reads give it away."""
    if "dtype" in node.attributes:
        return str(node.attributes["dtype"])
    dtype = operator(node).dtype
    if not isinstance(dtype, slice):
        return dtype
    dtypes = {dtype_of(operand, known) for operand in dtype_sources(node)}
    return dtypes.pop() if len(dtypes) == 1 else None


def dtype_sources(node: Node) -> list[Value]:
    """The operands whose dtype a node's results have; none where the node states it."""
    dtype = operator(node).dtype
    if "dtype" in node.attributes or not isinstance(dtype, slice):
        return []
    return [v for v in node.inputs[dtype] if isinstance(v, Value) and v.kind == "tensor"]


def dtype_of(operand: Operand, known: dict[Value, str] | None = None) -> str | None:
    """The dtype of a tensor, given those of values that are not constants."""
    tensor = constant(operand)
    if tensor is not None:
        return str(tensor.dtype).removeprefix("torch.")
    return known.get(operand) if known and isinstance(operand, Value) else None
