"""Building blocks of graphs for tests of plans."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st
from torch.backends.zendnn.ir.node import Value
from torch.backends.zendnn.table import functions

from .graphs import Builder
from .interpreter import ELTWISE
from .plans import ARRANGEMENTS, BATCHES, CHANNELS, tensor

LAYOUTS = ("any", "blocked", "channels_last")

arrangements = st.sampled_from(sorted(ARRANGEMENTS))
channels = st.sampled_from(CHANNELS)
batches = st.sampled_from(BATCHES)
#: Values of eps in norms.
SMALL = st.sampled_from([1e-6, 1e-2])

#: Lengths on both sides of vector lengths.
lengths = st.sampled_from((1, 2, 5, 8, 15, 16, 17, 31, 33, 64))

#: Every function that a plan accepts, with non-trivial parameters.
FUNCTIONS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(
        (name for name in ELTWISE if not functions.FUNCTIONS[name].foreign), (0.0, 0.0)
    ),
    "leaky_relu": (0.1, 0.0),
    "clip": (-0.5, 0.75),
    "elu": (0.7, 0.0),
    "affine": (-1.5, 0.25),
}

#: Functions that primitives accept as post-ops.
POST_OPS = {name: x for name, x in FUNCTIONS.items() if functions.FUNCTIONS[name].primitive}

#: Functions that map an operand into the smooth domain of another function.
BEFORE: dict[str, list[tuple[str, float, float]]] = {
    "sqrt": [("abs", 0.0, 0.0), ("affine", 1.0, 0.5)],
    "log": [("abs", 0.0, 0.0), ("affine", 1.0, 0.5)],
    "log2": [("abs", 0.0, 0.0), ("affine", 1.0, 0.5)],
    "exp": [("tanh", 0.0, 0.0)],
}

#: Functions that are not computed of their own results, in which rounding errors are too large.
ONCE = [
    "log",
    "log2",
    "square",
    "exp",
]

#: Attributes of resampling, without the new size.
NEAREST = {"algorithm": "nearest", "align_corners": False, "scale_height": 0.0, "scale_width": 0.0}
#: Operators that return a view.
VIEWS = (
    *("transpose", "permute", "unsqueeze", "squeeze", "select", "slice"),
    *("flatten", "unflatten", "view", "expand", "contiguous"),
)


def is_round(name: str, dtype: torch.dtype) -> bool:
    """Whether half a unit in the last place may change the result by 1."""
    return name in ("round", "floor", "ceil") and dtype != torch.float32


def made(b: Builder, *shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Value:
    """A value that the region computes itself, and so may overwrite."""
    return b.eltwise("affine", b.input(tensor(*shape, dtype=dtype, seed=seed)), 0.5, 0.25)


def convolved(b: Builder, x: Value, inputs: int, outputs: int, size: int = 1, **more: Any) -> Value:
    """A convolution of images that keeps their size."""
    padding = (size // 2,) * 2
    weight = b.graph.constant(
        torch.randn(outputs, inputs, size, size, dtype=torch.float64)
        / (inputs * size * size) ** 0.5
    )
    return b.convolution(x, weight, b.constant(outputs), padding=padding, **more)


def joined(b: Builder, *parts: Value, dim: int = 1) -> Value:
    return b("cat", *parts, dim=dim)


@st.composite
def view_of(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[str, list[Any], dict[str, Any]]:
    """A view operator and its arguments for a tensor of this shape."""
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


def plan_of(*lines: str) -> Any:
    return torch.classes.zendnn.Plan("\n".join(("zendnn-plan 3", *lines, "")), [], "written")
