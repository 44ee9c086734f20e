"""Candidates check each other while they are timed."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.backends.zendnn import _C

from ..common import PRIMITIVE_DTYPES, PRODUCT_DTYPES, nightly_but, run_python
from ..support.frozen import optimised

Compute = Callable[[], list[float]]

TOLD = "computes a wrong result"
NONE = "all compute wrong results"
RIGHT = [1.0, -2.0, 3.0, 0.0]
WRONG = {
    "another number": [1.0, -2.0, 3.5, 0.0],
    "not written": [1.0, math.nan, 3.0, 0.0],
    "infinite": [1.0, -2.0, math.inf, 0.0],
    "a small one": [1.0, -2.0, 3.0, 1e-4],
}


def candidate(values: list[float], seconds: float = 0.0) -> Compute:
    def compute() -> list[float]:
        time.sleep(seconds)
        return values

    return compute


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_wrong_candidate_is_struck_off_even_if_it_is_the_fastest(
    wrong: list[float], place: int
) -> None:
    candidates = [("slow", candidate(RIGHT, 0.004)), ("slower", candidate(RIGHT, 0.008))]
    candidates.insert(place, ("wrong", candidate(wrong)))
    with pytest.warns(UserWarning, match=f"wrong {TOLD} .* for 1x1"):
        index, struck = _C._choose("1x1", candidates, candidate(RIGHT))
    assert (candidates[index][0], struck) == ("slow", ["wrong"])


def test_the_judge_decides_and_not_the_majority() -> None:
    candidates = [("one", candidate(WRONG["infinite"])), ("two", candidate(WRONG["infinite"]))]
    candidates.append(("right", candidate(RIGHT, 0.004)))
    with pytest.warns(UserWarning, match=TOLD):
        index, struck = _C._choose("1x1", candidates, candidate(RIGHT))
    assert (index, struck) == (2, ["one", "two"])


@pytest.mark.filterwarnings("error")
def test_rounding_is_no_fault() -> None:
    near = [value * (1 + 5e-7) for value in RIGHT]
    candidates = [("one", candidate(RIGHT, 0.004)), ("near", candidate(near))]
    assert _C._choose("1x1", candidates, candidate(WRONG["infinite"])) == (1, [])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_or_infinity_from_all_candidates_is_no_fault(value: float) -> None:
    candidates = [("one", candidate([1.0, value], 0.004)), ("two", candidate([1.0, value]))]
    assert _C._choose("1x1", candidates, candidate(RIGHT)) == (1, [])


def test_verification_finds_candidates_that_are_all_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = [(name, candidate(WRONG["infinite"])) for name in ("one", "two")]
    monkeypatch.setenv("ZENDNN_VERIFY", "1")
    with pytest.warns(UserWarning, match=TOLD), pytest.raises(RuntimeError, match=NONE):
        _C._choose("1x1", candidates, candidate(RIGHT))


def test_a_struck_off_candidate_warns_once_and_is_not_tried_again() -> None:
    calls = []

    def wrong() -> list[float]:
        calls.append(1)
        return WRONG["infinite"]

    candidates = [("wrong", wrong), ("right", candidate(RIGHT, 0.004))]
    with pytest.warns(UserWarning, match=TOLD):
        _C._choose("1x1", candidates, candidate(RIGHT))
    seen = len(calls)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _C._choose("1x1", candidates, candidate(RIGHT)) == (1, ["wrong"])
        others = [("wrong", wrong), ("new", candidate(RIGHT))]
        assert _C._choose("1x1", others, candidate(RIGHT)) == (1, ["wrong"])
    assert len(calls) == seen


def test_the_next_process_does_not_try_it(tmp_path: Path) -> None:
    code = """
from torch.backends.zendnn import _C
def wrong():
    print("tried")
    return [float("inf")]
candidates = [("wrong", wrong), ("right", lambda: [1.0])]
print(_C._choose("1x1", candidates, lambda: [1.0]))
"""
    setting = {"ZENDNN_TUNING_CACHE": str(tmp_path / "choices")}
    first, second = (run_python(code, **setting).splitlines() for _ in range(2))
    assert "tried" in first
    assert second == ["(1, ['wrong'])"]


def test_a_single_candidate_is_judged_on_demand_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def unwanted() -> list[float]:
        raise AssertionError

    only = [("only", candidate(WRONG["infinite"]))]
    assert _C._choose("1x1", only, unwanted) == (0, [])
    monkeypatch.setenv("ZENDNN_VERIFY", "1")
    with pytest.warns(UserWarning, match=TOLD), pytest.raises(RuntimeError, match=NONE):
        _C._choose("1x1", only, candidate(RIGHT))
    assert _C._choose("2x2", only, candidate(WRONG["infinite"])) == (0, [])


def noted(calls: list[str], name: str, seconds: float) -> tuple[str, Compute]:
    def compute() -> list[float]:
        calls.append(name)
        time.sleep(seconds)
        return RIGHT

    return name, compute


def test_trials_end_once_one_candidate_leads() -> None:
    """Each is computed and timed once; then nobody is left to race with."""
    calls: list[str] = []
    candidates = [noted(calls, "slow", 0.03), noted(calls, "fast", 0.002)]
    assert _C._choose("1x1", candidates, candidate(RIGHT)) == (1, [])
    assert calls == ["slow", "fast"] * 2


def test_candidates_that_are_as_fast_take_turns() -> None:
    """So that a moment of noise meets all of them."""
    calls: list[str] = []
    candidates = [noted(calls, name, 0.002) for name in ("one", "two")]
    _C._choose("1x1", candidates, candidate(RIGHT))
    assert calls[:4] == ["one", "two"] * 2  # later, a pause of the machine may end one's trial
    assert len(calls) <= 2 * 9


LARGE = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(512, width, dtype={dtype})
    def forward(self, x, y):
        return self.layer(x) {post}
def run(width):
    x = torch.rand({rows}, 512).to({dtype})
    y = torch.rand({rows}, width).to({dtype})
    net = Model(width).eval()
    with torch.no_grad():
        module = torch.jit.freeze(torch.jit.trace(net, (x, y)))
        module = torch.jit.optimize_for_inference(module)
        got, exact = module(x, y), net.double()(x.double(), y.double())
    torch.testing.assert_close(got, exact.to({dtype}))
torch.set_num_threads(2)
run(12288)
print("another", flush=True)
run(16384)
"""


@pytest.mark.parametrize("post", nightly_but((".relu() * y",), ["", ".relu() * y"]))
@pytest.mark.parametrize("rows", [1, 900])
@pytest.mark.parametrize("dtype", PRODUCT_DTYPES)
def test_large_layers_are_timed_on_a_part_that_layers_of_other_widths_share(
    dtype: torch.dtype, rows: int, post: str
) -> None:
    code = LARGE.format(dtype=dtype, rows=rows, post=post)
    lines = run_python(code, ZENDNN_VERBOSE="1", ZENDNN_TUNING_BUDGET="9").splitlines()
    timed = [line for line in lines if ",tune," in line]
    heights = {int(line.split(" layer ")[1].split(":")[1].split(",")[0]) for line in timed}
    widths = {int(line.split(":512,")[1].split("/")[0]) for line in timed}
    assert len(timed) > 2
    assert heights == {min(rows, 512)}
    assert len(widths) == 1
    assert max(widths) < 12288
    assert not any(",tune," in line for line in lines[lines.index("another") :])


def test_verification_compares_whole_layers() -> None:
    code = LARGE.format(dtype="torch.float32", rows=2, post="")
    lines = run_python(code, ZENDNN_VERBOSE="1", ZENDNN_VERIFY="1").splitlines()
    timed = [line for line in lines if ",tune," in line]
    assert timed
    assert all(":512,12288/" in line or ":512,16384/" in line for line in timed)


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
def test_a_models_own_candidates_agree(dtype: torch.dtype) -> None:
    """In a process with a large budget, which also verifies single candidates."""
    code = f"""
import torch, warnings
from torch import nn
warnings.filterwarnings("error", "ZenDNN")
net = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 40, 1), nn.GELU(),
    nn.Conv2d(40, 48, 3, stride=2, groups=8), nn.Flatten(), nn.Linear(48 * 49, 50), nn.SiLU(),
    nn.Linear(50, 1),
).to({dtype}).eval()
x = torch.rand(3, 3, 16, 16).to({dtype})
with torch.no_grad():
    module = torch.jit.freeze(torch.jit.trace(net, x))
    module = torch.jit.optimize_for_inference(module)
    module(x)
(region,) = torch.backends.zendnn.explain(module).methods[0].regions
print([built.wrong for built in region.built], [built.refused for built in region.built])
"""
    environment = {"ZENDNN_VERIFY": "1", "ZENDNN_TUNING_BUDGET": "5"}
    assert run_python(code, **environment).strip() == "[()] ['']"
    assert "ZENDNN_VERIFY" not in os.environ


def assert_nothing_is_struck_off(net: nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        module = optimised(torch.jit.trace(net.eval(), x))
        module(x)
    (region,) = torch.backends.zendnn.explain(module).methods[0].regions
    assert [built.wrong for built in region.built] == [()]


class Sums(nn.Module):
    """Layers of one output, which is near 0 when its terms cancel out."""

    def __init__(self, sizes: range) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(size, 1) for size in sizes)
        for layer in self.layers:
            nn.init.normal_(layer.weight)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([layer(x[:, : layer.in_features]) for layer in self.layers], 1)


@pytest.mark.filterwarnings("error:ZenDNN", "ignore::torch.jit.TracerWarning")
def test_rounding_errors_are_relative_to_the_terms_and_not_to_the_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "60")
    torch.manual_seed(5)  # gives eight sums close to 0
    assert_nothing_is_struck_off(Sums(range(16, 316)), torch.rand(1, 316))


@pytest.mark.filterwarnings("error:ZenDNN", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("function", [torch.log, torch.exp, torch.sqrt, torch.round])
def test_rounding_errors_that_a_function_magnifies_are_no_fault(
    function: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Near a pole or a step, or where the function is steep."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(16, 16, 1)
            nn.init.normal_(self.layer.weight)

        def forward(self, x: Tensor) -> Tensor:
            return function(self.layer(x) + x)

    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "60")
    torch.manual_seed(2)  # gives one sum next to 0
    assert_nothing_is_struck_off(Net(), torch.randn(1, 16, 22, 1))


@pytest.mark.filterwarnings("error:ZenDNN", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("channels", [1, 3, 15, 17])
@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
def test_pointwise_convolutions_of_any_width_have_no_wrong_candidate(
    channels: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to 30 points are one block of accumulators, the most that leave a register for weights."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Conv2d(channels, 15, 1) for _ in range(24, 34))

        def forward(self, x: Tensor) -> list[Tensor]:
            return [layer(x[..., : 24 + i]) for i, layer in enumerate(self.layers)]

    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "60")
    torch.manual_seed(3)
    assert_nothing_is_struck_off(Net().to(dtype), torch.randn(1, channels, 1, 33, dtype=dtype))


# Whole plans.

WHOLE = """
import torch, warnings
from torch import nn
from torch.backends.zendnn.frontends import torchscript
def make_plan(description, constants, name):
    assert "relu" in description
    return torchscript.make_plan(description.replace("relu", {name!r}), constants, name)
net = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()
with torch.no_grad():
    module = torch.jit.freeze(torch.jit.trace(net, torch.rand(2, 8)))
    torchscript.optimize(module._c, ["forward"], make_plan)
    for rows in (2, 3):
        x = torch.rand(rows, 8)
        for _ in range(2):
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                same = torch.allclose(module(x), net(x), atol=1e-5)
            print(same, [str(w.message) for w in told if "differs" in str(w.message)] != [])
(region,) = torch.backends.zendnn.explain(module).methods[0].regions
print(*{{built.refused for built in region.built}})
"""


def test_a_plan_that_differs_from_its_operators_warns_and_is_not_run_again() -> None:
    lines = run_python(WHOLE.format(name="sigmoid"), ZENDNN_VERIFY="1").splitlines()
    assert lines[:4] == ["True True", "True False"] * 2
    assert lines[4:] == ["results that differ from the original operators'"]


def test_a_right_plan_keeps_running() -> None:
    lines = run_python(WHOLE.format(name="relu"), ZENDNN_VERIFY="1").splitlines()
    assert lines == ["True False"] * 4 + [""]
