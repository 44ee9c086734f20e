"""Compare results with stock's; float64 decides where the two differ."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from .calls import Call, Outcome
from .front_ends import stock_kernels
from .source import Code
from .tensors import (
    TOLERANCE,
    Inputs,
    Results,
    Weights,
    are_close,
    copies_of,
    kind_of,
    largest_of,
    overlaps,
    scale_of,
    type_of,
)

#: Relative perturbation of each result that tests a model's numerical stability.
NUDGE = {torch.float32: 4e-7, torch.bfloat16: 4e-3}

TRIALS = 6


def compare(
    code: Code, call: Call, outcome: Outcome, got: Results, lower: torch.dtype
) -> tuple[str, str] | None:
    """Compare results with an outcome of stock's eager mode."""
    weights, inputs, expected = call.weights, call.step.inputs, outcome.results
    names = [f"result {i}" for i in range(len(got) - len(inputs))]
    names += [f"input {i} afterwards" for i in range(len(inputs))]
    suspects = []
    for number, (ours, stock) in enumerate(zip(got, expected, strict=True)):
        if ours.shape != stock.shape or ours.dtype != stock.dtype:
            return "shape", f"{names[number]} is {type_of(ours)}, of stock {type_of(stock)}"
        if not are_close(ours, stock, lower):
            suspects.append(number)
    if not suspects:
        return None
    if code.has_causal_attention and not all(x.isfinite().all() for x in inputs):
        return "unstable", "torch's own kernels treat NaN in masked keys differently"
    try:
        exact = _run(code, weights, inputs, torch.float64)
    except Exception:
        return "unstable", "float64 takes another branch, which raises"
    for number in suspects:
        ours, stock, right = (x[number].double() for x in (got, expected, exact))
        if exact[number].shape != ours.shape:
            return None
        nonfinite = kind_of(ours) != kind_of(stock)
        rounded = kind_of(right.to(lower).double())
        lost = nonfinite & (kind_of(stock) == rounded) & (not code.has_causal_attention)
        finite = torch.isfinite(ours) & torch.isfinite(stock) & torch.isfinite(right)
        scale = scale_of(right)
        mine = largest_of((ours - right).abs()[finite])
        theirs = largest_of((stock - right).abs()[finite])
        limit = max(TOLERANCE[lower] * scale, 4 * theirs)
        if not lost.any() and mine <= limit:
            continue
        if not _stable(code, weights, inputs, number, expected[number], exact[number], lower):
            return "unstable", names[number]
        if lost.any():
            place = tuple(int(i) for i in lost.nonzero()[0])
            return "nonfinite", (
                f"{names[number]} at {place} is {ours[place].item()}, of stock "
                f"{stock[place].item()}; {int(lost.sum())} of {lost.numel()} so"
            )
        return "differs", (
            f"{names[number]} is off by {mine:.2g}, stock by {theirs:.2g}, of at most {scale:.2g}"
        )
    return None


def _stable(
    code: Code,
    weights: Weights,
    inputs: Inputs,
    number: int,
    stock: torch.Tensor,
    exact: torch.Tensor,
    lower: torch.dtype,
) -> bool:
    """Return whether no result moves when rounding moves every input, weight and intermediate.

    In bfloat16, one trial also flushes subnormals to 0, as the instruction VDPBF16PS does: it turns
    their product with infinity into NaN.
    """
    for dtype, base in ((lower, stock), (torch.float64, exact)):
        moves = [_nudge(lower, seed) for seed in range(TRIALS)]
        for move in [_in_place(_flushed), *moves] if lower == torch.bfloat16 else moves:
            try:
                moved = _run(code, weights, inputs, dtype, move)[number].double()
            except Exception:  # in a branch that rounding takes
                return False
            base = base.double()
            if not torch.equal(kind_of(moved), kind_of(base)):
                return False
            finite = torch.isfinite(base)
            if largest_of((moved - base).abs()[finite]) > TOLERANCE[lower] * scale_of(base):
                return False
    return True


def branches_by_rounding(code: Code, call: Call, lower: torch.dtype) -> bool:
    """Return whether rounding decides if stock raises, or which dtypes and shapes it returns.

    A branch, or how often a loop runs, may depend on it.
    """

    def kinds(nudge: Callable[[torch.Tensor], torch.Tensor]) -> list[str] | None:
        try:
            results = _run(code, call.weights, call.step.inputs, lower, nudge)
        except Exception:
            return None
        return [type_of(x) for x in results]

    expected = call.expected
    kind = None if isinstance(expected, Exception) else [type_of(x) for x in expected.results]
    return any(kinds(_nudge(lower, seed)) != kind for seed in range(TRIALS))


def _nudge(lower: torch.dtype, seed: int) -> Callable[[torch.Tensor], torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def moved(x: torch.Tensor) -> torch.Tensor:
        sign = torch.randint(-1, 2, x.shape, generator=generator).to(torch.float64)
        return (x.double() * (1 + NUDGE[lower] * sign)).to(x.dtype)

    return _in_place(moved)


def _flushed(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.abs() < torch.finfo(torch.bfloat16).tiny, x * 0, x)


def _in_place(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return what changes a tensor in its own memory, which others may read and write."""

    def changed(x: torch.Tensor) -> torch.Tensor:
        if not x.is_floating_point():
            return x
        return change(x) if overlaps(x) else x.copy_(change(x))

    return changed


def _run(
    code: Code,
    weights: Weights,
    inputs: Inputs,
    dtype: torch.dtype,
    nudge: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> Results:
    def prepared(x: torch.Tensor) -> torch.Tensor:
        x = x.to(dtype) if x.is_floating_point() else x
        return nudge(x) if nudge else x

    classes = code.classes(dtype, nudge)
    # The reference follows attention's definition: torch's fused kernel returns 0 for NaN scores.
    exact = sdpa_kernel(SDPBackend.MATH) if dtype == torch.float64 else nullcontext()
    with stock_kernels(), torch.no_grad(), exact:
        module = classes["Nudged" if nudge else "Model"](
            {name: prepared(x.clone()) for name, x in weights.items()}
        ).eval()
        arguments = [prepared(x) for x in copies_of(inputs)]
        return (*module(*arguments), *arguments)
