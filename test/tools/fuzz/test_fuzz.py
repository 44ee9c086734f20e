"""tools/fuzz: seeds determine models, wrong front ends are found, finds shrink."""

from __future__ import annotations

import argparse
import copy
import math
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch._dynamo
from torch.backends.zendnn import _compile

from tools.fuzz import __main__ as command
from tools.fuzz import check as check_module
from tools.fuzz import worker as worker_module
from tools.fuzz.blocks import HEADERS, with_block
from tools.fuzz.chains import with_chain
from tools.fuzz.check import Verdict
from tools.fuzz.check.front_ends import FRONT_ENDS, FrontEnd
from tools.fuzz.check.source import Code
from tools.fuzz.generate import generate
from tools.fuzz.model import KINDS, LAYOUTS, Data, Model, Node, source, tensors
from tools.fuzz.operators import names
from tools.fuzz.shrink import shrink
from tools.fuzz.worker import Worker, checked, draw_settings
from tools.fuzz.writes import (
    CACHES,
    COPIES,
    FROM,
    PART,
    PART_FROM,
    POSITIONS,
    READS,
    WHOLE,
    with_writes,
)

ROOT = Path(__file__).parents[3]
X = Data("v0", (6, 4))


def node(number: int, expression: str, *arguments: int, operator: str = "", **more: Any) -> Node:
    """Return node ``v{number}`` of shape (6, 4)."""
    read = tuple(f"v{argument}" for argument in arguments)
    name = operator or f"op{number}"
    return Node(f"v{number}", name, read, expression, **{**PLAIN, **more})


PLAIN: dict[str, Any] = {"weights": (), "shape": (6, 4), "dtype": "float32"}
CHAIN = Model(
    7,
    (
        node(1, "torch.tanh({0})", 0),
        node(2, "F.linear({0}, {w0})", 1, weights=(Data("v2_0", (4, 4), kind="scaled"),)),
        node(3, "torch.relu({0})", 2),
        node(4, "{0} + {1}", 3, 1),
        node(5, "torch.exp({0})", 1),
    ),
    ((X,), (replace(X, shape=(1, 4)),)),
    ("v4", "v5"),
)

#: A trace of it takes as many rows as its first inputs have.
COUNTED = replace(CHAIN, nodes=(node(1, "torch.stack(torch.unbind({0}))", 0),), outputs=("v1",))


class Off(torch.nn.Module):
    """Simulates a faulty optimisation: it spoils one element of the first result."""

    def __init__(self, module: Any, value: float) -> None:
        super().__init__()
        self.module, self.value = module, value

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first, *rest = (x.clone() for x in self.module(*inputs))
        first.view(-1)[0] += self.value
        return (first, *rest)


def fake(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    """Add a front end ``fake`` that is off by a value."""
    front_end = FrontEnd(lambda module, inputs: module, lambda module: Off(module, value))
    monkeypatch.setattr(check_module, "FRONT_ENDS", {"fake": front_end})


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> None:
    """Add a front end ``fake`` that raises an error, or else returns its inputs."""

    def run(*inputs: torch.Tensor) -> Any:
        if error is not None:
            raise error
        return inputs

    front_end = FrontEnd(lambda module, inputs: module, lambda module: run)
    monkeypatch.setattr(check_module, "FRONT_ENDS", {"fake": front_end})


def computing(expression: str) -> Code:
    """Return a model with one input ``x``."""
    return Code(
        "class Model(torch.nn.Module):\n"
        "    def __init__(self, weights):\n"
        "        super().__init__()\n"
        "    def forward(self, x):\n"
        f"        return ({expression},)\n"
        "class Nudged(Model):\n"
        "    pass\n"
    )


def test_a_model_comes_from_its_seed_and_index_alone() -> None:
    first = [generate(5, index, 4) for index in range(6)]
    assert generate(5, 4, 4) == first[4]
    assert len({source(model) for model in first}) > 1
    assert generate(6, 4, 4) != first[4]
    assert Model.read(first[4].as_dict()) == first[4]


def test_another_process_draws_the_same_model_and_tensors() -> None:
    worker = Worker({})
    got = worker.generate(5, 3, 4, False)
    worker.close()
    here = generate(5, 3, 4)
    assert got == here
    again = tensors(here, here.inputs[0])
    for name, x in tensors(here, here.inputs[0]).items():
        assert torch.equal(x, again[name]) or x.isnan().any()


def test_generated_models_run_and_have_the_declared_shapes() -> None:
    for index in range(12):
        model = generate(11, index, 5)
        code = Code(source(model)).classes(torch.float32)
        net = code["Model"](tensors(model, list(model.weights().values())))
        results = net(*tensors(model, model.inputs[0]).values())
        shapes = {node.result: node.shape for node in model.nodes}
        assert [tuple(x.shape) for x in results] == [shapes[name] for name in model.outputs]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (2, 3, 4, 5), (1, 1, 1)])
def test_every_layout_keeps_the_shape(layout: str, shape: tuple[int, ...]) -> None:
    data = Data("x", shape, layout=layout)
    x = tensors(CHAIN, [data])["x"]
    assert x.shape == shape
    assert layout == "expanded" or torch.equal(x, tensors(CHAIN, [Data("x", shape)])["x"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_every_kind_gives_the_shape(kind: str, shape: tuple[int, ...]) -> None:
    x = tensors(CHAIN, [Data("x", shape, kind=kind)])["x"]
    assert x.shape == shape
    assert x.dtype == torch.float32


def test_kinds_bring_nan_infinities_and_subnormals() -> None:
    x = tensors(CHAIN, [Data("x", (50, 50), kind="all")])["x"]
    assert x.isnan().any()
    assert x.isposinf().any()
    assert x.isneginf().any()
    assert ((x != 0) & (x.abs() < torch.finfo().tiny)).any()
    assert set(KINDS) >= {"nan", "infinite", "subnormal"}


@pytest.mark.parametrize(
    ("value", "outcome"),
    [(0.0, "same"), (1e-6, "same"), (0.1, "differs"), (math.nan, "nonfinite")],
)
def test_a_wrong_front_end_is_found(
    monkeypatch: pytest.MonkeyPatch, value: float, outcome: str
) -> None:
    fake(monkeypatch, value)
    verdict = checked(CHAIN, "fake")
    assert verdict.outcome == outcome
    assert verdict.is_find == (outcome != "same")


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_an_infinity_in_place_of_a_number_is_found(
    monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    fake(monkeypatch, value)
    assert checked(CHAIN, "fake").outcome == "nonfinite"


def test_an_implementation_that_was_struck_off_is_a_find_despite_a_right_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built = {"refused": "", "wrong": ["jit:avx2 for aten::linear"]}
    reported = {"methods": [{"regions": [{"built": [built]}], "left_out": None}]}
    explained = SimpleNamespace(as_dict=lambda: reported)
    monkeypatch.setattr(torch.backends.zendnn, "explain", lambda _: explained)
    verdict = checked(CHAIN, "trace")
    assert (verdict.outcome, verdict.detail) == ("struck", "jit:avx2 for aten::linear")
    assert verdict.is_find


def test_models_that_stock_computes_unstably_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, 0.1)
    edge = (node(1, "{0} * 0 + 1", 0), node(2, "torch.floor({0})", 1))
    unstable = replace(CHAIN, nodes=edge, outputs=("v2",))
    assert checked(unstable, "fake").outcome == "unstable"


@pytest.mark.parametrize("x", [1.25, 1.0])
def test_branches_that_rounding_decides_are_skipped(
    monkeypatch: pytest.MonkeyPatch, x: float
) -> None:
    """At 1.0, how many numbers round to that or less is even or odd."""
    inputs = torch.full((2, 3), x)
    is_even = "int((x <= 1).sum()) % 2 == 0"
    failing(monkeypatch, RuntimeError("no"))
    raising = computing(f"x if {is_even} else x[5]")
    verdict = check_module.check(raising, {}, [[inputs]], "fake")
    assert verdict.outcome == ("unstable" if x == 1 else "raises")
    front_end = FrontEnd(lambda module, inputs: module, lambda module: lambda x: (x[:1], x))
    monkeypatch.setattr(check_module, "FRONT_ENDS", {"fake": front_end})
    verdict = check_module.check(computing(f"x if {is_even} else x[:1]"), {}, [[inputs]], "fake")
    assert verdict.outcome == ("unstable" if x == 1 else "shape")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(RuntimeError, "same"), (IndexError, "same"), (ValueError, "raises"), (NameError, "raises")],
)
def test_any_operator_that_raises_may_raise_first(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception], outcome: str
) -> None:
    lines = "y = x.view(5)\n        z = x[7]\n        return (y + z,)\n"
    text = computing("x").text.replace("return (x,)\n", lines)
    failing(monkeypatch, error("no"))
    assert check_module.check(Code(text), {}, [[torch.ones(2, 3)]], "fake").outcome == outcome


def test_trying_each_statement_leaves_the_weights_as_they_were() -> None:
    weights = {"w": torch.zeros(3)}
    text = computing("self.w.add_(x)").text
    writing = Code(text.replace("super().__init__()", "super().__init__(); self.w = weights['w']"))
    assert writing.errors(torch.float32, weights, [torch.ones(3)]) == []
    assert not weights["w"].any()


@pytest.mark.parametrize(("value", "outcome"), [(1.0, "differs"), (1e-40, "unstable")])
def test_bfloat16_products_may_flush_subnormals(
    monkeypatch: pytest.MonkeyPatch, value: float, outcome: str
) -> None:
    fake(monkeypatch, 0.1)
    x = torch.full((2, 3), value, dtype=torch.bfloat16)
    code = computing("torch.sign(x)")
    assert check_module.check(code, {}, [[x]], "fake").outcome == outcome


@pytest.mark.parametrize(("value", "outcome"), [(1.0, "differs"), (math.inf, "unstable")])
def test_causal_attention_is_compared_only_for_finite_inputs(
    monkeypatch: pytest.MonkeyPatch, value: float, outcome: str
) -> None:
    """NaN in masked keys, which kernels treat differently, may become a number after it."""
    fake(monkeypatch, 0.1)
    x = torch.full((1, 3, 2), value)
    attention = "F.scaled_dot_product_attention(x, x, x, None, 0.0, True)"
    code = computing(f"torch.where({attention} > 0, {attention}, 0.25)")
    assert check_module.check(code, {}, [[x]], "fake").outcome == outcome


REFUSED = replace(CHAIN, nodes=(node(1, "{0}.view(5, 5)", 0),), outputs=("v1",))


def test_a_front_end_raises_what_stock_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [checked(REFUSED, name).outcome for name in ("script", "eager")] == ["same"] * 2
    assert checked(REFUSED, "trace").outcome == "refused"  # by torch.jit.trace itself


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(RuntimeError("no"), "same"), (IndexError("no"), "raises"), (None, "accepts")],
)
def test_another_error_than_stocks_is_found(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, outcome: str
) -> None:
    failing(monkeypatch, error)
    verdict = checked(REFUSED, "fake")
    assert verdict.outcome == outcome
    assert verdict.is_find == (outcome != "same")


def test_a_dtype_of_stocks_own_graphs_is_no_find() -> None:
    bias = Data("v1_1", (4,), "float64")
    mixed = node(1, "F.linear({0}, {w0}, {w1})", 0, weights=(Data("v1_0", (4, 4)), bias))
    turned = Data("v0", (2, 3, 4), layout="transposed")
    model = replace(CHAIN, nodes=(mixed,), outputs=("v1",), inputs=((turned,),))
    assert checked(model, "compile").outcome == "upstream"  # float64, and float32 in eager mode


def test_wrong_indices_are_compared_by_their_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = Data("v0", (6,), "int64")
    table = Data("v1_0", (8, 4))
    nodes = (node(1, "F.embedding({0} + 4, {w0})", 0, weights=(table,)),)
    model = replace(CHAIN, nodes=nodes, outputs=("v1",))
    model = replace(model, inputs=((ids,), (replace(ids, kind="wrong_normal"),)))
    assert checked(model, "script").outcome == "same"
    lenient = FrontEnd(
        lambda module, inputs: module,
        lambda module: lambda ids: module(ids.clamp(-4, 3)),
    )
    monkeypatch.setattr(check_module, "FRONT_ENDS", {"fake": lenient})
    verdict = checked(model, "fake")
    assert verdict.outcome == "accepts"
    assert verdict.detail.startswith("inputs 1: stock raises IndexError: ")


@pytest.mark.parametrize("front_end", ["trace", "script", "eager", "compile"])
def test_chains_of_hundreds_are_checked(front_end: str) -> None:
    model = with_chain(CHAIN, random.Random(1))
    assert len(model.nodes) > 100
    assert len(model.outputs) == len(CHAIN.outputs)
    assert checked(model, front_end).outcome == "same"


def test_sizes_that_a_model_does_not_support_are_skipped() -> None:
    fixed = replace(CHAIN, nodes=(node(1, "{0}.view(4, 6)", 0),), outputs=("v1",))
    assert [checked(fixed, name).outcome for name in ("trace", "script", "eager")] == ["same"] * 3


def test_a_trace_with_a_size_of_its_first_inputs_is_no_find() -> None:
    assert checked(COUNTED, "trace").outcome == "same"


def test_a_wrong_result_where_stocks_graph_raises_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def ours(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (x + int(len(x) != 6),)

    front_end = FrontEnd(FRONT_ENDS["trace"].stock, lambda module: ours)
    monkeypatch.setattr(check_module, "FRONT_ENDS", {"fake": front_end})
    verdict = checked(COUNTED, "fake")
    assert (verdict.outcome, verdict.is_find) == ("accepts", True)
    assert "Expected 6 elements in a list but found 1" in verdict.detail


STATEFUL = Code(
    """class Model(torch.nn.Module):
    def __init__(self, weights: Dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.register_buffer("state", weights["state"])

    def forward(self, x: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        written = self.state.index_copy_(0, torch.tensor([1]), x.narrow(0, 0, 1))
        y = torch.cat(torch.chunk(x, 2, 1), 1)
        y.masked_fill_(written > 0, 0.5)
        return (y, written)


class Nudged(Model):
    pass
"""
)


def test_results_of_a_call_that_stock_refuses_are_not_compared_later() -> None:
    weights = {"state": torch.tensor([[1.0, 2.0], [3.0, 4.0]])}
    runs = [[torch.tensor([[5.0, 6.0], [7.0, 8.0]])], [torch.tensor([[9.0, 10.0]])]]
    assert check_module.check(STATEFUL, weights, runs, "trace").outcome == "same"


#: Freezing drops the product, which raises for two rows, and a trace splits no single row.
FORGIVING = Code(
    """class Model(torch.nn.Module):
    def __init__(self, weights: Dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.register_buffer("rows", weights["rows"])
        self.register_buffer("place", weights["place"])

    def forward(self, x: torch.Tensor) -> Tuple[torch.Tensor]:
        y = torch.cat(torch.chunk(x, 2, 0), 0)
        unused = y * torch.ones(3, 1)
        written = self.rows.index_copy_(0, self.place % 3, y.narrow(0, 0, 1))
        self.place.add_(1)
        return (written,)


class Nudged(Model):
    pass
"""
)


def test_what_a_call_has_written_is_taken_back_where_eager_mode_raises() -> None:
    """From stock's graph as from ours, or the two would write elsewhere from then on."""
    weights = {"rows": torch.zeros(3, 1), "place": torch.tensor([0])}
    runs = [[torch.arange(1.0, 1.0 + rows).view(rows, 1)] for rows in (3, 1, 2)]
    assert check_module.check(FORGIVING, weights, runs, "trace").outcome == "upstream"


#: Freezing makes a constant of the zeros, which each call adds to.
COUNTING = Code(
    """class Model(torch.nn.Module):
    def __init__(self, weights: Dict[str, torch.Tensor]) -> None:
        super().__init__()

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> Tuple[torch.Tensor]:
        y = torch.zeros(2, 2)
        for _ in range(int(n)):
            y = x + x
        y.narrow(0, 0, 1).add_(0.25)
        return (y,)


class Nudged(Model):
    pass
"""
)


def test_a_constant_that_torch_itself_writes_is_no_find() -> None:
    runs = [[torch.ones(2, 2), torch.tensor(0)]]
    assert check_module.check(COUNTING, {}, runs, "script").outcome == "upstream"


def test_strides_that_torch_itself_foretells_wrongly_are_no_find() -> None:
    nodes = (
        node(1, "F.logsigmoid({0})", 0),
        node(2, "{0}.select(0, 3).copy_({1}.select(0, 0))", 1, 0),
        node(3, "{0}.index_add(0, torch.tensor([3, 2, 1, 0]), {0})", 1),
    )
    model = replace(CHAIN, nodes=nodes, outputs=("v3", "v2"))
    turned = Data("v0", (4, 2, 2), layout="transposed")
    assert checked(replace(model, inputs=((turned,),)), "compile").outcome == "same"


@pytest.mark.parametrize(
    ("when", "outcome"),
    [
        ("True", "crash"),
        ("torch.backends.zendnn.enabled", "crash"),
        ("not torch.backends.zendnn.enabled", "upstream"),
    ],
)
def test_a_crash_is_a_find_unless_only_stock_crashes(when: str, outcome: str) -> None:
    kill = f"({when}) and __import__('os').kill(__import__('os').getpid(), 11)"
    crash = replace(CHAIN, nodes=(node(1, f"({kill}, {{0}})[1]", 0),), outputs=("v1",))
    worker = Worker({})
    try:
        (verdict,) = worker.check(crash, ["eager", "trace"])
        assert (verdict.outcome, verdict.front_end) == (outcome, "eager")
        assert "signal 11" in verdict.detail
        assert [v.outcome for v in worker.check(CHAIN, ["trace", "eager"])] == ["same", "same"]
    finally:
        worker.close()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("when", "outcome"), [("True", "upstream"), ("torch.backends.zendnn.enabled", "timeout")]
)
def test_a_hang_is_a_find_unless_stock_hangs_too(
    when: str, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "LIMIT", 15)
    monkeypatch.setattr(worker_module, "STOCKS_PART", 1)
    text = f"(0 * sum(range(10**10 * {when})) or {{0}})"
    hang = replace(CHAIN, nodes=(node(1, text, 0),), outputs=("v1",))
    worker = Worker({})
    try:
        assert [verdict.outcome for verdict in worker.check(hang, ["eager"])] == [outcome]
        assert [v.outcome for v in worker.check(CHAIN, ["eager"])] == ["same"]
    finally:
        worker.close()


COMPILED = ("compile", "compile-dynamic")


@pytest.mark.parametrize("front_end", COMPILED)
def test_compiled_models_run_plans(front_end: str) -> None:
    verdict = checked(CHAIN, front_end)
    assert verdict.outcome == "same"
    assert verdict.steps > 0
    assert not any(reason.startswith("a graph stays") for reason in verdict.refusals)


@pytest.mark.parametrize("front_end", COMPILED)
def test_a_graph_that_stays_as_it_is_is_told(
    front_end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **named: Any) -> None:
        raise RuntimeError("no reason")

    monkeypatch.setattr(_compile.InferenceGraph, "of", fail)
    verdict = checked(CHAIN, front_end)
    assert (verdict.outcome, verdict.steps) == ("same", 0)
    assert set(verdict.refusals) == {
        "a graph stays as it is, on eager operations (TORCH_LOGS=+aot shows where): no reason"
    }


def test_a_compiler_that_gives_up_is_found() -> None:
    with torch._dynamo.config.patch(recompile_limit=1):
        assert checked(CHAIN, "compile").outcome == "raises"
        assert checked(replace(CHAIN, inputs=CHAIN.inputs[:1]), "compile").outcome == "same"


def test_a_front_end_that_misses_changed_weights_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    stale = FrontEnd(lambda module, inputs: module, copy.deepcopy)
    monkeypatch.setattr(check_module, "FRONT_ENDS", {"fake": stale})
    assert checked(CHAIN, "fake").outcome == "same"
    monkeypatch.setattr(check_module, "FRONT_ENDS", {"fake": replace(stale, as_eager=True)})
    verdict = checked(CHAIN, "fake")
    assert verdict.outcome == "differs"
    assert verdict.detail.startswith("other weights: ")


def as_made(x: torch.Tensor) -> torch.Tensor:
    return x


def channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def transposed(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous().t()


@pytest.mark.parametrize(
    ("expression", "changed", "outcome"),
    [
        ("{0}.t()", as_made, "same"),
        ("{0}.t()", torch.clone, "memory"),
        ("{0} + 1", torch.clone, "same"),
        ("({0} + 1).t()", torch.Tensor.contiguous, "memory"),
        ("({0} + 1).view(-1, 2, 2, 1)", channels_last, "memory"),
        # Torch's fake tensors foretell the input's strides, which eager mode does not keep.
        ("F.logsigmoid({0}.t())", transposed, "same"),
    ],
)
def test_results_in_other_memory_are_found(
    expression: str,
    changed: Callable[[torch.Tensor], torch.Tensor],
    outcome: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ours(module: torch.nn.Module) -> Any:
        return lambda *inputs: tuple(map(changed, module(*inputs)))

    front_end = FrontEnd(lambda module, inputs: module, ours, as_eager=True)
    monkeypatch.setattr(check_module, "FRONT_ENDS", {"fake": front_end})
    model = replace(CHAIN, nodes=(node(1, expression, 0),), outputs=("v1",))
    assert checked(model, "fake").outcome == outcome


STATE = Data("state0", (6, 4))
SUMS = Model(
    7,
    (
        node(1, "{w0}.add_({0})", 0, operator="add_", weights=(STATE,)),
        node(2, "{0} * 2.0", 1),
        node(3, "{0}.mul_(0.5)", 0, operator="mul_"),
        node(4, "{0} + 1.0", 0),
    ),
    ((X,), (replace(X, layout="transposed"),)),
    ("v2", "v4"),
)


def stateless(module: torch.nn.Module) -> Any:
    return lambda *inputs: copy.deepcopy(module)(*inputs)


def reading_only(module: torch.nn.Module) -> Any:
    return lambda *inputs: module(*(x.clone() for x in inputs))


class OneBuffer:
    """Simulates a plan that returns memory of its own."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.results: list[torch.Tensor] = []

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        result = self.module(*inputs)
        self.results = self.results or list(result)
        return tuple(own.copy_(x) for own, x in zip(self.results, result, strict=True))


class OneConstant(OneBuffer):
    """Simulates a plan that returns its own constants."""

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.results = self.results or list(self.module(*inputs))
        return tuple(self.results)


@pytest.mark.parametrize(
    ("ours", "detail"),
    [
        (lambda module: module, ""),
        (stateless, "inputs 1: result 0 is off"),
        (reading_only, "inputs 0: input 0 afterwards is off"),
        (OneBuffer, "inputs 1: it changes result 0 of the earlier calls"),
    ],
)
def test_lost_and_surplus_writes_are_found(
    ours: Callable[[torch.nn.Module], Any], detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    front_end = FrontEnd(lambda module, inputs: module, ours)
    monkeypatch.setattr(check_module, "FRONT_ENDS", {"fake": front_end})
    verdict = checked(SUMS, "fake")
    assert verdict.is_find == bool(detail)
    assert verdict.detail.startswith(detail)


def test_writing_the_same_numbers_rounded_otherwise_is_no_find(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def rounding(module: torch.nn.Module) -> Any:
        factors = iter([1.0, 1.0 + 2e-7, 1.0, 1.0])
        return lambda x: module(x * next(factors))

    front_end = FrontEnd(lambda module, inputs: module, rounding)
    monkeypatch.setattr(check_module, "FRONT_ENDS", {"fake": front_end})
    weights, x = {"state": torch.zeros(2, 2)}, torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert check_module.check(STATEFUL, weights, [[x], [x.clone()]], "fake").outcome == "same"


def test_constants_that_a_caller_may_change_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    front_end = FrontEnd(lambda module, inputs: module, OneConstant)
    monkeypatch.setattr(check_module, "FRONT_ENDS", {"fake": front_end})
    model = replace(CHAIN, nodes=(node(1, "torch.tanh({w0})", 0, weights=(STATE,)),))
    model = replace(model, inputs=model.inputs[:1], outputs=("v1",))
    verdict = checked(model, "fake")
    assert (verdict.outcome, verdict.detail[:15]) == ("differs", "inputs 0 again:")


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_writes_and_states_are_as_in_eager_mode(front_end: str) -> None:
    assert checked(SUMS, front_end).outcome == "same"


def test_writes_are_drawn_from_the_seed_alone() -> None:
    drawn = [with_writes(CHAIN, random.Random(seed)) for seed in range(200)]
    assert drawn == [with_writes(CHAIN, random.Random(seed)) for seed in range(200)]
    chosen = {operator for model in drawn for operator in model.operators()}
    tables = (WHOLE, FROM, PART, PART_FROM, COPIES, READS, CACHES, POSITIONS)
    assert chosen >= {operator for table in tables for operator in table}


def test_shrinking_keeps_and_drops_writes() -> None:
    def fails(model: Model) -> bool:
        return "{w0}.add_({0})" in [node.expression for node in model.nodes]

    small = shrink(SUMS, fails)
    assert [node.expression for node in small.nodes if node.writes] == ["{w0}.add_({0})"]
    assert len(small.nodes) <= 2


@pytest.mark.parametrize("front_end", ["script", "compile"])
@pytest.mark.parametrize("operator", HEADERS)
def test_blocks_run_as_in_eager_mode(operator: str, front_end: str) -> None:
    seeds = (seed for seed in range(200) if operator in blocked(seed).operators())
    assert checked(blocked(next(seeds)), front_end).outcome == "same"


def blocked(seed: int) -> Model:
    """Return the model of writes with a block drawn from a seed."""
    return with_block(SUMS, random.Random(seed))


ADDED = (Data("w", (6, 4)),)
TWICE = Model(
    7,
    (
        node(1, "int(({0} == {0}).sum() * 0 + 2)", 0, operator="for", shape=(), dtype="int"),
        node(2, "{w0}.add_({0})", 0, operator="add_", weights=ADDED, under="v1"),
        node(3, "{0} * {w0}", 2, weights=ADDED),
    ),
    ((X,),),
    ("v3",),
)


def test_blocks_that_run_another_number_of_times_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    once = replace(TWICE, nodes=tuple(replace(node, under="") for node in TWICE.nodes))
    result = Code(source(once)).classes(torch.float32)["Model"]
    front_end = FrontEnd(
        lambda module, inputs: module, lambda module: result(dict(module.named_buffers()))
    )
    monkeypatch.setattr(check_module, "FRONT_ENDS", {"fake": front_end})
    assert checked(TWICE, "fake").detail.startswith("inputs 0: result 0 is off")
    assert checked(once, "fake").outcome == "same"


def test_shrinking_keeps_and_drops_blocks() -> None:
    assert {x.operator for x in shrink(TWICE, lambda m: any(x.writes for x in m.nodes)).nodes} == {
        "add_"
    }

    def fails(model: Model) -> bool:
        return any(node.writes and node.under for node in model.nodes)

    assert [node.operator for node in shrink(TWICE, fails).nodes][:2] == ["for", "add_"]


def test_the_smallest_failing_model_is_found() -> None:
    def fails(model: Model) -> bool:
        return any(node.expression.startswith("torch.relu") for node in model.nodes)

    small = shrink(CHAIN, fails)
    assert [node.operator for node in small.nodes] == ["op3"]
    assert small.outputs == ("v3",)
    assert [data.shape for run in small.inputs for data in run] == [(1, 1)]


def test_shrinking_keeps_what_a_failure_needs() -> None:
    def fails(model: Model) -> bool:
        chosen = {node.operator for node in model.nodes}
        wide = any(data.shape[-1:] == (4,) for data in model.inputs[0])
        return {"op1", "op4"} <= chosen and wide and len(model.inputs) == 2

    small = shrink(CHAIN, fails)
    assert [node.operator for node in small.nodes] == ["op1", "op4"]
    assert len(small.inputs) == 2


def test_shrinking_ends_after_its_trials() -> None:
    tried = []

    def fails(model: Model) -> bool:
        tried.append(model)
        return False

    assert shrink(CHAIN, fails, 5) == CHAIN
    assert len(tried) == 5


def test_a_saved_find_can_be_repeated(tmp_path: Path) -> None:
    save = command.save
    save(tmp_path / "1-2", CHAIN, Verdict("differs", "trace", "by 3"), {"OMP_NUM_THREADS": "1"})
    run = [sys.executable, "repeat.py"]
    done = subprocess.run(run, cwd=tmp_path / "1-2", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "outcome='same'" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["1-2"]


def test_settings_come_from_the_seed() -> None:
    drawn = [draw_settings(3, block) for block in range(20)]
    assert drawn == [draw_settings(3, block) for block in range(20)]
    assert len({tuple(settings.items()) for settings in drawn}) > 5


def test_the_command_prints_a_summary_and_succeeds_without_a_find(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    outcome = Verdict("same", "eager")
    monkeypatch.setattr(Worker, "check", lambda self, model, front_ends: [outcome])
    arguments = ["--seed", "1", "--count", "3", "--front-end", "eager", "--out", str(tmp_path)]
    assert command.main(arguments) == 0
    reported = capsys.readouterr().out
    assert reported.startswith("seed 1\n")
    assert "3 models" in reported
    assert "3 same" in reported
    assert "finds: 0" in reported


def test_the_command_fails_and_names_the_folder_of_a_find(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    outcome = Verdict("differs", "eager", "by 3")
    monkeypatch.setattr(Worker, "check", lambda self, model, front_ends: [outcome])
    arguments = ["--seed", "1", "--index", "2", "--front-end", "eager", "--out", str(tmp_path)]
    assert command.main(arguments) == 1
    assert f"python {tmp_path}/1-2/repeat.py" in capsys.readouterr().out
    assert (tmp_path / "1-2" / "repeat.py").exists()


def test_a_run_without_a_plan_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    arguments = ["--seed", "1", "--count", "30", "--out", str(tmp_path)]
    arguments += ["--front-end", "compile", "--front-end", "eager"]
    for steps, code in ((0, 1), (1, 0)):
        found = [Verdict("same", "compile", steps=steps), Verdict("same", "eager")]
        monkeypatch.setattr(Worker, "check", lambda self, model, names, found=found: found)
        assert command.main(arguments) == code
        reported = capsys.readouterr().out
        assert ("no plan ran on: compile\n" in reported) == bool(code)
        assert f"30 same; {30 * steps} with plans" in reported


def test_slow_front_ends_get_a_share_of_the_models() -> None:
    def chosen(**options: Any) -> list[list[str]]:
        arguments = argparse.Namespace(**{"seed": 3, "index": None, "front_end": None, **options})
        fuzzer = command.Fuzzer(arguments)
        return [fuzzer._front_ends(index) for index in range(300)]

    names = list(FRONT_ENDS)
    drawn = chosen()
    assert drawn == chosen()
    assert {len(some) for some in drawn} == {4, len(names)}
    assert 80 < drawn.count(names) < 120
    assert chosen(index=7) == [names] * 300
    assert chosen(front_end=["compile"]) == [["compile"]] * 300


def test_the_table_has_nnsmith_operators_and_those_that_it_lacks() -> None:
    wanted = {"attention", "layer_norm", "rms_norm", "recurrent", "embedding_bag", "MaxPool2d"}
    assert wanted <= set(names())
