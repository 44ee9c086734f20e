"""In-place operators on new tensors of a frozen module: eager mode's results and errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ..common import stock

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

Write = Callable[[Tensor, Tensor], Tensor]
#: Operators whose result may have another dtype than their first argument.
WRITES: dict[str, Write] = {
    "add_": lambda x, y: x.add_(y, alpha=2),
    "sub_": lambda x, y: x.sub_(y),
    "mul_": lambda x, y: x.mul_(y),
    "div_": lambda x, y: x.div_(y),
    "pow_": lambda x, y: x.pow_(y),
    "remainder_": lambda x, y: x.remainder_(y),
    "addcmul_": lambda x, y: x.addcmul_(y, y),
    "gt_": lambda x, y: x.gt_(y),
    "logical_and_": lambda x, y: x.logical_and_(y),
    "logical_not_": lambda x, y: x.logical_not_() + y * 0,
}


class Net(nn.Module):
    """Writes to the result of an operator, and computes with it."""

    def __init__(self, write: Write, after: bool) -> None:
        super().__init__()
        self.write, self.after = write, after

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        written = self.write(x * 2, y)
        return written.clone().sigmoid() * 2 + written if self.after else written


def frozen(module: nn.Module, *inputs: Tensor) -> Any:
    with stock():
        return torch.jit.freeze(torch.jit.trace(module.eval(), inputs, check_trace=False))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("other", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("own", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", WRITES)
def test_the_result_has_the_dtype_of_what_is_written(
    name: str, own: torch.dtype, other: torch.dtype, after: bool
) -> None:
    module = Net(WRITES[name], after)
    x, y = torch.randn(3, 4).to(own), torch.rand(3, 4).add(0.5).to(other)
    with torch.no_grad():
        with stock():
            want = module(x, y)
        ours = torch.jit.optimize_for_inference(frozen(module, x, y))
        for _ in range(2):
            torch.testing.assert_close(ours(x, y), want, equal_nan=True)


@pytest.mark.parametrize("name", ["add_", "mul_", "div_"])
@pytest.mark.parametrize(
    ("sizes", "own"), [((2, 3, 4), torch.float32), ((3, 4), torch.int64)], ids=str
)
def test_errors_are_those_of_the_operator_in_place(
    name: str, sizes: tuple[int, ...], own: torch.dtype
) -> None:
    module = Net(WRITES[name], after=True)
    x = torch.ones(3, 4)
    given = torch.ones(3, 4, dtype=own), torch.rand(sizes)
    with torch.no_grad():
        ours = torch.jit.optimize_for_inference(frozen(module, x, x))
        with stock(), pytest.raises(RuntimeError) as stocks:
            module(*given)
        for _ in range(2):
            with pytest.raises(RuntimeError, match=re.escape(str(stocks.value))):
                ours(*given)


def test_an_operator_in_place_is_batched() -> None:
    module = Net(WRITES["add_"], after=True)
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    with torch.no_grad():
        ours = torch.jit.optimize_for_inference(frozen(module, x, y))
        torch.testing.assert_close(torch.vmap(ours)(x[None], y[None])[0], module(x, y))


class Block(nn.Module):
    """A residual block as torchvision writes it, or with new tensors."""

    def __init__(self, in_place: bool, ends: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.relu, self.in_place, self.ends = nn.ReLU(inplace=in_place), in_place, ends

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.two(self.relu(self.one(x)))
        if self.in_place:
            y += x
        else:
            y = y + x
        return y if self.ends else self.relu(y)


@pytest.mark.parametrize("ends", [False, True])
def test_a_block_in_place_takes_the_same_steps(ends: bool) -> None:
    x = torch.randn(1, 8, 10, 10)
    steps = []
    for in_place in (False, True):
        module = Block(in_place, ends)
        with torch.no_grad():
            ours = torch.jit.optimize_for_inference(frozen(module, x))
            ours(x)
            with torch.backends.zendnn.record() as events:
                got = ours(x)
            with stock():
                torch.testing.assert_close(got, module(x))
        assert {event.route for event in events} == {"plan"}
        steps.append(len(events))
    assert steps[0] == steps[1]
