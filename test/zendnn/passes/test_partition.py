"""Regions: their contents, inputs and results, and that they can run in sequence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.backends.zendnn.ir.graph import Graph, Region
from torch.backends.zendnn.ir.node import Node, Value
from torch.backends.zendnn.passes.partition import outside, partition

from ..support.graphs import Builder, assert_same, ops, random
from ..support.interpreter import run_regions, schedule


@pytest.fixture
def b() -> Builder:
    return Builder()


def divided(b: Builder) -> list[Region]:
    """The regions of the builder's graph, after running them."""
    regions = partition(b.graph)
    assert_same(run_regions(b.graph, regions, b.examples), b.run())
    return regions


def held(region: Region) -> list[str]:
    return [node.op for node in region.nodes]


def inside(regions: list[Region]) -> set[Node]:
    return {node for region in regions for node in region.nodes}


def test_supported_operators_form_one_region(b: Builder) -> None:
    x = b.input(random(2, 4))
    output = b.eltwise("relu", b.linear(x, 4, 4))
    result = b.binary("add", output, b.linear(output, 4, 4))
    b.done(result)
    (region,) = divided(b)
    assert region.inputs == (x,)
    assert region.outputs == (result,)
    assert len(region.nodes) == 4


def test_an_opaque_node_divides(b: Builder) -> None:
    x = b.input(random(2, 4))
    first = b.linear(x, 4, 4)
    middle = b.opaque(torch.exp, first)
    aside = b.linear(x, 4, 4)
    last = b.binary("add", b.linear(middle, 4, 4), aside)
    b.done(last)
    one, two = divided(b)
    assert one.outputs == (first, aside)
    assert two.inputs == (middle, aside)
    assert two.outputs == (last,)


def test_an_opaque_node_on_inputs_does_not_divide(b: Builder) -> None:
    x = b.input(random(2, 4))
    result = b.binary("add", b.linear(x, 4, 4), b.linear(b.opaque(torch.exp, x), 4, 4))
    b.done(result)
    (region,) = divided(b)
    assert held(region) == ["linear", "linear", "binary"]


def test_a_region_is_convex(b: Builder) -> None:
    """first -> opaque -> last, and first -> last: last is not in first's region."""
    first = b.linear(b.input(random(2, 4)), 4, 4)
    hidden = b.opaque(torch.exp, first)
    b.done(b.linear(b.binary("add", first, hidden), 4, 4))
    one, two = divided(b)
    assert held(one) == ["linear"]
    assert held(two) == ["binary", "linear"]


def test_effects_stay_in_order(b: Builder) -> None:
    x = b.input(random(2, 4))
    seen: list[int] = []

    def record(number: int) -> Any:
        def effect(value: torch.Tensor) -> torch.Tensor:
            seen.append(number)
            return value + 1

        return effect

    late = b.opaque(record(0), b.linear(x, 4, 4), ordered=True)
    early = b.opaque(record(1), x, ordered=True)
    graph = b.done(b.linear(early, 4, 4), late)
    regions = partition(graph)
    assert len(regions) == 2
    run_regions(graph, regions, b.examples)
    assert seen == [0, 1]


def test_preparation_only_for_opaque_nodes_does_not_divide(b: Builder) -> None:
    """A mask computed from an input in opaque steps is ready before the first layer."""
    x, vector = b.input(random(2, 4)), b.input(random(4))
    mask = b.opaque(torch.exp, b.eltwise("affine", b("unsqueeze", vector, 0), -1.0, 1.0))
    b.done(b.linear(b.binary("add", b.linear(x, 4, 4), mask), 4, 4))
    (region,) = divided(b)
    assert held(region) == ["linear", "binary", "linear"]
    assert mask in region.inputs


# views


def test_a_mask_made_of_integers_only_for_opaque_nodes_does_not_divide(b: Builder) -> None:
    result = b.linear(b.input(random(2, 4)), 4, 4)
    mask = b("nonzero", b.input(torch.tensor([[1], [0]])))
    chosen = b.opaque(lambda mask: mask.flip(0), mask)
    b.done(b.linear(b("where", chosen, result, None), 4, 4))
    (region,) = divided(b)
    assert held(region) == ["linear", "where", "linear"]


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "with a region"])
def test_a_step_of_the_preparation_that_the_model_lacks_does_not_divide(
    b: Builder, shared: bool
) -> None:
    """As integers that are added to a mask of float32, which makes float32 of them first."""
    keys = b("unsqueeze", b.input(torch.tensor([1, 0, 1, 1])), 0)
    step = b.graph.add("to", [keys], attributes={"dtype": "float32"}).output
    mask = b.opaque(torch.exp, b.binary("add", b.opaque(torch.exp, b.input(random(4))), step))
    result = b.linear(b.input(random(2, 4)), 4, 4)
    result = b("where", b("nonzero", keys), result, None) if shared else result
    b.done(b.linear(b.binary("add", result, mask), 4, 4))
    regions = divided(b)
    assert len(regions) == 1
    assert not any(step in region.outputs for region in regions)


def test_a_step_that_the_model_lacks_follows_its_reader_into_a_region(b: Builder) -> None:
    keys = b.input(torch.tensor([1, 0, 1, 1]))
    step = b.graph.add("to", [keys], attributes={"dtype": "float32"}).output
    result = b.linear(b.input(random(2, 4)), 4, 4)
    total = b.binary("add", result, step)
    b.done(b.linear(b.opaque(torch.exp, total), 4, 4))
    first, second = divided(b)
    assert held(first) == ["to", "linear", "binary"]
    assert held(second) == ["linear"]
    assert schedule(b.graph, [first, second])


@pytest.mark.parametrize("op", ["triu", "tril"])
def test_a_causal_mask_only_for_opaque_nodes_does_not_divide(b: Builder, op: str) -> None:
    result = b.linear(b.input(random(4, 4)), 4, 4)
    mask = b.opaque(torch.exp, b(op, b.input(random(4, 4)), diagonal=1))
    b.done(b.linear(b.binary("add", result, mask), 4, 4))
    (region,) = divided(b)
    assert held(region) == ["linear", "binary", "linear"]


def test_views_of_results_stay_outside(b: Builder) -> None:
    x = b.input(random(2, 3, 4))
    result = b.linear(x, 4, 4)
    view = b("transpose", b("view", result, b("size", x, 0), -1), 0, 1)
    graph = b.done(view, b.opaque(torch.exp, b("select", result, 0, 0)))
    (region,) = divided(b)
    assert held(region) == ["linear"]
    assert region.outputs == (result,)
    left = [node for node in graph.nodes if node not in region.nodes and node.reason]
    assert [node.op for node in left] == ["view", "transpose", "select"]
    assert {node.reason for node in left} == {"a view of a result or of an input"}


def test_what_follows_a_region_stays_with_it_though_only_others_read_it(b: Builder) -> None:
    """As keys that are rotated and then written to a cache."""
    result = b.linear(b.input(random(2, 4)), 4, 4)
    prepared = b.opaque(torch.exp, b.eltwise("affine", b.input(random(4)), -1.0, 1.0))
    rotated = b.binary("add", b.binary("mul", result, prepared), result)
    b.done(b.opaque(torch.exp, rotated), result)
    (region,) = divided(b)
    assert held(region) == ["linear", "binary", "binary"]
    assert region.outputs == (result, rotated)


def test_what_would_delay_others_stays_outside(b: Builder) -> None:
    result = b.linear(b.input(random(2, 4)), 4, 4)
    foreign = b.opaque(torch.exp, result)
    late = b.opaque(torch.exp, b.binary("add", result, foreign))
    b.done(b.linear(late, 4, 4))
    assert [held(region) for region in divided(b)] == [["linear"], ["linear"]]


def test_views_that_are_used_inside_stay_inside(b: Builder) -> None:
    x = b.input(random(2, 4))
    view = b("transpose", b.linear(x, 4, 4), 0, 1)
    result = b("matmul", view, x)
    b.done(result, view)
    (region,) = divided(b)
    assert held(region) == ["linear", "transpose", "matmul"]
    assert region.outputs == (view, result)


def test_a_view_whose_size_is_used_inside_stays_inside(b: Builder) -> None:
    x = b.input(random(2, 4))
    view = b("unsqueeze", b.linear(x, 4, 4), 0)
    reshaped = b("view", b.linear(x, 4, 4), b("size", view, 2), -1)
    b.done(view, b.eltwise("exp", reshaped))
    (region,) = divided(b)
    assert "unsqueeze" in held(region)
    assert view in region.outputs


def test_views_of_inputs_that_others_read_stay_outside(b: Builder) -> None:
    x = b.input(random(2, 3, 4))
    view = b("transpose", b("view", x, 2, b("size", x, 1), -1), 0, 1)
    b.done(view, b.linear(view, 4, 4))
    (region,) = divided(b)
    assert held(region) == ["linear"]
    assert region.inputs == (view,)


def test_a_view_outside_takes_its_views_along(b: Builder) -> None:
    x = b.opaque(torch.exp, b.input(random(2, 3, 4)))
    inner = b("view", x, 6, -1)
    outer = b("view", x, b("number_mul", b("size", inner, 0), 2), -1)
    b.done(outer, b.linear(inner, 4, 4), b.linear(outer, 4, 2))
    (region,) = divided(b)
    assert held(region) == ["linear", "linear"]
    assert region.inputs == (inner, outer)


def test_a_split_that_a_pass_made_stays_inside(b: Builder) -> None:
    graph = b.graph
    result = b.linear(b.input(random(2, 4)), 8, 4)
    first, second = (graph.value(), graph.value())
    graph.add("split", [result], outputs=[first, second], attributes={"dim": -1, "sizes": (4, 4)})
    b.done(first, b.opaque(torch.exp, second))
    (region,) = divided(b)
    assert region.outputs == (first, second)


def test_a_split_that_only_others_read_stays_inside_if_a_pass_made_its_operand(b: Builder) -> None:
    graph = b.graph
    result = b.linear(b.input(random(2, 4)), 8, 4)
    result.source = None
    parts = [graph.value(source="first"), graph.value(source="second")]
    graph.add("split", [result], outputs=parts, attributes={"dim": -1, "sizes": (4, 4)})
    b.done(*(b.opaque(torch.exp, part) for part in parts))
    (region,) = divided(b)
    assert region.outputs == tuple(parts)


def test_values_that_only_a_pass_made_are_not_region_results(b: Builder) -> None:
    x = b.input(random(2, 4))
    first = b.linear(x, 4, 4)
    attributes = {"algorithm": "affine", "alpha": 2.0, "beta": 0.0}
    step = b.graph.add("eltwise", [first], attributes=attributes).output
    view = b.graph.add("transpose", [step, 0, 1]).output
    late = b.opaque(torch.exp, first)
    b.done(b("matmul", late, view))
    one, two = divided(b)
    assert held(one) == ["linear"]
    assert held(two) == ["eltwise", "transpose", "matmul"]


# work


@pytest.mark.parametrize(
    ("chain", "kept"),
    [
        (["linear"], True),
        (["exp"], False),
        (["exp", "view"], False),
        (["exp", "relu", "exp"], False),
        (["exp", "relu", "exp", "relu"], True),
        (["exp", "view", "exp", "transpose", "exp"], False),
        (["softmax", "exp"], False),
        (["softmax", "exp", "softmax"], True),
        (["view", "transpose"], False),
        ([], False),
    ],
)
def test_a_region_has_enough_work(b: Builder, chain: list[str], kept: bool) -> None:
    x = b.input(random(4, 4))
    for op in chain:
        if op == "linear":
            x = b.linear(x, 4, 4)
        elif op == "view":
            x = b("view", x, 4, -1)
        elif op == "transpose":
            x = b("transpose", x, 0, 1)
        elif op == "softmax":
            x = b("softmax", x, dim=-1)
        else:
            x = b.eltwise(op, x)
    graph = b.done(x)
    assert bool(divided(b)) == kept
    if not kept:
        assert all(node.reason or node.op == "opaque" for node in graph.nodes)


@pytest.mark.parametrize(("rows", "kept"), [(1 << 11, False), (1 << 10, True)])
def test_a_compiler_makes_loops_of_large_light_regions(b: Builder, rows: int, kept: bool) -> None:
    x = b.input(random(rows, 128))
    x.dims = (rows, 128)
    for op in ("exp", "relu", "exp", "relu"):
        x = b.eltwise(op, x)
    graph = b.done(x)
    assert bool(partition(graph, rest_is_compiled=True)) == kept
    assert partition(graph)


def test_one_node_that_stands_for_several_operators_is_enough(b: Builder) -> None:
    x = b.input(random(2, 4))
    norm = b.graph.add("rms_norm", [x, None, None, None], attributes={"dims": 1, "eps": 1e-6})
    norm.origin = ("aten::pow", "aten::mean", "aten::add", "aten::rsqrt", "aten::mul")
    b.done(norm.outputs[0])
    assert [held(region) for region in divided(b)] == [["rms_norm"]]


def test_functions_for_matching_only_are_in_no_region(b: Builder) -> None:
    x = b.linear(b.input(random(2, 4)), 4, 4)
    b.done(b.eltwise("relu", b.binary("add", b.eltwise("erf", x), x)))
    assert not any(n.get("algorithm") == "erf" for n in inside(divided(b)))


# numbers


def test_sizes_of_inputs_are_computed_on_both_sides(b: Builder) -> None:
    x = b.input(random(2, 3, 4))
    rows = b("number_mul", b("size", x, 0), b("size", x, 1))
    result = b.eltwise("relu", b("view", b.linear(x, 4, 4), rows, 4))
    graph = b.done(result, b.opaque(lambda n: torch.ones(n), rows))
    (region,) = divided(b)
    assert held(region) == ["size", "size", "number_mul", "linear", "view", "eltwise"]
    assert region.inputs == (x,)
    assert region.outputs == (result,)
    assert [node.op for node in outside(graph, [region])][:3] == ["size", "size", "number_mul"]


def test_a_size_of_an_input_does_not_divide(b: Builder) -> None:
    """An opaque node that reads only sizes runs before the region."""
    x = b.input(random(2, 3, 4))
    result = b.linear(x, 4, 4)
    mask = b.opaque(lambda n: torch.ones(n, 4, dtype=torch.float64), b("size", x, 1))
    b.done(b.linear(b.binary("mul", result, b.eltwise("exp", mask)), 4, 4))
    regions = divided(b)
    assert len(regions) == 1
    assert mask in regions[0].inputs


def test_a_size_of_a_result_read_outside_makes_it_a_result(b: Builder) -> None:
    x = b.input(random(2, 4))
    result = b.linear(x, 4, 4)
    rows = b("number_add", b("size", result, 0), 1)
    used = b("view", b.eltwise("exp", result), b("size", result, 0), 2, 2)
    b.done(b.eltwise("exp", used), b.opaque(lambda n: torch.ones(n), rows))
    (region,) = divided(b)
    assert result in region.outputs
    assert all(value.kind == "tensor" for value in region.outputs)


def test_a_number_from_outside_is_an_input(b: Builder) -> None:
    x, n = b.input(random(2, 6)), b.input(3)
    hidden = b.opaque(lambda t: torch.zeros(2), x)
    groups = b("number_mul", b("size", hidden, 0), n)
    b.done(b.eltwise("exp", b("view", b.linear(x, 6, 6), groups, -1)))
    (region,) = divided(b)
    assert groups in region.inputs
    assert held(region) == ["linear", "view", "eltwise"]


def test_a_number_from_results_and_from_outside_is_computed_inside(b: Builder) -> None:
    x, n = b.input(random(2, 6)), b.input(3)
    result = b.linear(x, 6, 6)
    groups = b("number_mul", b("size", result, 0), n)
    b.done(b.eltwise("exp", b("view", result, groups, -1)))
    (region,) = divided(b)
    assert region.inputs == (x, n)
    assert held(region) == ["linear", "size", "number_mul", "view", "eltwise"]


def test_a_later_region_gets_numbers_of_an_earlier_one(b: Builder) -> None:
    x = b.input(random(2, 6))
    first = b.linear(x, 6, 6)
    hidden = b.opaque(torch.exp, b.eltwise("exp", first))
    rows = b("number_mul", b("size", first, 0), 3)
    b.done(b.eltwise("exp", b("view", b.linear(hidden, 6, 6), rows, -1)))
    one, two = divided(b)
    assert rows in two.inputs
    assert first in one.outputs


def test_a_number_that_the_model_lacks_is_computed_inside(b: Builder) -> None:
    x, other = b.input(random(2, 6)), b.opaque(torch.exp, b.input(random(3, 4)))
    rows = b.graph.value("number")
    b.graph.add("size", [other, 0], outputs=[rows])
    b.done(b.eltwise("exp", b("view", b.linear(x, 6, 6), rows, -1)))
    (region,) = divided(b)
    assert set(region.inputs) == {x, other}
    assert held(region) == ["size", "linear", "view", "eltwise"]


def test_numbers_can_be_the_models_results(b: Builder) -> None:
    result = b.linear(b.input(random(2, 6)), 6, 6)
    b.done(b("number_add", b("size", result, 0), 5))
    (region,) = divided(b)
    assert region.outputs == (result,)


# schedule


def test_a_schedule_requires_executable_regions(b: Builder) -> None:
    first = b.linear(b.input(random(2, 4)), 4, 4)
    hidden = b.opaque(torch.exp, first)
    last = b.linear(hidden, 4, 4)
    graph: Graph = b.done(last)
    assert first.producer is not None
    assert last.producer is not None
    with pytest.raises(AssertionError, match="wait for each other"):
        schedule(graph, [Region.of([first.producer, last.producer], read=[first])])
    silent = Region((first.producer,), tuple(graph.inputs), ())
    with pytest.raises(AssertionError, match=f"nobody makes {first.name}"):
        schedule(graph, [silent])


def test_constants_are_no_inputs(b: Builder) -> None:
    b.done(b.linear(b.input(random(2, 4)), 4, 4))
    (region,) = divided(b)
    assert all(isinstance(v, Value) and v.constant is None for v in region.inputs)
    assert ops(b.graph) == ["linear"]


def test_sizes_of_values_that_a_pass_made_are_read_in_the_region(b: Builder) -> None:
    x = b.input(random(2, 8))
    # The model has no such value.
    result = b.graph.add("linear", [x, b.constant(8, 8), None]).output
    b.done(b("view", b.linear(result, 8, 8), b("size", result, 0), 2, 4))
    assert partition(b.graph)
