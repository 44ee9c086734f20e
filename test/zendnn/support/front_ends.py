"""The front ends that make plans: each takes a model and its inputs, and returns a callable."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.backends.zendnn import export, optimize

from .frozen import optimised


def frozen(model: nn.Module, *inputs: Tensor) -> torch.jit.ScriptModule:
    """Trace a model once, since a second run would write to its buffers again."""
    with torch.no_grad():
        return optimised(torch.jit.trace(model.eval(), inputs, check_trace=False))


def compiled(
    model: nn.Module, *inputs: Tensor, dynamic: bool | None = None, rest: str | None = None
) -> Any:
    """Return what compiles a model when it is called."""
    options = {"rest": rest} if rest else None
    return torch.compile(model, backend="zendnn", dynamic=dynamic, options=options)


def optimized(model: nn.Module, *inputs: Tensor) -> Any:
    return optimize(model, inputs)


def exported(model: nn.Module, *inputs: Tensor) -> nn.Module:
    return export(model, inputs).module()


FRONT_ENDS: dict[str, Callable[..., Any]] = {
    "frozen": frozen,
    "compiled": compiled,
    "dynamic": partial(compiled, dynamic=True),
    "optimized": optimized,
    "exported": exported,
}

#: One front end for each kind of graph: each change tests these, and each night all.
OFTEN = ("frozen", "dynamic")
