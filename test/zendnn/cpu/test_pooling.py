"""Max pooling: stock torch's values and indices, for any window."""

from __future__ import annotations

import math
from collections import Counter
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
    assert_same_outcome,
    counting,
    dtypes,
    layouts,
    outcome,
    rearranged,
    stock,
    values,
)

sides = st.sampled_from((1, 2, 7, 8, 15, 16, 17, 33, 60))


def pool(x: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    result: tuple[Tensor, Tensor] = F.max_pool2d_with_indices(x, *arguments)
    return result


def assert_as_stock(x: Tensor, *arguments: Any) -> Counter[str]:
    with counting() as calls:
        ours = pool(x, *arguments)
    with stock():
        theirs = pool(x, *arguments)
    for our, their in zip(ours, theirs, strict=True):
        assert our.dtype == their.dtype
        assert our.stride() == their.stride()
        assert torch.allclose(our, their, rtol=0, atol=0, equal_nan=True)
    return calls


def test_any_windows_and_numbers() -> None:
    total: Counter[str] = Counter()

    @property_test
    @given(
        data=st.data(),
        shape=st.tuples(st.integers(1, 2), st.integers(1, 3), sides, sides),
        kernel=st.tuples(st.integers(1, 7), st.integers(1, 7)),
        stride=st.tuples(st.integers(1, 4), st.integers(1, 4)),
        dilation=st.tuples(st.integers(1, 3), st.integers(1, 3)),
        ceil=st.booleans(),
        numbers=st.sampled_from(("normal", "whole", "none among them", "no more than -inf")),
        layout=layouts,
        dtype=dtypes,
    )
    def holds(
        data: st.DataObject,
        shape: tuple[int, ...],
        kernel: tuple[int, int],
        stride: tuple[int, int],
        dilation: tuple[int, int],
        ceil: bool,
        numbers: str,
        layout: str,
        dtype: torch.dtype,
    ) -> None:
        padding = tuple(data.draw(st.integers(0, k // 2), label="padding") for k in kernel)
        x = values(*shape, dtype=dtype, seed=1)
        if numbers == "whole":
            x = x.round()
        elif numbers == "none among them":
            x[values(*shape, seed=2) > 1] = math.nan
        elif numbers == "no more than -inf":
            x[values(*shape, seed=2) > -1] = -math.inf
        x = rearranged(x, layout)
        with stock():
            kind, _ = outcome(lambda: pool(x, kernel, stride, padding, dilation, ceil))
        if kind == "value":
            total.update(assert_as_stock(x, kernel, stride, padding, dilation, ceil))

    holds()
    assert total["pooling"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "arguments"),
    [
        ((1, 64, 112, 112), (3, 2, 1)),
        ((3, 16, 224, 224), (2,)),
        ((192, 56, 56), (3, 1, 1)),
        ((2, 5, 300, 300), (5, 1, 2)),
    ],
)
def test_sizes_of_models_run_on_our_kernel(
    shape: tuple[int, ...], arguments: tuple[int, ...], dtype: torch.dtype
) -> None:
    assert assert_as_stock(values(*shape, dtype=dtype, seed=1), *arguments) == {"pooling": 1}


@pytest.mark.parametrize(
    "x",
    [
        values(1, 4, 9, 9, seed=1).double(),
        values(1, 4, 9, 9, seed=1).contiguous(memory_format=torch.channels_last),
        values(1, 2, 9, 5000, seed=1),
    ],
)
def test_others_are_left_to_torch(x: Tensor) -> None:
    assert not assert_as_stock(x, 3, 2, 1)


def test_gradients_are_stock_torchs() -> None:
    def gradient() -> Tensor:
        x = values(2, 3, 17, 19, seed=1).requires_grad_()
        (F.max_pool2d(x, 3, 2, 1) * values(2, 3, 9, 10, seed=2)).sum().backward()
        assert x.grad is not None
        return x.grad

    ours = gradient()
    with stock():
        assert torch.equal(ours, gradient())


@pytest.mark.parametrize(
    ("shape", "arguments"),
    [
        ((1, 2, 8, 8), (3, 2, 2)),
        ((1, 2, 8, 8), (0,)),
        ((1, 2, 2, 2), (5,)),
        ((1, 0, 8, 8), (2,)),
        ((0, 2, 8, 8), (2,)),
        ((8, 8), (2,)),
        ((1, 4, 8, 8), (2, (1, 2**60))),
        ((1, 4, 8, 8), (1, (2**33, 1))),
        ((1, 4, 8, 8), (1, 1, 0, 2**31)),
        ((1, 4, 40, 40), ((17, 1), 1, 0, (2**60, 1))),
    ],
)
def test_invalid_windows_raise_torchs_errors(
    shape: tuple[int, ...], arguments: tuple[Any, ...]
) -> None:
    assert_same_outcome(lambda: pool(torch.ones(shape), *arguments))
