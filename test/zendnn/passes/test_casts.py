"""Passes for autocast's conversions, most of which are redundant."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.backends.zendnn.ir.graph import Region
from torch.backends.zendnn.ir.node import Value
from torch.backends.zendnn.ir.text import describe
from torch.backends.zendnn.passes.fuse_binary import fuse_binary
from torch.backends.zendnn.passes.fuse_casts import fuse_casts
from torch.backends.zendnn.passes.fuse_eltwise import fuse_eltwise
from torch.backends.zendnn.passes.narrow_results import narrow_results
from torch.backends.zendnn.passes.promote_operands import promote_operands
from torch.backends.zendnn.passes.remove_casts import remove_casts

from ..support.graphs import Builder, only, ops, posts


@pytest.fixture
def b() -> Builder:
    return Builder()


def to(b: Builder, x: Value, dtype: str) -> Value:
    return b("to", x, dtype=dtype)


def half(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.bfloat16)


def linear(b: Builder, x: Value, features: int, of: int) -> Value:
    return b("linear", x, b.graph.constant(half(features, of)), b.graph.constant(half(features)))


def assert_close(ours: list[Tensor], theirs: list[Tensor]) -> None:
    """Equal except for a rounding to bfloat16 that a fusion skips."""
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)


def test_a_conversion_to_the_dtype_of_the_weights_is_removed_after_views_and_activations(
    b: Builder,
) -> None:
    x = b.input(half(2, 8))
    y = b("view", b.eltwise("relu", linear(b, x, 4, 8)), -1)
    graph = b.done(b.eltwise("tanh", to(b, y, "bfloat16")))
    assert b.check(remove_casts) == [1]
    assert ops(graph) == ["linear", "eltwise", "view", "eltwise"]


def test_a_conversion_to_the_dtype_of_another_value_becomes_one_to_a_known_dtype(
    b: Builder,
) -> None:
    """As in T5: softmax(scores in float32), converted to the scores' dtype."""
    scores = linear(b, b.input(half(2, 8)), 4, 8)
    weights = b("softmax", to(b, scores, "float32"), dim=-1, log=False)
    unknown = b("to_like", weights, b.input(half(2)))
    graph = b.done(b.eltwise("relu", b("to_like", weights, scores)), unknown)
    assert b.check(remove_casts) == [0]
    assert ops(graph) == ["linear", "to", "softmax", "to_like", "to", "eltwise"]
    assert graph.nodes[4].attributes == {"dtype": "bfloat16"}


def test_a_redundant_conversion_is_removed_with_the_other(b: Builder) -> None:
    scores = linear(b, b.input(half(2, 8)), 4, 8)
    weights = b("softmax", scores, dim=-1, log=False)
    graph = b.done(b.eltwise("relu", b("to_like", weights, scores)))
    assert b.check(remove_casts) == [1]
    assert ops(graph) == ["linear", "softmax", "eltwise"]


def test_a_conversion_to_a_dtype_that_is_computed_for_it_alone_stays(b: Builder) -> None:
    """What computes it may raise. A tensor's own dtype is no such one."""
    scores, looked_up = linear(b, b.input(half(2, 8)), 4, 8), linear(b, b.input(half(3, 8)), 5, 8)
    own = b.eltwise("relu", b("to_like", scores, scores))
    graph = b.done(own, b.eltwise("abs", b("to_like", own, looked_up)))
    assert b.check(remove_casts) == [1]
    assert ops(graph) == ["linear", "linear", "eltwise", "to_like", "eltwise"]


def test_a_conversion_of_something_unknown_stays(b: Builder) -> None:
    graph = b.done(b.eltwise("relu", to(b, b.input(half(3)), "float32")))
    assert b.check(remove_casts) == [0]
    assert ops(graph) == ["to", "eltwise"]


def test_a_conversion_that_rounds_stays(b: Builder) -> None:
    x = to(b, b.input(torch.randn(3)), "float32")
    graph = b.done(b.eltwise("relu", to(b, to(b, x, "bfloat16"), "float32")))
    assert b.check(remove_casts) == [0]
    assert ops(graph).count("to") == 3


def test_an_activation_after_a_conversion_is_fused_with_the_layer(b: Builder) -> None:
    x = b.input(half(2, 8))
    y = b.eltwise("gelu", to(b, linear(b, x, 4, 8), "float32"))
    graph = b.done(to(b, y, "bfloat16"))
    before = b.run()
    assert (fuse_casts(graph), fuse_eltwise(graph)) == (1, 1)
    graph.check()
    assert ops(graph) == ["linear", "to"]
    assert posts(graph.nodes[0]) == ["gelu"]
    assert_close(b.run(), before)


def test_a_linear_layer_returns_float32_if_a_conversion_to_it_follows(b: Builder) -> None:
    x, residual = b.input(half(2, 8)), b.input(torch.randn(2, 4))
    graph = b.done(b.binary("add", to(b, linear(b, x, 4, 8), "float32"), residual))
    before = b.run()
    assert fuse_casts(graph) == 1
    graph.check()
    assert only(graph, "linear").attributes == {"dtype": "float32"}
    assert_close(b.run(), before)


def test_a_product_that_others_read_in_bfloat16_is_left_alone(b: Builder) -> None:
    y = linear(b, b.input(half(2, 8)), 4, 8)
    b.done(b.eltwise("relu", to(b, y, "float32")), b.eltwise("relu", y))
    assert b.check(fuse_casts) == [0]


# narrow_results


def test_an_activation_in_float32_is_stored_in_bfloat16(b: Builder) -> None:
    y = b.eltwise("gelu", to(b, linear(b, b.input(half(2, 8)), 4, 8), "float32"))
    graph = b.done(to(b, y, "bfloat16"))
    before = b.run()
    counts = [rule(graph) for rule in (fuse_casts, fuse_eltwise, narrow_results)]
    assert counts == [1, 1, 1]
    graph.check()
    (node,) = graph.nodes
    assert (node.op, posts(node), node.attributes) == ("linear", ["gelu"], {})
    assert graph.outputs[0].dtype == "bfloat16"
    assert_close(b.run(), before)


@pytest.mark.parametrize("reader", ["residual", "result"])
def test_a_result_that_is_needed_in_float32_is_stored_so(b: Builder, reader: str) -> None:
    wide = to(b, linear(b, b.input(half(2, 8)), 4, 8), "float32")
    if reader == "residual":
        wide = b.binary("add", wide, b.input(torch.randn(2, 4)))
    narrow = to(b, wide, "bfloat16")
    graph = b.done(*((narrow,) if reader == "residual" else (narrow, wide)))
    assert (fuse_casts(graph), fuse_binary(graph)) == (1, int(reader == "residual"))
    assert narrow_results(graph) == 0


# promote_operands


def test_a_residual_in_float32_widens_the_layer(b: Builder) -> None:
    x = b.input(torch.randn(2, 4))
    graph = b.done(b.binary("add", linear(b, to(b, x, "bfloat16"), 4, 4), x))
    before = b.run()
    assert (promote_operands(graph), fuse_casts(graph), fuse_binary(graph)) == (1, 1, 1)
    graph.check()
    assert ops(graph) == ["to", "linear"]
    assert graph.nodes[1].attributes == {"dtype": "float32"}
    assert (x.dtype, x.is_assumed) == ("float32", True)
    assert "%1 = input tensor float32\n" in describe(Region.of(graph.nodes))[0]
    assert_close(b.run(), before)


def test_results_after_a_float32_residual_are_known_as_float32(b: Builder) -> None:
    x = b.input(torch.randn(2, 4))
    y = linear(b, to(b, x, "bfloat16"), 4, 4)
    wide = b("cat", b.eltwise("relu", b.binary("mul", x, y)), y, dim=1)
    b.done(wide)
    assert b.check(promote_operands) == [2]
    assert (x.dtype, x.is_assumed) == ("float32", True)


def test_a_constant_is_widened_ahead_of_time(b: Builder) -> None:
    x = b.input(torch.randn(2, 4))
    graph = b.done(b.binary("add", to(b, b("view", x, 2, 4), "float32"), b.graph.constant(half(4))))
    assert b.check(promote_operands) == [1]
    assert ops(graph) == ["view", "to", "binary"]


def test_a_constant_without_dimensions_widens_nothing(b: Builder) -> None:
    x = to(b, b.input(torch.randn(2, 4)), "bfloat16")
    b.done(b.binary("max", x, b.graph.constant(torch.tensor(0.5))))
    assert b.check(promote_operands) == [0]


def test_a_value_that_may_have_no_dimensions_widens_nothing(b: Builder) -> None:
    x, number = b.input(half(2, 4)), b.input(torch.tensor(0.5))
    graph = b.done(b.binary("mul", linear(b, x, 4, 4), number), to(b, number, "bfloat16"))
    assert promote_operands(graph) == 0


def test_an_input_of_a_layer_has_dimensions_and_widens(b: Builder) -> None:
    x = b.input(torch.randn(2, 4))
    read = to(b, b("transpose", b.eltwise("relu", x), 0, 1), "bfloat16")
    other = b.eltwise("tanh", linear(b, read, 3, 2))
    b.done(b("cat", linear(b, to(b, x, "bfloat16"), 3, 4), x, dim=1), other)
    assert b.check(promote_operands) == [1]


def test_a_value_expanded_like_a_tensor_keeps_its_own_dtype(b: Builder) -> None:
    x, like = b.input(torch.randn(4)), b.input(half(2, 4))
    wide = b("unsqueeze", b("expand_as", to(b, x, "float32"), like), 0)
    b.done(b.binary("add", linear(b, to(b, b.input(torch.randn(2, 4)), "bfloat16"), 4, 4), wide))
    assert b.check(promote_operands) == [1]


def test_a_value_compared_with_zero_has_dimensions_if_the_result_has(b: Builder) -> None:
    x = b.input(torch.randn(2, 4))
    chosen = b("slice", b("nonzero", x), 0, 0, 2, 1)
    narrow = linear(b, to(b, b.input(torch.randn(2, 4)), "bfloat16"), 4, 4)
    b.done(b.binary("add", narrow, x), chosen, to(b, x, "bfloat16"))
    assert b.check(promote_operands) == [1]


def test_the_operands_of_a_residual_must_be_as_wide(b: Builder) -> None:
    x, scale = b.input(torch.randn(2, 4)), b.input(torch.randn(2, 4))
    y = b.eltwise("relu", b.binary("mul", x, scale))
    b.done(b.binary("add", linear(b, to(b, y, "bfloat16"), 4, 4), y))
    assert b.check(promote_operands) == [1]
    assert x.is_assumed
    assert scale.is_assumed


def test_a_converted_value_that_widens_nothing_may_have_any_dtype(b: Builder) -> None:
    x = b.input(half(2, 4))
    b.done(linear(b, to(b, x, "bfloat16"), 4, 4))
    assert b.check(promote_operands) == [0]
    assert not x.is_assumed


def test_a_value_of_any_dtype_is_unchanged(b: Builder) -> None:
    x, y = b.input(half(2, 4)), b.input(half(2, 4))
    b.done(b.binary("add", linear(b, x, 4, 4), y))
    assert b.check(promote_operands) == [0]


@pytest.mark.parametrize("first", [True, False])
def test_a_number_beside_a_value_with_dimensions_widens_nothing(b: Builder, first: bool) -> None:
    one, y = to(b, b.input(torch.randn(())), "float32"), linear(b, b.input(half(2, 8)), 4, 8)
    total = b.binary("add", *((one, y) if first else (y, one)))
    b.done(b("layer_norm", total, None, None, None, eps=1e-5, dims=1))
    assert b.check(promote_operands) == [0]
