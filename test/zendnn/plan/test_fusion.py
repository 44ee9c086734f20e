"""Chains of functions of each element: one step, the same bits as one step each."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor
from torch.backends.zendnn import passes
from torch.backends.zendnn.ir.node import Value

from ..common import DTYPES, dtypes
from ..support.graphs import Builder
from ..support.plans import (
    ARRANGEMENTS,
    arena_bytes,
    check,
    explained,
    implementations,
    make_plan,
    refusal,
    region_of,
    tensor,
    tensors_and_numbers,
    then,
)
from ..support.random_plans import KINDS, Net, add_function, many

SHAPE = (3, 17, 5, 7)


def check_chain(b: Builder, *outputs: Value, dtype: torch.dtype = torch.float32) -> list[str]:
    """Check a graph with chains fused, compare it with single steps, and return what runs."""
    plan = check(b, *outputs, dtype=dtype)
    arguments, numbers = tensors_and_numbers(b.examples)
    with passes.disable("fuse_pointwise"):
        single = make_plan(region_of(b, *outputs), dtype)
    assert_same_bits(plan.run(arguments, numbers), single.run(arguments, numbers))
    return implementations(plan)


def assert_same_bits(fused: list[Tensor], single: list[Tensor]) -> None:
    for ours, theirs in zip(fused, single, strict=True):
        assert ours.stride() == theirs.stride()
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_neighbours_are_one_step(b: Builder, dtype: torch.dtype) -> None:
    x, y = (b.input(tensor(*SHAPE, dtype=dtype, seed=seed)) for seed in (1, 2))
    row = b.input(tensor(7, dtype=dtype, seed=3))
    gate = b.eltwise("sigmoid", b.binary("mul", x, row))
    ran = check_chain(b, b.binary("sub", b.binary("mul", gate, y), x), dtype=dtype)
    assert ran == ["binary mul, eltwise sigmoid, binary mul, binary sub"]


def test_what_only_the_chain_reads_is_not_in_memory(b: Builder) -> None:
    x = b.input(tensor(64, 1000))
    one, two = b.eltwise("tanh", x), b.eltwise("sigmoid", x)
    assert arena_bytes(check(b, b.binary("add", one, two))) < 1000


def test_functions_in_place_before_others(b: Builder) -> None:
    """What the first function overwrites is what the second reads."""
    x = b.linear(b.input(tensor(4, 16)), 16, 16)
    check_chain(b, b.binary("mul", b.eltwise("tanh", x), b.input(tensor(16))))
    check_chain(b, b.binary("mul", b.eltwise("tanh", b.eltwise("abs", x)), x))


def test_what_others_read_is(b: Builder) -> None:
    """Results and operands of other steps."""
    x = b.input(tensor(64, 96))
    one = b.eltwise("tanh", x)
    two = b.binary("add", one, x)
    three = b.eltwise("relu", b.binary("mul", two, one))
    ran = check_chain(b, two, three, b.linear(one, 32, 96))
    assert ran[0] == "eltwise tanh, binary add, binary mul, eltwise relu"


@pytest.mark.parametrize("dtype", DTYPES)
def test_choices_and_conversions_are_parts(b: Builder, dtype: torch.dtype) -> None:
    x = b.input(tensor(*SHAPE, dtype=dtype))
    condition = b.input(tensor(*SHAPE) > 0)
    chosen = b("where", condition, b.eltwise("abs", x), b.binary("mul", x, x))
    wide = b.eltwise("exp", b("to", chosen, dtype="float32"))
    ran = check_chain(b, b("to", wide, dtype="bfloat16"), dtype=dtype)
    assert len(ran) == 1
    assert ran[0].startswith("eltwise abs, binary mul, where")


def test_other_sizes_end_a_chain(b: Builder) -> None:
    x, y = b.input(tensor(1, 40)), b.input(tensor(30, 40))
    small = b.eltwise("tanh", b.eltwise("exp", x))
    ran = check_chain(b, b.eltwise("relu", b.binary("add", small, y)))
    assert ran == ["eltwise exp, eltwise tanh", "binary add, eltwise relu"]


def test_other_sizes_of_the_same_elements_do_not(b: Builder) -> None:
    x, row = b.input(tensor(6, 40)), b.input(tensor(4, 10))
    flat = b.eltwise("tanh", b.eltwise("exp", x))
    ran = check_chain(b, b.binary("add", b("view", flat, 6, 4, 10), row))
    assert ran == ["eltwise exp, eltwise tanh, binary add"]


@pytest.mark.parametrize("shape", [(240,), (6, 4, 10), (2, 3, 2, 2, 10)], ids=str)
def test_a_number_of_a_chain_has_its_other_sizes(b: Builder, shape: tuple[int, ...]) -> None:
    x, one = b.input(tensor(6, 40)), b.input(tensor(1))
    last = b.input(tensor(*shape[-1:]))
    flat = b.eltwise("tanh", b.binary("mul", x, one))
    ran = check_chain(b, b.binary("add", b("view", flat, *shape), last))
    assert ran == ["binary mul, eltwise tanh, binary add"]


def test_another_view_of_what_was_made_ends_a_chain(b: Builder) -> None:
    """Its elements come in another order: some are not there yet."""
    x = b.input(tensor(40, 40))
    result = b.eltwise("tanh", x)
    ran = check_chain(b, b.binary("add", result, b("transpose", result, 0, 1)))
    assert ran == ["eltwise tanh", "binary add"]


def test_a_result_over_an_operand_whose_rows_are_read_ends_a_chain(b: Builder) -> None:
    """The first row is still wanted when it would be overwritten."""
    result = b.linear(b.input(tensor(4, 16)), 16, 16)
    row = b("slice", result, 0, 0, 1, 1)
    less, more = b.binary("sub", result, row), b.eltwise("relu", result)
    ends = [b.eltwise("affine", value, 0.5, 0.25) for value in (less, more)]
    check_chain(b, *ends)


def test_slices_of_a_concatenation(b: Builder) -> None:
    """Each half of a rotation is written where the whole is."""
    x, y = b.input(tensor(2, 9, 8)), b.input(tensor(2, 9, 8, seed=1))
    left = b.binary("sub", b.eltwise("cos", x), b.eltwise("sin", y))
    right = b.binary("add", b.eltwise("cos", y), b.eltwise("sin", x))
    ran = check_chain(b, b("cat", left, right, dim=-1))
    assert len(ran) == 1
    check_chain(b, b("stack", left, right, dim=-1))


@pytest.mark.parametrize("layout", sorted(ARRANGEMENTS))
@pytest.mark.parametrize("dtype", DTYPES)
def test_operands_of_any_layout(b: Builder, layout: str, dtype: torch.dtype) -> None:
    x = b.input(tensor(*SHAPE, dtype=dtype, layout=layout, seed=1))
    y = b.input(tensor(*SHAPE, dtype=dtype, seed=2))
    one = b.input(tensor(1, 17, 1, 1, dtype=dtype, seed=3))
    number = b.input(tensor(1, dtype=dtype, seed=4))
    result = b.binary("mul", b.binary("add", x, one), y)
    check_chain(b, b.eltwise("relu", b.binary("max", result, number)), result, dtype=dtype)


@pytest.mark.parametrize("count", [40, 200])
def test_long_chains_with_many_operands(b: Builder, count: int) -> None:
    """More than one step can have."""
    x = b.input(tensor(5, 33))
    for i in range(count):
        x = b.binary("add" if i % 3 else "mul", x, b.input(tensor(33, seed=i)))
        x = b.eltwise("tanh", x)
    ran = check_chain(b, x)
    assert 2 <= len(ran) <= count / 4


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_many_elements_shared_by_cores(b: Builder, threads: int) -> None:
    """Parts of threads begin anywhere in a row."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        x, row = b.input(tensor(257, 1031)), b.input(tensor(1031))
        y = b.input(tensor(257, 1031, layout="transposed"))
        result = b.eltwise("tanh", b.binary("add", b.binary("mul", x, row), y))
        check_chain(b, b.binary("sub", result, x), result)
    finally:
        torch.set_num_threads(before)


def test_a_slice_that_each_call_places_ends_no_chain_wrongly(b: Builder) -> None:
    x, start = b.input(tensor(64, 32)), b.input(3)
    result = b.eltwise("exp", x)
    moved = b("slice", result, 0, start, b("number_add", start, 16), 1)
    kept = b("slice", result, 0, 8, 24, 1)
    check_chain(b, b.eltwise("tanh", b.binary("add", moved, kept)), result)


def test_steps_say_what_they_are_made_of(b: Builder) -> None:
    x = b.input(tensor(8, 16))
    halves = b.binary("add", b.binary("add", x, x), x)
    plan = check(b, then(b, halves, "relu", ("affine", 0.5, 1.0)))
    (step,) = explained(plan)["built"][0]["steps"]
    assert step["does"] == "aten::binary+aten::binary"
    assert step["implementation"] == "binary add, binary add, eltwise affine"


# Random graphs: whatever shares memory, chains give the bits of single steps.


def add_input(net: Net) -> None:
    net.input(*net.draw(st.sampled_from([(6, 6), (6, 1), (1, 6), (2, 6, 6)])))


def add_expanded(net: Net) -> None:
    """A combination of two values whose sizes may differ."""
    (x, one), (y, other) = net.pick(), net.pick()
    kind = net.draw(st.sampled_from(KINDS))
    net.add(net.b.binary(kind, x, y), *torch.broadcast_shapes(one, other))


def add_transposed(net: Net) -> None:
    x, (*outer, rows, columns) = net.pick()
    net.add(net.b("transpose", x, -2, -1), *outer, columns, rows)


def add_row(net: Net) -> None:
    x, (*outer, _, columns) = net.pick()
    net.add(net.b("slice", x, -2, 0, 1, 1), *outer, 1, columns)


def add_choice(net: Net) -> None:
    (x, one), (y, other) = net.pick(), net.pick()
    greater = net.b("compare", x, y, algorithm="gt")
    net.add(net.b("where", greater, x, y), *torch.broadcast_shapes(one, other))


STEPS = (
    *(add_function, add_expanded, add_expanded, add_input, add_transposed, add_row),
    add_choice,
)


@many
@given(data=st.data(), dtype=dtypes)
def test_random_graphs(data: st.DataObject, dtype: torch.dtype) -> None:
    net = Net(data.draw, dtype)
    b = net.b
    net.input(6, 6)
    for _ in range(data.draw(st.integers(3, 16))):
        data.draw(st.sampled_from(STEPS))(net)
    computed = [value for value in net.shapes if value.producer is not None]
    outputs = [value for value in computed if data.draw(st.booleans())] or computed[-1:]
    assume(outputs)
    region = region_of(b, *outputs)
    examples = dict(zip(b.graph.inputs, b.examples, strict=True))
    tensors: list[Tensor] = [examples[value] for value in region.inputs]
    fused = make_plan(region, dtype)
    with passes.disable("fuse_pointwise"):
        single = make_plan(region, dtype)
    assert fused.takes(tensors, []), refusal(fused)
    assert_same_bits(fused.run(tensors, []), single.run(tensors, []))
