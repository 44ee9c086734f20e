"""Infers the types of a node's results by the rules of its row (``table/operators.py``)."""

from __future__ import annotations

from torch.backends.zendnn.ir.node import FLOATS, SOME_FLOAT, SOME_INTEGER, Node, Value
from torch.backends.zendnn.table.notation import Trait
from torch.backends.zendnn.table.shapes import Dims, unknown


def infer_types(node: Node) -> None:
    """Set the types of a node's results by the rules of its row."""
    dtype, dims = infer_dtype(node), infer_dims(node)
    first = node.inputs[0] if node.inputs else None
    shares = isinstance(first, Value) and first.is_state and node.has(Trait.VIEW | Trait.WRITES)
    for value in node.outputs:
        value.is_state = value.is_state or shares
        if dtype is not None and value.dtype in (None, SOME_FLOAT, SOME_INTEGER):
            value.dtype = dtype
        if dims is not None:
            value.learn_dims(dims)


def infer_dtype(node: Node) -> str | None:
    """The dtype of a node's results, as far as its operands tell."""
    if stated := node.get("dtype"):
        return str(stated)
    if isinstance(node.row.result.dtype, str):
        return node.row.result.dtype
    dtypes = {value.dtype for value in dtype_sources(node)}
    dtype = dtypes.pop() if len(dtypes) == 1 else None
    keeps_integers = node.function is not None and node.function.keeps_integers
    makes_floats = node.has(Trait.FLOATING) and not keeps_integers
    return SOME_FLOAT if makes_floats and dtype not in FLOATS else dtype


def dtype_sources(node: Node) -> list[Value]:
    """The operands whose dtype a node's results have; none where the node states it."""
    dtype = node.row.result.dtype
    if node.get("dtype") or not isinstance(dtype, slice):
        return []
    return [v for v in node.inputs[dtype] if isinstance(v, Value) and v.kind == "tensor"]


def infer_dims(node: Node) -> Dims | None:
    """The sizes of a node's results, as far as its operands tell."""
    rule = node.row.result.dims
    if rule is None or len(node.inputs) < node.row.fewest:
        return None
    read = [operand.dims if isinstance(operand, Value) else None for operand in node.inputs]
    try:
        dims = rule(node, read)
    except IndexError:  # the model's own error, raised when it runs
        return None
    if dims is None or not node.post_ops:
        return dims
    # What a post-op reads may be larger.
    others = [read[post.operand] for post in node.post_ops if post.operand is not None]
    ranks = [len(dims), *(len(other) for other in others if other is not None)]
    return unknown(max(ranks)) if len(ranks) == len(others) + 1 else None
