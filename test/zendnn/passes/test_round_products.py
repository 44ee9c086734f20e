"""Linear layers of float32 that multiply in bfloat16."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.backends.zendnn.ir.node import Value
from torch.backends.zendnn.passes.fuse_binary import fuse_binary
from torch.backends.zendnn.passes.fuse_eltwise import fuse_eltwise
from torch.backends.zendnn.passes.merge_linears import merge_linears
from torch.backends.zendnn.passes.partition import partition
from torch.backends.zendnn.passes.round_products import round_products

from ..support.graphs import Builder, only, ops, posts


@pytest.fixture
def b() -> Builder:
    return Builder()


def given(b: Builder, *shape: int, dtype: str | None = "float32") -> Value:
    x = b.input(torch.randn(shape))
    x.dtype = dtype
    return x


def layer(features: int, of: int) -> tuple[Tensor, Tensor]:
    return torch.randn(features, of), torch.randn(features)


def linear(b: Builder, x: Value, weights: tuple[Tensor, Tensor]) -> Value:
    return b("linear", x, *map(b.graph.constant, weights))


def in_bfloat16(x: Tensor, weights: tuple[Tensor, Tensor]) -> Tensor:
    """The layer of rounded factors, with sums and the bias in float32."""
    weight, bias = weights
    return F.linear(x.bfloat16().float(), weight.bfloat16().float(), bias)


def test_factors_are_rounded_and_results_and_biases_are_not(b: Builder) -> None:
    weights = layer(4, 8)
    graph = b.done(linear(b, given(b, 5, 8), weights))
    assert round_products(graph) == 1
    graph.check()
    assert ops(graph) == ["to", "linear"]
    assert only(graph, "linear").output.dtype == "float32"
    torch.testing.assert_close(b.run(), [in_bfloat16(b.examples[0], weights)])


def test_merged_layers_round_what_they_read_once(b: Builder) -> None:
    x, many = given(b, 5, 8), [layer(64, 8) for _ in range(3)]
    graph = b.done(*(linear(b, x, weights) for weights in many))
    assert (merge_linears(graph), round_products(graph)) == (1, 1)
    graph.remove_dead()
    graph.check()
    assert ops(graph) == ["cat", "to", "linear", "split"]
    expected = [in_bfloat16(b.examples[0], weights) for weights in many]
    torch.testing.assert_close(b.run(), expected)


def test_a_layer_that_only_such_a_layer_reads_rounds_its_result_itself(b: Builder) -> None:
    first, second = layer(16, 8), layer(4, 16)
    hidden = b.eltwise("relu", linear(b, given(b, 5, 8), first))
    graph = b.done(linear(b, hidden, second))
    fuse_eltwise(graph)
    assert round_products(graph) == 2
    graph.check()
    assert ops(graph) == ["to", "linear", "linear"]
    assert posts(graph.nodes[1]) == ["relu"]
    assert graph.nodes[1].output.dtype == "bfloat16"
    (result,) = b.run()
    expected = in_bfloat16(in_bfloat16(b.examples[0], first).relu(), second)
    torch.testing.assert_close(result, expected, rtol=1e-2, atol=5e-2)


def test_rounded_values_stay_in_their_region(b: Builder) -> None:
    """The model has no such values, and cannot hand them over."""
    x, first, second = given(b, 5, 64), layer(64, 64), layer(64, 64)
    hidden = b.eltwise("relu", linear(b, x, first))
    foreign = b.opaque(torch.cumsum, hidden, 0)
    foreign.dtype = "float32"
    late = b.binary("add", linear(b, hidden, second), foreign)
    graph = b.done(b.binary("add", linear(b, x, second), linear(b, late, second)))
    assert round_products(graph) == 4
    graph.check()
    regions = partition(graph)
    assert len(regions) == 2
    crossing = [value for region in regions for value in (*region.inputs, *region.outputs)]
    assert all(value.source is not None for value in crossing)


def test_a_layer_that_adds_a_residual_of_float32_keeps_its_result(b: Builder) -> None:
    x, first, second = given(b, 5, 8), layer(8, 8), layer(4, 8)
    graph = b.done(linear(b, b.binary("add", linear(b, x, first), x), second))
    fuse_binary(graph)
    assert round_products(graph) == 2
    graph.check()
    assert ops(graph) == ["to", "linear", "to", "linear"]
    total = in_bfloat16(b.examples[0], first) + b.examples[0]
    torch.testing.assert_close(b.run(), [in_bfloat16(total, second)])


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_a_layer_whose_input_is_not_surely_float32_stays(b: Builder, dtype: str | None) -> None:
    b.done(linear(b, given(b, 5, 8, dtype=dtype), layer(4, 8)))
    assert b.check(round_products) == [0]


def test_a_layer_whose_bias_has_another_dtype_stays_for_torch_to_refuse(b: Builder) -> None:
    weight, bias = layer(4, 8)
    b.done(linear(b, given(b, 5, 8), (weight, bias.bfloat16())))
    assert round_products(b.graph) == 0
