"""Post-ops of operators in plans: functions, operands and residuals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.backends.zendnn.ir.node import Value

from test.drawing import property_test

from ..common import PRIMITIVE_DTYPES, primitive_dtypes
from ..support.graphs import Builder
from ..support.interpreter import BINARY
from ..support.plans import check, implementations, make_plan, region_of, tensor, then
from ..support.post_ops import PRODUCERS, producer
from ..support.samples import BEFORE, POST_OPS, arrangements, convolved, is_round, made


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("name", POST_OPS)
@pytest.mark.parametrize("op", PRODUCERS)
def test_functions_as_post_ops(b: Builder, op: str, name: str, dtype: torch.dtype) -> None:
    if is_round(name, dtype):
        pytest.skip("an error of half a unit in the last place may round to a whole unit")
    out = then(b, producer(b, op, dtype), *BEFORE.get(name, ()), (name, *POST_OPS[name]))
    check(b, out, dtype=dtype)


@pytest.mark.parametrize(("low", "high"), [(-math.inf, 0.5), (0.0, math.inf), (0.0, 6.0)])
@pytest.mark.parametrize("op", PRODUCERS)
def test_clips_with_one_bound(b: Builder, op: str, low: float, high: float) -> None:
    check(b, then(b, producer(b, op, torch.float32), ("clip", low, high)))


#: Shapes of a post-op's operand, for a result of (3, 17, 6, 8).
OPERANDS = [
    *((3, 17, 6, 8), (17, 1, 1), (1, 17, 1, 1), (3, 17, 1, 1), (8,), (1,), (6, 8), (3, 1, 1, 1)),
    *((1, 17, 6, 8), (3, 1, 6, 8), (17, 6, 1), (1, 1, 1, 1), ()),
]


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("shape", OPERANDS, ids=str)
@pytest.mark.parametrize("op", PRODUCERS)
def test_operands_of_post_ops(
    b: Builder, op: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    for name in BINARY:
        b = Builder()
        other = b.input(tensor(*shape, dtype=dtype, seed=5).abs() + 0.5)
        check(b, then(b, producer(b, op, dtype), (name, other), "relu"), dtype=dtype)


#: Slices of a larger tensor as operands: the dimension, and the slice.
GAPS: dict[str, tuple[int, slice]] = {
    "between columns": (-1, slice(None, None, 3)),
    "between channels": (-3, slice(1, None, 2)),
    "repeated columns": (-1, slice(0, 1)),
}


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("how", GAPS)
@pytest.mark.parametrize("shape", [shape for shape in OPERANDS if len(shape) > 2], ids=str)
@pytest.mark.parametrize("op", PRODUCERS)
def test_operands_of_post_ops_with_gaps_between_their_elements(
    op: str, shape: tuple[int, ...], how: str, dtype: torch.dtype
) -> None:
    """ZenDNN's post-ops count elements and ignore strides."""
    dimension, part = GAPS[how]
    larger = list(shape)
    larger[dimension] *= part.step or 1
    index: list[slice] = [slice(None)] * len(shape)
    index[dimension] = part
    for name in ("add", "mul"):
        b = Builder()
        x = tensor(*larger, dtype=dtype, seed=5)[tuple(index)].expand(shape)
        check(b, then(b, producer(b, op, dtype), (name, b.input(x)), "relu"), dtype=dtype)


@property_test
@given(data=st.data())
def test_chains_of_post_ops(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype = draw(primitive_dtypes)
    op = draw(st.sampled_from(PRODUCERS))
    posts: list[tuple[Any, ...]] = []
    for _ in range(draw(st.integers(1, 4))):
        if draw(st.booleans()):
            name = draw(st.sampled_from(["relu", "sigmoid", "clip", "affine", "gelu", "hardswish"]))
            posts.append((name, *POST_OPS[name]))
            continue
        layout, shape = draw(arrangements), draw(st.sampled_from(OPERANDS[:-1]))
        x = tensor(*shape, dtype=dtype, layout=layout, seed=len(posts))
        operand = b.input(x) if draw(st.booleans()) else b.eltwise("abs", b.input(x))
        posts.append((draw(st.sampled_from(["add", "sub", "mul", "max"])), operand))
    check(b, then(b, producer(b, op, dtype), *posts), dtype=dtype)


#: Operands that enlarge the operator's result: its own shape, and theirs.
LARGER = {
    "a larger batch": ((1, 16, 6, 8), (3, 16, 6, 8)),
    "a larger rank": ((3, 16, 6, 8), (2, 3, 16, 6, 8)),
    "larger in turn": ((3, 16, 1, 8), (1, 16, 6, 1)),
    "more columns": ((3, 16, 6, 1), (3, 16, 6, 8)),
}


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("how", LARGER)
@pytest.mark.parametrize("op", ["convolution", "linear", "matmul", "binary"])
def test_operands_of_post_ops_that_are_larger_than_the_result(
    b: Builder, op: str, how: str, dtype: torch.dtype
) -> None:
    """As in torch.tanh(keys + query): many keys are added to one query."""
    own, larger = LARGER[how]
    other, last = (b.input(tensor(*larger, dtype=dtype, seed=seed)) for seed in (5, 6))
    x = b.input(tensor(*own[:-1], 8, dtype=dtype))
    if op == "convolution":
        x = convolved(b, b.input(tensor(*own, dtype=dtype)), 16, 16)
    elif op == "linear":
        x = b.linear(x, own[-1], 8)
    elif op == "matmul":
        x = b("matmul", x, b.input(tensor(8, own[-1], dtype=dtype)))
    else:
        x = b.binary("mul", b.input(tensor(*own, dtype=dtype)), b.input(tensor(1, dtype=dtype)))
    gate = b.input(tensor(1, dtype=dtype))
    out = then(b, x, "sigmoid", ("mul", gate), ("sub", other), "tanh", ("add", last), "relu")
    check(b, out, dtype=dtype)


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
def test_operands_that_repeat_elements_are_not_copied(
    b: Builder, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    """As in diffusion: the embedding of a time step is added to each pixel."""
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", "channels_last")
    x = b.input(tensor(2, 16, 6, 8, dtype=dtype, layout="channels_last"))
    embedded = b.linear(b.input(tensor(2, 4, dtype=dtype)), 16, 4)
    wide = b("expand", b("view", embedded, 2, 16, 1, 1), -1, -1, 6, 8)
    y = then(b, convolved(b, x, 16, 16, 3), ("add", wide), "relu")
    plan = check(b, convolved(b, y, 16, 8), dtype=dtype)
    assert not [name for name in implementations(plan)[:-1] if name.startswith(("copy", "reorder"))]


@pytest.fixture(params=["convolution", "linear"])
def block(request: pytest.FixtureRequest) -> Callable[..., Value]:
    """A layer that keeps its input's size, (2, 16, 8, 16)."""

    def layer(b: Builder, x: Value) -> Value:
        if request.param == "convolution":
            return convolved(b, x, 16, 16, 3)
        return b.linear(x, 16, 16)

    return layer


Block = Callable[[Builder, Value], Value]

SHAPE = (2, 16, 8, 16)


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.usefixtures("images")
class TestResiduals:
    @staticmethod
    def start(b: Builder, block: Block, dtype: torch.dtype) -> tuple[Value, Value]:
        x = b.input(tensor(*SHAPE, dtype=dtype))
        return x, then(b, block(b, x), "relu")

    def test_without_later_readers(self, b: Builder, block: Block, dtype: torch.dtype) -> None:
        x, residual = self.start(b, block, dtype)
        check(b, then(b, block(b, x), ("add", residual), "relu"), dtype=dtype)

    def test_that_is_read_later(self, b: Builder, block: Block, dtype: torch.dtype) -> None:
        x, residual = self.start(b, block, dtype)
        out = then(b, block(b, x), ("add", residual), "relu")
        check(b, b.binary("mul", out, residual), dtype=dtype)

    def test_that_is_a_result(self, b: Builder, block: Block, dtype: torch.dtype) -> None:
        x, residual = self.start(b, block, dtype)
        check(b, residual, then(b, block(b, x), ("add", residual)), dtype=dtype)

    def test_whose_view_is_read_later(self, b: Builder, block: Block, dtype: torch.dtype) -> None:
        x, residual = self.start(b, block, dtype)
        view = b("slice", residual, 1, 0, 4, 1)
        out = then(b, block(b, x), ("add", residual))
        check(b, b.binary("mul", b("slice", out, 1, 4, 8, 1), view), dtype=dtype)

    def test_whose_view_is_a_result(self, b: Builder, block: Block, dtype: torch.dtype) -> None:
        x, residual = self.start(b, block, dtype)
        view = b("transpose", residual, 2, 3)
        check(b, view, then(b, block(b, x), ("add", residual)), dtype=dtype)

    def test_that_is_the_input(self, b: Builder, block: Block, dtype: torch.dtype) -> None:
        x, _ = self.start(b, block, dtype)
        check(b, then(b, block(b, x), ("add", x)), dtype=dtype)

    def test_with_two_readers_of_one_node(
        self, b: Builder, block: Block, dtype: torch.dtype
    ) -> None:
        _, residual = self.start(b, block, dtype)
        check(b, then(b, block(b, residual), ("add", residual), "relu"), dtype=dtype)

    def test_that_is_added_and_multiplied(
        self, b: Builder, block: Block, dtype: torch.dtype
    ) -> None:
        x, residual = self.start(b, block, dtype)
        check(b, then(b, block(b, x), ("add", residual), ("mul", residual)), dtype=dtype)

    def test_that_is_multiplied_and_added_as_a_view(
        self, b: Builder, block: Block, dtype: torch.dtype
    ) -> None:
        x, residual = self.start(b, block, dtype)
        same = b("view", residual, *SHAPE)
        check(b, then(b, block(b, x), ("add", residual), ("mul", same)), dtype=dtype)

    def test_that_is_a_view_of_what_the_layer_reads(
        self, b: Builder, block: Block, dtype: torch.dtype
    ) -> None:
        x = made(b, *SHAPE, dtype=dtype)
        view = b("view", x, *SHAPE)
        check(b, then(b, block(b, x), ("add", view)), dtype=dtype)

    def test_that_overlaps_with_what_the_layer_reads(
        self, b: Builder, block: Block, dtype: torch.dtype
    ) -> None:
        x = made(b, 3, 16, 8, 16, dtype=dtype)
        first, second = (b("slice", x, 0, i, i + 2, 1) for i in range(2))
        check(b, then(b, block(b, second), ("add", first)), dtype=dtype)

    def test_twice(self, b: Builder, block: Block, dtype: torch.dtype) -> None:
        x, first = self.start(b, block, dtype)
        second = block(b, x)
        out = then(b, block(b, x), ("add", first), "relu", ("add", second))
        check(b, out, dtype=dtype)

    def test_after_other_post_ops(self, b: Builder, block: Block, dtype: torch.dtype) -> None:
        x, residual = self.start(b, block, dtype)
        gate = b.eltwise("sigmoid", b.input(tensor(2, 16, 1, 1, dtype=dtype)))
        out = then(b, block(b, x), "hardswish", ("mul", gate), ("add", residual), "relu")
        check(b, out, dtype=dtype)

    def test_in_a_chain(self, b: Builder, block: Block, dtype: torch.dtype) -> None:
        _, x = self.start(b, block, dtype)
        for _ in range(3):
            inner = then(b, block(b, x), "relu")
            x = then(b, block(b, inner), ("add", x), "relu")
        check(b, x, dtype=dtype)

    def test_of_another_layout(self, b: Builder, block: Block, dtype: torch.dtype) -> None:
        x, _ = self.start(b, block, dtype)
        residual = b("transpose", made(b, 2, 16, 16, 8, dtype=dtype), 2, 3)
        check(b, then(b, block(b, x), ("add", residual)), dtype=dtype)

    def test_that_repeats_elements(self, b: Builder, block: Block, dtype: torch.dtype) -> None:
        """An in-place addition would add to one element several times."""
        x, _ = self.start(b, block, dtype)
        embedded = b.linear(b.input(tensor(2, 1, 1, 4, dtype=dtype)), 16, 4)
        residual = b("expand", b("transpose", embedded, 1, 3), *SHAPE)
        check(b, then(b, block(b, x), ("add", residual), "relu"), dtype=dtype)

    def test_that_is_a_part_of_a_concatenation(
        self, b: Builder, block: Block, dtype: torch.dtype
    ) -> None:
        x, residual = self.start(b, block, dtype)
        out = then(b, block(b, x), ("add", residual))
        check(b, b("cat", out, residual, dim=1), dtype=dtype)

    def test_that_is_one_half_where_the_layer_reads_the_other(
        self, b: Builder, block: Block, dtype: torch.dtype
    ) -> None:
        """As in ShuffleNet and Res2Net: the halves share memory and do not overlap."""
        x = made(b, 4, 16, 8, 16, dtype=dtype)
        one, two = b.node("split", x, results=2, dim=0, chunks=2).outputs
        check(b, then(b, block(b, one), ("add", two)), dtype=dtype)


def test_operands_of_post_ops_that_a_result_could_overwrite(b: Builder) -> None:
    x = made(b, 4, 16)
    out = then(b, b.binary("add", x, b.constant(16)), ("mul", x), "relu")
    check(b, b.eltwise("tanh", out))


@pytest.mark.parametrize("op", ["convolution", "linear"])
def test_a_clip_without_a_bound_keeps_infinity(b: Builder, op: str) -> None:
    shape = (4, 16, 3, 3) if op == "convolution" else (4, 16)
    x = b.input(torch.full(shape, 1e38))
    weight = b.graph.constant(torch.ones(8, 16, *(1 for _ in shape[2:]), dtype=torch.float64))
    y = b.convolution(x, weight) if op == "convolution" else b("linear", x, weight, None)
    (got,) = make_plan(region_of(b, then(b, y, ("clip", 1.0, math.inf)))).run(b.examples, [])
    assert got.isinf().all()
