"""Softmax, norms, sums, means, argmax, triangles and pooling in plans."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.backends.zendnn.ir.node import Value

from test.drawing import property_test

from ..common import DTYPES, PRIMITIVE_DTYPES, dtypes, primitive_dtypes, values
from ..support.graphs import Builder
from ..support.plans import (
    ARRANGEMENTS,
    CHANNELS,
    check,
    implementations,
    make_plan,
    refusal,
    region_of,
    tensor,
    then,
)
from ..support.samples import (
    SMALL,
    arrangements,
    batches,
    channels,
    convolved,
    joined,
    lengths,
    made,
)


def assert_equal(got: torch.Tensor, want: torch.Tensor) -> None:
    """All numbers are the same, NaN and infinities included."""
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@property_test
@given(data=st.data())
def test_softmax(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype = draw(dtypes)
    shape = draw(st.lists(lengths.filter(lambda n: n < 40), min_size=1, max_size=3))
    x = b.input(tensor(*shape, dtype=dtype, layout=draw(arrangements)))
    if draw(st.booleans()):
        x = b.eltwise("affine", x, 3.0, 0.0)
    dim = draw(st.integers(-len(shape), len(shape) - 1))
    check(b, b("softmax", x, dim=dim, log=draw(st.booleans())), dtype=dtype)


@property_test
@given(data=st.data())
def test_layer_norm(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype = draw(dtypes)
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 8, 17]), min_size=1, max_size=3))
    shape = [*shape, draw(st.sampled_from([5, 16, 33, 64]))]
    dims = draw(st.integers(1, len(shape)))

    def operand(seed: int) -> Value:
        x = b.input(tensor(*shape, dtype=dtype, layout=layout, seed=seed))
        return b.eltwise("affine", x, 2.0, 0.5) if computed else x

    layout = draw(arrangements.filter(lambda name: name != "repeated_last"))
    computed = draw(st.booleans())
    x = operand(0)
    weight, bias = (b.constant(*shape[-dims:]) if draw(st.booleans()) else None for _ in range(2))
    residual = operand(1) if draw(st.booleans()) else None
    results = draw(st.integers(1, 2)) if residual else 1
    node = b.node("layer_norm", x, weight, bias, residual, results=results, eps=1e-5, dims=dims)
    check(b, *node.outputs, dtype=dtype)


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("results", [1, 2])
@pytest.mark.parametrize(
    ("own", "other"), [((3, 5, 16), (1, 1, 16)), ((1, 5, 16), (3, 5, 1)), ((16,), (2, 16))]
)
def test_norms_of_a_sum_that_broadcasts(
    b: Builder, own: tuple[int, ...], other: tuple[int, ...], results: int, op: str
) -> None:
    x, y = b.input(tensor(*own)), b.input(tensor(*other, seed=1))
    weight, bias = b.constant(16), b.constant(16) if op == "layer_norm" else None
    node = b.node(op, x, weight, bias, y, results=results, eps=1e-5, dims=1)
    check(b, *node.outputs)


@pytest.mark.parametrize("weight", [None, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [None, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_norm_with_factors_of_another_type(
    b: Builder, dtype: torch.dtype, bias: torch.dtype | None, weight: torch.dtype | None
) -> None:
    """Refused if the two dtypes differ or are less exact than x, as by torch, and never misread."""
    x = tensor(4, 33, dtype=dtype)
    factors = [None if t is None else tensor(33, dtype=t, seed=7) for t in (weight, bias)]
    first = b.input(x)
    operands = [None if f is None else b.input(f) for f in factors]
    out = b("layer_norm", first, *operands, None, eps=1e-5, dims=1)
    plan, tensors = make_plan(region_of(b, out)), b.examples
    less_exact = dtype == torch.float32 and torch.bfloat16 in (weight, bias)
    if less_exact or (None not in (weight, bias) and weight != bias):
        assert not plan.takes(tensors, [])
        return
    (got,) = plan.run(tensors, [])
    wide = [None if f is None else f.double() for f in factors]
    want = F.layer_norm(x.double(), (33,), weight=wide[0], bias=wide[1])
    tolerance = 1e-5 if dtype == torch.float32 else 2.0**-7
    assert (got.double() - want).abs().max() <= tolerance * want.abs().max()


def test_layer_norm_of_the_sum_of_a_value_and_itself(b: Builder) -> None:
    x = made(b, 4, 16)
    out = b("layer_norm", x, None, None, x, eps=1e-5, dims=1)
    check(b, b.eltwise("tanh", out))


def test_layer_norm_of_the_sum_of_two_views(b: Builder) -> None:
    x = made(b, 40, 16)
    one, two = (b("slice", x, 0, i, 38 + i, 1) for i in (2, 0))
    out = b("layer_norm", one, None, None, two, eps=1e-5, dims=1)
    check(b, b.eltwise("tanh", out))


@property_test
@given(data=st.data())
def test_sums_and_means_over_any_dimensions(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype = draw(dtypes)
    shape = draw(st.lists(st.sampled_from([1, 2, 5, 17]), min_size=1, max_size=4))
    dims = draw(st.lists(st.integers(0, len(shape) - 1), unique=True))
    dims = [dim - len(shape) if draw(st.booleans()) else dim for dim in dims]
    x = b.input(tensor(*shape, dtype=dtype, layout=draw(arrangements)))
    op = draw(st.sampled_from(["sum", "mean"]))
    check(b, b(op, x, dims=tuple(dims), keep=draw(st.booleans())), dtype=dtype)


@property_test
@given(data=st.data())
def test_argmax(data: st.DataObject) -> None:
    """The first of equal numbers, and NaN first; integers, so that many are equal."""
    b, draw = Builder(), data.draw
    dtype = draw(dtypes)
    shape = draw(st.lists(st.sampled_from([1, 2, 5, 17, 40]), min_size=1, max_size=4))
    dims = draw(st.lists(st.integers(-len(shape), len(shape) - 1), max_size=1))
    numbers = values(*shape, dtype=dtype).mul(2).round()
    if draw(st.booleans()):
        numbers.view(-1)[draw(st.integers(0, numbers.numel() - 1))] = math.nan
    x = ARRANGEMENTS[draw(arrangements)](numbers)
    keep = draw(st.booleans())
    region = region_of(b, b("argmax", b.input(x), dims=tuple(dims), keep=keep))
    (got,) = make_plan(region).run([x], [])
    assert torch.equal(got, x.argmax(dims[0] if dims else None, keepdim=keep))


@property_test
@given(data=st.data())
def test_the_largest_and_the_smallest_elements(data: st.DataObject) -> None:
    """NaN if there is one, in a row or in a column."""
    b, draw = Builder(), data.draw
    dtype, op = draw(dtypes), draw(st.sampled_from(["amax", "amin"]))
    shape = draw(st.lists(st.sampled_from([1, 2, 5, 17, 40, 600]), min_size=1, max_size=3))
    first = draw(st.integers(0, len(shape) - 1))
    dims = draw(st.permutations(range(first, draw(st.integers(first, len(shape))))).map(tuple))
    dims = tuple(dim - len(shape) if draw(st.booleans()) else dim for dim in dims)
    numbers = values(*shape, dtype=dtype)
    for special in draw(st.lists(st.sampled_from([math.nan, math.inf, -math.inf]), max_size=3)):
        numbers.view(-1)[draw(st.integers(0, numbers.numel() - 1))] = special
    x = ARRANGEMENTS[draw(arrangements)](numbers)
    keep = draw(st.booleans())
    (got,) = make_plan(region_of(b, b(op, b.input(x), dims=dims, keep=keep))).run([x], [])
    assert_equal(got, getattr(x, op)(dims, keep))


@pytest.mark.parametrize("op", ["amax", "amin"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool])
@pytest.mark.parametrize("dims", [(), (0,), (1, 2), (-1,)])
def test_the_largest_and_the_smallest_integers(
    b: Builder, dims: tuple[int, ...], dtype: torch.dtype, op: str
) -> None:
    x = (values(3, 5, 4) * 3).to(dtype)
    (got,) = make_plan(region_of(b, b(op, b.input(x), dims=dims))).run([x], [])
    assert_equal(got, getattr(x, op)(dims))


def test_torch_finds_the_largest_elements_of_dimensions_that_are_apart(b: Builder) -> None:
    x = b.input(values(3, 5, 4))
    y = b("softmax", b.eltwise("tanh", x), dim=-1)
    plan = make_plan(region_of(b, b("amax", y, dims=(0, 2)), y))
    whole, got = plan.run(b.examples, [])
    assert_equal(got, whole.amax((0, 2)))
    assert [step for step in implementations(plan) if "torch" in step]


def test_dimensions_that_repeat_are_refused(b: Builder) -> None:
    plan = make_plan(region_of(b, b("amax", b.input(values(3, 5, 4)), dims=(1, 1))))
    assert not plan.takes(b.examples, [])
    assert "repeats a dimension" in refusal(plan)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("shape", [(1, 200_001), (2, 70_000), (70_001, 3), (3, 9, 5000)])
def test_threads_share_the_largest_elements(
    b: Builder, shape: tuple[int, ...], threads: int
) -> None:
    x = values(*shape)
    results = [b("amax", b.input(x), dims=dims) for dims in ((), (0,), (-1,))]
    region = region_of(b, *results)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        got = make_plan(region).run([x] * 3, [])
    finally:
        torch.set_num_threads(before)
    for mine, dims in zip(got, ((), (0,), (-1,)), strict=True):
        assert_equal(mine, x.amax(dims))


@pytest.mark.parametrize("op", ["triu", "tril"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("diagonal", [-9, -1, 0, 2, 9])
@pytest.mark.parametrize("shape", [(5, 7), (2, 3, 8, 4), (1, 1)])
def test_triangles(
    b: Builder, op: str, dtype: torch.dtype, diagonal: int, shape: tuple[int, ...]
) -> None:
    x = tensor(*shape).mul_(9).to(dtype)
    region = region_of(b, b(op, b.input(x), diagonal=diagonal))
    (got,) = make_plan(region).run([x], [])
    assert torch.equal(got, getattr(x, op)(diagonal))


@property_test
@given(data=st.data())
def test_pooling(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dims, dtype = draw(st.integers(1, 3)), draw(primitive_dtypes)
    shape = (draw(batches), draw(channels), *(draw(st.integers(5, 9)) for _ in range(dims)))
    kernel = draw(st.lists(st.integers(1, 3), min_size=dims, max_size=dims).map(tuple))
    attributes = {
        "kernel": kernel,
        "stride": draw(st.lists(st.integers(1, 3), min_size=dims, max_size=dims).map(tuple)),
        "padding": tuple(draw(st.integers(0, size // 2)) for size in kernel),
        "ceil": draw(st.booleans()),
    }
    op = draw(st.sampled_from(["max_pool", "avg_pool"]))
    if op == "max_pool":
        attributes["dilation"] = (draw(st.integers(1, 2)),) * dims
    else:
        attributes["include_pad"] = draw(st.booleans())
    x = b.input(tensor(*shape, dtype=dtype, layout=draw(arrangements)))
    if draw(st.booleans()):
        x = b.eltwise("affine", x, 1.0, -3.0)  # all below a padding of 0
    out = b(op, x, **attributes)
    plan = make_plan(region_of(b, out))
    tensors = [b.examples[0]]
    if plan.takes(tensors, []):
        check(b, out, dtype=dtype)
    elif op == "avg_pool" and dims == 3 and dtype == torch.bfloat16:
        assert "an average over volumes" in refusal(plan)
    else:
        assert (attributes["include_pad"], attributes["ceil"]) == (True, True)
        assert "beyond the padding" in refusal(plan)


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("window", [(3, 2, 1), (25, 1, 12), (2, 2, 0), (4, 3, 2), (8, 8, 0)])
@pytest.mark.parametrize("more", [{}, {"ceil": True}], ids=str)
def test_pooling_of_signals(
    b: Builder, more: dict[str, Any], window: tuple[int, int, int], dtype: torch.dtype
) -> None:
    size, stride, padding = window
    x = b.input(tensor(2, 5, 70, dtype=dtype))
    attributes = {"kernel": (size,), "stride": (stride,), "padding": (padding,), **more}
    results = [
        b("max_pool", x, dilation=(1,), **attributes),
        b("avg_pool", x, include_pad=False, **attributes),
    ]
    if not more:
        results.append(b("avg_pool", x, include_pad=True, **attributes))
    plan = check(b, *results, dtype=dtype)
    if dtype == torch.float32:  # ZenDNN is fast in bfloat16
        assert Counter(implementations(plan)) == {"max_pool": 1, "avg_pool": len(results) - 1}


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        *itertools.product([(2, 5, 70), (2, 5, 9, 8)], PRIMITIVE_DTYPES),
        ((2, 3, 4, 5, 6), torch.float32),
    ],
    ids=str,
)
def test_average_of_whole_images(b: Builder, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, one = b.input(tensor(*shape, dtype=dtype)), (1,) * (len(shape) - 2)
    padding = tuple(0 for _ in one)
    attributes = {"kernel": shape[2:], "stride": one, "padding": padding, "include_pad": True}
    results = [b("adaptive_avg_pool", x, sizes=one), b("avg_pool", x, **attributes)]
    plan = check(b, *results, joined(b, results[0], results[1]), dtype=dtype)
    assert implementations(plan).count("mean") == 2


def test_volumes_are_averaged_in_the_dtypes_of_torch(b: Builder) -> None:
    volume = torch.ones(2, 3, 4, 5, 6, dtype=torch.bfloat16)
    with pytest.raises(RuntimeError, match="not implemented for 'BFloat16'"):
        F.avg_pool3d(volume, 2)
    attributes = {"kernel": (2, 2, 2), "stride": (2, 2, 2), "padding": (0, 0, 0)}
    out = b("avg_pool", b.input(volume), **attributes, include_pad=True)
    plan = make_plan(region_of(b, out))
    assert not plan.takes([volume], [])
    assert "an average over volumes in a dtype other than float32" in refusal(plan)


@pytest.mark.parametrize("place", [0, 6, 19])
def test_pooling_of_signals_keeps_nan(b: Builder, place: int) -> None:
    signal = tensor(1, 1, 20)
    signal[0, 0, place] = math.nan
    x = b.input(signal)
    attributes = {"kernel": (3,), "stride": (1,), "padding": (1,)}
    plan = make_plan(region_of(b, b("max_pool", x, **attributes), b("avg_pool", x, **attributes)))
    expected = F.max_pool1d(signal, 3, 1, 1), F.avg_pool1d(signal, 3, 1, 1)
    for got, right in zip(plan.run(b.examples, []), expected, strict=True):
        torch.testing.assert_close(got, right, equal_nan=True)


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize("op", ["max_pool", "avg_pool", "adaptive_avg_pool", "mean"])
@pytest.mark.parametrize("count", CHANNELS)
def test_pooling_between_convolutions(b: Builder, count: int, op: str) -> None:
    x = then(b, convolved(b, b.input(tensor(2, 3, 8, 8)), 3, count, 3), "relu")
    attributes: dict[str, dict[str, Any]] = {
        "max_pool": {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1), "dilation": (1, 1)},
        "avg_pool": {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0), "include_pad": True},
        "adaptive_avg_pool": {"sizes": (2, 4)},
        "mean": {"dims": (2, 3), "keep": True},
    }
    check(b, convolved(b, b(op, x, **attributes[op]), count, 8))


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        ((3, 17, 12), (4,)),
        ((1, 8, 6, 9), (2, 3)),
        ((2, 3, 6, 6), (1, 1)),
        ((1, 3, 4, 6, 8), (2, 3, 1)),
    ],
)
def test_adaptive_pooling(
    b: Builder, shape: tuple[int, ...], sizes: tuple[int, ...], dtype: torch.dtype
) -> None:
    results = []
    for layout in ("contiguous", "transposed", "strided", "channels_last", "repeated"):
        x = b.input(tensor(*shape, dtype=dtype, layout=layout))
        results.append(b("adaptive_avg_pool", x, sizes=sizes))
    check(b, *results, dtype=dtype)


@property_test
@given(data=st.data())
def test_rms_norm(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype, dims = draw(dtypes), draw(st.integers(1, 2))
    shape = (draw(batches), draw(lengths), draw(lengths))
    x = b.input(tensor(*shape, dtype=dtype, layout=draw(arrangements)))
    weight = b.constant(*shape[-dims:]) if draw(st.booleans()) else None
    residual = b.input(tensor(*shape, dtype=dtype, seed=1)) if draw(st.booleans()) else None
    results = draw(st.integers(1, 2))
    node = b.node(
        "rms_norm", x, weight, None, residual, results=results, eps=draw(SMALL), dims=dims
    )
    check(b, *node.outputs, dtype=dtype, constants=draw(dtypes) if weight else None)


def test_softmax_keeps_subnormals(b: Builder) -> None:
    x = b("softmax", b.input(torch.tensor([[0.0, -92.0] * 4] * 2)), dim=-1)
    (got,) = make_plan(region_of(b, x)).run(b.examples, [])
    assert (got[:, 1] > 0).all()
