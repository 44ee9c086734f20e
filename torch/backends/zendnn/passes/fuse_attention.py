"""Recognises attention that a model spells out: softmax(q·kᵀ · scale + mask)·v."""

from __future__ import annotations

from torch.backends.zendnn.graph import Attribute, Graph, Node, Operand, Value
from torch.backends.zendnn.passes._match import constant, is_swap, linear_of, producer, ranks, sole

#: Batch, heads, positions, size: the only rank that the operator knows.
RANK = 4


def fuse_attention(graph: Graph) -> int:
    """Replace two matrix products around a softmax by one attention; return how many."""
    fused = 0
    known = ranks(graph)
    for softmax in list(graph.nodes):
        if softmax.op == "softmax" and _fuse(graph, softmax, known):
            fused += 1
    return fused


def _fuse(graph: Graph, softmax: Node, known: dict[Value, int]) -> bool:
    if softmax.attributes["dim"] not in (-1, RANK - 1) or softmax.attributes.get("log"):
        return False
    weights = softmax.output
    last = graph.only_user(weights)
    if last is None or not _is_plain_product(last) or last.inputs[0] is not weights:
        return False
    found = _scores(graph, softmax.inputs[0], known)
    if found is None:
        return False
    members, q, k, mask, scale = found
    v = last.inputs[1]
    fixed = {_rank(operand, known) for operand in (q, k, v)} - {None}
    by_name = any(dim in (2, 3) for node in members for dim in _transposed(node))
    if fixed != {RANK} and not (not fixed and by_name):
        return False
    members = [*members, softmax, last]
    attributes: dict[str, Attribute] = {"scale": scale, "causal": False, "swapped": False}
    node = graph.add(
        "attention",
        [q, k, v, mask],
        before=last,
        attributes=attributes,
        origin=tuple(label for member in members for label in member.origin),
    )
    graph.take_over(node, last.output)
    graph.remove_dead()
    return True


Scores = tuple[list[Node], Operand, Operand, Operand, float]


def _scores(graph: Graph, operand: Operand, known: dict[Value, int]) -> Scores | None:
    """The operators, q, k, mask and scale that make what the softmax reads."""
    masked = sole(graph, operand, "binary")
    if masked is None:
        found = _product(graph, operand)
        return None if found is None else (*found[:3], None, found[3])
    if masked.attributes["algorithm"] != "add" or masked.post_ops:
        return None
    a, b = masked.inputs
    for scores, mask in ((a, b), (b, a)):
        found = _product(graph, scores)
        if found is not None:
            members, q, k, scale = found
            return [*members, masked], q, k, mask, scale
    return None


def _product(graph: Graph, operand: Operand) -> tuple[list[Node], Operand, Operand, float] | None:
    """q·kᵀ, scaled."""
    scale = 1.0
    scalings: list[Node] = []
    while (node := sole(graph, operand, "eltwise")) is not None:
        factor = linear_of(node)
        if factor is None or factor[1]:
            return None
        scale *= factor[0]
        scalings.append(node)
        operand = node.inputs[0]
    product = sole(graph, operand, "matmul")
    if product is None or not _is_plain_product(product) or not scale:  # 0 has another meaning
        return None
    transposed = producer(product.inputs[1], "transpose", "permute")
    if transposed is None or not is_swap(transposed, RANK - 2, RANK - 1, RANK):
        return None
    members = [transposed, product, *reversed(scalings)]
    return members, product.inputs[0], transposed.inputs[0], scale


def _is_plain_product(node: Node) -> bool:
    return node.op == "matmul" and len(node.inputs) == 2 and not node.post_ops


def _transposed(node: Node) -> tuple[Operand, ...]:
    return node.inputs[1:] if node.op in ("transpose", "permute") else ()


def _rank(operand: Operand, known: dict[Value, int]) -> int | None:
    tensor = constant(operand)
    if tensor is not None:
        return tensor.dim()
    return known.get(operand) if isinstance(operand, Value) else None
