"""Comparisons, arithmetic of integers, and tensors that are made from numbers, in plans."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from test.drawing import property_test

from ..support.arrangements import ARRANGED, arrangements, check_exact, small
from ..support.graphs import Builder
from ..support.interpreter import INTEGERS, MADE
from ..support.plans import (
    explained,
    refusal,
    tensor,
)
from ..support.samples import plan_of

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
LOGIC = ("and", "or", "xor")
MOST = 2**63 - 1


def drawn_pair(data: st.DataObject, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Two tensors of shapes that broadcast."""
    draw = data.draw
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 5, 17, 70]), max_size=4)))
    cut = draw(st.integers(0, len(shape)))
    other = tuple(1 if draw(st.booleans()) else size for size in shape[cut:])
    pair = [
        ARRANGED[draw(arrangements)](small(sizes or (1,), dtype, seed)).reshape(sizes)
        for seed, sizes in enumerate((shape, other))
    ]
    a, c = pair[::-1] if draw(st.booleans()) else pair
    return a, c


@property_test
@given(data=st.data())
def test_comparisons(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    a, c = drawn_pair(data, draw(st.sampled_from(list(MADE.values()))))
    if a.is_floating_point() and draw(st.booleans()):
        a = torch.where(a > 1, torch.nan, a)
    x, y = b.input(a), b.input(c)
    check_exact(b, b("compare", x, y, algorithm=draw(st.sampled_from(COMPARISONS))))


@property_test
@given(data=st.data())
def test_arithmetic_and_logic(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype = draw(st.sampled_from([torch.int64, torch.bool]))
    a, c = drawn_pair(data, dtype)
    if dtype == torch.int64 and draw(st.booleans()):
        a = a * (MOST // 3)  # sums and products wrap around
    names = LOGIC if dtype == torch.bool else list(INTEGERS)
    x, y = b.input(a), b.input(c)
    check_exact(b, b("integer", x, y, algorithm=draw(st.sampled_from(names))))


@property_test
@given(data=st.data())
def test_sums_of_integers(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype = draw(st.sampled_from([torch.int64, torch.bool]))
    shape = draw(st.lists(st.sampled_from([1, 2, 5, 70]), min_size=1, max_size=4))
    x = ARRANGED[draw(arrangements)](small(tuple(shape), dtype))
    if dtype == torch.int64 and draw(st.booleans()):
        x = x * (MOST // 3)  # sums wrap around
    dims = tuple(draw(st.sets(st.integers(0, len(shape) - 1))))
    check_exact(b, b("sum", b.input(x), dims=dims, keep=draw(st.booleans()), dtype="int64"))


@property_test
@given(data=st.data())
def test_running_sums(data: st.DataObject) -> None:
    """Those of float32 are summed up in float64, as torch's are: many terms, and large ones."""
    b, draw = Builder(), data.draw
    dtype = draw(st.sampled_from([torch.int64, torch.bool, torch.float32]))
    shape = draw(st.lists(st.sampled_from([1, 2, 5, 300]), min_size=1, max_size=3))
    x = ARRANGED[draw(arrangements)](small(tuple(shape), dtype))
    if dtype == torch.float32:
        x = x * draw(st.sampled_from([1.0, 1e7, 0.1]))
    dim = draw(st.integers(-len(shape), len(shape) - 1))
    result_dtype = "float32" if dtype == torch.float32 else "int64"
    check_exact(b, b("cumsum", b.input(x), dim=dim, dtype=result_dtype))


@property_test
@given(data=st.data())
def test_ranges(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    start, step = draw(st.integers(-50, 50)), draw(st.sampled_from([-7, -1, 1, 2, 9]))
    end = start + step * draw(st.integers(1, 40)) - (step > 1) + (step < -1)
    numbers = [b.input(n) if draw(st.booleans()) else n for n in (start, end, step)]
    b.input(tensor(2))  # a region has a tensor
    check_exact(b, b("arange", *numbers))


@pytest.mark.parametrize("dtype", MADE)
@pytest.mark.parametrize("shape", [(), (1,), (3, 1, 40)])
def test_filled_tensors(b: Builder, dtype: str, shape: tuple[int, ...]) -> None:
    x = b.input(small((3, 2, 40), MADE[dtype]))
    result = b("full", *shape, value=1.0, dtype=dtype)
    check_exact(b, result, b("compare", x, result, algorithm="lt"))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool, torch.float32])
def test_conversions_to_int64(b: Builder, dtype: torch.dtype) -> None:
    check_exact(b, b("to", b.input(tensor(3, 17).mul_(3).to(dtype)), dtype="int64"))


def test_positions_are_bound_at_each_call() -> None:
    """The mask of a decoding step, for a window that moves: built once."""
    plan = plan_of(
        "%keys = input tensor",
        "%n = input number",
        "%end = number_add(%n, 6)",
        "%places = arange(%n, %end, 1)",
        "%now = scalar(%n)",
        "%y = compare(%places, %keys) algorithm=le",
        "%z = integer(%places, %now) algorithm=sub",
        "return %y, %z",
    )
    keys = torch.tensor([3, 9, 4, 100, 0, 7])
    for n in range(20):
        seen, since = plan.run([keys], [n])
        assert torch.equal(seen, torch.arange(n, n + 6) <= keys)
        assert torch.equal(since, torch.arange(6))
    assert len(explained(plan)["built"]) == 1


#: What plans refuse, and words of the reason.
REFUSED = {
    "%y = compare(%x, %i) algorithm=eq": "different dtypes",
    "%y = integer(%x, %x) algorithm=add": "arithmetic of integers of Float",
    "%1 = compare(%x, %x) algorithm=eq\n%y = integer(%1, %1) algorithm=add": "of Bool",
    "%y = cumsum(%i) dim=0 dtype=float32": "running sum of Long",
    "%y = sum(%x) dims=0 dtype=int64": "sum of Float as int64",
    "%y = arange(0, 0, 1)": "empty",
    "%y = arange(0, 5, -1)": "range",
    "%y = arange(0, 5, 0)": "range",
    f"%y = arange({-MOST}, {MOST}, 1)": "64 bits",
    f"%y = arange(0, {-MOST - 1}, -1)": "range",
    f"%y = full({MOST}, {MOST}) value=0.0 dtype=int64": "more elements",
    "%y = full(2, 3) value=0.0 dtype=int32": "int32",
}


@pytest.mark.parametrize("lines", REFUSED)
def test_what_plans_do_not_compute_is_refused(lines: str) -> None:
    plan = plan_of("%x = input tensor", "%i = input tensor", lines, "return %y")
    assert not plan.takes([tensor(2, 6), torch.ones(2, 6, dtype=torch.int64)], [])
    assert REFUSED[lines] in refusal(plan)
