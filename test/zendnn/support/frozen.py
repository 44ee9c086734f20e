"""Frozen and optimised modules, and checks of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.backends.zendnn.frontends import torchscript

from ..common import stock


def settled(norm: nn.Module) -> nn.Module:
    """The normalisation layer with non-trivial statistics and factors."""
    for i, name in enumerate(("running_mean", "weight", "bias")):
        getattr(norm, name).data.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(i))
    return norm


def traced(net: nn.Module, example: Tensor) -> torch.jit.ScriptModule:
    module: torch.jit.ScriptModule = torch.jit.trace(net.eval(), example)
    return module


def scripted(net: nn.Module, example: Tensor) -> torch.jit.ScriptModule:
    module: torch.jit.ScriptModule = torch.jit.script(net.eval())
    return module


def optimised(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    result: torch.jit.ScriptModule = torch.jit.optimize_for_inference(torch.jit.freeze(module))
    return result


def the_plan(module: torch.jit.ScriptModule) -> Any:
    """The only plan of a module."""
    (plan,) = torchscript.plans(module._c)
    return plan


def assert_right(ours: Tensor, net: nn.Module, x: Tensor) -> None:
    """Asserts that ``ours`` is stock's result for ``x``, within 1e-5 of its largest value."""
    with stock(), torch.no_grad():
        want = net(x)
    assert (ours.dtype, ours.shape, ours.device) == (want.dtype, want.shape, want.device)
    assert ours.layout == torch.strided
    if want.numel():
        assert (ours - want).abs().max() <= 1e-5 * want.abs().max()
