"""Random graphs of the engine's own operators: right however values share memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pytest
import torch
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from torch.backends.zendnn.ir.node import Value

from ..common import PRIMITIVE_DTYPES, Draw, property_test
from ..passes.build import Builder
from .check import ARRANGEMENTS, CHANNELS, check, tensor, then
from .samples import FUNCTIONS, shape_after, view_of

#: Graphs are small and fast; hypothesis's explain phase would take long.
many = settings(property_test, max_examples=300, phases=[Phase.generate, Phase.shrink])

#: Functions that do not grow.
TAME = ("relu", "clip", "sigmoid", "tanh", "gelu", "silu", "hardswish", "hardsigmoid", "abs")
KINDS = ("add", "sub", "mul", "max", "min")


Shape = tuple[int, ...]
T = TypeVar("T")


@dataclass
class Net:
    """A graph under construction, with the shape of each value."""

    draw: Draw
    dtype: torch.dtype
    b: Builder = field(default_factory=Builder)
    shapes: dict[Value, Shape] = field(default_factory=dict)

    def add(self, value: Value, *shape: int) -> Value:
        self.shapes[value] = shape
        return value

    def input(self, *shape: int) -> Value:
        layout = self.draw(st.sampled_from(sorted(ARRANGEMENTS)))
        x = tensor(*shape, dtype=self.dtype, layout=layout, seed=len(self.shapes))
        return self.add(self.b.input(x), *shape)

    def pick(self) -> tuple[Value, Shape]:
        """A random value, more often a late one."""
        found = list(self.shapes.items())
        return self.one_of(found[-3:] if self.draw(st.booleans()) else found)

    def one_of(self, choices: list[T]) -> T:
        """One of the choices, drawn by index, which shortens failing examples."""
        return choices[self.draw(st.integers(0, len(choices) - 1))]

    def like(self, shape: Shape) -> Value:
        """One of the values of this shape."""
        return self.one_of([v for v, other in self.shapes.items() if other == shape])

    def constant(self, *shape: int) -> Value:
        scale = math.prod(shape[1:]) ** 0.5
        numbers = torch.randn(shape, dtype=torch.float64)
        return self.b.graph.constant(numbers / scale if len(shape) > 1 else numbers)

    def with_posts(self, value: Value, shape: Shape) -> Value:
        """Add post-ops, with operands of the same shape or with one number per channel."""
        for _ in range(self.draw(st.sampled_from([0, 0, 1, 2]))):
            kind = self.draw(st.sampled_from(["function", "residual", "factor"]))
            if kind == "function":
                name = self.draw(st.sampled_from(TAME))
                then(self.b, value, (name, *FUNCTIONS[name]))
            elif kind == "factor":
                factors = (
                    self.constant(shape[1], *[1] * (len(shape) - 2)) if len(shape) > 2 else None
                )
                if factors is not None:
                    then(self.b, value, ("mul", factors))
            elif any(other == shape for other in self.shapes.values()):
                name = self.draw(st.sampled_from(["add", "add", "sub", "mul"]))
                then(self.b, value, (name, self.like(shape)))
        return self.add(value, *shape)

    def results(self) -> list[Value]:
        """Results that depend on all values: functions of unread values, and one value.

        A result never overwrites other values in a plan, so most results are one step later.
        """
        made = [v for v in self.shapes if v.producer is not None]
        shown = [self.b.eltwise("affine", v, 0.5, 0.25) for v in made if not v.users]
        return [*shown, self.one_of(made)] if self.draw(st.booleans()) else shown


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


def add_function(net: Net) -> None:
    x, shape = net.pick()
    name = net.draw(st.sampled_from(TAME))
    net.add(net.b.eltwise(name, x, *FUNCTIONS[name]), *shape)


def add_binary(net: Net) -> None:
    x, shape = net.pick()
    value = net.b.binary(net.draw(st.sampled_from(KINDS)), x, net.like(shape))
    if net.draw(st.sampled_from([0, 0, 1])):
        name = net.draw(st.sampled_from(TAME))
        then(net.b, value, (name, *FUNCTIONS[name]))
    net.add(value, *shape)


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


def add_cat(net: Net) -> None:
    x, shape = net.pick()
    dim = net.draw(st.integers(0, len(shape) - 1)) if net.draw(st.booleans()) else 1
    dim = min(dim, len(shape) - 1)

    def rest(other: Shape) -> Shape:
        return (*other[:dim], *other[dim + 1 :])

    others = [v for v, other in net.shapes.items() if rest(other) == rest(shape)]
    parts = [x, *(net.one_of(others) for _ in range(net.draw(st.integers(1, 3))))]
    total = sum(net.shapes[part][dim] for part in parts)
    if total <= 128:
        net.add(net.b("cat", *parts, dim=dim), *shape[:dim], total, *shape[dim + 1 :])


def add_split(net: Net) -> None:
    x, shape = net.pick()
    dim = min(net.draw(st.sampled_from([0, 1, 1, 3])), len(shape) - 1)
    if shape[dim] < 2:
        return
    first = net.draw(st.integers(1, shape[dim] - 1))
    node = net.b.node("split", x, results=2, dim=dim, sizes=(first, shape[dim] - first))
    for value, size in zip(node.outputs, (first, shape[dim] - first), strict=True):
        net.add(value, *shape[:dim], size, *shape[dim + 1 :])


def add_overlap(net: Net) -> None:
    """Two slices of one value, one element apart."""
    x, shape = net.pick()
    dim = net.draw(st.integers(0, len(shape) - 1))
    size = shape[dim] - 1
    if not size:
        return
    parts = [net.b("slice", x, dim, start, start + size, 1) for start in (0, 1)]
    parts = parts if net.draw(st.booleans()) else parts[::-1]
    whole = (*shape[:dim], size, *shape[dim + 1 :])
    for part in parts:
        net.add(part, *whole)
    net.add(net.b.binary("sub", *parts), *whole)


def add_view(net: Net) -> None:
    x, shape = net.pick()
    if not shape or len(shape) > 5:
        return
    name, arguments, attributes = net.draw(view_of(shape))
    after = shape_after(shape, name, arguments)
    if math.prod(after) <= 20000:
        net.add(net.b(name, x, *arguments, **attributes), *after)


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


def add_linear(net: Net) -> None:
    x, shape = net.pick()
    if not shape:
        return
    out = net.draw(st.sampled_from([shape[-1], shape[-1], 16, 5]))
    bias = net.constant(out) if net.draw(st.booleans()) else None
    net.with_posts(net.b("linear", x, net.constant(out, shape[-1]), bias), (*shape[:-1], out))


def add_matmul(net: Net) -> None:
    x, shape = net.pick()
    if len(shape) < 2:
        return
    scores = net.b("matmul", x, net.b("transpose", x, -1, -2))
    weights = net.b("softmax", scores, dim=-1)
    net.with_posts(net.b("matmul", weights, x), shape)


def add_norm(net: Net) -> None:
    x, shape = net.pick()
    if not shape:
        return
    residual = net.like(shape) if net.draw(st.booleans()) else None
    weight, bias = (net.constant(shape[-1]) if net.draw(st.booleans()) else None for _ in range(2))
    results = 2 if residual and net.draw(st.booleans()) else 1
    node = net.b.node("layer_norm", x, weight, bias, residual, results=results, eps=0.25, dims=1)
    for value in node.outputs:
        net.add(value, *shape)


def add_softmax(net: Net) -> None:
    x, shape = net.pick()
    if shape:
        dim = net.draw(st.integers(0, len(shape) - 1))
        net.add(net.b("softmax", x, dim=dim, log=net.draw(st.booleans())), *shape)


def add_mean(net: Net) -> None:
    x, shape = net.pick()
    if not shape:
        return
    dim = net.draw(st.integers(0, len(shape) - 1))
    mean = net.add(net.b("mean", x, dims=(dim,), keep=True), *shape[:dim], 1, *shape[dim + 1 :])
    if net.draw(st.booleans()):
        net.add(net.b.binary("sub", x, mean), *shape)


def add_first(net: Net) -> None:
    """A value combined with its own first slice, a view."""
    x, shape = net.pick()
    if shape:
        dim = net.draw(st.integers(0, len(shape) - 1))
        first = net.b("slice", x, dim, 0, 1, 1)
        net.add(net.b.binary("sub", x, first), *shape)


def add_stack(net: Net) -> None:
    x, shape = net.pick()
    if len(shape) < 4:
        dim = net.draw(st.integers(0, len(shape)))
        parts = (x, net.like(shape))
        net.add(net.b("stack", *parts, dim=dim), *shape[:dim], 2, *shape[dim:])


def add_pad(net: Net) -> None:
    x, shape = net.pick()
    if shape:
        pads = (net.draw(st.integers(0, 2)), net.draw(st.integers(0, 2)))
        net.add(net.b("pad", x, *pads, value=0.5), *shape[:-1], shape[-1] + sum(pads))


def add_joined(net: Net) -> None:
    if net.pick()[1]:
        add_cat(net)


ROWS = [
    *[add_linear] * 5,
    *[add_view] * 4,
    *(add_function, add_binary, add_binary, add_matmul, add_norm, add_norm, add_softmax),
    *(add_mean, add_first, add_stack, add_pad),
]
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
