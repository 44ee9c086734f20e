"""Where bfloat16 is rounded: once for each step of a plan, or wherever eager mode does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.backends.zendnn import export, optimize, passes

from .common import of_bfloat16, run_python, stock, values

pytestmark = [
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
    pytest.mark.usefixtures("fresh_dynamo"),
    of_bfloat16,
]

OPTION = {"emulate_precision_casts": True}


def frozen(model: nn.Module, x: Tensor, rounded: bool) -> Any:
    traced = torch.jit.trace(model, x, check_trace=False)
    with passes.switched({"round_as_eager": rounded}):
        return torch.jit.optimize_for_inference(torch.jit.freeze(traced))


FRONT_ENDS: dict[str, Callable[[nn.Module, Tensor, bool], Any]] = {
    "frozen": frozen,
    "compiled": lambda model, x, rounded: torch.compile(
        model, backend="zendnn", options={**({} if not rounded else OPTION), "rest": "eager"}
    ),
    "optimized": lambda model, x, rounded: optimize(
        model, (x,), options=OPTION if rounded else None
    ),
    "exported": lambda model, x, rounded: export(
        model, (x,), options=OPTION if rounded else None
    ).module(),
}


class Chain(nn.Module):
    """A layer, what follows it, and a conversion."""

    def __init__(self, *steps: Callable[..., Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(16, 16).bfloat16()
        self.steps = steps

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        for step in self.steps:
            y = step(y, x)
        return y


def converted(y: Tensor, x: Tensor) -> Tensor:
    return y.float()


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_layer_before_a_conversion_is_rounded_where_asked_for(front_end: str) -> None:
    model, x = Chain(converted).eval(), values(9, 16).bfloat16()
    with torch.no_grad():
        exact = FRONT_ENDS[front_end](model, x, False)(x)
        rounded = FRONT_ENDS[front_end](model, x, True)(x)
        with stock():
            want = model(x)
    assert not torch.equal(exact, exact.bfloat16().float())
    assert torch.equal(rounded, rounded.bfloat16().float())
    torch.testing.assert_close(rounded, want, rtol=8e-3, atol=1e-3)
    true = model.layer.weight.double() @ x.double().mT + model.layer.bias.double()[:, None]
    errors = [(y.double() - true.mT).abs().max() for y in (exact, rounded)]
    assert errors[0] * 20 < errors[1]


#: What may be one step of a plan.
STEPS: dict[str, list[Callable[..., Tensor]]] = {
    "relu": [lambda y, x: y.relu()],
    "gelu": [lambda y, x: F.gelu(y)],
    "gelu, a product": [lambda y, x: F.gelu(y), lambda y, x: y * x],
    "residual": [lambda y, x: y + x],
    "residual, norm": [lambda y, x: y + x, lambda y, x: F.layer_norm(y, (16,))],
    "residual, silu": [lambda y, x: y + x, lambda y, x: F.silu(y)],
    "numbers": [lambda y, x: y * 1.7, lambda y, x: y + 0.3, lambda y, x: y * 1.3],
    "silu spelled out": [lambda y, x: torch.sigmoid(y), lambda y, x: y * x],
    "hardswish spelled out": [lambda y, x: (y + 3).clamp(0, 6) / 6],
    "float32": [lambda y, x: F.gelu(y), converted],
    "norm spelled out": [
        converted,
        lambda y, x: y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6),
        lambda y, x: y.bfloat16() * 1.5,
        lambda y, x: y * x[0],
    ],
    "attention spelled out": [
        lambda y, x: (y @ x.mT * 0.3).softmax(-1),
        lambda y, x: y @ x,
    ],
}


class Step(nn.Module):
    def __init__(self, step: Callable[..., Tensor]) -> None:
        super().__init__()
        self.step = step

    def forward(self, y: Tensor, x: Tensor) -> Tensor:
        return self.step(y, x)


@pytest.mark.parametrize("name", STEPS)
def test_with_the_option_a_chain_is_as_near_to_eager_mode_as_its_roundings(name: str) -> None:
    """Nearly all elements are the same bits; sums in another order make some of them neighbours."""
    model, x = Chain(*STEPS[name]).eval(), values(64, 16).bfloat16()
    with torch.no_grad():
        with stock():
            want = model(x)
        same = {
            rounded: (FRONT_ENDS["compiled"](model, x, rounded)(x) == want).double().mean().item()
            for rounded in (True, False)
        }
    assert same[True] >= 0.97, same
    assert same[True] >= same[False]


def test_float32_is_the_same_with_the_option() -> None:
    net = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 16)).eval()
    x = values(9, 16)
    with torch.no_grad():
        plain, rounded = (optimize(net, (x,), options=o) for o in (None, OPTION))
        descriptions = [[p.description() for p in _plans(fast)] for fast in (plain, rounded)]
        assert descriptions[0] == descriptions[1]
        assert torch.equal(plain(x), rounded(x))


def _plans(fast: nn.Module) -> list[Any]:
    return [module.plan for module in fast.modules() if hasattr(module, "plan")]


@pytest.mark.parametrize(("value", "rounds"), [(None, False), ("0", False), ("1", True)])
def test_a_variable_sets_the_default(
    value: str | None, rounds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "ZENDNN_EMULATE_PRECISION_CASTS"
    monkeypatch.delenv(name, raising=False)
    if value is not None:
        monkeypatch.setenv(name, value)
    reported = run_python(
        "import torch\n"
        "from torch.backends.zendnn import _options, passes\n"
        "print(passes.is_enabled('round_as_eager'))\n"
        "print(_options.Options.of(None).emulate_precision_casts)\n"
        "print(_options.Options.of({'emulate_precision_casts': False}).emulate_precision_casts)"
    )
    assert reported.split() == [str(rounds), str(rounds), "False"]


def test_another_value_is_refused() -> None:
    with pytest.raises(TypeError, match="'emulate_precision_casts' is True or False, not 'yes'"):
        optimize(
            nn.Linear(4, 4).eval(), (values(2, 4),), options={"emulate_precision_casts": "yes"}
        )
