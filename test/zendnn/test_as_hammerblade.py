"""The names of HammerBlade's profiler, kernel log, chart and route, used as its users do."""

from __future__ import annotations

import json

import torch
import torch.backends.zendnn.kernel_logger as hblog

PROFILER = torch.backends.zendnn.profiler


def operators(log: str) -> list[str]:
    """The operators of a kernel log."""
    return [call["operator"] for call in json.loads(log)["calls"]]


def test_a_region_of_interest_has_stats() -> None:
    PROFILER.enable()
    assert PROFILER.is_in_ROI()
    x = torch.randn(10)
    _ = x + x
    PROFILER.disable()
    assert not PROFILER.is_in_ROI()
    text = PROFILER.stats()
    assert "Time by operator" in text
    assert "aten::add.Tensor" in text
    assert "aten::randn" in text
    raw = json.loads(PROFILER.stats(key=["ExecTime-Raw"], trimming=True))
    assert {row["path"][-1] for row in raw} >= {"ROI", "aten::add.Tensor"}


def test_the_log_has_the_kernels_that_ran_while_it_was_on() -> None:
    hblog.clear()
    x, y = torch.rand(2, 2), torch.rand(2, 2)
    hblog.enable()
    print(x + y)
    hblog.disable()
    print(x - y)
    assert operators(hblog.json()) == ["aten::add.Tensor"]
    hblog.clear()
    hblog.enable()
    print(x * y)
    hblog.disable()
    assert operators(hblog.json()) == ["aten::mul.Tensor"]
    hblog.clear()


def test_the_chart_has_the_calls_of_a_signature() -> None:
    added, left, right = torch.randn(2, 3), torch.randn(2, 3), torch.randn(3, 3)
    types = "const at::Tensor&, const at::Tensor&, const at::Tensor&, c10::Scalar, c10::Scalar"
    signature = f"at::Tensor at::CPUType::{{anonymous}}::addmm({types})"
    PROFILER.chart.clear()
    PROFILER.chart.add(signature)
    PROFILER.enable()
    torch.addmm(added, left, right)
    PROFILER.disable()
    assert json.loads(PROFILER.chart.json()) == [{"offload": False, "signature": signature}]
    PROFILER.chart.clear()


def test_a_chart_with_other_choices_is_a_route() -> None:
    x = torch.randn(64, 256)
    signature = "at::Tensor at::native::sigmoid(const at::Tensor& self)"
    PROFILER.chart.add(signature)
    PROFILER.enable()
    torch.sigmoid(x)
    PROFILER.disable()
    route = json.loads(PROFILER.chart.json())
    assert route == [{"offload": True, "signature": signature}]
    route[0]["offload"] = False
    PROFILER.route.set_route_from_json(route)
    PROFILER.enable()
    torch.sigmoid(x)
    PROFILER.disable()
    assert json.loads(PROFILER.chart.json()) == [{"offload": False, "signature": signature}]
    PROFILER.route.clear()
    PROFILER.chart.clear()
