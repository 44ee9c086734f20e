"""Batch and group norms in plans."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given
from hypothesis import strategies as st

from test.drawing import property_test

from ..common import DTYPES, PRIMITIVE_DTYPES, dtypes, values
from ..support.graphs import Builder
from ..support.plans import (
    ARRANGEMENTS,
    CHANNELS,
    check,
    implementations,
    make_plan,
    region_of,
    tensor,
    then,
)
from ..support.samples import NEAREST, SMALL, arrangements, batches, convolved


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("affine", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("shape", [(3, 17), (3, 17, 5), (3, 16, 5, 6), (2, 3, 3, 4, 5)])
def test_batch_norm(
    b: Builder, shape: tuple[int, ...], affine: tuple[bool, bool], dtype: torch.dtype
) -> None:
    results = []
    count = shape[1]
    for layout in ("contiguous", "transposed", "padded", "channels_last", "repeated"):
        x = b.input(tensor(*shape, dtype=dtype, layout=layout))
        weight, bias = (b.constant(count) if present else None for present in affine)
        variance = b.graph.constant(torch.rand(count, dtype=torch.float64) + 0.5)
        results.append(b("batch_norm", x, weight, bias, b.constant(count), variance, eps=1e-3))
    check(b, *results, dtype=dtype, constants=torch.float32)


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize("post", ["", "relu", "sigmoid"])
@pytest.mark.parametrize("count", CHANNELS)
def test_batch_norm_between_convolutions(b: Builder, count: int, post: str) -> None:
    x = convolved(b, b.input(tensor(2, 3, 6, 6)), 3, count, 3)
    normed = b.batch_norm(b.eltwise("relu", x), count)
    then(b, normed, *([post] if post else []))
    check(b, convolved(b, normed, count, 8, 3))


@pytest.mark.parametrize("count", [700, 1030])
def test_batch_norm_of_many_channels(b: Builder, count: int) -> None:
    images = [
        b.input(tensor(3, count, 4, 2, layout=layout)) for layout in ("contiguous", "channels_last")
    ]
    rows = b.input(tensor(40, count))
    check(b, *(then(b, b.batch_norm(x, count), "relu") for x in [*images, rows]))


def test_batch_norm_keeps_nan(b: Builder) -> None:
    x = tensor(2, 19, 3, 3)
    x[1, 17, 0, 2] = float("nan")
    value = b.input(x)
    plan = make_plan(region_of(b, then(b, b.batch_norm(value, 19), "relu")))
    assert torch.equal(plan.run([x], [])[0].isnan(), x.isnan())
    assert implementations(plan) == ["batch_norm relu"]


@property_test
@given(data=st.data())
def test_group_norm(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype, groups = draw(dtypes), draw(st.sampled_from([1, 2, 8]))
    count = groups * draw(st.sampled_from([1, 3, 10, 17]))
    space = draw(st.lists(st.sampled_from([1, 5, 8, 17]), max_size=3))
    shape = (draw(batches), count, *space)
    assume(math.prod(shape) // shape[0] > groups)  # torch requires more than one value per group
    x = b.input(tensor(*shape, dtype=dtype, layout=draw(arrangements)))
    if draw(st.booleans()):
        x = b.eltwise("affine", x, 0.5, 0.25)
    weight, bias = (b.constant(count) if draw(st.booleans()) else None for _ in range(2))
    out = b("group_norm", x, weight, bias, groups=groups, eps=draw(SMALL) + 1e-3)
    wide = weight or bias  # factors may have a wider dtype than x
    check(b, out, dtype=dtype, constants=torch.float32 if wide and draw(st.booleans()) else dtype)


def test_group_norm_of_numbers_far_from_zero(b: Builder) -> None:
    x = b.input(tensor(1, 4, 64, 65) + 1000)
    check(b, b("group_norm", x, None, None, groups=2, eps=1e-5))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize("shape", [(1, 2, 512, 512), (1, 64, 80, 80), (2, 6, 3, 5)], ids=str)
def test_group_norm_of_equal_numbers_is_zero(
    b: Builder, shape: tuple[int, ...], layout: str, dtype: torch.dtype
) -> None:
    x = ARRANGEMENTS[layout](torch.full(shape, 100.3).to(dtype))
    region = region_of(b, b("group_norm", b.input(x), None, None, groups=1, eps=1e-5))
    (got,) = make_plan(region, dtype).run([x], [])
    assert not got.any()


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize("channels", [2, 40])
def test_group_norm_of_large_nearly_constant_planes_is_precise(
    b: Builder, channels: int, layout: str
) -> None:
    x = ARRANGEMENTS[layout](values(1, channels, 300, 301) * 0.01 + 100.3)
    region = region_of(b, b("group_norm", b.input(x), None, None, groups=2, eps=1e-5))
    (got,) = make_plan(region).run([x], [])
    torch.testing.assert_close(got.double(), F.group_norm(x.double(), 2), rtol=2e-4, atol=1e-3)


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("count", [8, 16])
def test_group_norm_and_resampling_between_convolutions(
    b: Builder, images: str, count: int, dtype: torch.dtype
) -> None:
    x = convolved(b, b.input(tensor(2, 3, 6, 7, dtype=dtype)), 3, count, 3)
    y = b("group_norm", x, b.constant(count), b.constant(count), groups=4, eps=1e-5)
    y = b("resample", b.eltwise("silu", y), 12, 14, **NEAREST)
    check(b, convolved(b, y, count, 8), dtype=dtype)
