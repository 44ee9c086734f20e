"""Passes for recommender models: bags of equal length, and many of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.backends.zendnn.ir.node import Node, Value
from torch.backends.zendnn.passes.fuse_embedding_bags import fuse_embedding_bags
from torch.backends.zendnn.passes.fuse_pairwise_dot import fuse_pairwise_dot
from torch.backends.zendnn.passes.group_embedding_bags import group_embedding_bags

from ..support.graphs import Builder, only, ops, random


@pytest.fixture
def b() -> Builder:
    return Builder()


def ids(*shape: int) -> Tensor:
    return torch.randint(0, 10, shape)


def bag(
    b: Builder, index: Value, offsets: Value | None, mode: str = "sum", width: int = 4
) -> Value:
    return b("embedding_bag", b.constant(10, width), index, offsets, mode=mode)


# fuse_embedding_bags

COUNTS: dict[str, Any] = {
    "elements": lambda b, x, flat: b("numel", x),
    "elements, flat": lambda b, x, flat: b("numel", flat),
    "length, flat": lambda b, x, flat: b("size", flat, 0),
    "product": lambda b, x, flat: b("number_mul", b("size", x, 1), b("size", x, 0)),
}


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("dim", [1, -1])
def test_offsets_of_equal_bags_are_dropped(b: Builder, mode: str, count: str, dim: int) -> None:
    x = b.input(ids(3, 5))
    flat = b("view", x, -1) if mode == "sum" else b("flatten", x, 0, -1)
    offsets = b("arange", 0, COUNTS[count](b, x, flat), b("size", x, dim))
    graph = b.done(bag(b, flat, offsets, mode))
    assert b.check(fuse_embedding_bags) == [1]
    assert ops(graph) == ["embedding_bag"]
    assert graph.nodes[0].inputs[1:] == (x, None)
    assert graph.nodes[0].attributes == {"mode": mode}


@pytest.mark.parametrize(("step", "dropped"), [(5, 1), (3, 0)])
def test_offsets_may_have_a_step_that_is_known(b: Builder, step: int, dropped: int) -> None:
    x = b.input(ids(3, 5))
    x.learn_dims((None, 5))
    graph = b.done(bag(b, b("view", x, -1), b("arange", 0, b("numel", x), step)))
    assert b.check(fuse_embedding_bags) == [dropped]
    assert (graph.nodes[-1].inputs[2] is None) == bool(dropped)


def test_weights_stay_when_offsets_are_dropped(b: Builder) -> None:
    x, weights = b.input(ids(3, 5)), b("view", b.input(random(3, 5)), -1)
    offsets = b("arange", 0, b("numel", x), b("size", x, 1))
    flat = b("view", x, -1)
    graph = b.done(b("embedding_bag", b.constant(10, 4), flat, offsets, weights, mode="sum"))
    assert b.check(fuse_embedding_bags) == [1]
    assert only(graph, "embedding_bag").inputs[1:] == (x, None, weights)


def test_offsets_that_others_read_stay(b: Builder) -> None:
    x = b.input(ids(3, 5))
    flat = b("view", x, -1)
    offsets = b("arange", 0, b("numel", x), b("size", x, 1))
    graph = b.done(bag(b, flat, offsets), offsets)
    assert b.check(fuse_embedding_bags) == [1]
    assert ops(graph) == ["numel", "size", "arange", "embedding_bag"]


@pytest.mark.parametrize("wrong", ["start", "end", "step", "other", "not flat"])
def test_other_offsets_stay(b: Builder, wrong: str) -> None:
    x, y = b.input(ids(4, 4)), b.input(ids(4, 4))
    flat = b("view", x, -1) if wrong != "not flat" else b("view", x, 16)
    start = 1 if wrong == "start" else 0
    end = b("size", x, 0) if wrong == "end" else b("numel", x)
    step = b("size", y if wrong == "other" else x, 0 if wrong == "step" else 1)
    b.done(b("embedding_bag", b.constant(10, 4), flat, b("arange", start, end, step), mode="max"))
    before = ops(b.graph)
    assert fuse_embedding_bags(b.graph) == 0
    assert ops(b.graph) == before


def test_an_index_of_another_rank_keeps_its_offsets(b: Builder) -> None:
    x = b("unsqueeze", b("view", b.input(ids(3, 5)), 3, 5), 2)
    offsets = b("arange", 0, b("numel", x), b("size", x, 1))
    b.done(bag(b, b("view", x, -1), offsets))
    assert b.check(fuse_embedding_bags) == [0]


# group_embedding_bags


def bags(b: Builder, count: int = 3, **more: Any) -> list[Value]:
    index = b.input(ids(count, 3, 5))
    return [bag(b, b("select", index, 0, i), None, **more) for i in range(count)]


@pytest.mark.parametrize("reader", ["cat", "stack"])
def test_bags_of_one_reader_are_grouped(b: Builder, reader: str) -> None:
    dense = b.linear(b.input(random(3, 2)), 4, 2)
    values = bags(b)
    graph = b.done(b(reader, dense, *values, dim=1))
    assert b.check(group_embedding_bags) == [1]
    assert ops(graph) == ["linear", *["select"] * 3, "embedding_bags", reader]
    node = only(graph, "embedding_bags")
    assert node.attributes == {"count": 3, "mode": "sum", "last_offset": False}
    assert node.outputs == tuple(values)
    assert all(isinstance(v, Value) and v.constant is not None for v in node.inputs[:3])
    assert node.origin == ("aten::embedding_bag",) * 3


def test_bags_with_offsets_and_equal_ones_are_grouped(b: Builder) -> None:
    offsets = b.input(torch.tensor([0, 5, 5]))
    values = [bag(b, b.input(ids(9)), offsets), *bags(b, 1), bag(b, b.input(ids(7)), offsets)]
    graph = b.done(b("cat", *values, dim=1))
    assert b.check(group_embedding_bags) == [1]
    node = only(graph, "embedding_bags")
    assert node.outputs == tuple(values)
    assert node.inputs[-3:] == (offsets, None, offsets)


def test_weighted_bags_and_others_are_grouped(b: Builder) -> None:
    index, weights = b.input(ids(3, 5)), b.input(random(3, 5))
    weighted = b("embedding_bag", b.constant(10, 4), index, None, weights, mode="sum")
    graph = b.done(b("cat", *bags(b, 1), weighted, dim=1))
    assert b.check(group_embedding_bags) == [1]
    assert only(graph, "embedding_bags").inputs[-2:] == (weights, None)


def test_bags_with_a_closing_offset_form_a_separate_group(b: Builder) -> None:
    ends = b.input(torch.tensor([0, 5, 7, 9]))
    values = [
        b("embedding_bag", b.constant(10, 4), b.input(ids(9)), ends, mode="sum", last_offset=True)
        for _ in range(2)
    ]
    starts = b.input(torch.tensor([0, 5, 7]))
    graph = b.done(b("cat", *values, bag(b, b.input(ids(9)), starts), dim=1))
    assert b.check(fuse_embedding_bags, group_embedding_bags) == [0, 1]
    assert ops(graph).count("embedding_bag") == 1


@pytest.mark.parametrize("shape", [(5,), (5, 3)])
def test_rows_of_tables_are_grouped(b: Builder, shape: tuple[int, ...]) -> None:
    values = [b("embedding", b.constant(10, 4), b.input(ids(*shape))) for _ in range(3)]
    graph = b.done(b("cat", *values, dim=-1))
    assert b.check(group_embedding_bags) == [1]
    assert only(graph, "embedding_bags").attributes["mode"] == "each"


def test_bags_are_grouped_by_mode_and_width(b: Builder) -> None:
    values = [*bags(b, 2), *bags(b, 2, mode="mean"), *bags(b, 1, mode="max"), *bags(b, 1, width=5)]
    graph = b.done(b("cat", *values, dim=1))
    assert b.check(group_embedding_bags) == [2]
    assert ops(graph).count("embedding_bags") == 2
    assert ops(graph).count("embedding_bag") == 2


@pytest.mark.parametrize("change", ["escapes", "opaque", "twice", "one", "added"])
def test_other_bags_stay_apart(b: Builder, change: str) -> None:
    values = bags(b, 1 if change == "one" else 2)
    outputs: list[Value] = []
    if change == "escapes":
        outputs = [values[0]]
    elif change == "opaque":
        outputs = [b.opaque(torch.exp, values[0])]
    elif change == "twice":
        values = [values[0], *values]
    elif change == "added":
        values[0] = b.binary("add", values[0], values[0])
    b.done(b("cat", *values, dim=1), *outputs)
    assert b.check(group_embedding_bags) == [0]


def test_readers_are_not_mixed(b: Builder) -> None:
    one, two = bags(b, 2), bags(b, 2)
    graph = b.done(b("cat", one[0], two[0], dim=1), b("cat", one[1], two[1], dim=1))
    assert b.check(group_embedding_bags) == [2]
    groups: list[Node] = [node for node in graph.nodes if node.op == "embedding_bags"]
    assert [node.outputs for node in groups] == [(one[0], two[0]), (one[1], two[1])]


# fuse_pairwise_dot


@pytest.mark.parametrize("dims", [(1, 2), (-1, -2)])
def test_an_interaction_computes_the_products_that_are_read(
    b: Builder, dims: tuple[int, int]
) -> None:
    x = b.input(random(2, 5, 4))
    rows, columns = torch.tril_indices(5, 5, offset=-1)
    product = b("matmul", x, b("transpose", x, *dims))
    index = (b.graph.constant(rows), b.graph.constant(columns))
    graph = b.done(b("gather_pairs", product, *index))
    assert b.check(fuse_pairwise_dot) == [1]
    assert ops(graph) == ["pairwise_dot"]


def test_a_product_of_different_features_is_no_interaction(b: Builder) -> None:
    x, y = b.input(random(2, 5, 4)), b.input(random(2, 5, 4))
    index = b.graph.constant(torch.arange(3))
    product = b("matmul", x, b("transpose", y, 1, 2))
    b.done(b("gather_pairs", product, index, index))
    assert b.check(fuse_pairwise_dot) == [0]


def test_offsets_of_some_rows_only_stay(b: Builder) -> None:
    x = b.input(ids(4, 4))
    flat, width = b("view", x, -1), b("size", x, 1)
    b.done(bag(b, flat, b("arange", 0, b("number_mul", 2, width), width)))
    assert b.check(fuse_embedding_bags) == [0]


def test_pairs_of_other_operators_stay(b: Builder) -> None:
    pair = [b.graph.constant(torch.tensor(i)) for i in ([0, 1], [1, 2])]
    b.done(b("gather_pairs", b.input(random(2, 3, 3)), *pair))
    assert b.check(fuse_pairwise_dot) == [0]
