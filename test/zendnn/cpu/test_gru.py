"""GRUs for inference: right layer by layer; others fall back to torch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

from ..common import (
    DTYPES,
    assert_as_exact,
    assert_same_outcome,
    counting,
    of_products,
    same_error,
    stock,
    values,
)

OPTIONS: list[dict[str, Any]] = [
    {},
    {"batch_first": True},
    {"bidirectional": True},
    {"bias": False},
    {"num_layers": 3},
    {"num_layers": 2, "bidirectional": True, "batch_first": True, "dropout": 0.5},
    {"num_layers": 2, "bidirectional": True, "bias": False},
]


def a_gru(dtype: torch.dtype = torch.float32, **options: Any) -> nn.GRU:
    torch.manual_seed(0)
    return nn.GRU(24, 40, **options).to(dtype).eval()


@of_products
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
@pytest.mark.parametrize("starts", [False, True], ids=["from zero", "from a state"])
def test_gru_is_right(starts: bool, options: dict[str, Any], dtype: torch.dtype) -> None:
    gru = a_gru(dtype, **options)
    exact_gru = copy.deepcopy(gru).double()
    x = values(17, 16, 24, dtype=dtype)
    rows = 17 if gru.batch_first else 16
    layers = gru.num_layers * (2 if gru.bidirectional else 1)
    state = values(layers, rows, 40, dtype=dtype, seed=1) if starts else None
    with torch.no_grad():
        with counting() as calls:
            ours, our_h = gru(x, state)
        with stock():
            theirs, their_h = gru(x, state)
            exact, exact_h = exact_gru(x.double(), None if state is None else state.double())
    # Each time step reads the previous state, so rounding errors accumulate.
    assert_as_exact(ours, theirs, exact, 8.0)
    assert_as_exact(our_h, their_h, exact_h, 8.0)
    assert calls.get("rnn"), calls


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("steps", "rows"), [(3, 5), (40, 1), (16, 5), (20, 70)])
def test_gru_of_any_length_is_right(steps: int, rows: int, threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        gru, x = a_gru(), values(steps, rows, 24)
        with torch.no_grad():
            ours = gru(x)
            with stock():
                theirs = gru(x)
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_threads_clear_no_rows_of_each_other() -> None:
    """A few numbers are less than a block of columns, which then covers the next row as well.

    Threads only collide if one is late. Building and timing a plan disturbs them enough.
    """
    gru, x, state = nn.GRU(7, 5).eval(), values(16, 50, 7), 3 * values(1, 50, 5, seed=1)
    with torch.no_grad():
        with stock():
            theirs = gru(x, state)
        for _ in range(100):
            torch.backends.zendnn._C._forget_tuning()
            other = torch.jit.freeze(torch.jit.trace(nn.Linear(1, 7).eval(), values(2, 50, 1)))
            torch.jit.optimize_for_inference(other)(values(124, 50, 1))
            torch.testing.assert_close(gru(x, state), theirs, rtol=1e-5, atol=1e-5)


def test_layouts_of_input_and_weights_make_no_difference() -> None:
    gru, x = a_gru(), values(17, 24, 7).transpose(1, 2)
    state = values(1, 40, 7, seed=1).transpose(1, 2)
    gru.weight_ih_l0 = nn.Parameter(gru.weight_ih_l0.detach().t().contiguous().t())
    with torch.no_grad():
        ours = gru(x, state)
        with stock():
            theirs = gru(x, state)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_weights_are_never_cached() -> None:
    gru, x = a_gru(), values(17, 7, 24)
    with torch.no_grad():
        gru(x)
        gru.weight_hh_l0.mul_(2)
        ours = gru(x)
        with stock():
            theirs = gru(x)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_training_is_stock_torchs() -> None:
    x = values(17, 7, 24)

    def gradients() -> Tensor:
        gru = a_gru(num_layers=2)
        out, state = gru(x)
        (out.sum() + state.square().sum()).backward()
        return torch.cat([p.grad.flatten() for p in gru.parameters() if p.grad is not None])

    ours = gradients()
    with stock():
        theirs = gradients()
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_an_input_that_needs_a_gradient_gets_one() -> None:
    gru = a_gru().requires_grad_(False)
    x = values(17, 7, 24).requires_grad_()
    gru(x)[0].sum().backward()
    assert x.grad is not None
    assert x.grad.abs().sum() > 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_other_dtypes_give_the_bits_of_stock_torch(dtype: torch.dtype) -> None:
    gru, x = a_gru(dtype), values(17, 7, 24, dtype=dtype)
    with stock():
        want = gru(x)[0].detach()
    with counting() as calls:
        got = gru(x)[0].detach()
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-3)
    assert not calls.get("rnn")


def test_calls_that_zendnn_refuses_match_stock_torch() -> None:
    gru = a_gru()
    packed = nn.utils.rnn.pack_padded_sequence(values(17, 3, 24), [17, 4, 2])
    with torch.no_grad():
        ours = gru(packed)[0].data
        with torch.autocast("cpu", torch.bfloat16), counting() as calls:
            gru(values(17, 7, 24))
        assert not calls.get("rnn")
        with stock():
            torch.testing.assert_close(ours, gru(packed)[0].data, rtol=1e-5, atol=1e-5)
        x, options = values(17, 7, 24), (True, 1, 0.0, False, False, False)
        weights = gru._flat_weights
        same_error(lambda: torch.gru(x, torch.zeros(1, 5, 40), weights, *options))
        same_error(lambda: torch.gru(x, torch.zeros(1, 7, 40), weights[:3], *options))


OF_ONE_LAYER = [(48, 8), (48, 16), (48,), (48,)]
WRONG: dict[str, tuple[dict[int, tuple[int, ...]], tuple[int, ...]]] = {
    "state for two layers": ({}, (2, 3, 16)),
    "rows of the input's weight": ({0: (47, 8)}, (1, 3, 16)),
    "columns of the input's weight": ({0: (48, 9)}, (1, 3, 16)),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_parameters_give_stock_torchs_outcome(what: str) -> None:
    wrong, state = WRONG[what]
    weights = [values(*wrong.get(i, shape)) for i, shape in enumerate(OF_ONE_LAYER)]
    x, options = values(20, 3, 8), (True, 1, 0.0, False, False, False)
    assert_same_outcome(lambda: torch.gru(x, values(*state), weights, *options))


@pytest.mark.parametrize("which", ["state", "weight"])
def test_parameters_of_another_type_give_stock_torchs_error(which: str) -> None:
    weights = [values(*shape) for shape in OF_ONE_LAYER]
    state, x = values(1, 3, 16), values(20, 3, 8)
    if which == "state":
        state = state.bfloat16()
    else:
        weights[0] = weights[0].bfloat16()
    same_error(lambda: torch.gru(x, state, weights, True, 1, 0.0, False, False, False))


def test_empty_batches_and_dropout_match_stock_torch() -> None:
    weights = [values(*shape) for shape in OF_ONE_LAYER]
    options = (0.0, False, False, False)
    assert_same_outcome(
        lambda: torch.gru(values(20, 0, 8), values(1, 0, 16), weights, True, 1, *options)
    )
    second = [values(48, 16), *weights[1:]]
    dropped = (True, 2, 1.0, True, False, False)
    assert_same_outcome(
        lambda: torch.gru(values(20, 3, 8), values(2, 3, 16), [*weights, *second], *dropped)
    )


def test_a_state_that_needs_a_gradient_gets_one() -> None:
    weights = [values(*shape) for shape in OF_ONE_LAYER]
    state = values(1, 3, 16).requires_grad_()
    y, _ = torch.gru(values(20, 3, 8), state, weights, True, 1, 0.0, False, False, False)
    y.sum().backward()
    assert state.grad is not None


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_dispatch_modes_see_torchs_composite_operators(
    mode: Callable[[], AbstractContextManager[None]],
) -> None:
    gru, x = a_gru(), values(17, 7, 24)
    with mode():
        with FlopCounterMode(display=False) as flops:
            gru(x)
        assert flops.get_total_flops() > 0
        traced = make_fx(lambda x: gru(x)[0], tracing_mode="real")(x)
        assert torch.ops.aten.gru.input not in [node.target for node in traced.graph.nodes]
        torch.testing.assert_close(traced(2 * x), gru(2 * x)[0], rtol=1e-5, atol=1e-5)


def test_modes_of_torch_are_right() -> None:
    gru, x = a_gru(num_layers=2), values(17, 7, 24)
    with torch.no_grad():
        want = gru(x)[0]
        torch._dynamo.reset()
        compiled = torch.compile(gru, backend="aot_eager")
        torch.testing.assert_close(compiled(x)[0], want, rtol=1e-5, atol=1e-5)
        traced = torch.jit.trace(gru, x)
        torch.testing.assert_close(traced(x)[0], want, rtol=1e-5, atol=1e-5)
    with torch.inference_mode():
        ours = gru(x)[0]
        assert ours.is_inference()
        torch.testing.assert_close(ours, want, rtol=1e-5, atol=1e-5)
    meta = copy.deepcopy(gru).to("meta")
    assert meta(x.to("meta"))[0].shape == want.shape
