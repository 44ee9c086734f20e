"""Evaluates operators on constants, by the aten operators that their rows name."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.backends.zendnn.ir.node import Node
from torch.backends.zendnn.table.functions import COMBINATIONS, FUNCTIONS
from torch.backends.zendnn.table.notation import Mapping

NUMBER: dict[str, Callable[[int, int], int]] = {
    "number_remainder": operator.mod,
    **{f"number_{name}": getattr(operator, name) for name in ("add", "sub", "mul", "floordiv")},
}


def call(mapping: Mapping, values: dict[str, Any]) -> Any:
    """Call the aten operator of a mapping; ``values`` are operands and attributes by name."""
    name, _, overload = mapping.name.removeprefix("aten::").partition(".")
    function = getattr(getattr(torch.ops.aten, name), overload or "default")
    arguments = {
        argument.name: values[argument.target] if argument.is_named else argument.literal
        for argument in mapping.arguments
        if argument.is_stated
    }
    return function(**arguments)


def elementwise(node: Node, *operands: Tensor) -> Tensor:
    """Evaluate an ``eltwise`` or a ``binary``."""
    algorithm, alpha, beta = (node.get(name) for name in ("algorithm", "alpha", "beta"))
    if algorithm == "affine":
        return operands[0] * alpha + beta
    function = (COMBINATIONS if node.op == "binary" else FUNCTIONS)[algorithm]
    arguments = dict(zip(function.operands, operands, strict=True))
    result: Tensor = call(function.mappings[0], arguments | {"alpha": alpha, "beta": beta})
    return torch.empty_like(operands[0]).copy_(result) if node.get("in_place") else result


def _split(node: Node, x: Tensor) -> tuple[Tensor, ...]:
    if node.get("chunks"):
        return x.chunk(node.get("chunks"), node.get("dim"))
    size, *more = node.get("sizes")  # one stands for all, and the last may be smaller
    return torch.split(x, [size, *more] if more else size, node.get("dim"))


#: Functions of a node and its operands, for operators without an aten equivalent.
_SPECIAL: dict[str, Callable[..., Any]] = {
    "split": _split,
    "eltwise": elementwise,
    "binary": elementwise,
    "to": lambda node, x: x.to(getattr(torch, node.get("dtype"))),
    "power": lambda node, n: torch.tensor(float(n)) ** node.get("exponent"),
    "embedding": lambda node, table, ids: torch.embedding(table, ids.long()),
}


def can_evaluate(node: Node) -> bool:
    """Whether ``evaluate`` knows the operator."""
    return node.op in _SPECIAL or (node.row.result.kind == "tensor" and bool(_mappings(node)))


def evaluate(node: Node, *operands: Tensor | int | None) -> Any:
    """Return the result, or the tuple of results, of a node."""
    if node.op in _SPECIAL:
        return _SPECIAL[node.op](node, *operands)
    arguments = {name: node.get(name) for name in node.row.attributes}
    for position, operand in enumerate(node.row.operands):
        rest = operands[position:]
        arguments[operand.name] = list(rest) if operand.many else rest[0] if rest else None
    return call(_mappings(node)[0], arguments)


def _mappings(node: Node) -> list[Mapping]:
    """The aten operators that compute what a node with these attributes does."""
    found = []
    for mapping in node.row.mappings:
        named = {argument.target for argument in mapping.arguments}
        stated = {key: spec.default for key, spec in node.row.attributes.items()} | mapping.fixed
        if all(node.get(key) == stated[key] for key in stated.keys() - named):
            found.append(mapping)
    return found
