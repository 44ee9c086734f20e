"""Tensors in ZenDNN's blocked layout: round trips, operations, copies and refusals."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils import zendnn as zendnn_utils

from test.drawing import property_test

from .common import (
    DTYPES,
    PRIMITIVE_DTYPES,
    counting,
    dtypes,
    layouts,
    of_bfloat16,
    outcome,
    rearranged,
    stock,
    values,
)
from .support.computations import COMPUTATIONS

REFUSALS = (RuntimeError, TypeError, NotImplementedError)


def test_round_trip_gives_back_every_bit() -> None:
    @property_test
    @given(
        shape=st.lists(st.integers(1, 19), min_size=1, max_size=5).filter(
            lambda shape: torch.Size(shape).numel() < 100_000
        ),
        layout=layouts,
        dtype=dtypes,
    )
    def holds(shape: list[int], layout: str, dtype: torch.dtype) -> None:
        dense = rearranged(values(*shape, dtype=dtype), layout)
        blocked = dense.to_zendnn()
        back = blocked.to_dense()
        assert (blocked.shape, blocked.dtype, blocked.numel()) == (
            dense.shape,
            dtype,
            dense.numel(),
        )
        assert blocked.is_zendnn
        assert not dense.is_zendnn
        assert not back.is_zendnn
        assert back.device.type == "cpu"
        assert back.is_contiguous()
        assert torch.equal(back, dense)

    holds()


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0, 4)])
def test_empty_tensors_make_the_round_trip(shape: tuple[int, ...]) -> None:
    blocked = values(*shape).to_zendnn()
    assert blocked.shape == shape
    assert blocked.to_dense().shape == shape


def test_converting_may_change_between_float_and_bfloat16() -> None:
    x = values(3, 17)
    half = x.to_zendnn(torch.bfloat16)
    assert half.dtype == torch.bfloat16
    assert torch.equal(half.to_dense(), x.bfloat16())
    assert torch.equal(half.to_dense(torch.float32), x.bfloat16().float())


def test_the_device_is_zendnn() -> None:
    blocked = values(2, 3).to_zendnn()
    assert blocked.device == torch.device("zendnn", 0)
    assert str(blocked.device) == "zendnn:0"
    assert not blocked.is_mkldnn


def test_upstreams_own_layout_stays_apart() -> None:
    dense = values(2, 3)
    upstream = dense.to_mkldnn()
    assert upstream.is_mkldnn
    assert not upstream.is_zendnn
    assert torch.equal(upstream.to_dense(), dense)
    with pytest.raises(REFUSALS):
        torch.add(upstream, dense.to_zendnn())


def test_a_conversion_copies() -> None:
    dense = values(2, 3)
    blocked = dense.to_zendnn()
    want = dense.clone()
    dense.zero_()
    assert torch.equal(blocked.to_dense(), want)
    blocked.to_dense().zero_()
    assert torch.equal(blocked.to_dense(), want)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.int64, torch.bool, torch.complex64], ids=str
)
def test_types_without_kernels_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(RuntimeError, match="expects"):
        values(3, dtype=dtype).to_zendnn()


def test_too_many_dimensions_are_refused() -> None:
    with pytest.raises(RuntimeError, match="dimensions"):
        values(1, 1, 1, 1, 1, 2).to_zendnn()


def test_gradients_pass_through_both_conversions() -> None:
    leaf = values(3, 4).requires_grad_()
    weight = values(3, 4, seed=1)
    (leaf.to_zendnn().to_dense() * weight).sum().backward()
    assert leaf.grad is not None
    assert torch.equal(leaf.grad, weight)


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding"),
    [
        ((2, 2), (1, 3), (1, 3), (0, 2)),
        ((5, 1), (3, 3), (3, 3), (0, 2)),
        ((1, 2), (2, 3), (2, 3), (1, 1)),
        ((10, 2), (4, 2), (1, 3), (1, 1)),
        ((2,), (4,), (3,), (1,)),
    ],
)
def test_gradients_of_convolutions_that_reach_over_the_image(
    size: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dtype: torch.dtype,
) -> None:
    convolve = F.conv1d if len(size) == 1 else F.conv2d
    image = values(3, 32, *size, dtype=dtype, seed=1).requires_grad_()
    weight = values(16, 32, *kernel, dtype=dtype, seed=2).requires_grad_()
    result = convolve(image.to_zendnn(), weight, None, stride, padding).to_dense()
    exact_image, exact_weight = (
        leaf.detach().double().requires_grad_() for leaf in (image, weight)
    )
    exact = convolve(exact_image, exact_weight, None, stride, padding)
    outward = values(*exact.shape, dtype=dtype, seed=3)
    result.backward(outward)
    exact.backward(outward.double())
    for leaf, expected in ((image, exact_image), (weight, exact_weight)):
        assert leaf.grad is not None
        assert expected.grad is not None
        tolerance = 16 * torch.finfo(dtype).eps * expected.grad.abs().max().item()
        torch.testing.assert_close(leaf.grad.double(), expected.grad, atol=tolerance, rtol=0)


# Operations

MOVES: dict[str, Callable[[Tensor], Tensor]] = {
    "clone": torch.clone,
    "reshape": lambda x: x.reshape(x.size(0), -1),
    "transpose": lambda x: x.transpose(0, 1),
}


@pytest.mark.parametrize("name", COMPUTATIONS)
def test_operation_equals_the_dense_one_and_runs_on_zendnn(name: str) -> None:
    x = values(3, 8, 8, 6)
    with counting() as calls:
        ours = COMPUTATIONS[name](x.to_zendnn())
    assert ours.is_zendnn
    with stock():
        want = COMPUTATIONS[name](x)
    torch.testing.assert_close(ours.to_dense(), want, rtol=1e-5, atol=1e-5)
    assert calls


@pytest.mark.parametrize("name", MOVES)
def test_operators_that_move_values_change_none(name: str) -> None:
    x = values(3, 8, 8, 6)
    moved = MOVES[name](x.to_zendnn())
    assert moved.is_zendnn
    assert torch.equal(moved.to_dense(), MOVES[name](x))


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 1e-5), pytest.param(torch.bfloat16, 2e-2, marks=of_bfloat16)],
)
def test_converted_modules_are_right(dtype: torch.dtype, tolerance: float) -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3)
    ).eval()
    x = values(2, 3, 16, 15)
    with torch.no_grad():
        with stock():
            want = net(x)
        converted = zendnn_utils.to_zendnn(copy.deepcopy(net), dtype)
        with counting() as calls:
            got = converted(x.to_zendnn(dtype)).to_dense(torch.float32)
    assert (got - want).abs().max() <= tolerance * want.abs().max()
    assert calls


@pytest.mark.parametrize("bias", [True, False])
def test_a_converted_linear_layer_takes_dense_and_blocked_tensors(bias: bool) -> None:
    layer = nn.Linear(20, 12, bias=bias).eval()
    x = values(4, 20)
    with torch.no_grad():
        with stock():
            want = layer(x)
        converted = zendnn_utils.to_zendnn(copy.deepcopy(layer))
        torch.testing.assert_close(converted(x), want, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(converted(x.to_zendnn()).to_dense(), want, rtol=1e-5, atol=1e-5)


# Copying, printing, saving


def test_printing_shows_the_values_and_the_device() -> None:
    text = repr(torch.tensor([1.5, -2.0]).to_zendnn())
    assert "1.5000" in text
    assert "-2.0000" in text
    assert "zendnn:0" in text


def test_clones_and_detached_tensors_hold_the_same_values() -> None:
    dense = values(3, 4)
    blocked = dense.to_zendnn()
    for same in (blocked.clone(), blocked.detach(), blocked.contiguous()):
        assert same.is_zendnn
        assert torch.equal(same.to_dense(), dense)


def test_a_clone_has_its_own_memory() -> None:
    dense = values(3, 4)
    blocked = dense.to_zendnn()
    clone = blocked.clone()
    clone.copy_(torch.zeros(3, 4).to_zendnn())
    assert torch.equal(blocked.to_dense(), dense)
    assert not clone.to_dense().any()


COPIES: dict[str, Callable[[Tensor], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "cpu": Tensor.cpu,
    "to cpu": lambda x: x.to("cpu"),
    "to zendnn": lambda x: x.to("zendnn"),
    "float": Tensor.float,
    "list": lambda x: torch.tensor(x.tolist()),
}


@pytest.mark.parametrize("name", COPIES)
def test_every_way_of_copying_gives_the_values(name: str) -> None:
    dense = values(3, 4)
    got = COPIES[name](dense.to_zendnn())
    assert torch.equal(got.to_dense() if got.is_zendnn else got, dense)


UNSUPPORTED: dict[str, Callable[[Tensor], Any]] = {
    "cumsum": lambda x: torch.cumsum(x, 0),
    "sort": lambda x: torch.sort(x).values,
    "erfinv": torch.erfinv,
    "svd": torch.linalg.svdvals,
    "dense operand": lambda x: x + torch.ones(3, 4),
    "index": lambda x: x[0],
    "view": lambda x: x.view(4, 3),
    "sum": lambda x: x.sum(),
    "copy into dense": lambda x: torch.empty(x.shape).copy_(x),
    "numpy": lambda x: x.numpy(),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_operators_without_a_kernel_are_refused_with_a_reason(name: str) -> None:
    kind, reason = outcome(lambda: UNSUPPORTED[name](values(3, 4).to_zendnn()))
    assert kind in ("NotImplementedError", "RuntimeError", "TypeError")
    assert reason


def test_the_refusal_names_the_operator_and_the_backend() -> None:
    with pytest.raises(NotImplementedError, match=r"(?s)aten::cumsum.*(zendnn|PrivateUse1)"):
        torch.cumsum(values(3, 4).to_zendnn(), 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_many_conversions_leak_no_memory(dtype: torch.dtype) -> None:
    x = values(256, 1024, dtype=dtype)

    def resident() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * 4096

    for _ in range(20):
        x.to_zendnn().to_dense()
    before = resident()
    for _ in range(200):
        x.to_zendnn().to_dense()
    leaked = resident() - before
    assert leaked < 50 * x.nbytes, f"{leaked / x.nbytes:.0f} tensors' worth of memory stayed"
