"""Elements that indices choose, the largest ones, and sums of powers, in plans."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.backends.zendnn.ir.node import Operand

from test.drawing import property_test

from ..common import DTYPES
from ..support.arrangements import ARRANGED, arrangements, check_exact, small
from ..support.graphs import Builder
from ..support.indices import KINDS, SIZES, choices_along, places
from ..support.plans import check, make_plan, refusal, region_of, tensor
from ..support.samples import plan_of

INDICES = st.sampled_from([torch.int64, torch.int32])


@property_test
@given(data=st.data())
def test_elements_that_indices_choose(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    shape = tuple(draw(st.lists(SIZES, min_size=1, max_size=4)))
    x = ARRANGED[draw(arrangements)](small(shape, draw(KINDS)))
    first = draw(st.integers(0, len(shape) - 1))
    count = draw(st.integers(1, len(shape) - first))
    whole = draw(st.lists(SIZES, max_size=2))
    operands: list[Operand] = [None] * first
    for at in range(count):
        own = tuple(1 if draw(st.booleans()) else size for size in whole)
        limit = shape[first + at]
        drawn = places(own, limit, draw(INDICES), at, -limit)
        operands.append(b.input(ARRANGED[draw(arrangements)](drawn) if own else drawn))
    check_exact(b, b("index", b.input(x), *operands))


@property_test
@given(data=st.data())
def test_elements_along_a_dimension(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    shape, dim, ids = draw(choices_along())
    x = ARRANGED[draw(arrangements)](small(shape, draw(KINDS)))
    check_exact(b, b("take_along", b.input(x), b.input(ids), dim=dim))


@property_test
@given(data=st.data())
def test_the_largest_elements(data: st.DataObject) -> None:
    """Many are equal: torch's order is kept."""
    b, draw = Builder(), data.draw
    shape = draw(st.lists(st.sampled_from([1, 3, 16, 200]), min_size=1, max_size=3))
    dim = draw(st.integers(-len(shape), len(shape) - 1))
    x = ARRANGED[draw(arrangements)](small(tuple(shape), draw(st.sampled_from(DTYPES))))
    with_nan = draw(st.booleans())
    count = draw(st.integers(1, shape[dim]))
    y = b.input(torch.where(x > 1, torch.nan, x) if with_nan else x)
    chosen = b("topk", y, k=count, dim=dim, largest=draw(st.booleans()))
    check_exact(b, chosen, *([] if with_nan else [b("take_along", y, chosen, dim=dim)]))


@property_test
@given(data=st.data())
def test_logarithms_of_sums_of_powers(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    shape = tuple(draw(st.lists(st.sampled_from([1, 3, 17, 100]), min_size=1, max_size=3)))
    first = draw(st.integers(0, len(shape) - 1))
    last = draw(st.integers(first, len(shape)))
    dims = draw(st.permutations(range(first, last)).map(tuple))
    dims = tuple(dim - len(shape) if draw(st.booleans()) else dim for dim in dims)
    dtype = draw(st.sampled_from(DTYPES))
    x = b.input(ARRANGED[draw(arrangements)](tensor(*shape, dtype=dtype)) * draw(SIZES))
    check(b, b("logsumexp", x, dims=dims, keep=draw(st.booleans())), dtype=dtype)


@pytest.mark.parametrize("dim", [0, 1])
def test_logarithms_of_sums_of_infinite_powers_are_torchs(b: Builder, dim: int) -> None:
    lines = [[-math.inf] * 4, [-math.inf, 1, 2, 3], [math.inf, 1, -math.inf, 2]]
    lines += [[math.nan, 1, 2, 3], [math.nan, math.inf, 2, 3], [1e38, 1e38, -1e38, 0]]
    x = torch.tensor(lines).repeat(1, 9)
    x = x if dim == 1 else x.t().contiguous()
    plan = make_plan(region_of(b, b("logsumexp", b.input(x), dims=(dim,))))
    torch.testing.assert_close(plan.run([x], [])[0], x.logsumexp(dim), equal_nan=True)


@pytest.mark.parametrize("place", [7, -8])
def test_an_index_out_of_range_is_an_error(place: int) -> None:
    plan = plan_of("%x = input tensor", "%i = input tensor", "%y = index(%x, %i)", "return %y")
    x, ids = tensor(7, 3), torch.tensor([0, 3])
    assert torch.equal(plan.run([x, ids], [])[0], x[ids])
    with pytest.raises(IndexError, match=f"index {place} is out of bounds for dimension 0"):
        plan.run([x, torch.tensor([0, place])], [])


def test_negative_indices_along_a_dimension_are_an_error() -> None:
    line = "%y = take_along(%x, %i) dim=0"
    plan = plan_of("%x = input tensor", "%i = input tensor", line, "return %y")
    with pytest.raises(RuntimeError, match="index -1 is out of bounds for dimension 0"):
        plan.run([tensor(7), torch.tensor([-1])], [])


#: What plans refuse, and words of the reason.
REFUSED = {
    "%y = index(%x, %x)": "indices of Float",
    "%y = index(%x, %i, none, %i)": "apart",
    "%y = index(%x, none)": "0 tensors of indices",
    "%y = index(%x, %i, %i, %i)": "not there",
    "%y = index(%x, %i, %i, %i, %i, %i)": "5 tensors",
    "%y = take_along(%x, %i) dim=0": "other sizes",
    "%y = topk(%x) k=7 dim=-1": "choice of 7",
    "%y = topk(%i) k=1 dim=0": "Long",
    "%y = argmax(%x) dims=0,1": "several dimensions",
    "%a = unsqueeze(%x, 1)\n%y = logsumexp(%a) dims=0,2": "not neighbours",
}


@pytest.mark.parametrize("lines", REFUSED)
def test_what_plans_do_not_compute_is_refused(lines: str) -> None:
    plan = plan_of("%x = input tensor", "%i = input tensor", lines, "return %y")
    assert not plan.takes([tensor(2, 6), torch.zeros(2, dtype=torch.int64)], [])
    assert REFUSED[lines] in refusal(plan)
