"""How passes evaluate the operators of constants, with torch."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.backends.zendnn.graph import Node

#: Eltwise algorithms, of (x, alpha, beta).
ELTWISE: dict[str, Callable[[Tensor, float, float], Tensor]] = {
    "relu": lambda x, a, b: F.relu(x),
    "leaky_relu": lambda x, a, b: F.leaky_relu(x, a),
    "clip": lambda x, a, b: x.clamp(a, b),
    "sigmoid": lambda x, a, b: x.sigmoid(),
    "tanh": lambda x, a, b: x.tanh(),
    "gelu": lambda x, a, b: F.gelu(x),
    "gelu_tanh": lambda x, a, b: F.gelu(x, approximate="tanh"),
    "silu": lambda x, a, b: F.silu(x),
    "hardswish": lambda x, a, b: F.hardswish(x),
    "hardsigmoid": lambda x, a, b: F.hardsigmoid(x),
    "elu": lambda x, a, b: F.elu(x, a),
    "mish": lambda x, a, b: F.mish(x),
    "exp": lambda x, a, b: x.exp(),
    "abs": lambda x, a, b: x.abs(),
    "sqrt": lambda x, a, b: x.sqrt(),
    "square": lambda x, a, b: x.square(),
    "log": lambda x, a, b: x.log(),
    "linear": lambda x, a, b: x * a + b,
    "round": lambda x, a, b: x.round(),
    "erf": lambda x, a, b: x.erf(),
    "rsqrt": lambda x, a, b: x.rsqrt(),
}

BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "max": torch.maximum,
    "min": torch.minimum,
}

NUMBER: dict[str, Callable[[int, int], int]] = {
    "number_add": operator.add,
    "number_sub": operator.sub,
    "number_mul": operator.mul,
    "number_floordiv": operator.floordiv,
    "number_remainder": operator.mod,
}

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def eltwise(node: Node, x: Tensor) -> Tensor:
    """Evaluate an eltwise operator."""
    attributes: dict[str, Any] = dict(node.attributes)
    function = ELTWISE[attributes["algorithm"]]
    return function(x, attributes.get("alpha", 0.0), attributes.get("beta", 0.0))


def binary(node: Node, a: Tensor, b: Tensor) -> Tensor:
    """Evaluate a binary operator that has no post-ops."""
    return BINARY[str(node.attributes["algorithm"])](a, b)


def _split(node: Node, x: Tensor) -> tuple[Tensor, ...]:
    attributes: dict[str, Any] = dict(node.attributes)
    if "sizes" in attributes:
        size, *more = attributes["sizes"]  # one stands for all, and the last may be smaller
        return torch.split(x, [size, *more] if more else size, attributes["dim"])
    return x.chunk(attributes["chunks"], attributes["dim"])


#: Operators on constants, of the node and its operands; all but split make one result.
OPERATORS: dict[str, Callable[..., Any]] = {
    "view": lambda node, x, *sizes: x.reshape(sizes),
    "flatten": lambda node, x, start, end: x.flatten(start, end),
    "unflatten": lambda node, x, dim, *sizes: x.unflatten(dim, sizes),
    "transpose": lambda node, x, a, b: x.transpose(a, b),
    "permute": lambda node, x, *dims: x.permute(dims),
    "unsqueeze": lambda node, x, dim: x.unsqueeze(dim),
    "squeeze": lambda node, x, dim: x.squeeze(dim),
    "expand": lambda node, x, *sizes: x.expand(sizes),
    "select": lambda node, x, dim, index: x.select(dim, index),
    "slice": lambda node, x, dim, start, end, step: torch.ops.aten.slice(
        x, dim, start, end, step or 1
    ),
    "contiguous": lambda node, x: x,
    "split": _split,
    "eltwise": eltwise,
    "binary": binary,
    "to": lambda node, x: x.to(DTYPES[str(node.attributes["dtype"])]),
    "cat": lambda node, *parts: torch.cat(parts, int(node.attributes["dim"])),
    "stack": lambda node, *parts: torch.stack(parts, int(node.attributes["dim"])),
    "pad": lambda node, x, *pads: F.pad(x, pads, value=float(node.attributes["value"])),
    "power": lambda node, n: torch.tensor(float(n)) ** node.attributes["exponent"],
    "roll": lambda node, x: x.roll(node.attributes["shifts"], node.attributes["dims"]),
    "embedding": lambda node, table, ids: F.embedding(ids.long(), table),
}
