"""``torch.backends.zendnn.profiler.chart``: calls of chosen operators, in order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from .common import of_products, stock, values

PROFILER = torch.backends.zendnn.profiler


@pytest.fixture(autouse=True)
def _no_beacons() -> Iterator[None]:
    PROFILER.chart.clear_beacon()
    yield
    PROFILER.chart.clear_beacon()


def chart(function: Callable[[], object], *beacons: str) -> list[tuple[str, bool]]:
    """The signature and the offload of each entry."""
    for beacon in beacons:
        PROFILER.chart.add_beacon(beacon)
    with PROFILER:
        function()
    entries = json.loads(PROFILER.chart.json())
    return [(entry["signature"], entry["offload"]) for entry in entries]


def test_calls_come_in_order_and_say_where_they_ran() -> None:
    x = values(4, 64)

    def function() -> None:
        torch.sigmoid(x)
        torch.add(x, x)
        torch.cumprod(x, 0)
        with stock():
            torch.sigmoid(x)

    assert chart(function, "aten::sigmoid", "aten::add") == [
        ("aten::sigmoid", True),
        ("aten::add", False),
        ("aten::sigmoid", False),
    ]


@of_products
def test_an_operator_that_calls_one_of_zendnn_is_offloaded() -> None:
    layer, x = nn.Linear(256, 128), values(64, 256)
    assert chart(lambda: layer(x), "aten::linear") == [("aten::linear", True)]


@of_products
def test_a_step_of_a_plan_is_a_call_of_its_operators() -> None:
    module = nn.Sequential(nn.Linear(256, 128), nn.Softmax(-1)).eval()
    plan = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.script(module)))
    x = values(64, 256)
    with torch.no_grad():
        assert chart(lambda: plan(x), "aten::linear", "aten::softmax.int") == [
            ("aten::linear", True),
            ("aten::softmax.int", True),
        ]


@pytest.mark.parametrize(
    ("beacon", "calls"),
    [
        ("aten::add", 3),
        ("add", 3),
        ("aten::add.Tensor", 2),
        ("aten::add.out", 1),
        ("at::Tensor at::add(const at::Tensor&, const at::Tensor&, const at::Scalar&)", 2),
        ("at::Tensor at::CPUType::{anonymous}::add(const Tensor &, const Tensor &, Scalar)", 2),
        ("at::Tensor& at::add_out(at::Tensor&, const at::Tensor&, const at::Tensor&, Scalar)", 1),
        ("aten::sigmoid.default", 1),
        ("at::Tensor at::native::sigmoid(const at::Tensor& self)", 1),
        ("aten::sigmoid.out", 0),
    ],
)
def test_a_beacon_may_be_an_operator_an_overload_or_a_signature(beacon: str, calls: int) -> None:
    x = values(4, 64)

    def function() -> None:
        torch.add(x, x)
        torch.add(x, 2)  # torch makes a tensor of the number
        torch.add(x, x, out=torch.empty_like(x))
        torch.sigmoid(x)

    assert len(chart(function, beacon)) == calls


@pytest.mark.parametrize("beacon", ["aten::nothing", "aten::add.nothing", "at::Tensor at::no(int)"])
def test_an_unknown_operator_is_refused(beacon: str) -> None:
    with pytest.raises(ValueError, match="torch has no operator"):
        PROFILER.chart.add_beacon(beacon)
    assert json.loads(PROFILER.chart.json()) == []


def test_the_table_has_a_line_for_each_call() -> None:
    x = values(4, 64)
    chart(lambda: (torch.sigmoid(x), torch.add(x, x)), "aten::sigmoid", "aten::add")
    _, first, second = PROFILER.chart.table().splitlines()
    assert first.split()[2:5] == ["ZenDNN", "aten::sigmoid", "eltwise"]
    assert second.split()[2:] == ["torch", "aten::add.Tensor"]
