"""Errors in units in the last place, and test values from the whole range of floats."""

from __future__ import annotations

import torch
from torch import Tensor

#: Ranges of arguments between which an approximation may change its method.
BANDS = ((-1e39, -5.5), (-5.5, -1.0), (-1.0, 0.0), (0.0, 1e39))


def floats(dtype: torch.dtype, step: int = 997) -> Tensor:
    """Every bfloat16, or every ``step``-th float32, including subnormals, infinities and NaNs."""
    if dtype == torch.bfloat16:
        return torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    bits = torch.arange(0, 2**31, step)
    return torch.cat((bits, bits - 2**31)).to(torch.int32).view(dtype)


def ulps(ours: Tensor, exact: Tensor) -> Tensor:
    """The distance of ``ours`` from ``exact`` (float64), in units in the last place."""
    info = torch.finfo(ours.dtype)
    _, exponent = torch.frexp(exact.abs().clamp(info.tiny, info.max))
    spacing = torch.ldexp(torch.full_like(exact, info.eps), exponent - 1)
    right = ours.double() == exact.to(ours.dtype).double()  # infinities among them
    return torch.where(right, 0.0, ((ours.double() - exact) / spacing).abs())
