"""Recognises rotary position embeddings: x·cos + r·sin, where r has pairs (-b, a) of pairs (a, b).

Pairs are neighbours or elements of both halves, of all elements or of the first ones only. Scaled
embeddings differ by their tables.
"""

from __future__ import annotations

from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node, Operand, Value
from torch.backends.zendnn.passes._match import affine_of, each, producer, sole, substitute

_PROMOTED = {"float32", "bfloat16"}


@each("binary.add", "cat")
def recognise_rope(graph: Graph, node: Node) -> bool:
    """Replace rotations, and what joins them with the elements that stay; return how many."""
    return _join(graph, node) if node.op == "cat" else _rotate(graph, node)


def _rotate(graph: Graph, total: Node) -> bool:
    plain, turned = (producer(term, "binary.mul") for term in total.inputs[:2])
    if plain is None or turned is None or plain.output.is_rounded or turned.output.is_rounded:
        return False
    if plain.get("in_place") or turned.get("in_place"):
        return False
    for a, b in ((plain, turned), (turned, plain)):
        for r, sin in (b.inputs, b.inputs[::-1]):
            found = _turned(r)
            if found is not None and found[0] in a.inputs:
                x, members, interleaved = found
                cos = a.inputs[a.inputs[0] is x]
                if _are_tables(x, cos, sin) and not (
                    total.get("in_place") and not _are_alike(x, cos, sin)
                ):
                    members += (a, b, total)
                    inputs = _promoted(graph, total, [x, cos, sin])
                    substitute(graph, members, "rope", inputs, interleaved=interleaved)
                    return True
    return False


def _turned(operand: Operand) -> tuple[Value, tuple[Node, ...], bool] | None:
    """The tensor of whose pairs (a, b) these are (-b, a), what turns them, and how they lie."""
    joined = producer(operand, "cat", "view", "flatten")
    if joined is None:
        return None
    interleaved = joined.op != "cat"
    stack = producer(joined.inputs[0], "stack") if interleaved else joined
    negated = None if stack is None else producer(stack.inputs[0], "eltwise.affine")
    if stack is None or affine_of(negated) != (-1.0, 0.0) or not _is_last(stack.output, stack):
        return None
    assert negated is not None
    a, b = _part(stack.inputs[-1]), _part(negated.inputs[0])
    if a is None or b is None or a[0] is not b[0] or len(stack.inputs) != 2:
        return None
    x, whole = a[0], _whole(a[0])
    half = len(whole) // 2
    pair = (whole[::2], whole[1::2]) if interleaved else (whole[:half], whole[half:])
    assert isinstance(operand, Value)
    if (a[1], b[1]) != pair or len(whole) % 2 or (interleaved and operand.dims != x.dims):
        return None
    return x, (negated, *([stack] if interleaved else []), joined), interleaved


def _part(operand: Operand) -> tuple[Value, range] | None:
    """The tensor of which a value is a part of each row, and which part; None where unknown."""
    node = producer(operand, "slice", "split")
    x = None if node is None else node.inputs[0]
    if node is None or not isinstance(x, Value) or not (whole := _whole(x)):
        return None
    match node:
        case Node("slice", (_, int() as dim, *bounds)) if dim in (-1, (x.rank or 0) - 1):
            known = [bound for bound in bounds if bound is None or isinstance(bound, int)]
            return (x, whole[slice(*known)]) if len(known) == len(bounds) else None
        case Node("split") if _is_last(x, node):
            sizes = node.get("sizes") or (-(-len(whole) // (node.get("chunks") or 1)),)
            position = node.outputs.index(operand)
            start = sizes[0] * position if len(sizes) == 1 else sum(sizes[:position])
            return x, whole[start : start + sizes[position if len(sizes) > 1 else 0]]
    return None


def _whole(x: Value) -> range:
    """The elements of a row; none where their number is not known."""
    size = x.dims[-1] if x.dims else None
    return range(size if isinstance(size, int) else 0)


def _is_last(x: Value, node: Node) -> bool:
    """Whether the node's ``dim`` is the last dimension of a tensor."""
    rank = x.rank or 0
    return rank > 0 and bool(node.get("dim") % rank == rank - 1)


def _are_tables(x: Value, *tables: Operand) -> bool:
    """Whether these surely are tables for whole rows of x, and no dtype is unknown."""
    return x.dtype is not None and all(
        isinstance(table, Value)
        and (table.dtype == x.dtype or {table.dtype, x.dtype} == _PROMOTED)
        and _whole(table) == _whole(x)
        and (table.rank or 0) <= (x.rank or 0)
        for table in tables
    )


def _are_alike(x: Value, cos: Operand, sin: Operand) -> bool:
    """Whether both products surely have one size, and the dtype of x."""
    assert isinstance(cos, Value)
    assert isinstance(sin, Value)
    return cos.dims == sin.dims and cos.dtype == sin.dtype == x.dtype


def _promoted(graph: Graph, before: Node, operands: list[Operand]) -> list[Operand]:
    """The operands in the dtype that torch gives their products."""
    values = [x for x in operands if isinstance(x, Value)]
    if {x.dtype for x in values} != _PROMOTED:
        return operands
    return [x if x.dtype == "float32" else _widened(graph, before, x) for x in values]


def _widened(graph: Graph, before: Node, x: Value) -> Value:
    """A conversion that is there already, or a new one."""
    position = graph.nodes.index(before)
    for user in x.users:
        converts = user.op == "to" and user.get("dtype") == "float32"
        if converts and graph.nodes.index(user) < position:
            return user.output
    return graph.add("to", [x], before=before, attributes={"dtype": "float32"}).output


def _join(graph: Graph, cat: Node) -> bool:
    """Rotate the first elements of rows in place of a part of them."""
    if len(cat.inputs) != 2 or not _is_last(cat.output, cat):
        return False
    rope, rest = sole(graph, cat.inputs[0], "rope"), _part(cat.inputs[1])
    turned = None if rope is None else _part(rope.inputs[0])
    if rope is None or rest is None or turned is None or turned[0] is not rest[0]:
        return False
    whole, count = _whole(rest[0]), len(turned[1])
    if (turned[1], rest[1]) != (whole[:count], whole[count:]):
        return False
    inputs = [rest[0], *rope.inputs[1:]]
    substitute(graph, [rope, cat], "rope", inputs, interleaved=rope.get("interleaved"))
    return True
