"""passes/_match.py: the passes' common queries and rewrites of graphs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.backends.zendnn.ir.node import PostOp
from torch.backends.zendnn.passes import _match

from ..support.graphs import Builder, assert_same, ops, posts, random


@pytest.fixture
def b() -> Builder:
    return Builder()


# Producers of values.


def test_a_producer_is_one_of_the_operators_asked_for(b: Builder) -> None:
    y = b.eltwise("relu", b.input(random(2)))
    assert _match.producer(y, "binary", "eltwise") is y.producer
    assert _match.producer(y, "binary") is None
    assert _match.producer(b.graph.inputs[0], "eltwise") is None
    assert _match.producer(3, "eltwise") is None


def test_only_a_value_with_one_use_may_be_absorbed(b: Builder) -> None:
    x = b.input(random(2))
    once, twice, outside, opaque = (b.eltwise("relu", x) for _ in range(4))
    results = [b.eltwise("tanh", once), b.binary("add", twice, twice), outside]
    results += [b.eltwise("tanh", opaque), b.opaque(lambda x: x, opaque)]
    graph = b.done(*results)
    assert _match.sole(graph, once, "eltwise") is once.producer
    for value in (twice, outside, opaque):
        assert _match.sole(graph, value, "eltwise") is None


def test_an_algorithm_can_be_asked_for_too(b: Builder) -> None:
    y = b.eltwise("relu", b.input(random(2)))
    assert _match.producer(y, "eltwise.relu") is y.producer
    assert _match.producer(y, "eltwise.tanh", "binary.relu") is None


def test_a_chain_is_what_may_be_swallowed_one_after_the_other(b: Builder) -> None:
    x = b.input(random(2))
    square = b.binary("mul", x, x)
    root = b.eltwise("sqrt", b.eltwise("tanh", square))
    graph = b.done(b.eltwise("relu", root), b.eltwise("relu", x))
    steps = ("eltwise.sqrt", "eltwise.tanh", "eltwise.square binary.mul")
    nodes = _match.chain(graph, root, *steps)
    assert [node.op for node in nodes] == ["eltwise", "eltwise", "binary"]
    assert nodes[-1] is square.producer
    assert _match.chain(graph, root, *steps, "eltwise") == ()
    square.escapes = True
    assert _match.chain(graph, root, *steps) == ()


# Rules.


def test_a_rule_is_asked_of_its_operators_only_and_its_answers_are_added(b: Builder) -> None:
    x = b.input(random(2))
    graph = b.done(b.eltwise("relu", x), b.eltwise("tanh", x), b.binary("add", x, x))
    assert _match.each("eltwise.tanh", "binary")(lambda graph, node: 2)(graph) == 4
    assert _match.each()(lambda graph, node: node.op == "eltwise")(graph) == 2


# Constants.


@pytest.mark.parametrize(
    ("tensor", "number"),
    [
        (torch.tensor(2.5), 2.5),
        (torch.tensor(3), 3.0),
        (torch.tensor([2.5]), None),
    ],
    ids=["float", "integer", "with a dimension"],
)
def test_a_scalar_is_a_constant_without_dimensions(
    b: Builder, tensor: Tensor, number: float | None
) -> None:
    assert _match.scalar(b.graph.constant(tensor)) == number
    assert _match.scalar(b.input(random())) is None


@pytest.mark.parametrize(
    ("number", "sound"),
    [(0.0, True), (1.5, True), (3e38, True), (1e-40, False), (4e38, False), (float("inf"), False)],
)
def test_a_sound_number_is_representable_in_float32(number: float, sound: bool) -> None:
    assert _match.is_sound(number) == sound
    assert _match.is_sound(-number) == sound


# Exchanged dimensions.


@pytest.mark.parametrize(
    ("op", "dims", "swapped"),
    [
        ("transpose", (1, 2), True),
        ("transpose", (2, 1), True),
        ("transpose", (-2, -3), True),
        ("transpose", (0, 2), False),
        ("transpose", (1, 1), False),
        ("permute", (0, 2, 1, 3), True),
        ("permute", (0, 1, 2, 3), False),
        ("permute", (0, 2, 3, 1), False),
        ("flatten", (1, 2), False),
    ],
    ids=str,
)
def test_a_swap_exchanges_two_dimensions(
    b: Builder, op: str, dims: tuple[int, ...], swapped: bool
) -> None:
    node = b(op, b.input(random(2, 3, 4, 5)), *dims).producer
    assert _match.is_swap(node, 1, 2, 4) == swapped


# Rewriting.


def test_a_post_op_precedes_those_of_its_former_node(b: Builder) -> None:
    x, y = (b.input(random(2, 3)) for _ in range(2))
    node, last = b.linear(x, 3, 3).producer, None
    assert node is not None
    last = b.binary("max", node.output, y).producer
    assert last is not None
    last.post_ops = (PostOp("relu"),)
    graph = b.done(last.output)
    before = b.run()
    graph.set_inputs(node, [*node.inputs, y])
    _match.with_post_op(graph, node, last, PostOp("max", operand=3))
    graph.check()
    assert ops(graph) == ["linear"]
    assert posts(node) == ["max", "relu"]
    assert node.origin == ("aten::linear", "aten::binary")
    assert_same(b.run(), before)


def test_one_node_takes_the_place_of_several(b: Builder) -> None:
    x = b.input(random(2))
    squared = b.eltwise("square", x)
    graph = b.done(b.eltwise("sqrt", squared))
    before = b.run()
    first, last = graph.nodes
    _match.substitute(graph, [first, last], "eltwise", [x], algorithm="abs", alpha=0.0, beta=0.0)
    graph.check()
    assert [(node.op, node.origin) for node in graph.nodes] == [("eltwise", ("aten::eltwise",) * 2)]
    assert_same(b.run(), before)


def test_a_node_that_changes_nothing_is_bypassed(b: Builder) -> None:
    x = b.input(random(2))
    same = b("contiguous", x)
    graph = b.done(b.eltwise("relu", same))
    assert same.producer is not None
    assert _match.bypass(graph, same.producer, x)
    assert ops(graph) == ["eltwise"]
    graph.check()


def test_the_node_before_an_identity_makes_its_result(b: Builder) -> None:
    y = b.eltwise("relu", b.input(random(2)))
    same = b("contiguous", y)
    graph = b.done(same)
    before = b.run()
    assert same.producer is not None
    assert _match.bypass(graph, same.producer, y)
    assert ops(graph) == ["eltwise"]
    assert graph.outputs == [same]
    graph.check()
    assert_same(b.run(), before)


def test_a_result_that_is_an_input_stays(b: Builder) -> None:
    x = b.input(random(2))
    same = b("contiguous", x)
    graph = b.done(same)
    assert same.producer is not None
    assert not _match.bypass(graph, same.producer, x)
    assert ops(graph) == ["contiguous"]
