"""Depthwise convolutions: right for any geometry, on our kernel where a row is short enough."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from test.drawing import property_test

from ..common import (
    DTYPES,
    PRIMITIVE_DTYPES,
    check,
    check_gradients,
    counting,
    dtypes,
    layouts,
    rearranged,
    stock,
    values,
)

#: Kernel sizes with and without specialised code.
reaches = st.sampled_from((1, 2, 3, 4, 5, 7, 9))
#: Sizes on both sides of one vector, of two vectors, and of a strip.
sides = st.sampled_from((1, 2, 7, 8, 14, 15, 16, 17, 28, 33, 65))
pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


@property_test
@given(
    data=st.data(),
    batch=st.integers(1, 2),
    channels=st.sampled_from((2, 3, 17)),
    multiple=st.sampled_from((1, 1, 2)),
    size=st.tuples(sides, sides),
    kernel=st.tuples(reaches, reaches),
    stride=pairs,
    dilation=pairs,
    bias=st.booleans(),
    layout=layouts,
    dtype=dtypes,
)
def test_any_geometry(
    data: st.DataObject,
    batch: int,
    channels: int,
    multiple: int,
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    bias: bool,
    layout: str,
    dtype: torch.dtype,
) -> None:
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    padding = [data.draw(st.integers(0, r // 2 + 1), label="padding") for r in reach]
    height, width = (max(n, r - 2 * p) for n, r, p in zip(size, reach, padding, strict=True))

    def convolve(*operands: Tensor | None) -> Tensor:
        return F.conv2d(
            *operands, stride=stride, padding=padding, dilation=dilation, groups=channels
        )

    check(
        convolve,
        rearranged(values(batch, channels, height, width, dtype=dtype, seed=1), layout),
        values(channels * multiple, 1, *kernel, dtype=dtype, seed=2),
        values(channels * multiple, dtype=dtype, seed=3) if bias else None,
    )


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize(
    ("image", "kernel", "options"),
    [
        ((1, 32, 112, 112), (3, 3), {"padding": 1}),
        ((2, 96, 112, 112), (3, 3), {"padding": 1, "stride": 2}),
        ((1, 96, 56, 56), (7, 7), {"padding": 3}),
        ((1, 240, 28, 28), (5, 5), {"padding": 2}),
        ((3, 960, 7, 7), (3, 3), {"padding": 1}),
        ((1, 4, 300, 700), (3, 3), {}),
        ((1, 16, 40, 40), (1, 9), {"stride": (1, 4)}),
    ],
)
def test_sizes_of_models_run_on_our_kernel(
    image: tuple[int, ...], kernel: tuple[int, int], options: dict[str, Any], dtype: torch.dtype
) -> None:
    x = values(*image, dtype=dtype, seed=1)
    weight, bias = values(image[1], 1, *kernel, dtype=dtype, seed=2), values(image[1], dtype=dtype)
    calls = check(
        lambda *operands: F.conv2d(*operands, groups=image[1], **options), x, weight, bias
    )
    assert calls == {"convolution": 1}


def test_sequences_run_on_our_kernel() -> None:
    calls = check(
        lambda x, w: F.conv1d(x, w, padding=3, groups=24),
        values(2, 24, 100, seed=1),
        values(24, 1, 4, seed=2),
    )
    assert calls == {"convolution": 1}


@pytest.mark.parametrize(("width", "kernel"), [(4200, (3, 3)), (700, (15, 3)), (40, (13, 13))])
def test_rows_too_long_for_a_strip_are_right(width: int, kernel: tuple[int, int]) -> None:
    check(
        lambda x, w: F.conv2d(x, w, padding=1, groups=3),
        values(1, 3, 20, width, seed=1),
        values(3, 1, *kernel, seed=2),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_nan_and_infinity_reach_exactly_the_windows_that_contain_them(
    stride: int, dtype: torch.dtype
) -> None:
    x = values(2, 5, 30, 37, dtype=dtype, seed=1)
    x[0, 1, 3, 4], x[1, 4, 29, 36] = math.nan, math.inf
    weight = values(5, 1, 3, 3, dtype=dtype, seed=2)
    got = F.conv2d(x, weight, padding=1, stride=stride, groups=5)
    exact = F.conv2d(x.double(), weight.double(), padding=1, stride=stride, groups=5)
    assert torch.equal(got.isnan(), exact.isnan())
    assert torch.equal(got.isinf(), exact.isinf())


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_infinite_weights_do_not_multiply_padding(
    layout: torch.memory_format,
) -> None:
    x = values(1, 2, 6, 6, seed=1).contiguous(memory_format=layout)
    weight = values(2, 1, 3, 3, seed=2)
    weight[0, 0, 0, 0] = math.inf
    got = F.conv2d(x, weight, padding=1, groups=2)
    with stock():
        expected = F.conv2d(x, weight, padding=1, groups=2)
    torch.testing.assert_close(got, expected, equal_nan=True)


@pytest.mark.parametrize("stride", [2**59, 2**60, 2**62])
def test_strides_larger_than_the_image(stride: int) -> None:
    x, weight = values(1, 4, 8, 8, seed=1), values(4, 1, 3, 3, seed=2)
    check(lambda *operands: F.conv2d(*operands, stride=(1, stride), groups=4), x, weight)


def test_what_lies_around_an_image_is_not_read() -> None:
    around = torch.full((3, 8, 12, 12), math.nan)
    around[1] = values(8, 12, 12, seed=1)
    weight = values(8, 1, 3, 3, seed=2)
    for stride in (1, 2, 3):
        got = F.conv2d(around[1:2], weight, stride=stride, padding=2, groups=8)
        assert got.isfinite().all()


def test_channels_last_stays_channels_last() -> None:
    x = values(2, 16, 9, 9, seed=1).contiguous(memory_format=torch.channels_last)
    check(lambda x, w: F.conv2d(x, w, groups=16), x, values(16, 1, 3, 3, seed=2))


def test_gradients() -> None:
    operands = values(2, 6, 11, 9, seed=1), values(12, 1, 3, 3, seed=2), values(12, seed=3)
    check_gradients(lambda x, w, b: F.conv2d(x, w, b, padding=1, stride=2, groups=6), *operands)


def test_switched_off_torchs_kernel_runs() -> None:
    x, weight = values(1, 8, 9, 9, seed=1), values(8, 1, 3, 3, seed=2)
    with stock(), counting() as calls:
        F.conv2d(x, weight, groups=8)
    assert not calls
