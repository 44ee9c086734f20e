"""Recognises activation functions that a model spells out in basic operators.

An expression of one value is recognised by what it computes, however it is written: its values at
sample points are compared with those of known functions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node, Value
from torch.backends.zendnn.passes import _evaluate
from torch.backends.zendnn.passes._match import NO_SHIFT, substitute
from torch.backends.zendnn.table.functions import FUNCTIONS
from torch.backends.zendnn.table.notation import Attribute

#: The largest expression that is considered, in operators.
MOST_OPERATORS = 12

#: A scaled SiLU with a smaller factor is nearly a line.
LEAST_FACTOR = 1e-2

_KNOWN = ("silu", "sigmoid", "hardsigmoid", "hardswish", "gelu", "gelu_tanh", "mish")

#: Dense around 0, where functions bend, and a few far away, where similar ones may differ.
_POINTS = torch.cat(
    [
        torch.linspace(-12, 12, 97, dtype=torch.float64),
        torch.tensor([s * p for p in (20.0, 1e2, 1e4, 1e8) for s in (-1, 1)], dtype=torch.float64),
    ]
)

#: Eltwise operators in a row, by their attributes.
Steps = list[dict[str, Attribute]]

#: Where exp is 0 or infinite, even in float64.
_FAR = _POINTS.abs() >= 1e3

#: Half the distance of float32's numbers just below 1.
HALF_A_DIGIT = torch.finfo(torch.float32).eps / 4

#: The point whose value determines the factor of a scaled SiLU.
_ONE = int((_POINTS == 1).nonzero().item())

#: The values of each known function, in rows.
_EXPECTED: Tensor = torch.stack(
    [_evaluate.call(FUNCTIONS[name].mappings[0], {"x": _POINTS}) for name in _KNOWN]
)


def recognise_activations(graph: Graph) -> int:
    """Replace expressions that compute a known activation; return how many were found."""
    found = 0
    place = _places(graph)
    for root in list(graph.nodes):
        match = _match(graph, root, place)
        if match is None:
            continue
        (*before, last), argument, members = match
        for attributes in before:
            argument = graph.add("eltwise", [argument], before=root, attributes=attributes).output
        substitute(graph, members, "eltwise", [argument], **last)
        place = _places(graph)
        found += 1
    return found


def _places(graph: Graph) -> dict[Node, int]:
    return {node: index for index, node in enumerate(graph.nodes)}


def _match(
    graph: Graph, root: Node, place: dict[Node, int]
) -> tuple[Steps, Value, list[Node]] | None:
    """The functions, the argument and the operators, in order, of what ends in ``root``."""
    if root not in place or not _is_basic(root):
        return None
    members = {root}
    leaves = _leaves(root)
    while leaves and len(members) < MOST_OPERATORS:
        # The others cannot depend on what is made last, which is expanded next.
        last = max(leaves, key=lambda v: -1 if v.producer is None else place.get(v.producer, -1))
        if len(leaves) == 1 and len(members) > 1:
            ordered = sorted(members, key=place.__getitem__)
            steps = _steps(ordered, last)
            if steps is not None:
                return steps, last, ordered
        node = last.producer
        if node is None or not _is_basic(node) or not graph.is_private(last) or last.is_rounded:
            return None
        if not members.issuperset(last.users):
            return None
        members.add(node)
        leaves = (leaves - {last}) | _leaves(node)
    return None


def _is_basic(node: Node) -> bool:
    """Whether each element of the result depends on one element and numbers."""
    numbers = all(value.rank == 0 for value in node.values() if value.constant is not None)
    return node.op in ("eltwise", "binary") and numbers


def _leaves(node: Node) -> set[Value]:
    return {value for value in node.values() if value.constant is None}


def _steps(members: list[Node], argument: Value) -> Steps | None:
    """The functions that compute the same as these operators."""
    results: dict[Value, Tensor] = {argument: _POINTS}
    for node in members:
        pairs = ((value, value.constant) for value in node.values())
        operands = [results[value] if fixed is None else fixed.double() for value, fixed in pairs]
        results[node.output] = _evaluate.elementwise(node, *operands)
    result = results[members[-1].output]
    for name, is_close in zip(_KNOWN, _are_close(result, _EXPECTED), strict=True):
        if is_close:
            return [_step(name)]
    # x * sigmoid(a * x) is silu(a * x) / a, and layers fold the factors into their weights.
    factor = float(torch.logit(result[_ONE]))
    if abs(factor) > LEAST_FACTOR:
        scaled = F.silu(factor * _POINTS) / factor
        if _are_close(result, scaled[None])[0]:
            return [_step("affine", factor), _step("silu"), _step("affine", 1 / factor)]
    return None


def _are_close(result: Tensor, expected: Tensor) -> list[bool]:
    """Whether each row has the result, up to the digits of its constants and to cancellation.

    Far away, where an added small number or a bound near 0 or 1 takes effect, both must be the same
    number in float32, and 0 must be 0.
    """
    close = torch.isclose(result, expected, rtol=1e-6, atol=1e-13).all(1)
    if close.any():
        far = result[_FAR], expected[:, _FAR]
        close &= torch.isclose(*far, rtol=HALF_A_DIGIT, atol=0).all(1)
    rows: list[bool] = close.tolist()
    return rows


def _step(algorithm: str, alpha: float = 0.0) -> dict[str, Attribute]:
    return {"algorithm": algorithm, "alpha": alpha, "beta": NO_SHIFT}
