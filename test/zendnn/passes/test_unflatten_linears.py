"""Linear layers lose the views that make a matrix of a tensor, and a tensor of the result."""

from __future__ import annotations

import pytest
from torch.backends.zendnn.ir.node import Value
from torch.backends.zendnn.passes.fuse_eltwise import fuse_eltwise
from torch.backends.zendnn.passes.unflatten_linears import unflatten_linears

from ..support.graphs import Builder, only, ops, posts, random


@pytest.fixture
def b() -> Builder:
    return Builder()


def flat_layer(b: Builder, x: Value, *sizes: int) -> Value:
    """A layer of 4 and 6 features on a matrix, whose result is viewed."""
    return b("view", b.linear(b("view", x, -1, 4), 6, 4), *sizes)


def test_a_layer_between_views_takes_the_tensor_and_its_activation(b: Builder) -> None:
    x = b.input(random(2, 3, 4))
    x.dims = (2, 3, 4)
    graph = b.done(b.eltwise("relu", flat_layer(b, x, 2, 3, 6)))
    graph.infer_types()
    assert b.check(unflatten_linears, fuse_eltwise) == [1, 1]
    assert ops(graph) == ["linear"]
    assert posts(only(graph, "linear")) == ["relu"]


def test_one_dim_may_be_unknown(b: Builder) -> None:
    x = b.input(random(2, 3, 4))
    x.dims = (2, None, 4)
    graph = b.done(flat_layer(b, x, 2, -1, 6))
    graph.infer_types()
    assert b.check(unflatten_linears) == [1]
    assert ops(graph) == ["linear"]


@pytest.mark.parametrize(
    ("dims", "sizes"),
    [
        ((None, None, 4), (2, 3, 6)),
        ((2, 3, None), (2, 3, 6)),
        ((2, 3, 4), (3, 2, 6)),
        ((2, 3, 4), (6, 6)),
        ((2, 3, 4), (2, 9, 2)),
        (None, (2, 3, 6)),
    ],
)
def test_views_to_or_from_other_rows_stay(
    b: Builder, dims: tuple[int | None, ...] | None, sizes: tuple[int, ...]
) -> None:
    x = b.input(random(2, 3, 4))
    x.dims = dims
    graph = b.done(flat_layer(b, x, *sizes))
    graph.infer_types()
    assert b.check(unflatten_linears) == [0]


def test_a_matrix_of_other_columns_stays(b: Builder) -> None:
    x = b.input(random(2, 2, 8))
    x.dims = (2, 2, 8)
    graph = b.done(b("view", b.linear(b("view", x, -1, 4), 6, 4), 2, 2, 12))
    graph.infer_types()
    assert b.check(unflatten_linears) == [0]


def test_a_matrix_that_others_read_stays(b: Builder) -> None:
    x = b.input(random(2, 3, 4))
    x.dims = (2, 3, 4)
    rows = b.linear(b("view", x, -1, 4), 6, 4)
    graph = b.done(b("view", rows, 2, 3, 6), b.eltwise("exp", rows))
    graph.infer_types()
    assert b.check(unflatten_linears) == [0]
