"""Queries and rewrites of graphs that several passes share."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.backends.zendnn.ir.graph import Graph, Pass
from torch.backends.zendnn.ir.node import Node, Operand, PostOp, Value
from torch.backends.zendnn.table.notation import Attribute
from torch.backends.zendnn.table.operators import TAKES_POST_OPS

#: The most post-ops that one primitive takes.
MOST_POST_OPS = 4

#: The beta of an alpha·x + beta that only scales: added to -0.0, 0.0 would give 0.0.
NO_SHIFT = -0.0


def each(*ops: str) -> Callable[[Callable[[Graph, Node], int]], Pass]:
    """Make a pass from a rule that returns its changes to one node, of these operators or any."""

    def pass_of(rule: Callable[[Graph, Node], int]) -> Pass:
        @functools.wraps(rule)
        def visit(graph: Graph) -> int:
            nodes = (node for node in list(graph.nodes) if not ops or is_one_of(node, ops))
            return sum(rule(graph, node) for node in nodes)

        return visit

    return pass_of


def is_one_of(node: Node, ops: Iterable[str]) -> bool:
    """Whether the node is one of these operators; ``'eltwise.relu'`` names an algorithm too."""
    return node.op in ops or f"{node.op}.{node.get('algorithm')}" in ops


def producer(operand: Operand, *ops: str) -> Node | None:
    """The node that makes ``operand``, if it is one of these operators, where any are given."""
    node = operand.producer if isinstance(operand, Value) else None
    return node if node is not None and (not ops or is_one_of(node, ops)) else None


def sole(graph: Graph, operand: Operand, *ops: str) -> Node | None:
    """``producer``, if the operand is private and has one user: a fusion may absorb such a node."""
    node = producer(operand, *ops)
    if node is None or not isinstance(operand, Value) or graph.only_user(operand) is None:
        return None
    return node


def chain(graph: Graph, operand: Operand, *steps: str) -> tuple[Node, ...]:
    """The nodes that make ``operand``, the last one first, each from the next one's result.

    A step names the operators that the node may be; () unless a fusion may absorb all nodes.
    """
    nodes = []
    for step in steps:
        node = sole(graph, operand, *step.split())
        if node is None:
            return ()
        nodes.append(node)
        operand = node.inputs[0]
    return tuple(nodes)


def constant(operand: Operand) -> torch.Tensor | None:
    """The operand's tensor, if it is a constant."""
    return operand.constant if isinstance(operand, Value) else None


def scalar(operand: Operand) -> float | None:
    """The number in a constant without dimensions, which changes no shape and no dtype."""
    tensor = constant(operand)
    return None if tensor is None or tensor.dim() else float(tensor.item())


def affine_of(node: Node | None) -> tuple[float, float] | None:
    """The (alpha, beta) of an eltwise alpha·x + beta."""
    if node is None or not is_one_of(node, ("eltwise.affine",)):
        return None
    return node.get("alpha"), node.get("beta")


def is_no_shift(beta: Any) -> bool:
    """Whether adding beta changes no number, and no sign of a zero either."""
    return beta == 0 and math.copysign(1.0, beta) < 0


def is_sound(number: float) -> bool:
    """Whether float32 holds the number with all its digits."""
    limits = torch.finfo(torch.float32)
    return number == 0 or limits.tiny <= abs(number) <= limits.max


def affine_form(algorithm: str, other: Any, *, left: bool) -> tuple[Any, Any] | None:
    """The (alpha, beta) of ``x algorithm other``, or of ``other algorithm x`` when that is left.

    ``other`` is a number or a tensor; None for what is no alpha·x + beta.
    """
    match algorithm, left:
        case "add", _:
            return 1.0, other
        case "sub", _:
            return (-1.0, other) if left else (1.0, -other)
        case "mul", _:
            return other, NO_SHIFT
        case "div", False:
            return 1.0 / other, NO_SHIFT
    return None


def as_affine(algorithm: str, number: float, *, left: bool = False) -> tuple[float, float] | None:
    """``affine_form`` of a number, unless float32 cannot hold it."""
    divides_by_zero = algorithm == "div" and not number
    found = None if divides_by_zero else affine_form(algorithm, number, left=left)
    return found if found is not None and all(map(is_sound, found)) else None


def can_forget_like(graph: Graph, node: Node) -> bool:
    """Whether a pass may remove the second operand of a ``to_like``, which gives the dtype.

    An operand that nothing else reads stays: whatever computes it may raise an error.
    """
    _, like = node.inputs
    assert isinstance(like, Value)
    others = like is node.inputs[0] or any(user is not node for user in like.users)
    stays = others or like.producer is None or not graph.is_private(like)
    return stays and not node.get("in_place")


def is_swap(node: Node | None, first: int, second: int, rank: int) -> bool:
    """Whether the node exchanges two dimensions (counted from 0) of a tensor of this rank."""
    match node:
        case Node("transpose", (_, int() as a, int() as b)):
            return {a % rank, b % rank} == {first, second}
        case Node("permute", (_, *order)):
            swapped = {first: second, second: first}
            return order == [swapped.get(dim, dim) for dim in range(rank)]
    return False


def labels(nodes: Iterable[Node]) -> tuple[str, ...]:
    """The operators of the model that these nodes do."""
    return tuple(label for node in nodes for label in node.origin)


def substitute(
    graph: Graph,
    members: Sequence[Node],
    op: str,
    inputs: Sequence[Operand],
    **attributes: Attribute,
) -> None:
    """Replace nodes, the last of which makes the result, by one node."""
    *_, last = members
    node = graph.add(op, inputs, before=last, attributes=attributes, origin=labels(members))
    graph.take_over(node, last.output)
    graph.remove_dead()


def absorb(graph: Graph, node: Node, last: Node) -> None:
    """Let ``node``, which now performs ``last`` too, make its result."""
    node.origin = node.origin + last.origin
    graph.take_over(node, last.output)


def with_post_op(graph: Graph, node: Node, last: Node, post: PostOp) -> None:
    """Let ``node`` perform ``last`` as a post-op, followed by the post-ops of ``last``."""
    assert all(other.operand is None for other in last.post_ops)
    node.post_ops = (*node.post_ops, post, *last.post_ops)
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
