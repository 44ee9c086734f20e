"""Weights as constants: which of them a plan may release, and what tells two of them apart."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.backends.zendnn import _C

#: What a plan releases has at least so many bytes.
LEAST_BYTES: int = _C._least_released_bytes


def is_large(held: object) -> bool:
    """Return whether a constant is a tensor that a plan may release."""
    if not isinstance(held, torch.Tensor) or held.layout is not torch.strided:
        return False
    return held.is_cpu and held.nbytes >= LEAST_BYTES


def place_of(tensor: torch.Tensor) -> tuple[object, ...]:
    """Return what is equal for equal views of one memory."""
    lazy = tensor.is_neg(), tensor.is_conj()
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride(), lazy


def without_gradient(held: Any) -> Any:
    """Return a parameter of the same memory that needs no gradient; anything else as it is."""
    is_parameter = isinstance(held, nn.Parameter)
    return nn.Parameter(held.detach(), requires_grad=False) if is_parameter else held
