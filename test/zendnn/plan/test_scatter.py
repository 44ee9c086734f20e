"""Tensors of which elements or slices are replaced, in plans."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from test.drawing import property_test

from ..support.arrangements import ARRANGED, arrangements, check_exact, small
from ..support.graphs import Builder
from ..support.indices import KINDS, SIZES, choices_along, places
from ..support.plans import check, implementations, refusal, tensor
from ..support.samples import made, plan_of


@property_test
@given(data=st.data())
def test_elements_put_along_a_dimension(data: st.DataObject) -> None:
    """Over the tensor, which others may still read, and of which several may have one place."""
    b, draw = Builder(), data.draw
    shape, dim, ids = draw(choices_along())
    dtype = draw(KINDS)
    larger = [size + draw(st.integers(0, 2)) for size in ids.shape]
    value = small(tuple(larger) if draw(st.booleans()) else (), dtype, seed=1)
    value = ARRANGED[draw(arrangements)](value) if value.dim() else value
    x = b.input(ARRANGED[draw(arrangements)](small(shape, dtype)))
    if dtype.is_floating_point and draw(st.booleans()):
        x = b.eltwise("abs", x)
    add = dtype in (torch.float32, torch.bfloat16, torch.int64) and draw(st.booleans())
    put = b("scatter", x, b.input(ids), b.input(value), dim=dim, add=add)
    check_exact(b, put, *([x] if draw(st.booleans()) else []))


@property_test
@given(data=st.data())
def test_rows_added_where_indices_say(data: st.DataObject) -> None:
    """Of floats, whose sums are rounded one after the other."""
    b, draw = Builder(), data.draw
    rows, columns, many = (draw(SIZES) for _ in range(3))
    x, value = tensor(rows, columns), tensor(many, columns, seed=1)
    ids = places((many, 1), rows, torch.int64, 2)
    x, value = (ARRANGED[draw(arrangements)](y) for y in (x, value))
    chosen = b("expand", b.input(ids), many, columns)
    check_exact(b, b("scatter", b.input(x), chosen, b.input(value), dim=0, add=True))


@pytest.mark.parametrize("place", [7, -1])
def test_putting_an_element_out_of_range_is_an_error(place: int) -> None:
    line = "%y = scatter(%x, %i, %x) dim=0"
    plan = plan_of("%x = input tensor", "%i = input tensor", line, "return %y")
    with pytest.raises(RuntimeError, match=f"index {place} is out of bounds for dimension 0"):
        plan.run([tensor(7), torch.tensor([0, place])], [])


@property_test
@given(data=st.data())
def test_replaced_slices(data: st.DataObject) -> None:
    """One after the other, also of views, and while others still read what they replace."""
    b, draw = Builder(), data.draw
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 5, 17]), min_size=1, max_size=4)))
    dtype = draw(KINDS)
    whole = draw(st.sampled_from(["contiguous", "transposed", "strided"]))
    x = b.input(ARRANGED[whole](small(shape, dtype)))
    if dtype.is_floating_point and draw(st.booleans()):
        x = b.eltwise("abs", x)
    results = []
    for _ in range(draw(st.integers(1, 4))):
        dim = draw(st.integers(-len(shape), len(shape) - 1))
        start = draw(st.integers(0, shape[dim] - 1))
        end = draw(st.sampled_from([None, shape[dim], 1000, start + 1]))
        bounds = [draw(st.sampled_from([start, start - shape[dim]])), end, draw(st.integers(1, 3))]
        like = torch.ops.aten.slice(torch.empty(shape, device="meta"), dim, *bounds).shape
        if draw(st.sampled_from([0, 0, 1])):  # of what is replaced
            value = b("slice", x, dim, *bounds)
            value = b("roll", value, dims=(0,), shifts=(1,)) if dtype.is_floating_point else value
        else:
            value = b.input(ARRANGED[draw(arrangements)](small(like, dtype, seed=1)))
        if draw(st.booleans()):
            results.append(x)
        x = b("slice_scatter", x, value, dim, *bounds)
    check_exact(b, *dict.fromkeys([*results, x]))


def test_slices_are_replaced_in_place(b: Builder) -> None:
    """What nobody else reads is not copied."""
    x = made(b, 6, 4)
    for row in range(5):
        value = b.input(tensor(1, 4, seed=row))
        x = b("slice_scatter", x, value, 0, row, row + 1, 1)
    plan = check(b, b.eltwise("tanh", x))
    assert [name for name in implementations(plan) if "copy" in name] == []


def test_a_slice_that_a_number_starts_is_replaced(b: Builder) -> None:
    x, value = b.input(tensor(5, 3)), b.input(tensor(2, 3, seed=1))
    start = b("number_sub", b("size", b.input(tensor(4)), 0), 2)
    put = b("slice_scatter", x, value, 0, start, b("number_add", start, 2), 1)
    check(b, put, b("slice_scatter", b.eltwise("abs", x), value, 0, start, None, 2))


#: What plans refuse, and words of the reason.
REFUSED = {
    "%y = scatter(%x, %i, %x) dim=0": "other sizes",
    "%y = scatter(%x, %x, %x) dim=0": "not int64",
    "%y = scatter(%x, %i, %i) dim=0": "another type",
    "%y = scatter(%b, %i, %b) dim=0 add=1": "sums of Bool",
    "%y = slice_scatter(%x, %x, 0, 1, none, 1)": "other sizes",
    "%y = slice_scatter(%x, %i, 0, none, none, 1)": "another type",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_plans_do_not_replace_is_refused(line: str) -> None:
    mask = "%b = compare(%i, %i) algorithm=eq"
    plan = plan_of("%x = input tensor", "%i = input tensor", mask, line, "return %y")
    ids = torch.zeros(*((2, 6) if "slice" in line else (2,)), dtype=torch.int64)
    assert not plan.takes([tensor(2, 6), ids], [])
    assert REFUSED[line] in refusal(plan)


def test_slices_of_large_items_are_refused() -> None:
    plan = plan_of("%x = input tensor", "%y = slice_scatter(%x, %x, 0, none, none, 1)", "return %y")
    assert not plan.takes([torch.zeros(2, 3, dtype=torch.complex128)], [])
    assert "a copy of items of 16 bytes" in refusal(plan)
