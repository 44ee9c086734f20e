"""Writes into what a plan is given, and places that are bound at each call."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.backends.zendnn.ir.node import Value

from ..support.graphs import Builder
from ..support.interpreter import run_region
from ..support.plans import explained, make_plan, region_of, tensor, tensors_and_numbers


def written(b: Builder, state: Value) -> Value:
    """Let a value be a state."""
    state.is_state = True
    return state


def check_write(b: Builder, *outputs: Value, dtype: torch.dtype = torch.float32) -> Any:
    """Check results and what the inputs have become against the interpreter; return the plan."""
    region = region_of(b, *outputs)
    plan = make_plan(region, dtype)
    examples = dict(zip(b.graph.inputs, b.examples, strict=True))
    arguments = [examples[value] for value in region.inputs]
    ours = [x.clone() if isinstance(x, Tensor) else x for x in arguments]
    theirs = [x.clone() if isinstance(x, Tensor) else x for x in arguments]
    tensors, numbers = tensors_and_numbers(ours)
    assert plan.takes(tensors, numbers), explained(plan)
    results = plan.run(tensors, numbers)
    for result, want in zip(results, run_region(region, theirs), strict=True):
        torch.testing.assert_close(result, want)
    for x, want in zip(tensors, tensors_and_numbers(theirs)[0], strict=True):
        assert torch.equal(x, want), "another state"
    return plan


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_writes_of_each_dtype(b: Builder, dtype: torch.dtype) -> None:
    x = written(b, b.input(torch.zeros(4, 6).to(dtype)))
    y, z = b.input(torch.ones(2, 1).to(dtype)), b.input(tensor(3))
    b("write", x, b("slice", x, 0, 1, 3, 1), y)
    check_write(b, b.eltwise("abs", z))


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 1, 5), (5,), (1,)])
def test_what_is_written_is_repeated(b: Builder, shape: tuple[int, ...]) -> None:
    x, y = written(b, b.input(tensor(4, 3, 5))), b.input(tensor(*shape, seed=1))
    result = b("write", x, b("slice", x, 0, 0, None, 2), b.eltwise("abs", y))
    check_write(b, b.eltwise("tanh", b("transpose", result, 0, 2)))


def test_writes_are_read_in_order(b: Builder) -> None:
    x, y = written(b, b.input(tensor(4, 6))), b.input(tensor(4, 6, seed=1))
    before = b.eltwise("abs", x)
    first = b("write", x, b("slice", x, 0, 1, 3, 1), b("slice", y, 0, 0, 2, 1))
    between = b.eltwise("tanh", first)
    second = b("write", first, first, b.binary("add", first, y))
    check_write(b, before, between, b.eltwise("relu", second))


@pytest.mark.parametrize("rows", [(0,), (3, 1), (2, -1, 0), (4, 4)])
@pytest.mark.parametrize("dim", [0, 1])
def test_rows_are_written(b: Builder, rows: tuple[int, ...], dim: int) -> None:
    sizes = [3, 3, 2]
    sizes[dim] = 5
    x, index = written(b, b.input(tensor(*sizes))), b.input(torch.tensor(rows))
    sizes[dim] = len(rows)
    # Of two writes to one row either may be the last.
    y = b.input(tensor(*sizes, seed=1) if len(set(rows)) == len(rows) else torch.ones(sizes))
    result = b("write", x, x, y, index, dim=dim, wraps=True)
    check_write(b, b.eltwise("abs", result))


@pytest.mark.parametrize(("row", "wraps"), [(5, True), (-6, True), (-1, False), (2**40, False)])
def test_rows_that_are_not_there_raise_an_error_before_anything_is_written(
    b: Builder, row: int, wraps: bool
) -> None:
    x, y = written(b, b.input(tensor(5, 4))), b.input(tensor(2, 4))
    b("write", x, x, y, b.input(torch.tensor([0, row])), dim=0, wraps=wraps)
    plan = make_plan(region_of(b))
    tensors, _ = tensors_and_numbers(b.examples)
    before = tensors[0].clone()
    assert plan.takes(tensors, [])
    with pytest.raises(IndexError, match=f"index {row} is out of bounds"):
        plan.run(tensors, [])
    assert torch.equal(tensors[0], before)


def test_memory_that_is_shared_is_refused(b: Builder) -> None:
    x, y = written(b, b.input(tensor(6, 4))), b.input(tensor(2, 4))
    b("write", x, b("slice", x, 0, 0, 2, 1), b.eltwise("abs", y))
    plan = make_plan(region_of(b))
    whole = tensor(12, 4)
    assert not plan.takes([whole[:6], whole[5:7]], [])
    assert not plan.takes([whole[:6], whole[:2]], [])
    assert plan.takes([whole[:6], whole[6:8]], [])
    assert plan.takes([whole[2:8], whole[:2]], [])


def test_what_overlaps_is_refused(b: Builder) -> None:
    x = written(b, b.input(tensor(6, 4)))
    part = b("slice", x, 0, 1, 3, 1)
    b("write", x, part, b("slice", x, 0, 0, 2, 1))
    assert not make_plan(region_of(b)).takes(list(b.examples), [])


def test_a_part_is_copied_to_another(b: Builder) -> None:
    x = written(b, b.input(tensor(6, 4)))
    b("write", x, b("slice", x, 0, 2, 4, 1), b("slice", x, 0, 0, 2, 1))
    check_write(b)


@pytest.mark.parametrize("sizes", [(4,), (1,), ()])
def test_numbers_that_plans_share_are_not_written(b: Builder, sizes: tuple[int, ...]) -> None:
    """One number stands for all elements, in all calls."""
    x = written(b, b("full", *sizes, value=0.5, dtype="float32"))
    part = b("select", x, 0, 0) if sizes else x
    result = b("write", x, part, b("sum", b.input(tensor(3))))
    assert not make_plan(region_of(b, b.eltwise("exp", result))).takes(list(b.examples), [])


def test_repeated_elements_are_not_written(b: Builder) -> None:
    x = written(b, b.input(tensor(1, 4).expand(3, 4)))
    b("write", x, x, b.input(tensor(3, 4)))
    assert not make_plan(region_of(b)).takes(list(b.examples), [])


# Numbers that only say where something is.


def test_a_growing_position_builds_once(b: Builder) -> None:
    x, n = b.input(tensor(1000, 8)), b.input(0)
    end = b("number_add", n, 1)
    row = b("slice", x, 0, n, end, 1)
    chosen = b("select", x, 0, b("number_sub", 999, n))
    y = b.binary("mul", b.eltwise("tanh", row), chosen)
    plan = make_plan(region_of(b, y, b("view", row, 2, 4)))
    rows = b.examples[0]
    for position in range(1000):
        assert plan.takes([rows], [position])
        product, view = plan.run([rows], [position])
        want = rows[position : position + 1].tanh() * rows[999 - position]
        torch.testing.assert_close(product, want)
        assert torch.equal(view, rows[position].view(2, 4))
    (entry,) = explained(plan)["built"]
    assert entry["numbers"] == [0]


def test_a_position_that_changes_the_size_builds_anew(b: Builder) -> None:
    x, n = b.input(tensor(10, 8)), b.input(2)
    y = b.eltwise("tanh", b("slice", x, 0, n, b("number_add", n, 3), 2))
    plan = make_plan(region_of(b, y))
    rows = b.examples[0]
    for position in (2, 5, 7, 8, 9, -2, -9, 2):
        want = rows[position : position + 3 : 2].tanh()
        if want.numel() == 0:
            assert not plan.takes([rows], [position])
            continue
        assert plan.takes([rows], [position])
        torch.testing.assert_close(plan.run([rows], [position])[0], want)
    built = [entry["numbers"][0] for entry in explained(plan)["built"] if not entry["refused"]]
    assert set(built) == {2, 8, 9, -9}, "2 serves 5 and 7"


def test_a_position_is_bound_where_a_state_is_written(b: Builder) -> None:
    x, n = written(b, b.input(tensor(2, 20, 4))), b.input(0)
    y = b.input(tensor(2, 1, 4))
    part = b("slice", x, 1, n, b("number_add", n, 1), 1)
    result = b("write", x, part, b.eltwise("abs", y))
    plan = make_plan(region_of(b, b.eltwise("tanh", result)))
    state, row = (x.clone() for x in b.examples if isinstance(x, Tensor))
    want = state.clone()
    for position in range(20):
        row = row + 1
        want[:, position : position + 1] = row.abs()
        assert plan.takes([state, row], [position])
        torch.testing.assert_close(plan.run([state, row], [position])[0], want.tanh())
        assert torch.equal(state, want)
    assert len(explained(plan)["built"]) == 1


def test_powers_are_computed_at_each_call(b: Builder) -> None:
    x, n = b.input(tensor(3, 5)), b.input(4)
    y = b.binary("mul", x, b("power", b("number_mul", n, 3), exponent=-0.5))
    plan = make_plan(region_of(b, y))
    for number in range(1, 50):
        assert plan.takes([b.examples[0]], [number])
        got = plan.run([b.examples[0]], [number])[0]
        torch.testing.assert_close(got, b.examples[0] * (3 * number) ** -0.5)
    assert len(explained(plan)["built"]) == 1


@pytest.mark.parametrize("number", [2**62, -(2**62), 2**63 - 1, -(2**63)])
def test_numbers_beyond_64_bits_are_refused_or_out_of_range(b: Builder, number: int) -> None:
    x, n = b.input(tensor(10, 8)), b.input(1)
    start = b("number_mul", n, 4)
    y = b.eltwise("tanh", b("slice", x, 0, start, b("number_add", start, 2), 1))
    plan = make_plan(region_of(b, y))
    assert plan.takes([b.examples[0]], [1])
    assert not plan.takes([b.examples[0]], [number])
