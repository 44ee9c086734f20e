"""Modules that write to what others read: in all front ends, call after call, as in eager mode."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .common import stock, values

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

Forward = Callable[..., Any]


class Net(nn.Module):
    """Has two layers, a state, and a cache in a list; a function says what it does."""

    def __init__(self, function: Forward) -> None:
        super().__init__()
        self.function = function
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)
        self.register_buffer("state", torch.ones(4, 6))
        self.kept = [torch.zeros(4, 6)]

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(self, *inputs)


def compare(ours: Forward, theirs: Forward, *shapes: tuple[int, ...]) -> None:
    """Call both three times with inputs that they may change."""
    for seed in range(3):
        arguments = [values(*shape, seed=seed) for shape in shapes]
        others = copy.deepcopy(arguments)
        with torch.no_grad():
            got = ours(*arguments)
            with stock():
                expected = theirs(*others)
        torch.testing.assert_close((got, arguments), (expected, others), check_stride=True)


def padded(net: Net, x: Tensor) -> Tensor:
    y = F.pad(net.state, (0, 0))
    net.state.add_(net.first(x))
    return net.second(y)


def padded_result(net: Net, x: Tensor) -> Tensor:
    y = F.pad(net.state, (0, 0))
    net.state.add_(net.first(x))
    return y


def joined(net: Net, x: Tensor) -> Tensor:
    y = torch.cat([net.state[:, :3], net.state[:, 3:]], 1)
    net.state.add_(net.first(x))
    return net.second(y)


def scattered(net: Net, x: Tensor) -> Tensor:
    y = torch.slice_scatter(x, net.state, 0, 0, 4)
    net.state.add_(net.first(x))
    return net.second(y)


def listed(net: Net, x: Tensor) -> Tensor:
    net.kept[0].add_(net.first(x))
    return net.second(net.kept[0])


def made_and_returned(net: Net, x: Tensor) -> Any:
    y = torch.zeros(4, 6, dtype=torch.float32)
    y[0] = net.first(x)[1]
    return net.second(y), y


def made_and_read_between_writes(net: Net, x: Tensor) -> Any:
    y = torch.zeros(4, 6, dtype=torch.float32)
    y[1:] = net.first(x)[1:]
    z = torch.flip(y, [0])
    y[0] = z[0]
    return net.second(y), net.first(z), y


MADE = (made_and_returned, made_and_read_between_writes)


@pytest.mark.parametrize("function", [padded, padded_result, joined, scattered, listed, *MADE])
def test_traced_modules(function: Forward) -> None:
    net = Net(function).eval()
    with torch.no_grad():
        traced = torch.jit.trace(copy.deepcopy(net), values(4, 6), check_trace=False)
    ours = torch.jit.optimize_for_inference(torch.jit.freeze(traced))
    # Tracing ran the module once.
    with torch.no_grad(), stock():
        net(values(4, 6))
    compare(ours, net, (4, 6))


def converted(net: Net, x: Tensor, cache: Tensor) -> Any:
    y = cache.to(torch.float32, copy=True)
    cache[:2] = net.first(x[:2])
    return y, net.second(x)


def converted_inside(net: Net, x: Tensor, cache: Tensor) -> Tensor:
    y = cache.to(torch.float32, copy=True)
    cache.index_copy_(0, torch.tensor([1, 3]), net.first(x[:2]))
    return net.second(y)


def summed(net: Net, x: Tensor, cache: Tensor) -> Tensor:
    y = cache + x
    cache.index_copy_(0, torch.tensor([1, 3]), net.first(x[:2]))
    return net.second(net.norm(y))


def attended(net: Net, x: Tensor, cache: Tensor) -> Tensor:
    scores = x @ cache.t()
    cache.index_copy_(0, torch.tensor([1, 3]), net.first(x[:2]))
    return net.second(torch.softmax(scores * 0.5, -1) @ x)


def padded_cache(net: Net, x: Tensor, cache: Tensor) -> Any:
    y = F.pad(cache, (0, 0))
    cache.index_copy_(0, torch.tensor([1, 3]), net.first(x[:2]))
    return y, net.second(x)


def scattered_copy(net: Net, x: Tensor, cache: Tensor) -> Any:
    # A copy has no gaps, of which there are some after the next calls' slices.
    y = F.pad(cache[:, ::2], (0, 0))
    y[:1] = net.first(x)[:1, :3]
    z = cache[:, ::2].clone()
    z[1] = y[0]
    return y, z, y.view(-1), net.second(x)


def two_caches(net: Net, x: Tensor, cache: Tensor) -> Any:
    cache.index_copy_(0, torch.tensor([1]), x.narrow(0, 0, 1))
    net.state.index_copy_(0, torch.tensor([2]), cache.narrow(0, 3, 1))
    return x.narrow(0, 2, 2).fill_(0.5), net.second(cache) + net.first(net.state)


def not_dropped(net: Net, x: Tensor, cache: Tensor) -> Any:
    y = F.dropout(cache, 0.5, False)
    cache.add_(net.first(x))
    return y, net.second(F.alpha_dropout(y, 0.5, False).mul_(0.5)), cache + 0


WITH_CACHE = (
    *(converted, converted_inside, summed, attended, padded_cache),
    *(scattered_copy, two_caches, not_dropped),
)


@pytest.mark.parametrize("function", WITH_CACHE)
def test_compiled_modules(function: Forward) -> None:
    net = Net(function).eval()
    compare(torch.compile(copy.deepcopy(net), backend="zendnn"), net, (4, 6), (4, 6))


@pytest.mark.parametrize("gaps", [1, 2])
def test_a_compiled_module_writes_to_an_input_with_gaps(gaps: int) -> None:
    def written(net: Net, x: Tensor, target: Tensor) -> Any:
        target.copy_(net.first(x))
        return target.select_scatter(target.select(1, 0) * 2, 1, 5), net.second(target)

    net = Net(written).eval()
    fast = torch.compile(net, backend="zendnn")
    targets = [values(4, 6 * gaps)[:, ::gaps] for _ in range(2)]
    with torch.no_grad():
        got = fast(values(4, 6), targets[0])
        with stock():
            expected = net(values(4, 6), targets[1])
    torch.testing.assert_close((got, targets[0]), (expected, targets[1]), check_stride=True)


def summed_to_size(net: Net, x: Tensor) -> Any:
    y = x.sum_to_size(4, 6)
    x.add_(net.first(x))
    return y * 1, net.second(y)


def broadcast(net: Net, x: Tensor) -> Any:
    y, z = torch.broadcast_tensors(x, x[:1])
    x.add_(net.first(x))
    return y * z, net.second(y)


def same_type(net: Net, x: Tensor) -> Any:
    y = x.type_as(net.state)
    y.add_(net.first(x))
    return net.second(x)


def einsum(net: Net, x: Tensor) -> Any:
    y = torch.einsum("ij->ji", x)
    y.mul_(0.5)
    return net.second(x)


def not_dropped_at_all(net: Net, x: Tensor) -> Any:
    y = F.dropout(x, 0.5, False)
    y.mul_(0.5)
    return net.second(x), torch.feature_dropout(net.first(x), 0.5, False)


@pytest.mark.parametrize(
    "function", [summed_to_size, broadcast, same_type, einsum, not_dropped_at_all]
)
def test_writes_through_operators_that_may_return_their_operand(function: Forward) -> None:
    net = Net(function).eval()
    exported = torch.export.export(net, (values(4, 6),))
    compare(torch.backends.zendnn.optimize(exported), net, (4, 6))
    compare(torch.compile(net, backend="zendnn"), net, (4, 6))


def reshaped(net: Net, x: Tensor) -> Any:
    return x.t().reshape(-1), x.t().reshape(-1), net.first(x)


def made(net: Net, x: Tensor) -> Any:
    return torch.arange(24.0).view(4, 6).t().reshape(-1), net.first(x)


@pytest.mark.parametrize("function", [reshaped, made])
def test_a_caller_may_write_to_results(function: Forward) -> None:
    ours = torch.compile(Net(function).eval(), backend="zendnn")
    x = values(4, 6)
    with torch.no_grad():
        expected = copy.deepcopy(ours(x))
        for _ in range(3):
            written, *others = ours(x)
            written.fill_(7)
            torch.testing.assert_close(others, list(expected[1:]))
        torch.testing.assert_close(ours(x), expected)
