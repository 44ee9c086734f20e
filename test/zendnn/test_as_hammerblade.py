"""HammerBlade's profiler, kernel log, chart and route: the programs of its README, as they are.

Only the module's name is another one, and tensors are not moved to a device.
"""

from __future__ import annotations

import json
from typing import Any

import torch

from .common import run_python

REGION_OF_INTEREST = """
import torch

torch.backends.zendnn.profiler.enable()
x = torch.randn(10)
y = x + x
torch.backends.zendnn.profiler.disable()
"""

STATS = """
import torch

torch.backends.zendnn.profiler.enable()
x = torch.randn(10)
torch.backends.zendnn.profiler.disable()

print(torch.backends.zendnn.profiler.stats(key=['ExecTime-Raw'],
      trimming=True))
"""

KERNEL_LOG = """
import torch
import torch.backends.zendnn.kernel_logger as hblog

x = torch.rand(2, 2)
y = torch.rand(2, 2)

hblog.enable()

print(x + y)

hblog.disable()

print(x - y)

print(hblog.json())

hblog.clear()

hblog.enable()
print(x * y)
hblog.disable()

print(hblog.json())
"""

ADDMM = (
    "at::Tensor at::CPUType::{anonymous}::addmm(const at::Tensor&, const at::Tensor&, "
    "const at::Tensor&, c10::Scalar, c10::Scalar)"
)
ADD = "at::Tensor at::CPUType::{anonymous}::add(const at::Tensor&, const at::Tensor&, c10::Scalar)"

CHART = f"""
import torch

M = torch.randn(2, 3)
mat1 = torch.randn(2, 3)
mat2 = torch.randn(3, 3)

torch.backends.zendnn.profiler.chart.clear_beacon()
torch.backends.zendnn.profiler.chart.add_beacon("{ADDMM}")
torch.backends.zendnn.profiler.enable()
torch.addmm(M, mat1, mat2)
torch.backends.zendnn.profiler.disable()
print(torch.backends.zendnn.profiler.chart.fancy_print())
"""

#: What the README shows as the chart's output.
CHARTED = f"""[
    {{
        "offload": false,
        "signature": "{ADDMM}"
    }}
]
"""

#: It uses ``json``, which the README does not import.
ROUTE = f'''
import json
import torch

M = torch.randn(2, 3)
mat1 = torch.randn(2, 3)
mat2 = torch.randn(3, 3)

route = """[
{{
    "offload": false,
    "signature": "{ADDMM}"
}},
{{
    "offload": true,
    "signature": "{ADD}"
}}
]
"""
data = json.loads(route)
torch.backends.zendnn.profiler.route.set_route_from_json(data)

torch.backends.zendnn.profiler.enable()
torch.addmm(M, mat1, mat2)
torch.add(M, mat1)
torch.backends.zendnn.profiler.disable()
'''


def logs(output: str) -> list[dict[str, Any]]:
    """The JSON objects among the lines that a program prints."""
    decoder = json.JSONDecoder()
    starts = [at for at in range(len(output)) if output.startswith("{", at)]
    found: list[dict[str, Any]] = []
    end = 0
    for start in starts:
        if start >= end:
            log, end = decoder.raw_decode(output, start)
            found.append(log)
    return found


def test_a_region_of_interest() -> None:
    program = REGION_OF_INTEREST + "print(torch.backends.zendnn.profiler.stats())\n"
    text = run_python(program)
    assert "Time by operator" in text
    assert "aten::add.Tensor" in text
    assert "aten::randn" in text


def test_it_says_whether_it_is_in_a_region_of_interest() -> None:
    profiler = torch.backends.zendnn.profiler
    assert not profiler.is_in_ROI()
    profiler.enable()
    assert profiler.is_in_ROI()
    profiler.disable()
    assert not profiler.is_in_ROI()


def test_raw_stats() -> None:
    rows = json.loads(run_python(STATS))
    assert {row["path"][-1] for row in rows} >= {"ROI", "aten::randn"}


def test_the_kernel_log_has_what_ran_while_it_was_on() -> None:
    calls = [[call["operator"] for call in log["calls"]] for log in logs(run_python(KERNEL_LOG))]
    assert calls == [["aten::add.Tensor"], ["aten::mul.Tensor"]]


def test_the_chart_has_the_calls_of_a_signature() -> None:
    assert run_python(CHART) == CHARTED


def test_a_route_is_a_chart() -> None:
    assert run_python(ROUTE) == ""
    chart = json.loads(run_python(CHART))
    torch.backends.zendnn.profiler.route.set_route_from_json(chart)
    torch.backends.zendnn.profiler.route.clear()


def test_a_chart_with_other_choices_sends_calls_elsewhere() -> None:
    profiler = torch.backends.zendnn.profiler
    x = torch.randn(64, 256)
    signature = "at::Tensor at::native::sigmoid(const at::Tensor& self)"
    profiler.chart.clear_beacon()
    profiler.chart.add_beacon(signature)
    profiler.enable()
    torch.sigmoid(x)
    profiler.disable()
    route = json.loads(profiler.chart.fancy_print())
    assert route == [{"offload": True, "signature": signature}]
    route[0]["offload"] = False
    profiler.route.set_route_from_json(route)
    profiler.enable()
    torch.sigmoid(x)
    profiler.disable()
    charted = json.loads(profiler.chart.fancy_print())
    assert charted == [{"offload": False, "signature": signature}]
    profiler.route.clear()
    profiler.chart.clear_beacon()


def test_all_programs_run_in_one_process() -> None:
    output = run_python(REGION_OF_INTEREST + STATS + KERNEL_LOG + CHART + ROUTE)
    assert CHARTED in output
