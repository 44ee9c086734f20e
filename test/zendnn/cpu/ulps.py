"""Errors in units in the last place, and floats from the whole range to find them with."""

from __future__ import annotations

import torch
from torch import Tensor

#: Where an approximation may change its method: results, and arguments that they come from.
BANDS = ((-1e39, -5.5), (-5.5, -1.0), (-1.0, 0.0), (0.0, 1e39))


def floats(dtype: torch.dtype, step: int = 997) -> Tensor:
    """Every bfloat16, or every ``step``-th float32: subnormal numbers too, infinities and NaNs."""
    if dtype == torch.bfloat16:
        return torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    bits = torch.arange(0, 2**31, step)
    return torch.cat((bits, bits - 2**31)).to(torch.int32).view(dtype)


def ulps(ours: Tensor, exact: Tensor) -> Tensor:
    """How far ``ours`` is from ``exact``, float64, in the spacing of its type there."""
    info = torch.finfo(ours.dtype)
    _, exponent = torch.frexp(exact.abs().clamp(info.tiny, info.max))
    spacing = torch.ldexp(torch.full_like(exact, info.eps), exponent - 1)
    right = ours.double() == exact.to(ours.dtype).double()  # infinities among them
    return torch.where(right, 0.0, ((ours.double() - exact) / spacing).abs())
