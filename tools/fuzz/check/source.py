"""A model's source and weights."""

from __future__ import annotations

import ast
import linecache
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Dict, Tuple  # noqa: UP035 - what TorchScript reads

import torch
import torch.nn.functional as F

from .tensors import Inputs, Weights, copies_of


def part_written(x: torch.Tensor, dim: int, size: int) -> torch.Tensor:
    """Read a tensor, write a part of it, and read it again."""
    y = x.clone()
    before = torch.tanh(y)
    part = y.narrow(dim, 0, size)
    part.mul_(0.5)
    part.add_(before.narrow(dim, 0, size))
    return before * torch.sigmoid(y)


def turned_written(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Write a tensor through views of views."""
    y = x.clone()
    turned = y.transpose(dim, 0)
    turned.relu_()
    turned.select(0, 0).add_(1.0)
    return y.unsqueeze(0).sub_(x).squeeze(0) + y


class Code:
    """A model's source: the classes Model and Nudged, with the dtype left open as FLOAT."""

    def __init__(self, text: str) -> None:
        self.text = text

    @property
    def has_causal_attention(self) -> bool:
        """Whether NaN in masked keys may reach a query.

        A kernel that works in blocks multiplies masked keys by a weight of 0, which keeps NaN.
        torch's blocks differ from ours, and its other kernels have none. Later operators may turn
        that NaN into numbers.
        """
        return ", None, 0.0, True)" in self.text

    def classes(
        self, dtype: torch.dtype, nudge: Callable[[torch.Tensor], torch.Tensor] | None = None
    ) -> dict[str, Any]:
        """Execute the source with ``nudge``; return its namespace."""
        text = self.text.replace("FLOAT", str(dtype))
        name = f"<model {hash(text)}>"
        # torch.jit.script reads the source again, by file and line.
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        names = _names() | {"nudge": nudge}
        if dtype == torch.float64:
            names["F"] = SimpleNamespace(**vars(F) | {"gelu": _exact_gelu})
        exec(compile(text, name, "exec"), names)
        return names

    def errors(self, dtype: torch.dtype, weights: Weights, inputs: Inputs) -> list[Exception]:
        """Return what each statement of the model raises in eager mode.

        Statements that read what others would have made are left out.
        """
        tree = ast.parse(self.text.replace("FLOAT", str(dtype)))
        model = next(node for node in tree.body if isinstance(node, ast.ClassDef))
        forward = next(x for x in model.body if getattr(x, "name", "") == "forward")
        assert isinstance(forward, ast.FunctionDef)
        keep = ast.parse("errors.append(error)").body
        handler = ast.ExceptHandler(ast.Name("Exception", ast.Load()), "error", keep)
        forward.body = [ast.Try([line], [handler], [], []) for line in forward.body]
        errors: list[Exception] = []
        names = _names() | {"errors": errors}
        exec(compile(ast.fix_missing_locations(tree), "<tried>", "exec"), names)
        names["Model"](_cloned(weights)).eval()(*copies_of(inputs))
        return [error for error in errors if not isinstance(error, NameError)]


def _names() -> dict[str, Any]:
    """Return what the source of a model may name."""
    names = {"torch": torch, "F": F, "Dict": Dict, "Tuple": Tuple, "__name__": "fuzzed"}  # noqa: UP006
    return names | {"part_written": part_written, "turned_written": turned_written}


def _exact_gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """Return GELU of large negative numbers, too, where torch's 1 + erf and 1 + tanh are 0."""
    if approximate == "tanh":
        return x * torch.sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3))
    return x * torch.special.erfc(-x / math.sqrt(2)) / 2


def model_of(code: Code, weights: Weights, lower: torch.dtype) -> torch.nn.Module:
    """Return a model whose weights may be written."""
    result: torch.nn.Module = code.classes(lower)["Model"](_cloned(weights))
    return result.eval()


def _cloned(weights: Weights) -> dict[str, torch.Tensor]:
    """Return copies of weights, since a model may write its own."""
    return {name: x.clone() for name, x in weights.items()}


def read_weights(module: torch.nn.Module) -> Weights:
    """Return copies of a model's weights."""
    return _cloned(dict(module.named_buffers()))


def write_weights(module: torch.nn.Module, weights: Weights) -> None:
    """Give a model these weights, in place; others stay."""
    for name, x in module.named_buffers():
        if name in weights:
            x.copy_(weights[name])


def turned(weights: Weights) -> dict[str, torch.Tensor]:
    """Return other weights of the same distributions; integers stay valid indices."""
    return {
        name: x.flip(tuple(range(x.dim()))) if x.is_floating_point() else x
        for name, x in weights.items()
    }
