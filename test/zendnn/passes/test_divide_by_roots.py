"""The pass that divides by roots."""

from __future__ import annotations

import pytest
import torch
from torch.backends.zendnn.passes.divide_by_roots import divide_by_roots
from torch.backends.zendnn.passes.partition import partition

from ..support.graphs import Builder, only, ops, random


@pytest.fixture
def b() -> Builder:
    return Builder()


@pytest.mark.parametrize("first", [True, False])
def test_a_product_with_the_reciprocal_of_a_root_is_a_quotient(b: Builder, first: bool) -> None:
    x, y = b.input(random(2, 8)), b.input(random(2, 1).abs() + 0.1)
    factor = b.eltwise("rsqrt", y)
    graph = b.done(b.binary("mul", *((factor, x) if first else (x, factor))))
    assert b.check(divide_by_roots) == [1]
    assert ops(graph) == ["eltwise", "binary"]
    assert only(graph, "binary").inputs[0] is x


def test_it_no_longer_divides_a_region(b: Builder) -> None:
    """As in a norm that subtracts the mean twice."""
    x = b.linear(b.input(random(2, 8)), 8, 8)
    mean = b("mean", x, dims=(-1,), keep=True)
    square = b.eltwise("square", b.binary("sub", x, mean))
    factor = b.eltwise("rsqrt", b("mean", square, dims=(-1,), keep=True))
    graph = b.done(b.linear(b.binary("mul", b.binary("sub", x, mean), factor), 8, 8))
    assert len(partition(graph)) == 2
    assert b.check(divide_by_roots) == [1]
    assert len(partition(graph)) == 1


def test_reciprocals_that_are_read_otherwise_stay(b: Builder) -> None:
    x = b.input(random(2, 8).abs() + 0.1)
    kept, summed, squared = (b.eltwise("rsqrt", x) for _ in range(3))
    added, multiplied = b.binary("add", summed, x), b.binary("mul", summed, x)
    left = b.opaque(torch.exp, b.eltwise("rsqrt", x))
    b.done(kept, added, multiplied, b.binary("mul", squared, squared), left)
    assert b.check(divide_by_roots) == [0]
