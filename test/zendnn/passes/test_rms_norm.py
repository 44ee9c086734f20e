"""The pass that recognises RMS norms in elementary operators."""

from __future__ import annotations

import pytest
import torch
from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Value
from torch.backends.zendnn.passes.fold_scalars import fold_scalars
from torch.backends.zendnn.passes.fuse_layer_norm import fuse_layer_norm
from torch.backends.zendnn.passes.recognise_rms_norm import recognise_rms_norm

from ..support.graphs import Builder, only, ops, random


@pytest.fixture
def b() -> Builder:
    return Builder()


def root(b: Builder, x: Value, name: str = "rsqrt", square: str = "pow", dims: int = -1) -> Value:
    """√(mean(x²) + eps), or its reciprocal."""
    squared = b.eltwise("square", x) if square == "pow" else b.binary("mul", x, x)
    mean = b("mean", squared, dims=(dims,), keep=True)
    return b.eltwise(name, b.binary("add", mean, b.number(1e-6)))


@pytest.mark.parametrize("square", ["pow", "mul"])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("order", ["first", "second", "divided"])
def test_rms_norms_are_found(b: Builder, order: str, weighted: bool, square: str) -> None:
    x, weight = b.input(random(2, 3, 8)), b.constant(8)
    if order == "divided":
        scaled = b.binary("div", x, root(b, x, "sqrt", square))
    else:
        factor = root(b, x, square=square)
        scaled = b.binary("mul", *((x, factor) if order == "first" else (factor, x)))
    if weighted:
        scaled = b.binary("mul", *((weight, scaled) if order == "first" else (scaled, weight)))
    graph = b.done(scaled)
    assert b.check(fold_scalars, recognise_rms_norm)[1] == 1
    norm = only(graph, "rms_norm")
    assert ops(graph) == ["rms_norm"]
    assert norm.inputs == (x, weight if weighted else None, None, None)


def test_an_rms_norm_adds_the_residual_that_it_reads(b: Builder) -> None:
    x, y = b.input(random(2, 8)), b.input(random(2, 8))
    total = b.binary("add", x, y)
    graph = b.done(b.binary("mul", total, root(b, total)), total)
    assert b.check(fold_scalars, recognise_rms_norm, fuse_layer_norm)[1:] == [1, 1]
    assert only(graph, "rms_norm").inputs == (x, None, None, y)
    assert len(only(graph, "rms_norm").outputs) == 2


def test_operators_that_only_resemble_an_rms_norm_stay(b: Builder) -> None:
    x, y = b.input(random(2, 8)), b.input(random(2, 8))
    shared = root(b, x)
    mean = b("mean", b.eltwise("square", x), dims=(-1,), keep=True)
    results = [
        b.binary("mul", y, root(b, x)),
        b.binary("div", root(b, x, "sqrt"), x),
        b.binary("mul", x, root(b, x, dims=0)),
        b.binary("mul", x, shared),
        b.binary("mul", x, b.eltwise("rsqrt", b.eltwise("affine", mean, 2.0, 1.0))),
    ]
    b.done(*results, shared)
    assert b.check(fold_scalars, recognise_rms_norm)[1] == 0


def converted(b: Builder, family: str, after: str | None, weight: str | None) -> Graph:
    """The norm as models of two families write it, with the dtypes that follow."""
    x = b.input(random(2, 8))
    wide = b("to", x, dtype="float32")
    scaled = b.binary("mul", wide if family == "llama" else x, root(b, wide))
    if after:
        scaled = b("to", scaled, dtype=after)
    if weight:
        factors = b.graph.constant(random(8).to(getattr(torch, weight)))
        scaled = b.binary("mul", factors, scaled)
    graph = b.done(scaled)
    fold_scalars(graph)
    assert recognise_rms_norm(graph) == 1
    graph.remove_dead()
    graph.check()
    return graph


@pytest.mark.parametrize("family", ["llama", "t5"])
@pytest.mark.parametrize(
    ("after", "weight", "left"),
    [
        ("bfloat16", "bfloat16", ["rms_norm"]),
        ("float16", None, ["to", "rms_norm", "to"]),
        ("bfloat16", None, ["rms_norm"]),
        ("bfloat16", "float32", ["rms_norm", "binary"]),
        (None, "float32", ["to", "rms_norm"]),
        (None, "bfloat16", ["to", "rms_norm", "binary"]),
        (None, None, ["to", "rms_norm"]),
    ],
)
def test_conversions_around_rms_norms(
    b: Builder, family: str, after: str | None, weight: str | None, left: list[str]
) -> None:
    graph = converted(b, family, after, weight)
    assert ops(graph) == left
    dtype = "bfloat16" if after == "bfloat16" else "float32"  # no norm computes in float16
    assert only(graph, "rms_norm").attributes["dtype"] == dtype


@pytest.mark.parametrize("family", ["llama", "t5"])
@pytest.mark.parametrize("known", ["bfloat16", "float16", None])
def test_a_conversion_after_the_weight_is_absorbed(
    b: Builder, family: str, known: str | None
) -> None:
    x, factors = b.input(random(2, 8)), b.graph.constant(random(8).float())
    x.dtype = known
    wide = b("to", x, dtype="float32")
    scaled = b.binary("mul", wide if family == "llama" else x, root(b, wide))
    graph = b.done(b("to", b.binary("mul", scaled, factors), dtype="bfloat16"))
    fold_scalars(graph)
    assert recognise_rms_norm(graph) == 1
    graph.remove_dead()
    graph.check()
    left = ["to", "rms_norm", "to"] if known == "float16" else ["rms_norm"]
    assert ops(graph) == left
    assert only(graph, "rms_norm").inputs[1] is factors


def test_a_division_by_another_root_stays(b: Builder) -> None:
    x, v = b.input(random(2, 8)), b.input(random(2, 1).abs())
    b.done(b.binary("mul", x, b.eltwise("rsqrt", b.eltwise("affine", v, 1.0, 1e-6))))
    assert b.check(recognise_rms_norm) == [0]


def test_an_rms_norm_without_a_weight_before_a_layer_is_found(b: Builder) -> None:
    x = b.input(random(2, 8))
    b.done(b.linear(b.binary("mul", x, root(b, x)), 4, 8))
    assert b.check(fold_scalars, recognise_rms_norm)[1] == 1
