"""Passes that do work ahead of time instead of at every call."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.passes.fold_arithmetic import fold_arithmetic
from torch.backends.zendnn.passes.fold_batch_norm import fold_batch_norm
from torch.backends.zendnn.passes.fold_constants import fold_constants
from torch.backends.zendnn.passes.fold_pad import fold_pad
from torch.backends.zendnn.passes.fold_scalars import fold_scalars
from torch.backends.zendnn.passes.remove_identities import remove_identities

from ..support.graphs import Builder, only, ops, random


@pytest.fixture
def b() -> Builder:
    return Builder()


# fold_constants


def test_constants_are_evaluated(b: Builder) -> None:
    x = b.input(random(2, 3, 4))
    table = b("transpose", b("expand", b.constant(1, 3), 4, -1), 0, 1)
    scaled = b.eltwise("affine", b.eltwise("sigmoid", table), 2.0, 1.0)
    first, _ = b.node("split", b.constant(6, 4), results=2, dim=0, sizes=(3, 3)).outputs
    graph = b.done(b.binary("add", x, b.binary("mul", scaled, first)))
    assert b.check(fold_constants) == [6]
    assert ops(graph) == ["binary"]


@pytest.mark.parametrize(
    "attributes", [{}, {"add": True}, {"add": True, "rows": True}], ids=["put", "add", "add rows"]
)
def test_constants_that_are_put_or_added_are_evaluated_as_such(
    b: Builder, attributes: dict[str, bool]
) -> None:
    """The row stands for several operators of torch's."""
    places = b("expand", b.graph.constant(torch.tensor([[2], [0]])), 2, 3)
    put = b("scatter", b.constant(4, 3), places, b.constant(2, 3), dim=0, **attributes)
    b.done(b.binary("add", b.input(random(4, 3)), put))
    assert b.check(fold_constants) == [1 if "rows" in attributes else 2]


def test_constants_that_are_repeated_for_products_stay_as_they_are(b: Builder) -> None:
    """The product reads one matrix, where copies of it would take memory and time."""
    x = b.input(random(4, 2, 3))
    graph = b.done(b("matmul", x, b("expand", b.constant(3, 5), 4, -1, -1)))
    assert b.check(fold_constants) == [0]
    assert ops(graph) == ["expand", "matmul"]


def test_sizes_of_constants_and_integer_arithmetic_are_evaluated(b: Builder) -> None:
    x = b.input(random(2, 12))
    rows = b("number_floordiv", b("numel", b.constant(4, 6)), 8)
    product = b("number_mul", rows, b("number_sub", b("number_add", 1, 2), 1))
    columns = b("number_floordiv", product, b("size", b.constant(3, 1), 0))
    graph = b.done(b("view", x, 2, b("number_add", columns, 4), -1))
    assert b.check(fold_constants) == [8]
    assert graph.nodes[0].inputs[1:] == (2, 6, -1)


def test_sizes_and_their_powers_are_evaluated(b: Builder) -> None:
    x = b("view", b.input(random(2, 3, 8)), b.input(2), -1, 2, 4)
    heads = b("transpose", x, 1, 2)
    scale = b("power", b("size", heads, -1), exponent=-0.5)
    sizes = [b("size", heads, dim) for dim in range(4)]
    graph = b.done(b("view", b.binary("mul", heads, scale), *sizes))
    assert b.check(fold_constants) == [4]
    assert ops(graph) == ["view", "transpose", "size", "size", "binary", "view"]
    assert graph.nodes[-1].inputs[2] == 2
    assert graph.nodes[-1].inputs[4] == 4


def test_a_number_in_a_tensor_does_not_promote_another_tensor(b: Builder) -> None:
    x, eight = b.input(random(2, 8)), b.graph.constant(torch.tensor(8.0))
    scaled = b.binary("mul", x, b("to_like", eight, x))
    graph = b.done(scaled, b.eltwise("sqrt", b("to_like", eight, scaled)))
    assert b.check(remove_identities) == [1]
    assert ops(graph) == ["binary", "to_like", "eltwise"]


def test_constants_that_others_read_stay_results(b: Builder) -> None:
    seen = b("transpose", b.constant(2, 3), 0, 1)
    returned = b.eltwise("exp", b("view", b.constant(6), 2, 3))
    graph = b.done(b.opaque(torch.neg, seen), returned)
    assert b.check(fold_constants) == [1]
    assert ops(graph) == ["transpose", "eltwise", "opaque"]


def test_large_constants_and_errors_are_not_folded(b: Builder) -> None:
    large = b("expand", b.constant(1), 1 << 25)
    wrong = b("number_floordiv", 1, 0)
    graph = b.done(b.opaque(lambda x: x, b("slice", large, 0, 0, 1, 1)))
    graph.add("opaque", [b.number(0.0)], source=lambda *x: (None,))
    assert fold_constants(graph) == 0
    assert "number_floordiv" in ops(graph)
    assert wrong.producer is not None


def test_an_opaque_node_without_results_is_not_folded(b: Builder) -> None:
    graph = b.done(b.input(random(2)))
    graph.add("opaque", [], outputs=[], ordered=True)
    assert fold_constants(graph) == 0


# remove_identities

IDENTITIES: dict[str, Any] = {
    "expand": lambda b, x: b("expand", x, -1, -1, -1, -1),
    "slice": lambda b, x: b("slice", x, 0, 0, None, 1),
    "slice without bounds": lambda b, x: b("slice", x, 1, None, None, 1),
    "product with one": lambda b, x: b.eltwise("affine", x, 1.0, -0.0),
    "pad": lambda b, x: b("pad", x, 0, 0, 0, 0, value=1.0),
    "transpose twice": lambda b, x: b("transpose", b("transpose", x, 1, 3), 3, 1),
    "permute": lambda b, x: b("permute", x, 0, 1, 2, 3),
    "permute twice": lambda b, x: b("permute", b("permute", x, 0, 2, 3, 1), 0, 3, 1, 2),
    "cat": lambda b, x: b("cat", x, dim=1),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_identities_are_removed(b: Builder, name: str) -> None:
    x = b.input(random(2, 3, 4, 5))
    graph = b.done(b.eltwise("exp", IDENTITIES[name](b, x)))
    b.check(remove_identities, remove_identities)
    assert ops(graph) == ["eltwise"]


def test_contiguous_is_removed_where_strides_do_not_matter(b: Builder) -> None:
    x = b("permute", b.input(random(2, 3, 4, 5)), 0, 2, 1, 3)
    graph = b.done(b("softmax", b("contiguous", x), dim=1, log=False))
    b.check(remove_identities)
    assert ops(graph) == ["permute", "softmax"]


@pytest.mark.parametrize("name", IDENTITIES)
def test_an_identity_that_is_a_result_stays(b: Builder, name: str) -> None:
    x = b.input(random(2, 3, 4, 5))
    value = IDENTITIES[name](b, x)
    graph = b.done(value, b.opaque(torch.exp, value))
    b.check(remove_identities)
    assert value.producer in graph.nodes


def test_the_producer_of_a_returned_identity_makes_the_result(b: Builder) -> None:
    value = b.eltwise("affine", b.eltwise("exp", b.input(random(3))), 1.0, -0.0)
    graph = b.done(value)
    assert b.check(remove_identities) == [1]
    assert str(graph) == f"{value.name} = eltwise(%1) algorithm=exp alpha=0.0 beta=0.0"
    assert graph.nodes[0].origin == ("aten::eltwise", "aten::eltwise")


CHANGES: dict[str, Any] = {
    "expand": lambda b, x: b("expand", x, 2, -1, -1, -1, -1),
    "slice of a part": lambda b, x: b("slice", x, 1, 0, 2, 1),
    "slice with a step": lambda b, x: b("slice", x, 1, 0, None, 2),
    "sum with a half": lambda b, x: b.eltwise("affine", x, 1.0, 0.5),
    "sum with 0, which makes 0.0 of -0.0": lambda b, x: b.eltwise("affine", x, 1.0, 0.0),
    "pad": lambda b, x: b("pad", x, 0, 1, value=0.0),
    "transposes": lambda b, x: b("transpose", b("transpose", x, 1, 3), 2, 1),
    "contiguous before a view": lambda b, x: b(
        "view", b("contiguous", b("permute", x, 0, 2, 1, 3)), -1
    ),
    "contiguous before what follows its strides": lambda b, x: b("contiguous", x),
}


@pytest.mark.parametrize("name", CHANGES)
def test_operators_that_are_no_identities_stay(b: Builder, name: str) -> None:
    x = b.input(random(2, 3, 4, 5))
    graph = b.done(b.eltwise("exp", CHANGES[name](b, x)))
    before = ops(graph)
    assert b.check(remove_identities) == [0]
    assert ops(graph) == before


def test_number_arithmetic_with_neutral_elements_is_removed(b: Builder) -> None:
    x, n = b.input(random(2, 6)), b.input(3)
    n = b("number_mul", 1, b("number_add", n, 0))
    n = b("number_floordiv", b("number_sub", n, 0), 1)
    graph = b.done(
        b("view", x, -1, n), b("view", x, -1, b("number_sub", 0, b("number_mul", n, -2)))
    )
    assert b.check(remove_identities) == [4]
    assert ops(graph) == ["view", "number_mul", "number_sub", "view"]


def test_a_view_of_a_view_reads_the_original(b: Builder) -> None:
    x = b.input(random(2, 3, 4))
    inner = b("view", x, 6, -1)
    graph = b.done(
        b.eltwise("exp", b("view", inner, b("size", inner, 1), 6)), b.opaque(torch.exp, inner)
    )
    assert b.check(remove_identities) == [1]
    assert ops(graph) == ["view", "size", "view", "eltwise", "opaque"]
    assert graph.nodes[2].inputs[0] is x


def test_two_inverse_views_stay_if_others_read_the_first(b: Builder) -> None:
    result = b.convolution(b.input(random(1, 3, 4, 5)), b.constant(4, 3, 1, 1))
    inner = b("transpose", result, 2, 3)
    graph = b.done(b("transpose", inner, 2, 3), b.eltwise("relu", inner))
    assert b.check(remove_identities) == [0]
    assert ops(graph) == ["convolution", "transpose", "transpose", "eltwise"]


@pytest.mark.parametrize("reader", ["view", "mask", "result"])
def test_a_product_with_one_stays_where_booleans_and_numbers_differ(
    b: Builder, reader: str
) -> None:
    mask = b.eltwise("affine", b.input(random(5, 5)), 1.0, -0.0)
    q = b.input(random(2, 5, 4))
    readers = {
        "view": lambda: b("unsqueeze", mask, 0),
        "mask": lambda: b("attention", q, q, q, mask, scale=0.5, causal=False),
        "result": lambda: mask,
    }
    b.done(readers[reader]())
    assert b.check(remove_identities) == [0]


def test_a_product_with_one_is_removed_between_a_layer_and_a_view(b: Builder) -> None:
    result = b("transpose", b.linear(b.input(random(2, 4)), 4, 4), 0, 1)
    graph = b.done(b("unsqueeze", b.eltwise("affine", result, 1.0, -0.0), 0))
    assert b.check(remove_identities) == [1]
    assert ops(graph) == ["linear", "transpose", "unsqueeze"]


def test_a_number_keeps_its_dtype_where_that_may_truncate_it(b: Builder) -> None:
    x, n = b.input(random(2, 4)), b.input(torch.tensor([1, 2]))
    b.done(b.binary("mul", x, b("to_like", b.number(2.5), n)))
    assert b.check(remove_identities) == [0]


def test_a_tensor_keeps_the_conversion_that_decides_a_dtype(b: Builder) -> None:
    narrow, wide = b.input(random(2, 4).bfloat16()), b.input(random())
    b.done(b.binary("mul", b("to_like", narrow, wide), wide))
    assert b.check(remove_identities) == [0]


def test_a_repeated_conversion_is_removed(b: Builder) -> None:
    once = b("to", b.input(random(2)), dtype="bfloat16")
    graph = b.done(b.eltwise("exp", b("to", b("to", once, dtype="bfloat16"), dtype="float32")))
    assert b.check(remove_identities) == [1]
    assert ops(graph) == ["to", "to", "eltwise"]


# fold_scalars


@pytest.mark.parametrize(
    ("algorithm", "left", "alpha", "beta"),
    [
        ("add", False, 1.0, 4.0),
        ("sub", False, 1.0, -4.0),
        ("mul", False, 4.0, -0.0),
        ("div", False, 0.25, -0.0),
        ("add", True, 1.0, 4.0),
        ("sub", True, -1.0, 4.0),
        ("mul", True, 4.0, -0.0),
    ],
)
def test_arithmetic_with_a_number_is_linear(
    b: Builder, algorithm: str, left: bool, alpha: float, beta: float
) -> None:
    x = b.input(random(2, 3))
    operands = (b.number(4.0), x) if left else (x, b.number(4.0))
    graph = b.done(b.binary(algorithm, *operands))
    assert b.check(fold_scalars) == [1]
    assert graph.nodes[0].attributes == {"algorithm": "affine", "alpha": alpha, "beta": beta}
    assert math.copysign(1, graph.nodes[0].get("beta")) == math.copysign(1, beta)


def test_other_arithmetic_stays_binary(b: Builder) -> None:
    x = b.input(random(2, 3).abs() + 1)
    results = [
        b.binary("div", b.number(2.0), x),
        b.binary("max", x, b.number(0.0)),
        b.binary("div", x, b.number(0.0)),
        b.binary("add", x, b.number(-math.inf)),
        b.binary("mul", x, b.constant(1)),  # would add a dimension to a number
        b.binary("add", x, x),
    ]
    graph = b.done(*results)
    assert b.check(fold_scalars) == [0]
    assert ops(graph) == ["binary"] * len(results)


def test_linear_functions_in_a_row_become_one(b: Builder) -> None:
    x = b.input(random(2, 3))
    value = b.binary(
        "sub", b.binary("mul", b.eltwise("affine", x, 2.0, 1.0), b.number(3.0)), b.number(5.0)
    )
    graph = b.done(value)
    b.check(fold_scalars)
    assert str(graph) == f"{value.name} = eltwise(%1) algorithm=affine alpha=6.0 beta=-2.0"


def test_a_difference_is_not_distributed_over_a_product(b: Builder) -> None:
    """(x - 1000) * 1e6 is exact near 1000; 1e6 x - 1e9 is not."""
    x = b.input(random(2, 3))
    graph = b.done(b.eltwise("affine", b.eltwise("affine", x, 1.0, -1000.0), 1e6, 0.0))
    assert b.check(fold_scalars) == [0]
    assert len(graph.nodes) == 2


@pytest.mark.parametrize("factor", [3.0, -3.0])
def test_products_in_a_row_keep_the_sign_of_zero(b: Builder, factor: float) -> None:
    value = b.binary("mul", b.binary("mul", b.input(random(2, 3)), b.number(2.0)), b.number(factor))
    graph = b.done(value)
    b.check(fold_scalars)
    assert str(graph).endswith(f"algorithm=affine alpha={2 * factor} beta=-0.0")


def test_a_sum_with_zero_makes_zero_of_negative_zero_and_stays(b: Builder) -> None:
    x = b.input(random(2, 3))
    graph = b.done(b.eltwise("affine", b.eltwise("affine", x, 1.0, 0.0), -2.0, -0.0))
    assert b.check(fold_scalars) == [0]
    assert len(graph.nodes) == 2


def test_a_linear_function_that_others_read_stays(b: Builder) -> None:
    once = b.eltwise("affine", b.input(random(3)), 2.0, 0.0)
    b.done(b.eltwise("affine", once, 2.0, 0.0), once)
    assert b.check(fold_scalars) == [0]


# fold_pad


def test_padding_is_folded_into_a_convolution(b: Builder) -> None:
    x = b.input(random(1, 3, 5, 6))
    padded = b("pad", x, 1, 2, 0, 3, value=0.0)
    graph = b.done(b.convolution(padded, b.constant(4, 3, 3, 2), padding=(1, 0)))
    assert b.check(fold_pad) == [1]
    (node,) = graph.nodes
    assert node.attributes["padding"] == (1, 1)
    assert node.attributes["padding_end"] == (4, 2)
    assert node.origin == ("aten::pad", "aten::convolution")


def test_equal_padding_has_no_separate_end(b: Builder) -> None:
    padded = b("pad", b.input(random(1, 3, 5, 6)), 1, 1, 2, 2, 0, 0, value=0.0)
    graph = b.done(b.convolution(padded, b.constant(4, 3, 3, 2)))
    assert b.check(fold_pad) == [1]
    assert graph.nodes[0].attributes["padding"] == (2, 1)
    assert "padding_end" not in graph.nodes[0].attributes


@pytest.mark.parametrize(
    ("pads", "value", "more"),
    [
        ((1, 1), 0.5, {}),
        ((1, -1), 0.0, {}),
        ((0, 0, 0, 0, 1, 1), 0.0, {}),
        ((1, 1), 0.0, {"transposed": True, "output_padding": (0, 0)}),
    ],
)
def test_other_padding_before_a_convolution_stays(
    b: Builder, pads: tuple[int, ...], value: float, more: dict[str, Any]
) -> None:
    padded = b("pad", b.input(random(1, 2, 5, 6)), *pads, value=value)
    channels = 4 if len(pads) == 6 else 2
    b.done(b.convolution(padded, b.constant(channels, channels, 3, 2), **more))
    assert b.check(fold_pad) == [0]


def test_padding_before_a_conversion_is_folded(b: Builder) -> None:
    """As autocast leaves it."""
    padded = b("pad", b.input(random(1, 3, 5, 6)), 0, 1, 0, 1, value=0.0)
    narrow = b("to", padded, dtype="bfloat16")
    graph = b.done(b.convolution(narrow, b.constant(4, 3, 3, 2)))
    assert fold_pad(graph) == 1
    graph.remove_dead()
    assert ops(graph) == ["to", "convolution"]
    assert graph.nodes[1].attributes["padding_end"] == (1, 1)


def test_padding_before_a_conversion_that_others_read_stays(b: Builder) -> None:
    padded = b("pad", b.input(random(1, 3, 5, 6)), 1, 1, value=0.0)
    narrow = b("to", padded, dtype="bfloat16")
    graph = b.done(b.convolution(narrow, b.constant(4, 3, 3, 2)), narrow)
    assert fold_pad(graph) == 0


def test_padding_that_others_read_stays(b: Builder) -> None:
    padded = b("pad", b.input(random(1, 3, 5, 6)), 1, 1, value=0.0)
    b.done(b.convolution(padded, b.constant(4, 3, 3, 2)), padded)
    assert b.check(fold_pad) == [0]


def test_padding_is_folded_into_several_convolutions(b: Builder) -> None:
    padded = b("pad", b.input(random(1, 3, 5, 6)), 1, 1, value=0.0)
    graph = b.done(*(b.convolution(padded, b.constant(4, 3, 3, 2)) for _ in range(2)))
    assert b.check(fold_pad) == [2]
    assert ops(graph) == ["convolution", "convolution"]


# fold_batch_norm


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("shape", "more"),
    [
        ((6, 4, 3, 3), {}),
        ((6, 2, 3, 3), {"groups": 2}),
        ((4, 6, 3, 3), {"transposed": True, "output_padding": (0, 0)}),
        (
            (4, 3, 3, 3),
            {"transposed": True, "output_padding": (1, 0), "groups": 2, "stride": (2, 2)},
        ),
    ],
)
def test_a_norm_is_folded_into_a_convolution(
    b: Builder, shape: tuple[int, ...], more: dict[str, Any], bias: bool
) -> None:
    x = b.input(random(2, 4, 7, 7))
    result = b.convolution(x, b.constant(*shape), b.constant(6) if bias else None, **more)
    graph = b.done(b.batch_norm(result, 6))
    assert b.check(fold_batch_norm) == [1]
    assert ops(graph) == ["convolution"]
    assert graph.nodes[0].origin == ("aten::convolution", "aten::batch_norm")


def test_folded_weights_keep_their_dtype(b: Builder) -> None:
    weight = b.graph.constant(random(4, 3, 1, 1).bfloat16())
    graph = b.done(b.batch_norm(b.convolution(b.input(random(1, 3, 2, 2)), weight), 4))
    fold_batch_norm(graph)
    _, weight, bias = graph.nodes[0].values()
    assert weight.constant is not None
    assert bias.constant is not None
    assert weight.constant.dtype == bias.constant.dtype == torch.bfloat16


def test_a_norm_is_folded_into_a_linear_layer_of_a_matrix(b: Builder) -> None:
    x = b("flatten", b.input(random(2, 3, 2)), 1, -1)
    graph = b.done(b.batch_norm(b.linear(x, 5, 6), 5))
    assert b.check(fold_batch_norm) == [1]
    assert ops(graph) == ["flatten", "linear"]


def test_a_norm_of_another_dimension_stays(b: Builder) -> None:
    """The features are the last dimension, the norm's channels the second: both are 5 long."""
    graph = b.done(b.batch_norm(b.linear(b.input(random(2, 5, 3)), 5, 3), 5))
    assert b.check(fold_batch_norm) == [0]
    assert ops(graph) == ["linear", "batch_norm"]


def test_a_norm_of_a_result_that_others_read_stays(b: Builder) -> None:
    result = b.convolution(b.input(random(1, 3, 2, 2)), b.constant(4, 3, 1, 1))
    b.done(b.batch_norm(result, 4), result)
    assert b.check(fold_batch_norm) == [0]


def test_a_norm_with_variable_statistics_stays(b: Builder) -> None:
    result = b.convolution(b.input(random(1, 3, 2, 2)), b.constant(4, 3, 1, 1))
    mean, variance = b.input(random(4)), b.input(random(4).abs())
    b.done(b("batch_norm", result, None, None, mean, variance, eps=1e-5))
    assert b.check(fold_batch_norm) == [0]


def test_a_norm_that_would_make_weights_infinite_stays(b: Builder) -> None:
    result = b.convolution(b.input(random(1, 3, 2, 2)), b.constant(4, 3, 1, 1))
    zero = b.graph.constant(torch.zeros(4, dtype=torch.float64))
    graph = b.done(b("batch_norm", result, None, None, zero, zero, eps=0.0))
    assert fold_batch_norm(graph) == 0


# fold_arithmetic


@pytest.mark.parametrize("algorithm", ["add", "sub", "mul", "div"])
@pytest.mark.parametrize("shape", [(6, 1, 1), (1, 6, 1, 1), (1,), (), (1, 1, 1, 1)])
@pytest.mark.parametrize("transposed", [False, True])
def test_arithmetic_of_channels_is_folded_into_a_convolution(
    b: Builder, algorithm: str, shape: tuple[int, ...], transposed: bool
) -> None:
    x = b.input(random(2, 4, 5, 5))
    weight = b.constant(*((4, 6) if transposed else (6, 4)), 3, 3)
    more = {"transposed": True, "output_padding": (0, 0)} if transposed else {}
    result = b.convolution(x, weight, b.constant(6), **more)
    graph = b.done(b.binary(algorithm, result, b.constant(*shape)))
    assert b.check(fold_arithmetic) == [1]
    assert ops(graph) == ["convolution"]


@pytest.mark.parametrize(("algorithm", "folds"), [("add", 1), ("sub", 1), ("mul", 1), ("div", 0)])
def test_the_constant_may_stand_on_the_left(b: Builder, algorithm: str, folds: int) -> None:
    result = b.linear(b.input(random(2, 4)), 6, 4)
    b.done(b.binary(algorithm, b.constant(6), result))
    assert b.check(fold_arithmetic) == [folds]


def test_a_linear_function_is_folded(b: Builder) -> None:
    result = b.linear(b.input(random(2, 4)), 6, 4, bias=False)
    graph = b.done(b.eltwise("affine", b.eltwise("affine", result, 0.5, 0.0), 1.0, 3.0))
    assert b.check(fold_arithmetic) == [2]
    assert ops(graph) == ["linear"]


@pytest.mark.parametrize(
    "shape", [(5,), (1, 5), (6, 5, 1), (2, 6, 1, 1), (1, 1, 6, 1, 1), (3, 1, 6, 1, 1)]
)
def test_constants_of_other_shapes_stay(b: Builder, shape: tuple[int, ...]) -> None:
    result = b.convolution(b.input(random(2, 4, 5, 5)), b.constant(6, 4, 1, 1))
    graph = b.done(b.binary("add", result, b.constant(*shape)))
    assert b.check(fold_arithmetic) == [0]
    assert ops(graph) == ["convolution", "binary"]


@pytest.mark.parametrize(("features", "shape"), [(6, (2, 6)), (6, (1, 6)), (1, (6,)), (6, (6, 1))])
def test_constants_of_other_shapes_stay_after_a_linear_layer(
    b: Builder, features: int, shape: tuple[int, ...]
) -> None:
    result = b.linear(
        b.input(random(6, 4)) if shape[0] == 6 else b.input(random(2, 4)), features, 4
    )
    b.done(b.binary("mul", result, b.constant(*shape)))
    assert b.check(fold_arithmetic) == [0]


def test_a_constant_that_changes_the_dtype_stays(b: Builder) -> None:
    weight = b.graph.constant(torch.randn(6, 4))
    result = b("linear", b.input(torch.randn(2, 4)), weight, None)
    b.done(b.binary("mul", result, b.constant(6)))
    assert b.check(fold_arithmetic) == [0]


@pytest.mark.parametrize("escapes", [True, False])
def test_arithmetic_of_a_shared_result_stays(b: Builder, escapes: bool) -> None:
    output = b.linear(b.input(random(2, 4)), 6, 4)
    result = b.binary("mul", output, b.constant(6))
    b.done(result, output if escapes else b.opaque(torch.exp, output))
    assert b.check(fold_arithmetic) == [0]


def test_division_by_zero_is_not_folded(b: Builder) -> None:
    result = b.linear(b.input(random(2, 4)), 6, 4)
    graph: Graph = b.done(b.binary("div", result, b.number(0.0)))
    assert fold_arithmetic(graph) == 0
    assert only(graph, "binary")


def test_a_constant_lookup_that_fails_stays(b: Builder) -> None:
    """-1 is a valid index of a tensor, but not of an embedding."""
    ids = b.graph.constant(torch.tensor([1, -1]))
    b.graph.set_outputs([b.eltwise("relu", b("embedding", b.constant(5, 4), ids))])
    assert fold_constants(b.graph) == 0


def test_a_constant_split_into_fewer_parts_than_are_read_stays(b: Builder) -> None:
    parts = b.node("split", b.constant(4, 2), results=3, dim=0, chunks=3).outputs
    b.graph.set_outputs([b.binary("add", parts[0], b.binary("add", parts[1], parts[2]))])
    assert fold_constants(b.graph) == 0


def test_linear_functions_whose_sum_overflows_float32_stay_separate(b: Builder) -> None:
    b.done(b.eltwise("affine", b.eltwise("affine", b.input(random(2, 8)), 2.0, 1e30), 1e30, 0.0))
    assert b.check(fold_scalars) == [0]


def test_booleans_times_one_are_numbers(b: Builder) -> None:
    truth = b("nonzero", b.eltwise("tanh", b.input(random(2, 8))))
    b.done(b("view", b.eltwise("affine", truth, 1.0, -0.0), 16))
    assert b.check(remove_identities) == [0]
