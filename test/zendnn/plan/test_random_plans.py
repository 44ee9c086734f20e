"""Random graphs of the engine's own operators: right however values share memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from ..common import PRIMITIVE_DTYPES
from ..support.plans import CHANNELS, check
from ..support.random_plans import (
    ROWS,
    Net,
    add_binary,
    add_cat,
    add_function,
    add_linear,
    add_overlap,
    add_split,
    many,
)

# Images.


def add_convolution(net: Net) -> None:
    x, (n, c, h, w) = net.pick()
    out = net.draw(st.sampled_from(CHANNELS))
    size, stride = net.draw(st.sampled_from([1, 3])), net.draw(st.sampled_from([1, 1, 1, 2]))
    groups = c if net.draw(st.sampled_from([0, 0, 1])) else 1
    out = out if groups == 1 else c
    weight = net.constant(out, c // groups, size, size)
    bias = net.constant(out) if net.draw(st.booleans()) else None
    shape = (n, out, (h - 1) // stride + 1, (w - 1) // stride + 1)
    value = net.b.convolution(
        x, weight, bias, padding=(size // 2,) * 2, stride=(stride,) * 2, groups=groups
    )
    net.with_posts(value, shape)


def add_gate(net: Net) -> None:
    x, shape = net.pick()
    gate = net.b("mean", x, dims=tuple(range(2, len(shape))), keep=True)
    if net.draw(st.booleans()):
        gate = net.b.eltwise("sigmoid", gate)
    order = (x, gate) if net.draw(st.booleans()) else (gate, x)
    net.add(net.b.binary(net.draw(st.sampled_from(["mul", "sub"])), *order), *shape)


def add_pool(net: Net) -> None:
    x, (n, c, h, w) = net.pick()
    op = net.draw(st.sampled_from(["max_pool", "avg_pool"]))
    size, stride, padding = net.draw(st.sampled_from([(3, 1, 1), (2, 2, 0), (3, 2, 1)]))
    if min(h, w) < size:
        return
    more = {"dilation": (1, 1)} if op == "max_pool" else {"include_pad": net.draw(st.booleans())}
    value = net.b(
        op, x, kernel=(size, size), stride=(stride, stride), padding=(padding, padding), **more
    )
    net.add(value, n, c, *((k + 2 * padding - size) // stride + 1 for k in (h, w)))


def add_prelu(net: Net) -> None:
    x, shape = net.pick()
    slopes = net.constant(net.draw(st.sampled_from([1, shape[1]])))
    net.add(net.b("prelu", x, slopes), *shape)


def add_turn(net: Net) -> None:
    x, (n, c, h, w) = net.pick()
    net.add(net.b("transpose", x, 2, 3), n, c, w, h)


IMAGES = [
    *[add_convolution] * 5,
    *(add_function, add_binary, add_binary, add_gate, add_pool, add_prelu, add_cat, add_cat),
    *(add_split, add_overlap, add_turn),
]


def check_images(steps: Sequence[Callable[[Net], None]], most: int) -> None:
    """Check networks of a convolution and at most ``most`` of these steps."""

    @many
    @given(data=st.data())
    def holds(data: st.DataObject) -> None:
        torch.manual_seed(0)
        dtype = data.draw(st.sampled_from([torch.float32, *PRIMITIVE_DTYPES]))
        net = Net(data.draw, dtype)
        n, h, w = data.draw(st.sampled_from([(1, 6, 6), (3, 6, 6), (2, 5, 9)]))
        net.input(n, data.draw(st.sampled_from(CHANNELS)), h, w)
        add_convolution(net)
        for _ in range(data.draw(st.integers(4, most))):
            steps[data.draw(st.integers(0, len(steps) - 1))](net)
        check(net.b, *net.results(), dtype=dtype)

    holds()


@pytest.mark.parametrize("layout", ["any", "blocked", "channels_last"])
def test_any_network_of_images_is_right(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", layout)
    check_images(IMAGES, 12)


# Image generation and segmentation.


def add_group_norm(net: Net) -> None:
    x, shape = net.pick()
    factors = [net.constant(shape[1]) if net.draw(st.booleans()) else None for _ in range(2)]
    groups = net.one_of([n for n in (1, 2, shape[1]) if shape[1] % n == 0])
    assume(math.prod(shape[1:]) > groups)
    net.add(net.b("group_norm", x, *factors, groups=groups, eps=1e-2), *shape)


def add_choice(net: Net) -> None:
    x, shape = net.pick()
    condition = net.b.input(torch.rand(shape[1:]) < 0.5)
    y = net.like(shape) if net.draw(st.booleans()) else None
    net.add(net.b("where", condition, x, y, value=0.5), *shape)


def add_resample(net: Net) -> None:
    x, (n, c, h, w) = net.pick()
    sizes = (net.draw(st.sampled_from([h, 2 * h])), net.draw(st.sampled_from([w, w + 1])))
    algorithm = net.draw(st.sampled_from(["nearest", "linear"]))
    factors = {"scale_height": 0.0, "scale_width": 0.0}
    value = net.b("resample", x, *sizes, algorithm=algorithm, align_corners=False, **factors)
    net.add(value, n, c, *sizes)


SIZES = [*IMAGES, add_group_norm, add_choice, add_resample]


@pytest.mark.parametrize("layout", ["any", "channels_last"])
def test_any_network_with_norms_choices_and_sizes_is_right(
    layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", layout)
    check_images(SIZES, 10)


# Rows.


def add_joined(net: Net) -> None:
    if net.pick()[1]:
        add_cat(net)


NEEDS_DIMENSIONS = [add_split, add_overlap, add_cat, add_cat]


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
def test_any_network_of_rows_is_right(dtype: torch.dtype) -> None:
    @many
    @given(data=st.data())
    def holds(data: st.DataObject) -> None:
        torch.manual_seed(0)
        net = Net(data.draw, dtype)
        shape = data.draw(st.sampled_from([(4, 16), (1, 16), (2, 3, 16), (1, 6, 8), (3, 1, 8)]))
        net.input(*shape)
        if data.draw(st.booleans()):
            net.input(*shape)
        add_linear(net)
        for _ in range(data.draw(st.integers(4, 12))):
            ranked = [v for v, own in net.shapes.items() if not own]
            choices = ROWS if ranked else [*ROWS, *NEEDS_DIMENSIONS]
            choices[data.draw(st.integers(0, len(choices) - 1))](net)
        check(net.b, *net.results(), dtype=dtype)

    holds()
