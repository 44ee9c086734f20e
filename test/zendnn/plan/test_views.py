"""Views in plans, alone and of one another."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.backends.zendnn.ir.text import describe

from test.drawing import property_test

from ..common import dtypes
from ..support.arrangements import ARRANGED, check_exact, small
from ..support.arrangements import arrangements as arranged
from ..support.graphs import Builder
from ..support.plans import check, make_plan, refusal, region_of, tensor
from ..support.samples import arrangements, made, plan_of, shape_after, view_of


@property_test
@given(data=st.data())
def test_views_of_views(data: st.DataObject) -> None:
    """Views of inputs and of values; as results, and read by an operator that may run in place."""
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
            x = b.eltwise("affine", x, 1.5, 0.5)
    check(b, *dict.fromkeys([*results, x]), dtype=dtype)


#: torch's own views, and how many numbers each reads; None: any number of them.
VIEWS: dict[str, tuple[Callable[..., Tensor], int | None]] = {
    "view": (lambda x, *n: x.reshape(n), None),
    "flatten": (torch.flatten, 2),
    "unflatten": (lambda x, dim, *n: x.unflatten(dim, n), None),
    "transpose": (torch.transpose, 2),
    "permute": (lambda x, *n: x.permute(n), None),
    "unsqueeze": (torch.unsqueeze, 1),
    "squeeze": (torch.squeeze, 1),
    "expand": (lambda x, *n: x.expand(n), None),
    "select": (torch.select, 2),
    "slice": (torch.ops.aten.slice, 4),
}


@property_test
@given(data=st.data())
def test_a_view_takes_the_numbers_that_torch_takes(data: st.DataObject) -> None:
    """Other numbers, and empty results, are refused."""
    draw = data.draw
    shape = draw(st.lists(st.integers(1, 4), max_size=4))
    x = tensor(*shape, layout=draw(arrangements)) if len(shape) > 1 else tensor(*shape)
    name = draw(st.sampled_from(sorted(VIEWS)))
    in_torch, count = VIEWS[name]
    numbers = draw(st.lists(st.integers(-5, 8), min_size=count or 1, max_size=count or 5))
    line = f"%y = {name}({', '.join(['%x', *map(str, numbers)])})"
    plan = plan_of("%x = input tensor", line, "return %y")
    try:
        expected = in_torch(x, *numbers)
    except (RuntimeError, IndexError):
        expected = x[:0] if shape else x.new_empty(0)
    assert plan.takes([x], []) == (expected.numel() > 0)
    if expected.numel() > 0:
        (y,) = plan.run([x], [])
        assert torch.equal(y, expected)


@pytest.mark.parametrize("rank", [8, 9, 12])
def test_views_have_at_most_eight_dimensions(b: Builder, rank: int) -> None:
    """A kernel has at most eight nested loops."""
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
    plan = torch.classes.zendnn.Plan(*describe(region_of(b, out, b.eltwise("relu", x))), "wide")
    assert not plan.takes(b.examples, [])
    assert "16 bytes" in refusal(plan)


def test_split_of_projections(b: Builder) -> None:
    """Queries, keys and values of one projection, as heads."""
    x = b.linear(b.input(tensor(2, 7, 24)), 72, 24)
    q, k, v = b.node("split", x, results=3, dim=2, chunks=3).outputs
    q, k, v = (b("transpose", b("view", y, 2, 7, 4, 6), 1, 2) for y in (q, k, v))
    out = b("attention", q, k, v, None, scale=0.0, causal=False, swapped=True)
    check(b, b.linear(b("view", out, 2, 7, -1), 24, 24))


@pytest.mark.parametrize("shape", [(5,), (2, 3, 5), (1, 1)])
def test_expansions_to_the_size_of_another_tensor(b: Builder, shape: tuple[int, ...]) -> None:
    x, other = b.input(tensor(5) if shape[-1] == 5 else tensor(1)), b.input(tensor(*shape))
    check(b, b.binary("mul", b("expand_as", x, other), other))


@pytest.mark.parametrize(
    ("name", "arguments", "strides"), [("expand", (4, 5), (5, 1)), ("slice", (1, 0, 5, 2), (3, 1))]
)
def test_a_view_that_is_a_result_is_dense(
    b: Builder, name: str, arguments: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    x = made(b, 4, 1) if name == "expand" else made(b, 4, 5)
    (got,) = make_plan(region_of(b, b(name, x, *arguments))).run(b.examples, [])
    assert got.stride() == strides


@property_test
@given(data=st.data())
def test_views_of_memory(data: st.DataObject) -> None:
    """With overlaps and gaps, of a tensor that lies in some order of its dimensions."""
    b, draw = Builder(), data.draw
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 6]), min_size=1, max_size=4)))
    order = draw(st.permutations(range(len(shape))))
    own = torch.empty_permuted(shape, order, device="meta").stride()
    rest, sizes, strides = math.prod(shape) - 1, [], []
    for _ in range(draw(st.integers(0, 4))):
        strides.append(draw(st.integers(0, 7)))
        sizes.append(draw(st.integers(1, min(6, 1 + rest // max(strides[-1], 1)))))
        rest -= (sizes[-1] - 1) * strides[-1]
    x = b.input(ARRANGED[draw(arranged)](small(shape, torch.float32)))
    if draw(st.booleans()):
        x = b.eltwise("abs", x)
    y = b("as_strided", x, input_strides=own, sizes=tuple(sizes), strides=tuple(strides))
    check_exact(b, y, b("compare", y, y, algorithm="eq"), *([x] if draw(st.booleans()) else []))


#: Views that plans refuse, and words of the reason.
REFUSED = {
    "%y = as_strided(%x) input_strides=6,1 sizes=3 strides=6": "around",
    "%y = as_strided(%x) input_strides=8,1 sizes=2 strides=6": "around",
    "%y = as_strided(%x) input_strides=6,1 sizes=2 strides=-1": "around",
}


@pytest.mark.parametrize("line", REFUSED)
def test_views_of_what_is_not_there_are_refused(line: str) -> None:
    plan = plan_of("%x = input tensor", line, "return %y")
    assert not plan.takes([tensor(2, 6)], [])
    assert REFUSED[line] in refusal(plan)
