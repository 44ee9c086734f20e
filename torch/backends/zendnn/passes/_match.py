"""What several passes ask of a graph, and what they do to it when they have found it."""

from __future__ import annotations

import torch
from torch.backends.zendnn.graph import Graph, Node, Operand, PostOp, Value, replace_node
from torch.backends.zendnn.operators import TAKES_POST_OPS

#: As many post-ops as one primitive is given.
MOST_POST_OPS = 4


def producer(operand: Operand, *ops: str) -> Node | None:
    """The node that makes ``operand``, if it is one of these operators, where any are given."""
    node = operand.producer if isinstance(operand, Value) else None
    return node if node is not None and (not ops or node.op in ops) else None


def rank(operand: Operand) -> int | None:
    """How many dimensions a tensor has, if that is known."""
    return operand.rank if isinstance(operand, Value) else None


def sole(graph: Graph, operand: Operand, *ops: str) -> Node | None:
    """``producer``, if the operand is private and has one user: what a fusion may swallow."""
    node = producer(operand, *ops)
    if node is None or not isinstance(operand, Value) or graph.only_user(operand) is None:
        return None
    return node


def constant(operand: Operand) -> torch.Tensor | None:
    """The operand's tensor, if it is a constant."""
    return operand.constant if isinstance(operand, Value) else None


def scalar(operand: Operand) -> float | None:
    """The number in a constant without dimensions, which changes no shape and no dtype."""
    tensor = constant(operand)
    if tensor is None or tensor.dim() or tensor.is_complex():
        return None
    return float(tensor.item())


def integers(node: Node, key: str) -> tuple[int, ...]:
    """An attribute that is a tuple of integers; empty when missing."""
    value = node.attributes.get(key, ())
    assert isinstance(value, tuple), f"{node.op}'s {key} is {value!r}"
    return value


def real(node: Node, key: str) -> float:
    """An attribute that is a number; 0 when missing."""
    value = node.attributes.get(key, 0.0)
    assert isinstance(value, (int, float)), f"{node.op}'s {key} is {value!r}"
    return float(value)


def is_eltwise(node: Node | None, algorithm: str) -> bool:
    """Whether the node is this eltwise operator."""
    return node is not None and node.op == "eltwise" and node.attributes["algorithm"] == algorithm


def affine_of(node: Node | None) -> tuple[float, float] | None:
    """The (alpha, beta) of an eltwise alpha·x + beta."""
    if node is None or not is_eltwise(node, "affine"):
        return None
    return real(node, "alpha"), real(node, "beta")


def is_sound(number: float) -> bool:
    """Whether float32 holds the number with all its digits."""
    limits = torch.finfo(torch.float32)
    return number == 0 or limits.tiny <= abs(number) <= limits.max


def as_affine(algorithm: str, number: float, *, left: bool = False) -> tuple[float, float] | None:
    """The (alpha, beta) of ``x algorithm number``, or of ``number algorithm x`` when it is left.

    None when it is no alpha·x + beta, or one that float32 cannot hold.
    """
    forms = {
        "add": (1.0, number),
        "sub": (-1.0, number) if left else (1.0, -number),
        "mul": (number, 0.0),
    }
    if number and not left:
        forms["div"] = (1.0 / number, 0.0)
    found = forms.get(algorithm)
    return found if found is not None and all(map(is_sound, found)) else None


def is_swap(node: Node | None, first: int, second: int, rank: int) -> bool:
    """Whether the node exchanges two dimensions (counted from 0) of a tensor of this rank."""
    if node is None:
        return False
    if node.op == "transpose":
        dims = [dim for dim in node.inputs[1:] if isinstance(dim, int)]
        return {dim % rank for dim in dims} == {first, second} and len(dims) == 2
    order = list(range(rank))
    order[first], order[second] = second, first
    return node.op == "permute" and list(node.inputs[1:]) == order


def absorb(graph: Graph, node: Node, last: Node) -> None:
    """Let ``node``, which now does the work of ``last`` too, make its result."""
    replace_node(node, origin=node.origin + last.origin)
    graph.take_over(node, last.output)


def with_post_op(graph: Graph, node: Node, last: Node, post: PostOp) -> None:
    """Let ``node`` do the work of ``last`` as a post-op, followed by what ``last`` was given."""
    assert all(given.operand is None for given in last.post_ops)
    replace_node(node, post_ops=(*node.post_ops, post, *last.post_ops))
    absorb(graph, node, last)


def bypass(graph: Graph, node: Node, operand: Operand) -> bool:
    """Remove a node that returns ``operand`` unchanged; return whether its readers allowed it."""
    value = node.output
    if graph.is_private(value):
        graph.replace_uses(value, operand)
        graph.remove(node)
        return True
    former = sole(graph, operand, *TAKES_POST_OPS, "eltwise")
    if former is None or former.output.users != [node]:
        return False
    absorb(graph, former, node)
    return True
