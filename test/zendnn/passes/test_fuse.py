"""Passes that fuse several operators into one primitive."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch.backends.zendnn.ir.node import PostOp, Value
from torch.backends.zendnn.passes._weights import weight_of
from torch.backends.zendnn.passes.fold_arithmetic import fold_arithmetic
from torch.backends.zendnn.passes.fold_scalars import fold_scalars
from torch.backends.zendnn.passes.fuse_binary import fuse_binary
from torch.backends.zendnn.passes.fuse_eltwise import fuse_eltwise
from torch.backends.zendnn.passes.fuse_layer_norm import fuse_layer_norm
from torch.backends.zendnn.passes.merge_linears import merge_linears
from torch.backends.zendnn.passes.recognise_activations import recognise_activations

from ..support.graphs import Builder, only, ops, posts, random


@pytest.fixture
def b() -> Builder:
    return Builder()


# recognise_activations


def silu(b: Builder, x: Value) -> Value:
    return b.binary("mul", x, b.eltwise("sigmoid", x))


def hardsigmoid(b: Builder, x: Value) -> Value:
    return b.binary(
        "div", b.eltwise("clip", b.binary("add", x, b.number(3.0)), 0.0, 6.0), b.number(6.0)
    )


def hardswish(b: Builder, x: Value) -> Value:
    clipped = b.eltwise("clip", b.binary("add", x, b.number(3.0)), 0.0, 6.0)
    return b.binary("div", b.binary("mul", x, clipped), b.number(6.0))


def hardswish_of_hardsigmoid(b: Builder, x: Value) -> Value:
    return b.binary("mul", hardsigmoid(b, x), x)


def gelu(b: Builder, x: Value) -> Value:
    error = b.eltwise("erf", b.binary("div", x, b.number(math.sqrt(2.0))))
    return b.binary("mul", b.binary("mul", b.number(0.5), x), b.binary("add", error, b.number(1.0)))


def gelu_scaled_last(b: Builder, x: Value) -> Value:
    error = b.eltwise("erf", b.binary("mul", x, b.number(0.7071067811865476)))
    return b.binary("mul", b.binary("mul", x, b.binary("add", b.number(1.0), error)), b.number(0.5))


def gelu_tanh(b: Builder, x: Value) -> Value:
    cube = b.binary("mul", b.binary("mul", x, x), x)
    inner = b.binary("add", x, b.binary("mul", b.number(0.044715), cube))
    bent = b.eltwise("tanh", b.binary("mul", inner, b.number(0.79788456)))
    return b.binary("mul", b.binary("mul", b.number(0.5), x), b.binary("add", bent, b.number(1.0)))


def sigmoid(b: Builder, x: Value) -> Value:
    grown = b.eltwise("exp", b.eltwise("affine", x, -1.0, 0.0))
    return b.binary("div", b.number(1.0), b.binary("add", grown, b.number(1.0)))


def mish(b: Builder, x: Value) -> Value:
    soft = b.eltwise("log", b.binary("add", b.eltwise("exp", x), b.number(1.0)))
    return b.binary("mul", x, b.eltwise("tanh", soft))


SPELLINGS: list[tuple[str, Callable[[Builder, Value], Value]]] = [
    ("silu", silu),
    ("hardsigmoid", hardsigmoid),
    ("hardswish", hardswish),
    ("hardswish", hardswish_of_hardsigmoid),
    ("gelu", gelu),
    ("gelu", gelu_scaled_last),
    ("gelu_tanh", gelu_tanh),
    ("sigmoid", sigmoid),
    ("mish", mish),
]


@pytest.mark.parametrize(("name", "spell"), SPELLINGS)
@pytest.mark.parametrize("fold", [True, False])
def test_spelled_out_activations_are_recognised(
    b: Builder, name: str, spell: Callable[[Builder, Value], Value], fold: bool
) -> None:
    x = b.linear(b.input(random(3, 4)), 5, 4)
    graph = b.done(spell(b, x))
    before = b.run()
    if fold:
        fold_scalars(graph)
    recognise_activations(graph)
    graph.check()
    assert ops(graph) == ["linear", "eltwise"]
    assert graph.nodes[1].attributes["algorithm"] == name
    assert graph.nodes[1].inputs == (x,)
    torch.testing.assert_close(b.run(), before, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("factor", [1.702, 0.5, -3.0])
def test_a_scaled_silu_gives_its_factor_to_the_layer_before(b: Builder, factor: float) -> None:
    x = b.linear(b.input(random(3, 4)), 5, 4)
    gate = b.eltwise("sigmoid", b.binary("mul", x, b.number(factor)))
    graph = b.done(b.eltwise("relu", b.binary("mul", x, gate)))
    before = b.run()
    fold_scalars(graph)
    assert recognise_activations(graph) == 1
    assert ops(graph) == ["linear", *["eltwise"] * 4]
    fold_arithmetic(graph)
    fuse_eltwise(graph)
    graph.check()
    assert posts(only(graph, "linear")) == ["silu", "affine", "relu"]
    torch.testing.assert_close(b.run(), before, rtol=1e-6, atol=1e-7)


def test_a_part_that_others_read_keeps_an_activation_spelled_out(b: Builder) -> None:
    x = b.input(random(3, 4))
    gate = b.eltwise("sigmoid", x)
    graph = b.done(b.binary("mul", x, gate), b.opaque(torch.exp, gate))
    assert b.check(recognise_activations) == [0]
    assert ops(graph) == ["eltwise", "binary", "opaque"]


def test_other_functions_and_other_arguments_stay(b: Builder) -> None:
    x, y = b.input(random(3, 4)), b.input(random(3, 4))
    halved = b.binary("mul", b.binary("mul", x, b.number(2.0)), b.number(0.25))
    gated = b.binary("mul", x, b.eltwise("sigmoid", y))
    vector = b.eltwise(
        "clip", b.binary("add", x, b.graph.constant(torch.full((4,), 3.0).double())), 0.0, 6.0
    )
    b.done(halved, gated, b.binary("div", vector, b.number(6.0)))
    assert b.check(recognise_activations) == [0]


GUARDS: dict[str, Callable[[Builder, Value], Value]] = {
    "1e-7 more": lambda b, y: b.binary("add", y, b.number(1e-7)),
    "1e-20 more": lambda b, y: b.eltwise("affine", y, 1.0, 1e-20),
    "1e-6 less": lambda b, y: b.binary("sub", y, b.number(1e-6)),
    "above 1e-8": lambda b, y: b.eltwise("clip", y, 1e-8, math.inf),
    "below 1 - 1e-7": lambda b, y: b.eltwise("clip", y, -math.inf, 1 - 1e-7),
}


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("spell", [sigmoid, hardsigmoid, silu, mish])
def test_a_guard_against_a_limit_is_not_treated_as_rounding(
    b: Builder, spell: Callable[[Builder, Value], Value], guard: str
) -> None:
    x = b.input(random(3, 4))
    graph = b.done(GUARDS[guard](b, spell(b, x)))
    last = graph.nodes[-1]
    recognise_activations(graph)
    assert graph.nodes[-1] is last
    assert last.op == "binary" or last.attributes["algorithm"] in ("affine", "clip")


# fuse_eltwise

POOL = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1)}


def test_activations_become_post_ops(b: Builder) -> None:
    x = b.input(random(2, 3, 4, 4))
    result = b.eltwise("relu", b.convolution(x, b.constant(3, 3, 1, 1)))
    product = b.eltwise("affine", b("matmul", result, b.constant(4, 4)), 0.5, 1.0)
    graph = b.done(b.eltwise("leaky_relu", b.binary("sub", product, x), 0.1))
    assert b.check(fuse_eltwise) == [3]
    assert ops(graph) == ["convolution", "matmul", "binary"]
    assert graph.nodes[1].post_ops == (PostOp("affine", 0.5, 1.0),)
    assert graph.nodes[2].post_ops == (PostOp("leaky_relu", 0.1),)
    assert graph.nodes[0].origin == ("aten::convolution", "aten::eltwise")


def test_an_activation_after_a_batch_norm_becomes_its_post_op(b: Builder) -> None:
    x = b.input(random(2, 3, 4, 4))
    graph = b.done(b.eltwise("relu", b.batch_norm(b("max_pool", x, **POOL), 3)))
    assert b.check(fuse_eltwise) == [1]
    assert ops(graph) == ["max_pool", "batch_norm"]


def test_activations_of_shared_results_stay(b: Builder) -> None:
    result = b.linear(b.input(random(2, 3)), 4, 3)
    product = b("matmul", b.input(random(2, 3)), b.input(random(3, 3)))
    b.done(
        b.eltwise("relu", result), result, b.eltwise("relu", product), b.opaque(torch.exp, product)
    )
    assert b.check(fuse_eltwise) == [0]


def test_a_primitive_takes_four_post_ops(b: Builder) -> None:
    x = b.linear(b.input(random(2, 3)), 4, 3)
    for _ in range(5):
        x = b.eltwise("tanh", x)
    graph = b.done(x)
    assert b.check(fuse_eltwise) == [4]
    assert ops(graph) == ["linear", "eltwise"]


def test_functions_that_plans_lack_do_not_become_post_ops(b: Builder) -> None:
    b.done(b.eltwise("erf", b.linear(b.input(random(2, 3)), 4, 3)))
    assert b.check(fuse_eltwise) == [0]


# fuse_binary


def test_a_residual_and_later_operators_become_post_ops(b: Builder) -> None:
    x = b.input(random(2, 3, 4, 4))
    y = b.convolution(x, b.constant(3, 3, 1, 1), b.constant(3))
    graph = b.done(b.eltwise("relu", b.binary("add", b.eltwise("tanh", y), x)))
    assert b.check(fuse_eltwise, fuse_binary) == [2, 1]
    (node,) = graph.nodes
    assert node.inputs[3] is x
    assert str(graph).endswith("post=tanh:0.0:0.0;add@3;relu:0.0:0.0")
    assert node.origin == ("aten::convolution", "aten::eltwise", "aten::binary", "aten::eltwise")


def test_the_later_of_two_layers_adds(b: Builder) -> None:
    x = b.input(random(2, 3, 4, 4))
    first = b.convolution(x, b.constant(3, 3, 1, 1))
    second = b.convolution(b.eltwise("exp", x), b.constant(3, 3, 1, 1))
    graph = b.done(b.binary("add", second, first))
    assert b.check(fuse_binary) == [1]
    assert ops(graph) == ["convolution", "eltwise", "convolution"]
    assert posts(graph.nodes[2]) == ["add"]


def test_a_layer_waits_for_the_other_operand(b: Builder) -> None:
    x = b.input(random(2, 4))
    result = b.linear(x, 4, 4)
    graph = b.done(b.binary("sub", result, b.opaque(torch.exp, x)))
    assert b.check(fuse_binary) == [1]
    assert ops(graph) == ["opaque", "linear"]


def test_layers_are_preferred_to_products(b: Builder) -> None:
    x = b.input(random(4, 4))
    result = b.linear(x, 4, 4)
    graph = b.done(b.binary("mul", b("matmul", x, x), result))
    assert b.check(fuse_binary) == [1]
    assert ops(graph) == ["matmul", "linear"]
    assert posts(graph.nodes[1]) == ["mul"]


def test_chains_become_post_ops_up_to_four(b: Builder) -> None:
    x = b.input(random(2, 4))
    value = b.linear(x, 4, 4)
    for algorithm in ("add", "mul", "sub", "div", "max"):
        value = b.binary(algorithm, value, x)
    graph = b.done(value)
    assert b.check(fuse_binary) == [4]
    assert ops(graph) == ["linear", "binary"]
    assert [post.operand for post in graph.nodes[0].post_ops] == [3, 4, 5, 6]


def test_a_quotient_is_fused_only_with_the_layer_on_the_left(b: Builder) -> None:
    x = b.input(random(2, 4))
    b.done(b.binary("div", x, b.linear(x, 4, 4)))
    assert b.check(fuse_binary) == [0]


def test_a_layer_on_the_right_of_a_difference_is_negated(b: Builder) -> None:
    x = b.input(random(2, 4, 5, 5))
    result = b.convolution(x, b.constant(4, 4, 1, 1), b.constant(4))
    graph = b.done(b.eltwise("relu", b.binary("sub", x, result)))
    assert b.check(fuse_eltwise, fuse_binary) == [1, 1]
    assert ops(graph) == ["convolution"]
    assert posts(graph.nodes[0]) == ["add", "relu"]


def test_a_layer_that_cannot_add_the_other_operand_keeps_its_sign(b: Builder) -> None:
    x = b.input(random(2, 4))
    graph = b.done(b.binary("sub", x, b.linear(x, 1, 4)))
    weight = only(graph, "linear").inputs[1]
    assert b.check(fold_arithmetic, fuse_binary) == [0, 0]
    assert only(graph, "linear").inputs[1] is weight


def test_shared_results_are_combined_apart(b: Builder) -> None:
    x = b.input(random(2, 4))
    escaping, doubled = b.linear(x, 4, 4), b.linear(x, 4, 4)
    b.done(b.binary("add", escaping, x), escaping, b.binary("add", doubled, doubled))
    assert b.check(fuse_binary) == [0]


def test_a_gate_does_not_multiply_the_image(b: Builder) -> None:
    """Squeeze and excitation: the product has the image's size, not the gate's."""
    x = b.input(random(2, 4, 5, 5))
    image = b.convolution(x, b.constant(4, 4, 1, 1))
    squeezed = b("adaptive_avg_pool", image, sizes=(1, 1))
    gate = b.eltwise("sigmoid", b.convolution(squeezed, b.constant(4, 4, 1, 1)))
    graph = b.done(b.binary("mul", gate, image))
    assert b.check(fuse_eltwise, fuse_binary) == [1, 0]
    assert ops(graph)[-1] == "binary"


def test_an_image_is_multiplied_by_a_gate(b: Builder) -> None:
    x = b.input(random(2, 4, 5, 5))
    gate = b.convolution(b("mean", x, dims=(2, 3), keep=True), b.constant(4, 4, 1, 1))
    image = b.convolution(x, b.constant(4, 4, 1, 1))
    graph = b.done(b.binary("mul", gate, image))
    assert b.check(fuse_binary) == [1]
    assert graph.nodes[-1].inputs[3] is gate


def test_a_single_feature_does_not_multiply_many(b: Builder) -> None:
    x = b.input(random(2, 4))
    graph = b.done(b.binary("mul", b.linear(x, 1, 4), x))
    assert b.check(fuse_binary) == [0]
    assert ops(graph) == ["linear", "binary"]


def test_a_result_of_a_lower_rank_is_not_combined(b: Builder) -> None:
    x = b("view", b.input(random(2, 4)), 2, 4)
    graph = b.done(b.binary("add", b.linear(x, 4, 4), b("view", b.input(random(24)), 3, 2, 4)))
    assert b.check(fuse_binary) == [0]
    assert ops(graph)[-1] == "binary"


@pytest.mark.parametrize(
    ("shape", "fuses"), [((1, 4, 5, 5), 1), ((4, 5, 5), 1), ((1, 1, 4, 5, 5), 0)]
)
def test_constants_are_added_unless_their_rank_is_larger(
    b: Builder, shape: tuple[int, ...], fuses: int
) -> None:
    result = b.convolution(b.input(random(2, 4, 5, 5)), b.constant(4, 4, 1, 1))
    b.done(b.binary("add", result, b.constant(*shape)))
    assert b.check(fuse_binary) == [fuses]


# merge_linears


@pytest.mark.parametrize("bias", [True, False])
def test_layers_of_one_value_become_one(b: Builder, bias: bool) -> None:
    x = b.input(random(2, 3, 8))
    q, k, v = (b.linear(x, features, 8, bias) for features in (64, 64, 128))
    weights = [weight_of(value.producer) for value in (q, k, v) if value.producer]
    graph = b.done(b.eltwise("exp", q), k, b.opaque(torch.exp, v))
    assert b.check(merge_linears) == [1]
    assert ops(graph) == ["cat", "linear", "split", "eltwise", "opaque"]
    joined, wide, split, *_ = graph.nodes
    assert [v.constant for v in joined.values()] == weights
    assert wide.origin == ("aten::linear",) * 3
    assert split.attributes == {"dim": -1, "sizes": (64, 64, 128)}
    assert split.outputs == (q, k, v)


def test_weights_that_are_not_contiguous_are_copied(b: Builder) -> None:
    x = b.input(random(2, 8))
    weights = [b.graph.constant(random(8, 64).t()) for _ in range(2)]
    graph = b.done(*(b("linear", x, weight, None) for weight in weights))
    assert b.check(merge_linears) == [1]
    assert ops(graph) == ["cat", "linear", "split"]
    constants = [v.constant for v in graph.nodes[0].values()]
    assert all(weight is not None and weight.is_contiguous() for weight in constants)


def test_layers_with_the_same_activation_become_one(b: Builder) -> None:
    x = b.input(random(2, 8))
    graph = b.done(*(b.eltwise("relu", b.linear(x, 64, 8)) for _ in range(2)))
    assert b.check(fuse_eltwise, merge_linears) == [2, 1]
    assert posts(only(graph, "linear")) == ["relu"]


def test_layers_that_differ_stay_apart(b: Builder) -> None:
    x, y = b.input(random(2, 8)), b.input(random(2, 8))
    results = [
        b.linear(x, 64, 8),
        b.linear(x, 64, 8, bias=False),
        b.linear(x, 32, 8),
        b.linear(x, 32, 8),
        b.linear(y, 64, 8),
        b.eltwise("relu", b.linear(x, 64, 8)),
        b.binary("add", b.linear(x, 64, 8), b.input(random(2, 64))),
        b.binary("add", b.linear(x, 64, 8), b.input(random(2, 64))),
    ]
    b.done(*results)
    assert b.check(fuse_eltwise, fuse_binary, merge_linears) == [1, 2, 0]


# fuse_layer_norm


def test_a_residual_is_fused_into_a_norm(b: Builder) -> None:
    x, y = b.input(random(2, 3, 4)), b.input(random(2, 3, 4))
    graph = b.done(b.layer_norm(b.binary("add", x, y), 4))
    assert b.check(fuse_layer_norm) == [1]
    assert ops(graph) == ["layer_norm"]
    assert graph.nodes[0].inputs[0] is x
    assert graph.nodes[0].inputs[3] is y
    assert graph.nodes[0].origin == ("aten::binary", "aten::layer_norm")


@pytest.mark.parametrize("escapes", [True, False])
def test_a_norm_returns_a_sum_that_others_read(b: Builder, escapes: bool) -> None:
    x, y = b.input(random(2, 3, 4)), b.input(random(2, 3, 4))
    total = b.binary("add", x, y)
    early = b.opaque(torch.exp, total) if escapes else b.eltwise("exp", total)
    norm = b.layer_norm(total, 4)
    graph = b.done(early, norm, *([total] if escapes else []))
    assert b.check(fuse_layer_norm) == [1]
    assert ops(graph)[0] == "layer_norm"
    assert graph.nodes[0].outputs == (norm, total)


def test_a_sum_with_two_norms_is_computed_by_one_of_them(b: Builder) -> None:
    x, y = b.input(random(2, 3, 4)), b.input(random(2, 3, 4))
    total = b.binary("add", x, y)
    b.done(b.layer_norm(total, 4), b.layer_norm(total, 4))
    assert b.check(fuse_layer_norm) == [1]


def test_sums_that_may_broadcast_stay(b: Builder) -> None:
    """Position embeddings have a batch of one."""
    x = b.input(random(2, 3, 4))
    ids = b.graph.constant(torch.arange(3)[None])
    positions = b("embedding", b.constant(5, 4), ids)
    sums = [b.binary("add", x, positions), b.binary("add", x, b.constant(3, 4))]
    sums.append(b.binary("mul", x, x))
    b.done(*(b.layer_norm(total, 4) for total in sums))
    assert b.check(fuse_layer_norm) == [0]


def test_a_layer_adds_before_a_norm_would(b: Builder) -> None:
    x = b.input(random(2, 3, 4))
    graph = b.done(b.layer_norm(b.binary("add", b.linear(x, 4, 4), x), 4))
    assert b.check(fuse_binary, fuse_layer_norm) == [1, 0]
    assert ops(graph) == ["linear", "layer_norm"]
