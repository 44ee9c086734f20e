"""Rotary position embeddings in plans."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from test.drawing import property_test

from ..common import DTYPES, dtypes
from ..support.graphs import Builder
from ..support.interpreter import rope
from ..support.plans import check, implementations, make_plan, region_of, tensor
from ..support.samples import arrangements, batches


@property_test
@given(data=st.data())
def test_rope(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype, rotary = draw(dtypes), 2 * draw(st.sampled_from([1, 4, 8, 15, 16, 17, 33]))
    size = rotary + draw(st.sampled_from([0, 0, 1, 16, 21]))
    shape = tuple(draw(st.lists(batches, max_size=3)))
    x = b.input(tensor(*shape, size, dtype=dtype, layout=draw(arrangements)))
    tables = []
    for seed in (1, 2):
        sizes = [draw(st.sampled_from([1, size])) for size in shape]
        sizes = sizes[draw(st.integers(0, len(sizes))) :]
        layout = draw(arrangements)
        tables.append(b.input(tensor(*sizes, rotary, dtype=dtype, layout=layout, seed=seed)))
    check(b, b("rope", x, *tables, interleaved=draw(st.booleans())), dtype=dtype)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("sizes", [(1, 4, 1, 64), (2, 3, 40, 80), (5, 34)])
def test_rope_has_the_bits_of_torch(b: Builder, sizes: tuple[int, ...], interleaved: bool) -> None:
    examples = [tensor(*sizes), *(tensor(sizes[-2], 32, seed=seed) for seed in (1, 2))]
    result = b("rope", *map(b.input, examples), interleaved=interleaved)
    plan = make_plan(region_of(b, result))
    (got,) = plan.run(examples, [])
    assert torch.equal(got, rope({"interleaved": interleaved}, *examples))
    assert implementations(plan) == ["rope"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
def test_heads_are_rotated_where_a_layer_left_them(
    b: Builder, interleaved: bool, dtype: torch.dtype
) -> None:
    x, cos, sin = (
        b.input(tensor(*sizes, dtype=dtype, seed=seed))
        for seed, sizes in enumerate([(2, 5, 64), (1, 1, 5, 16), (1, 1, 5, 16)])
    )
    layer = b.node("split", b.linear(x, 192, 64), results=3, dim=-1, sizes=(64, 64, 64))
    q, k, v = (b("transpose", b("view", part, 2, 5, 4, 16), 1, 2) for part in layer.outputs)
    q, k = (b("rope", y, cos, sin, interleaved=interleaved) for y in (q, k))
    plan = check(b, b("attention", q, k, v, None, scale=0.25), q, dtype=dtype)
    assert implementations(plan)[1:3] == ["rope", "rope"]


def test_large_tensors_are_rotated_by_all_threads(b: Builder) -> None:
    x, table = b.input(tensor(2, 8, 130, 128)), b.input(tensor(130, 96, seed=1))
    check(b, b("rope", x, table, table), b("rope", x, table, table, interleaved=True))


def test_nan_stays_in_its_pair(b: Builder) -> None:
    x, table = tensor(3, 12), tensor(3, 8)
    x[1, 2] = x[0, 10] = float("nan")
    for interleaved, partner in ((False, 6), (True, 3)):
        b = Builder()
        result = b("rope", b.input(x), *map(b.input, (table, table)), interleaved=interleaved)
        (got,) = make_plan(region_of(b, result)).run([x, table, table], [])
        expected = x.isnan()
        expected[1, partner] = True
        assert torch.equal(got.isnan(), expected)
