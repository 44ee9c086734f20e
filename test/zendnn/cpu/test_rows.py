"""The table of overrides: each row refuses with a reason and falls back to torch's kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.backends.zendnn import _C
from torch.backends.zendnn.observe.events import Event

from ..common import outcome, stock, values

ZENDNN = torch.backends.zendnn
aten = torch.ops.aten

OFF = "ZenDNN is switched off"

X = values(4, 6).double()
IMAGES = values(1, 2, 4, 4).double()
HEADS = values(1, 2, 3, 4).double()
IDS, OFFSETS = torch.tensor([0, 1, 2]), torch.tensor([0])
STATE = values(1, 4, 6).double()
GATES = values(18, 6).double()


def _square() -> Tensor:
    return values(4, 4).double()


def _batch() -> Tensor:
    return values(2, 4, 4).double()


def _layer_norm() -> Any:
    return aten.native_layer_norm(X, [6], None, None, 1e-5)


def _attention() -> Any:
    return aten._scaled_dot_product_flash_attention_for_cpu(HEADS, HEADS, HEADS)


def _attention_backward() -> Any:
    with stock():
        out, sums = _attention()
    return aten._scaled_dot_product_flash_attention_for_cpu_backward(
        HEADS, HEADS, HEADS, HEADS, out, sums, 0.0, False
    )


def _batch_norm_backward() -> Any:
    parameter = values(2).double()
    return aten.native_batch_norm_backward(
        IMAGES, IMAGES, parameter, None, None, parameter, parameter, True, 1e-5, [True] * 3
    )


def _lstm_layer(dtype: torch.dtype = torch.float64) -> Any:
    x = values(3, 4, 6, dtype=dtype)
    gates, bias = values(24, 6, dtype=dtype), values(24, dtype=dtype)
    state = values(4, 6, dtype=dtype)
    return aten.mkldnn_rnn_layer(
        *(x, gates, gates, bias, bias, state, state),
        *(False, [], 2, 6, 1, True, False, False, True),
    )


def _lstm_layer_backward() -> Any:
    with stock():
        x = values(3, 4, 6).requires_grad_()
        out, _ = torch.nn.LSTM(6, 6)(x)
    return out.sum().backward()


def _function(name: str, form: str) -> Any:
    if form == ".out":
        return getattr(aten, name).out(X, out=X.clone())
    return getattr(aten, f"{name}{form}")(X.clone())


#: A call of each overridden operator with operands that ZenDNN refuses, mostly float64.
CALLS: dict[str, Callable[[], Any]] = {
    "aten::mm": lambda: aten.mm(_square(), _square()),
    "aten::mm.out": lambda: aten.mm.out(_square(), _square(), out=_square()),
    "aten::addmm": lambda: aten.addmm(_square(), _square(), _square()),
    "aten::addmm.out": lambda: aten.addmm.out(_square(), _square(), _square(), out=_square()),
    "aten::addmm_": lambda: aten.addmm_(_square(), _square(), _square()),
    "aten::bmm": lambda: aten.bmm(_batch(), _batch()),
    "aten::bmm.out": lambda: aten.bmm.out(_batch(), _batch(), out=_batch()),
    "aten::baddbmm": lambda: aten.baddbmm(_batch(), _batch(), _batch()),
    "aten::baddbmm.out": lambda: aten.baddbmm.out(_batch(), _batch(), _batch(), out=_batch()),
    "aten::baddbmm_": lambda: aten.baddbmm_(_batch(), _batch(), _batch()),
    "aten::_scaled_dot_product_flash_attention_for_cpu": _attention,
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "aten::_convolution": lambda: torch.conv2d(IMAGES, values(3, 2, 3, 3).double()),
    "aten::convolution_backward": lambda: aten.convolution_backward(
        IMAGES,
        IMAGES,
        values(2, 2, 1, 1).double(),
        [2],
        [1, 1],
        [0, 0],
        [1, 1],
        False,
        [0, 0],
        1,
        [True] * 3,
    ),
    "aten::max_pool2d_with_indices": lambda: aten.max_pool2d_with_indices(IMAGES, [2, 2]),
    "aten::mkldnn_rnn_layer": _lstm_layer,
    "aten::mkldnn_rnn_layer_backward": _lstm_layer_backward,
    "aten::_embedding_bag": lambda: aten._embedding_bag(X, IDS, OFFSETS, False, 1),
    "aten::_embedding_bag_forward_only": lambda: aten._embedding_bag_forward_only(
        X, IDS, OFFSETS, False, 1
    ),
    "aten::bernoulli_.float": lambda: values(200).double().bernoulli_(0.5),
    "aten::native_layer_norm": _layer_norm,
    "aten::_softmax": lambda: aten._softmax(X, -1, False),
    "aten::_softmax.out": lambda: aten._softmax.out(X, -1, False, out=X.clone()),
    "aten::_log_softmax": lambda: aten._log_softmax(X, -1, False),
    "aten::_log_softmax.out": lambda: aten._log_softmax.out(X, -1, False, out=X.clone()),
    "aten::native_batch_norm": lambda: aten.native_batch_norm(
        IMAGES, None, None, None, None, True, 0.1, 1e-5
    ),
    "aten::native_batch_norm_backward": _batch_norm_backward,
    **{
        f"aten::{name}{form}": functools.partial(_function, name, form)
        for name in ("gelu", "silu", "tanh", "sigmoid")
        for form in ("", ".out", "_")
    },
    "aten::gru.input": lambda: torch.gru(
        values(20, 4, 6).double(), STATE, [GATES, GATES], False, 1, 0.0, False, False, False
    ),
    "aten::rms_norm": lambda: torch.rms_norm(X, [6]),
}


def events_of(name: str) -> list[Event]:
    with (
        ZENDNN.record() as events,
        torch.no_grad() if "backward" not in name else torch.enable_grad(),
    ):
        outcome(CALLS[name])
    return [event for event in events if event.operator == name]


def test_every_row_has_a_call() -> None:
    assert sorted(CALLS) == sorted(_C._overrides())


@pytest.mark.parametrize("name", CALLS)
def test_a_row_refuses_with_a_reason(name: str) -> None:
    (event,) = events_of(name)
    assert event.route == "torch"
    assert event.reason not in ("", OFF)
    assert not event.implementation


@pytest.mark.parametrize("name", sorted(CALLS.keys() - {"aten::mkldnn_rnn_layer_backward"}))
def test_a_row_is_switched_off(name: str) -> None:
    """Except the gradient of our own result, whose workspace only ours reads."""
    with stock():
        events = events_of(name)
    assert {event.reason for event in events} == {OFF}


# Reasons other than a dtype.


def reason_of(function: Callable[[], Any]) -> str:
    with ZENDNN.record() as events, torch.no_grad():
        outcome(function)
    return events[-1].reason


LITTLE = "too little work to bring weights into blocks for"


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (
            lambda: torch.mm(values(1, 40), values(40, 9)),
            "a matrix and a vector, which memory bounds",
        ),
        (lambda: torch.mm(values(8, 8), values(8, 8)), "a product too small to gain"),
        (lambda: torch.bmm(values(999, 3, 3), values(999, 3, 3)), "a product too small to gain"),
        (lambda: F.conv2d(values(1, 32, 2, 2), values(32, 32, 3, 3), padding=1), LITTLE),
        (lambda: F.conv1d(values(1, 64, 2), values(64, 64, 3), padding=1, stride=2), LITTLE),
        (lambda: F.conv3d(values(1, 64, 1, 2, 2), values(64, 64, 1, 1, 1)), LITTLE),
        (lambda: F.conv_transpose2d(values(1, 32, 7, 7), values(32, 64, 2, 2), stride=2), LITTLE),
        (
            lambda: torch.mm(values(40, 40), values(40, 40).bfloat16()),
            "operands with different dtypes",
        ),
        (
            lambda: torch.addmm(values(40), values(40, 40), values(40, 40), beta=1e300),
            "factors that float cannot represent",
        ),
        (lambda: torch.sigmoid(values(0)), "no elements"),
        (lambda: torch.sigmoid(values(40, 40)[:, ::2]), "elements that are not in order"),
        (lambda: torch.softmax(values(40, 40).t(), -1), "elements that are not in order"),
        (
            lambda: torch.sigmoid(values(9), out=values(9).double()),
            "a result that the kernel cannot write",
        ),
        (lambda: aten.gelu(values(9), approximate="sinh"), "an approximation of no known name"),
        (lambda: values(9).bernoulli_(0.5), "too few numbers to gain"),
        (
            lambda: torch.embedding_bag(values(9, 9), IDS, OFFSETS)[0],
            "sums and means, which torch computes as fast",
        ),
        (
            lambda: torch.max_pool2d(values(1, 2, 4, 4), 2, padding=(1, 1), dilation=2),
            "windows that lie in the padding, or too large",
        ),
    ],
)
def test_reasons(function: Callable[[], Any], reason: str) -> None:
    assert reason_of(function) == reason
