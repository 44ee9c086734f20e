"""Convolutions in plans: any window, layout and algorithm, and the timing that chooses one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.backends.zendnn.ir.node import Value

from test.drawing import property_test

from ..common import PRIMITIVE_DTYPES, SLACK, primitive_dtypes, stock, values
from ..support import front_ends
from ..support.choices import Choices
from ..support.graphs import Builder
from ..support.plans import (
    ARRANGEMENTS,
    BATCHES,
    check,
    implementations,
    make_plan,
    region_of,
    tensor,
    then,
)
from ..support.samples import FUNCTIONS, arrangements, batches, channels, convolved, joined


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


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("inputs", [3, 8])
@pytest.mark.parametrize("layout", ["blocked", "channels_last"])
def test_transposed_convolutions_into_and_of_a_slice(
    b: Builder,
    monkeypatch: pytest.MonkeyPatch,
    layout: str,
    inputs: int,
    stride: int,
    batch: int,
) -> None:
    """The implementation as a convolution's gradient ignores gaps between images."""
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", layout)
    x = b.input(tensor(batch, inputs, 8, 8))
    attributes: dict[str, Any] = {"transposed": True, "stride": (stride, stride)}
    parts = [
        b.convolution(x, b.constant(inputs, n, 2, 2), b.constant(n), **attributes) for n in (8, 16)
    ]
    whole = joined(b, *parts)
    after = b.convolution(whole, b.constant(24, 8, 2, 2), b.constant(8), **attributes)
    of_part = b.convolution(parts[1], b.constant(16, 8, 2, 2), **attributes)
    check(b, after, of_part, convolved(b, whole, 24, 8, 3))


@pytest.mark.parametrize("layout", ["transposed", "padded", "repeated", "channels_last"])
@pytest.mark.parametrize("op", ["convolution", "linear"])
def test_constant_weights_of_any_layout(b: Builder, op: str, layout: str) -> None:
    x = b.input(tensor(2, 8, 6, 8))
    shape = (16, 8, 3, 3) if op == "convolution" else (16, 8)
    weight = b.graph.constant(ARRANGEMENTS[layout](torch.randn(shape, dtype=torch.float64)))
    bias = b.graph.constant(torch.randn(1, dtype=torch.float64).expand(16))
    out = b.convolution(x, weight, bias) if op == "convolution" else b("linear", x, weight, bias)
    check(b, out)


class TestDepthwise:
    """Those for which ZenDNN has no implementation of their own."""

    @pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
    @pytest.mark.parametrize("layout", ["contiguous", "transposed"])
    @pytest.mark.parametrize("window", [(4, 1, 1, 3), (31, 1, 1, 15), (3, 2, 3, 1), (5, 5, 1, 0)])
    @pytest.mark.parametrize("filters", [1, 2])
    def test_of_signals(
        self,
        b: Builder,
        filters: int,
        window: tuple[int, int, int, int],
        layout: str,
        dtype: torch.dtype,
    ) -> None:
        size, stride, dilation, padding = window
        x = b.input(tensor(2, 48, 70, dtype=dtype, layout=layout))
        weight, bias = b.constant(48 * filters, 1, size), b.constant(48 * filters)
        attributes = {"stride": (stride,), "dilation": (dilation,), "padding": (padding,)}
        out = b.convolution(x, weight, bias, groups=48, **attributes)
        plan = check(b, out, dtype=dtype)
        assert "depthwise" in implementations(plan)

    @pytest.mark.parametrize("padded", [False, True])
    def test_of_images_with_several_filters(self, b: Builder, padded: bool) -> None:
        x = b.input(tensor(2, 30, 9, 40))
        ends: dict[str, Any] = {"padding": (2, 1), "padding_end": (0, 3)} if padded else {}
        weight = b.constant(60, 1, 3, 4)
        plan = check(b, b.convolution(x, weight, groups=30, stride=(1, 2), **ends))
        assert "depthwise" in implementations(plan)

    def test_with_post_ops_in_a_slice(self, b: Builder) -> None:
        x, added = b.input(tensor(2, 20, 33)), b.input(tensor(2, 20, 33, seed=1))
        attributes: dict[str, Any] = {"padding": (1,), "groups": 20}
        parts = [b.convolution(x, b.constant(20, 1, 3), b.constant(20), **attributes)]
        parts.append(b.convolution(parts[0], b.constant(20, 1, 3), **attributes))
        then(b, parts[1], ("add", added), "silu")
        check(b, joined(b, *parts), parts[0])

    def test_of_weights_that_are_not_finite(self, b: Builder) -> None:
        weight = torch.randn(20, 1, 3, dtype=torch.float64)
        weight[4, 0, 1] = math.inf
        x = b.input(tensor(2, 20, 33))
        out = b.convolution(x, b.graph.constant(weight), padding=(1,), groups=20)
        plan = make_plan(region_of(b, out))
        (got,) = plan.run(b.examples, [])
        expected = torch.conv1d(b.examples[0], weight.float(), padding=1, groups=20)
        torch.testing.assert_close(got, expected, equal_nan=True)
        assert "depthwise" not in implementations(plan)


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("inputs", [16, 30])
@pytest.mark.parametrize("layout", ["blocked", "channels_last"])
def test_bias_and_post_ops_of_transposed_convolutions_in_groups(
    b: Builder, monkeypatch: pytest.MonkeyPatch, layout: str, inputs: int, dtype: torch.dtype
) -> None:
    """They follow in steps of their own: a convolution's gradient is slow with them."""
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", layout)
    x = b.input(tensor(2, inputs, 8, 9, dtype=dtype))
    weight, bias = b.constant(inputs, 1, 4, 4), b.constant(inputs)
    attributes: dict[str, Any] = {"stride": (2, 2), "padding": (1, 1), "groups": inputs}
    out = b.convolution(x, weight, bias, transposed=True, **attributes)
    plan = check(b, then(b, out, "relu"), convolved(b, out, inputs, 8), dtype=dtype)
    if dtype == torch.float32:
        parts = ", ".join(implementations(plan)).split(", ")
        steps = [part.split()[0].split(":")[0] for part in parts]
        assert steps[steps.index("conv") :][:3] == ["conv", "binary", "eltwise"], steps


class TestWinograd:
    """Compares with the direct method wherever the kernel accepts the problem."""

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

    @pytest.mark.parametrize(
        "case",
        [
            *("two residuals", "relu and clip", "clip and relu", "batches", "grouped"),
            *(["bfloat16"] if torch.bfloat16 in PRIMITIVE_DTYPES else []),
        ],
    )
    def test_that_others_compute_the_problems_it_refuses(
        self, b: Builder, monkeypatch: pytest.MonkeyPatch, case: str
    ) -> None:
        monkeypatch.setenv("ZENDNN_WINOGRAD", "2")
        dtype = torch.bfloat16 if case == "bfloat16" else torch.float32
        x = b.input(tensor(2, 16, 9, 9, dtype=dtype))
        others = [b.input(tensor(2, 32, 9, 9, seed=seed)) for seed in (3, 4)]
        if case == "grouped":
            y = b.convolution(x, b.constant(32, 8, 3, 3), padding=(1, 1), groups=2)
        else:
            y = convolved(b, x, 16, 32, 3)
        if case == "two residuals":
            y = then(b, y, *(("add", other) for other in others))
        elif case == "relu and clip":
            y = then(b, y, "relu", ("clip", -1.0, 0.5))
        elif case == "clip and relu":
            y = then(b, y, ("clip", -1.0, 0.5), "relu")
        elif case == "batches":
            y = joined(b, y, b.eltwise("relu", others[0]), dim=0)
        check(b, y, dtype=dtype)

    @pytest.mark.parametrize("positive", [False, True])
    @pytest.mark.parametrize(
        ("inputs", "filters", "size"),
        [
            *((64, 64, 56), (128, 128, 28), (256, 256, 14), (512, 512, 7)),  # ResNet
            *((64, 128, 112), (256, 512, 28), (512, 512, 14)),  # VGG
            *((128, 64, 128), (1280, 1280, 8)),  # U-Nets
            (160, 960, 7),  # a detector's head on MobileNet
        ],
    )
    def test_that_rounding_errors_are_bounded_on_real_layers(
        self,
        b: Builder,
        monkeypatch: pytest.MonkeyPatch,
        inputs: int,
        filters: int,
        size: int,
        positive: bool,
    ) -> None:
        """The typical error is at most three times stock torch's, the largest at most four times.

        Of contiguous images, stock torch sums in blocks of 16 channels: its errors hardly grow.
        """
        monkeypatch.setenv("ZENDNN_WINOGRAD", "2")
        numbers = values(1, inputs, size, size)
        x = (numbers / 2 + 1 if positive else numbers).relu()
        weight = values(filters, inputs, 3, 3, seed=1) * math.sqrt(2 / (9 * inputs))
        y = b.convolution(b.input(x), b.graph.constant(weight.double()), padding=(1, 1))
        plan = make_plan(region_of(b, y))
        (ours,) = plan.run(b.examples, [])
        assert "winograd" in implementations(plan)
        with stock():
            theirs = torch.conv2d(x, weight, padding=1)
            exact = torch.conv2d(x.double(), weight.double(), padding=1)
        error, their_error = ours - exact, theirs - exact
        assert error.square().mean().sqrt() <= 3 * their_error.square().mean().sqrt()
        assert error.abs().max() <= SLACK * their_error.abs().max()

    @pytest.mark.parametrize("threads", [1, 2, 4])
    def test_of_many_blocks(
        self, b: Builder, monkeypatch: pytest.MonkeyPatch, threads: int
    ) -> None:
        torch.set_num_threads(threads)
        x = b.input(tensor(1, 512, 64, 64, layout="channels_last"))
        self.compare(b, monkeypatch, convolved(b, x, 512, 64, 3))

    def test_that_propagates_nan(self, b: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ZENDNN_WINOGRAD", "2")
        x = b.input(torch.full((1, 16, 6, 6), math.nan))
        (got,) = make_plan(region_of(b, then(b, convolved(b, x, 16, 16, 3), "relu"))).run(
            b.examples, []
        )
        assert got.isnan().all()


def test_choices_depend_on_every_property_of_the_problem(
    choices: Choices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each variant has its own line among the choices."""
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
    for i, work in enumerate(works):
        b = Builder()
        check(b, work(b))
        keys = set(choices.keys())
        assert len(keys) > len(known), f"work {i} has the key of another"
        known = keys


def test_timing_stays_within_the_budget(
    b: Builder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Except two candidates of the first choice: one alone is no choice."""
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "1e-9")
    hidden = b.linear(b.input(tensor(37, 96)), 129, 96)
    with torch.backends.zendnn.verbose(1):
        check(b, b.linear(hidden, 64, 129))
    timed = [x for x in capfd.readouterr().out.splitlines() if ",tune," in x]
    assert len(timed) == 2, timed


@pytest.mark.usefixtures("images")
def test_one_weight_in_two_directions(b: Builder) -> None:
    weight, x = b.constant(32, 32, 3, 3), b.input(tensor(1, 32, 8, 8))
    padding: dict[str, Any] = {"padding": (1, 1)}
    check(
        b, b.convolution(x, weight, **padding), b.convolution(x, weight, transposed=True, **padding)
    )


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize(
    ("inputs", "outputs", "groups", "dilation"),
    [(9, 6, 3, 1), (9, 9, 9, 1), (3, 5, 1, 1), (16, 16, 1, 3), (6, 4, 2, 2)],
)
def test_convolutions_of_few_channels_side_by_side(
    b: Builder, inputs: int, outputs: int, groups: int, dilation: int, dtype: torch.dtype
) -> None:
    x = b.input(tensor(3, inputs, 9, 9, dtype=dtype))
    window: dict[str, Any] = {
        "groups": groups,
        "dilation": (dilation,) * 2,
        "padding": (dilation,) * 2,
    }
    weights = [b.constant(outputs, inputs // groups, 3, 3) for _ in range(2)]
    check(b, joined(b, *(b.convolution(x, weight, **window) for weight in weights)), dtype=dtype)


def test_a_layout_that_only_plain_loops_serve_is_not_timed(choices: Choices) -> None:
    """Windows of 128 points, as in speech models: ZenDNN has no fast code for them in blocks."""
    x = values(1, 64, 60)
    for kernel, is_timed in ((3, True), (128, False)):
        net = nn.Conv1d(64, 64, kernel, padding=kernel // 2, groups=2).eval()
        with torch.no_grad():
            torch.testing.assert_close(front_ends.frozen(net, x)(x), net(x), rtol=1e-4, atol=1e-5)
        problems = choices.keys()
        layouts = [key for key in problems if key.startswith("layout ")]
        assert any(f"[64, 32, {kernel}]" in key for key in layouts) == is_timed
