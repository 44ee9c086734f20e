"""Tensors of models and of their results: copies, memory, strides, sizes and magnitudes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

Results = tuple[torch.Tensor, ...]
Inputs = Sequence[torch.Tensor]
Weights = Mapping[str, torch.Tensor]
#: For each result: which of the inputs and results has the same memory, and the strides.
Memory = list[tuple[int, tuple[int, ...]]]

#: Largest error, relative to a result's largest number, that counts as rounding.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2}


def copies_of(inputs: Inputs) -> list[torch.Tensor]:
    """Return copies that a model may write to, with the same strides."""
    copies = []
    for x in inputs:
        if overlaps(x):
            copies.append(x)
            continue
        room = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) + 1
        flat = torch.zeros(max(room, 0), dtype=x.dtype) if x.numel() else x
        copy = flat.as_strided(x.shape, x.stride()) if x.numel() else x.clone()
        copies.append(copy.copy_(x))
    return copies


def overlaps(x: torch.Tensor) -> bool:
    """Return whether elements share memory, as those of expanded tensors do."""
    return x.numel() > 0 and 0 in strides_of(x)


def have_same_sizes(some: Inputs, others: Inputs) -> bool:
    """Return whether two lists of tensors have the same shapes."""
    return all(x.shape == y.shape for x, y in zip(some, others, strict=True))


def strides_of(x: torch.Tensor) -> tuple[int, ...]:
    """Return the strides that matter: those of dimensions with several elements."""
    return tuple(stride for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1)


def memory_of(results: Results, others: Inputs) -> Memory:
    """Return the first tensor with each result's memory, and the strides that matter."""
    places = [x.untyped_storage().data_ptr() for x in (*others, *results)]
    return [
        (places.index(place) if x.numel() else -1, strides_of(x))
        for x, place in zip(results, places[len(others) :], strict=True)
    ]


def type_of(x: torch.Tensor) -> str:
    """Return a tensor's dtype and shape as text."""
    return f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)}"


def kind_of(x: torch.Tensor) -> torch.Tensor:
    """Return 0 for finite numbers, 1 for NaN, 2 and 3 for the infinities."""
    return torch.isnan(x) + 2 * torch.isposinf(x) + 3 * torch.isneginf(x)


def scale_of(x: torch.Tensor) -> float:
    """Return the largest finite magnitude; never 0."""
    return largest_of(x.abs()[torch.isfinite(x)]) + 1e-30


def largest_of(x: torch.Tensor) -> float:
    """Return the largest element; 0 of an empty tensor."""
    return float(x.max()) if x.numel() else 0.0


def lower_of(weights: Any, runs: Sequence[Inputs]) -> torch.dtype:
    """Return the dtype that a model computes in: bfloat16 if any tensor is, else float32."""
    every = [*weights, *(x for inputs in runs for x in inputs)]
    return torch.bfloat16 if any(x.dtype == torch.bfloat16 for x in every) else torch.float32


def are_close(ours: torch.Tensor, stock: torch.Tensor, lower: torch.dtype | None = None) -> bool:
    """Return whether two results differ by no more than rounding to ``lower``, or their dtype."""
    lower = lower or lower_of([stock], ())
    if ours.shape != stock.shape or ours.dtype != stock.dtype:
        return False  # stock's own graphs promote where its eager kernels do not
    if not stock.is_floating_point():
        return bool(torch.equal(ours, stock))
    a, b = ours.double(), stock.double()
    if not torch.equal(kind_of(a), kind_of(b)):
        return False
    finite = torch.isfinite(b)
    return largest_of((a - b).abs()[finite]) <= TOLERANCE[lower] * scale_of(b)
