"""Layer norm, RMS norm and softmax: as precise as stock torch, with the same forms and errors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

from test.drawing import property_test

from ..common import (
    DTYPES,
    LAYOUTS,
    assert_as_exact,
    assert_same_bits,
    counting,
    dtypes,
    gradients,
    outcome,
    rearranged,
    same_error,
    sizes,
    stock,
    values,
)
from .ulps import ulps

#: Dtypes of input and of parameters.
TYPES = (*((dtype, dtype) for dtype in DTYPES), (torch.bfloat16, torch.float32))
of_types = pytest.mark.parametrize(("dtype", "parameters"), TYPES, ids=str)
SOFTMAX = {"softmax": torch._softmax, "log_softmax": torch._log_softmax}
of_softmax = pytest.mark.parametrize("softmax", SOFTMAX.values(), ids=SOFTMAX)


def layer_norm(
    x: Tensor, shape: tuple[int, ...], weight: Tensor | None, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.native_layer_norm(x, shape, weight, bias, 1e-5)


def check_layer_norm(
    x: Tensor, shape: tuple[int, ...], weight: Tensor | None, bias: Tensor | None
) -> bool:
    """Compares all three results with stock torch's and float64's; returns whether ours ran."""
    with counting() as calls:
        ours = layer_norm(x, shape, weight, bias)
    with stock():
        theirs = layer_norm(x, shape, weight, bias)
        wide = [p if p is None else p.double() for p in (weight, bias)]
        exact = layer_norm(x.double(), shape, *wide)
    for our, their, true in zip(ours, theirs, exact, strict=True):
        assert our.stride() == their.stride()
        magnitude = max(1.0, true.abs().max().item()) if true.numel() else 0.0
        assert_as_exact(our, their, true, magnitude)
    return bool(calls)


# Layer norm


@of_types
@pytest.mark.parametrize("given_ones", ["both", "weight", "bias", "none"])
def test_layer_norm_and_its_statistics_are_right_and_run_on_zendnn(
    given_ones: str, dtype: torch.dtype, parameters: torch.dtype
) -> None:
    weight = values(96, dtype=parameters, seed=1) if given_ones in ("both", "weight") else None
    bias = values(96, dtype=parameters, seed=2) if given_ones in ("both", "bias") else None
    for shape in ((96,), (1, 96), (2, 49, 96), (700, 96)):
        assert check_layer_norm(3 * values(*shape, dtype=dtype) + 1, (96,), weight, bias)


def test_layer_norm_is_right_for_any_size_and_depth() -> None:
    @property_test
    @given(
        shape=st.lists(sizes, min_size=1, max_size=3), depth=st.integers(1, 3), dtype=dtypes,
        offset=st.sampled_from((0.0, 1.0, -100.0)),
    )  # fmt: skip
    def holds(shape: list[int], depth: int, dtype: torch.dtype, offset: float) -> None:
        over = tuple(shape[-depth:])
        x = values(*shape, dtype=dtype) + offset
        weight, bias = (values(*over, dtype=dtype, seed=seed) for seed in (1, 2))
        with counting() as calls:
            ours = layer_norm(x, over, weight, bias)
        with stock():
            theirs = layer_norm(x, over, weight, bias)
            exact = layer_norm(x.double(), over, weight.double(), bias.double())
        assert calls
        for our, their, true in zip(ours, theirs, exact, strict=True):
            # The division by the spread magnifies the rounding error of the mean.
            magnitude = true.abs().max().item() + abs(offset) * exact[2].max().item() * 3
            assert_as_exact(our, their, true, max(1.0, magnitude))

    holds()


@of_types
def test_rows_of_equal_numbers_become_zero(dtype: torch.dtype, parameters: torch.dtype) -> None:
    for number in (0.1, 1000.1, -3e7):
        x = torch.full((3, 771), number, dtype=dtype)
        out, mean, _ = layer_norm(x, (771,), None, torch.zeros(771, dtype=parameters))
        assert not out.any()
        assert torch.equal(mean, x[:, :1].to(mean.dtype))


def test_equal_numbers_become_zero_and_never_minus_zero() -> None:
    x = torch.full((3, 4), 0.5)
    weight = torch.tensor([1.0, -1.0, 0.0, -0.0])
    with counting() as calls:
        result = F.layer_norm(x, [4], weight)
    assert calls
    assert torch.equal(1 / result, torch.full_like(x, torch.inf))


def test_a_row_of_millions_is_as_precise_as_a_short_one() -> None:
    x = torch.rand(1, 9_000_000, generator=torch.Generator().manual_seed(0))
    ours = layer_norm(x, x.shape[1:], None, None)
    exact = layer_norm(x.double(), x.shape[1:], None, None)
    for our, true in zip(ours, exact, strict=True):
        assert (our.double() - true).abs().max() <= 2e-6 * true.abs().max()


def test_rows_whose_sum_overflows_keep_a_finite_mean() -> None:
    x = torch.full((2, 640), 3e38)
    out, mean, _ = layer_norm(x, (640,), None, None)
    assert torch.equal(mean, x[:, :1])
    assert not out.any()


def test_a_nan_or_infinity_affects_only_its_row() -> None:
    for bad in (float("nan"), float("inf"), float("-inf")):
        for place in (0, 5, 99):
            x = values(4, 100)
            x[2, place] = bad
            ours = layer_norm(x, (100,), None, None)
            with stock():
                theirs = layer_norm(x, (100,), None, None)
            for our, their in zip(ours, theirs, strict=True):
                assert torch.equal(our.isfinite(), their.isfinite())
                assert torch.equal(our.isnan(), their.isnan())
            softmax = torch.softmax(x, 1)
            with stock():
                assert torch.equal(softmax.isnan(), torch.softmax(x, 1).isnan())


@of_types
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layer_norm_of_any_layout_is_stock_torchs_or_as_exact(
    layout: str, dtype: torch.dtype, parameters: torch.dtype
) -> None:
    weight, bias = (values(40, dtype=parameters, seed=seed) for seed in (1, 2))
    x = rearranged(values(3, 5, 40, dtype=dtype), layout)
    check_layer_norm(x, (40,), weight, bias)
    check_layer_norm(values(3, 40, dtype=dtype), (40,), rearranged(weight, layout), bias)


def test_calls_that_layer_norm_refuses_match_stock_torch() -> None:
    x, weight = values(4, 6), values(6, seed=1)
    low = x.bfloat16()
    cases: list[Callable[[], Tensor]] = [
        lambda: layer_norm(x.double(), (6,), weight.double(), None)[0],
        lambda: layer_norm(x.half(), (6,), None, None)[0],
        lambda: layer_norm(x[:0], (6,), weight, None)[0],
        lambda: layer_norm(x[:, :0], (0,), None, None)[1],
        lambda: layer_norm(x, (5,), None, None)[0],
        lambda: layer_norm(x, (), None, None)[0],
        lambda: layer_norm(x, (3, 4, 6), None, None)[0],
        lambda: layer_norm(x, (6,), values(5), None)[0],
        lambda: layer_norm(x, (6,), values(1, 6), None)[0],
        lambda: layer_norm(x, (6,), weight.bfloat16(), None)[0],
        lambda: layer_norm(x, (6,), weight.double(), None)[0],
        lambda: layer_norm(low, (6,), weight, weight.bfloat16())[0],
        lambda: layer_norm(low, (6,), weight.bfloat16(), weight)[0],
        lambda: layer_norm(x.long(), (6,), None, None)[0],
    ]
    for case in cases:
        assert_same_bits(case)


@of_types
def test_gradients_of_layer_norm_are_those_of_stock_torch(
    dtype: torch.dtype, parameters: torch.dtype
) -> None:
    x = values(9, 5, 48, dtype=dtype)
    weight, bias = (values(48, dtype=parameters, seed=seed) for seed in (1, 2))

    def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.layer_norm(x, (48,), weight, bias) ** 2

    with counting() as calls:
        ours = gradients(norm, x, weight, bias)
    assert calls
    with stock():
        theirs = gradients(norm, x, weight, bias)
        exact = gradients(norm, x.double(), weight.double(), bias.double())
    for our, their, true in zip(ours, theirs, exact, strict=True):
        assert_as_exact(our, their, true, 4 * true.abs().max().item())


# RMS norm


def check_rms_norm(
    x: Tensor, shape: tuple[int, ...], weight: Tensor | None = None, eps: float | None = 1e-5
) -> bool:
    """Compares the result with stock torch's and float64's; returns whether ours ran."""
    with counting() as calls:
        ours = F.rms_norm(x, shape, weight, eps)
    with stock():
        theirs = F.rms_norm(x, shape, weight, eps)
        wide = None if weight is None else weight.double()
        added = torch.finfo(torch.float32).eps if eps is None else eps
        exact = F.rms_norm(x.double(), shape, wide, added)
    assert kind(ours) == kind(theirs)
    assert_as_exact(ours, theirs, exact, max(1.0, exact.abs().max().item()))
    return bool(calls)


def kind(x: Tensor) -> tuple[Any, ...]:
    return x.dtype, x.size(), x.stride(), x.requires_grad


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_rms_norm_is_right_and_runs_on_zendnn(weighted: bool, dtype: torch.dtype) -> None:
    weight = values(96, dtype=dtype, seed=1) if weighted else None
    for shape in ((96,), (1, 96), (2, 49, 96), (700, 96)):
        assert check_rms_norm(3 * values(*shape, dtype=dtype) + 1, (96,), weight)
    assert check_rms_norm(values(5, 96, dtype=dtype), (96,), eps=None)


def test_rms_norm_is_right_for_any_size_and_depth() -> None:
    @property_test
    @given(
        shape=st.lists(sizes, min_size=1, max_size=3), depth=st.integers(1, 3), dtype=dtypes,
        factor=st.sampled_from((1e-4, 1.0, 1e10)),
    )  # fmt: skip
    def holds(shape: list[int], depth: int, dtype: torch.dtype, factor: float) -> None:
        over = tuple(shape[-depth:])
        x, weight = factor * values(*shape, dtype=dtype), values(*over, dtype=dtype, seed=1)
        assert check_rms_norm(x, over, weight)

    holds()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rms_norm_of_any_layout_is_stock_torchs_or_as_exact(
    layout: str, dtype: torch.dtype
) -> None:
    weight = values(40, dtype=dtype, seed=1)
    check_rms_norm(rearranged(values(3, 5, 40, dtype=dtype), layout), (40,), weight)
    check_rms_norm(values(3, 40, dtype=dtype), (40,), rearranged(weight, layout))


def test_calls_that_rms_norm_refuses_match_stock_torch() -> None:
    x, weight = values(4, 6), values(6, seed=1)
    low = x.bfloat16()
    cases: list[Callable[[], Tensor]] = [
        lambda: F.rms_norm(x.double(), (6,), weight.double()),
        lambda: F.rms_norm(x.half(), (6,)),
        lambda: F.rms_norm(x[:0], (6,), weight),
        lambda: F.rms_norm(x, (5,)),
        lambda: F.rms_norm(x, ()),
        lambda: F.rms_norm(x, (3, 4, 6)),
        lambda: F.rms_norm(x, (6,), values(5)),
        lambda: F.rms_norm(x, (6,), values(1, 6)),
        lambda: F.rms_norm(x, (6,), weight.bfloat16()),
        lambda: F.rms_norm(low, (6,), weight),
        lambda: F.rms_norm(x.long(), (6,)),
        lambda: F.rms_norm(x, (6,), weight, -0.5),
    ]
    for case in cases:
        assert_same_bits(case)
    with torch.autocast("cpu", torch.bfloat16):
        assert_same_bits(lambda: F.rms_norm(low, (6,), weight.bfloat16(), 1e-5))


def test_gradients_of_rms_norm_are_those_of_stock_torch() -> None:
    x, weight = values(9, 21), values(21, seed=1)

    def squares(x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (21,), weight, 1e-5) ** 2

    ours = gradients(squares, x, weight)
    with stock():
        theirs = gradients(squares, x, weight)
    for our, their in zip(ours, theirs, strict=True):
        assert torch.equal(our, their)


def norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, (16,), weight, 1e-5)


def test_derivatives_and_transforms_of_rms_norm_are_stock_torchs() -> None:
    x, weight, along = values(4, 5, 16), values(16, seed=1), values(4, 5, 16, seed=2)

    def tangent() -> Tensor:
        with forward_ad.dual_level():
            result = norm(forward_ad.make_dual(x, along), weight)
            return forward_ad.unpack_dual(result).tangent

    cases: list[Callable[[], Tensor]] = [
        lambda: torch.func.jvp(norm, (x, weight), (along, weight))[1],
        lambda: torch.func.grad(lambda w: norm(x, w).square().sum())(weight),
        lambda: torch.func.jacrev(norm)(x[0, 0], weight),
        lambda: norm(x, weight.clone().requires_grad_()),
        tangent,
    ]
    for case in cases:
        assert_same_bits(case)
    with torch.no_grad():
        assert_same_bits(tangent)
    want = norm(x, weight)
    torch.testing.assert_close(torch.vmap(norm, (0, None))(x, weight), want)
    torch.testing.assert_close(torch.func.functionalize(norm)(x, weight), want)
    torch.testing.assert_close(norm(torch._neg_view(x), torch._neg_view(weight)), want)
    assert not norm(x, torch._efficientzerotensor(16)).any()


def test_tracing_rms_norm_records_torchs_composite_operators() -> None:
    x, other, weight = values(4, 5, 16), values(4, 5, 16, seed=3), values(16, seed=1)

    class Norm(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return norm(x, weight)

    def check(graph: torch.fx.Graph) -> None:
        result = [node.target for node in graph.nodes if node.op == "call_function"]
        assert torch.ops.aten.rsqrt.default in result
        assert torch.ops.aten.rms_norm.default not in result

    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            traced = make_fx(norm, tracing_mode="symbolic")(x, weight)
            check(traced.graph)
            torch.testing.assert_close(traced(other, weight), norm(other, weight))
            exported = torch.export.export(Norm(), (x,)).run_decompositions()
            check(exported.graph)
            torch.testing.assert_close(exported.module()(other), norm(other, weight))
            torch._dynamo.reset()
            compiled = torch.compile(norm, backend="aot_eager", dynamic=True)
            torch.testing.assert_close(compiled(other, weight), norm(other, weight))
            with FakeTensorMode() as fake, counting() as calls:
                assert F.rms_norm(fake.from_tensor(x), (16,)).shape == x.shape
            assert not calls
            with counting() as calls:
                norm(x, weight)
            assert calls
    assert F.rms_norm(x.to("meta"), (16,)).shape == x.shape


# Softmax


def check_softmax(softmax: Callable[..., Tensor], x: Tensor, dim: int) -> bool:
    with counting() as calls:
        ours = softmax(x, dim, False)
    with stock():
        theirs = softmax(x, dim, False)
        exact = softmax(x.double(), dim, False)
    assert ours.stride() == theirs.stride()
    # The logarithm of a power has the absolute error of its argument.
    magnitude = max(1.0, exact.abs().max().item()) if exact.numel() else 0.0
    assert_as_exact(ours, theirs, exact, magnitude)
    return bool(calls)


@of_softmax
def test_softmax_is_right_for_any_size_and_dimension(softmax: Callable[..., Tensor]) -> None:
    taken = []

    @property_test
    @given(shape=st.lists(sizes, min_size=1, max_size=3), dim=st.integers(-3, 2), dtype=dtypes)
    def holds(shape: list[int], dim: int, dtype: torch.dtype) -> None:
        dim = max(-len(shape), min(dim, len(shape) - 1))
        taken.append(check_softmax(softmax, 4 * values(*shape, dtype=dtype), dim))

    holds()
    assert sum(taken) > len(taken) / 2


@of_softmax
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "dim"),
    [
        ((1003, 47), -1),  # short rows, each in a lane
        ((55, 48), -1),
        ((55, 49), -1),
        ((40, 4096), -1),  # rows whose sums are pending in turn
        ((3, 32769), -1),  # longer than the buffer on the stack
        ((2, 700, 40), 1),  # columns in narrow blocks
        ((2, 2049, 33), 1),  # longer than the buffer of blocks
        ((128, 70, 65), 0),
    ],
    ids=str,
)
def test_large_softmax_is_right(
    shape: tuple[int, ...], dim: int, dtype: torch.dtype, softmax: Callable[..., Tensor]
) -> None:
    check_softmax(softmax, 4 * values(*shape, dtype=dtype), dim)


def test_a_softmax_that_stock_torch_computes_faster_falls_back() -> None:
    assert_same_bits(lambda: torch.softmax(values(2, 32769, dtype=torch.bfloat16), 1))
    assert_same_bits(lambda: torch.softmax(values(2, 2049, 5, dtype=torch.bfloat16), 1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("size", "dim"), [(300, 0), (300, 1), (30, 1)])
def test_every_digit_of_a_softmax_counts(size: int, dim: int, dtype: torch.dtype) -> None:
    """Small powers too: the error is relative, for any spread of the row."""
    x = 12 * values(300, size, dtype=dtype)
    exact = torch.softmax(x.double(), dim)
    normal = exact >= torch.finfo(dtype).tiny
    allowed = 0.51 if dtype == torch.bfloat16 else 2
    assert ulps(torch.softmax(x, dim), exact)[normal].max() <= allowed


@pytest.mark.parametrize("dim", [0, 1])
def test_a_log_softmax_is_precise_near_zero(dim: int) -> None:
    """One number is far above the others: the sum is slightly above 1."""
    x = 12 * values(300, 300)
    exact = torch.log_softmax(x.double(), dim)
    sure = exact < -1e-7  # float64 is not exact either below
    assert ulps(torch.log_softmax(x, dim), exact)[sure].max() <= 2


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("offset", [-1e38, -1e6, -300, 250, 1e5, 1e30])
def test_a_softmax_depends_only_on_differences(offset: float, dim: int) -> None:
    """Some rows also contain a mask's lowest finite number."""
    x = 5 * values(60, 60) + offset
    x[::7, ::5] = torch.finfo(x.dtype).min
    x[3:5] = torch.finfo(x.dtype).min
    exact = torch.softmax(x.double(), dim)
    assert ulps(torch.softmax(x, dim), exact)[exact >= torch.finfo(x.dtype).tiny].max() <= 2


@of_softmax
@pytest.mark.parametrize("dim", [0, 1])
def test_rows_without_a_finite_number_match_stock_torch(
    dim: int, softmax: Callable[..., Tensor]
) -> None:
    inf, nan = float("inf"), float("nan")
    rows = [[-inf, -inf, -inf], [-inf, 1, 2], [inf, 1, 2], [nan, 1, 2], [1, 2, nan], [inf, -inf, 1]]
    x = torch.tensor(rows).repeat(4, 7)
    x = x if dim else x.t().contiguous()
    for operand in (x, x.bfloat16()):
        ours = softmax(operand, dim, False)
        with stock():
            theirs = softmax(operand, dim, False)
        torch.testing.assert_close(ours, theirs, equal_nan=True)


@of_softmax
@pytest.mark.parametrize("layout", LAYOUTS)
def test_softmax_of_any_layout_is_stock_torchs_or_as_exact(
    layout: str, softmax: Callable[..., Tensor]
) -> None:
    for dim in range(3):
        check_softmax(softmax, rearranged(values(5, 7, 9), layout), dim)


@of_softmax
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_out_is_written_in_place_or_handled_by_stock_torch(softmax: Callable[..., Tensor]) -> None:
    x = values(6, 40)
    want = softmax(x, 1, False)
    out = torch.full_like(x, float("nan"))
    with counting() as calls:
        assert softmax(x, 1, False, out=out) is out
    assert calls
    assert torch.equal(out, want)
    mine = x.clone()
    assert torch.equal(softmax(mine, 1, False, out=mine), want)
    makes: list[Callable[[], Tensor]] = [
        lambda: x.new_zeros(0),
        lambda: x.new_zeros(40, 6).t(),
        lambda: x.new_zeros(6, 80)[:, ::2],
        lambda: x.new_zeros(6, 40, dtype=torch.float64),
        lambda: x.new_zeros(6, 40, dtype=torch.bfloat16),
        lambda: x.new_zeros(6, 40, device="meta"),
    ]
    for make in makes:
        ours, theirs = make(), make()
        kind, text = outcome(partial(softmax, x, 1, False, out=ours))
        with stock():
            stock_kind, stock_text = outcome(partial(softmax, x, 1, False, out=theirs))
        assert kind == stock_kind
        if kind != "value":
            assert text == stock_text
        elif not ours.is_meta:
            assert ours.stride() == theirs.stride()
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("dim", [0, 1])
def test_a_softmax_keeps_subnormals(dim: int) -> None:
    x = torch.tensor([[0.0, -92.0] * 8]).repeat(64, 1)
    small = torch.softmax(x if dim == 1 else x.t().contiguous(), dim).select(dim, 1)
    assert (small > 0).all()


@of_softmax
def test_calls_that_softmax_refuses_match_stock_torch(softmax: Callable[..., Tensor]) -> None:
    x = values(4, 6)
    for operand in (x.double(), x.half(), x.long(), x.bool(), x[:0], x[:, :0], torch.tensor(2.0)):
        assert_same_bits(partial(softmax, operand, -1, False))
    assert_same_bits(lambda: softmax(x, 1, True))
    assert_same_bits(lambda: softmax(x.bfloat16(), 1, True))
    same_error(lambda: softmax(x, 2, False))
    same_error(lambda: softmax(x, -3, False))


@of_softmax
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_of_softmax_are_those_of_stock_torch(
    dtype: torch.dtype, softmax: Callable[..., Tensor]
) -> None:
    x = values(9, 21, dtype=dtype)

    def squares(x: Tensor) -> Tensor:
        return softmax(x, 1, False) ** 2

    ours = gradients(squares, x)
    with stock():
        theirs = gradients(squares, x)
        exact = gradients(squares, x.double())
    for our, their, true in zip(ours, theirs, exact, strict=True):
        assert_as_exact(our, their, true, 4 * true.abs().max().item())


def test_transforms_and_modes_see_the_same_functions() -> None:
    x, weight = values(4, 5, 16), values(16, seed=1)
    normed, soft = F.layer_norm(x, (16,), weight), torch.softmax(x, -1)
    many = torch.vmap(lambda x: F.layer_norm(x, (16,), weight))(x)
    torch.testing.assert_close(many, normed)
    torch.testing.assert_close(torch.vmap(lambda x: torch.softmax(x, -1))(x), soft)
    with torch.inference_mode():
        assert torch.equal(F.layer_norm(x, (16,), weight), normed)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(torch.softmax(x, -1), soft)
    with FakeTensorMode() as mode, counting() as calls:
        fake = F.layer_norm(mode.from_tensor(x), (16,))
        assert torch.softmax(fake, -1).shape == x.shape
    assert not calls
    assert torch.softmax(x.bfloat16(), -1, dtype=torch.float32).dtype == torch.float32
