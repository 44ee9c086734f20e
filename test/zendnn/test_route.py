"""``torch.backends.zendnn.profiler.route``: chosen calls run on torch's own kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.backends.zendnn.observe import routing

from .common import of_products, stock, values

ZENDNN = torch.backends.zendnn
PROFILER = ZENDNN.profiler
ROUTE = PROFILER.route
REASON = "the route says torch"

X, W, B = values(64, 256), values(256, 128), values(128)
ROWS = values(4, 64)


@pytest.fixture(autouse=True)
def _no_route() -> Iterator[None]:
    yield
    ROUTE.clear()
    PROFILER.chart.clear_beacon()


def rules(*some: dict[str, Any]) -> dict[str, Any]:
    """A route of some rules, which send to torch unless they say otherwise."""
    whole = [{"offload": False} | rule for rule in some]
    return {"format": "torch.backends.zendnn route", "version": 1, "rules": whole}


def routes(function: Callable[[], object]) -> list[tuple[str, str, str]]:
    """Operator, route and reason of each event."""
    with ZENDNN.record() as events:
        function()
    return [(event.operator, event.route, event.reason) for event in events]


def ran_on(function: Callable[[], object], operator: str) -> list[str]:
    """Where the operator's calls ran."""
    return [route for name, route, _ in routes(function) if name == operator]


def optimized(module: nn.Module) -> Any:
    return torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.script(module.eval())))


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 64), nn.Softmax(-1))


# Eager operators


def test_an_operator_goes_to_torch_and_says_why() -> None:
    ROUTE.set_route_from_json(rules({"operator": "aten::_softmax"}))
    assert ("aten::_softmax", "torch", REASON) in routes(lambda: torch.softmax(ROWS, -1))
    assert ran_on(lambda: torch.sigmoid(ROWS), "aten::sigmoid") == ["eager"]
    ROUTE.clear()
    assert ran_on(lambda: torch.softmax(ROWS, -1), "aten::_softmax") == ["eager"]


def test_results_are_those_of_torch() -> None:
    with stock():
        expected = torch.softmax(ROWS, -1)
    ROUTE.set_route_from_json(rules({"operator": "*"}))
    assert torch.equal(torch.softmax(ROWS, -1), expected)


@of_products
@pytest.mark.parametrize(
    "operator", ["aten::linear", "linear", "aten::addmm", "aten::addmm.default"]
)
def test_an_operator_may_be_one_that_calls_ours(operator: str) -> None:
    ROUTE.set_route_from_json(rules({"operator": operator}))
    layer = nn.Linear(256, 128)
    assert ran_on(lambda: layer(X), "aten::addmm") == ["torch"]
    assert ran_on(lambda: X @ W, "aten::mm") == ["eager"]


@pytest.mark.parametrize(
    ("shapes", "on"),
    [
        ([[4, 64]], "torch"),
        ([["*", 64]], "torch"),
        ([["*", "*"]], "torch"),
        ([None], "torch"),
        ([[4, 32]], "eager"),
        ([["*"]], "eager"),
        ([["*", "*", "*"]], "eager"),
        ([[4, 64], None], "eager"),
    ],
)
def test_a_pattern_of_shapes_chooses_calls(shapes: list[Any], on: str) -> None:
    ROUTE.set_route_from_json(rules({"operator": "aten::_softmax", "shapes": shapes}))
    assert ran_on(lambda: torch.softmax(ROWS, -1), "aten::_softmax") == [on]


def test_the_first_rule_that_matches_decides() -> None:
    ROUTE.set_route_from_json(
        rules(
            {"operator": "aten::_softmax", "shapes": [["*", 64]], "offload": True},
            {"operator": "aten::_softmax"},
            {"operator": "*"},
            {"operator": "aten::gelu", "offload": True},
        )
    )
    assert ran_on(lambda: torch.softmax(ROWS, -1), "aten::_softmax") == ["eager"]
    assert ran_on(lambda: torch.softmax(ROWS.T, -1), "aten::_softmax") == ["torch"]
    assert ran_on(lambda: torch.sigmoid(ROWS), "aten::sigmoid") == ["torch"]


@pytest.mark.parametrize("operator", ["aten::rms_norm", "aten::gru.input"])
def test_a_composite_goes_to_torch_with_the_operators_that_it_calls(operator: str) -> None:
    gru, x = nn.GRU(16, 16), values(8, 16, 16)
    ROUTE.set_route_from_json(rules({"operator": operator}))

    def function() -> None:
        with torch.no_grad():
            nn.functional.rms_norm(ROWS, (64,))
            gru(x)

    found = [route for name, route, _ in routes(function) if name == operator]
    assert found == ["torch"]


@of_products
def test_gradients_follow_rules_of_their_own() -> None:
    ROUTE.set_route_from_json(rules({"operator": "aten::linear"}))
    x, layer = X.clone().requires_grad_(), nn.Linear(256, 128)
    events = routes(lambda: layer(x).sum().backward())
    assert {route for name, route, _ in events if name == "aten::addmm"} == {"torch"}
    assert {route for name, route, _ in events if name == "aten::mm"} == {"eager"}


# Charts


def test_a_chart_chooses_call_by_call_and_begins_again() -> None:
    ROUTE.set_route_from_json(
        [
            {"signature": "aten::sigmoid", "offload": True},
            {"signature": "aten::cumprod", "offload": False},
            {"signature": "aten::sigmoid", "offload": False},
        ]
    )

    def function() -> None:
        torch.sigmoid(ROWS)
        torch.cumprod(ROWS, 0)
        torch.sigmoid(ROWS)

    for _ in range(2):
        assert ran_on(function, "aten::sigmoid") == ["eager", "torch"]
    torch.sigmoid(ROWS)
    with PROFILER:
        assert ran_on(function, "aten::sigmoid") == ["eager", "torch"]


def test_the_chart_that_the_profiler_wrote_is_a_route(tmp_path: Path) -> None:
    PROFILER.chart.add_beacon("aten::sigmoid")
    with PROFILER:
        torch.sigmoid(ROWS)
        torch.sigmoid(ROWS)
    chart = json.loads(PROFILER.chart.json())
    assert [entry["offload"] for entry in chart] == [True, True]
    chart[1]["offload"] = False
    file = tmp_path / "chart.json"
    file.write_text(json.dumps(chart))
    for route in (chart, json.dumps(chart), file, str(file)):
        ROUTE.set_route_from_json(route)
        found = ran_on(lambda: (torch.sigmoid(ROWS), torch.sigmoid(ROWS)), "aten::sigmoid")
        assert found == ["eager", "torch"]


def test_a_signature_of_hammerblade_is_understood() -> None:
    signature = "at::Tensor at::native::sigmoid(const at::Tensor& self)"
    ROUTE.set_route_from_json([{"signature": signature, "offload": False}])
    assert ran_on(lambda: torch.sigmoid(ROWS), "aten::sigmoid") == ["torch"]


def test_a_model_that_does_not_follow_the_chart_is_told_once() -> None:
    ROUTE.set_route_from_json(
        [
            {"signature": "aten::sigmoid", "offload": False},
            {"signature": "aten::gelu", "offload": False},
        ]
    )
    with pytest.warns(UserWarning, match=r"aten::gelu as call 2, where the model calls aten::sigm"):
        found = ran_on(lambda: (torch.sigmoid(ROWS), torch.sigmoid(ROWS)), "aten::sigmoid")
    assert found == ["torch", "eager"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.sigmoid(ROWS)
        torch.sigmoid(ROWS)


# Plans


def plan_of(module: Any) -> Any:
    (method,) = ZENDNN.explain(module).methods
    (region,) = method.regions
    return region


@of_products
def test_a_plan_leaves_operators_to_torch_and_takes_them_again() -> None:
    module = network()
    plan = optimized(module)
    with torch.no_grad():
        expected = plan(X)
        ROUTE.set_route_from_json(rules({"operator": "aten::linear", "shapes": [["*", 128]]}))
        assert plan_of(plan).built == ()
        torch.testing.assert_close(plan(X), expected)
        (built,) = plan_of(plan).built
        (left,) = built.left_to_torch
        assert (left.operator, left.reason) == (("aten::linear",), REASON)
        assert "left to torch\n" in str(ZENDNN.explain(plan))
        found = routes(lambda: plan(X))
        assert ("aten::linear", "torch", REASON) in found  # the plan's step
        # The operator that torch computes does not come back to us.
        assert ("aten::addmm", "torch", REASON) in found
        assert ("aten::addmm", "eager", "") not in found
        ROUTE.clear()
        assert torch.equal(plan(X), expected)
        assert plan_of(plan).built[0].left_to_torch == ()


@of_products
def test_an_operator_that_is_fused_goes_with_the_one_that_it_is_fused_into() -> None:
    plan = optimized(network())
    ROUTE.set_route_from_json(rules({"operator": "aten::relu"}))
    with torch.no_grad():
        plan(X)
    (built,) = plan_of(plan).built
    assert [left.operator for left in built.left_to_torch] == [("aten::linear", "aten::relu")]


@of_products
@pytest.mark.parametrize("by", ["name", "half", "others"])
def test_a_region_goes_to_torch(by: str) -> None:
    plan = optimized(network())
    name = plan_of(plan).name
    by_kind: dict[str, list[dict[str, Any]]] = {
        "name": [{"operator": f"zendnn::{name}", "shapes": [["*", 256]]}],
        # More than half of its operators.
        "half": [{"operator": "aten::linear"}, {"operator": "aten::softmax"}],
        "others": [{"operator": "*"}],
    }
    ROUTE.set_route_from_json(rules(*by_kind[by]))
    with torch.no_grad():
        found = routes(lambda: plan(X))
    assert (name, "torch", REASON) in found
    assert all(route != "plan" for _, route, _ in found)
    on = "eager" if by == "name" else "torch"
    assert {route for operator, route, _ in found if operator == "aten::addmm"} == {on}
    (built,) = plan_of(plan).built
    assert built.refused == REASON


@of_products
def test_a_chart_counts_the_operators_of_plans() -> None:
    plan = optimized(network())
    PROFILER.chart.add_beacon("aten::linear")
    PROFILER.chart.add_beacon("aten::sigmoid")

    def function() -> None:
        torch.sigmoid(ROWS)
        plan(X)
        torch.sigmoid(ROWS)

    with torch.no_grad():
        function()
        with PROFILER:
            function()
        chart = json.loads(PROFILER.chart.json())
        assert [entry["offload"] for entry in chart] == [True] * 4
        for entry in (chart[2], chart[3]):
            entry["offload"] = False
        ROUTE.set_route_from_json(chart)
        for _ in range(2):
            assert ran_on(function, "aten::sigmoid") == ["eager", "torch"]
            (built,) = plan_of(plan).built
            assert [left.operator for left in built.left_to_torch] == [("aten::linear",)]
            assert built.steps[-1].does == ("aten::softmax",)


@of_products
def test_a_compiled_model_follows_a_route_without_compiling_again() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(network().eval(), backend="zendnn")
    with torch.no_grad():
        expected = compiled(X)
        ROUTE.set_route_from_json(rules({"operator": "aten::linear", "shapes": [["*", 128]]}))
        frames = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        torch.testing.assert_close(compiled(X), expected)
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == frames
    assert REASON in str(ZENDNN.explain(compiled))
    torch._dynamo.reset()


@of_products
def test_a_prepacked_layer_goes_to_torch() -> None:
    layer = ZENDNN.prepack(nn.Linear(256, 128).eval())
    ROUTE.set_route_from_json(rules({"operator": "zendnn::prepacked"}))
    with torch.no_grad():
        found = routes(lambda: layer(X))
    assert ("prepacked", "torch", REASON) in found
    assert all(route == "torch" for _, route, _ in found)


# Files


@pytest.mark.parametrize(
    ("route", "error"),
    [
        (rules({"operator": "aten::nothing"}), "torch has no operator 'aten::nothing'"),
        ([{"signature": "aten::nothing", "offload": True}], "torch has no operator"),
        (rules() | {"version": 2}, "the route is of version 2: .* reads version 1"),
        (rules() | {"format": "else"}, 'the route has no "format"'),
        ({}, 'the route has no "format"'),
        (rules() | {"rules": {}}, "the route has no list of rules"),
        (3, "the route has no list of entries"),
        ([3], 'entry 1 of the route has no "signature"'),
        ([{"signature": "aten::mm"}], 'entry 1 of the route has no "offload"'),
        (rules({"operator": "aten::mm", "offload": 1}), 'rule 1 of the route has no "offload"'),
        (
            rules({"operator": "aten::mm", "calls": 1}),
            'rule 1 .* has "calls", which has no meaning',
        ),
        ([{"signature": "aten::mm", "offload": True, "shapes": []}], 'has "shapes", which has no'),
        (rules({"operator": "aten::mm", "shapes": [4]}), 'has "shapes" that are no list of lists'),
        (rules({"operator": "aten::mm", "shapes": [[-1]]}), "rule 1 of the route has a size -1"),
        (rules({"operator": "aten::mm", "shapes": [["x"]]}), "has a size 'x'"),
        (rules({"operator": "*", "shapes": [["*"]]}), 'is for "\\*": only a rule without shapes'),
        ("{", "the route is no JSON"),
    ],
)
def test_a_wrong_route_is_refused_and_changes_nothing(route: Any, error: str) -> None:
    ROUTE.set_route_from_json(rules({"operator": "aten::sigmoid"}))
    with pytest.raises(ValueError, match=error):
        ROUTE.set_route_from_json(route)
    assert ran_on(lambda: torch.sigmoid(ROWS), "aten::sigmoid") == ["torch"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"none\.json"):
        ROUTE.set_route_from_json(tmp_path / "none.json")


_SCRIPT = """
import torch
with torch.backends.zendnn.record() as events:
    torch.sigmoid(torch.rand(4, 64))
print([event.route for event in events])
"""


def test_the_environment_may_name_a_route(tmp_path: Path) -> None:
    file = tmp_path / "route.json"
    file.write_text(json.dumps(rules({"operator": "aten::sigmoid"})))
    environment = {**os.environ, "ZENDNN_ROUTE": str(file)}
    command = [sys.executable, "-c", _SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "['torch']\n"


def test_a_wrong_route_in_the_environment_warns_and_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "route.json"
    file.write_text(json.dumps(rules() | {"version": 2}))
    monkeypatch.setenv("ZENDNN_ROUTE", str(file))
    with pytest.warns(UserWarning, match=r"^ZENDNN_ROUTE sets no route: the route .* version 2"):
        routing.set_from_environment()
    assert ran_on(lambda: torch.sigmoid(ROWS), "aten::sigmoid") == ["eager"]


# Measuring


@of_products
def test_the_best_route_is_measured_and_written(tmp_path: Path) -> None:
    module, file = network().eval(), tmp_path / "route.json"
    measured = ROUTE.measure(module, (X,), file, seconds=0)
    assert {x.operator for x in measured.calls} == {"aten::addmm", "aten::_softmax"}
    assert all(x.zendnn_ms > 0 and x.torch_ms and x.torch_ms > 0 for x in measured.calls)
    assert {x.calls for x in measured.calls} == {1}
    assert measured.ms[measured.best] == min(measured.ms.values())
    assert json.loads(file.read_text()) == measured.route
    assert list(tmp_path.iterdir()) == [file]
    ROUTE.set_route_from_json(file)


@of_products
def test_operators_in_plans_are_measured_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = optimized(network())
    measured = ROUTE.measure(plan, {"input": X}, seconds=0)
    found = {(x.operator, x.shapes[0]): x.torch_ms for x in measured.calls}
    assert found.keys() == {
        ("aten::linear", (64, 256)),
        ("aten::linear", (64, 128)),
        ("aten::softmax", (64, 64)),
    }
    assert found["aten::linear", (64, 256)]
    assert found["aten::softmax", (64, 64)] is None  # plans compute all softmaxes
    assert "all on ZenDNN" in str(measured)


def _measured(monkeypatch: pytest.MonkeyPatch, ms: dict[str, float]) -> Any:
    """What is measured where runs take so long with each route, and torch is faster for calls."""
    module = sys.modules[ROUTE.measure.__module__]
    call = ROUTE.Timed("aten::sigmoid", ((4, 64),), 1, 2.0, 1.0)
    monkeypatch.setattr(module, "_time_calls", lambda run: (call,))
    monkeypatch.setattr(module, "_compare", lambda run, routes, seconds: ms)
    return ROUTE.measure(torch.sigmoid, (ROWS,))


@pytest.mark.parametrize(
    ("ms", "rules_"),
    [
        ((2.0, 3.0, 1.0), [{"operator": "aten::sigmoid", "shapes": [[4, 64]], "offload": False}]),
        ((1.0, 3.0, 1.1), []),
        ((2.0, 1.0, 1.1), [{"operator": "*", "offload": False}]),
    ],
)
def test_the_fastest_route_is_kept(
    ms: tuple[float, ...], rules_: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("all on ZenDNN", "all on torch", "by call")
    measured = _measured(monkeypatch, dict(zip(names, ms, strict=True)))
    assert measured.route["rules"] == rules_
