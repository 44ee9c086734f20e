"""The pass that recognises rotary position embeddings in elementary operators."""

from __future__ import annotations

import pytest
from torch.backends.zendnn.ir.node import Value
from torch.backends.zendnn.passes.fold_scalars import fold_scalars
from torch.backends.zendnn.passes.recognise_rope import recognise_rope

from ..support.graphs import Builder, only, ops, random

PASSES = fold_scalars, recognise_rope


@pytest.fixture
def b() -> Builder:
    return Builder()


def known(b: Builder, *shape: int, dtype: str = "float64") -> Value:
    """An input whose dtype and sizes the graph knows."""
    value = b.input(random(*shape))
    value.dtype, value.dims = dtype, shape
    return value


def turned(b: Builder, x: Value, pairs: str) -> Value:
    """(-b, a) of all pairs (a, b)."""
    assert x.dims is not None
    size, dim = x.dims[-1], len(x.dims) - 1
    assert isinstance(size, int)
    if pairs == "neighbours":
        first, second = (b("slice", x, dim, start, None, 2) for start in (0, 1))
        parts = b("stack", b.eltwise("affine", second, -1.0, -0.0), first, dim=-1)
        return b("view", parts, *x.dims[:-1], size)
    if pairs == "split":
        first, second = b.node("split", x, results=2, dim=-1, chunks=2).outputs
    else:
        first = b("slice", x, -1, 0, size // 2, 1)
        second = b("slice", x, dim, size // 2, 2**63 - 1, 1)
    return b("cat", b.eltwise("affine", second, -1.0, -0.0), first, dim=dim)


def rotated(b: Builder, x: Value, cos: Value, sin: Value, pairs: str, order: int = 0) -> Value:
    """x·cos + r·sin, with terms and factors in one of four orders."""
    terms = [(x, cos), (turned(b, x, pairs), sin)]
    products = [b.binary("mul", *(term[::-1] if order % 2 else term)) for term in terms]
    return b.binary("add", *(products[::-1] if order > 1 else products))


@pytest.mark.parametrize("order", range(4))
@pytest.mark.parametrize("pairs", ["halves", "split", "neighbours"])
def test_rotations_are_found(b: Builder, pairs: str, order: int) -> None:
    x, cos, sin = known(b, 2, 3, 5, 6), known(b, 2, 1, 5, 6), known(b, 5, 6)
    graph = b.done(rotated(b, x, cos, sin, pairs, order))
    assert b.check(*PASSES)[1] == 1
    assert ops(graph) == ["rope"]
    assert only(graph, "rope").inputs == (x, cos, sin)
    assert only(graph, "rope").get("interleaved") == (pairs == "neighbours")


@pytest.mark.parametrize("pairs", ["halves", "neighbours"])
def test_a_rotation_of_the_first_elements_is_one_of_the_whole(b: Builder, pairs: str) -> None:
    x, cos, sin = known(b, 2, 5, 10), known(b, 5, 4), known(b, 5, 4)
    first, rest = b("slice", x, 2, 0, 4, 1), b("slice", x, -1, 4, None, 1)
    graph = b.done(b("cat", rotated(b, first, cos, sin, pairs), rest, dim=-1))
    assert b.check(*PASSES)[1] == 2
    assert ops(graph) == ["rope"]
    assert only(graph, "rope").inputs == (x, cos, sin)


def test_a_rotation_between_other_elements_stays_apart(b: Builder) -> None:
    x, cos, sin = known(b, 5, 10), known(b, 5, 4), known(b, 5, 4)
    first, rest = b("slice", x, 1, 0, 4, 1), b("slice", x, 1, 6, None, 1)
    middle = b("slice", x, 1, 2, 6, 1)
    b.done(
        b("cat", rotated(b, first, cos, sin, "halves"), rest, dim=-1),
        b("cat", rotated(b, middle, cos, sin, "halves"), rest, dim=-1),
        b("cat", rest, rotated(b, first, cos, sin, "halves"), dim=-1),
    )
    assert b.check(*PASSES)[1] == 3


@pytest.mark.parametrize("narrow", ["x", "tables", "cosines"])
def test_operands_are_promoted_as_torch_does(b: Builder, narrow: str) -> None:
    dtypes = {"x": "bff", "tables": "fbb", "cosines": "fbf"}[narrow]
    names = {"b": "bfloat16", "f": "float32"}
    x, cos, sin = (known(b, 5, 6, dtype=names[name]) for name in dtypes)
    graph = b.done(*(rotated(b, x, cos, sin, "halves", order) for order in (0, 1)))
    fold_scalars(graph)
    assert recognise_rope(graph) == 2
    graph.infer_types()
    assert ops(graph) == ["to"] * dtypes.count("b") + ["rope", "rope"]
    for node in graph.nodes[-2:]:
        assert {value.dtype for value in (*node.values(), *node.outputs)} == {"float32"}


def test_what_else_reads_the_parts_keeps_them(b: Builder) -> None:
    x, cos, sin = known(b, 5, 6), known(b, 5, 6), known(b, 5, 6)
    total = rotated(b, x, cos, sin, "halves")
    assert total.producer is not None
    b.done(total, *(value for value in total.producer.values()))
    assert b.check(*PASSES)[1] == 1


def test_what_only_resembles_a_rotation_stays(b: Builder) -> None:
    x, y, cos, sin = (known(b, 5, 6) for _ in range(4))
    column, narrow = known(b, 5, 1), known(b, 5, 6, dtype="float32")
    wide = known(b, 2, 5, 6)
    unknown = b.input(random(5, 6))
    first, second = b("slice", x, 1, 0, 3, 1), b("slice", x, 1, 3, None, 1)
    odd = known(b, 5, 5)

    def total(x: Value, r: Value, cos: Value = cos, sin: Value = sin) -> Value:
        return b.binary("add", b.binary("mul", x, cos), b.binary("mul", r, sin))

    minus = b.eltwise("affine", second, -1.0, -0.0)
    b.done(
        total(y, turned(b, x, "halves")),
        total(x, turned(b, x, "halves"), column, column),
        total(x, turned(b, x, "halves"), narrow),
        total(x, turned(b, x, "halves"), sin=wide),
        total(unknown, b("cat", minus, first, dim=-1)),
        total(x, b("cat", first, minus, dim=-1)),
        total(x, b("cat", minus, second, dim=-1)),
        total(x, b("cat", b.eltwise("affine", second, -2.0, -0.0), first, dim=-1)),
        total(x, b("cat", b.eltwise("affine", second, -1.0, 1.0), first, dim=-1)),
        b.binary("sub", b.binary("mul", x, cos), b.binary("mul", turned(b, x, "halves"), sin)),
        total(odd, b("cat", b.eltwise("affine", odd, -1.0, -0.0), dim=-1), odd, odd),
    )
    assert b.check(*PASSES)[1] == 0
