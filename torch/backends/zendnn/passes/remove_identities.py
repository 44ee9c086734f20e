"""Removes operators that return their operand unchanged."""

from __future__ import annotations

from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node, Operand, Value
from torch.backends.zendnn.passes._match import (
    bypass,
    can_forget_like,
    each,
    is_no_shift,
    producer,
    scalar,
)
from torch.backends.zendnn.table.notation import Trait
from torch.backends.zendnn.table.operators import SIZES


@each()
def remove_identities(graph: Graph, node: Node) -> int:
    """Remove operators that change nothing and views that another view undoes; return how many."""
    simpler, same = _simplify(graph, node), _same(graph, node)
    if isinstance(same, Value) and same.is_state and not node.output.is_state:
        return simpler  # a copy of what may be written later
    return simpler + (same is not None and bypass(graph, node, same))


def _simplify(graph: Graph, node: Node) -> bool:
    """Make one view of two."""
    match node:
        case Node("view", (Value(producer=Node("view" | "flatten" | "unflatten") as inner), *rest)):
            graph.set_inputs(node, [inner.inputs[0], *rest])
        case Node("permute", (Value(producer=Node("permute", (x, *a))), *b)) if len(a) == len(b):
            graph.set_inputs(node, [x, *(a[dim] for dim in b if isinstance(dim, int))])
        case _:
            return False
    return True


def _same(graph: Graph, node: Node) -> Operand:
    """The operand that a node returns unchanged; None when it computes something."""
    match node:
        case Node("contiguous", (x,)) if _is_row_major(graph, node):
            return x
        case Node("transpose", (Value(producer=Node("transpose", (x, *a))), *b)) if {*a} == {*b}:
            return x
        case Node("permute", (x, *order)) if order == [*range(len(order))]:
            return x
        case Node("expand", (x, *sizes)) if {*sizes} <= {-1}:
            return x
        case Node("slice", (x, _, None | 0, None, None | 1)):
            return x
        case Node("eltwise", (x,), attributes={"algorithm": "affine", "alpha": 1, "beta": beta}):
            return x if is_no_shift(beta) and _is_floating(graph, node) else None
        case Node("pad", (x, *pads)) if {*pads} <= {0}:
            return x
        case Node("to", (x,), attributes={"dtype": dtype}):
            inner = producer(x, "to")
            return x if inner is not None and inner.get("dtype") == dtype else None
        case Node("to_like", (x, _)) if can_forget_like(graph, node) and _is_number(node):
            return x
        case Node("cat", (x,)):
            return x
        case Node("number_add" | "number_sub", (x, 0)) | Node("number_add", (0, x)):
            return x
        case Node("number_mul" | "number_floordiv", (x, 1)) | Node("number_mul", (1, x)):
            return x
    return None


def _is_row_major(graph: Graph, node: Node) -> bool:
    """Whether the copy can go: a view outside would need the strides of a contiguous tensor."""
    orders = Trait.ROW_MAJOR | Trait.ORDERED
    ordered = all(user.has(orders) or user.op in SIZES for user in node.output.users)
    maker = producer(node.inputs[0])
    dense = maker is not None and maker.has(Trait.ROW_MAJOR)
    return graph.is_private(node.output) and (dense or ordered)


def _is_floating(graph: Graph, node: Node) -> bool:
    """Whether the operand is floating-point: functions turn integers and booleans into floats."""
    (x,), readers = node.inputs, node.output.users
    private = graph.is_private(node.output) and all(user.has(Trait.COMPUTES) for user in readers)
    return private or (isinstance(x, Value) and x.is_floating)


def _is_number(node: Node) -> bool:
    """Whether a number only meets tensors, whose dtype wins unless integers truncate it."""
    x, like = node.inputs
    readers = node.output.users
    meets = scalar(x) is not None and all(user.op == "binary" for user in readers)
    assert isinstance(like, Value)
    return meets and (like.is_floating or all(like in user.inputs for user in readers))
