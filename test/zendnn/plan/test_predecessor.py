"""A build for other sizes takes over what has not changed, and makes what a first build makes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from test.drawing import Draw

from ..common import PRIMITIVE_DTYPES
from ..support.decoder import BATCH, LENGTH, WIDTH, decoder
from ..support.graphs import Builder
from ..support.plans import cast, explained, make_plan, region_of, tensor
from ..support.random_plans import (
    ROWS,
    Net,
    add_cat,
    add_first,
    add_linear,
    add_norm,
    add_overlap,
    add_split,
    many,
)

fewer = settings(many, max_examples=150)


def what_is_built(plan: torch.classes.zendnn.Plan) -> dict[str, Any]:
    """What a plan has built for its latest inputs, apart from how it came to it."""
    built: dict[str, Any] = dict(explained(plan)["built"][0])
    del built["taken_over"]
    for left in built["left_to_torch"]:
        del left["ms"]
    return built


def taken_over(plan: torch.classes.zendnn.Plan) -> int:
    """How many nodes the latest build has taken over from the one before."""
    count: int = explained(plan)["built"][0]["taken_over"]
    return count


def test_what_does_not_depend_on_a_length_is_taken_over() -> None:
    b = Builder()
    plan = make_plan(region_of(b, *decoder(b)))
    x = tensor(BATCH, 1, WIDTH)
    counts = []
    for length in (LENGTH, LENGTH + 1, LENGTH + 2, LENGTH):
        assert plan.takes([x, tensor(BATCH, length, WIDTH, seed=1)], [])
        counts.append(taken_over(plan))
    # Not: the cache with its view and the layer that writes into it, two products, the softmax.
    assert counts == [0, 8, 8, 0]


@pytest.mark.parametrize("change", ["threads", "cleared", "verified"])
def test_a_build_that_might_choose_otherwise_takes_nothing_over(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = Builder()
    plan = make_plan(region_of(b, *decoder(b)))
    x = tensor(BATCH, 1, WIDTH)
    assert plan.takes([x, tensor(BATCH, LENGTH, WIDTH)], [])
    threads = torch.get_num_threads()
    try:
        if change == "threads":
            torch.set_num_threads(threads + 1)
        elif change == "cleared":
            plan.clear()
        else:
            monkeypatch.setenv("ZENDNN_VERIFY", "1")
        assert plan.takes([x, tensor(BATCH, LENGTH + 1, WIDTH)], [])
        assert taken_over(plan) == 0
    finally:
        torch.set_num_threads(threads)


def add_attention(net: Net) -> None:
    """Rows that attend to the cache, or to what was made of it."""
    x, shape = net.pick()
    if len(shape) != 3 or shape[::2] != (BATCH, WIDTH):
        return
    keys = net.like((BATCH, LENGTH, WIDTH))
    weights = net.b("softmax", net.b("matmul", x, net.b("transpose", keys, 1, 2)), dim=-1)
    net.with_posts(net.b("matmul", weights, keys), shape)


def add_grown(net: Net) -> None:
    """The cache with another row."""
    part = net.one_of([v for v, shape in net.shapes.items() if shape == (BATCH, 1, WIDTH)])
    parts = [net.like((BATCH, LENGTH, WIDTH)), part]
    parts = parts if net.draw(st.booleans()) else parts[::-1]
    net.add(net.b("cat", *parts, dim=1), BATCH, LENGTH + 1, WIDTH)


STEPS = [
    *ROWS,
    *[add_attention] * 6,
    *[add_grown] * 3,
    *(add_norm, add_linear, add_cat, add_split, add_overlap, add_first),
]


def network(draw: Draw, dtype: torch.dtype) -> Net:
    """A random network on rows whose number is fixed, and on a cache."""
    net = Net(draw, dtype)
    net.input(BATCH, 1, WIDTH)
    net.input(BATCH, LENGTH, WIDTH)
    add_linear(net)
    for _ in range(draw(st.integers(4, 14))):
        STEPS[draw(st.integers(0, len(STEPS) - 1))](net)
    return net


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
def test_any_network_is_built_as_if_it_were_the_first_time(dtype: torch.dtype) -> None:
    total = 0

    @fewer
    @given(data=st.data())
    def holds(data: st.DataObject) -> None:
        nonlocal total
        torch.manual_seed(0)
        net = network(data.draw, dtype)
        region = region_of(net.b, *net.results())
        examples = dict(zip(net.b.graph.inputs, net.b.examples, strict=True))
        plan = make_plan(region, dtype)
        for length in data.draw(st.permutations([LENGTH, LENGTH + 1, LENGTH + 3])):
            inputs = [cast(resized(examples[v], length), dtype) for v in region.inputs]
            fresh = make_plan(region, dtype)
            taken = plan.takes(inputs, [])
            assert fresh.takes(inputs, []) == taken
            assert what_is_built(plan) == what_is_built(fresh)
            total += taken_over(plan)
            if taken:
                for ours, first in zip(plan.run(inputs, []), fresh.run(inputs, []), strict=True):
                    assert torch.equal(ours.nan_to_num(), first.nan_to_num())

    holds()
    assert total > 150


def resized(x: Tensor, length: int) -> Tensor:
    """An input with so many rows if it is the cache."""
    if x.shape != (BATCH, LENGTH, WIDTH):
        return x
    return tensor(BATCH, length, WIDTH, dtype=x.dtype, seed=length)
