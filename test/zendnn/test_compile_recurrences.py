"""LSTMs, GRUs and RNNs of compiled and exported models run eager mode's kernels in one call."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from .common import DTYPES, counting, of_products, values

ZENDNN = torch.backends.zendnn

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.fixture(autouse=True)
def from_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "0")


class Net(nn.Module):
    """A recurrent layer between others."""

    def __init__(self, kind: str, **options: Any) -> None:
        super().__init__()
        self.before = nn.Linear(8, 16)
        self.layer = getattr(nn, kind)(16, 12, **options)
        width = options.get("proj_size", 12) * (2 if options.get("bidirectional") else 1)
        self.after = nn.Linear(width, 5)

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        out, last = self.layer(torch.relu(self.before(x)), state)
        return torch.relu(self.after(out)), last


OPTIONS: list[dict[str, Any]] = [
    {},
    {"num_layers": 3, "bidirectional": True, "batch_first": True},
    {"bias": False},
    {"num_layers": 2, "dropout": 0.5},
]
LSTMS = [*OPTIONS, {"proj_size": 7}]


def compiled(net: nn.Module, **named: Any) -> Any:
    return torch.compile(net, backend="zendnn", options={"rest": "eager"}, **named)


def operators(function: Any, *inputs: Any) -> list[tuple[str, str]]:
    """The recurrent operators that a call ran, and how."""
    with ZENDNN.record() as events:
        function(*inputs)
    return [(e.operator, e.route) for e in events if "rnn" in e.operator or "gru" in e.operator]


@of_products
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("options", LSTMS, ids=str)
def test_lstms_compile_in_one_graph(options: dict[str, Any], dtype: torch.dtype) -> None:
    net, x = Net("LSTM", **options).to(dtype).eval(), values(6, 4, 8, dtype=dtype)
    with torch.no_grad():
        want = net(x)
        result = compiled(net, fullgraph=True)
        for _ in range(3):
            torch.testing.assert_close(result(x), want)
        assert operators(result, x) == operators(net, x)
        (report,) = [ZENDNN.explain(result)]
        assert "graph 1" not in str(report)


@of_products
@pytest.mark.parametrize("kind", ["GRU", "RNN"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_others_run_the_same_kernels_between_two_graphs(kind: str, options: dict[str, Any]) -> None:
    """Dynamo would trace them for one number of steps."""
    net = Net(kind, **options).eval()
    result = compiled(net)
    with torch.no_grad():
        for steps in (6, 9, 3):
            x = values(steps, 4, 8)
            torch.testing.assert_close(result(x), net(x))
            assert operators(result, x) == operators(net, x)
            assert bool(operators(net, x)) == (kind == "GRU")  # of RNNs, eager mode has no kernel


@of_products
@pytest.mark.parametrize("options", [{}, {"batch_first": True, "bidirectional": True}], ids=str)
def test_a_compiled_lstm_takes_states_and_any_sizes(options: dict[str, Any]) -> None:
    net = Net("LSTM", **options).eval()
    directions = 2 if options else 1
    with torch.no_grad():
        result = compiled(net, dynamic=True)
        for steps, rows in ((6, 4), (9, 4), (3, 7), (5, 2)):
            x = values(*((rows, steps) if options else (steps, rows)), 8)
            torch.testing.assert_close(result(x), net(x))
            state = tuple(values(directions, rows, 12, seed=i) for i in (1, 2))
            torch.testing.assert_close(result(x, state), net(x, state))
        with pytest.raises((RuntimeError, torch._dynamo.exc.TorchDynamoException)):
            result(values(5, 2, 8), tuple(values(directions, 9, 12) for _ in range(2)))


@of_products
def test_a_compiled_lstm_follows_its_weights() -> None:
    net, x = Net("LSTM").eval(), values(6, 4, 8)
    with torch.no_grad():
        result = compiled(net)
        result(x)
        net.layer.weight_hh_l0.mul_(2)
        net.layer.bias_ih_l0.add_(1)
        torch.testing.assert_close(result(x), net(x))


@of_products
def test_other_backends_are_left_alone() -> None:
    """As is the capture of models that are trained."""
    net, x = Net("LSTM").eval(), values(6, 4, 8)
    with torch.no_grad():
        compiled(net)(x)
    assert not torch._dynamo.config.allow_rnn
    torch._dynamo.reset()
    with torch.no_grad(), pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(net, backend="eager", fullgraph=True)(x)
    trained = Net("LSTM", num_layers=2, dropout=0.5)
    result = compiled(trained)
    result(x)[0].sum().backward()
    assert trained.layer.weight_ih_l0.grad is not None
    with torch.no_grad(), torch.autocast("cpu"):
        assert result(x)[1][0].dtype == trained(x)[1][0].dtype


@of_products
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_exported_ones_run_in_one_call(kind: str, options: dict[str, Any]) -> None:
    net, x = Net(kind, **options).eval(), values(20, 4, 8)
    with torch.no_grad():
        want = net(x)
        optimised = ZENDNN.optimize(net, (x,))
        program = ZENDNN.export(net, (x,))
        for result in (optimised, copy.deepcopy(optimised), program.module()):
            torch.testing.assert_close(result(x), want)
            assert operators(result, x) == operators(net, x)
    targets = [str(node.target) for node in program.graph.nodes]
    assert targets.count("zendnn.recurrence.default") == 1


@of_products
def test_a_program_records_gradients_and_is_batched() -> None:
    net, x = nn.LSTM(8, 12).eval().requires_grad_(False), values(6, 4, 8)
    result = ZENDNN.export(net, (x,)).module()
    leaves = [x.clone().requires_grad_() for _ in range(2)]
    for function, leaf in zip((result, net), leaves, strict=True):
        function(leaf)[0].sum().backward()
    torch.testing.assert_close(leaves[0].grad, leaves[1].grad)


def test_the_operator_by_itself() -> None:
    call = torch.ops.zendnn.recurrence
    gru = nn.GRU(8, 12).eval()
    x, h = values(6, 4, 8), values(1, 4, 12)
    with torch.no_grad():
        with counting():
            result = call("gru", x, [h], gru._flat_weights, True, 1, False, False)
        torch.testing.assert_close(tuple(result), gru(x, h))
        with pytest.raises(ValueError, match="there is no sru"):
            call("sru", x, [h], gru._flat_weights, True, 1, False, False)
        with pytest.raises(RuntimeError, match="has one state"):
            call("gru", x, [h, h], gru._flat_weights, True, 1, False, False)
    fake = call("gru", *(t.to("meta") for t in (x,)), [h.to("meta")], [], True, 1, False, True)
    assert [tuple(t.shape) for t in fake] == [(6, 4, 12), (1, 4, 12)]
