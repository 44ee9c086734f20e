"""Indices of all kinds."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

from .arrangements import ARRANGED, arrangements

KINDS = st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.int32, torch.bool])


SIZES = st.sampled_from([1, 2, 5, 17, 70])


def places(
    shape: tuple[int, ...], limit: int, dtype: torch.dtype, seed: int, least: int = 0
) -> Tensor:
    """Indices from `least` on."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(least, limit, shape, generator=generator, dtype=dtype)


@st.composite
def choices_along(draw: st.DrawFn) -> tuple[tuple[int, ...], int, Tensor]:
    """The shape of a tensor, a dimension, and indices along it."""
    shape = draw(st.lists(SIZES, min_size=1, max_size=3))
    dim = draw(st.integers(-len(shape), len(shape) - 1))
    chosen = [draw(st.integers(1, size)) for size in shape]
    chosen[dim] = draw(SIZES)
    ids = places(tuple(chosen), shape[dim], torch.int64, 3)
    return tuple(shape), dim, ARRANGED[draw(arrangements)](ids)
