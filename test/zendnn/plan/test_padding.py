"""Padding and rolling in plans."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from test.drawing import property_test

from ..common import dtypes
from ..support.graphs import Builder
from ..support.plans import check, implementations, make_plan, region_of, tensor
from ..support.samples import arrangements


@property_test
@given(data=st.data())
def test_padding(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype = draw(dtypes)
    shape = draw(st.lists(st.sampled_from([1, 2, 5, 17]), min_size=1, max_size=4))
    pads = [draw(st.integers(0, 3)) for _ in range(2 * draw(st.integers(1, len(shape))))]
    x = b.input(tensor(*shape, dtype=dtype, layout=draw(arrangements)))
    check(b, b("pad", x, *pads, value=draw(st.sampled_from([0.0, -1.5]))), dtype=dtype)


def test_padding_by_numbers(b: Builder) -> None:
    x = b.input(tensor(3, 17))
    more = b("number_remainder", b("number_sub", 0, b("size", x, 1)), 4)
    nothing = b("number_remainder", b("size", x, 0), 3)
    padded = b("pad", x, 0, more, value=0.5)
    check(b, padded, b("pad", padded, nothing, nothing, value=0.5))


@property_test
@given(data=st.data())
def test_roll(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype = draw(dtypes)
    shape = draw(st.lists(st.sampled_from([1, 2, 5, 17]), min_size=1, max_size=4))
    dims = draw(st.lists(st.integers(-len(shape), len(shape) - 1), min_size=1, max_size=3))
    shifts = tuple(draw(st.integers(-20, 20)) for _ in dims)
    x = b.input(tensor(*shape, dtype=dtype, layout=draw(arrangements)))
    plan = check(b, b("roll", x, dims=tuple(dims), shifts=shifts), dtype=dtype)
    assert implementations(plan) == ["roll"]


def test_padding_with_infinity(b: Builder) -> None:
    region = region_of(b, b("pad", b.input(tensor(2, 3)), 1, 1, value=-math.inf))
    (got,) = make_plan(region).run(b.examples, [])
    assert torch.equal(got, F.pad(b.examples[0], (1, 1), value=-math.inf))
