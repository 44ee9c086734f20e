"""Embeddings and embedding bags in plans."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.backends.zendnn.graph import Value

from ..common import DTYPES, dtypes, property_test
from ..passes.build import Builder
from .check import ARRANGEMENTS, check, tensor
from .samples import arrangements, joined, lengths, plan_of


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
def test_indices_out_of_range_raise_and_the_plan_still_works(
    b: Builder, op: str, wrong: int
) -> None:
    table, ids = b.constant(7, 16), torch.randint(7, (3, 4))
    bad = ids.clone()
    bad[2, 1] = wrong
    if op == "embedding":
        out = b("embedding", table, b.input(ids))
    elif op == "embedding_bag":
        out = b("embedding_bag", table, b.input(ids), None, mode="sum")
    else:
        ids, bad = ids.reshape(-1), bad.reshape(-1)
        offsets = b.input(torch.tensor([0, 4]))
        out = b("embedding_bag", table, b.input(ids), offsets, mode="sum")
    plan = check(b, out)
    tensors = [x if x.dim() == 1 and len(x) == 2 else bad for x in b.examples]
    if op.endswith("offsets"):
        tensors = [bad, torch.tensor([0, 4])]
    for _ in range(2):
        with pytest.raises(IndexError, match="index out of range"):
            plan.run(tensors, [])
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
        given = weighted and draw(st.booleans())
        weights.append(b.input(tensor(*ids.shape, dtype=dtype)) if given else None)
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
@pytest.mark.parametrize("wrong", [(0, 3, 2), (0, 5, 13), (0, -1, 4)])
def test_invalid_offsets_raise(b: Builder, wrong: tuple[int, ...], kind: torch.dtype) -> None:
    ids, starts = b.input(torch.randint(7, (9,), dtype=kind)), b.input(torch.tensor([0, 2, 4]))
    b.examples[1] = b.examples[1].to(kind)
    attributes = {"count": 1, "mode": "sum", "last_offset": True}
    plan = check(b, b("embedding_bags", b.constant(7, 8), ids, starts, **attributes))
    with pytest.raises(IndexError, match="out of range"):
        plan.run([b.examples[0], torch.tensor(wrong, dtype=kind)], [])


def test_a_first_offset_that_is_not_zero_raises() -> None:
    inputs = [f"%{i} = input tensor" for i in range(3)]
    plan = plan_of(*inputs, "%3 = embedding_bag(%0, %1, %2) mode=sum", "return %3")
    with pytest.raises(IndexError, match="out of range"):
        plan.run([tensor(5, 3), torch.tensor([1, 2, 3]), torch.tensor([1, 2])], [])
