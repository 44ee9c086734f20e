"""The doctor's checks of a model: planted problems, and what was tried on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.backends.zendnn.doctor import model, trials
from torch.backends.zendnn.doctor.findings import Finding, examine
from torch.backends.zendnn.doctor.model import Observation, observe
from torch.backends.zendnn.doctor.observe import Loop, ModelCall, Operation, Script, operations
from torch.backends.zendnn.doctor.trials import Trial

from ..common import of_products
from .clean import MODEL, PRODUCT, copy, event, operand


def found(seen: Observation) -> dict[str, Finding]:
    """Findings by the names of their checks."""
    return {finding.check: finding for finding in examine(model.CHECKS, seen)}


def seen(module: nn.Module, *arguments: Tensor, **settings: Any) -> Observation:
    """What is observed of a call, without timing variants."""
    return observe(ModelCall(module.eval(), arguments, **settings), Loop(), measure=False)


class Function(nn.Module):
    """A module of a function."""

    def __init__(self, function: Any, **parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, *x: Tensor) -> Any:
        return self.function(self, *x)


def test_nothing_is_found_in_a_clean_model() -> None:
    assert examine(model.CHECKS, MODEL) == ()


def test_nothing_is_found_in_a_real_model_that_is_clean() -> None:
    net = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512))
    assert examine(model.CHECKS, seen(net, torch.rand(64, 512))) == ()


# Planted problems


def test_float64_is_found_with_its_line() -> None:
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU()).double()
    finding = found(seen(net, torch.rand(8, 64, dtype=torch.float64)))["double"]
    assert "addmm" in finding.problem
    assert "relu" in finding.problem
    assert finding.evidence.startswith(("test_model.py:", "doctor/"))
    assert finding.cost is not None
    assert finding.cost > 50
    assert "fallbacks" not in found(seen(net, torch.rand(8, 64, dtype=torch.float64)))


def test_one_number_of_float64_is_no_problem() -> None:
    net = Function(lambda self, x: x * torch.tensor(2.0, dtype=torch.float64))
    assert "double" not in found(seen(net, torch.rand(8, 64)))


def test_channels_last_ping_pong_is_found() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        for layer in (self.a, self.b):
            x = layer(x.contiguous(memory_format=torch.channels_last)).contiguous()
        return x

    net = Function(forward, a=nn.Conv2d(8, 8, 3), b=nn.Conv2d(8, 8, 3))
    finding = found(seen(net, torch.rand(2, 8, 16, 16)))["ping_pong"]
    assert finding.problem == "images change their layout 4 times"
    assert finding.evidence.startswith("to channels_last, contiguous, channels_last, contiguous; ")
    assert "test_model.py:" in finding.evidence


def test_one_change_of_layout_and_back_is_no_problem() -> None:
    def forward(self: Any, x: Tensor) -> Any:
        return self.a(x.to(memory_format=torch.channels_last)).contiguous()

    net = Function(forward, a=nn.Conv2d(8, 8, 3))
    assert "ping_pong" not in found(seen(net, torch.rand(2, 8, 16, 16)))


@pytest.mark.parametrize("where", ["weights", "results"])
def test_subnormals_are_found(where: str) -> None:
    net = nn.Linear(64, 64, bias=False)
    with torch.no_grad():
        net.weight.fill_(1e-40 if where == "weights" else 1e-20)
    finding = found(seen(net, torch.full((8, 64), 1.0 if where == "weights" else 1e-20)))
    evidence = "100 % of weight" if where == "weights" else "100 % of a result of mm"
    assert evidence in finding["subnormals"].evidence
    assert "torch.set_flush_denormal(True)" in finding["subnormals"].fix


def test_what_subnormals_cost_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "SECONDS", 0.005)
    x = torch.full((1 << 16,), 1e-40)
    call = ModelCall(Function(lambda self, x: x * 0.5), (x,))
    assert 0 <= trials.flush_gain(call) <= 100
    assert call().max() > 0, "subnormals are 0 from now on"


def test_a_batch_of_one_in_a_loop_is_found() -> None:
    trial = Trial(f"batch x {trials.LARGER}", "x of more rows", 1.0, 60.0)
    finding = found(replace(MODEL, batch=1, trials=(trial,)))["single"]
    assert (finding.problem, finding.cost) == ("100 calls had a batch of 1", 60.0)
    assert "single" not in found(replace(MODEL, batch=1, loop=Loop(2)))


def test_gradients_and_modes_are_found() -> None:
    recorded = found(seen(nn.Linear(8, 8), torch.rand(4, 8), gradients=True))
    assert recorded["gradients"].fix == "with torch.no_grad():"
    assert "training" in found(replace(MODEL, training=True))
    assert found(replace(MODEL, gradients=True, training=True)) == {}


def test_time_between_calls_is_found() -> None:
    assert found(replace(MODEL, loop=Loop(50, 2.0, 10.0)))["waiting"].cost == 80.0


def test_operators_that_fall_back_are_found_with_the_reason() -> None:
    def changed(reason: str) -> Observation:
        fallen = replace(PRODUCT, events=(event("torch", reason),))
        return replace(MODEL, operations=(*MODEL.operations, fallen))

    finding = found(changed("an input whose gradient is wanted"))["fallbacks"]
    assert finding.problem == "mm ran on torch's kernels: an input whose gradient is wanted"
    assert (finding.evidence, finding.fix) == ("m.py:1", "with torch.no_grad():")
    assert finding.cost == pytest.approx(100 * 5 / 17)
    assert found(changed("a product too small to gain")) == {}


def test_conversions_and_copies_are_found() -> None:
    lower = copy(operand(), operand(dtype=torch.bfloat16), 5.0)
    transposed = copy(operand("other"), operand(), 5.0)
    changed = replace(MODEL, operations=(PRODUCT, lower, transposed))
    assert found(changed).keys() == {"conversions", "copies"}
    assert found(changed)["conversions"].evidence == "torch.float32 to torch.bfloat16; m.py:2"


# What is observed


@of_products
def test_operators_come_with_the_events_of_zendnn() -> None:
    net = nn.Sequential(nn.Linear(256, 256), nn.Hardshrink())
    linear, shrink = (
        operation
        for operation in operations(ModelCall(net, (torch.rand(64, 256),)))
        if operation.operator != "aten::t"
    )
    assert (linear.operator, linear.event and linear.event.route) == ("aten::addmm", "eager")
    assert (shrink.operator, shrink.event) == ("aten::hardshrink", None)
    assert [x.sizes for x in shrink.results] == [(64, 256)]


def test_steps_of_plans_are_operators_and_what_is_left_out_is_told() -> None:
    net = nn.Sequential(nn.Linear(256, 128), nn.Softmax(-1), nn.Hardshrink()).eval()
    frozen = torch.jit.freeze(torch.jit.trace(net, torch.rand(64, 256)))
    observed = seen(torch.jit.optimize_for_inference(frozen), torch.rand(64, 256))

    def route(operation: Operation) -> str | None:
        return operation.event.route if operation.event else None

    assert [(x.operator, route(x)) for x in observed.operations] == [
        ("aten::linear", "plan"),
        ("aten::softmax", "plan"),
        ("aten::hardshrink", None),
    ]
    assert [item[:2] for item in observed.left_out] == [("1", "aten::hardshrink")]


SCRIPT = """
import sys, torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 4)
    def forward(self, x, *, scale):
        return self.inner(x) * scale

net = Net().eval()
with torch.no_grad():
    for _ in range(int(sys.argv[1])):
        net(torch.rand(1, 8), scale=2.0)
{end}
"""


@pytest.mark.parametrize(
    ("end", "failure"),
    [
        ("", ""),
        ("sys.exit(0)", ""),
        ("raise KeyboardInterrupt", ""),
        ("sys.exit(3)", "the script ended with code 3"),
        ("1 / 0", "the script failed: ZeroDivisionError: division by zero"),
    ],
)
def test_a_script_is_observed_until_it_ends(end: str, failure: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.format(end=end))
    script = Script()
    script.run(tmp_path / "script.py", ["9"])
    assert script.failure == failure
    assert script.main
    call, loop = script.main
    assert type(call.module).__name__ == "Net"
    assert call.keywords == {"scale": 2.0}
    assert (call.batch, call.gradients, loop.calls) == (1, False, 9)
    assert 0 < loop.inside <= loop.total
    assert call().shape == (1, 4)
    nn.Linear(8, 8)(torch.rand(1, 8))
    assert len(script.calls) == 1, "the script is not observed any more"


def test_variants_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "SECONDS", 0.001)
    net = nn.Sequential(nn.Conv2d(4, 8, 3), nn.Flatten(), nn.Linear(288, 4)).eval().double()
    call = ModelCall(net, (torch.rand(2, 4, 8, 8, dtype=torch.float64),), gradients=True)
    reported: list[str] = []
    tried = {trial.name: trial for trial in trials.attempt(call, reported.append)}
    names = {variant.name for variant in trials.VARIANTS}
    assert tried.keys() == {"as it is", *names} - {"half of the threads"} | (
        {"half of the threads"} if torch.get_num_threads() > 1 else set()
    )
    timed = {name for name, trial in tried.items() if trial.ms}
    assert {"as it is", "no gradients", "frozen", "compiled", "float32"} <= timed
    assert {"channels last", "batch x 8"} <= timed
    assert "results differ by" in tried["float32"].note
    assert reported[-1] == f"trying half of the threads ({len(names)} of {len(names)})"
    assert net[0].weight.dtype == torch.float64
    assert net[0].weight.is_contiguous()


def test_a_variant_that_fails_says_why() -> None:
    net = Function(lambda self, x: x.view(2, 8))
    call = ModelCall(net, (torch.rand(4, 4),))
    variant = next(variant for variant in trials.VARIANTS if variant.name.startswith("batch"))
    trial = trials._attempt(call, variant, call())
    assert trial
    assert trial.ms is None
    assert trial.note.startswith("fails: shape '[2, 8]' is invalid")
