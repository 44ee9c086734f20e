"""Models in float16 run on torch's own kernels, and one warning says so."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.backends.zendnn import record
from torch.backends.zendnn.frontends.aten import half

from .common import stock, values
from .support.front_ends import FRONT_ENDS

pytestmark = [
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
    pytest.mark.usefixtures("fresh_dynamo"),
]


@pytest.fixture(autouse=True)
def untold() -> Iterator[None]:
    """Nobody has been warned yet."""
    half.warn_once.cache_clear()
    yield
    half.warn_once.cache_clear()


def told(model: nn.Module, x: Tensor, *front_ends: str) -> list[str]:
    """The warnings that name bfloat16 when a model is prepared and called."""
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        for front_end in front_ends:
            FRONT_ENDS[front_end](model, x)(x)
    return [text for told in caught if "bfloat16" in (text := str(told.message))]


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 4)).eval()


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_model_in_float16_gets_one_warning(front_end: str) -> None:
    (text,) = told(net().half(), values(4, 16).half(), front_end, front_end)
    assert "model.bfloat16()" in text


def test_a_process_is_warned_once() -> None:
    assert len(told(net().half(), values(4, 16).half(), *FRONT_ENDS)) == 1


@pytest.mark.parametrize("layer", [nn.Conv1d(4, 4, 3), nn.Conv2d(4, 4, 3)])
def test_convolutions_count(layer: nn.Module) -> None:
    x = values(2, 4, *[8] * (1 if isinstance(layer, nn.Conv1d) else 2))
    assert told(layer.eval().half(), x.half(), "frozen")


def test_autocast_to_float16_counts() -> None:
    with torch.autocast("cpu", torch.float16):
        assert told(net(), values(4, 16), "compiled")


class Wide(nn.Module):
    """Takes and returns float16, and computes in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.weight = net(), nn.Parameter(values(4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.net(x.float())
        norm = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)
        return (norm.half() * self.weight.half()).float(), (y > 0).half()


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_conversions_at_the_borders_are_parts_of_plans(front_end: str) -> None:
    module, x = Wide().eval(), values(4, 16).half()
    with torch.no_grad():
        run = FRONT_ENDS[front_end](module, x)
        for _ in range(3):
            got = run(x)
        with record() as events:
            run(x)
        with stock():
            want = module(x)
    assert [event.route for event in events if event.route in ("plan", "torch")].count("plan") > 1
    for mine, theirs in zip(got, want, strict=True):
        assert mine.dtype == theirs.dtype
        torch.testing.assert_close(mine, theirs, rtol=4e-3, atol=4e-3)


class WithConstant(nn.Module):
    """Looks something up in float16."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.table = net(), nn.Parameter(values(8, 16).half())

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.net(x + self.table[2])
        return y + self.table[1, 1].float()


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_constant_in_float16_gets_none(front_end: str) -> None:
    assert not told(WithConstant().eval(), values(4, 16), front_end)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_other_dtypes_get_none(dtype: torch.dtype) -> None:
    assert not told(net().to(dtype), values(4, 16).to(dtype), *FRONT_ENDS)
