"""``torch.backends.zendnn.profiler``: call trees with times, and what ran on torch."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.backends.zendnn.doctor.limits import Roof

from .common import CPU, assembled_by, of_products, stock, values

PROFILER = torch.backends.zendnn.profiler

Row = dict[str, Any]


def raw(*, trimming: bool = False) -> list[Row]:
    """The rows of the last profile."""
    rows: list[Row] = json.loads(PROFILER.stats(key=["ExecTime-Raw"], trimming=trimming))
    return rows


def profile(function: Callable[[], object]) -> dict[tuple[str, ...], Row]:
    """The rows of a profile of ``function``, by their paths below the region of interest."""
    with PROFILER:
        function()
    return {tuple(row["path"][1:]): row for row in raw()}


@pytest.fixture(scope="module")
def region() -> tuple[torch.jit.ScriptModule, Tensor]:
    """A module with one region, of two steps, and its input; nothing is built yet."""
    module = nn.Sequential(nn.Linear(256, 128), nn.Softmax(-1)).eval()
    frozen = torch.jit.freeze(torch.jit.script(module))
    return torch.jit.optimize_for_inference(frozen), values(64, 256)


@of_products
def test_operators_are_below_those_that_call_them() -> None:
    layer, x = nn.Linear(256, 128), values(64, 256)
    with torch.no_grad():
        rows = profile(lambda: (layer(x), layer(x)))
    outer, inner = rows[("aten::linear",)], rows[("aten::linear", "aten::addmm")]
    assert (outer["calls"], outer["route"]) == (2, "")
    assert (inner["calls"], inner["route"]) == (2, "eager")
    assert inner["implementation"].startswith("matmul ")
    assert outer["total_ms"] > inner["total_ms"] > 0
    inside = [row["total_ms"] for path, row in rows.items() if path[:-1] == ("aten::linear",)]
    assert outer["self_ms"] == pytest.approx(outer["total_ms"] - sum(inside))
    assert rows[()]["total_ms"] >= outer["total_ms"]


def test_steps_of_a_plan_have_implementation_and_rates(
    region: tuple[torch.jit.ScriptModule, Tensor],
) -> None:
    module, x = region
    with torch.no_grad():
        module(x)
        rows = profile(lambda: module(x))
    (run,) = (path for path, row in rows.items() if row["route"] == "plan" and row["flop"])
    assert run[-2].startswith("zendnn::")
    assert run[-1] == "aten::linear"
    assert rows[run]["flop"] == pytest.approx(2 * 64 * 128 * 256)
    assert rows[run]["bytes"] == 4 * (64 * 256 + 128 * 256 + 128 + 64 * 128)
    softmax = rows[run[:-1] + ("aten::softmax",)]  # noqa: RUF005 - mypy takes it for newer syntax
    assert softmax["implementation"] == "softmax"
    assert softmax["bytes"] == 4 * 2 * 64 * 128
    (line,) = (x for x in PROFILER.stats(key=["ExecTime"]).splitlines() if " aten::linear" in x)
    assert re.match(r"(\s*[\d.]+){2}\s+[\d.]+%\s+1\s+[\d.]+\s+[\d.]+\s+aten::linear\s+\S", line)


def test_steps_show_their_share_of_the_limit_where_that_is_asked_for(
    region: tuple[torch.jit.ScriptModule, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, x = region
    monkeypatch.setattr(PROFILER, "measure_roof", lambda threads: Roof({torch.float32: 1e3}, 1e2))
    with torch.no_grad():
        module(x)
        profile(lambda: module(x))
    assert "of limit" not in PROFILER.stats(key=["ExecTime"])
    assert re.search(r"%\s+aten::linear\s", PROFILER.stats(key=["ExecTime"], limits=True))
    text = PROFILER.stats(key=["ExecTime-Raw"], limits=True)
    shares = {row["path"][-1]: row["of_limit"] for row in json.loads(text)}
    assert shares["aten::linear"] > 0
    assert shares["aten::softmax"] > 0
    assert shares["ROI"] is None


def test_trimming_leaves_out_the_preparation_of_plans() -> None:
    module = nn.Sequential(nn.Linear(256, 128), nn.Softmax(-1)).eval()
    frozen = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.script(module)))
    x = values(32, 256)
    with torch.no_grad(), PROFILER:
        frozen(x)
    whole, trimmed = raw(), raw(trimming=True)
    (preparation,) = (row for row in whole if row["path"][-1] == "zendnn::prepare")
    assert all("zendnn::prepare" not in row["path"] for row in trimmed)
    assert trimmed[0]["total_ms"] <= whole[0]["total_ms"] - preparation["total_ms"] * 0.9
    assert trimmed[0]["total_ms"] > 0


def test_trimming_leaves_out_the_time_of_making_events() -> None:
    x = values(4)
    with PROFILER:
        for _ in range(200):
            torch.add(x, x)
    whole, trimmed = raw(), raw(trimming=True)
    assert 0 < trimmed[0]["total_ms"] < whole[0]["total_ms"]
    calls = [{tuple(row["path"]): row["calls"] for row in rows} for rows in (whole, trimmed)]
    assert calls[0] == calls[1]


def test_operators_on_torch_are_listed_with_the_reason() -> None:
    x = values(40, 40)
    with PROFILER:
        torch.mm(x.double(), x.double())
        with stock():
            torch.mm(x, x)
        torch.cumprod(x, 0)
        torch.softmax(x, -1)
    text = PROFILER.stats(key=["Unimpl"])
    rows = {tuple(re.split(r"\s{2,}", line.strip())[1:]) for line in text.splitlines()}
    assert rows >= {
        ("1", "aten::mm", "a dtype that ZenDNN does not support here"),
        ("1", "aten::mm", "ZenDNN is switched off"),
        ("1", "aten::cumprod", "an operator that ZenDNN lacks"),
    }
    assert "softmax" not in text
    assert "aten::empty" not in text


def test_tables_are_aligned_and_titled() -> None:
    with PROFILER:
        torch.softmax(values(4, 64), -1)
    text = PROFILER.stats()
    assert re.findall(r"^[A-Z].*", text, re.MULTILINE) == [
        "Time by operator",
        "Operators that ran on torch's own kernels",
    ]
    alone = PROFILER.stats(key=["ExecTime"])
    head, *lines = alone.splitlines()
    assert head.split()[:4] == ["total", "ms", "self", "ms"]
    assert lines[0].split()[-1] == "ROI"
    column = head.index("operator")
    assert {line[column - 1] for line in lines} == {" "}
    assert f"softmax kernel:{CPU['kernels']}" in alone


def test_latex_is_a_tabular_with_escaped_names() -> None:
    with PROFILER:
        torch.softmax(values(4, 64), -1)
    lines = PROFILER.stats(key=["ExecTime-Latex"]).splitlines()
    assert lines[0].startswith(r"\begin{tabular}")
    assert lines[-1] == r"\end{tabular}"
    (line,) = (line for line in lines if r"aten::\_softmax" in line)
    assert line.count(" & ") == 3
    assert line.endswith(r"\% \\")


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no key 'Exec': use some of ExecTime, ExecTime-Latex"):
        PROFILER.stats(key=["Exec"])


def test_the_region_of_interest_starts_anew() -> None:
    assert not PROFILER.is_in_roi()
    with PROFILER:
        assert PROFILER.is_in_roi()
        torch.add(values(4), values(4))
    assert not PROFILER.is_in_roi()
    PROFILER.disable()
    PROFILER.enable()
    assert [row["path"] for row in raw()] == [["ROI"]]
    PROFILER.disable()
    torch.add(values(4), values(4))
    assert [row["path"] for row in raw()] == [["ROI"]]


def test_operators_of_all_threads_are_profiled() -> None:
    x = values(64, 64).requires_grad_()
    with PROFILER:
        thread = threading.Thread(target=torch.softmax, args=(values(4, 64), -1))
        thread.start()
        thread.join()
        torch.softmax(x, -1).sum().backward()
    names = [name for row in raw() for name in row["path"]]
    assert {"aten::_softmax", "aten::_softmax_backward_data"} <= set(names)
    assert sum(row["calls"] for row in raw() if row["path"][-1] == "aten::_softmax") == 2


def test_marked_ranges_are_in_the_call_tree() -> None:
    with PROFILER, torch.profiler.record_function("mine"):
        torch.add(values(4), values(4))
    assert ["ROI", "mine", "aten::add.Tensor"] in [row["path"] for row in raw()]


@pytest.mark.parametrize("ours_first", [True, False])
def test_torch_profiler_may_run_at_the_same_time(ours_first: bool) -> None:
    x = values(4, 64)
    activities = [torch.profiler.ProfilerActivity.CPU]
    theirs = torch.profiler.profile(activities=activities, record_shapes=True)
    contexts = (PROFILER, theirs) if ours_first else (theirs, PROFILER)
    with contexts[0], contexts[1]:
        torch.softmax(x, -1)
    assert "aten::_softmax" in [event.name for event in theirs.events()]
    assert "aten::_softmax" in [row["path"][-1] for row in raw()]


def test_torch_profiler_shows_the_preparation_of_plans() -> None:
    frozen = torch.jit.freeze(torch.jit.script(nn.Linear(64, 64).eval()))
    module = torch.jit.optimize_for_inference(frozen)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.no_grad(), torch.profiler.profile(activities=activities) as theirs:
        module(values(32, 64))
    assert "zendnn::prepare" in [event.name for event in theirs.events()]


def test_results_are_the_same_while_profiled(
    region: tuple[torch.jit.ScriptModule, Tensor],
) -> None:
    module, x = region
    with torch.no_grad():
        alone = module(x)
        with PROFILER:
            assert torch.equal(module(x), alone)


_ASSEMBLES = """
import torch
torch.jit.optimize_for_inference(
    torch.jit.freeze(torch.jit.script(torch.nn.Conv2d(16, 16, 3).eval()))
)(torch.rand(1, 16, 8, 8))
"""


def test_perf_gets_the_names_of_assembled_kernels_where_that_is_asked_for() -> None:
    lines = assembled_by(_ASSEMBLES)
    assert lines
    assert all(re.fullmatch(r"[0-9a-f]+ [0-9a-f]+ \S+", line) for line in lines)
