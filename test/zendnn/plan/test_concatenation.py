"""Concatenations in plans, whose parts are written in place or copied."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.backends.zendnn.ir.node import Value

from test.drawing import property_test

from ..common import PRIMITIVE_DTYPES, dtypes
from ..support.graphs import Builder
from ..support.plans import BATCHES, check, copies_of, implementations, tensor, then
from ..support.samples import arrangements, convolved, joined, made

#: A pool that keeps the size of images.
POOL = {"kernel": (3, 3), "stride": (1, 1), "padding": (1, 1), "dilation": (1, 1)}


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.usefixtures("images")
class TestConcatenations:
    @staticmethod
    def branches(b: Builder, batch: int, dtype: torch.dtype, *counts: int) -> list[Value]:
        x = b.input(tensor(batch, 8, 6, 5, dtype=dtype))
        return [then(b, convolved(b, x, 8, count, 3), "relu") for count in counts]

    @pytest.mark.parametrize("counts", [(16, 32), (3, 8, 17), (16, 3, 16), (8, 8)], ids=str)
    def test_of_convolutions(
        self, b: Builder, batch: int, dtype: torch.dtype, counts: tuple[int, ...]
    ) -> None:
        whole = joined(b, *self.branches(b, batch, dtype, *counts))
        check(b, convolved(b, whole, sum(counts), 8), dtype=dtype)

    def test_of_a_value_and_a_function_of_it(
        self, b: Builder, batch: int, dtype: torch.dtype
    ) -> None:
        """Both are slices of one memory."""
        (one,) = self.branches(b, batch, dtype, 16)
        functions = [b.eltwise(name, one) for name in ("sigmoid", "tanh")]
        again = b.eltwise("relu", functions[1])
        check(b, joined(b, functions[0], one, *functions[1:], again), dtype=dtype)

    def test_are_not_worth_slow_implementations(
        self, b: Builder, batch: int, dtype: torch.dtype
    ) -> None:
        x, *parts = self.branches(b, batch, dtype, 32, 16, 16)
        count = 16 + 16 + 32 + 16 + 16
        parts += [b("max_pool", x, **POOL), b("avg_pool", parts[0], **POOL, include_pad=True)]
        parts.append(then(b, convolved(b, x, 32, 16, 3), ("add", parts[0]), "relu"))
        for _ in range(3):
            whole = joined(b, *parts)
            if dtype == torch.float32:  # statistics are float32
                whole = b.batch_norm(whole, count)
            parts.append(convolved(b, b.eltwise("relu", whole), count, 16, 3))
            count += 16
        plan = check(b, joined(b, *parts), dtype=dtype)
        assert not [name for name in implementations(plan) if "ref" in name]

    def test_are_normalised_and_pooled_where_they_are(
        self, b: Builder, batch: int, dtype: torch.dtype, images: str
    ) -> None:
        """As in DenseNet: each concatenation is a part of the next one."""
        first, second = self.branches(b, batch, dtype, 32, 16)
        inner = joined(b, first, second)
        if dtype == torch.float32:  # statistics are float32
            normed = then(b, b.batch_norm(inner, 48), "relu")
        else:
            normed = b.eltwise("relu", inner)
        third = convolved(b, normed, 48, 32, 3)
        outer = joined(b, inner, third)
        pooled = b("max_pool", outer, **POOL)
        plan = check(b, convolved(b, pooled, 80, 16), b.eltwise("tanh", inner), dtype=dtype)
        steps = implementations(plan)
        assert not [name for name in steps if "ref" in name], steps
        if dtype == torch.float32 and images != "any":
            before = steps[1 : steps.index("batch_norm relu")]  # the input is reordered first
            copies = [name for name in before if name.startswith(("copy", "reorder"))]
            assert len(copies) <= 2, steps  # of the parts, not of the concatenation

    def test_convert_a_residual_once(
        self, b: Builder, batch: int, dtype: torch.dtype, images: str
    ) -> None:
        """A reorder for a candidate that is not used must not remain in the plan."""
        x = b.input(tensor(batch, 16, 6, 5, dtype=dtype, layout="channels_last"))
        residual = made(b, batch, 16, 6, 5, dtype=dtype)
        parts = [then(b, convolved(b, x, 16, 16, 3), ("add", residual)), convolved(b, x, 16, 16)]
        plan = check(b, convolved(b, joined(b, *parts), 32, 8), dtype=dtype)
        if images == "channels_last":
            reorders = [name for name in implementations(plan) if name.startswith("reorder")]
            assert len(reorders) == 1, implementations(plan)

    @pytest.mark.parametrize("dim", [0, 1, 2, 3, -1])
    def test_that_are_results(self, b: Builder, batch: int, dtype: torch.dtype, dim: int) -> None:
        check(b, joined(b, *self.branches(b, batch, dtype, 16, 16), dim=dim), dtype=dtype)

    def test_whose_parts_are_results(self, b: Builder, batch: int, dtype: torch.dtype) -> None:
        one, two = self.branches(b, batch, dtype, 16, 3)
        check(b, two, joined(b, one, two), one, dtype=dtype)

    def test_in_each_other(self, b: Builder, batch: int, dtype: torch.dtype) -> None:
        one, two, three = self.branches(b, batch, dtype, 16, 32, 16)
        whole = joined(b, three, joined(b, one, two))
        check(b, convolved(b, whole, 64, 8), dtype=dtype)

    def test_in_each_other_along_other_dimensions(
        self, b: Builder, batch: int, dtype: torch.dtype
    ) -> None:
        one, two, three = self.branches(b, batch, dtype, 16, 16, 32)
        wide = joined(b, joined(b, one, two), three, dim=3)
        check(b, wide, joined(b, wide, wide, dim=2), dtype=dtype)

    @pytest.mark.parametrize("growth", [3, 8, 16])
    def test_in_a_dense_block(
        self, b: Builder, batch: int, dtype: torch.dtype, growth: int
    ) -> None:
        """Each layer reads all previous ones: a value is a part of several concatenations."""
        parts = self.branches(b, batch, dtype, 16)
        for i in range(4):
            count = 16 + i * growth
            whole = joined(b, *parts) if i else parts[0]
            scaled = b.binary("mul", whole, b.constant(count, 1, 1))
            normed = b.eltwise("relu", b.binary("add", scaled, b.constant(count, 1, 1)))
            parts.append(convolved(b, normed, count, growth, 3))
        check(b, joined(b, *parts), dtype=dtype)

    def test_of_the_same_values_in_another_order(
        self, b: Builder, batch: int, dtype: torch.dtype
    ) -> None:
        one, two, three = self.branches(b, batch, dtype, 16, 16, 3)
        wholes = [joined(b, *order) for order in itertools.permutations((one, two, three))]
        check(b, *(convolved(b, whole, 35, 4) for whole in wholes), dtype=dtype)

    def test_of_a_value_with_itself(self, b: Builder, batch: int, dtype: torch.dtype) -> None:
        one, two = self.branches(b, batch, dtype, 16, 16)
        whole = joined(b, one, two, one, one)
        check(b, convolved(b, whole, 64, 4), whole, dtype=dtype)

    def test_with_inputs_and_constants(self, b: Builder, batch: int, dtype: torch.dtype) -> None:
        (one,) = self.branches(b, batch, dtype, 16)
        x = b.input(tensor(batch, 3, 6, 5, dtype=dtype, layout="transposed"))
        check(b, joined(b, x, one, b.constant(batch, 5, 6, 5), x), dtype=dtype)

    def test_of_what_was_split(self, b: Builder, batch: int, dtype: torch.dtype) -> None:
        (one,) = self.branches(b, batch, dtype, 32)
        left, right = b.node("split", one, results=2, dim=1, chunks=2).outputs
        check(b, joined(b, left, right), joined(b, right, left), dtype=dtype)

    def test_that_are_split_again(self, b: Builder, batch: int, dtype: torch.dtype) -> None:
        whole = joined(b, *self.branches(b, batch, dtype, 16, 17))
        parts = b.node("split", whole, results=2, dim=1, sizes=(17, 16)).outputs
        check(b, convolved(b, parts[0], 17, 4), b.eltwise("relu", parts[1]), dtype=dtype)

    def test_whose_parts_are_changed_in_place_elsewhere(
        self, b: Builder, batch: int, dtype: torch.dtype
    ) -> None:
        one, two = self.branches(b, batch, dtype, 16, 16)
        whole = joined(b, one, two)
        changed = b.eltwise("tanh", one)
        again = then(b, convolved(b, changed, 16, 16), ("add", two))
        check(b, convolved(b, whole, 32, 4), again, dtype=dtype)

    @pytest.mark.parametrize("change", ["tanh", "add", "softmax", "group_norm", "layer_norm"])
    def test_keep_views_of_the_other_place_that_a_part_is_in(
        self, b: Builder, batch: int, dtype: torch.dtype, change: str
    ) -> None:
        """A part that is copied lies in two places; an operator may overwrite only one of them."""
        changes: dict[str, Callable[[Value], Value]] = {
            "tanh": lambda x: b.eltwise("tanh", x),
            "add": lambda x: b.binary("add", x, b.constant(1, 1, 1, 1)),
            "softmax": lambda x: b("softmax", x, dim=1),
            "group_norm": lambda x: b("group_norm", x, None, None, eps=0.1, groups=4),
            "layer_norm": lambda x: b("layer_norm", x, None, None, None, eps=0.1, dims=1),
        }
        x, other = (b.input(tensor(batch, 16, size, size, dtype=dtype)) for size in (8, 4))
        part = b("max_pool", x, kernel=(2, 2), stride=(2, 2), padding=(0, 0), dilation=(1, 1))
        whole = b("mean", joined(b, part, other), dims=(2, 3))
        flat = b("flatten", part, 1, -1)
        changed = b("mean", changes[change](part), dims=(2, 3))
        check(b, whole, b.eltwise("sigmoid", flat), changed, dtype=dtype)

    def test_of_pooled_padded_and_added_values(
        self, b: Builder, batch: int, dtype: torch.dtype
    ) -> None:
        one, two, three = self.branches(b, batch, dtype, 16, 16, 16)
        pooled = b("max_pool", one, kernel=(3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1))
        padded = b("pad", b("slice", two, 3, 1, None, 1), 0, 1, value=0.5)
        summed = b.binary("add", one, three)
        whole = joined(b, pooled, padded, summed, b.eltwise("sigmoid", three))
        check(b, convolved(b, whole, 64, 8), dtype=dtype)


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("dim", [0, 1])
def test_concatenations_of_rows(b: Builder, dim: int, dtype: torch.dtype) -> None:
    x = b.input(tensor(5, 17, dtype=dtype))
    parts = [b.linear(x, 8, 17) for _ in range(3)]
    whole = joined(b, *parts, b.eltwise("relu", parts[0]), dim=dim)
    check(b, b.linear(whole, 4, 32 if dim else 8), dtype=dtype)


def test_concatenated_rows_are_written_in_place(b: Builder) -> None:
    x = b.input(tensor(5, 16))
    plan = check(b, joined(b, *(b.linear(x, 16, 16) for _ in range(4))))
    assert copies_of(plan) == 0, implementations(plan)


@property_test
@given(data=st.data())
def test_concatenations_and_stacks(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype, op = draw(dtypes), draw(st.sampled_from(["cat", "stack"]))
    shape = draw(st.lists(st.sampled_from([1, 2, 5, 17]), min_size=1, max_size=4))
    rank = len(shape) + (op == "stack")
    dim = draw(st.integers(-rank, rank - 1))
    parts: list[Value] = []
    for seed in range(draw(st.integers(1, 4))):
        if parts and draw(st.sampled_from([0, 0, 1])):
            parts.append(draw(st.sampled_from(parts)) if op == "stack" else parts[0])
            continue
        own = list(shape)
        if op == "cat":
            own[dim] = draw(st.sampled_from([1, 2, 5]))
        x = b.input(tensor(*own, dtype=dtype, layout=draw(arrangements), seed=seed))
        parts.append(b.eltwise("relu", x) if draw(st.booleans()) else x)
    whole = b(op, *parts, dim=dim)
    results = [whole, b.eltwise("tanh", whole)] if draw(st.booleans()) else [whole]
    check(b, *results, dtype=dtype)


def test_parts_of_one_buffer_with_other_strides_are_copied(b: Builder) -> None:
    x = made(b, 4, 4)
    top, low = b("slice", x, 0, 0, 2, 1), b("view", b("slice", x, 0, 2, 4, 1), 4, 2)
    check(b, b.eltwise("relu", joined(b, top, b("transpose", low, 0, 1), dim=0)))


def test_slices_of_two_buffers_are_copied(b: Builder) -> None:
    x, y = made(b, 4, 6), made(b, 4, 6, seed=1)
    parts = b("slice", x, 0, 0, 2, 1), b("slice", y, 0, 2, 4, 1)
    check(b, b.eltwise("relu", joined(b, *parts, dim=0)), b.binary("add", x, y))


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
def test_images_stay_as_they_come_in_without_convolutions(b: Builder, layout: str) -> None:
    x = b.input(tensor(2, 16, 6, 5, layout=layout))
    parts = [b.eltwise("relu", x), b.eltwise("tanh", x)]
    plan = check(b, joined(b, *parts))
    assert copies_of(plan) == 0, implementations(plan)


@pytest.mark.usefixtures("images")
def test_images_side_by_side_in_two_dimensions(b: Builder) -> None:
    x = b.input(tensor(1, 32, 6, 6))
    parts = [convolved(b, x, 32, 32, 3) for _ in range(2)]
    batches, channels = joined(b, *parts, dim=0), joined(b, *parts, dim=1)
    check(b, convolved(b, batches, 32, 16), convolved(b, channels, 64, 16))


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize("batch", BATCHES)
def test_a_part_of_half_a_block_in_a_larger_whole(b: Builder, batch: int) -> None:
    x = b.input(tensor(batch, 16, 6, 6))
    small, other, large = (convolved(b, x, 16, count, 3) for count in (8, 8, 16))
    inner = joined(b, small, other)
    check(b, joined(b, inner, large), convolved(b, inner, 16, 16))


def test_transposed_rows_are_written_to_a_part(b: Builder) -> None:
    x, y = b("transpose", b.input(tensor(6, 4)), 0, 1), b.input(tensor(4, 6))
    check(b, joined(b, b.eltwise("relu", x), b.eltwise("relu", y), dim=0))
