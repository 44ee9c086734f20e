"""Passes that recognise attention and normalise its form."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Value
from torch.backends.zendnn.passes.attention_layout import attention_layout
from torch.backends.zendnn.passes.fold_attention_scale import fold_attention_scale
from torch.backends.zendnn.passes.fold_scalars import fold_scalars
from torch.backends.zendnn.passes.fuse_attention import fuse_attention

from ..support.graphs import Builder, only, ops, random

N, H, T, S, D = 2, 3, 4, 5, 6


@pytest.fixture
def b() -> Builder:
    return Builder()


def heads(b: Builder, x: Value) -> Value:
    """(N, T, H·D) as (N, H, T, D), as in models."""
    rows = b("number_mul", b("size", x, 0), 1)
    return b("transpose", b("view", x, rows, b("size", x, 1), H, D), 1, 2)


def spell(
    b: Builder,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    *,
    scale: str = "div",
    swap: tuple[int, ...] = (-1, -2),
    dim: int = -1,
    mask_first: bool = False,
) -> Value:
    """softmax(q·kᵀ / √D + mask)·v, as models write it."""
    factor = 1 / math.sqrt(D)
    if scale == "before":
        q = b.binary("mul", q, b.number(factor))
    if scale == "both":
        q, k = (b.eltwise("affine", x, math.sqrt(factor), 0.0) for x in (q, k))
    transposed = b("transpose" if len(swap) == 2 else "permute", k, *swap)
    scores = b("matmul", q, transposed)
    if scale == "div":
        scores = b.binary("div", scores, b.number(1 / factor))
    if mask is not None:
        scores = b.binary("add", *((mask, scores) if mask_first else (scores, mask)))
    return b("matmul", b("softmax", scores, dim=dim), v)


def operands(b: Builder) -> tuple[Value, Value, Value]:
    q, k, v = (b.input(random(N, length, H * D)) for length in (T, S, S))
    return heads(b, q), heads(b, k), heads(b, v)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"scale": "none"},
        {"scale": "before"},
        {"scale": "both"},
        {"swap": (2, 3), "dim": 3},
        {"swap": (-2, -1), "mask_first": True},
        {"swap": (0, 1, 3, 2)},
    ],
)
def test_spelled_out_attention_is_found(b: Builder, masked: bool, more: dict[str, Any]) -> None:
    q, k, v = operands(b)
    mask = b.input(random(N, 1, 1, S)) if masked else None
    graph = b.done(spell(b, q, k, v, mask, **more))
    counts = b.check(fold_scalars, fuse_attention, fold_attention_scale)
    scaled_before = {"before": 1, "both": 2}.get(more.get("scale", "div"), 0)
    assert counts[1:] == [1, scaled_before]
    node = only(graph, "attention")
    assert node.inputs == (q, k, v, mask)
    expected = 1.0 if more.get("scale") == "none" else 1 / math.sqrt(D)
    assert node.attributes["scale"] == pytest.approx(expected)
    assert not node.attributes["causal"]
    assert node.attributes["additive"], "its mask is added, whatever the type"
    assert not {"softmax", "matmul", "eltwise", "binary"}.intersection(ops(graph))
    assert node.origin.count("aten::matmul") == 2


def test_the_model_may_share_its_transposed_keys(b: Builder) -> None:
    q, k, v = operands(b)
    transposed = b("transpose", k, -1, -2)
    scores = b("matmul", q, transposed)
    graph = b.done(b("matmul", b("softmax", scores, dim=-1), v), transposed)
    assert b.check(fuse_attention) == [1]
    assert transposed.producer in graph.nodes


def test_attention_is_placed_after_its_operands(b: Builder) -> None:
    q, k, v = operands(b)
    weights = b("softmax", b("matmul", q, b("transpose", k, 2, 3)), dim=3)
    late = b.opaque(torch.exp, v)
    graph = b.done(b("matmul", weights, late))
    assert b.check(fuse_attention) == [1]
    assert ops(graph)[-2:] == ["opaque", "attention"]


@pytest.mark.parametrize("shape", [(N, T, D), (T, D)])
def test_attention_without_heads_or_batch_is_found(b: Builder, shape: tuple[int, ...]) -> None:
    q, k, v = (b("view", b.input(random(*shape)), *shape) for _ in range(3))
    mask = b.input(random(T, T))
    graph = b.done(b("transpose", spell(b, q, k, v, mask), -1, -2))
    assert b.check(fold_scalars, fuse_attention, attention_layout) == [1, 1, 0]
    assert only(graph, "attention").inputs == (q, k, v, mask)


def test_attention_with_more_than_a_batch_and_heads_stays_spelled_out(b: Builder) -> None:
    q, k, v = (b("view", b.input(random(1, N, H, T, D)), 1, N, H, T, D) for _ in range(3))
    b.done(spell(b, q, k, v))
    assert b.check(fold_scalars, fuse_attention) == [1, 0]


@pytest.mark.parametrize("swap", [(2, 3), (-1, -2), (0, 1, 3, 2)])
def test_attention_of_an_unknown_rank_is_found(b: Builder, swap: tuple[int, ...]) -> None:
    b.done(spell(b, *(b.input(random(N, H, T, D)) for _ in range(3)), swap=swap))
    assert b.check(fold_scalars, fuse_attention) == [1, 1]


def test_keys_that_one_view_splits_and_transposes_are_transposed_back(b: Builder) -> None:
    q, _, v = operands(b)
    transposed = b("permute", b("view", b.input(random(N, S, H * D)), N, S, H, D), 0, 2, 3, 1)
    graph = b.done(b("matmul", b("softmax", b("matmul", q, transposed), dim=-1), v))
    assert b.check(fuse_attention) == [1]
    assert ops(graph)[-2:] == ["transpose", "attention"]


def test_several_masks_are_added_first(b: Builder) -> None:
    q, k, v = operands(b)
    masks = [b.input(random(*shape)) for shape in ((N, 1, 1, S), (T, S), (1, H, T, S))]
    scores = b("matmul", q, b("transpose", k, -1, -2))
    for mask in masks:
        scores = b.binary("add", scores, mask)
    graph = b.done(b("matmul", b("softmax", scores, dim=-1), v))
    assert b.check(fuse_attention) == [1]
    assert ops(graph)[-3:] == ["binary", "binary", "attention"]


# Replaced scores


LOWEST = torch.finfo(torch.float32).min


def hidden(b: Builder, *shape: int) -> Value:
    """A condition that is false somewhere in each row."""
    condition = torch.rand(shape) < 0.4
    condition[..., 0] = False
    return b.input(condition)


@pytest.mark.parametrize("fill", [-math.inf, LOWEST, -1.5])
@pytest.mark.parametrize("where", ["chosen", "others"])
@pytest.mark.parametrize("expanded", ["as", "sizes", ""])
def test_replaced_scores_are_found(b: Builder, fill: float, where: str, expanded: str) -> None:
    q, k, v = operands(b)
    condition = hidden(b, N, 1, 1, S)
    scores = b.eltwise("affine", b("matmul", q, b("transpose", k, -1, -2)), 0.5, 0.0)
    choice = condition
    if expanded == "as":
        choice = b("expand_as", condition, scores)
    elif expanded == "sizes":
        choice = b("expand", condition, *(b("size", scores, dim) for dim in range(4)))
    both = (None, scores) if where == "chosen" else (scores, None)
    if where == "others":
        example = b.examples[b.graph.inputs.index(condition)]
        example.logical_not_()
    filled = b("where", choice, *both, value=fill)
    graph = b.done(b("matmul", b("softmax", filled, dim=-1), v))
    assert b.check(fuse_attention) == [1]
    node = only(graph, "attention")
    assert node.inputs == (q, k, v, None, condition)
    assert node.attributes["fill"] == fill
    assert node.attributes["fill_where"] == (where == "chosen")
    assert not {"expand_as", "expand"}.intersection(ops(graph))


@pytest.mark.parametrize("fill", [-math.inf, -1.5])
@pytest.mark.parametrize("mask_first", [True, False])
def test_a_mask_is_added_after_the_replacement_or_does_not_matter(
    b: Builder, fill: float, mask_first: bool
) -> None:
    q, k, v = operands(b)
    mask, condition = b.input(random(T, S)), hidden(b, T, S)
    scores = b("matmul", q, b("transpose", k, -1, -2))
    if mask_first:
        scores = b.binary("add", scores, mask)
    scores = b("where", condition, None, scores, value=fill)
    if not mask_first:
        scores = b.binary("add", mask, scores)
    graph = b.done(b("matmul", b("softmax", scores, dim=-1), v))
    found = not mask_first or fill == -math.inf
    assert b.check(fuse_attention) == [found]
    if found:
        assert only(graph, "attention").inputs == (q, k, v, mask, condition)


def test_other_replacements_stay(b: Builder) -> None:
    q, k, v = operands(b)
    transposed = b("transpose", k, -1, -2)
    condition = hidden(b, T, S)

    def product() -> Value:
        return b("matmul", q, transposed)

    twice = b("where", condition, None, product(), value=-1.0)
    filled = [
        b("where", condition, product(), b.input(random(T, S)), value=0.0),
        b("where", condition, None, twice, value=-2.0),
        b.eltwise("affine", b("where", condition, None, product(), value=-1.0), 2.0, 0.0),
    ]
    b.done(*(b("matmul", b("softmax", scores, dim=-1), v) for scores in filled))
    assert b.check(fuse_attention) == [0]


# Conversions


def converted(b: Builder, before: str | None, after: str | None) -> Graph:
    """Attention with conversions before and after its softmax."""
    q, k, v = operands(b)
    scores = b("matmul", q, b("transpose", k, -1, -2))
    if before:
        scores = b("to", scores, dtype=before)
    weights = b("softmax", scores, dim=-1)
    if after:
        weights = b("to", weights, dtype=after)
    return b.done(b("matmul", weights, v))


@pytest.mark.parametrize("after", ["float32", "bfloat16"])
def test_a_softmax_in_float32_is_attentions_own(b: Builder, after: str) -> None:
    graph = converted(b, "float32", after)
    assert fuse_attention(graph) == 1
    assert "to" not in ops(graph)


@pytest.mark.parametrize(("before", "after"), [("float32", None), (None, "float32")])
def test_values_in_float32_need_queries_and_keys_in_float32(
    b: Builder, before: str | None, after: str | None
) -> None:
    graph = converted(b, before, after)
    assert fuse_attention(graph) == 1
    assert ops(graph)[-3:] == ["to", "to", "attention"]


@pytest.mark.parametrize(("before", "after"), [("bfloat16", "bfloat16"), (None, "bfloat16")])
def test_a_softmax_of_rounded_scores_or_of_unknown_ones_stays(
    b: Builder, before: str | None, after: str | None
) -> None:
    assert fuse_attention(converted(b, before, after)) == 0


@pytest.mark.parametrize("shared", ["scores", "scaled", "masked", "weights"])
@pytest.mark.parametrize("escapes", [True, False])
def test_attention_with_a_part_that_others_read_stays(
    b: Builder, shared: str, escapes: bool
) -> None:
    q, k, v = operands(b)
    parts = {"scores": b("matmul", q, b("transpose", k, -1, -2))}
    parts["scaled"] = b.eltwise("affine", parts["scores"], 0.5, 0.0)
    parts["masked"] = b.binary("add", parts["scaled"], b.input(random(T, S)))
    parts["weights"] = b("softmax", parts["masked"], dim=-1)
    result = b("matmul", parts["weights"], v)
    b.done(result, parts[shared] if escapes else b.opaque(torch.exp, parts[shared]))
    assert b.check(fuse_attention) == [0]


def test_operators_that_only_resemble_attention_stay(b: Builder) -> None:
    q, k, v = operands(b)
    transposed = b("transpose", k, -1, -2)
    scores = b("matmul", q, transposed)
    shifted = b.eltwise("affine", scores, 0.5, 1.0)
    results = [
        b("matmul", b("softmax", b("matmul", q, transposed), dim=2), v),
        b("matmul", b("softmax", b("matmul", q, transposed), dim=-1, log=True), v),
        b("matmul", b("softmax", shifted, dim=-1), v),
        b(
            "matmul",
            b("transpose", v, 2, 3),
            b("softmax", b("matmul", k, b("transpose", q, 2, 3)), dim=3),
        ),
        b("matmul", b("softmax", b.binary("mul", b("matmul", q, transposed), scores), dim=-1), v),
    ]
    b.done(*results)
    assert b.check(fuse_attention) == [0]


# fold_attention_scale


def attention(b: Builder, q: Value, k: Value, v: Value, scale: float = 0.5, **more: Any) -> Value:
    attributes = {"scale": scale, "causal": True, "swapped": False, **more}
    return b("attention", q, k, v, None, **attributes)


def test_a_factor_is_found_through_views(b: Builder) -> None:
    x = b.input(random(N, T, H * D))
    q = heads(b, b.eltwise("affine", x, 0.25, 0.0))
    k, v = heads(b, x), heads(b, x)
    graph = b.done(attention(b, q, k, v))
    assert b.check(fold_attention_scale) == [1]
    assert only(graph, "attention").attributes["scale"] == 0.125
    assert "eltwise" not in ops(graph)


def test_views_without_their_factor_replace_no_other_value(b: Builder) -> None:
    x = b.input(random(N, T, H * D))
    scaled = b.eltwise("affine", x, 0.25, 0.0)
    q = heads(b, scaled)
    graph = b.done(attention(b, q, heads(b, x), heads(b, x)))
    views = [node.output for node in graph.nodes if node.op == "view"]
    assert b.check(fold_attention_scale) == [1]
    assert q.source is None
    assert [view.source for view in views] == [None, "view", "view"]


@pytest.mark.parametrize("where", ["before", "between"])
@pytest.mark.parametrize("escapes", [True, False])
def test_a_factor_that_others_see_stays(b: Builder, where: str, escapes: bool) -> None:
    x = b.input(random(N, T, H * D))
    scaled = b.eltwise("affine", x, 0.25, 0.0)
    q = heads(b, scaled)
    seen = scaled if where == "before" else q
    result = attention(b, q, heads(b, x), heads(b, x))
    b.done(result, seen if escapes else b.opaque(torch.exp, seen))
    assert b.check(fold_attention_scale) == [0]


def test_a_scale_that_depends_on_sizes_stays(b: Builder) -> None:
    x = b.input(random(N, T, H * D))
    q = heads(b, b.eltwise("affine", x, 0.25, 0.0))
    b.done(attention(b, q, heads(b, x), heads(b, x), scale=0.0))
    assert b.check(fold_attention_scale) == [0]


def test_a_scale_that_float32_cannot_hold_stays_apart(b: Builder) -> None:
    x = b.input(random(N, T, H * D))
    q = heads(b, b.eltwise("affine", x, 1e-30, 0.0))
    graph = b.done(attention(b, q, heads(b, x), heads(b, x), scale=1e-30))
    assert b.check(fold_attention_scale) == [0]
    assert only(graph, "attention").attributes["scale"] == 1e-30


def test_values_that_are_both_queries_and_keys_keep_their_factor(b: Builder) -> None:
    x = heads(b, b.eltwise("affine", b.input(random(N, T, H * D)), 0.25, 0.0))
    b.done(attention(b, x, x, x))
    assert b.check(fold_attention_scale) == [0]


def test_operators_other_than_a_factor_stay(b: Builder) -> None:
    x = b.input(random(N, T, H * D))
    q = heads(b, b.eltwise("affine", x, 0.25, 1.0))
    b.done(attention(b, q, heads(b, x), heads(b, x)))
    assert b.check(fold_attention_scale) == [0]


# attention_layout


@pytest.mark.parametrize(
    "view", [("transpose", 1, 2), ("transpose", -2, -3), ("permute", 0, 2, 1, 3)]
)
def test_attention_writes_heads_side_by_side(b: Builder, view: tuple[Any, ...]) -> None:
    op, *dims = view
    result = b(op, attention(b, *operands(b)), *dims)
    graph = b.done(b("flatten", result, 2, 3))
    assert b.check(attention_layout) == [1]
    assert only(graph, "attention").attributes["swapped"]
    assert only(graph, "attention").output is result


@pytest.mark.parametrize(
    "view", [("transpose", 0, 1), ("transpose", 2, 3), ("permute", 0, 2, 3, 1)]
)
def test_other_views_of_attention_stay(b: Builder, view: tuple[Any, ...]) -> None:
    op, *dims = view
    b.done(b.eltwise("exp", b(op, attention(b, *operands(b)), *dims)))
    assert b.check(attention_layout) == [0]


def test_attention_is_swapped_once(b: Builder) -> None:
    once = b("transpose", attention(b, *operands(b)), 1, 2)
    graph = b.done(b.eltwise("exp", b("transpose", once, 1, 2)))
    assert b.check(attention_layout, attention_layout) == [1, 0]
    assert ops(graph)[-3:] == ["attention", "transpose", "eltwise"]


def test_attention_that_others_read_keeps_its_layout(b: Builder) -> None:
    result = attention(b, *operands(b))
    b.done(b("flatten", b("transpose", result, 1, 2), 2, 3), result)
    assert b.check(attention_layout) == [0]


def test_a_transposed_result_that_others_read_keeps_its_strides(b: Builder) -> None:
    b.done(b("transpose", attention(b, *operands(b)), 1, 2))
    assert b.check(attention_layout) == [0]


def test_side_by_side_is_contiguous(b: Builder) -> None:
    result = b("contiguous", b("transpose", attention(b, *operands(b)), 1, 2))
    graph = b.done(result)
    assert b.check(attention_layout) == [1]
    assert only(graph, "attention").output is result


@pytest.mark.parametrize("reader", ["layer", "gate"])
def test_weights_that_no_product_reads_stay(b: Builder, reader: str) -> None:
    q, k, _ = operands(b)
    weights = b("softmax", b("matmul", q, b("transpose", k, -2, -1)), dim=-1)
    gate = b.input(random(N, H, T, S))
    b.done(b.linear(weights, S, S) if reader == "layer" else b.binary("mul", weights, gate))
    assert b.check(fuse_attention) == [0]


def test_shifted_scores_that_are_replaced_stay(b: Builder) -> None:
    q, k, v = operands(b)
    scores = b.eltwise("affine", b("matmul", q, b("transpose", k, -2, -1)), 0.5, 3.0)
    chosen = b("where", b.input(torch.rand(T, S) > 0.5), None, scores, value=-1.5)
    b.done(b("matmul", b("softmax", chosen, dim=-1), v))
    assert b.check(fuse_attention) == [0]


@pytest.mark.parametrize("swap", [(1, 3), (1, 2), (0, 1)])
def test_other_swaps_of_an_unknown_rank_are_right(b: Builder, swap: tuple[int, int]) -> None:
    q, k, v = (b.input(random(4, 4, 4, 4)) for _ in range(3))
    b.done(b("matmul", b("softmax", b("matmul", q, b("transpose", k, *swap)), dim=-1), v))
    b.check(fuse_attention)
