"""Graphs of thousands of operators in a row: nothing recurses over the length of one."""

from __future__ import annotations

import copy
import io
import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.backends.zendnn import explain

from .common import stock, values

pytestmark = pytest.mark.usefixtures("fresh_dynamo")

#: More than Python's limit of recursion.
LENGTH = 1050
assert sys.getrecursionlimit() < LENGTH


class Chain(nn.Module):
    """So many operators, each of which reads what the one before made."""

    cache: Tensor

    def __init__(self, step: Callable[..., Tensor], length: int) -> None:
        super().__init__()
        self.step, self.length = step, length
        self.layer = nn.Linear(4, 4)
        self.register_buffer("cache", torch.zeros(8, 4))
        with torch.no_grad():
            self.layer.weight.copy_(torch.eye(4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        for number in range(self.length):
            y = self.step(self, y, number)
        return self.layer(y)


def view(model: Chain, y: Tensor, number: int) -> Tensor:
    return y.view(1, 8, 4) if number % 2 == 0 else y.view(8, 4)


def transpose(model: Chain, y: Tensor, number: int) -> Tensor:
    return y.transpose(0, 1)


def split(model: Chain, y: Tensor, number: int) -> Tensor:
    return y.unsqueeze(0).split(1)[0][0]


def write(model: Chain, y: Tensor, number: int) -> Tensor:
    model.cache.index_copy_(0, torch.tensor([number % 8]), y[:1])
    return y


def write_view(model: Chain, y: Tensor, number: int) -> Tensor:
    model.cache[number % 8 : number % 8 + 1] = y[:1]
    return torch.lerp(y, model.cache, 0.5)  # bounded


def join(model: Chain, y: Tensor, number: int) -> Tensor:
    return torch.cat([y, y[:1]])[1:]


def widen(model: Chain, y: Tensor, number: int) -> Tensor:
    return nn.functional.pad(y, (0, 0, 1, 0))[1:]


def mask(model: Chain, y: Tensor, number: int) -> Tensor:
    last = number == model.length - 1
    if number == 0:
        y = y @ y.t()
    y = y + 0.001 * y.detach().sum() if number == 1 else y + model.cache[:, :1]
    return torch.softmax(y, -1) @ model.cache if last else y


STEPS: dict[str, Callable[..., Tensor]] = {
    "views": view,
    "transposed": transpose,
    "split": split,
    "elementwise": lambda model, y, number: torch.tanh(y) if number % 3 else y * 1.01,
    "added": lambda model, y, number: y + model.cache,
    "linear": lambda model, y, number: model.layer(y),
    "converted": lambda model, y, number: y.to((torch.bfloat16, torch.float32)[number % 2]),
    "written": write,
    "written views": write_view,
    "joined": join,
    "padded": widen,
    "masked": mask,
    "normalised": lambda model, y, number: nn.functional.layer_norm(y, (4,)),
}
X = values(8, 4)


def frozen(model: Chain) -> Any:
    traced = torch.jit.trace(model, X, check_trace=False)
    fast = torch.jit.optimize_for_inference(torch.jit.freeze(traced))
    buffer = io.BytesIO()
    torch.jit.save(fast, buffer)
    buffer.seek(0)
    return fast, [fast, torch.jit.load(buffer), copy.deepcopy(fast)]


def compiled(model: Chain) -> Any:
    fast = torch.compile(model, backend="zendnn", options={"rest": "eager"})
    return fast, [fast]


def programs(model: Chain) -> Any:
    program = torch.export.export(model, (X,))
    fast, planned = torch.backends.zendnn.optimize(program), torch.backends.zendnn.export(program)
    buffer = io.BytesIO()
    torch.export.save(planned, buffer)
    buffer.seek(0)
    loaded = torch.export.load(buffer).module()
    copies = [copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))]
    return planned, [fast, *copies, planned.module(), loaded]


#: Each front end, and chains for it: torch itself takes 10 ms for an operator that it exports, and
#: each write in a frozen module imports all views of what it writes to again.
FRONT_ENDS: dict[str, tuple[Callable[[Chain], Any], list[str]]] = {
    "frozen": (frozen, [name for name in STEPS if name != "written views"]),
    "compiled": (compiled, ["views", "written views"]),
    "programs": (programs, ["views", "elementwise", "linear", "written", "joined", "masked"]),
}


def chains() -> Iterator[Any]:
    """The front ends and steps; few of those for which torch takes long meet each change."""
    long = ("written views", "split", "joined", "padded")
    for name, (_, steps) in FRONT_ENDS.items():
        for step in steps:
            often = step == "linear" if name == "programs" else step not in long
            yield pytest.param(name, step, marks=[] if often else [pytest.mark.nightly])


@pytest.mark.parametrize(("front_end", "step"), chains())
def test_a_chain_of_operators(front_end: str, step: str) -> None:
    model = Chain(STEPS[step], LENGTH).eval()
    with torch.no_grad():
        with stock():
            want = copy.deepcopy(model)(X)
        explained, callables = FRONT_ENDS[front_end][0](copy.deepcopy(model))
        for fast in callables:
            torch.testing.assert_close(fast(X), want, rtol=1e-4, atol=1e-5)
    found = explain(explained)
    assert found.text()
    assert found.json()
    assert found.dot()
