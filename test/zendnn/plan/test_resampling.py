"""Resampling in plans."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given
from hypothesis import strategies as st

from test.drawing import property_test

from ..common import DTYPES, dtypes, stock, values
from ..support.graphs import Builder
from ..support.plans import ARRANGEMENTS, check, copies_of, make_plan, region_of, tensor
from ..support.samples import LAYOUTS, NEAREST, arrangements, batches, channels, convolved


@property_test
@given(data=st.data())
def test_resampling(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype = draw(dtypes)
    size = st.sampled_from([1, 2, 5, 16, 17, 33])
    shape = (draw(batches), draw(channels), draw(size), draw(size))
    x = b.input(tensor(*shape, dtype=dtype, layout=draw(arrangements)))
    algorithm = draw(st.sampled_from(["nearest", "linear", "cubic"]))
    attributes: dict[str, Any] = {
        **NEAREST,
        "algorithm": algorithm,
        "align_corners": algorithm != "nearest" and draw(st.booleans()),
    }
    wanted: list[int | None] = [draw(size), draw(size)]
    if draw(st.booleans()):
        attributes |= {"scale_height": draw(FACTORS), "scale_width": draw(FACTORS)}
        wanted = [None, None]
        for side, name in ((2, "scale_height"), (3, "scale_width")):
            factor = attributes[name]
            assume(factor in (1, 2) or math.floor(shape[side] * factor) != shape[side])
            assume(factor in (1, 2) or math.floor(shape[side] * factor) != 2 * shape[side])
    check(b, b("resample", x, *wanted, **attributes), dtype=dtype)


@property_test
@given(data=st.data())
def test_signals_are_resampled(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype = draw(dtypes)
    size = st.sampled_from([1, 2, 5, 17, 33])
    shape = (draw(batches), draw(channels), draw(size))
    layout = draw(st.sampled_from(["contiguous", "transposed", "strided"]))
    x = b.input(tensor(*shape, dtype=dtype, layout=layout))
    attributes: dict[str, Any] = {"algorithm": "linear", "align_corners": draw(st.booleans())}
    wanted: int | None = draw(size)
    if draw(st.booleans()):
        attributes["scale_width"], wanted = draw(FACTORS), None
    check(b, b("resample", x, None, wanted, **attributes), dtype=dtype)


FACTORS = st.sampled_from([1.0, 2.0, 1.3, 3.7])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_resampled_images_are_written_in_place(
    b: Builder, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in feature pyramids and U-Nets."""
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", layout)
    x = b.input(tensor(1, 3, 8, 8))
    up = b("resample", convolved(b, x, 3, 16, stride=(2, 2)), 8, 8, **NEAREST)
    joined = b("cat", up, convolved(b, x, 3, 16, 3), dim=1)
    plan = check(b, convolved(b, joined, 32, 8))
    if layout == "channels_last":
        # Input, output, and the convolution, whose kernels only write whole tensors.
        assert copies_of(plan) <= 3


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize("corners", [False, True])
def test_bilinear_resampling_blends_infinities_as_torch_does(
    b: Builder, corners: bool, layout: str, dtype: torch.dtype
) -> None:
    """Between two equal infinities there is the same one, and NaN between different ones."""
    x = values(1, 5, 9, 8)
    x[:, :2, 2:6, 1:5] = math.inf
    x[:, 2:4, 2:6, 1:5] = -math.inf
    x[:, 3:, 4:7, 3:7] = x[:, 0, -1, -1] = math.inf
    x = ARRANGEMENTS[layout](x.to(dtype))
    attributes = {**NEAREST, "algorithm": "linear", "align_corners": corners}
    region = region_of(b, b("resample", b.input(x), 20, 19, **attributes))
    (got,) = make_plan(region, dtype).run([x], [])
    with stock():
        want = F.interpolate(x, (20, 19), mode="bilinear", align_corners=corners)
    assert want.isinf().any()
    tolerance = 0.02 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)


def test_factors_that_torch_does_not_always_use_are_refused(b: Builder) -> None:
    x = b.input(tensor(1, 2, 2, 2))
    attributes = {**NEAREST, "scale_height": 1.3, "scale_width": 2.0}
    assert not make_plan(region_of(b, b("resample", x, None, None, **attributes))).takes(
        b.examples, []
    )


def test_long_rows_are_resampled(b: Builder) -> None:
    x = b.input(tensor(1, 2, 1, 5000))
    check(b, b("resample", x, 1, 10000, **NEAREST))


def test_one_pixel_with_corners(b: Builder) -> None:
    x = b.input(tensor(1, 3, 5, 7))
    check(b, b("resample", x, 1, 1, **{**NEAREST, "algorithm": "linear", "align_corners": True}))
