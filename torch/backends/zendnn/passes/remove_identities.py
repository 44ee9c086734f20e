"""Removes operators that return what they are given."""

from __future__ import annotations

from collections.abc import Callable

from torch.backends.zendnn.graph import Graph, Node, Operand, Value, replace_node
from torch.backends.zendnn.operators import SIZES
from torch.backends.zendnn.passes._match import affine_of, bypass, integers, producer, real, scalar
from torch.backends.zendnn.signatures import Trait

#: From here on, the end of a slice means 'to the last element'.
NO_END = 1 << 31


def remove_identities(graph: Graph) -> int:
    """Remove operators that change nothing and views that another view undoes; return how many."""
    removed = 0
    for node in list(graph.nodes):
        if node.op == "view":
            removed += _view_of_view(graph, node)
        elif node.op == "permute":
            removed += _permute_of_permute(graph, node)
        elif node.op == "stack" and len(node.inputs) == 1:
            graph.set_inputs(node, [node.inputs[0], int(real(node, "dim"))])
            replace_node(node, op="unsqueeze", attributes={})
            removed += 1
        rule = _SAME.get(node.op)
        same = rule(graph, node) if rule else None
        if same is not None:
            removed += bypass(graph, node, same)
    return removed


def _view_of_view(graph: Graph, node: Node) -> int:
    inner = producer(node.inputs[0], "view", "flatten", "unflatten")
    if inner is None:
        return 0
    graph.set_inputs(node, [inner.inputs[0], *node.inputs[1:]])
    return 1


def _permute_of_permute(graph: Graph, node: Node) -> int:
    inner = producer(node.inputs[0], "permute")
    if inner is None:
        return 0
    first = [dim for dim in inner.inputs[1:] if isinstance(dim, int)]
    second = [dim for dim in node.inputs[1:] if isinstance(dim, int)]
    if len(first) != len(inner.inputs) - 1 or len(second) != len(first):
        return 0
    graph.set_inputs(node, [inner.inputs[0], *(first[dim] for dim in second)])
    return 1


def _contiguous(graph: Graph, node: Node) -> Operand:
    """Not where a view outside could notice, which wants the strides that its operand had."""
    value = node.output
    orders = Trait.ROW_MAJOR | Trait.ORDERED
    ordered = all(user.has(orders) or user.op in SIZES for user in value.users)
    maker = producer(node.inputs[0])
    dense = maker is not None and maker.has(Trait.ROW_MAJOR)
    return node.inputs[0] if graph.is_private(value) and (dense or ordered) else None


def _transpose(graph: Graph, node: Node) -> Operand:
    inner = producer(node.inputs[0], "transpose")
    if inner is not None and set(inner.inputs[1:]) == set(node.inputs[1:]):
        return inner.inputs[0]
    return node.inputs[0] if node.inputs[1] == node.inputs[2] else None


def _permute(graph: Graph, node: Node) -> Operand:
    order = list(node.inputs[1:])
    return node.inputs[0] if order == list(range(len(order))) else None


def _expand(graph: Graph, node: Node) -> Operand:
    return node.inputs[0] if all(size == -1 for size in node.inputs[1:]) else None


def _slice(graph: Graph, node: Node) -> Operand:
    x, _, start, end, step = node.inputs
    whole = end is None or (isinstance(end, int) and end >= NO_END)
    return x if start in (None, 0) and whole and step in (None, 1) else None


def _eltwise(graph: Graph, node: Node) -> Operand:
    """Of integers and booleans it makes floating-point numbers; what computes refuses these."""
    (x,), readers = node.inputs, node.output.users
    private = graph.is_private(node.output) and all(u.has(Trait.COMPUTES) for u in readers)
    floating = isinstance(x, Value) and x.is_floating
    return x if affine_of(node) == (1.0, 0.0) and (private or floating) else None


def _pad(graph: Graph, node: Node) -> Operand:
    return node.inputs[0] if all(pad == 0 for pad in node.inputs[1:]) else None


def _to(graph: Graph, node: Node) -> Operand:
    inner = producer(node.inputs[0], "to")
    if inner is not None and inner.attributes["dtype"] == node.attributes["dtype"]:
        return node.inputs[0]
    return None


def _to_like(graph: Graph, node: Node) -> Operand:
    """A constant number has no dtype where it meets a tensor, unless integers truncate it."""
    x, like = node.inputs
    readers = node.output.users
    meets = scalar(x) is not None and all(user.op == "binary" for user in readers)
    assert isinstance(like, Value)
    floating = like.is_floating or all(like in user.inputs for user in readers)
    return x if meets and floating else None


def _pool(graph: Graph, node: Node) -> Operand:
    ones = {*integers(node, "kernel"), *integers(node, "stride")} == {1}
    return node.inputs[0] if ones and not any(integers(node, "padding")) else None


def _only_part(graph: Graph, node: Node) -> Operand:
    return node.inputs[0] if len(node.inputs) == 1 else None


def _with_neutral(neutral: int, commutes: bool) -> Callable[[Graph, Node], Operand]:
    def rule(graph: Graph, node: Node) -> Operand:
        a, b = node.inputs
        if b == neutral and isinstance(b, int):
            return a
        return b if commutes and isinstance(a, int) and a == neutral else None

    return rule


#: For each operator, what its node returns unchanged; None when it does something.
_SAME: dict[str, Callable[[Graph, Node], Operand]] = {
    "contiguous": _contiguous,
    "transpose": _transpose,
    "permute": _permute,
    "expand": _expand,
    "slice": _slice,
    "eltwise": _eltwise,
    "pad": _pad,
    "to": _to,
    "to_like": _to_like,
    "max_pool": _pool,
    "avg_pool": _pool,
    "cat": _only_part,
    "number_add": _with_neutral(0, commutes=True),
    "number_sub": _with_neutral(0, commutes=False),
    "number_mul": _with_neutral(1, commutes=True),
    "number_floordiv": _with_neutral(1, commutes=False),
}
