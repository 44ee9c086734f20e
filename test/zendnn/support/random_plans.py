"""Random plans."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from hypothesis import Phase
from hypothesis import strategies as st
from torch.backends.zendnn.ir.node import Value

from test.drawing import Draw, examples

from .graphs import Builder
from .plans import ARRANGEMENTS, tensor, then
from .samples import FUNCTIONS, shape_after, view_of

#: Graphs are small and fast; hypothesis's explain phase would take long.
many = examples(300, phases=[Phase.generate, Phase.shrink])


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
        result = [v for v in self.shapes if v.producer is not None]
        shown = [self.b.eltwise("affine", v, 0.5, 0.25) for v in result if not v.users]
        return [*shown, self.one_of(result)] if self.draw(st.booleans()) else shown


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


ROWS = [
    *[add_linear] * 5,
    *[add_view] * 4,
    *(add_function, add_binary, add_binary, add_matmul, add_norm, add_norm, add_softmax),
    *(add_mean, add_first, add_stack, add_pad),
]
