"""The stream of events, and its views: counters, verbose lines, recordings, profiles agree."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.backends.zendnn.observe.events import Event, Recording

from .common import CPU, counting, of_products, run_python, stock, values

ZENDNN = torch.backends.zendnn


def events(function: Callable[[], object]) -> list[Event]:
    """The events of ``function``'s operators."""
    with ZENDNN.record() as recording:
        function()
    return list(recording)


def optimised(module: nn.Module, x: Tensor) -> torch.jit.ScriptModule:
    """``module`` optimised into plans, which have run on ``x``."""
    frozen = torch.jit.freeze(torch.jit.script(module.eval()))
    result = torch.jit.optimize_for_inference(frozen)
    with torch.no_grad():
        result(x)
    return result


@pytest.fixture(scope="module")
def layers() -> tuple[torch.jit.ScriptModule, Tensor]:
    """A plan with a packed product and two steps on our kernels."""
    x = values(64, 256)
    return optimised(nn.Sequential(nn.Linear(256, 128), nn.Softmax(-1), nn.LayerNorm(128)), x), x


@of_products
def test_an_event_has_operator_route_operands_and_implementation() -> None:
    a, b = values(40, 70), values(70, 50)
    (event,) = events(lambda: torch.mm(a, b))
    assert (event.operator, event.route, event.reason) == ("aten::mm", "eager", "")
    assert event.implementation.startswith("matmul ")
    assert event.shapes == ((40, 70), (70, 50))
    assert event.strides == ((70, 1), (50, 1))
    assert event.dtypes == (torch.float32, torch.float32)
    assert event.dtype == torch.float32
    assert event.ms > 0


def test_events_have_places_in_time_and_threads() -> None:
    x = values(4, 64)
    before = time.monotonic_ns()

    def function() -> None:
        torch.sigmoid(x)
        thread = threading.Thread(target=torch.sigmoid, args=(x,))
        thread.start()
        thread.join()
        torch.sigmoid(x)

    first, second, third = events(function)
    assert before < first.start < first.end <= second.start < second.end <= third.start
    assert third.end < time.monotonic_ns()
    assert first.thread == third.thread != second.thread


def test_recordings_leave_out_what_printing_computes() -> None:
    assert [event.operator for event in events(lambda: repr(torch.sigmoid(values(4, 64))))] == [
        "aten::sigmoid"
    ]


def test_ranges_are_recorded_only_where_they_are_wanted() -> None:
    x = values(4, 64)
    ranges = Recording(ranges=True, arguments=True)
    found = events(lambda: torch.clamp(x, 0, 1))
    ranges.stop()
    torch.clamp(x, 0, 1)
    assert found == []
    (range_,) = (event for event in ranges if event.operator == "aten::clamp")
    tensor, *numbers = range_.arguments
    assert (range_.route, tensor.device.type, tensor.shape) == ("", "meta", x.shape)
    assert numbers == [0, 1]


def test_an_event_of_our_kernel_names_its_instruction_set() -> None:
    (event,) = events(lambda: torch.softmax(values(4, 64), -1))
    assert event.implementation == f"softmax kernel:{CPU['kernels']}"


def test_an_event_of_torch_has_a_reason() -> None:
    x = values(40, 40)
    with stock():
        off = events(lambda: torch.mm(x, x))
    found = off + events(lambda: torch.mm(x.double(), x.double()))
    assert [event.route for event in found] == ["torch", "torch"]
    assert [event.reason for event in found] == [
        "ZenDNN is switched off",
        "a dtype that ZenDNN does not support here",
    ]
    assert not any(event.implementation for event in found)


def test_a_kernel_that_falls_back_late_makes_an_event_of_torch() -> None:
    table, ids = values(10, 16), torch.tensor([1, 2, 99])

    def bags() -> None:
        with pytest.raises((RuntimeError, IndexError)):
            F.embedding_bag(ids, table, torch.tensor([0]), mode="max")

    (event,) = events(bags)
    assert (event.operator, event.route) == ("aten::_embedding_bag_forward_only", "torch")
    assert event.reason == "ids or offsets out of order"
    assert not event.implementation


def test_an_operator_that_fails_makes_an_event() -> None:
    def product() -> None:
        with pytest.raises(RuntimeError):
            torch.mm(values(3, 4), values(5, 6))

    (event,) = events(product)
    assert event.reason == "sizes that do not match"


@of_products
def test_operators_within_another_come_before_it() -> None:
    """A convolution with a kernel of size 1 is a product."""
    x = values(1, 64, 20, 20).contiguous(memory_format=torch.channels_last)
    inner, outer = events(lambda: F.conv2d(x, values(32, 64, 1, 1)))
    assert (inner.operator, outer.operator) == ("aten::mm.out", "aten::_convolution")
    assert inner.implementation == outer.implementation != ""
    assert inner.ms <= outer.ms


def test_a_plan_makes_an_event_for_each_step(layers: tuple[torch.jit.ScriptModule, Tensor]) -> None:
    module, x = layers
    found = events(lambda: module(x))
    assert [(event.operator, event.route) for event in found] == [
        ("aten::linear", "plan"),
        ("aten::softmax", "plan"),
        ("aten::layer_norm", "plan"),
    ]
    assert [event.shapes for event in found] == [
        ((64, 256), (128, 256), (128,)),
        ((64, 128),),
        ((64, 128), (128,), (128,)),
    ]
    assert {event.dtype for event in found} == {torch.float32}


def test_inputs_that_a_plan_refuses_make_an_event_with_the_reason(
    layers: tuple[torch.jit.ScriptModule, Tensor],
) -> None:
    module, x = layers
    refusal = events(lambda: module(x.requires_grad_(True)))[0]
    x.requires_grad_(False)
    assert refusal.route == "torch"
    assert refusal.reason == "an input whose gradient is wanted"


@of_products
def test_a_packed_layer_makes_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "0")
    ZENDNN._C._forget_tuning()  # the choice of another test, for the same layer
    layer, x = ZENDNN.prepack(nn.Linear(256, 128).eval()), values(64, 256)
    with torch.no_grad():
        layer(x)
        (event,) = events(lambda: layer(x))
        assert (event.operator, event.route) == ("zendnn::prepacked", "plan")
        assert event.implementation.startswith("matmul ")
        with ZENDNN.flags(enabled=True, deterministic=True):
            inner, event = events(lambda: layer(x))
    assert (inner.operator, inner.route) == ("aten::addmm", "eager")
    assert not event.implementation
    assert (event.route, event.reason) == (
        "torch",
        "results that are to be the same from run to run",
    )


def test_recordings_have_the_events_of_all_threads_while_they_run() -> None:
    x = values(4, 64)
    torch.sigmoid(x)
    with ZENDNN.record() as outer:
        thread = threading.Thread(target=torch.sigmoid, args=(x,))
        thread.start()
        thread.join()
        with ZENDNN.record() as inner:
            torch.softmax(x, -1)
        torch.sigmoid(x)
        assert len(outer) == 3
    torch.sigmoid(x)
    assert [event.operator for event in outer] == [
        "aten::sigmoid",
        "aten::_softmax",
        "aten::sigmoid",
    ]
    assert [event.operator for event in inner] == ["aten::_softmax"]
    outer.clear()
    assert len(outer) == 0


def test_a_recording_prints_as_a_table() -> None:
    with ZENDNN.record() as recording:
        assert str(recording) == ""
        for _ in range(3):
            torch.sigmoid(values(4, 64))
        torch.mm(values(8, 8).double(), values(8, 8).double())
    lines = sorted(str(recording).splitlines(), key=lambda line: line.split()[0])
    assert len(lines) == 2
    assert lines[0].split()[3:5] == ["torch", "aten::mm"]
    assert lines[0].endswith("a dtype that ZenDNN does not support here")
    assert (lines[1].split()[0], lines[1].split()[3]) == ("3", "eager")


# The views agree.


def test_counters_count_each_step_of_a_plan_once(
    layers: tuple[torch.jit.ScriptModule, Tensor],
) -> None:
    """Both on primitives and on our kernels."""
    module, x = layers
    with counting() as calls:
        module(x)
    assert calls.total() == 3
    assert (calls["softmax"], calls["layer_normalization"]) == (1, 1)
    assert calls["matmul"] + calls["inner_product"] == 1


VIEWS = """
import torch
from torch import nn
z = torch.backends.zendnn
net = nn.Sequential(nn.Linear(256, 128), nn.Softmax(-1)).eval()
module = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.script(net)))
with torch.no_grad():
    x = torch.ones(64, 256)
    module(x)
    print("begin", flush=True)
    with z.verbose({level}):
        module(x), torch.sigmoid(x), torch.mm(x.double(), x.double().t())
"""


def lines_of(level: int) -> list[list[str]]:
    """The verbose lines of a plan, of our kernel and of torch's, split at commas."""
    _, printed = run_python(VIEWS.format(level=level)).split("begin\n")
    return [line.split(",") for line in printed.splitlines() if line.startswith("zendnn_verbose")]


@of_products
def test_verbose_lines_show_each_execution_once() -> None:
    lines = lines_of(1)
    kinds = Counter(next(kind for kind in ("exec", "plan", "eager") if kind in x) for x in lines)
    assert kinds == {"plan": 2, "eager": 1}
    (eager,) = (x for x in lines if "eager" in x)
    assert eager[2:4] == [f"eltwise kernel:{CPU['kernels']}", "aten::sigmoid"]
    assert eager[4] == "Float 64x256"
    assert float(eager[5]) > 0


@of_products
def test_a_higher_level_shows_primitives_within_steps_and_fallbacks() -> None:
    lines = lines_of(2)
    assert sum("exec" in x for x in lines) == 1
    (torchs,) = (x for x in lines if x[1] == "torch")
    assert torchs[2:4] == ["a dtype that ZenDNN does not support here", "aten::mm"]


def test_the_profiler_names_each_step(layers: tuple[torch.jit.ScriptModule, Tensor]) -> None:
    module, x = layers
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.no_grad(), torch.profiler.profile(activities=activities) as profile:
        module(x)
    names = [event.name for event in profile.events()]
    (region,) = (plan.name() for plan in [module._zendnn_plan_forward_0])
    inside = names[names.index(f"zendnn::{region}") + 1 :]
    assert inside == [f"zendnn::{event.implementation}" for event in events(lambda: module(x))]


def test_results_are_the_same_with_a_listener() -> None:
    x = values(33, 65)
    for function in (torch.sigmoid, lambda x: torch.softmax(x, 0), lambda x: torch.mm(x, x.t())):
        alone = function(x)
        with ZENDNN.record():
            assert torch.equal(function(x), alone)
