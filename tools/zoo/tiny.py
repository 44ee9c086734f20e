"""What every source of architectures makes: a tiny model with inputs, or the reason why not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Inputs = dict[str, Any]


class NotBuilt(Exception):
    """An architecture of which there is no tiny model; its text is the reason."""


@dataclass(frozen=True)
class Tiny:
    """A tiny model."""

    name: str
    model: nn.Module
    inputs: Inputs
    #: Inputs of other sizes; empty when the model does not take any.
    second: Inputs


def reason(error: BaseException) -> str:
    """Return in one line why a model cannot be built."""
    text = " ".join(str(error).split())
    if package := re.search(r"requires the (\S+) library", text):
        return f"it needs the package {package[1]}"
    if "huggingface.co" in text:
        return "it downloads a part"
    return text if isinstance(error, NotBuilt) else f"{type(error).__name__}: {text}"[:160]


def stir(model: nn.Module) -> None:
    """Change weights and statistics that are the same everywhere: they would hide errors."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.track_running_stats:
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    for weight in model.parameters():
        if weight.is_floating_point() and weight.numel() > 1 and weight.std() == 0:
            weight.data.add_(torch.randn_like(weight), alpha=0.1)
