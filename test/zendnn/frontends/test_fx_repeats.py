"""What a functional graph computes several times is computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.backends.zendnn.frontends.fx.repeats import join_repeats
from torch.fx.experimental.proxy_tensor import make_fx

from ..common import stock, values

Function = Callable[..., Any]


def joined(function: Function, *inputs: Tensor) -> int:
    """How many nodes of a function's graph repeated others; its results stay what they are."""
    result = make_fx(function, tracing_mode="symbolic")(*inputs)
    before = len(result.graph.nodes)
    join_repeats(result.graph)
    result.graph.lint()
    result.recompile()
    torch.manual_seed(0)
    got = result(*inputs)
    torch.manual_seed(0)
    torch.testing.assert_close(got, function(*inputs), rtol=0, atol=0, equal_nan=True)
    return before - len(result.graph.nodes)


def test_expressions_of_several_nodes_are_computed_once() -> None:
    def twice(x: Tensor, y: Tensor) -> Tensor:
        return torch.tanh(x + y) * torch.tanh(x + y)

    assert joined(twice, values(3, 4), values(3, 4, seed=1)) == 2


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.exp(x + 1) + torch.exp(x + 2),
        lambda x: x.clamp(min=0.0).reciprocal() + x.clamp(min=-0.0).reciprocal(),
        lambda x: torch.full_like(x, 0.0).reciprocal() + torch.full_like(x, -0.0).reciprocal(),
        lambda x: torch.sum(x, 0) + torch.sum(x, 1),
        lambda x: torch.ones_like(x, dtype=torch.int64) + torch.ones_like(x, dtype=torch.int32),
        lambda x: torch.rand_like(x) + torch.rand_like(x),
        lambda x: F.dropout(x, 0.5) + F.dropout(x, 0.5),
    ],
    ids=["number", "bound's sign", "zero's sign", "dimension", "dtype", "random", "dropout"],
)
def test_what_may_differ_stays(function: Function) -> None:
    assert joined(function, values(4, 4)) == 0


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (torch.tanh(x), torch.tanh(x)),
        lambda x: (torch.tanh(x).t(), torch.tanh(x)[1]),
        lambda x: (F.layer_norm(x, (4,)), F.layer_norm(x, (4,))),
        lambda x: (torch.tanh(x).split(2)[0], torch.tanh(x).split(2)[0]),
        lambda x: (x.clone(), x.clone()),
    ],
    ids=["results", "views", "one of several results", "parts", "copies"],
)
def test_results_share_no_memory(function: Function) -> None:
    """Who gets them may write to one of them."""
    assert joined(function, values(4, 4)) == 0
    x = values(4, 4)
    with torch.no_grad():
        first, second = torch.compile(function, backend="zendnn")(x)
        expected = second.clone()
        first.zero_()
    assert torch.equal(second, expected)


def test_what_is_read_before_and_after_a_write_differs() -> None:
    def read(x: Tensor) -> Tensor:
        before = torch.tanh(x) * 2
        x.add_(1)
        return before + torch.tanh(x) * 2

    x, y = values(4, 4), values(4, 4)
    with torch.no_grad():
        got = torch.compile(read, backend="zendnn")(x)
        with stock():
            torch.testing.assert_close(got, read(y))
    torch.testing.assert_close(x, y)


def test_layers_under_autocast_are_merged() -> None:
    """Autocast converts a value for each layer that reads it."""

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(64, 64) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(*(f(x)[None] for f in (self.q, self.k, self.v)))

    module, x = Layers(), values(5, 64)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        compiled = torch.compile(module, backend="zendnn")
        got = compiled(x)
        with stock():
            torch.testing.assert_close(got, module(x), rtol=2e-2, atol=2e-2)
    assert "3 x linear" in str(torch.backends.zendnn.explain(compiled))
