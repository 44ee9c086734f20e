"""The pass that computes once what several nodes compute."""

from __future__ import annotations

import pytest
import torch
from torch.backends.zendnn import passes
from torch.backends.zendnn.passes.eliminate_common_subexpressions import (
    eliminate_common_subexpressions,
)

from .build import Builder, only, ops, random


@pytest.fixture
def b() -> Builder:
    return Builder()


def test_expressions_of_several_nodes_are_computed_once(b: Builder) -> None:
    x, y = b.input(random(2, 8)), b.input(random(2, 8))
    twice = [b.eltwise("tanh", b.binary("add", x, y)) for _ in range(2)]
    graph = b.done(b.binary("mul", *twice))
    assert b.check(eliminate_common_subexpressions) == [2]
    assert ops(graph) == ["binary", "eltwise", "binary"]


@pytest.mark.parametrize(
    "other",
    [
        lambda b, x, y: b.eltwise("affine", y, 2.0, 0.0),
        lambda b, x, y: b.eltwise("affine", x, 3.0, 0.0),
        lambda b, x, y: b.eltwise("affine", x, 2.0, -0.0),
        lambda b, x, y: b.eltwise("elu", x, 2.0, 0.0),
        lambda b, x, y: b("softmax", x, dim=-1),
    ],
    ids=["operand", "attribute", "sign of zero", "function", "operator"],
)
def test_what_differs_in_anything_stays(b: Builder, other: object) -> None:
    x, y = b.input(random(2, 8)), b.input(random(2, 8))
    assert callable(other)
    b.done(b.binary("add", b.eltwise("affine", x, 2.0, 0.0), other(b, x, y)))
    assert b.check(eliminate_common_subexpressions) == [0]


def test_several_results_of_one_node_are_shared(b: Builder) -> None:
    x = b.input(random(4, 8))
    parts = [b.node("split", x, results=2, dim=-1, sizes=(4, 4)).outputs for _ in range(2)]
    b.done(b.binary("mul", parts[0][0], parts[1][1]))
    assert b.check(eliminate_common_subexpressions) == [1]


def test_sizes_are_read_once(b: Builder) -> None:
    x = b.input(random(4, 8))
    viewed = [b("view", x, b("size", x, 0), 2, 4) for _ in range(2)]
    graph = b.done(b.binary("mul", *viewed))
    assert b.check(eliminate_common_subexpressions) == [2]
    assert only(graph, "view").output.dims is not None


def test_results_stay_tensors_of_their_own(b: Builder) -> None:
    """A caller may write to one of them, also through a view."""
    x = b.input(random(2, 8))
    first, second = (b.eltwise("tanh", x) for _ in range(2))
    third, fourth = (b("transpose", b.eltwise("exp", x), 0, 1) for _ in range(2))
    b.done(first, second, third, fourth, b.opaque(torch.atan, b.eltwise("abs", x)))
    assert b.check(eliminate_common_subexpressions) == [0]


def test_a_result_serves_inside_too(b: Builder) -> None:
    x = b.input(random(2, 8))
    first, second = (b.eltwise("tanh", x) for _ in range(2))
    graph = b.done(first, b.linear(second, 8, 8))
    assert b.check(eliminate_common_subexpressions) == [1]
    assert only(graph, "linear").inputs[0] is first


def test_states_are_read_each_time(b: Builder) -> None:
    state = b.input(random(2, 8))
    state.is_state = True
    copies = [b("contiguous", state) for _ in range(2)]
    b.done(b.binary("add", *copies))
    assert b.check(eliminate_common_subexpressions) == [0]


def test_layers_under_autocast_are_merged(b: Builder) -> None:
    """Autocast converts a value for each layer that reads it."""
    x = b.input(torch.randn(2, 64))
    weights = [b.graph.constant(torch.randn(64, 64, dtype=torch.bfloat16)) for _ in range(3)]
    layers = [b("linear", b("to", x, dtype="bfloat16"), weight, None) for weight in weights]
    graph = b.done(*layers)
    passes.run(graph)
    assert sorted(ops(graph)) == ["cat", "linear", "split", "to"]
