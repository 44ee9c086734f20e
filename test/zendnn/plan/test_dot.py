"""Linear layers of few outputs by the kernel of dot products: the tuning cache selects it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.backends.zendnn.ir.node import Value

from ..common import PRIMITIVE_DTYPES
from ..support.choices import Choices
from ..support.graphs import Builder
from ..support.plans import ARRANGEMENTS, check, implementations, tensor, then
from ..support.samples import POST_OPS

NAME = "dot products"

Make = Callable[[Builder], Value]
Chosen = Callable[..., None]


@pytest.fixture
def chosen(choices: Choices) -> Chosen:
    """Checks a graph, whose linear layer runs as dot products."""

    def run(make: Make, dtype: torch.dtype) -> list[str]:
        b = Builder()
        return implementations(check(b, make(b), dtype=dtype))

    def check_chosen(make: Make, dtype: torch.dtype = torch.float32) -> None:
        run(make, dtype)
        choices.choose(NAME)
        assert NAME in run(make, dtype)

    return check_chosen


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("outputs", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("rows", "inputs"), [(1, 1), (1, 700), (7, 33), (16, 64), (17, 16), (37, 95), (300, 768)]
)
def test_layers_of_few_outputs(
    chosen: Chosen, rows: int, inputs: int, outputs: int, dtype: torch.dtype
) -> None:
    x = tensor(rows, inputs, dtype=dtype)
    chosen(lambda b: b.linear(b.input(x), outputs, inputs, bias=rows != 7), dtype)


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("function", POST_OPS)
def test_functions_of_the_results(chosen: Chosen, function: str, dtype: torch.dtype) -> None:
    x = tensor(19, 40, dtype=dtype)
    posts = ("tanh", ("abs", 0.0, 0.0), (function, *POST_OPS[function]))
    chosen(lambda b: then(b, b.linear(b.input(x), 2, 40, bias=True), *posts), dtype)


@pytest.mark.parametrize("layout", ARRANGEMENTS)
def test_rows_that_lie_anyhow(chosen: Chosen, layout: str) -> None:
    x = tensor(5, 18, 24, layout=layout)
    chosen(lambda b: b.linear(b.input(x), 1, 24, bias=True))


def test_results_among_others(chosen: Chosen) -> None:
    """Columns of a concatenation."""

    def make(b: Builder) -> Value:
        x = b.input(tensor(37, 24))
        return b("cat", b.linear(x, 3, 24), b.eltwise("abs", x), dim=1)

    chosen(make)


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
def test_a_result_in_float32(chosen: Chosen, dtype: torch.dtype) -> None:
    x = tensor(37, 24, dtype=dtype)

    def make(b: Builder) -> Value:
        weight, bias = b.constant(3, 24), b.constant(3)
        return b("linear", b.input(x), weight, bias, dtype="float32")

    chosen(make, dtype)
