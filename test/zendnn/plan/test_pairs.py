"""Pairs of features in plans: gathered pairs, and their products."""

from __future__ import annotations

import itertools

import pytest
import torch

from ..common import DTYPES, PRIMITIVE_DTYPES
from ..support.graphs import Builder
from ..support.plans import check, make_plan, region_of, tensor
from ..support.samples import joined, made


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


def test_indices_that_lie_apart(b: Builder) -> None:
    rows, columns = (
        torch.tensor(numbers)[::2] for numbers in ([0, 9, 1, 9, 2, 9], [3, -7, 2, -7, 1, -7])
    )
    check(b, b("gather_pairs", b.input(tensor(4, 4)), *map(b.graph.constant, (rows, columns))))


def test_more_pairs_than_are_computed_at_once(b: Builder) -> None:
    x = b.input(tensor(5, 9, 16))
    check(b, b("pairwise_dot", x, *(b.graph.constant(torch.randint(9, (5000,))) for _ in range(2))))


def test_indices_that_were_changed_later_raise(b: Builder) -> None:
    """Constants share their memory with the module that they come from."""
    rows, columns = torch.tensor([0, 1]), torch.tensor([1, 2])
    x = b.input(tensor(3, 3))
    region = region_of(b, b("gather_pairs", x, *map(b.graph.constant, (rows, columns))))
    plan = make_plan(region)
    plan.run(b.examples, [])
    rows[0] = 3
    with pytest.raises(IndexError, match="out of range"):
        plan.run(b.examples, [])
