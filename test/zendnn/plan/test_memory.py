"""What plans avoid: copies between layouts, memory for results, and calls of torch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.backends.zendnn import passes
from torch.backends.zendnn.ir.node import Value

from ..common import DTYPES, HAS_TILES, HAS_WIDE_VECTORS, PRIMITIVE_DTYPES, PRODUCT_DTYPES
from ..support import samples
from ..support.graphs import Builder
from ..support.plans import (
    arena_bytes,
    check,
    copies_of,
    implementations,
    layout_of,
    make_plan,
    region_of,
    tensor,
    then,
)

SIZE = 32


@pytest.fixture(params=["blocked", "channels_last"])
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The layout of images inside the plan."""
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", request.param)
    return str(request.param)


@pytest.fixture
def no_tiles(dtype: torch.dtype) -> None:
    if dtype == torch.bfloat16 and HAS_TILES:
        pytest.skip("a convolution on AMX tiles needs extra memory, as large as the images")


def image(
    b: Builder, channels: int, dtype: torch.dtype, layout: str = "contiguous", batch: int = 1
) -> Value:
    return b.input(tensor(batch, channels, SIZE, SIZE, dtype=dtype, layout=layout))


#: A convolution that keeps the size of images.
convolved = functools.partial(samples.convolved, size=3)


def bytes_of(channels: int, dtype: torch.dtype, batch: int = 1) -> int:
    """The bytes of an image."""
    return batch * channels * SIZE * SIZE * dtype.itemsize


# In place.


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.usefixtures("layout", "no_tiles")
def test_residuals_of_convolutions_are_added_in_place(
    b: Builder, batch: int, dtype: torch.dtype
) -> None:
    """The residual and the inner layer need memory; the sum needs none."""
    x = convolved(b, image(b, 16, dtype, batch=batch), 16, 16)
    for _ in range(3):
        inner = then(b, convolved(b, x, 16, 16), "relu")
        x = then(b, convolved(b, inner, 16, 16), ("add", x), "relu")
    plan = check(b, convolved(b, x, 16, 16), dtype=dtype)
    assert arena_bytes(plan) < 2.5 * bytes_of(16, dtype, batch), implementations(plan)


@pytest.mark.skipif(
    not HAS_WIDE_VECTORS,
    reason="products for AVX2 need extra memory, as large as the result",
)
@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
def test_residuals_of_linear_layers_are_added_in_place(b: Builder, dtype: torch.dtype) -> None:
    x = b.linear(b.input(tensor(256, 64, dtype=dtype)), 64, 64)
    for _ in range(3):
        inner = then(b, b.linear(x, 64, 64), "relu")
        x = then(b, b.linear(inner, 64, 64), ("add", x), "relu")
    plan = check(b, b.linear(x, 64, 64), dtype=dtype)
    if dtype in PRODUCT_DTYPES:
        assert arena_bytes(plan) < 2.5 * 256 * 64 * dtype.itemsize, implementations(plan)


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("rows", [1, 64])
def test_joined_weights_are_packed_and_not_copied(
    b: Builder, rows: int, dtype: torch.dtype
) -> None:
    weights = b("cat", *(b.constant(features, 64) for features in (64, 17, 96)), dim=0)
    x = b.input(tensor(rows, 64, dtype=dtype))
    plan = check(b, *(b("linear", x, weights, b.constant(177)) for _ in range(2)), dtype=dtype)
    assert len(implementations(plan)) == 2
    if dtype in PRODUCT_DTYPES:
        assert arena_bytes(plan) < 177 * 64 * dtype.itemsize


@pytest.mark.parametrize("dtype", DTYPES)
def test_joined_weights_that_others_read_are_a_tensor(b: Builder, dtype: torch.dtype) -> None:
    parts = [b.constant(features, 16) for features in (16, 32)]
    weights = b("cat", *parts, dim=0)
    x = b.input(tensor(48, 16, dtype=dtype))
    check(b, b.binary("add", x, weights), b("cat", x, weights, dim=0), dtype=dtype)


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.usefixtures("layout", "no_tiles")
def test_functions_of_images_run_in_place(b: Builder, dtype: torch.dtype) -> None:
    x = convolved(b, image(b, 16, dtype), 16, 64)
    for name in ("tanh", "sigmoid", "abs"):
        x = b.eltwise(name, x)
    plan = check(b, convolved(b, x, 64, 16), dtype=dtype)
    assert arena_bytes(plan) < 2 * bytes_of(64, dtype), implementations(plan)


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_of_rows_run_in_place(b: Builder, dtype: torch.dtype) -> None:
    x = b.input(tensor(64, 64, dtype=dtype))
    for name in ("tanh", "sigmoid", "abs"):
        x = b.eltwise(name, x)
    other = b.input(tensor(64, dtype=dtype))
    for name in ("add", "mul"):
        x = b.binary(name, x, other)
    with passes.disable("fuse_pointwise"):
        plan = check(b, b.eltwise("relu", x), dtype=dtype)
    assert arena_bytes(plan) == 64 * 64 * dtype.itemsize
    assert copies_of(plan) == 0, implementations(plan)


# Concatenations.


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
def test_convolutions_write_blocks_into_a_concatenation(
    b: Builder, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", "blocked")
    x = image(b, 16, dtype)
    parts = [then(b, convolved(b, x, 16, count), "relu") for count in (16, 32, 16)]
    plan = check(b, convolved(b, b("cat", *parts, dim=1), 64, 16), dtype=dtype)
    assert copies_of(plan) == 2, implementations(plan)  # one in, one out


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("batch", [1, 3])
def test_operators_write_channels_into_a_concatenation(
    b: Builder, batch: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", "channels_last")
    x = image(b, 16, dtype, "channels_last", batch)
    parts = [
        b.binary("mul", convolved(b, x, 16, count), b.constant(count, 1, 1))
        for count in (16, 3, 17)
    ]
    plan = check(b, convolved(b, b("cat", *parts, dim=1), 36, 16), dtype=dtype)
    assert copies_of(plan) == 0, implementations(plan)


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
def test_a_nested_concatenation_is_made_in_place(b: Builder, dtype: torch.dtype) -> None:
    x = b.input(tensor(8, 16, dtype=dtype))
    inner = b("cat", b.linear(x, 16, 16), b.linear(x, 32, 16), dim=1)
    outer = b("cat", b.linear(x, 16, 16), inner, dim=1)
    plan = check(b, b.linear(outer, 8, 64), dtype=dtype)
    assert copies_of(plan) == 0, implementations(plan)


# Layouts.


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.usefixtures("layout")
def test_images_are_reordered_once_in_and_once_out(
    b: Builder, batch: int, dtype: torch.dtype
) -> None:
    """Although two layers read the image, and the layers are of many kinds."""
    x = image(b, 16, dtype, batch=batch)
    one = then(b, convolved(b, x, 16, 32), "relu")
    pool = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1)}
    y = b("max_pool", then(b, convolved(b, x, 16, 32), ("add", one)), **pool)
    y = b.eltwise("hardswish", then(b, convolved(b, y, 32, 32), ("add", y)))
    plan = check(b, convolved(b, y, 32, 16), dtype=dtype)
    first, *between, last = implementations(plan)
    assert copies_of(plan) == 2, (first, between, last)
    assert first.startswith(("copy", "reorder"))
    assert last.startswith(("copy", "reorder"))


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("batch", [1, 3])
def test_channels_last_images_stay_as_they_are(
    b: Builder, batch: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", "channels_last")
    x = image(b, 16, dtype, "channels_last", batch)
    y = convolved(b, then(b, convolved(b, x, 16, 32), "relu"), 32, 16)
    plan = check(b, y, dtype=dtype)
    assert copies_of(plan) == 0, implementations(plan)


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
def test_rows_and_heads_are_never_copied(b: Builder, dtype: torch.dtype) -> None:
    """A transformer layer: projections, heads that are views of them, and norms."""
    x = b.input(tensor(2, 7, 32, dtype=dtype))
    q, k, v = (b("transpose", b("view", b.linear(x, 32, 32), 2, 7, 4, 8), 1, 2) for _ in range(3))
    seen = b("attention", q, k, v, None, scale=0.0, causal=False, swapped=True)
    y = then(b, b.linear(b("view", seen, 2, 7, 32), 32, 32), ("add", x))
    y = b.layer_norm(y, 32)
    plan = check(b, b.linear(then(b, b.linear(y, 64, 32), "gelu"), 32, 64), dtype=dtype)
    assert copies_of(plan) == 0, implementations(plan)


# The arena.


def test_the_arena_holds_only_values_that_live_at_the_same_time(b: Builder) -> None:
    """Two of eight equal results live at a time; 4 KiB allow for a primitive's scratchpad."""
    x = b.input(tensor(256, 64))
    for _ in range(8):
        x = b.linear(x, 64, 64)
    assert arena_bytes(check(b, x)) <= 2 * 256 * 64 * 4 + 4096


def test_a_late_value_takes_the_place_of_an_early_one(b: Builder) -> None:
    """Large, small, large: the second large result takes the place of the first."""
    x = b.input(tensor(64, 16))
    for width, of in ((512, 16), (16, 512), (512, 16)):
        x = b.linear(x, width, of)
    assert arena_bytes(check(b, b.linear(x, 16, 512))) <= 64 * (512 + 16) * 4 + 4096


@pytest.mark.parametrize("name", ["join_in_place", "reuse_operands", "share_memory"])
def test_each_optimisation_of_memory_can_be_switched_off(b: Builder, name: str) -> None:
    def layer() -> Value:
        return b.eltwise("tanh", b.linear(b.input(tensor(256, 64)), 64, 64))

    y = b.linear(b("cat", b.eltwise("exp", layer()), layer(), dim=1), 32, 128)
    y = b.linear(b.eltwise("tanh", b.linear(y, 256, 32)), 8, 256)
    sparing = check(b, y)
    with passes.disable(name):
        plain = check(b, y)
    used, plainly_used = ((arena_bytes(p), len(implementations(p))) for p in (sparing, plain))
    assert used < plainly_used
    assert used[1] <= plainly_used[1]


def test_the_choice_of_layouts_can_be_switched_off(
    b: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", "any")
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "1")
    y = convolved(b, image(b, 16, torch.float32), 16, 16)
    with passes.disable("choose_layout"):
        plan = check(b, y)
    assert layout_of(plan) == "channels_last"


@pytest.mark.parametrize("dtype", DTYPES)
def test_buffers_start_at_multiples_of_64_bytes(b: Builder, dtype: torch.dtype) -> None:
    """Three small values that live at the same time take 64 bytes each."""
    x = b.input(tensor(5, dtype=dtype))
    one, two, three = (b.eltwise(name, x) for name in ("tanh", "sigmoid", "abs"))
    out = b.binary("add", b.binary("add", one, two), three)
    with passes.disable("fuse_pointwise"):
        assert arena_bytes(check(b, out, dtype=dtype)) == 3 * 64


# Running.


def profiled(
    run: Callable[..., list[Tensor]], *arguments: Any
) -> tuple[list[str], list[int], list[Tensor]]:
    """torch's events and allocations inside a plan's event, and the results."""
    run(*arguments)  # builds the executable for the next call
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        results = run(*arguments)
    events = profile.profiler.kineto_results.events()
    (plan,) = [event for event in events if event.name() == "zendnn::test"]
    inside = [
        event
        for event in events
        if event is not plan and plan.start_ns() <= event.start_ns() <= plan.end_ns()
    ]
    names = [event.name() for event in inside if event.name() != "[memory]"]
    sizes = [event.nbytes() for event in inside if event.name() == "[memory]"]
    return names, sizes, results


def test_running_dispatches_nothing_and_allocates_its_results_and_an_arena(b: Builder) -> None:
    """By torch's profiler, for a plan with primitives, kernels, copies and three results."""
    x = b.input(tensor(2, 16, 8, 8))
    y = then(b, convolved(b, x, 16, 24), "relu")
    rows = b("flatten", y, 2, 3)
    out = b.linear(b("softmax", rows, dim=-1), 5, 64)
    plan = make_plan(region_of(b, y, rows, out))
    names, sizes, results = profiled(plan.run, b.examples, [])
    assert names == [f"zendnn::{name}" for name in implementations(plan)]
    arena = arena_bytes(plan)
    assert sizes == [*(x.nbytes for x in results), arena, -arena]
