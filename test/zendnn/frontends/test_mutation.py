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


@pytest.fixture(autouse=True)
def no_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans time nothing: the steps of a plan do not depend on how busy the machine is."""
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "0")


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
    "clamp_": lambda x, y: x.clamp_(min=y),
    "hypot_": lambda x, y: x.hypot_(y),
    "copysign_": lambda x, y: x.copysign_(y),
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
    arguments = torch.ones(3, 4, dtype=own), torch.rand(sizes)
    with torch.no_grad():
        ours = torch.jit.optimize_for_inference(frozen(module, x, x))
        with stock(), pytest.raises(RuntimeError) as stocks:
            module(*arguments)
        for _ in range(2):
            with pytest.raises(RuntimeError, match=re.escape(str(stocks.value))):
                ours(*arguments)


#: Operators that in place only take what they make no larger.
REFUSING: dict[str, Write] = {
    "masked_scatter_": lambda x, y: x.masked_scatter_(y > 0, y),
    "_add_relu_": torch._add_relu_,
}


@pytest.mark.parametrize("name", REFUSING)
def test_what_is_refused_in_place_is_refused(name: str) -> None:
    module, x = Net(REFUSING[name], after=False), torch.ones(3)
    with torch.no_grad():
        ours = torch.jit.optimize_for_inference(frozen(module, x, x))
        for _ in range(2):
            with pytest.raises(RuntimeError):
                ours(torch.ones(1), x)


#: Operators that make floating-point numbers, or wider integers, of integers.
WIDENING: dict[str, Callable[[Tensor], Tensor]] = {
    "exp_": torch.exp_,
    "sqrt_": torch.sqrt_,
    "sigmoid_": torch.sigmoid_,
    "clamp_": lambda x: x.clamp_(0.5),
    "cumsum_": lambda x: x.cumsum_(0),
    "cumprod_": lambda x: x.cumprod_(0),
}


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int32, torch.int64], ids=str
)
@pytest.mark.parametrize("name", WIDENING)
def test_operators_of_one_tensor_keep_its_dtype(name: str, dtype: torch.dtype) -> None:
    module = Net(lambda x, y: WIDENING[name](x), after=False)
    arguments = torch.arange(1, 7).view(2, 3).to(dtype), torch.ones(1)
    x = torch.ones(2, 3)
    with torch.no_grad():
        ours = torch.jit.optimize_for_inference(frozen(module, x, x))
        with stock():
            try:
                want = module(*arguments)
            except RuntimeError as error:
                for _ in range(2):
                    # In clamp_, torch writes the dtype otherwise than elsewhere.
                    said = str(error).split(" to the desired")[0]
                    with pytest.raises(RuntimeError, match=re.escape(said)):
                        ours(*arguments)
                return
        for _ in range(2):
            torch.testing.assert_close(ours(*arguments), want)


class Fused(nn.Module):
    """Writes to or with the result of a layer, which takes part in a fusion."""

    def __init__(self, combine: Callable[[nn.Module, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.combine = nn.Linear(4, 4), combine
        self.norm = nn.LayerNorm(4)
        self.register_buffer("wide", torch.rand(5, 4))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.combine(self, x, y).relu()


#: What a pass may join, with the write.
FUSIONS: dict[str, Callable[[Any, Tensor, Tensor], Tensor]] = {
    "residual": lambda m, x, y: m.layer(x).add_(y),
    "of a copy": lambda m, x, y: (x * 2).add_(m.layer(y)),
    "difference": lambda m, x, y: m.layer(x).sub_(y),
    "negated": lambda m, x, y: (x * 2).sub_(m.layer(y)),
    "product": lambda m, x, y: (x @ x.mT).mul_(y @ y.mT),
    "root": lambda m, x, y: m.layer(x).mul_(torch.rsqrt(y.abs() + 1)),
    "of a root": lambda m, x, y: torch.rsqrt(x.abs() + 1).mul_(m.layer(y)),
    "buffer": lambda m, x, y: m.layer(x).add_(m.wide) + y,
    "norm": lambda m, x, y: m.norm((x * 2).add_(y)),
    "attention": lambda m, x, y: (
        (x[None] @ x[None].transpose(-1, -2) * 0.5).add_(y.mean()).softmax(-1) @ x[None]
    ),
    "mask": lambda m, x, y: (y @ y.mT).mul_(2).add_(x @ x.mT).softmax(-1) @ x,
    "rms norm": lambda m, x, y: (x * 1).mul_(torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)),
    "narrow rms norm": lambda m, x, y: (x * 1).mul_(
        torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)
    ),
    "several": lambda m, x, y: m.layer(x).addcmul_(y, y),
    "comparison": lambda m, x, y: m.layer(x).gt_(y),
    "power": lambda m, x, y: m.layer(x).abs().pow_(y),
}
SIZES = [(5, 4), (1, 4), (5, 1), (1, 1), (4,), (1, 5, 4), (2, 5, 4)]


@pytest.mark.parametrize("name", FUSIONS)
def test_fusions_keep_what_an_operator_in_place_promises(name: str) -> None:
    module = Fused(FUSIONS[name])
    example = torch.rand(5, 4)
    with torch.no_grad():
        ours = torch.jit.optimize_for_inference(frozen(module, example, example))
        for own in SIZES[:4]:
            for size in SIZES:
                arguments = torch.randn(own), torch.randn(size)
                try:
                    with stock():
                        want = module(*arguments)
                except RuntimeError:
                    with pytest.raises(RuntimeError):
                        ours(*arguments)
                else:
                    torch.testing.assert_close(ours(*arguments), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_spelled_out_norm_in_place_keeps_the_dtype(dtype: torch.dtype) -> None:
    module = Fused(FUSIONS["narrow rms norm"])
    x = torch.randn(3, 4, dtype=dtype)
    with torch.no_grad():
        ours = torch.jit.optimize_for_inference(frozen(module, x, x))
        with stock():
            want = module(x, x)
        torch.testing.assert_close(ours(x, x), want)


def steps_of(module: nn.Module, *inputs: Tensor) -> tuple[int, set[str]]:
    """How many steps a call takes, and by which routes."""
    with torch.no_grad():
        ours = torch.jit.optimize_for_inference(frozen(module, *inputs))
        ours(*inputs)
        with torch.backends.zendnn.record() as events:
            got = ours(*inputs)
        with stock():
            torch.testing.assert_close(got, module(*inputs), rtol=2e-2, atol=2e-2)
    return len(events), {event.route for event in events}


class Mixed(nn.Module):
    """Adds a narrow tensor to a wide one in place, or, under autocast, the other way round."""

    def __init__(self, autocast: bool) -> None:
        super().__init__()
        self.autocast = autocast
        self.layer, self.narrow = nn.Linear(8, 8), nn.Linear(8, 8).bfloat16()

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            h = self.layer(x) * 2
            h += x if self.autocast else self.narrow(x.bfloat16())
            return self.layer(h).relu()


class Masked(nn.Module):
    """Scores under autocast, to which a mask in float32 is added."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("mask", torch.randn(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            q = self.layer(x)
            scores = q @ q.mT
            scores += self.mask
            return self.layer(scores.softmax(-1) @ q)


def test_scores_and_a_mask_of_two_dtypes_stay_in_the_plan() -> None:
    _, routes = steps_of(Masked(), torch.randn(2, 4, 8))
    assert routes == {"plan"}


@pytest.mark.parametrize("autocast", [False, True])
def test_a_sum_of_two_dtypes_stays_in_the_plan(autocast: bool) -> None:
    _, routes = steps_of(Mixed(autocast), torch.randn(4, 8))
    assert routes == {"plan"}


class Unseen(nn.Module):
    """Writes before what may be a view, of which schemas say nothing, or to one of a new tensor."""

    def __init__(self, in_place: bool, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.other = nn.Linear(8, 8), nn.Linear(8, 8)
        self.relu, self.drop, self.kind = nn.ReLU(inplace=in_place), nn.Dropout(), kind

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.relu(self.layer(x))
        match self.kind:
            case "type_as":
                y = y.type_as(x)
            case "written":
                y = torch.relu(y + 1).type_as(x)
                y *= x
            case "dropout":
                y = self.drop(y)
                y += x
        return self.other(y)


@pytest.mark.parametrize("kind", ["type_as", "written", "dropout"])
def test_writes_that_no_hidden_view_shows_take_the_same_steps(kind: str) -> None:
    x = torch.randn(4, 8)
    plain = steps_of(Unseen(False, kind), x)
    assert steps_of(Unseen(True, kind), x) == plain == (plain[0], {"plan"})


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
    plain = steps_of(Block(False, ends), x)
    assert steps_of(Block(True, ends), x) == plain == (plain[0], {"plan"})
