"""LSTMs, GRUs and RNNs with operands of wrong sizes raise errors; they read no other memory.

torch's own LSTM checks no sizes, so the cases run in processes of their own.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from ..common import run_python, same_error, values

STEPS, ROWS, INPUTS, HIDDEN = 5, 7, 16, 32

#: Prints the first line of the error that each case raises.
PROGRAM = f"""
import torch
from torch import nn

T, B, I, H = {STEPS}, {ROWS}, {INPUTS}, {HIDDEN}

def lstm(h, c, *, steps=None, grad=False, weights=(), dtype=torch.float32, frozen=False):
    torch.manual_seed(0)
    params = [torch.randn(s, dtype=dtype) for s in ((4 * H, I), (4 * H, H), (4 * H,), (4 * H,))]
    for i, shape in dict(weights).items():
        params[i] = torch.randn(shape, dtype=dtype)
    x = torch.randn(T, B, I, dtype=dtype)
    states = [torch.randn(h, dtype=dtype), torch.randn(c, dtype=dtype)]
    with torch.set_grad_enabled(grad):
        if grad:
            params[0].requires_grad_()
        if steps is not None:
            x = torch.randn(sum(steps), I, dtype=dtype)
            return torch.lstm(x, torch.tensor(steps), states, params, True, 1, 0., False, False)
        return torch.lstm(x, states, params, True, 1, 0., False, False, False)

def report(function, *args, **named):
    try:
        function(*args, **named)
        print("no error")
    except (RuntimeError, ValueError) as error:
        print(str(error).splitlines()[0])
"""


def errors(*cases: str) -> list[str]:
    return run_python("\n".join([PROGRAM, *cases])).splitlines()


@pytest.mark.parametrize("dtype", ["torch.float32", "torch.bfloat16"])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("steps", [None, [ROWS] * 3], ids=["padded", "packed"])
@pytest.mark.parametrize("enabled", [True, False])
def test_states_of_a_wrong_size(
    dtype: str, grad: bool, steps: list[int] | None, enabled: bool
) -> None:
    sizes = [(1, ROWS, HIDDEN)] * 2
    wrong = [(1, rows, HIDDEN) for rows in (1, 2, ROWS - 1, ROWS + 1, 64)]
    cases, expected = [f"torch.backends.zendnn.enabled = {enabled}"], []
    for size in wrong:
        for at in ((0,), (1,), (0, 1)):
            h, c = (size if i in at else sizes[i] for i in range(2))
            cases.append(f"report(lstm, {h}, {c}, steps={steps}, grad={grad}, dtype={dtype})")
            text = f"size ({ROWS}, {HIDDEN}), got {list(size[1:])}"
            expected.append(f"Expected hidden[{at[0]}] {text}")
    assert errors(*cases) == expected


def test_weights_of_a_wrong_shape() -> None:
    state = (1, ROWS, HIDDEN)
    shapes: list[tuple[int, tuple[int, ...], str]] = [
        (0, (4 * HIDDEN, INPUTS // 2), "weight_ih size (128, 16), got [128, 8]"),
        (0, (4 * HIDDEN, INPUTS + 1), "weight_ih size (128, 16), got [128, 17]"),
        (0, (2 * HIDDEN, INPUTS), "weight_ih size (128, 16), got [64, 16]"),
        (1, (4 * HIDDEN, HIDDEN // 2), "weight_hh size (128, 32), got [128, 16]"),
        (1, (HIDDEN, HIDDEN), "weight_hh size (128, 32), got [32, 32]"),
    ]
    cases = [f"report(lstm, {state}, {state}, weights=[({i}, {s})])" for i, s, _ in shapes]
    assert errors(*cases) == [f"Expected {text}" for *_, text in shapes]
    (mismatch, small, right) = errors(
        f"report(lstm, {state}, {state}, weights=[(2, (32,))])",
        f"report(lstm, {state}, {state}, weights=[(2, (1,)), (3, (1,))])",
        f"report(lstm, {state}, {state}, weights=[(3, (1,))])",
    )
    assert mismatch.startswith("The size of tensor a (32) must match the size of tensor b (128)")
    assert small == "Expected bias size (128), got [1]"
    assert right == "no error"


def test_a_layer_that_is_called_directly() -> None:
    layer = "torch.ops.aten.mkldnn_rnn_layer"
    rest = "False, [], 2, H, 1, True, False, False, False"
    cases = [
        "w, u, b = torch.randn(4 * H, I), torch.randn(4 * H, H), torch.randn(4 * H)",
        "x, h = torch.randn(T, B, I), torch.randn(B, H)",
        "torch.set_grad_enabled(False)",
        f"report({layer}, x, w, u, b, b, h[:2], h, {rest})",
        f"report({layer}, x, w, u, b, b, h, h[:2], {rest})",
        f"report({layer}, x[0], w, u, b, b, h, h, {rest})",
        f"report({layer}, x, w, u, b, b, h[:, :4], h[:, :4], {rest})",
        # Memory in another order, in which the kernel would read other numbers.
        "y = torch.randn(B, I, T).permute(2, 0, 1)",
        "g = torch.randn(H, B).t()",
        f"a = {layer}(y, w, u, b, b, g, g, {rest})[0]",
        f"c = {layer}(*(t.contiguous() for t in (y, w, u, b, b, g, g)), {rest})[0]",
        "print(torch.equal(a, c))",
    ]
    assert errors(*cases) == [
        "Expected hidden[0] size (7, 32), got [2, 32]",
        "Expected hidden[1] size (7, 32), got [2, 32]",
        "Expected input to be 3D, got 2D",
        "Expected hidden[0] size (7, 32), got [7, 4]",
        "True",
    ]


def test_gradients_of_a_wrong_size() -> None:
    cases = [
        "w, u, b = torch.randn(4 * H, I), torch.randn(4 * H, H), torch.randn(4 * H)",
        "x, h = torch.randn(T, B, I).requires_grad_(), torch.randn(B, H)",
        "layer = torch.ops.aten.mkldnn_rnn_layer",
        "rest = (False, [], 2, H, 1, True, False, False, True)",
        "y, hy, cy, w_ = layer(x, w, u, b, b, h, h, *rest)",
        "def back(h, grad, gh):",
        "    return torch.ops.aten.mkldnn_rnn_layer_backward(x, w, u, b, b, h, h, y, hy, cy, grad, "
        "gh, None, False, 2, H, 1, True, True, False, [], False, w_)",
        "report(back, h, torch.ones(T, B, H), torch.ones(B, H))",
        "report(back, h[:1], torch.ones(T, B, H), torch.ones(B, H))",
        "report(back, h, torch.ones(1, B, H), torch.ones(B, H))",
        "report(back, h, torch.ones(T, B, H), torch.ones(1, H))",
    ]
    assert errors(*cases) == [
        "no error",
        "Expected hidden[0] size (7, 32), got [1, 32]",
        "Expected gradient of the output size (5, 7, 32), got [1, 7, 32]",
        "Expected gradient of hidden[0] size (7, 32), got [1, 32]",
    ]


@pytest.mark.parametrize("kind", ["gru", "rnn_tanh", "rnn_relu"])
@pytest.mark.parametrize("rows", [1, 2, ROWS + 1])
@pytest.mark.parametrize("steps", [STEPS, 20])
def test_others_raise_torchs_errors(kind: str, rows: int, steps: int) -> None:
    gates = (3 if kind == "gru" else 1) * HIDDEN
    params = [values(gates, INPUTS), values(gates, HIDDEN), values(gates), values(gates)]
    x, state = values(steps, ROWS, INPUTS), values(1, rows, HIDDEN)
    function: Any = getattr(torch, kind)
    with torch.no_grad():
        same_error(lambda: function(x, state, params, True, 1, 0.0, False, False, False))
        sizes = torch.tensor([ROWS] * steps)
        data = x.flatten(0, 1)
        same_error(lambda: function(data, sizes, state, params, True, 1, 0.0, False, False))


def test_modules_raise_torchs_errors() -> None:
    """nn.LSTM checks states itself, unless it is traced or scripted."""
    lstm, x = nn.LSTM(INPUTS, HIDDEN).eval(), values(STEPS, ROWS, INPUTS)
    small = values(1, 2, HIDDEN)
    assert same_error(lambda: lstm(x, (small, small))) == (
        "Expected hidden[0] size (1, 7, 32), got [1, 2, 32]"
    )


def test_frozen_modules_raise_errors() -> None:
    cases = [
        "net = nn.LSTM(I, H).eval()",
        "x, h = torch.randn(T, B, I), torch.randn(1, B, H)",
        "class Net(nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        "        self.net = net",
        "    def forward(self, x, h, c):",
        "        return self.net(torch.relu(x), (h, c))[0]",
        "made = torch.jit.trace(Net().eval(), (x, h, h))",
        "made = torch.jit.optimize_for_inference(torch.jit.freeze(made))",
        "with torch.no_grad():",
        "    made(x, h, h)",
        "    try:",
        "        made(x, h[:, :2], h)",
        "    except RuntimeError as error:",
        "        print('Expected hidden[0] size (7, 32), got [2, 32]' in str(error))",
    ]
    assert errors(*cases) == ["True"]
