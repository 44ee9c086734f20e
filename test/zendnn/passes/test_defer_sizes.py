"""Reads of sizes move to values that are available anyway."""

from __future__ import annotations

import pytest
from torch.backends.zendnn.passes.defer_sizes import defer_sizes
from torch.backends.zendnn.passes.fold_batch_norm import fold_batch_norm
from torch.backends.zendnn.passes.fuse_eltwise import fuse_eltwise

from ..support.graphs import Builder, ops, posts, random


@pytest.fixture
def b() -> Builder:
    return Builder()


def test_a_size_is_read_from_the_activation_so_that_that_is_fused(b: Builder) -> None:
    result = b.convolution(b.input(random(2, 3, 4, 4)), b.constant(4, 3, 1, 1))
    rows = b("size", result, 0)
    activated = b.eltwise("relu", b.batch_norm(result, 4))
    graph = b.done(b("view", activated, rows, b("number_mul", b("size", result, 1), 4), -1))
    assert b.check(defer_sizes, fold_batch_norm, fuse_eltwise) == [2, 1, 1]
    assert ops(graph) == ["convolution", "size", "size", "number_mul", "view"]
    assert posts(graph.nodes[0]) == ["relu"]


def test_a_size_that_is_needed_before_the_activation_stays(b: Builder) -> None:
    result = b.linear(b.input(random(2, 4)), 4, 4)
    other = b("view", b.input(random(4)), b("size", result, 0), 2)
    b.done(b.eltwise("relu", result), other)
    assert b.check(defer_sizes) == [0]


def test_sizes_of_values_with_several_readers_stay(b: Builder) -> None:
    result = b.linear(b.input(random(2, 4)), 4, 4)
    rows = b("size", result, 0)
    b.done(b("view", b.eltwise("relu", result), rows, 2, 2), b.eltwise("exp", result))
    assert b.check(defer_sizes) == [0]


def test_sizes_that_others_read_stay(b: Builder) -> None:
    result = b.linear(b.input(random(2, 4)), 4, 4)
    rows = b("size", result, 0)
    b.done(b("view", b.eltwise("relu", result), rows, 2, 2), rows)
    assert b.check(defer_sizes) == [0]
