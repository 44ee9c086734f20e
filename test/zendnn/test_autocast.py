"""Autocast in every front end: inside the model, around its capture, around its calls.

The dtypes are those of torch's own capture: TorchScript's, Dynamo's, or torch.export's.
"""

from __future__ import annotations

import contextlib
import copy
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.backends.zendnn import explain, export, optimize

from .common import nightly_but, outcome, stock, values
from .support.compiled import routes
from .support.front_ends import compiled, exported, frozen, optimized

pytestmark = [
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*float16"),
    pytest.mark.usefixtures("fresh_dynamo"),
]

LOW = (torch.bfloat16, torch.float16)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.b(self.a(x).relu())
        return y


class Converting(Layers):
    """Converts to a dtype that a layer's result may have already."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).float() * 2


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.net(x.view(-1, 4, 4, 4)).mean((2, 3)))
        return y.softmax(-1)


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.norm = nn.Linear(16, 48), nn.LayerNorm(16)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unsqueeze(0).chunk(3, -1)
        return self.norm((q @ k.mT * 0.25).softmax(-1) @ v + x)


class RmsNorm(nn.Module):
    """Spells out an RMS norm with a weight of float32."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.weight = nn.Linear(16, 16), nn.Parameter(torch.rand(16))

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        return y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Scaled(nn.Module):
    """Multiplies what a layer makes by a vector of float32, which plans fold into the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(16, 16), nn.Parameter(torch.rand(16))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y * self.scale


class Recurrent(nn.Module):
    def __init__(self, kind: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.layers = kind(16, 16, num_layers=2, bidirectional=True)

    def forward(self, x: Tensor) -> Any:
        return self.layers(x.unsqueeze(1))[0].relu()


class Inside(nn.Module):
    """Runs a model under autocast, without it, and as things stand."""

    def __init__(self, net: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.net, self.dtype = net, dtype

    def forward(self, x: Tensor) -> tuple[Any, ...]:
        with torch.autocast("cpu", self.dtype):
            low = self.net(x)
        with torch.autocast("cpu", enabled=False):
            high = self.net(x)
        with torch.autocast("cpu", self.dtype), torch.autocast("cpu", enabled=False):
            both = self.net(x)
        return low, high, both, self.net(x)


class Volumes(nn.Module):
    """Pools of three dimensions, which autocast computes in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.act = nn.Conv3d(1, 4, 1), nn.PReLU(4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.conv(x.view(4, 1, 4, 2, 2)))
        return F.max_pool3d(y, 2)


class Activating(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.PReLU(16)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.act(x + 1)
        return y


MODELS: dict[str, Callable[[], nn.Module]] = {
    "volumes": Volumes,
    "prelu": Activating,
    "layers": Layers,
    "converting": Converting,
    "images": Images,
    "attention": Attending,
    "rms norm": RmsNorm,
    "scaled": Scaled,
    "lstm": lambda: Recurrent(nn.LSTM),
    "gru": lambda: Recurrent(nn.GRU),
    "rnn": lambda: Recurrent(nn.RNN),
}


def stocks_frozen(model: nn.Module, x: Tensor) -> Any:
    return torch.jit.freeze(torch.jit.trace(model, x, check_trace=False))


def stocks_compiled(model: nn.Module, x: Tensor, dynamic: bool = False) -> Any:
    return torch.compile(model, backend="aot_eager", dynamic=dynamic)


def stocks_exported(model: nn.Module, x: Tensor) -> Any:
    return torch.export.export(model, (x,)).module()


def optimized_program(model: nn.Module, x: Tensor) -> Any:
    return optimize(torch.export.export(model, (x,)))


#: Ours, and torch's own capture.
FRONT_ENDS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "frozen": (frozen, stocks_frozen),
    "compiled": (partial(compiled, dynamic=False, rest="eager"), stocks_compiled),
    "compiled dynamic": (
        partial(compiled, dynamic=True, rest="eager"),
        partial(stocks_compiled, dynamic=True),
    ),
    "optimized": (optimized, stocks_exported),
    "optimized program": (optimized_program, stocks_exported),
    "exported": (exported, stocks_exported),
}


@contextlib.contextmanager
def under(dtype: torch.dtype | None) -> Iterator[None]:
    """Autocast to a dtype, or none; no converted weights are kept, which traces would hold."""
    with torch.autocast("cpu", dtype or torch.bfloat16, bool(dtype), cache_enabled=False):
        yield


def dtypes(made: Any) -> list[torch.dtype]:
    return [x.dtype for x in (made if isinstance(made, tuple) else (made,))]


#: What takes long to capture: of each front end all models once, and one model in all ways.
WAYS = [
    *((front_end, "layers", dtype) for front_end in FRONT_ENDS for dtype in LOW),
    *(
        (front_end, name, torch.bfloat16)
        for front_end in ("frozen", "compiled", "optimized", "exported")
        for name in MODELS.keys() - {"layers"}
        if (front_end, name) != ("exported", "converting")
    ),
]

#: Those of each change: all models in the fastest front end, and one model in each other.
OFTEN = [way for way in WAYS if way[0] == "frozen" or way[1:] == ("layers", torch.bfloat16)]


@pytest.mark.parametrize("way", nightly_but(OFTEN, sorted(WAYS, key=str)), ids=str)
def test_dtypes_are_those_of_torchs_own_capture(way: tuple[str, str, torch.dtype]) -> None:
    front_end, name, dtype = way
    ours, stocks = FRONT_ENDS[front_end]
    torch.manual_seed(0)
    net, x = MODELS[name]().eval(), values(4, 16)
    for model in (net, Inside(net, dtype).eval()):
        for around in (None, dtype):
            with torch.no_grad(), under(around):
                fast = ours(model, x)
                with stock():
                    slow = stocks(model, x)
            for call in (around, None, dtype):
                # What a program keeps from autocast, torch's own loses when it is functional.
                if (front_end, call) == ("exported", dtype) and model is not net:
                    continue
                where = f"{type(model).__name__}, captured under {around}, called under {call}"
                with torch.no_grad(), under(call):
                    assert_as(fast, slow, model, x, where)


def test_a_conversion_that_did_nothing_at_the_export_is_no_part_of_the_program() -> None:
    """torch's functional program checks the dtype of its operand instead, and raises."""
    net, x = Converting().eval(), values(4, 16)
    with torch.no_grad():
        fast = export(net, (x,)).module()
        for dtype in (None, *LOW):
            with under(dtype):
                assert fast(x).dtype == (dtype or torch.float32)


def assert_as(fast: Any, slow: Any, model: Any, x: Tensor, where: str) -> None:
    with stock():
        wanted_kind, want = outcome(lambda: slow(x))
        if "dtype mismatch" in str(want):  # a check of torch.export's, of what converts nothing
            if not hasattr(fast, "captured"):  # functional programs lose such conversions
                return
            wanted_kind, want = outcome(lambda: model(x))
    kind, got = outcome(lambda: fast(x))
    assert kind == wanted_kind, f"{where}: {got if kind != 'value' else want}"
    if kind != "value":
        return
    assert dtypes(got) == dtypes(want), where
    got, want = (y if isinstance(y, tuple) else (y,) for y in (got, want))
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=4e-2, atol=4e-2, msg=where)


def test_a_model_that_was_optimized_under_autocast_runs_plans_there() -> None:
    net, x = Layers().eval(), values(4, 16)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        fast = optimize(net, (x,))
        assert fast(x).dtype == torch.bfloat16
        assert routes(fast, x) == {"plan"}
    with torch.no_grad():
        assert fast(x).dtype == torch.float32
    assert "plan" not in routes(fast, x)


def test_a_part_without_autocast_is_exact_in_a_model_that_runs_under_it() -> None:
    """As rotary embeddings of language models: their angles need float32."""

    class Angles(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", enabled=False):
                return (x[:, None] @ x[None, :]).cos()

    x = values(8) * 100
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for fast in (optimize(Angles().eval(), (x,)), torch.compile(Angles(), backend="zendnn")):
            torch.testing.assert_close(fast(x), Angles()(x), rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        fast = optimize(Angles().eval(), (x,))
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(fast(x), Angles()(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_copies_obey_autocast_too(how: str) -> None:
    net, x = Inside(Layers(), torch.bfloat16).eval(), values(4, 16)
    with torch.no_grad():
        fast = optimize(net, (x,))
        again = copy.deepcopy(fast) if how == "deepcopy" else pickle.loads(pickle.dumps(fast))
        for dtype in (None, *LOW):
            with under(dtype):
                assert dtypes(again(x)) == dtypes(net(x))


def test_saved_programs_obey_autocast(tmp_path: Any) -> None:
    net, x = Layers().eval(), values(4, 16)
    with torch.no_grad():
        torch.export.save(export(net, (x,)), tmp_path / "program.pt2")
        fast = torch.export.load(tmp_path / "program.pt2").module()
        for dtype in (None, *LOW):
            with under(dtype):
                assert fast(x).dtype == net(x).dtype
        assert explain(fast).as_dict()["methods"][0]["regions"]


def test_packages_of_aotinductor_have_the_dtypes_that_they_were_compiled_for(
    tmp_path: Any,
) -> None:
    net, x = Layers().eval(), values(4, 16)
    with torch.no_grad():
        path = str(tmp_path / "model.pt2")
        torch._inductor.aoti_compile_and_package(export(net, (x,)), package_path=path)
        fast = torch._inductor.aoti_load_package(path)
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(fast(x), net(x).float(), rtol=2e-2, atol=4e-2)
