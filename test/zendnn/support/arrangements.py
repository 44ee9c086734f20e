"""Operands in all arrangements of memory, compared bit by bit."""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.backends.zendnn.ir.node import Value

from .graphs import Builder
from .interpreter import run_region
from .plans import (
    ARRANGEMENTS,
    make_plan,
    refusal,
    region_of,
    tensor,
    tensors_and_numbers,
)

#: Ways to lie in memory, also of what holds no NaN.
ARRANGED: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "strided": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "repeated": ARRANGEMENTS["repeated"],
    "repeated_last": ARRANGEMENTS["repeated_last"],
}


arrangements = st.sampled_from(sorted(ARRANGED))


def small(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Numbers of which many are equal."""
    return tensor(*shape, seed=seed).mul_(2).round_().to(dtype)


def check_exact(b: Builder, *outputs: Value) -> torch.classes.zendnn.Plan:
    """Check that a plan computes the same bits as the interpreter."""
    region = region_of(b, *outputs)
    plan = make_plan(region)
    examples = dict(zip(b.graph.inputs, b.examples, strict=True))
    read = [examples[value] for value in region.inputs]
    tensors, numbers = tensors_and_numbers(read)
    assert plan.takes(tensors, numbers), refusal(plan)
    for got, want in zip(plan.run(tensors, numbers), run_region(region, read), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        assert torch.equal(got, want)
    for got, want in zip(plan.interpret(tensors, numbers), run_region(region, read), strict=True):
        assert torch.equal(got, want)
    return plan
