"""Constants that a plan holds, which the operators in its place read from it.

A plan releases large weights once nobody else holds them.
"""

from __future__ import annotations

import torch
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
