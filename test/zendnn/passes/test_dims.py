"""Inferred dims match the sizes of values."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch.backends.zendnn.ir.node import Value
from torch.backends.zendnn.passes.fuse_binary import fuse_binary

from ..support.graphs import Builder, random


@pytest.fixture
def b() -> Builder:
    return Builder()


#: Operators on x, of size (2, 3, 4, 4), and on others of known rank.
OF_IMAGES: dict[str, Callable[[Builder, Value], Value]] = {
    "eltwise": lambda b, x: b.eltwise("relu", x),
    "binary": lambda b, x: b.binary("add", x, b.constant(4)),
    "binary the other way": lambda b, x: b.binary("add", b.constant(4), x),
    "softmax": lambda b, x: b("softmax", x, dim=1, log=False),
    "layer_norm": lambda b, x: b.layer_norm(x, 4),
    "batch_norm": lambda b, x: b.batch_norm(x, 3),
    "linear": lambda b, x: b.linear(x, 5, 4),
    "matmul": lambda b, x: b("matmul", x, b.constant(4, 5)),
    "matmul the other way": lambda b, x: b("matmul", b.constant(5, 4), x),
    "convolution": lambda b, x: b.convolution(x, b.constant(8, 3, 3, 3)),
    "view": lambda b, x: b("view", x, 2, -1),
    "expand": lambda b, x: b("expand", x, 5, 2, 3, 4, 4),
    "permute": lambda b, x: b("permute", x, 3, 2, 1, 0),
    "transpose": lambda b, x: b("transpose", x, 0, 1),
    "flatten": lambda b, x: b("flatten", x, 1, -1),
    "flatten from the back": lambda b, x: b("flatten", x, -2, -1),
    "flatten between": lambda b, x: b("flatten", x, 1, 2),
    "unflatten": lambda b, x: b("unflatten", x, 2, 2, 2),
    "unsqueeze": lambda b, x: b("unsqueeze", x, -1),
    "select": lambda b, x: b("select", x, 1, 2),
    "slice": lambda b, x: b("slice", x, 1, 0, 2, 1),
    "contiguous": lambda b, x: b("contiguous", x),
    "mean": lambda b, x: b("mean", x, dims=(2, 3), keep=False),
    "mean that keeps": lambda b, x: b("mean", x, dims=(2, 3), keep=True),
    "cat": lambda b, x: b("cat", x, x, dim=1),
    "stack": lambda b, x: b("stack", x, x, dim=1),
    "pad": lambda b, x: b("pad", x, 1, 1, value=0.0),
}


@pytest.mark.parametrize("name", OF_IMAGES)
@pytest.mark.parametrize("stated", [(2, 3, 4, 4), (-1, 3, 4, -1)], ids=["all", "some"])
def test_inferred_dims_are_right(b: Builder, name: str, stated: tuple[int, ...]) -> None:
    x = b("expand", b.input(random(2, 3, 4, 4)), *stated)
    result = OF_IMAGES[name](b, x)
    b.done(result)
    (tensor,) = b.run()
    known = result.dims
    assert known is not None
    assert result.rank == tensor.dim()
    assert [size for size in known if size is not None] == [
        size
        for size, stated_size in zip(tensor.shape, known, strict=True)
        if stated_size is not None
    ]


SHAPES: dict[str, tuple[Callable[[Builder, Value], Value], tuple[int | None, ...]]] = {
    "view": (lambda b, x: x, (None, None, 4, 6)),
    "permute": (lambda b, x: b("permute", x, 0, 2, -1, 1), (None, 4, 6, None)),
    "transpose": (lambda b, x: b("transpose", x, -1, 1), (None, 6, 4, None)),
    "unsqueeze": (lambda b, x: b("unsqueeze", x, -2), (None, None, 4, 1, 6)),
    "expand": (lambda b, x: b("expand", x, 7, -1, 4, 6), (7, None, 4, 6)),
    "expand what is kept": (lambda b, x: b("expand", x, 3, 2, 2, -1, -1), (3, 2, 2, 4, 6)),
    "expand too little": (lambda b, x: b("expand", x, -1, 6), (None, 6)),
    "linear": (lambda b, x: b.linear(x, 5, 6), (None, None, 4, 5)),
    "convolution": (lambda b, x: b.convolution(x, b.constant(5, 2, 1, 1)), (None, 5, None, None)),
    "matmul": (lambda b, x: b("matmul", x, b.constant(1, 3, 6, 8)), (None, 3, 4, 8)),
    "binary": (lambda b, x: b.binary("add", b.constant(3, 1, 1), x), (None, 3, 4, 6)),
    "ones": (lambda b, x: b.binary("add", b.constant(1, 1, 1), x), (None, None, 4, 6)),
    "embedding": (lambda b, x: b("embedding", b.constant(9, 5), x), (None, None, 4, 6, 5)),
    "select": (lambda b, x: b("select", x, -2, 1), (None, None, 6)),
    "split": (
        lambda b, x: b.node("split", x, results=2, dim=3, chunks=2).outputs[1],
        (None, None, 4, None),
    ),
    "slice": (lambda b, x: b("slice", x, -1, 1, -1, None), (None, None, 4, 4)),
    "slice of what is unknown": (lambda b, x: b("slice", x, 0, None, 2, 1), (None, None, 4, 6)),
    "slice to somewhere": (
        lambda b, x: b("slice", x, 2, None, b("size", x, 0), 1),
        (None, None, None, 6),
    ),
    "softmax": (lambda b, x: b("softmax", x, dim=-1, log=False), (None, None, 4, 6)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_sizes_that_operators_imply_are_known(name: str) -> None:
    make, expected = SHAPES[name]
    b = Builder()
    x = b("view", b.input(random(2, 2, 4, 6)), b.input(2), -1, 4, 6)
    result = make(b, x)
    assert result.dims == expected
    assert b.graph.inputs[0].dims is None


def test_some_operators_determine_an_unknown_rank(b: Builder) -> None:
    x = b.input(random(2, 3, 4))
    result = [b("permute", x, 0, 2, 1), b("view", x, 2, -1), b("flatten", x, 1, -1)]
    assert [value.rank for value in result] == [3, 2, 2]


def test_dims_without_a_rule_or_with_a_wrong_dimension_are_unknown(b: Builder) -> None:
    x = b("view", b.input(random(6)), 2, 3)
    result = [b("transpose", x, 5, 1), b("squeeze", x, 0)]
    assert [value.dims for value in result] == [None, None]


def test_a_mean_over_everything_has_no_dimensions(b: Builder) -> None:
    x = b("view", b.input(random(6)), 2, 3)
    assert b("mean", x).dims == ()
    assert b("mean", x, keep=True).dims == (1, 1)


def test_sizes_of_a_layer_are_known(b: Builder) -> None:
    x = b("view", b.input(random(96)), 2, -1, 16)
    result = b("unflatten", b.linear(x, 12, 16), -1, 3, 4)
    graph = b.done(b("flatten", result, 1, -1), b("mean", result, dims=(-1, 0), keep=False))
    assert result.dims == (2, None, 3, 4)
    assert [value.dims for value in graph.outputs] == [(2, None), (None, 3)]


def test_the_operand_of_a_post_op_may_be_larger(b: Builder) -> None:
    x = b("view", b.input(random(4)), 1, 4)
    result = b.linear(x, 4, 4)
    graph = b.done(b.binary("add", result, b.input(random(3, 4))))
    assert b.check(fuse_binary) == [1]
    assert graph.outputs[0].dims is None


def test_undetermined_sizes_are_not_guessed(b: Builder) -> None:
    """The graph knows no sizes of its inputs and of opaque nodes."""
    x = b.input(random(2, 3))
    y = b.eltwise("relu", x)
    z = b.opaque(lambda x: x, y)
    graph = b.done(b.binary("add", b.eltwise("tanh", z), b.constant(3)))
    assert [value.dims for value in (x, y, z, graph.outputs[0])] == [None] * 4


def test_a_size_that_is_read_stays_a_symbol_until_it_is_known(b: Builder) -> None:
    x = b.input(random(2, 12))
    rows = b("size", x, 0)
    y = b.eltwise("relu", b("view", x, rows, 3, 4))
    assert y.dims == (rows, 3, 4)
    b.graph.set_outputs([y])
    b.graph.replace_uses(rows, 2)
    assert list(y.dims) == [2, 3, 4]


def test_a_number_that_may_be_minus_one_is_no_size(b: Builder) -> None:
    assert b("view", b.input(random(2, 12)), b.input(-1), 4).dims == (None, 4)


def test_sums_of_one_symbol_keep_it(b: Builder) -> None:
    x = b.input(random(2, 3))
    rows, other = b("size", x, 0), b("size", x, 1)
    a, c = b("view", x, rows, 3), b("view", x, other, -1)
    assert b.binary("add", a, b.constant(1, 3)).dims == (rows, 3)
    assert b.binary("add", a, a).dims == (rows, 3)
    assert b.binary("add", a, c).dims == (None, 3)
