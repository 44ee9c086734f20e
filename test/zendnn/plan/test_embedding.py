"""Embeddings and embedding bags in plans."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.backends.zendnn.ir.node import Value

from test.drawing import property_test

from ..common import DTYPES, dtypes, outcome, values
from ..support.graphs import Builder
from ..support.plans import ARRANGEMENTS, check, tensor
from ..support.samples import arrangements, joined, lengths


@property_test
@given(data=st.data())
def test_embeddings(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype, width, rows = draw(dtypes), draw(lengths), draw(st.sampled_from([1, 7, 100]))
    shape = draw(st.lists(st.sampled_from([1, 2, 5]), max_size=3))
    ids = torch.randint(rows, shape, dtype=draw(st.sampled_from([torch.int64, torch.int32])))
    if shape:
        ids = ARRANGEMENTS[draw(arrangements.filter(lambda n: n not in INTEGERS_LACK))](ids)
    table = b.constant(rows, width)
    if draw(st.booleans()):
        table = b.input(tensor(rows, width, dtype=dtype, layout=draw(arrangements)))
    out = b("embedding", table, b.input(ids))
    if draw(st.booleans()):
        out = b("cat", out, out, dim=-1)
    check(b, out, dtype=dtype)


#: Arrangements that fill gaps with NaN.
INTEGERS_LACK = ("strided", "padded", "misaligned")


@property_test
@given(data=st.data())
def test_embedding_bags(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype, mode = draw(dtypes), draw(st.sampled_from(["sum", "weighted", "mean", "max"]))
    width, rows, bags = draw(lengths), draw(st.sampled_from([1, 7, 100])), draw(st.integers(1, 6))
    kind = draw(st.sampled_from([torch.int64, torch.int32]))
    table = b.constant(rows, width)
    if draw(st.booleans()):
        ids = torch.randint(rows, (bags, draw(st.integers(1, 9))), dtype=kind)
        ids = ARRANGEMENTS[draw(st.sampled_from(["contiguous", "transposed", "repeated"]))](ids)
        offsets = None
    else:
        starts = sorted(draw(st.integers(0, 9)) for _ in range(bags - 1))
        ids = torch.randint(rows, (9,))
        offsets = b.input(torch.tensor([0, *starts]))
    index = b.input(ids)
    weights = [b.input(tensor(*ids.shape, dtype=dtype))] if mode == "weighted" else []
    mode = mode.replace("weighted", "sum")
    check(b, b("embedding_bag", table, index, offsets, *weights, mode=mode), dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", sorted(ARRANGEMENTS))
@pytest.mark.parametrize("shape", [(5, 7), (35,)])
def test_weights_of_bags_in_any_layout(
    b: Builder, shape: tuple[int, ...], layout: str, dtype: torch.dtype
) -> None:
    index = b.input(torch.randint(9, (5, 7)).t().contiguous().t())
    weights = b.input(tensor(*shape, dtype=dtype, layout=layout, seed=1))
    out = b("embedding_bag", b.constant(9, 19), index, None, weights, mode="sum")
    check(b, out, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_many_embedding_bags_at_once(b: Builder, mode: str, dtype: torch.dtype) -> None:
    count, rows = 5, (1, 7, 33, 100, 3)
    tables = [b.constant(n, 8 + 8 * i) for i, n in enumerate(rows)]
    ids = [b.input(torch.randint(n, (6, i + 1))) for i, n in enumerate(rows)]
    bags = b.node("embedding_bags", *tables, *ids, results=count, count=count, mode=mode).outputs
    check(b, joined(b, *bags), bags[2], dtype=dtype)


@pytest.mark.parametrize("wrong", [-1, 7, 2**40, -(2**62)])
@pytest.mark.parametrize("op", ["embedding", "embedding_bag", "embedding_bag with offsets"])
def test_indices_out_of_range_raise_torchs_error_and_the_plan_still_works(
    b: Builder, op: str, wrong: int
) -> None:
    table, ids = b.constant(7, 16), torch.randint(7, (3, 4))
    weight, offsets = values(7, 16), torch.tensor([0, 4])
    bad = ids.clone()
    bad[2, 1] = wrong
    if op == "embedding":
        out, tensors = b("embedding", table, b.input(ids)), [bad]
        theirs = outcome(lambda: F.embedding(bad, weight))
    elif op == "embedding_bag":
        out, tensors = b("embedding_bag", table, b.input(ids), None, mode="sum"), [bad]
        theirs = outcome(lambda: F.embedding_bag(bad, weight, mode="sum"))
    else:
        index, bad = b.input(ids.reshape(-1)), bad.reshape(-1)
        out, tensors = (
            b("embedding_bag", table, index, b.input(offsets), mode="sum"),
            [bad, offsets],
        )
        theirs = outcome(lambda: F.embedding_bag(bad, weight, offsets, mode="sum"))
    plan = check(b, out)
    for _ in range(2):
        assert outcome(lambda: plan.run(tensors, [])) == theirs
    check(b, out)


@property_test
@given(data=st.data())
def test_groups_of_embeddings(data: st.DataObject) -> None:
    """With offsets, without, or row by row, side by side in one result."""
    b, draw = Builder(), data.draw
    dtype, count = draw(dtypes), draw(st.integers(1, 4))
    mode = draw(st.sampled_from(["sum", "mean", "max", "each"]))
    bags, last = draw(st.integers(1, 6)), draw(st.booleans())
    kind = draw(st.sampled_from([torch.int64, torch.int32]))
    tables, indices, offsets, weights = [], [], [], []
    weighted = mode == "sum" and draw(st.booleans())
    for _ in range(count):
        rows = draw(st.sampled_from([1, 7, 100]))
        tables.append(b.constant(rows, draw(lengths)))
        starts: Value | None = None
        if mode == "each":
            ids = torch.randint(rows, (bags,), dtype=kind)
        elif draw(st.booleans()):
            cuts = sorted(draw(st.integers(0, 9)) for _ in range(bags - 1))
            ids = torch.randint(rows, (9,), dtype=kind)
            starts = b.input(torch.tensor([0, *cuts, *([9] if last else [])], dtype=kind))
        else:
            ids = torch.randint(rows, (bags, draw(st.integers(1, 5))), dtype=kind)
        indices.append(b.input(ids))
        offsets.append(starts)
        has_weights = weighted and draw(st.booleans())
        weights.append(b.input(tensor(*ids.shape, dtype=dtype)) if has_weights else None)
    operands = [*tables, *indices, *offsets, *(weights if weighted else ())]
    attributes = {"count": count, "mode": mode, "last_offset": last}
    node = b.node("embedding_bags", *operands, results=count, **attributes)
    check(b, b("cat", *node.outputs, dim=1), dtype=dtype)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 1, 3)])
def test_rows_of_several_tables_have_the_shape_of_their_indices(
    b: Builder, shape: tuple[int, ...]
) -> None:
    tables = [b.constant(7, 16), b.constant(5, 16)]
    ids = [b.input(torch.randint(5, shape).transpose(0, -1) if shape else torch.tensor(3))] * 2
    node = b.node("embedding_bags", *tables, *ids, results=2, count=2, mode="each")
    check(b, *node.outputs)


@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("other", [(0, 3, 5), (0, 0, 0), (0, 3, 2), (0, 5, 13), (1, 3, 9)])
def test_offsets_that_end_early_or_are_not_in_order_mean_what_torch_says(
    b: Builder, other: tuple[int, ...], mode: str, kind: torch.dtype
) -> None:
    """Results, or torch's error; so of bags beside others."""
    ids, starts = torch.arange(9, dtype=kind), torch.tensor([0, 2, 9], dtype=kind)
    tables = [tensor(10, 24, seed=seed) for seed in range(2)]
    operands = [b.input(x) for x in (*tables, ids, ids, starts, starts)]
    attributes = {"count": 2, "mode": mode, "last_offset": True}
    node = b.node("embedding_bags", *operands, results=2, **attributes)
    plan = check(b, *node.outputs)
    offsets = torch.tensor(other, dtype=kind)
    kind_of_ours, ours = outcome(lambda: plan.run([*tables, ids, ids, offsets, starts], []))
    kind_of_theirs, theirs = outcome(
        lambda: [
            F.embedding_bag(ids, table, bags, mode=mode, include_last_offset=True)
            for table, bags in zip(tables, (offsets, starts), strict=True)
        ]
    )
    assert kind_of_ours == kind_of_theirs
    if kind_of_ours == "value":
        torch.testing.assert_close(ours, theirs)
    else:
        assert ours == theirs
