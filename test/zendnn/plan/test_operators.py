"""Each operator of docs/plan.md as plans run it: any size, layout, post-op and use of results."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor
from torch.backends.zendnn.graph import Value
from torch.backends.zendnn.passes._operators import MATCHED_ONLY

from ..common import (
    DTYPES,
    HAS_WIDE_VECTORS,
    PRIMITIVE_DTYPES,
    dtypes,
    primitive_dtypes,
    property_test,
    stock,
    values,
)
from ..cpu.ulps import floats, ulps
from ..passes.build import Builder
from ..passes.interpreter import BINARY, ELTWISE
from .check import (
    ARRANGEMENTS,
    BATCHES,
    CHANNELS,
    check,
    copies_of,
    implementations,
    interpret,
    last_node,
    make_plan,
    refusal,
    region_of,
    tensor,
    tensors_and_numbers,
    then,
)

LAYOUTS = ("any", "blocked", "channels_last")

arrangements = st.sampled_from(sorted(ARRANGEMENTS))
channels = st.sampled_from(CHANNELS)
batches = st.sampled_from(BATCHES)
#: Lengths on both sides of a vector's.
lengths = st.sampled_from((1, 2, 5, 8, 15, 16, 17, 31, 33, 64))

#: Every function that a plan takes, with parameters that matter.
FUNCTIONS: dict[str, tuple[float, float]] = {
    **dict.fromkeys((name for name in ELTWISE if name not in MATCHED_ONLY), (0.0, 0.0)),
    "leaky_relu": (0.1, 0.0),
    "clip": (-0.5, 0.75),
    "elu": (0.7, 0.0),
    "linear": (-1.5, 0.25),
}
#: What makes the operand of a function one that it is defined and smooth for.
BEFORE: dict[str, list[tuple[str, float, float]]] = {
    "sqrt": [("abs", 0.0, 0.0), ("linear", 1.0, 0.5)],
    "log": [("abs", 0.0, 0.0), ("linear", 1.0, 0.5)],
    "exp": [("tanh", 0.0, 0.0)],
}


@pytest.fixture(autouse=True)
def untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first implementation serves: which one is faster is not the subject here."""
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "0")


@pytest.fixture
def b() -> Builder:
    return Builder()


@pytest.fixture(params=LAYOUTS)
def images(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How a plan lays out images inside."""
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", request.param)
    return str(request.param)


def is_round(name: str, dtype: torch.dtype) -> bool:
    """Whether half a unit in the last place may make a whole one of it."""
    return name == "round" and dtype != torch.float32


def made(b: Builder, *shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Value:
    """A value that the region computes row by row, and so may overwrite."""
    return b.eltwise("linear", b.input(tensor(*shape, dtype=dtype, seed=seed)), 0.5, 0.25)


def convolved(b: Builder, x: Value, inputs: int, outputs: int, size: int = 1, **more: Any) -> Value:
    """A convolution of images that keeps their size."""
    padding = (size // 2,) * 2
    weight = b.graph.constant(
        torch.randn(outputs, inputs, size, size, dtype=torch.float64)
        / (inputs * size * size) ** 0.5
    )
    return b.convolution(x, weight, b.constant(outputs), padding=padding, **more)


# Convolutions.


@property_test
@given(data=st.data())
def test_convolutions(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dims, dtype = draw(st.integers(1, 3)), draw(primitive_dtypes)
    kind = draw(st.sampled_from(["plain", "depthwise", "multiplied", "grouped"]))
    inputs, outputs, groups = draw(channels), draw(channels), 1
    if kind == "depthwise":
        groups, outputs = inputs, inputs
    elif kind == "multiplied":
        groups, outputs = inputs, 2 * inputs
    elif kind == "grouped":
        groups, inputs, outputs = 2, 2 * inputs, 2 * outputs
    each = st.lists(st.integers(1, 3), min_size=dims, max_size=dims).map(tuple)
    pads = st.lists(st.integers(0, 2), min_size=dims, max_size=dims).map(tuple)
    attributes = {
        "stride": draw(each),
        "dilation": draw(st.sampled_from([1, 2]).map(lambda n: (n,) * dims)),
        "padding": draw(pads),
        "groups": groups,
    }
    if draw(st.booleans()):
        attributes["padding_end"] = draw(pads)
    shape = (draw(batches), inputs, *(draw(st.integers(5, 9)) for _ in range(dims)))
    x = b.input(tensor(*shape, dtype=dtype, layout=draw(arrangements)))
    weight = b.constant(outputs, inputs // groups, *draw(each))
    bias = b.constant(outputs) if draw(st.booleans()) else None
    check(b, b.convolution(x, weight, bias, **attributes), dtype=dtype)


@property_test
@given(data=st.data())
def test_transposed_convolutions(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dims, dtype, groups = (
        draw(st.integers(1, 3)),
        draw(primitive_dtypes),
        draw(st.sampled_from([1, 2])),
    )
    inputs, outputs = draw(channels) * groups, draw(channels)
    stride, padding = draw(st.integers(1, 3)), draw(st.integers(0, 1))
    attributes = {
        "transposed": True,
        "stride": (stride,) * dims,
        "dilation": (draw(st.integers(1, 2)),) * dims,
        "padding": (padding,) * dims,
        "output_padding": (draw(st.integers(0, stride - 1)),) * dims,
        "groups": groups,
    }
    shape = (draw(batches), inputs, *(draw(st.integers(3, 6)) for _ in range(dims)))
    x = b.input(tensor(*shape, dtype=dtype, layout=draw(arrangements)))
    weight = b.constant(inputs, outputs, *(draw(st.integers(1, 3)) for _ in range(dims)))
    bias = b.constant(outputs * groups) if draw(st.booleans()) else None
    check(b, b.convolution(x, weight, bias, **attributes), dtype=dtype)


@pytest.mark.parametrize("layout", ["transposed", "padded", "repeated", "channels_last"])
@pytest.mark.parametrize("op", ["convolution", "linear"])
def test_constant_weights_of_any_layout(b: Builder, op: str, layout: str) -> None:
    x = b.input(tensor(2, 8, 6, 8))
    shape = (16, 8, 3, 3) if op == "convolution" else (16, 8)
    weight = b.graph.constant(ARRANGEMENTS[layout](torch.randn(shape, dtype=torch.float64)))
    bias = b.graph.constant(torch.randn(1, dtype=torch.float64).expand(16))
    out = b.convolution(x, weight, bias) if op == "convolution" else b("linear", x, weight, bias)
    check(b, out)


class TestWinograd:
    """Against the direct method, wherever the kernel can compute."""

    @pytest.fixture(autouse=True)
    @staticmethod
    def channels_last(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", "channels_last")

    @staticmethod
    def compare(b: Builder, monkeypatch: pytest.MonkeyPatch, *outputs: Value) -> None:
        region = region_of(b, *outputs)
        examples = dict(zip(b.graph.inputs, b.examples, strict=True))
        tensors = [examples[x] for x in region.inputs]
        results = {}
        for use in ("0", "2"):
            monkeypatch.setenv("ZENDNN_WINOGRAD", use)
            plan = make_plan(region)
            results[use] = plan.run(tensors, [])
            assert ("winograd" in implementations(plan)) == (use == "2"), implementations(plan)
        for direct, ours in zip(results["0"], results["2"], strict=True):
            assert (ours - direct).abs().max() <= 1e-4 * direct.abs().max()

    @pytest.mark.parametrize("threads", [1, 3])
    @pytest.mark.parametrize("batch", BATCHES)
    @pytest.mark.parametrize("padding", [{}, {"padding": (2, 0), "padding_end": (0, 3)}], ids=str)
    @pytest.mark.parametrize("size", [(3, 3), (4, 4), (7, 5), (14, 13), (33, 18)], ids=str)
    def test_of_odd_sizes(
        self,
        b: Builder,
        monkeypatch: pytest.MonkeyPatch,
        size: tuple[int, int],
        padding: dict[str, Any],
        batch: int,
        threads: int,
    ) -> None:
        outputs = []
        for inputs, filters in ((16, 16), (3, 17), (33, 8), (20, 70)):
            x = b.input(tensor(batch, inputs, *size))
            outputs.append(convolved(b, x, inputs, filters, 3))
            assert outputs[-1].producer is not None
            outputs[-1].producer.attributes.update(padding)
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            self.compare(b, monkeypatch, *outputs)
        finally:
            torch.set_num_threads(before)

    @pytest.mark.parametrize("bias", [True, False])
    @pytest.mark.parametrize("activation", ["none", "relu", "clip"])
    @pytest.mark.parametrize("residual", ["none", "input", "dies", "read later"])
    def test_with_post_ops(
        self,
        b: Builder,
        monkeypatch: pytest.MonkeyPatch,
        residual: str,
        activation: str,
        bias: bool,
    ) -> None:
        x = b.input(tensor(2, 16, 9, 7))
        other = b.input(tensor(2, 17, 9, 7))
        if residual != "input":
            other = convolved(b, x, 16, 17)
        weight = b.constant(17, 16, 3, 3)
        y = b.convolution(x, weight, b.constant(17) if bias else None, padding=(1, 1))
        if residual != "none":
            y = then(b, y, ("add", other))
        if activation != "none":
            y = then(b, y, (activation, *FUNCTIONS[activation]))
        self.compare(b, monkeypatch, y, *([other] if residual == "read later" else []))

    @pytest.mark.parametrize("batch", BATCHES)
    def test_into_a_slice(self, b: Builder, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
        x = b.input(tensor(batch, 16, 9, 7))
        parts = [convolved(b, x, 16, count, 3) for count in (16, 3, 20)]
        whole = b("cat", *parts, dim=1)
        self.compare(b, monkeypatch, whole, convolved(b, whole, 39, 8, 3), parts[1])

    def test_that_passes_nan_on(self, b: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ZENDNN_WINOGRAD", "2")
        x = b.input(torch.full((1, 16, 6, 6), math.nan))
        (got,) = make_plan(region_of(b, then(b, convolved(b, x, 16, 16, 3), "relu"))).run(
            b.examples, []
        )
        assert got.isnan().all()


def test_choices_depend_on_all_that_the_work_depends_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these has a line of its own among the choices."""
    path = tmp_path / "choices"
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "60")
    monkeypatch.setenv("ZENDNN_TUNING_CACHE", str(path))
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", "channels_last")

    def images(b: Builder, bias: bool = True, **more: Any) -> Value:
        x = b.input(tensor(1, 32, 12, 12))
        weight = b.constant(32, 32, 3, 3)
        return b.convolution(x, weight, b.constant(32) if bias else None, **more)

    def added(b: Builder, *shape: int) -> Value:
        return then(b, images(b, padding=(1, 1)), ("add", b.input(tensor(*shape))))

    def features(b: Builder, other: Value | None = None, bias: bool = True) -> Value:
        y = b.linear(b.input(tensor(4, 32)), 32, 32, bias)
        return y if other is None else then(b, y, ("add", other))

    works: list[Callable[[Builder], Value]] = [
        lambda b: images(b, padding=(1, 1)),
        lambda b: images(b, padding=(1, 1), padding_end=(0, 0)),
        lambda b: images(b, bias=False, padding=(1, 1)),
        lambda b: added(b, 1, 32, 12, 12),
        lambda b: added(b, 1, 32, 1, 1),
        lambda b: features(b),
        lambda b: features(b, bias=False),
        lambda b: features(b, b.input(tensor(4, 32))),
        lambda b: features(b, b.input(tensor(32))),
    ]
    known: set[str] = set()
    torch.backends.zendnn._C._forget_tuning()
    for i, work in enumerate(works):
        b = Builder()
        check(b, work(b))
        lines = {line.split("\t")[0] for line in path.read_text().splitlines()[1:]}
        assert len(lines) > len(known), f"work {i} has the key of another"
        known = lines
    torch.backends.zendnn._C._forget_tuning()


def test_no_more_is_timed_than_the_budget_allows(
    b: Builder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """But for two ways of the first choice: with one there is nothing to choose."""
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "1e-9")
    torch.backends.zendnn._C._forget_tuning()
    hidden = b.linear(b.input(tensor(37, 96)), 129, 96)
    with torch.backends.zendnn.verbose(1):
        check(b, b.linear(hidden, 64, 129))
    timed = [x for x in capfd.readouterr().out.splitlines() if ",tune," in x]
    assert len(timed) == 2, timed
    torch.backends.zendnn._C._forget_tuning()


# Products.


@property_test
@given(data=st.data())
def test_linear_layers(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype, inputs, outputs = draw(primitive_dtypes), draw(lengths), draw(lengths)
    shape = (*draw(st.lists(st.sampled_from([1, 2, 5, 17]), max_size=3)), inputs)
    x = b.input(tensor(*shape, dtype=dtype, layout=draw(arrangements)))
    check(b, b.linear(x, outputs, inputs, bias=draw(st.booleans())), dtype=dtype)


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"), [(1, 33, 70), (37, 96, 129), (64, 768, 768)]
)
def test_every_way_to_run_a_linear_layer_that_is_timed(
    rows: int,
    inputs: int,
    outputs: int,
    dtype: torch.dtype,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Plain and packed weights, in panels of any width, and BLIS: each is chosen by the cache."""
    path = tmp_path / "choices"
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "60")
    monkeypatch.setenv("ZENDNN_TUNING_CACHE", str(path))
    zendnn = torch.backends.zendnn

    def run() -> str:
        zendnn._C._forget_tuning()
        b = Builder()
        y = b.linear(b.input(tensor(rows, inputs, dtype=dtype)), outputs, inputs, bias=True)
        y = then(b, y, "relu", ("add", b.input(tensor(rows, outputs, dtype=dtype))))
        plan = check(b, y, dtype=dtype)
        return next(name for name in implementations(plan) if not name.startswith("copy"))

    with zendnn.verbose(zendnn.VERBOSE_ON):
        run()
    timed = [x.split(",")[2] for x in capfd.readouterr().out.splitlines() if ",tune," in x]
    assert len(timed) == len(set(timed))
    assert any("panels of 32" in way for way in timed) == HAS_WIDE_VECTORS
    assert any("plain" in way and "gemm" in way for way in timed)
    writer, line = path.read_text().splitlines()
    for way in timed:
        path.write_text(f"{writer}\n{line.split(chr(9))[0]}\t{way}\n")
        assert run() == way
    zendnn._C._forget_tuning()


@pytest.mark.parametrize("shape", [(4, 1, 16), (1, 4, 16), (4, 16), (4, 3, 16), (16,)])
def test_linear_layers_of_rows_that_repeat(b: Builder, shape: tuple[int, ...]) -> None:
    """As a class token is one for the whole batch."""
    base = tensor(*[1] * (len(shape) - 1), 16)
    x = b.input(base.expand(shape))
    check(b, b.linear(x, 8, 16))


def test_linear_layers_of_windows_that_overlap(b: Builder) -> None:
    """Rows that start one element after each other."""
    check(b, b.linear(b.input(tensor(40).unfold(0, 16, 1)), 8, 16))


@property_test
@given(data=st.data())
def test_matrix_products(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype, rows, inner, columns = (
        draw(primitive_dtypes),
        draw(lengths),
        draw(lengths),
        draw(lengths),
    )
    batch = draw(st.lists(st.sampled_from([2, 3]), max_size=3))
    fewer = [
        [size if draw(st.booleans()) else 1 for size in batch[draw(st.integers(0, len(batch))) :]]
        for _ in range(2)
    ]
    layouts = [draw(arrangements) for _ in range(2)]
    left = b.input(tensor(*fewer[0], rows, inner, dtype=dtype, layout=layouts[0]))
    right = b.input(tensor(*fewer[1], inner, columns, dtype=dtype, layout=layouts[1], seed=1))
    check(b, b("matmul", left, right), dtype=dtype)


def test_products_of_views(b: Builder) -> None:
    """Scores of attention that nobody fused."""
    x = made(b, 3, 7, 4 * 6)
    q = b("transpose", b("view", x, 3, 7, 4, 6), 1, 2)
    scores = b("matmul", q, b("transpose", q, -1, -2))
    out = b("transpose", b("matmul", b("softmax", scores, dim=-1), q), 1, 2)
    check(b, b("view", out, 3, 7, -1))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
def test_linear_layers_with_a_result_in_float32(b: Builder, dtype: torch.dtype, bias: bool) -> None:
    """It is never rounded to the type of the layer."""
    x = b.input(tensor(3, 5, 33, dtype=dtype))
    out = b("linear", x, b.constant(17, 33), b.constant(17) if bias else None, dtype="float32")
    region = region_of(b, then(b, out, "relu"))
    (got,) = make_plan(region, dtype).run(b.examples, [])
    (exact,) = interpret(region, b.examples, torch.float64, dtype)
    assert got.dtype == torch.float32
    assert (got.double() - exact).abs().max() <= 1e-5 * exact.abs().max()


#: Operands of a product of (2, 3, 5, 7), and whether the primitive takes them.
PRODUCT_OPERANDS: dict[tuple[int, ...], bool] = {
    **dict.fromkeys([(2, 3, 5, 7), (2, 3, 1, 7), (1, 1, 5, 7), (5, 7), (1, 7), (7,)], True),
    **dict.fromkeys([(1,), (), (1, 1, 1, 1)], True),
    **dict.fromkeys([(2, 1, 1, 7), (2, 1, 5, 7), (1, 3, 5, 7)], False),
}


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("shape", PRODUCT_OPERANDS, ids=str)
def test_products_scale_and_mask_their_result(
    b: Builder, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    """In one step where one stride leads from matrix to matrix of the mask."""
    q, k = b.input(tensor(2, 3, 5, 8, dtype=dtype)), b.input(tensor(2, 3, 8, 7, dtype=dtype))
    mask = b.input(tensor(*shape, dtype=dtype, seed=3))
    out = then(b, b("matmul", q, k), ("linear", 0.5, 0.0), ("add", mask))
    plan = check(b, out, dtype=dtype)
    steps = implementations(plan)
    assert len(steps) == (1 if PRODUCT_OPERANDS[shape] else 2), steps


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("use", ["dies", "read later", "result"])
def test_products_are_added_to_a_residual(
    b: Builder, use: str, shared: bool, dtype: torch.dtype
) -> None:
    x = b.input(tensor(2, 3, 5, 8, dtype=dtype))
    y = b.input(tensor(*(() if shared else (2, 3)), 8, 7, dtype=dtype))
    residual = made(b, 2, 3, 5, 7, dtype=dtype, seed=3)
    out = then(b, b("matmul", x, y), ("add", residual), "relu")
    if use == "read later":
        out = b.binary("mul", out, residual)
    results = [residual, out] if use == "result" else [b.eltwise("tanh", out)]
    plan = check(b, *results, dtype=dtype)
    assert len(implementations(plan)) == {"dies": 3, "read later": 4, "result": 2}[use]


# Post-ops.


PRODUCERS = ("convolution", "transposed", "linear", "matmul", "binary")


def producer(b: Builder, op: str, dtype: torch.dtype) -> Value:
    """The result of an operator that takes post-ops, of size (3, 17, 6, 8)."""
    if op == "convolution":
        x = b.input(tensor(3, 8, 6, 8, dtype=dtype))
        return convolved(b, x, 8, 17, 3)
    if op == "transposed":
        x = b.input(tensor(3, 8, 3, 4, dtype=dtype))
        weight, bias = b.constant(8, 17, 2, 2), b.constant(17)
        more = {"transposed": True, "output_padding": (0, 0), "stride": (2, 2)}
        return b.convolution(x, weight, bias, **more)
    if op == "linear":
        return b.linear(b.input(tensor(3, 17, 6, 5, dtype=dtype)), 8, 5)
    x, y = (b.input(tensor(*shape, dtype=dtype)) for shape in ((3, 17, 6, 5), (17, 5, 8)))
    if op == "matmul":
        return b("matmul", x, y)
    return b.binary(
        "mul", b.input(tensor(3, 17, 6, 8, dtype=dtype)), b.input(tensor(8, dtype=dtype))
    )


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("op", PRODUCERS)
def test_functions_as_post_ops(b: Builder, op: str, name: str, dtype: torch.dtype) -> None:
    if is_round(name, dtype):
        pytest.skip("half a unit in the last place may make a whole one")
    out = then(b, producer(b, op, dtype), *BEFORE.get(name, ()), (name, *FUNCTIONS[name]))
    check(b, out, dtype=dtype)


@pytest.mark.parametrize(("low", "high"), [(-math.inf, 0.5), (0.0, math.inf), (0.0, 6.0)])
@pytest.mark.parametrize("op", PRODUCERS)
def test_clips_with_one_bound(b: Builder, op: str, low: float, high: float) -> None:
    check(b, then(b, producer(b, op, torch.float32), ("clip", low, high)))


#: Operands of a post-op, against a result of (3, 17, 6, 8).
OPERANDS = [
    *((3, 17, 6, 8), (17, 1, 1), (1, 17, 1, 1), (3, 17, 1, 1), (8,), (1,), (6, 8), (3, 1, 1, 1)),
    *((1, 17, 6, 8), (3, 1, 6, 8), (17, 6, 1), (1, 1, 1, 1), ()),
]


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("shape", OPERANDS, ids=str)
@pytest.mark.parametrize("op", PRODUCERS)
def test_operands_of_post_ops(
    b: Builder, op: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    for name in BINARY:
        b = Builder()
        other = b.input(tensor(*shape, dtype=dtype, seed=5).abs() + 0.5)
        check(b, then(b, producer(b, op, dtype), (name, other), "relu"), dtype=dtype)


@property_test
@given(data=st.data())
def test_chains_of_post_ops(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype = draw(primitive_dtypes)
    op = draw(st.sampled_from(PRODUCERS))
    posts: list[tuple[Any, ...]] = []
    for _ in range(draw(st.integers(1, 4))):
        if draw(st.booleans()):
            name = draw(st.sampled_from(["relu", "sigmoid", "clip", "linear", "gelu", "hardswish"]))
            posts.append((name, *FUNCTIONS[name]))
            continue
        layout, shape = draw(arrangements), draw(st.sampled_from(OPERANDS[:-1]))
        x = tensor(*shape, dtype=dtype, layout=layout, seed=len(posts))
        operand = b.input(x) if draw(st.booleans()) else b.eltwise("abs", b.input(x))
        posts.append((draw(st.sampled_from(["add", "sub", "mul", "max"])), operand))
    check(b, then(b, producer(b, op, dtype), *posts), dtype=dtype)


#: Operands that make the result of the operator larger: its own size, and theirs.
LARGER = {
    "a larger batch": ((1, 16, 6, 8), (3, 16, 6, 8)),
    "a larger rank": ((3, 16, 6, 8), (2, 3, 16, 6, 8)),
    "larger in turn": ((3, 16, 1, 8), (1, 16, 6, 1)),
    "more columns": ((3, 16, 6, 1), (3, 16, 6, 8)),
}


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("how", LARGER)
@pytest.mark.parametrize("op", ["convolution", "linear", "matmul", "binary"])
def test_operands_of_post_ops_that_are_larger_than_the_result(
    b: Builder, op: str, how: str, dtype: torch.dtype
) -> None:
    """As torch.tanh(keys + query) adds keys of many positions to a query of one."""
    own, larger = LARGER[how]
    other, last = (b.input(tensor(*larger, dtype=dtype, seed=seed)) for seed in (5, 6))
    x = b.input(tensor(*own[:-1], 8, dtype=dtype))
    if op == "convolution":
        x = convolved(b, b.input(tensor(*own, dtype=dtype)), 16, 16)
    elif op == "linear":
        x = b.linear(x, own[-1], 8)
    elif op == "matmul":
        x = b("matmul", x, b.input(tensor(8, own[-1], dtype=dtype)))
    else:
        x = b.binary("mul", b.input(tensor(*own, dtype=dtype)), b.input(tensor(1, dtype=dtype)))
    gate = b.input(tensor(1, dtype=dtype))
    out = then(b, x, "sigmoid", ("mul", gate), ("sub", other), "tanh", ("add", last), "relu")
    check(b, out, dtype=dtype)


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
def test_operands_that_repeat_elements_are_not_copied(
    b: Builder, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    """As the embedding of a time step is added to each pixel."""
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", "channels_last")
    x = b.input(tensor(2, 16, 6, 8, dtype=dtype, layout="channels_last"))
    embedded = b.linear(b.input(tensor(2, 4, dtype=dtype)), 16, 4)
    wide = b("expand", b("view", embedded, 2, 16, 1, 1), -1, -1, 6, 8)
    y = then(b, convolved(b, x, 16, 16, 3), ("add", wide), "relu")
    plan = check(b, convolved(b, y, 16, 8), dtype=dtype)
    assert not [name for name in implementations(plan)[:-1] if name.startswith(("copy", "reorder"))]


# Residuals: whether a result may be added onto the memory of another value.


@pytest.fixture(params=["convolution", "linear"])
def block(request: pytest.FixtureRequest) -> Callable[..., Value]:
    """A layer that keeps its input's size, (2, 16, 8, 16)."""

    def layer(b: Builder, x: Value) -> Value:
        if request.param == "convolution":
            return convolved(b, x, 16, 16, 3)
        return b.linear(x, 16, 16)

    return layer


Block = Callable[[Builder, Value], Value]
SHAPE = (2, 16, 8, 16)


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.usefixtures("images")
class TestResiduals:
    @staticmethod
    def start(b: Builder, block: Block, dtype: torch.dtype) -> tuple[Value, Value]:
        x = b.input(tensor(*SHAPE, dtype=dtype))
        return x, then(b, block(b, x), "relu")

    def test_that_nobody_needs_later(self, b: Builder, block: Block, dtype: torch.dtype) -> None:
        x, residual = self.start(b, block, dtype)
        check(b, then(b, block(b, x), ("add", residual), "relu"), dtype=dtype)

    def test_that_is_read_later(self, b: Builder, block: Block, dtype: torch.dtype) -> None:
        x, residual = self.start(b, block, dtype)
        out = then(b, block(b, x), ("add", residual), "relu")
        check(b, b.binary("mul", out, residual), dtype=dtype)

    def test_that_is_a_result(self, b: Builder, block: Block, dtype: torch.dtype) -> None:
        x, residual = self.start(b, block, dtype)
        check(b, residual, then(b, block(b, x), ("add", residual)), dtype=dtype)

    def test_that_a_view_of_is_read_later(
        self, b: Builder, block: Block, dtype: torch.dtype
    ) -> None:
        x, residual = self.start(b, block, dtype)
        view = b("slice", residual, 1, 0, 4, 1)
        out = then(b, block(b, x), ("add", residual))
        check(b, b.binary("mul", b("slice", out, 1, 4, 8, 1), view), dtype=dtype)

    def test_that_a_view_of_is_a_result(self, b: Builder, block: Block, dtype: torch.dtype) -> None:
        x, residual = self.start(b, block, dtype)
        view = b("transpose", residual, 2, 3)
        check(b, view, then(b, block(b, x), ("add", residual)), dtype=dtype)

    def test_that_is_the_input(self, b: Builder, block: Block, dtype: torch.dtype) -> None:
        x, _ = self.start(b, block, dtype)
        check(b, then(b, block(b, x), ("add", x)), dtype=dtype)

    def test_with_two_readers_of_one_node(
        self, b: Builder, block: Block, dtype: torch.dtype
    ) -> None:
        _, residual = self.start(b, block, dtype)
        check(b, then(b, block(b, residual), ("add", residual), "relu"), dtype=dtype)

    def test_that_is_added_and_multiplied(
        self, b: Builder, block: Block, dtype: torch.dtype
    ) -> None:
        x, residual = self.start(b, block, dtype)
        check(b, then(b, block(b, x), ("add", residual), ("mul", residual)), dtype=dtype)

    def test_that_is_multiplied_and_added_as_a_view(
        self, b: Builder, block: Block, dtype: torch.dtype
    ) -> None:
        x, residual = self.start(b, block, dtype)
        same = b("view", residual, *SHAPE)
        check(b, then(b, block(b, x), ("add", residual), ("mul", same)), dtype=dtype)

    def test_that_is_a_view_of_what_the_layer_reads(
        self, b: Builder, block: Block, dtype: torch.dtype
    ) -> None:
        x = made(b, *SHAPE, dtype=dtype)
        view = b("view", x, *SHAPE)
        check(b, then(b, block(b, x), ("add", view)), dtype=dtype)

    def test_that_overlaps_with_what_the_layer_reads(
        self, b: Builder, block: Block, dtype: torch.dtype
    ) -> None:
        x = made(b, 3, 16, 8, 16, dtype=dtype)
        first, second = (b("slice", x, 0, i, i + 2, 1) for i in range(2))
        check(b, then(b, block(b, second), ("add", first)), dtype=dtype)

    def test_of_which_there_are_two(self, b: Builder, block: Block, dtype: torch.dtype) -> None:
        x, first = self.start(b, block, dtype)
        second = block(b, x)
        out = then(b, block(b, x), ("add", first), "relu", ("add", second))
        check(b, out, dtype=dtype)

    def test_after_other_post_ops(self, b: Builder, block: Block, dtype: torch.dtype) -> None:
        x, residual = self.start(b, block, dtype)
        gate = b.eltwise("sigmoid", b.input(tensor(2, 16, 1, 1, dtype=dtype)))
        out = then(b, block(b, x), "hardswish", ("mul", gate), ("add", residual), "relu")
        check(b, out, dtype=dtype)

    def test_in_a_chain(self, b: Builder, block: Block, dtype: torch.dtype) -> None:
        _, x = self.start(b, block, dtype)
        for _ in range(3):
            inner = then(b, block(b, x), "relu")
            x = then(b, block(b, inner), ("add", x), "relu")
        check(b, x, dtype=dtype)

    def test_of_another_layout(self, b: Builder, block: Block, dtype: torch.dtype) -> None:
        x, _ = self.start(b, block, dtype)
        residual = b("transpose", made(b, 2, 16, 16, 8, dtype=dtype), 2, 3)
        check(b, then(b, block(b, x), ("add", residual)), dtype=dtype)

    def test_that_repeats_elements(self, b: Builder, block: Block, dtype: torch.dtype) -> None:
        """Adding onto it would add onto one element many times."""
        x, _ = self.start(b, block, dtype)
        embedded = b.linear(b.input(tensor(2, 1, 1, 4, dtype=dtype)), 16, 4)
        residual = b("expand", b("transpose", embedded, 1, 3), *SHAPE)
        check(b, then(b, block(b, x), ("add", residual), "relu"), dtype=dtype)

    def test_that_is_a_part_of_a_concatenation(
        self, b: Builder, block: Block, dtype: torch.dtype
    ) -> None:
        x, residual = self.start(b, block, dtype)
        out = then(b, block(b, x), ("add", residual))
        check(b, b("cat", out, residual, dim=1), dtype=dtype)

    def test_that_is_half_of_what_the_layer_reads_the_other_half_of(
        self, b: Builder, block: Block, dtype: torch.dtype
    ) -> None:
        """As in ShuffleNet and Res2Net: the halves share memory and do not overlap."""
        x = made(b, 4, 16, 8, 16, dtype=dtype)
        one, two = b.node("split", x, results=2, dim=0, chunks=2).outputs
        check(b, then(b, block(b, one), ("add", two)), dtype=dtype)


# Functions of elements.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(b: Builder, name: str, dtype: torch.dtype) -> None:
    """Of an input, and in place of a value that nobody needs."""
    if is_round(name, dtype):
        pytest.skip("half a unit in the last place may make a whole one")
    results = []
    for layout in ("contiguous", "transposed", "strided", "channels_last", "repeated"):
        x = b.input(tensor(3, 17, 5, 7, dtype=dtype, layout=layout))
        for before in BEFORE.get(name, ()):
            x = b.eltwise(before[0], x, *before[1:])
        results.append(b.eltwise(name, x, *FUNCTIONS[name]))
        results.append(b.eltwise(name, b.eltwise("abs", results[-1]), *FUNCTIONS[name]))
    if name in ("log", "square", "exp"):
        results = results[::2]
    check(b, *results, dtype=dtype)


#: Functions as torch has them.
TORCHS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": F.relu,
    "elu": lambda x: F.elu(x, 0.7),
    "exp": torch.exp,
    "log": torch.log,
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("x", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("name", TORCHS)
def test_functions_of_infinity_and_nan_are_torchs(
    b: Builder, name: str, x: float, dtype: torch.dtype
) -> None:
    given = torch.full((37,), x, dtype=dtype)
    (got,) = make_plan(region_of(b, b.eltwise(name, b.input(given), *FUNCTIONS[name]))).run(
        [given], []
    )
    with stock():
        want, alone = TORCHS[name](given), TORCHS[name](given[:1]).expand(37)
    # torch's vectors and its single numbers differ in gelu(∞).
    assert any(torch.equal(got.nan_to_num(7), other.nan_to_num(7)) for other in (want, alone))


@pytest.mark.parametrize("name", ["exp", "tanh"])
def test_functions_are_as_precise_as_stock_torchs(b: Builder, name: str) -> None:
    """Whose largest errors over all floats are 0.572 and 0.569 of the last digit's unit."""
    x = floats(torch.float32)
    (got,) = make_plan(region_of(b, b.eltwise(name, b.input(x)))).run([x], [])
    exact = TORCHS[name](x.double())
    normal = exact.isfinite() & (exact.abs() >= torch.finfo(x.dtype).tiny)
    assert ulps(got[normal], exact[normal]).max() <= 0.57


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_images_in_blocks(b: Builder, name: str) -> None:
    """17 channels fill up a block of 32 with what must stay 0 for the convolution that follows."""
    x = convolved(b, b.input(tensor(2, 17, 6, 6)), 17, 17, 3)
    for before in BEFORE.get(name, ()):
        x = b.eltwise(before[0], x, *before[1:])
    y = b.eltwise(name, x, *FUNCTIONS[name])
    check(b, convolved(b, y, 17, 17, 3), b.eltwise("sigmoid", y))


@property_test
@given(data=st.data())
def test_binary_operators(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype, name = draw(dtypes), draw(st.sampled_from(sorted(BINARY)))
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 5, 17, 33]), max_size=5))
    operands = []
    for seed in range(2):
        own = [n if draw(st.booleans()) else 1 for n in shape[draw(st.integers(0, len(shape))) :]]
        layout = draw(arrangements) if own else "contiguous"
        x = tensor(*own, dtype=dtype, layout=layout, seed=seed)
        x = x.abs() + 0.5 if name == "div" and seed else x
        operands.append(b.input(x))
        if draw(st.booleans()):
            operands[-1] = b.eltwise("abs", operands[-1])
    check(b, b.binary(name, *operands), dtype=dtype)


@pytest.mark.parametrize("name", ["max", "min"])
def test_nan_is_the_larger_and_the_smaller_number(b: Builder, name: str) -> None:
    numbers = torch.tensor([math.nan, 1.0, -math.inf, math.inf, 0.0])
    x, y = b.input(numbers.repeat(5)), b.input(numbers.repeat_interleave(5))
    region = region_of(b, b.binary(name, x, y))
    (got,) = make_plan(region).run(b.examples, [])
    torch.testing.assert_close(got, BINARY[name](*b.examples), equal_nan=True)


OVERLAPPING: dict[str, Callable[[Builder, Value], tuple[Value, Value]]] = {
    "next and this": lambda b, x: (b("slice", x, 0, 1, None, 1), b("slice", x, 0, 0, -1, 1)),
    "this and next": lambda b, x: (b("slice", x, 0, 0, -1, 1), b("slice", x, 0, 1, None, 1)),
    "all and the first": lambda b, x: (x, b("slice", x, 0, 0, 1, 1)),
    "all and the last": lambda b, x: (x, b("select", x, 0, -1)),
    "the first and all": lambda b, x: (b("slice", x, 0, 0, 1, 1), x),
    "all and a column": lambda b, x: (x, b("slice", x, 1, 0, 1, 1)),
    "all and turned": lambda b, x: (x, b("transpose", x, 0, 1)),
    "turned and all": lambda b, x: (b("transpose", x, 0, 1), x),
    "all and one element": lambda b, x: (x, b("select", b("select", x, 0, 3), 0, 3)),
    "all and the same": lambda b, x: (x, b("view", x, 40, 40)),
}


@pytest.mark.parametrize("how", OVERLAPPING)
@pytest.mark.parametrize("name", ["sub", "mul"])
def test_two_views_of_one_value(b: Builder, name: str, how: str) -> None:
    """The result must not overwrite what is still to be read."""
    check(b, b.eltwise("relu", b.binary(name, *OVERLAPPING[how](b, made(b, 40, 40)))))


def test_operands_of_post_ops_that_a_result_could_overwrite(b: Builder) -> None:
    x = made(b, 4, 16)
    out = then(b, b.binary("add", x, b.constant(16)), ("mul", x), "relu")
    check(b, b.eltwise("tanh", out))


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("slopes", [1, 17])
@pytest.mark.parametrize("shape", [(3, 17), (3, 17, 5), (3, 17, 5, 6), (2, 17, 3, 4, 5)])
def test_prelu(b: Builder, shape: tuple[int, ...], slopes: int, dtype: torch.dtype) -> None:
    results = []
    for layout in ("contiguous", "transposed", "padded", "channels_last", "repeated"):
        x = b.input(tensor(*shape, dtype=dtype, layout=layout))
        results.append(b("prelu", x, b.constant(slopes)))
    check(b, *results, dtype=dtype)


@pytest.mark.usefixtures("images")
def test_prelu_of_a_convolution(b: Builder) -> None:
    x = convolved(b, b.input(tensor(2, 3, 6, 6)), 3, 17, 3)
    check(b, convolved(b, b("prelu", x, b.constant(17)), 17, 8, 3))


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("count", [16, 17, 48])
def test_vectors_of_channels_meet_images(b: Builder, count: int, dtype: torch.dtype) -> None:
    """By fast code where channels fill their blocks."""
    x = convolved(b, b.input(tensor(2, 3, 6, 6, dtype=dtype)), 3, count, 3)
    y = b("prelu", x, b.constant(count))
    y = b.binary("mul", b.binary("sub", y, b.constant(count, 1, 1)), b.constant(1, count, 1, 1))
    y = then(b, b.binary("add", y, b.input(tensor(1, count, 1, 1, dtype=dtype))), "relu")
    plan = check(b, convolved(b, y, count, 8, 3), dtype=dtype)
    if count % 16 == 0:
        assert not [name for name in implementations(plan) if "ref" in name]


# Along dimensions.


@property_test
@given(data=st.data())
def test_softmax(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype = draw(dtypes)
    shape = draw(st.lists(lengths.filter(lambda n: n < 40), min_size=1, max_size=3))
    x = b.input(tensor(*shape, dtype=dtype, layout=draw(arrangements)))
    if draw(st.booleans()):
        x = b.eltwise("linear", x, 3.0, 0.0)
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
        return b.eltwise("linear", x, 2.0, 0.5) if computed else x

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
    """Refused where the two differ, and never misread."""
    x = tensor(4, 33, dtype=dtype)
    factors = [None if t is None else tensor(33, dtype=t, seed=7) for t in (weight, bias)]
    first = b.input(x)
    operands = [None if f is None else b.input(f) for f in factors]
    out = b("layer_norm", first, *operands, None, eps=1e-5, dims=1)
    plan, tensors = make_plan(region_of(b, out)), b.examples
    if None not in (weight, bias) and weight != bias:
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
        weight, bias = (b.constant(count) if given else None for given in affine)
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
def test_mean(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype = draw(dtypes)
    shape = draw(st.lists(st.sampled_from([1, 2, 5, 17]), min_size=1, max_size=4))
    first = draw(st.integers(0, len(shape) - 1))
    dims = list(range(first, draw(st.integers(first, len(shape) - 1)) + 1))
    if draw(st.booleans()):
        dims = [dim - len(shape) for dim in dims][::-1]
    x = b.input(tensor(*shape, dtype=dtype, layout=draw(arrangements)))
    check(b, b("mean", x, dims=tuple(dims), keep=draw(st.booleans())), dtype=dtype)


# Pooling.


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
        x = b.eltwise("linear", x, 1.0, -3.0)  # all less than the 0 of a padding
    out = b(op, x, **attributes)
    plan = make_plan(region_of(b, out))
    tensors = [b.examples[0]]
    if attributes.get("include_pad") and attributes["ceil"] and not plan.takes(tensors, []):
        assert "beyond the padding" in refusal(plan)
        return
    check(b, out, dtype=dtype)


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


# Joining.


#: Keeps an image's size.
POOL = {"kernel": (3, 3), "stride": (1, 1), "padding": (1, 1), "dilation": (1, 1)}


def joined(b: Builder, *parts: Value, dim: int = 1) -> Value:
    return b("cat", *parts, dim=dim)


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.usefixtures("images")
class TestConcatenations:
    @staticmethod
    def branches(b: Builder, batch: int, dtype: torch.dtype, *counts: int) -> list[Value]:
        x = b.input(tensor(batch, 8, 6, 5, dtype=dtype))
        return [then(b, convolved(b, x, 8, count, 3), "relu") for count in counts]

    @pytest.mark.parametrize("counts", [(16, 32), (3, 8, 17), (16, 3, 16), (8, 8)], ids=str)
    def test_of_convolutions(
        self, b: Builder, batch: int, dtype: torch.dtype, counts: tuple[int, ...]
    ) -> None:
        whole = joined(b, *self.branches(b, batch, dtype, *counts))
        check(b, convolved(b, whole, sum(counts), 8), dtype=dtype)

    def test_of_a_value_and_a_function_of_it(
        self, b: Builder, batch: int, dtype: torch.dtype
    ) -> None:
        """Both are slices of one memory."""
        (one,) = self.branches(b, batch, dtype, 16)
        functions = [b.eltwise(name, one) for name in ("sigmoid", "tanh")]
        again = b.eltwise("relu", functions[1])
        check(b, joined(b, functions[0], one, *functions[1:], again), dtype=dtype)

    def test_are_not_worth_slow_implementations(
        self, b: Builder, batch: int, dtype: torch.dtype
    ) -> None:
        x, *parts = self.branches(b, batch, dtype, 32, 16, 16)
        count = 16 + 16 + 32 + 16 + 16
        parts += [b("max_pool", x, **POOL), b("avg_pool", parts[0], **POOL, include_pad=True)]
        parts.append(then(b, convolved(b, x, 32, 16, 3), ("add", parts[0]), "relu"))
        for _ in range(3):
            whole = joined(b, *parts)
            if dtype == torch.float32:  # which its statistics are
                whole = b.batch_norm(whole, count)
            parts.append(convolved(b, b.eltwise("relu", whole), count, 16, 3))
            count += 16
        plan = check(b, joined(b, *parts), dtype=dtype)
        assert not [name for name in implementations(plan) if "ref" in name]

    def test_are_normalised_and_pooled_where_they_are(
        self, b: Builder, batch: int, dtype: torch.dtype, images: str
    ) -> None:
        """As a DenseNet does: of each concatenation the next one is a part."""
        first, second = self.branches(b, batch, dtype, 32, 16)
        inner = joined(b, first, second)
        if dtype == torch.float32:  # which its statistics are
            normed = then(b, b.batch_norm(inner, 48), "relu")
        else:
            normed = b.eltwise("relu", inner)
        third = convolved(b, normed, 48, 32, 3)
        outer = joined(b, inner, third)
        pooled = b("max_pool", outer, **POOL)
        plan = check(b, convolved(b, pooled, 80, 16), b.eltwise("tanh", inner), dtype=dtype)
        steps = implementations(plan)
        assert not [name for name in steps if "ref" in name], steps
        if dtype == torch.float32 and images != "any":
            before = steps[1 : steps.index("batch_norm relu")]  # what comes in is laid out first
            copies = [name for name in before if name.startswith(("copy", "reorder"))]
            assert len(copies) <= 2, steps  # of the parts, not of their concatenation

    def test_convert_a_residual_once(
        self, b: Builder, batch: int, dtype: torch.dtype, images: str
    ) -> None:
        """What was converted for a place that then was not used would be so in every run."""
        x = b.input(tensor(batch, 16, 6, 5, dtype=dtype, layout="channels_last"))
        residual = made(b, batch, 16, 6, 5, dtype=dtype)
        parts = [then(b, convolved(b, x, 16, 16, 3), ("add", residual)), convolved(b, x, 16, 16)]
        plan = check(b, convolved(b, joined(b, *parts), 32, 8), dtype=dtype)
        if images == "channels_last":
            reorders = [name for name in implementations(plan) if name.startswith("reorder")]
            assert len(reorders) == 1, implementations(plan)

    @pytest.mark.parametrize("dim", [0, 1, 2, 3, -1])
    def test_that_are_results(self, b: Builder, batch: int, dtype: torch.dtype, dim: int) -> None:
        check(b, joined(b, *self.branches(b, batch, dtype, 16, 16), dim=dim), dtype=dtype)

    def test_whose_parts_are_results(self, b: Builder, batch: int, dtype: torch.dtype) -> None:
        one, two = self.branches(b, batch, dtype, 16, 3)
        check(b, two, joined(b, one, two), one, dtype=dtype)

    def test_in_each_other(self, b: Builder, batch: int, dtype: torch.dtype) -> None:
        one, two, three = self.branches(b, batch, dtype, 16, 32, 16)
        whole = joined(b, three, joined(b, one, two))
        check(b, convolved(b, whole, 64, 8), dtype=dtype)

    def test_in_each_other_along_other_dimensions(
        self, b: Builder, batch: int, dtype: torch.dtype
    ) -> None:
        one, two, three = self.branches(b, batch, dtype, 16, 16, 32)
        wide = joined(b, joined(b, one, two), three, dim=3)
        check(b, wide, joined(b, wide, wide, dim=2), dtype=dtype)

    @pytest.mark.parametrize("growth", [3, 8, 16])
    def test_in_a_dense_block(
        self, b: Builder, batch: int, dtype: torch.dtype, growth: int
    ) -> None:
        """Each layer reads all before it: a value is a part of several concatenations."""
        parts = self.branches(b, batch, dtype, 16)
        for i in range(4):
            count = 16 + i * growth
            whole = joined(b, *parts) if i else parts[0]
            scaled = b.binary("mul", whole, b.constant(count, 1, 1))
            normed = b.eltwise("relu", b.binary("add", scaled, b.constant(count, 1, 1)))
            parts.append(convolved(b, normed, count, growth, 3))
        check(b, joined(b, *parts), dtype=dtype)

    def test_of_the_same_values_in_another_order(
        self, b: Builder, batch: int, dtype: torch.dtype
    ) -> None:
        one, two, three = self.branches(b, batch, dtype, 16, 16, 3)
        wholes = [joined(b, *order) for order in itertools.permutations((one, two, three))]
        check(b, *(convolved(b, whole, 35, 4) for whole in wholes), dtype=dtype)

    def test_of_a_value_with_itself(self, b: Builder, batch: int, dtype: torch.dtype) -> None:
        one, two = self.branches(b, batch, dtype, 16, 16)
        whole = joined(b, one, two, one, one)
        check(b, convolved(b, whole, 64, 4), whole, dtype=dtype)

    def test_with_inputs_and_constants(self, b: Builder, batch: int, dtype: torch.dtype) -> None:
        (one,) = self.branches(b, batch, dtype, 16)
        x = b.input(tensor(batch, 3, 6, 5, dtype=dtype, layout="transposed"))
        check(b, joined(b, x, one, b.constant(batch, 5, 6, 5), x), dtype=dtype)

    def test_of_what_was_split(self, b: Builder, batch: int, dtype: torch.dtype) -> None:
        (one,) = self.branches(b, batch, dtype, 32)
        left, right = b.node("split", one, results=2, dim=1, chunks=2).outputs
        check(b, joined(b, left, right), joined(b, right, left), dtype=dtype)

    def test_that_are_split_again(self, b: Builder, batch: int, dtype: torch.dtype) -> None:
        whole = joined(b, *self.branches(b, batch, dtype, 16, 17))
        parts = b.node("split", whole, results=2, dim=1, sizes=(17, 16)).outputs
        check(b, convolved(b, parts[0], 17, 4), b.eltwise("relu", parts[1]), dtype=dtype)

    def test_whose_parts_are_changed_in_place_elsewhere(
        self, b: Builder, batch: int, dtype: torch.dtype
    ) -> None:
        one, two = self.branches(b, batch, dtype, 16, 16)
        whole = joined(b, one, two)
        changed = b.eltwise("tanh", one)
        again = then(b, convolved(b, changed, 16, 16), ("add", two))
        check(b, convolved(b, whole, 32, 4), again, dtype=dtype)

    @pytest.mark.parametrize("change", ["tanh", "add", "softmax", "group_norm", "layer_norm"])
    def test_keep_views_of_the_other_place_that_a_part_is_in(
        self, b: Builder, batch: int, dtype: torch.dtype, change: str
    ) -> None:
        """A part that was made aside lies there, too; who may write over one may not over both."""
        changes: dict[str, Callable[[Value], Value]] = {
            "tanh": lambda x: b.eltwise("tanh", x),
            "add": lambda x: b.binary("add", x, b.constant(1, 1, 1, 1)),
            "softmax": lambda x: b("softmax", x, dim=1),
            "group_norm": lambda x: b("group_norm", x, None, None, eps=0.1, groups=4),
            "layer_norm": lambda x: b("layer_norm", x, None, None, None, eps=0.1, dims=1),
        }
        x, other = (b.input(tensor(batch, 16, size, size, dtype=dtype)) for size in (8, 4))
        part = b("max_pool", x, kernel=(2, 2), stride=(2, 2), padding=(0, 0), dilation=(1, 1))
        whole = b("mean", joined(b, part, other), dims=(2, 3))
        flat = b("flatten", part, 1, -1)
        changed = b("mean", changes[change](part), dims=(2, 3))
        check(b, whole, b.eltwise("sigmoid", flat), changed, dtype=dtype)

    def test_of_pooled_padded_and_added_values(
        self, b: Builder, batch: int, dtype: torch.dtype
    ) -> None:
        one, two, three = self.branches(b, batch, dtype, 16, 16, 16)
        pooled = b("max_pool", one, kernel=(3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1))
        padded = b("pad", b("slice", two, 3, 1, None, 1), 0, 1, value=0.5)
        summed = b.binary("add", one, three)
        whole = joined(b, pooled, padded, summed, b.eltwise("sigmoid", three))
        check(b, convolved(b, whole, 64, 8), dtype=dtype)


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("dim", [0, 1])
def test_concatenations_of_rows(b: Builder, dim: int, dtype: torch.dtype) -> None:
    x = b.input(tensor(5, 17, dtype=dtype))
    parts = [b.linear(x, 8, 17) for _ in range(3)]
    whole = joined(b, *parts, b.eltwise("relu", parts[0]), dim=dim)
    check(b, b.linear(whole, 4, 32 if dim else 8), dtype=dtype)


def test_concatenated_rows_are_written_in_their_place(b: Builder) -> None:
    x = b.input(tensor(5, 16))
    plan = check(b, joined(b, *(b.linear(x, 16, 16) for _ in range(4))))
    assert copies_of(plan) == 0, implementations(plan)


@property_test
@given(data=st.data())
def test_concatenations_and_stacks(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype, op = draw(dtypes), draw(st.sampled_from(["cat", "stack"]))
    shape = draw(st.lists(st.sampled_from([1, 2, 5, 17]), min_size=1, max_size=4))
    rank = len(shape) + (op == "stack")
    dim = draw(st.integers(-rank, rank - 1))
    parts: list[Value] = []
    for seed in range(draw(st.integers(1, 4))):
        if parts and draw(st.sampled_from([0, 0, 1])):
            parts.append(draw(st.sampled_from(parts)) if op == "stack" else parts[0])
            continue
        own = list(shape)
        if op == "cat":
            own[dim] = draw(st.sampled_from([1, 2, 5]))
        x = b.input(tensor(*own, dtype=dtype, layout=draw(arrangements), seed=seed))
        parts.append(b.eltwise("relu", x) if draw(st.booleans()) else x)
    whole = b(op, *parts, dim=dim)
    results = [whole, b.eltwise("tanh", whole)] if draw(st.booleans()) else [whole]
    check(b, *results, dtype=dtype)


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


# Views.


VIEWS = (
    *("transpose", "permute", "unsqueeze", "squeeze", "select", "slice"),
    *("flatten", "unflatten", "view", "expand", "contiguous"),
)


@st.composite
def view_of(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[str, list[Any], dict[str, Any]]:
    """A view operator with its arguments, for a tensor of this shape."""
    rank = len(shape)
    dim = draw(st.integers(-rank, rank - 1))
    other = draw(st.integers(-rank, rank - 1))
    size = shape[dim]
    name = draw(st.sampled_from(VIEWS))
    arguments: list[Any] = [dim]
    if name == "transpose":
        arguments = [dim, other]
    elif name == "permute":
        arguments = draw(st.permutations(range(rank)))
    elif name == "select":
        arguments = [dim, draw(st.integers(-size, size - 1))]
    elif name == "slice":
        start = draw(st.integers(0, size - 1))
        bounds = [draw(st.sampled_from([None, start])), draw(st.sampled_from([None, size, 1000]))]
        arguments = [dim, *bounds, draw(st.integers(1, 2))]
    elif name == "flatten":
        arguments = sorted([dim % rank, other % rank])
    elif name == "unflatten":
        parts = [n for n in (2, 3, 4) if size % n == 0]
        part = draw(st.sampled_from(parts or [1]))
        arguments = [dim, *draw(st.sampled_from([[part, -1], [-1, part], [size // part, part]]))]
    elif name == "view":
        arguments = [-1, *shape[1:]][:rank] if draw(st.booleans()) else [shape[0], -1]
    elif name == "expand":
        arguments = [2, *(3 if n == 1 else -1 for n in shape)]
    elif name == "contiguous":
        arguments = []
    return name, arguments, {}


def shape_after(shape: tuple[int, ...], name: str, arguments: list[Any]) -> tuple[int, ...]:
    x = torch.empty(shape, device="meta")
    if name == "slice":
        return tuple(torch.ops.aten.slice(x, *arguments).shape)
    if name == "unflatten":
        return tuple(x.unflatten(arguments[0], arguments[1:]).shape)
    if name == "view":
        return tuple(x.reshape(arguments).shape)
    if name in ("permute", "expand"):
        return tuple(getattr(x, name)(arguments).shape)
    return tuple(getattr(x, name)(*arguments).shape)


@property_test
@given(data=st.data())
def test_views_of_views(data: st.DataObject) -> None:
    """Of inputs and of values; as results, and read by an operator that may run in place."""
    b, draw = Builder(), data.draw
    dtype = draw(dtypes)
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 4, 6]), min_size=2, max_size=4)))
    x = b.input(tensor(*shape, dtype=dtype, layout=draw(arrangements)))
    if draw(st.booleans()):
        x = b.eltwise("abs", x)
    results = []
    for _ in range(draw(st.integers(1, 5))):
        if not shape or math.prod(shape) > 5000 or len(shape) > 6:
            break
        name, arguments, attributes = draw(view_of(shape))
        x, shape = b(name, x, *arguments, **attributes), shape_after(shape, name, arguments)
        if draw(st.sampled_from([0, 0, 1])):
            results.append(x)
        if draw(st.sampled_from([0, 0, 1])):
            x = b.eltwise("linear", x, 1.5, 0.5)
    check(b, *dict.fromkeys([*results, x]), dtype=dtype)


@pytest.mark.parametrize("rank", [8, 9, 12])
def test_views_have_at_most_eight_dimensions(b: Builder, rank: int) -> None:
    """As many as a kernel's loops can count."""
    x = made(b, *[2] * rank)
    order = [*range(rank - 1, -1, -2), *range(rank - 2, -1, -2)]
    out = b("permute", x, *order)
    if rank <= 8:
        check(b, out)
        return
    plan = make_plan(region_of(b, out))
    assert not plan.takes(b.examples, [])
    assert refusal(plan) == f"a tensor with {rank} dimensions"


@pytest.mark.parametrize("attributes", [{"chunks": 3}, {"sizes": (6, 6, 5)}, {"sizes": (1, 16)}])
@pytest.mark.parametrize("dim", [1, -2])
def test_split(b: Builder, attributes: dict[str, Any], dim: int) -> None:
    x = made(b, 3, 17, 5)
    results = len(attributes.get("sizes", range(3)))
    parts = b.node("split", x, results=results, dim=dim, **attributes).outputs
    check(b, *(b.eltwise("relu", part) for part in parts), *parts)


@pytest.mark.parametrize("constant", [False, True])
def test_items_that_are_too_wide_to_copy_are_refused(b: Builder, constant: bool) -> None:
    numbers = torch.randn(3, 4, dtype=torch.complex128).t()
    wide = b.graph.constant(numbers) if constant else b.input(numbers)
    x = b.input(tensor(2))
    out = b("view", wide, 12)
    plan = torch.classes.zendnn.Plan(*region_of(b, out, b.eltwise("relu", x)).describe(), "wide")
    assert not plan.takes(b.examples, [])
    assert "16 bytes" in refusal(plan)


def test_split_of_projections(b: Builder) -> None:
    """Queries, keys and values of one layer, as heads."""
    x = b.linear(b.input(tensor(2, 7, 24)), 72, 24)
    q, k, v = b.node("split", x, results=3, dim=2, chunks=3).outputs
    q, k, v = (b("transpose", b("view", y, 2, 7, 4, 6), 1, 2) for y in (q, k, v))
    out = b("attention", q, k, v, None, scale=0.0, causal=False, swapped=True)
    check(b, b.linear(b("view", out, 2, 7, -1), 24, 24))


def test_numbers(b: Builder) -> None:
    x, given = b.input(tensor(6, 10)), b.input(3)
    rows, columns = b("size", x, 0), b("size", x, -1)
    half = b("number_floordiv", rows, 2)
    sizes = [b("number_mul", half, 2), b("number_sub", columns, given), b("number_add", given, -3)]
    y = b("slice", b.eltwise("abs", x), 1, given, None, 1)
    y = b("view", y, sizes[0], sizes[1])
    y = b("slice", y, 0, sizes[2], b("number_floordiv", b("numel", x), -17), 1)
    check(b, b("unsqueeze", y, 0))


@pytest.mark.parametrize(("a", "c"), [(7, 2), (-7, 2), (7, -2), (-7, -2), (6, -3)])
def test_division_of_numbers_rounds_down(b: Builder, a: int, c: int) -> None:
    x, left, right = b.input(tensor(40)), b.input(a), b.input(c)
    check(b, b("slice", x, 0, b("number_floordiv", left, right), None, 1))
    check(b, b("slice", x, 0, b("number_remainder", left, right), None, 1))


@pytest.mark.parametrize("exponent", [-0.5, 0.5, -1.0, 2.5])
def test_powers_of_numbers(b: Builder, exponent: float) -> None:
    x, n = b.input(tensor(3, 5)), b.input(7)
    check(b, b.binary("mul", x, b("power", n, exponent=exponent)))


def test_powers_of_numbers_take_the_dtype_of_what_they_meet(b: Builder) -> None:
    x, n = b.input(tensor(3, 5, dtype=torch.bfloat16)), b.input(7)
    factor = b("to_like", b("power", n, exponent=-0.5), x)
    check(b, b.binary("mul", x, factor), dtype=torch.bfloat16)


# Types.


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "repeated"])
@pytest.mark.parametrize("to", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "dtype",
    [*DTYPES, torch.float64, torch.int64, torch.int32, torch.bool, torch.uint8],
)
def test_conversions(b: Builder, dtype: torch.dtype, to: str, layout: str) -> None:
    x = b.input(tensor(3, 17, dtype=dtype, layout=layout))
    plan = make_plan(region_of(b, b("to", x, dtype=to)))
    if to == "bfloat16" and dtype not in DTYPES:
        assert not plan.takes(b.examples, [])
        assert refusal(plan).startswith("tensors of ")
        return
    (got,) = plan.run(b.examples, [])
    assert torch.equal(got, b.examples[0].to(getattr(torch, to)))


@pytest.mark.parametrize("like", [*DTYPES, torch.int64])
@pytest.mark.parametrize("dtype", DTYPES)
def test_conversions_to_the_dtype_of_another(
    b: Builder, dtype: torch.dtype, like: torch.dtype
) -> None:
    x, y = b.input(tensor(3, 17, dtype=dtype)), b.input(tensor(2, dtype=like))
    plan = make_plan(region_of(b, b("to_like", b.eltwise("abs", x), y)))
    if like not in DTYPES:
        assert not plan.takes(b.examples, [])
        return
    (got,) = plan.run(b.examples, [])
    assert torch.equal(got, b.examples[0].abs().to(like))


def test_conversions_between_layers(b: Builder) -> None:
    x = b.eltwise("abs", b.input(tensor(5, 33)))
    narrow = b("to", x, dtype="bfloat16")
    same = b("to", narrow, dtype="bfloat16")
    wide = b("to", b.eltwise("tanh", same), dtype="float32")
    region = region_of(b, narrow, b.binary("add", wide, x))
    got = make_plan(region).run(b.examples, [])
    want = b.examples[0].abs()
    assert torch.equal(got[0], want.bfloat16())
    torch.testing.assert_close(got[1], want.bfloat16().tanh().float() + want, rtol=1e-2, atol=1e-2)


# Attention.


@property_test
@given(data=st.data())
def test_attention(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype, swapped = draw(dtypes), draw(st.booleans())
    batch, kv_heads, group = draw(batches), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    target, source = (draw(st.sampled_from([1, 2, 5, 17, 33, 70, 300])) for _ in range(2))
    size = draw(st.sampled_from([1, 8, 15, 16, 33, 64, 80]))
    operands = []
    for seed, (heads, length) in enumerate(
        [(kv_heads * group, target), (kv_heads, source), (kv_heads, source)]
    ):
        layout = draw(arrangements)
        if draw(st.booleans()):  # as a projection leaves them
            x = b.input(tensor(batch, length, heads, size, dtype=dtype, layout=layout, seed=seed))
            operands.append(b("transpose", x, 1, 2))
        else:
            x = b.input(tensor(batch, heads, length, size, dtype=dtype, layout=layout, seed=seed))
            operands.append(x)
    mask, meant = None, None
    if draw(st.booleans()):
        whole = (batch, kv_heads * group, target, source)
        shape = [n if draw(st.booleans()) else 1 for n in whole[draw(st.integers(0, 3)) :]]
        seen = torch.rand(shape) < 0.7
        seen[..., 0] = True
        allowed = torch.zeros(shape).masked_fill(~seen, -math.inf)
        kind = draw(st.sampled_from(["bool", "added", "infinite"]))
        layout = draw(arrangements.filter(lambda name: not name.startswith("repeated")))
        if kind == "bool":
            mask = b.input(seen.expand(shape))
            meant = {mask: allowed.to(dtype)}
        else:
            numbers = tensor(*shape, dtype=dtype, seed=9)
            numbers = numbers + allowed.to(dtype) if kind == "infinite" else numbers
            mask = b.input(ARRANGEMENTS[layout](numbers))
    out = b(
        "attention",
        *operands,
        mask,
        scale=draw(st.sampled_from([0.0, 0.3])),
        causal=draw(st.booleans()),
        swapped=swapped,
        grouped=group > 1,
    )
    if group == 1:
        check(b, out, dtype=dtype, meant=meant)
        return
    check_grouped(b, out, group, dtype, meant)


def check_grouped(
    b: Builder, out: Value, group: int, dtype: torch.dtype, meant: dict[Value, Tensor] | None
) -> None:
    """Grouped heads against the same keys and values, written out for each head."""
    assert out.producer is not None
    q, k, v, *rest = out.producer.inputs
    region = region_of(b, out)
    tensors, _ = tensors_and_numbers([b.examples[b.graph.inputs.index(x)] for x in region.inputs])
    plan = make_plan(region)
    assert plan.takes(tensors, []), refusal(plan)
    (got,) = plan.run(tensors, [])
    wide = Builder()
    wide.graph.inputs, wide.examples = list(b.graph.inputs), list(b.examples)
    values = {x: e.double() for x, e in zip(b.graph.inputs, b.examples, strict=True)}
    values |= {x: e.double() for x, e in (meant or {}).items()}

    def read(x: Any) -> Any:
        if x is None or x in values:
            return None if x is None else values[x]
        return values[x.producer.inputs[0]].transpose(1, 2)

    a = out.producer.attributes
    q, k, v, mask = (read(x) for x in (q, k, v, rest[0] if rest else None))
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) * (a["scale"] or q.shape[3] ** -0.5)
    scores = scores if mask is None else scores + mask
    if a["causal"]:
        later = torch.ones(scores.shape[2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -math.inf)
    want = scores.softmax(3) @ v
    want = want.transpose(1, 2) if a["swapped"] else want
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    assert got.shape == want.shape
    assert (got.double() - want).abs().max() <= tolerance * want.abs().max()


MASKS = [
    shape
    for rank in range(5)
    for shape in itertools.product(*((1, n) for n in (2, 3, 5, 7)[4 - rank :]))
]


@pytest.mark.parametrize("kind", ["bool", "float32", "bfloat16"])
@pytest.mark.parametrize("shape", MASKS, ids=str)
def test_masks_of_every_shape(b: Builder, shape: tuple[int, ...], kind: str) -> None:
    q = b.input(tensor(2, 3, 5, 8))
    k, v = (b.input(tensor(2, 3, 7, 8, seed=seed)) for seed in (1, 2))
    seen = torch.rand(shape) < 0.7
    if shape:
        seen[..., 0] = True
    else:
        seen.fill_(True)
    allowed = torch.zeros(shape).masked_fill(~seen, -math.inf)
    mask = b.input(seen if kind == "bool" else allowed.to(getattr(torch, kind)))
    out = b("attention", q, k, v, mask, scale=0.0, causal=False, swapped=False)
    check(b, out, meant={mask: allowed})


def test_weights_that_are_no_normal_numbers_count_as_none(b: Builder) -> None:
    """Products with such numbers take sixty times as long as others."""
    scores = torch.tensor([[[[0.0, -100.0, -90.0, -1.0]]]]).expand(1, 2, 3, 4).contiguous()
    large = torch.full((1, 2, 4, 8), 1e35)
    large[:, :, [0, 3]] = 1.0
    weights = b("softmax", b.input(scores), dim=-1, log=False)
    (got,) = make_plan(region_of(b, b("matmul", weights, b.input(large)))).run(b.examples, [])
    torch.testing.assert_close(got, torch.ones(1, 2, 3, 8))


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_queries_that_see_no_key_give_zero(b: Builder, kind: str) -> None:
    q, k, v = (b.input(tensor(1, 2, 5, 8, seed=seed)) for seed in range(3))
    seen = torch.ones(5, 5, dtype=torch.bool).tril(-1)
    mask = b.input(seen if kind == "bool" else torch.zeros(5, 5).masked_fill(~seen, -math.inf))
    region = region_of(b, b("attention", q, k, v, mask, scale=0.0, causal=False, swapped=False))
    (got,) = make_plan(region).run(b.examples, [])
    want = F.scaled_dot_product_attention(*b.examples)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_attention_that_a_model_spells_out_stays_softmax(kind: str) -> None:
    """Adding True adds 1, and the softmax of nothing is NaN."""

    class Attention(torch.nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
            return ((q @ k.transpose(2, 3)) * 0.3 + mask).softmax(-1) @ v

    q, k, v = (tensor(2, 3, 70, 8, seed=seed) for seed in range(3))
    seen = torch.ones(70, 70, dtype=torch.bool).tril(-1)
    mask = seen if kind == "bool" else torch.zeros(70, 70).masked_fill(~seen, -math.inf)
    want = Attention()(q, k, v, mask)
    assert want.isnan().any() == (kind == "float")
    frozen = torch.jit.freeze(torch.jit.trace(Attention().eval(), (q, k, v, mask)))
    with torch.no_grad():
        got = torch.jit.optimize_for_inference(frozen)(q, k, v, mask)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [1, 5, 300])
def test_additive_attention_gives_nan_where_no_key_is_seen(
    b: Builder, length: int, causal: bool
) -> None:
    q, k, v = (b.input(tensor(1, 2, length, 16, seed=seed)) for seed in range(3))
    unseen = torch.rand(1, 1, length, length) < 0.5
    unseen[..., ::3, :] = True
    mask = b.input(torch.zeros(unseen.shape).masked_fill(unseen, -math.inf))
    out = b("attention", q, k, v, mask, scale=0.0, causal=causal, swapped=False, additive=True)
    region = region_of(b, out)
    (got,) = make_plan(region).run(b.examples, [])
    (want,) = interpret(region, b.examples, torch.float32, torch.float32)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6, equal_nan=True)


# Tables.


@property_test
@given(data=st.data())
def test_embeddings(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype, width, rows = draw(dtypes), draw(lengths), draw(st.sampled_from([1, 7, 100]))
    shape = draw(st.lists(st.sampled_from([1, 2, 5]), max_size=3))
    ids = torch.randint(rows, shape, dtype=draw(st.sampled_from([torch.int64, torch.int32])))
    if shape:
        ids = ARRANGEMENTS[draw(arrangements.filter(lambda n: n not in INTEGERS_LACK))](ids)
    table = b.constant(rows, width)
    if draw(st.booleans()):
        table = b.input(tensor(rows, width, dtype=dtype, layout=draw(arrangements)))
    out = b("embedding", table, b.input(ids))
    if draw(st.booleans()):
        out = b("cat", out, out, dim=-1)
    check(b, out, dtype=dtype)


#: Arrangements that fill gaps with NaN.
INTEGERS_LACK = ("strided", "padded", "misaligned")


@property_test
@given(data=st.data())
def test_embedding_bags(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype, mode = draw(dtypes), draw(st.sampled_from(["sum", "weighted", "mean", "max"]))
    width, rows, bags = draw(lengths), draw(st.sampled_from([1, 7, 100])), draw(st.integers(1, 6))
    kind = draw(st.sampled_from([torch.int64, torch.int32]))
    table = b.constant(rows, width)
    if draw(st.booleans()):
        ids = torch.randint(rows, (bags, draw(st.integers(1, 9))), dtype=kind)
        ids = ARRANGEMENTS[draw(st.sampled_from(["contiguous", "transposed", "repeated"]))](ids)
        offsets = None
    else:
        starts = sorted(draw(st.integers(0, 9)) for _ in range(bags - 1))
        ids = torch.randint(rows, (9,))
        offsets = b.input(torch.tensor([0, *starts]))
    index = b.input(ids)
    weights = [b.input(tensor(*ids.shape, dtype=dtype))] if mode == "weighted" else []
    mode = mode.replace("weighted", "sum")
    check(b, b("embedding_bag", table, index, offsets, *weights, mode=mode), dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", sorted(ARRANGEMENTS))
@pytest.mark.parametrize("shape", [(5, 7), (35,)])
def test_weights_of_bags_in_any_layout(
    b: Builder, shape: tuple[int, ...], layout: str, dtype: torch.dtype
) -> None:
    index = b.input(torch.randint(9, (5, 7)).t().contiguous().t())
    weights = b.input(tensor(*shape, dtype=dtype, layout=layout, seed=1))
    out = b("embedding_bag", b.constant(9, 19), index, None, weights, mode="sum")
    check(b, out, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_many_embedding_bags_at_once(b: Builder, mode: str, dtype: torch.dtype) -> None:
    count, rows = 5, (1, 7, 33, 100, 3)
    tables = [b.constant(n, 8 + 8 * i) for i, n in enumerate(rows)]
    ids = [b.input(torch.randint(n, (6, i + 1))) for i, n in enumerate(rows)]
    bags = b.node("embedding_bags", *tables, *ids, results=count, count=count, mode=mode).outputs
    check(b, joined(b, *bags), bags[2], dtype=dtype)


@pytest.mark.parametrize("wrong", [-1, 7, 2**40, -(2**62)])
@pytest.mark.parametrize("op", ["embedding", "embedding_bag", "embedding_bag with offsets"])
def test_indices_out_of_range_raise_and_the_plan_works_on(b: Builder, op: str, wrong: int) -> None:
    table, ids = b.constant(7, 16), torch.randint(7, (3, 4))
    bad = ids.clone()
    bad[2, 1] = wrong
    if op == "embedding":
        out = b("embedding", table, b.input(ids))
    elif op == "embedding_bag":
        out = b("embedding_bag", table, b.input(ids), None, mode="sum")
    else:
        ids, bad = ids.reshape(-1), bad.reshape(-1)
        offsets = b.input(torch.tensor([0, 4]))
        out = b("embedding_bag", table, b.input(ids), offsets, mode="sum")
    plan = check(b, out)
    tensors = [x if x.dim() == 1 and len(x) == 2 else bad for x in b.examples]
    if op.endswith("offsets"):
        tensors = [bad, torch.tensor([0, 4])]
    for _ in range(2):
        with pytest.raises(IndexError, match="index out of range"):
            plan.run(tensors, [])
    assert torch.backends.zendnn._C._arena_bytes_used() == 0
    check(b, out)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(9, 9), (3, 9, 9)])
def test_gathered_pairs(b: Builder, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    rows, columns = (b.graph.constant(x) for x in torch.tril_indices(9, 9, -1))
    results = []
    for layout in ("contiguous", "transposed", "strided", "repeated"):
        x = b.input(tensor(*shape, dtype=dtype, layout=layout))
        results.append(b("gather_pairs", x, rows, columns))
    check(b, *results, joined(b, results[0], results[1], dim=-1), dtype=dtype)


def test_gathered_pairs_of_products(b: Builder) -> None:
    """The interaction of features in a recommendation model."""
    x = made(b, 4, 9, 16)
    products = b("matmul", x, b("transpose", x, 1, 2))
    rows, columns = (b.graph.constant(i) for i in torch.tril_indices(9, 9, -1))
    dense = b.linear(b.input(tensor(4, 5)), 16, 5)
    pairs = b("gather_pairs", products, rows, columns)
    check(b, b.linear(joined(b, dense, pairs), 8, 16 + 36))


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("features", [2, 9, 27, 64])
def test_products_of_pairs_of_features(b: Builder, features: int, dtype: torch.dtype) -> None:
    for size, layout in itertools.product((1, 16, 33), ("contiguous", "transposed", "repeated")):
        b = Builder()
        rows, columns = (b.graph.constant(i) for i in torch.tril_indices(features, features, -1))
        x = b.input(tensor(5, features, size, dtype=dtype, layout=layout))
        pairs = b("pairwise_dot", x, rows, columns)
        dense = b.linear(b.input(tensor(5, 7, dtype=dtype)), 8, 7)
        check(b, pairs, joined(b, dense, pairs), dtype=dtype)


# Refusals.


def refused_graphs() -> dict[str, Callable[[Builder], Value]]:
    """Graphs that a plan does not take with the examples they come with."""

    def x(b: Builder, *shape: int, dtype: torch.dtype = torch.float32) -> Value:
        return b.input(tensor(*shape, dtype=dtype))

    def image(b: Builder, op: str, **attributes: Any) -> Value:
        return b(op, x(b, 1, 3, 5, 5), **attributes)

    def bag(b: Builder, weights: Value, mode: str = "sum") -> Value:
        ids = b.input(torch.randint(5, (2, 3)))
        return b("embedding_bag", b.constant(5, 3), ids, None, weights, mode=mode)

    pool = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1)}

    def pooled(name: str, number: int) -> Callable[[Builder], Value]:
        return lambda b: image(b, "max_pool", **{**pool, name: (number, 2)})

    def convolved(name: str, number: int) -> Callable[[Builder], Value]:
        window: dict[str, Any] = {name: (number, 1)}
        return lambda b: b.convolution(x(b, 1, 3, 5, 5), b.constant(8, 3, 3, 3), **window)

    return {
        "an empty tensor": lambda b: b.eltwise("relu", x(b, 0, 3)),
        "an empty slice": lambda b: b("slice", x(b, 4, 3), 0, 2, 2, 1),
        "float64": lambda b: b.eltwise("relu", x(b, 2, 3, dtype=torch.float64)),
        "float16": lambda b: b.linear(x(b, 2, 3, dtype=torch.float16), 4, 3),
        "integers": lambda b: b.binary(
            "add", x(b, 2, dtype=torch.int64), x(b, 2, dtype=torch.int64)
        ),
        "two types": lambda b: b.binary("add", x(b, 2), x(b, 2, dtype=torch.bfloat16)),
        "sizes that do not broadcast": lambda b: b.binary("add", x(b, 2), x(b, 3)),
        "other features": lambda b: b.linear(x(b, 2, 5), 4, 3),
        "weights that are computed": lambda b: b("linear", x(b, 2, 5), x(b, 4, 5), None),
        "other channels": lambda b: b.convolution(x(b, 1, 4, 5, 5), b.constant(8, 3, 3, 3)),
        "no batch": lambda b: b.convolution(x(b, 3, 5, 5), b.constant(8, 3, 3, 3)),
        "an image smaller than the kernel": lambda b: b.convolution(
            x(b, 1, 3, 2, 5), b.constant(8, 3, 3, 3)
        ),
        "batches that do not broadcast": lambda b: b("matmul", x(b, 2, 3, 4), x(b, 3, 4, 5)),
        "other inner sizes": lambda b: b("matmul", x(b, 3, 4), x(b, 5, 4)),
        "a vector": lambda b: b("matmul", x(b, 3, 4), x(b, 4)),
        "other ranks": lambda b: b("cat", x(b, 2, 3), x(b, 2), dim=0),
        "other rows": lambda b: b("cat", x(b, 2, 3), x(b, 2, 4), dim=0),
        "a stack of other sizes": lambda b: b("stack", x(b, 2, 3), x(b, 2, 4), dim=0),
        "a window larger than the image": lambda b: image(
            b, "max_pool", **{**pool, "kernel": (7, 7)}
        ),
        **{
            f"a pool with a {name} of {number}": pooled(name, number)
            for name, number in [("kernel", 0), ("stride", 0), ("dilation", 0), ("padding", -1)]
        },
        **{
            f"a convolution with a {name} of {number}": convolved(name, number)
            for name, number in [("stride", 0), ("stride", -1), ("dilation", 0), ("padding", -1)]
        },
        "groups that do not divide": lambda b: b.convolution(
            x(b, 1, 9, 5, 5), b.constant(8, 3, 3, 3), groups=3
        ),
        "an adaptive pool to less than nothing": lambda b: image(
            b, "adaptive_avg_pool", sizes=(-1, 1)
        ),
        "windows of several sizes": lambda b: image(b, "adaptive_avg_pool", sizes=(2, 2)),
        "another number of elements": lambda b: b("view", x(b, 2, 3), 4, -1),
        "a dimension that is not there": lambda b: b("transpose", x(b, 2, 3), 0, 2),
        "a slice backwards": lambda b: b("slice", x(b, 4), 0, None, None, -1),
        "an index that is not there": lambda b: b("select", x(b, 4, 2), 0, 4),
        "means that are apart": lambda b: b("mean", x(b, 2, 3, 4), dims=(0, 2)),
        "indices of float": lambda b: b("embedding", b.constant(5, 3), x(b, 4)),
        "weights of a mean": lambda b: bag(b, x(b, 6), mode="mean"),
        "weights of other ids": lambda b: bag(b, x(b, 5)),
        "weights of another dtype": lambda b: bag(b, b.input(tensor(6).bfloat16())),
        "an unknown operator": lambda b: b("arange", 0, 5, 1),
        "an unknown function": lambda b: b.eltwise("erf", x(b, 4)),
        "a bias of another size": lambda b: b(
            "linear", x(b, 2, 5), b.constant(4, 5), b.constant(1)
        ),
        "a bias with two dimensions": lambda b: b(
            "linear", x(b, 2, 5), b.constant(4, 5), b.constant(1, 4)
        ),
        "a bias of other channels": lambda b: b.convolution(
            x(b, 1, 3, 5, 5), b.constant(8, 3, 3, 3), b.constant(4)
        ),
        "an operand of other sizes": lambda b: then(
            b, b.linear(x(b, 2, 3), 4, 3), ("add", x(b, 3, 4))
        ),
        "slopes of other channels": lambda b: b("prelu", x(b, 2, 3, 4), b.constant(4)),
        "heads that do not divide": lambda b: b(
            "attention", x(b, 1, 3, 4, 8), x(b, 1, 2, 4, 8), x(b, 1, 2, 4, 8), None, scale=0.0
        ),
        "a split into other parts": lambda b: b("split", x(b, 5, 3), dim=0, sizes=(2,)),
        "a factor of another size": lambda b: b(
            "layer_norm", x(b, 2, 3), b.constant(4), None, None, eps=1e-5, dims=1
        ),
    }


REFUSED = refused_graphs()


@pytest.mark.parametrize("why", REFUSED)
def test_what_a_plan_does_not_take(b: Builder, why: str) -> None:
    """It says so, it says why, and it says the same the next time."""
    out = REFUSED[why](b)
    region = region_of(b, out)
    if last_node(b).post_ops:  # the operand was made after the node that reads it
        b.graph.check()
    plan = make_plan(region)
    tensors = [b.examples[b.graph.inputs.index(x)] for x in region.inputs]
    for _ in range(2):
        assert not plan.takes(tensors, [])
        with pytest.raises(RuntimeError, match=r"ZenDNN plan test does not take these inputs: \w+"):
            plan.run(tensors, [])
    assert refusal(plan)


BAD_TEXTS = {
    "": "not a plan|ends before",
    "hello": "line 1 .*not a plan",
    "zendnn-plan 3\nreturn \n": "version 3 .*optimize the module again",
    "zendnn-plan 2\n%1 = input tensor\n": "ends before its 'return'",
    "zendnn-plan 2\n%2 = eltwise(%1) algorithm=relu\nreturn %2\n": "line 2 .*before it is made",
    "zendnn-plan 2\n%1 = input tensor\n%1 = input tensor\nreturn %1\n": "line 3 .*made twice",
    "zendnn-plan 2\n%1 = input tensor\nnonsense\nreturn %1\n": "line 3 .*not understood",
    "zendnn-plan 2\n%1 = constant 0\nreturn %1\n": "comes with 0 constants and wants 1",
    "zendnn-plan 2\n%1 = input tensor\n%2 = linear(%1, %1) post=add@7\nreturn %2\n": "no operand",
    "zendnn-plan 2\n%1 = input tensor\n%2 = eltwise(%1) nonsense\nreturn %2\n": "no attribute",
    "zendnn-plan 2\n%1 = input tensor\n%2 = eltwise %1\nreturn %2\n": "not an operator",
    "zendnn-plan 2\n%1 = input numbr\nreturn \n": "line 2 .*no input 'numbr'",
    "zendnn-plan 2\n, = input tensor\nreturn \n": "line 2 .*wants one name",
    "zendnn-plan 2\n, = constant 0\nreturn \n": "line 2 .*wants one name",
    "zendnn-plan x\n": "not a number",
}


@pytest.mark.parametrize("text", BAD_TEXTS, ids=lambda text: repr(text)[-40:])
def test_texts_that_are_no_description(text: str) -> None:
    with pytest.raises(RuntimeError, match=f"ZenDNN plan bad.*({BAD_TEXTS[text]})"):
        torch.classes.zendnn.Plan(text, [], "bad")


#: Nodes that are not as the table of operators says, of an image of 6 channels and the number 2.
BAD_NODES = {
    "cat(%x, 99999999999) dim=0": "operand 1 is no tensor",
    "cat() dim=0": "operand 0 is no tensor",
    "linear(%x)": "operand 1 is no tensor",
    "flatten(%x)": "operand 1 is no number",
    "flatten(%x, 0, none)": "operand 2 is no number",
    "view(%x, %x)": "operand 1 is no number",
    "eltwise(%n) algorithm=relu": "operand 0 is no tensor",
    "eltwise(%x, %x) algorithm=relu": "2 operands",
    "batch_norm(%x, none, none, none, none)": "operand 3 is no tensor",
    "embedding_bags(%x, none) count=1": "without operand 1",
    "embedding_bags(%x, %x, %x, %x) count=2": "results",
    "max_pool(%x) kernel=2,2 stide=1,1": "attribute 'stide'",
    "softmax(%x, 99999999999) dim=0 post=add@1": "post-ops",
    "softmax(%x) dim=0 post=relu": "post-ops",
    "binary(%x, %x) algorithm=add post=add@1": "own operand",
    "binary(%x, %x, 3) algorithm=add post=add@2": "operand 2 is no tensor",
    "binary(%x, %x) algorithm=add post=:": "function",
    "numel(%x)": "result that is a number",
    "split(%x) dim=1 sizes=-1": "split",
}


def plan_of(*lines: str) -> Any:
    return torch.classes.zendnn.Plan("\n".join(("zendnn-plan 2", *lines, "")), [], "written")


@pytest.mark.parametrize("node", BAD_NODES)
def test_nodes_that_no_operator_is_like_are_refused(node: str) -> None:
    plan = plan_of("%x = input tensor", "%n = input number", f"%y = {node}", "return %y")
    assert not plan.takes([tensor(2, 6, 4, 4)], [2])
    assert BAD_NODES[node] in refusal(plan)


def test_results_that_an_operator_does_not_have_are_refused() -> None:
    plan = plan_of("%1 = input tensor", "%2, %3 = softmax(%1) dim=0", "return %2, %3")
    assert not plan.takes([tensor(2, 6)], [])
    assert "2 results" in refusal(plan)


#: How views of a tensor of 2 by 6 elements can get sizes below zero.
NEGATIVE = {
    "%2 = view(%1, -2, -6)": "%2",
    "%2 = unflatten(%1, 1, -2, -3)": "%2",
    "%2 = slice(%1, 0, 0, 1, 1)\n%3 = expand(%2, -3, 6)": "%3",
    "%2, %3 = split(%1) dim=0 sizes=1000000,-999998": "%2, %3",
}


MOST, THIRD = 2**63 - 1, 3074457345618258603  # three times the latter is 1 in 64 bits
#: How numbers can get so large that 64 bits do not hold what is computed with them.
TOO_LARGE = {
    f"%y = pad(%x, {MOST}, {MOST}) value=0.0": "padding",
    f"%1 = view(%x, 64, 3, 1)\n%2 = expand(%1, 64, 3, {THIRD})\n%y = eltwise(%2) algorithm=abs": (
        "more elements"
    ),
    f"%y = max_pool(%x) kernel=2,2 stride=1,1 padding=0,0 dilation={MOST},1": "window",
    f"%1 = number_add({MOST}, %n)\n%y = slice(%x, 0, 0, %1, 1)": "64 bits",
    f"%1 = number_sub(%n, {-MOST})\n%y = slice(%x, 0, 0, %1, 1)": "64 bits",
    f"%1 = number_mul({MOST}, %n)\n%y = slice(%x, 0, 0, %1, 1)": "64 bits",
    f"%1 = number_floordiv({-MOST - 1}, -1)\n%y = slice(%x, 0, 0, %1, 1)": "64 bits",
    "%y = layer_norm(%x, none, none, none) eps=0.1 dims=1 sizes=4,4,4": "other sizes",
}


@pytest.mark.parametrize("lines", TOO_LARGE)
def test_numbers_that_are_too_large_are_refused(lines: str) -> None:
    plan = plan_of("%x = input tensor", "%n = input number", lines, "return %y")
    assert not plan.takes([tensor(2, 6, 4, 4)], [2])
    assert TOO_LARGE[lines] in refusal(plan)


def test_a_remainder_by_minus_one() -> None:
    """Processors trap when they divide the least number by it."""
    lines = f"%1 = number_remainder({-MOST - 1}, %n)\n%y = slice(%x, 0, %1, 1, 1)"
    plan = plan_of("%x = input tensor", "%n = input number", lines, "return %y")
    x = tensor(2, 6)
    (got,) = plan.run([x], [-1])
    assert torch.equal(got, x[:1])


@pytest.mark.parametrize("lines", NEGATIVE)
def test_sizes_below_zero_are_refused(lines: str) -> None:
    """torch raises an error then, since its own operators run."""
    plan = plan_of("%1 = input tensor", lines, f"return {NEGATIVE[lines]}")
    assert not plan.takes([tensor(2, 6)], [])
    assert refusal(plan)


def test_as_many_chunks_as_a_number_can_say_are_taken() -> None:
    split = "%2, %3 = split(%1) dim=0 chunks=9223372036854775807"
    assert plan_of("%1 = input tensor", split, "return %2, %3").takes([tensor(2, 6)], [])


@pytest.mark.parametrize(("tensors", "numbers"), [([], [3]), ([0], []), ([0, 0], [3]), ([], [])])
def test_a_wrong_number_of_inputs_is_refused(
    b: Builder, tensors: list[int], numbers: list[int]
) -> None:
    x, size = b.input(tensor(6)), b.input(3)
    plan = make_plan(region_of(b, b("view", b.eltwise("relu", x), size, -1)))
    with pytest.raises(RuntimeError, match=r"ZenDNN plan test"):
        plan.run([b.examples[0] for _ in tensors], numbers)


# Choices.


@property_test
@given(data=st.data())
def test_choices(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype = draw(dtypes)
    whole = tuple(draw(st.lists(lengths, min_size=1, max_size=4)))

    def operand(seed: int) -> Tensor:
        sizes = whole[draw(st.integers(0, len(whole))) :]
        shape = [n if draw(st.booleans()) else 1 for n in sizes]
        layout = draw(arrangements) if shape else "contiguous"
        return tensor(*shape, dtype=dtype, layout=layout, seed=seed)

    condition = b.input(operand(0) > 0)
    numbers = draw(st.sampled_from([(), (1,), (2,)]))
    x, y = (None if i in numbers else b.input(operand(i)) for i in (1, 2))
    value = draw(st.sampled_from([0.0, -1.5, -math.inf, 1e-9]))
    check_bits(b, b("where", condition, x, y, value=value))


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.int32, torch.bool], ids=str
)
def test_the_truth_of_numbers_chooses(b: Builder, dtype: torch.dtype) -> None:
    numbers = b.input(torch.tensor([[0, 1, -2, 0, 3]]).to(dtype))
    x = b.input(tensor(7, 5))
    check_bits(b, b("where", b("nonzero", numbers), None, x, value=-1.0))


def check_bits(b: Builder, out: Value) -> None:
    """Check a plan of what computes nothing."""
    (want,) = interpret(region_of(b, out), b.examples, torch.float64, torch.float32)
    plan = make_plan(region_of(b, out))
    tensors, _ = tensors_and_numbers(b.examples)
    assert plan.takes(tensors, []), refusal(plan)
    for _ in range(2):
        (got,) = plan.run(tensors, [])
        assert torch.equal(got, want.to(got.dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_choices_keep_nan_and_overwrite_nothing_that_is_read(
    b: Builder, dtype: torch.dtype
) -> None:
    condition, x = b.input(torch.rand(3, 70) < 0.5), b.input(tensor(3, 70, dtype=dtype))
    b.examples[1][:, ::7] = math.nan
    chosen = b("where", condition, x, None, value=math.inf)
    region = region_of(b, chosen, b("where", condition, None, x, value=-math.inf))
    got = make_plan(region).run(b.examples, [])
    want = [
        torch.where(b.examples[0], b.examples[1], math.inf),
        torch.where(b.examples[0], -math.inf, b.examples[1]),
    ]
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def test_several_numbers_to_choose(b: Builder) -> None:
    """Each has its own memory."""
    x, condition = b.input(tensor(4, 5)), b.input(torch.rand(4, 5) < 0.5)
    chosen = [b("where", condition, None, x, value=value) for value in (1e-8, 2e-8, -1e-8)]
    out = b.binary("add", b.binary("add", chosen[0], chosen[1]), chosen[2])
    check(b, b.eltwise("linear", out, 1e6, 0.0))


@pytest.mark.parametrize("shape", [(5,), (2, 3, 5), (1, 1)])
def test_expansions_to_the_size_of_another_tensor(b: Builder, shape: tuple[int, ...]) -> None:
    x, other = b.input(tensor(5) if shape[-1] == 5 else tensor(1)), b.input(tensor(*shape))
    check(b, b.binary("mul", b("expand_as", x, other), other))


#: Where scores are replaced, of (batch, heads, target, source).
CHOICES = [(5, 7), (2, 1, 1, 7), (1, 3, 5, 1), (2, 3, 5, 7), ()]
LOWEST = torch.finfo(torch.float32).min


@pytest.mark.parametrize("fill_where", [True, False])
@pytest.mark.parametrize("fill", [-math.inf, LOWEST, -1e9, 0.75])
@pytest.mark.parametrize("shape", CHOICES, ids=str)
def test_attention_with_replaced_scores(
    b: Builder, shape: tuple[int, ...], fill: float, fill_where: bool
) -> None:
    q = b.input(tensor(2, 3, 5, 8))
    k, v = (b.input(tensor(2, 3, 7, 8, seed=seed)) for seed in (1, 2))
    replaced = torch.rand(shape) < 0.4
    if fill == -math.inf:
        replaced = replaced & (torch.arange(shape[-1] if shape else 1) > 0).view(
            [-1] if shape else []
        )
    elif shape:
        replaced[..., :1, :] = True  # a query that sees nothing weighs all the same
    chosen = b.input(replaced == fill_where)
    mask = b.input(tensor(1, 3, 1, 7, seed=5))
    attributes = {"scale": 0.3, "causal": False, "swapped": False}
    attributes |= {"fill": fill, "fill_where": fill_where}
    check(
        b,
        b("attention", q, k, v, None, chosen, **attributes),
        b("attention", q, k, v, mask, chosen, **attributes),
    )


def test_queries_that_see_no_key_give_nan_where_a_model_spells_it_out(b: Builder) -> None:
    q, k, v = (b.input(tensor(1, 2, 5, 8, seed=seed)) for seed in range(3))
    seen = torch.ones(5, 5, dtype=torch.bool).tril(-1)
    chosen = b.input(seen)
    mask = b.input(torch.zeros(5, 5).masked_fill(~seen, -math.inf))
    attributes = {"scale": 0.5, "causal": False, "swapped": False, "additive": True}
    region = region_of(
        b,
        b("attention", q, k, v, mask, **attributes),
        b("attention", q, k, v, None, chosen, fill=-math.inf, fill_where=False, **attributes),
    )
    given = [b.examples[b.graph.inputs.index(value)] for value in region.inputs]
    scores = (b.examples[0] @ b.examples[1].mT * 0.5).masked_fill(~seen, -math.inf)
    want = scores.softmax(-1) @ b.examples[2]
    assert want.isnan().any()
    for got in make_plan(region).run(given, []):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("source", [7, 300])
def test_the_lowest_number_hides_without_being_infinite(b: Builder, source: int) -> None:
    """Where every score of a query is the lowest number, its weights are equal, as in torch."""
    q = b.input(tensor(2, 2, 5, 8))
    k, v = (b.input(tensor(2, 2, source, 8, seed=seed)) for seed in (1, 2))
    mask = torch.zeros(2, 1, 5, source)
    mask[0, :, :, source // 2 :] = LOWEST
    mask[1] = LOWEST
    causal = torch.ones(5, source, dtype=torch.bool).tril()
    added, chosen = b.input(mask), b.input(causal)
    attributes = {"scale": 0.3, "causal": False, "swapped": False}
    region = region_of(
        b,
        b("attention", q, k, v, added, **attributes),
        b("attention", q, k, v, added, chosen, fill=LOWEST, fill_where=False, **attributes),
    )
    got = make_plan(region).run(b.examples, [])
    scores = b.examples[0] @ b.examples[1].mT * 0.3
    replaced = torch.where(causal, scores, LOWEST)
    want = [(s + mask).softmax(-1) @ b.examples[2] for s in (scores, replaced)]
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(6, 5, 16), (5, 16)])
def test_attention_without_heads_or_batch(
    b: Builder, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    q, k, v = (b.input(tensor(*shape, dtype=dtype, seed=seed)) for seed in range(3))
    mask = b.input(tensor(*shape[:-1], 5, dtype=dtype, seed=4))
    attributes = {"scale": 0.25, "causal": False, "swapped": False}
    check(
        b,
        b("attention", q, k, v, None, **attributes),
        b("attention", q, k, v, mask, **attributes),
        dtype=dtype,
    )


REFUSED_CHOICES: dict[str, Callable[[Builder], Value]] = {
    "a condition of float": lambda b: b(
        "where", b.input(tensor(2)), b.input(tensor(2)), None, value=0.0
    ),
    "two types": lambda b: b(
        "where",
        b.input(torch.ones(2, dtype=torch.bool)),
        b.input(tensor(2)),
        b.input(tensor(2, dtype=torch.bfloat16)),
    ),
    "sizes that do not broadcast": lambda b: b(
        "where", b.input(torch.ones(2, dtype=torch.bool)), b.input(tensor(3)), None, value=0.0
    ),
    "an empty tensor": lambda b: b(
        "where", b.input(torch.ones(1, dtype=torch.bool)), b.input(tensor(0)), None, value=0.0
    ),
    "a number that bfloat16 does not hold": lambda b: b(
        "where",
        b.input(torch.ones(2, dtype=torch.bool)),
        b.input(tensor(2, dtype=torch.bfloat16)),
        None,
        value=3.4e38,
    ),
    "heads of several ranks": lambda b: b(
        "attention",
        *(b.input(tensor(*shape)) for shape in ((1, 2, 3, 8), (2, 3, 8), (2, 3, 8))),
        None,
        scale=0.5,
    ),
}


@pytest.mark.parametrize("why", REFUSED_CHOICES)
def test_choices_that_a_plan_does_not_take(b: Builder, why: str) -> None:
    plan = make_plan(region_of(b, REFUSED_CHOICES[why](b)))
    assert not plan.takes(b.examples, [])
    assert refusal(plan)


# Other norms.


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


SMALL = st.sampled_from([1e-6, 1e-2])


@property_test
@given(data=st.data())
def test_group_norm(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype, groups = draw(dtypes), draw(st.sampled_from([1, 2, 8]))
    count = groups * draw(st.sampled_from([1, 3, 10, 17]))
    space = draw(st.lists(st.sampled_from([1, 5, 8, 17]), max_size=3))
    shape = (draw(batches), count, *space)
    assume(math.prod(shape) // shape[0] > groups)  # torch wants more than one value a group
    x = b.input(tensor(*shape, dtype=dtype, layout=draw(arrangements)))
    if draw(st.booleans()):
        x = b.eltwise("linear", x, 0.5, 0.25)
    weight, bias = (b.constant(count) if draw(st.booleans()) else None for _ in range(2))
    out = b("group_norm", x, weight, bias, groups=groups, eps=draw(SMALL) + 1e-3)
    wide = weight or bias  # factors may be wider than what they scale
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
def test_group_norm_of_large_nearly_constant_planes_keeps_its_digits(
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


# Resampling.

NEAREST = {"algorithm": "nearest", "align_corners": False, "scale_height": 0.0, "scale_width": 0.0}


@property_test
@given(data=st.data())
def test_resampling(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype = draw(dtypes)
    size = st.sampled_from([1, 2, 5, 16, 17, 33])
    shape = (draw(batches), draw(channels), draw(size), draw(size))
    x = b.input(tensor(*shape, dtype=dtype, layout=draw(arrangements)))
    algorithm = draw(st.sampled_from(["nearest", "linear"]))
    attributes: dict[str, Any] = {
        **NEAREST,
        "algorithm": algorithm,
        "align_corners": algorithm == "linear" and draw(st.booleans()),
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


FACTORS = st.sampled_from([1.0, 2.0, 1.3, 3.7])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_resampled_images_are_written_in_their_place(
    b: Builder, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As feature pyramids and U-shaped nets join them."""
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", layout)
    x = b.input(tensor(1, 3, 8, 8))
    up = b("resample", convolved(b, x, 3, 16, stride=(2, 2)), 8, 8, **NEAREST)
    joined = b("cat", up, convolved(b, x, 3, 16, 3), dim=1)
    plan = check(b, convolved(b, joined, 32, 8))
    if layout == "channels_last":
        # What comes in and goes out, and the convolution: its kernels write whole tensors only.
        assert copies_of(plan) <= 3


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize("corners", [False, True])
def test_bilinear_resampling_blends_infinities_as_torch_does(
    b: Builder, corners: bool, layout: str, dtype: torch.dtype
) -> None:
    """Between two infinities of one sign there is the same one, and NaN between others."""
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


def test_factors_that_torch_does_not_always_heed_are_refused(b: Builder) -> None:
    x = b.input(tensor(1, 2, 2, 2))
    attributes = {**NEAREST, "scale_height": 1.3, "scale_width": 2.0}
    assert not make_plan(region_of(b, b("resample", x, None, None, **attributes))).takes(
        b.examples, []
    )


def test_long_rows_are_resampled_or_refused(b: Builder) -> None:
    x = b.input(tensor(1, 2, 1, 5000))
    out = b("resample", x, 1, 10000, **NEAREST)
    plan = make_plan(region_of(b, out))
    assert not plan.takes(b.examples, [])
    assert "too long" in refusal(plan)


# Groups of tables.


@property_test
@given(data=st.data())
def test_groups_of_embeddings(data: st.DataObject) -> None:
    """With offsets, without, or row by row, beside each other in one result."""
    b, draw = Builder(), data.draw
    dtype, count = draw(dtypes), draw(st.integers(1, 4))
    mode = draw(st.sampled_from(["sum", "mean", "max", "each"]))
    bags, last = draw(st.integers(1, 6)), draw(st.booleans())
    kind = draw(st.sampled_from([torch.int64, torch.int32]))
    tables, indices, offsets, weights = [], [], [], []
    weighted = mode == "sum" and draw(st.booleans())
    for _ in range(count):
        rows = draw(st.sampled_from([1, 7, 100]))
        tables.append(b.constant(rows, draw(lengths)))
        starts: Value | None = None
        if mode == "each":
            ids = torch.randint(rows, (bags,), dtype=kind)
        elif draw(st.booleans()):
            cuts = sorted(draw(st.integers(0, 9)) for _ in range(bags - 1))
            ids = torch.randint(rows, (9,), dtype=kind)
            starts = b.input(torch.tensor([0, *cuts, *([9] if last else [])], dtype=kind))
        else:
            ids = torch.randint(rows, (bags, draw(st.integers(1, 5))), dtype=kind)
        indices.append(b.input(ids))
        offsets.append(starts)
        given = weighted and draw(st.booleans())
        weights.append(b.input(tensor(*ids.shape, dtype=dtype)) if given else None)
    operands = [*tables, *indices, *offsets, *(weights if weighted else ())]
    attributes = {"count": count, "mode": mode, "last_offset": last}
    node = b.node("embedding_bags", *operands, results=count, **attributes)
    check(b, b("cat", *node.outputs, dim=1), dtype=dtype)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 1, 3)])
def test_rows_of_several_tables_have_the_shape_of_their_indices(
    b: Builder, shape: tuple[int, ...]
) -> None:
    tables = [b.constant(7, 16), b.constant(5, 16)]
    ids = [b.input(torch.randint(5, shape).transpose(0, -1) if shape else torch.tensor(3))] * 2
    node = b.node("embedding_bags", *tables, *ids, results=2, count=2, mode="each")
    check(b, *node.outputs)


@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
@pytest.mark.parametrize("wrong", [(0, 3, 2), (0, 5, 13), (0, -1, 4)])
def test_offsets_that_make_no_sense_raise(
    b: Builder, wrong: tuple[int, ...], kind: torch.dtype
) -> None:
    ids, starts = b.input(torch.randint(7, (9,), dtype=kind)), b.input(torch.tensor([0, 2, 4]))
    b.examples[1] = b.examples[1].to(kind)
    attributes = {"count": 1, "mode": "sum", "last_offset": True}
    plan = check(b, b("embedding_bags", b.constant(7, 8), ids, starts, **attributes))
    with pytest.raises(IndexError, match="out of range"):
        plan.run([b.examples[0], torch.tensor(wrong, dtype=kind)], [])
