"""Choices between values and numbers in plans."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.backends.zendnn.graph import Value

from ..common import DTYPES, dtypes, property_test
from ..passes.build import Builder
from .check import check, interpret, make_plan, refusal, region_of, tensor, tensors_and_numbers
from .samples import arrangements, lengths


@property_test
@given(data=st.data())
def test_choices(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype = draw(dtypes)
    whole = tuple(draw(st.lists(lengths, min_size=1, max_size=4)))

    def operand(seed: int) -> Tensor:
        sizes = whole[draw(st.integers(0, len(whole))) :]
        shape = [n if draw(st.booleans()) else 1 for n in sizes]
        layout = draw(arrangements) if shape else "contiguous"
        return tensor(*shape, dtype=dtype, layout=layout, seed=seed)

    condition = b.input(operand(0) > 0)
    numbers = draw(st.sampled_from([(), (1,), (2,)]))
    x, y = (None if i in numbers else b.input(operand(i)) for i in (1, 2))
    value = draw(st.sampled_from([0.0, -1.5, -math.inf, 1e-9]))
    check_bits(b, b("where", condition, x, y, value=value))


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.int32, torch.bool], ids=str
)
def test_nonzero_numbers_count_as_true(b: Builder, dtype: torch.dtype) -> None:
    numbers = b.input(torch.tensor([[0, 1, -2, 0, 3]]).to(dtype))
    x = b.input(tensor(7, 5))
    check_bits(b, b("where", b("nonzero", numbers), None, x, value=-1.0))


def check_bits(b: Builder, out: Value) -> None:
    """Check a plan that only selects values: its bits are exact."""
    (want,) = interpret(region_of(b, out), b.examples, torch.float64, torch.float32)
    plan = make_plan(region_of(b, out))
    tensors, _ = tensors_and_numbers(b.examples)
    assert plan.takes(tensors, []), refusal(plan)
    for _ in range(2):
        (got,) = plan.run(tensors, [])
        assert torch.equal(got, want.to(got.dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_choices_keep_nan_and_overwrite_nothing_that_is_read(
    b: Builder, dtype: torch.dtype
) -> None:
    condition, x = b.input(torch.rand(3, 70) < 0.5), b.input(tensor(3, 70, dtype=dtype))
    b.examples[1][:, ::7] = math.nan
    chosen = b("where", condition, x, None, value=math.inf)
    region = region_of(b, chosen, b("where", condition, None, x, value=-math.inf))
    got = make_plan(region).run(b.examples, [])
    want = [
        torch.where(b.examples[0], b.examples[1], math.inf),
        torch.where(b.examples[0], -math.inf, b.examples[1]),
    ]
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def test_several_numbers_to_choose(b: Builder) -> None:
    """Each number has its own memory."""
    x, condition = b.input(tensor(4, 5)), b.input(torch.rand(4, 5) < 0.5)
    chosen = [b("where", condition, None, x, value=value) for value in (1e-8, 2e-8, -1e-8)]
    out = b.binary("add", b.binary("add", chosen[0], chosen[1]), chosen[2])
    check(b, b.eltwise("affine", out, 1e6, 0.0))


REFUSED_CHOICES: dict[str, Callable[[Builder], Value]] = {
    "a condition of float": lambda b: b(
        "where", b.input(tensor(2)), b.input(tensor(2)), None, value=0.0
    ),
    "two types": lambda b: b(
        "where",
        b.input(torch.ones(2, dtype=torch.bool)),
        b.input(tensor(2)),
        b.input(tensor(2, dtype=torch.bfloat16)),
    ),
    "sizes that do not broadcast": lambda b: b(
        "where", b.input(torch.ones(2, dtype=torch.bool)), b.input(tensor(3)), None, value=0.0
    ),
    "an empty tensor": lambda b: b(
        "where", b.input(torch.ones(1, dtype=torch.bool)), b.input(tensor(0)), None, value=0.0
    ),
    "a number that bfloat16 does not hold": lambda b: b(
        "where",
        b.input(torch.ones(2, dtype=torch.bool)),
        b.input(tensor(2, dtype=torch.bfloat16)),
        None,
        value=3.4e38,
    ),
    "heads of several ranks": lambda b: b(
        "attention",
        *(b.input(tensor(*shape)) for shape in ((1, 2, 3, 8), (2, 3, 8), (2, 3, 8))),
        None,
        scale=0.5,
    ),
}


@pytest.mark.parametrize("why", REFUSED_CHOICES)
def test_choices_that_a_plan_refuses(b: Builder, why: str) -> None:
    plan = make_plan(region_of(b, REFUSED_CHOICES[why](b)))
    assert not plan.takes(b.examples, [])
    assert refusal(plan)


def test_one_number_of_two_types(b: Builder) -> None:
    where, x = b.input(torch.tensor([True, False, True])), b.input(tensor(3))
    y = b.input(tensor(3, dtype=torch.bfloat16))
    region = region_of(b, *(b("where", where, z, None, value=2.5) for z in (x, y)))
    examples = dict(zip(b.graph.inputs, b.examples, strict=True))
    for result in make_plan(region).run([examples[value] for value in region.inputs], []):
        assert result[1] == 2.5
