"""Modules that call one function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx, nn


class Called(nn.Module):
    """Calls a function, which may hold tensors."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def functional(
    module: nn.Module, inputs: Sequence[Any], dynamic_shapes: Any = None
) -> fx.GraphModule:
    """A functional graph of a module."""
    with torch.no_grad():
        # Not strict, it would run guards of its own on inputs that it does not read.
        program = torch.export.export(
            module, tuple(inputs), dynamic_shapes=dynamic_shapes, strict=dynamic_shapes is None
        )
    module = program.run_decompositions({}).module(check_guards=False)
    assert isinstance(module, fx.GraphModule)
    return module
