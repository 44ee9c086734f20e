"""Modules of a single plan."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.backends.zendnn.frontends import torchscript


def optimised(net: nn.Module, *examples: Tensor) -> torch.jit.ScriptModule:
    with torch.no_grad():
        module = torch.jit.freeze(torch.jit.trace(net.eval(), examples))
        result: torch.jit.ScriptModule = torch.jit.optimize_for_inference(module)
    return result


def the_plan(module: torch.jit.ScriptModule) -> Any:
    """The only plan of a module."""
    (plan,) = torchscript.plans(module._c)
    return plan
