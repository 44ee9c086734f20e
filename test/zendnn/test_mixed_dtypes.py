"""Operands of two dtypes: every front end raises where torch does, and has its dtypes elsewhere."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.backends.zendnn import export, prepack

from .common import nightly_but, outcome, stock, values
from .support.front_ends import compiled, exported, frozen

pytestmark = [
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:torch.export cannot"),
    pytest.mark.usefixtures("fresh_dynamo"),
]

#: What is computed of an input and constants, and their sizes.
CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "linear": (F.linear, [(3, 8), (4, 8), (4,)]),
    "linear then float32": (lambda x, w, b: F.linear(x, w, b).float(), [(3, 8), (4, 8), (4,)]),
    "linear then relu": (lambda x, w, b: F.linear(x, w, b).relu(), [(3, 8), (4, 8), (4,)]),
    "addmm": (lambda x, w, b: torch.addmm(b, x, w), [(3, 8), (8, 4), (4,)]),
    "addmm of a matrix": (lambda x, w, b: torch.addmm(b, x, w), [(3, 8), (8, 4), (3, 4)]),
    "baddbmm": (lambda x, w, b: torch.baddbmm(b, x, w), [(2, 3, 8), (2, 8, 4), (2, 3, 4)]),
    "product": (torch.matmul, [(3, 8), (8, 4)]),
    "product and sum": (lambda x, w, b: x @ w + b, [(3, 8), (8, 4), (4,)]),
    "product of stacks": (torch.matmul, [(2, 3, 8), (2, 8, 4)]),
    "einsum": (lambda x, w: torch.einsum("ij,jk->ik", x, w), [(3, 8), (8, 4)]),
    "conv1d": (F.conv1d, [(2, 4, 9), (8, 4, 3), (8,)]),
    "conv2d": (F.conv2d, [(2, 4, 6, 6), (8, 4, 3, 3), (8,)]),
    "conv2d then relu": (lambda *x: F.conv2d(*x).relu(), [(2, 4, 6, 6), (8, 4, 3, 3), (8,)]),
    "conv_transpose2d": (F.conv_transpose2d, [(2, 4, 6, 6), (4, 8, 3, 3), (8,)]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (8,), w, b), [(3, 8), (8,), (8,)]),
    "layer_norm of a sum": (
        lambda x, w, b: F.layer_norm(x + x.relu(), (8,), w, b),
        [(3, 8), (8,), (8,)],
    ),
    "layer_norm without bias": (lambda x, w: F.layer_norm(x, (8,), w), [(3, 8), (8,)]),
    "layer_norm without weight": (lambda x, b: F.layer_norm(x, (8,), None, b), [(3, 8), (8,)]),
    "rms_norm": (lambda x, w: F.rms_norm(x, (8,), w, 1e-5), [(3, 8), (8,)]),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), [(2, 8, 4), (8,), (8,)]),
    "batch_norm": (
        lambda x, m, v, w, b: F.batch_norm(x, m, v.abs() + 1, w, b),
        [(2, 8, 4, 4), (8,), (8,), (8,), (8,)],
    ),
    "convolution and batch_norm": (
        lambda x, k, m, w: F.batch_norm(F.conv2d(x, k), m, m.abs() + 1, w, w),
        [(2, 4, 6, 6), (8, 4, 3, 3), (8,), (8,)],
    ),
    "attention": (F.scaled_dot_product_attention, [(1, 2, 4, 8)] * 3),
    "attention with a mask": (
        lambda q, k, m: F.scaled_dot_product_attention(q, k, k, m),
        [(1, 2, 4, 8), (1, 2, 4, 8), (4, 4)],
    ),
    "attention spelled out": (
        lambda q, k, v, m: (q @ k.mT * 0.25 + m).softmax(-1) @ v,
        [(1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8), (4, 4)],
    ),
    "embedding_bag": (
        lambda x, w: F.embedding_bag(
            torch.tensor([[0, 1], [2, 1]]), x, per_sample_weights=w, mode="sum"
        ),
        [(4, 8), (2, 2)],
    ),
    "prelu": (F.prelu, [(2, 4, 3), (4,)]),
    "cat": (lambda x, w: torch.cat([x, w]), [(2, 4), (2, 4)]),
    "stack": (lambda x, w: torch.stack([x, w]), [(2, 4), (2, 4)]),
    "where": (lambda x, w: torch.where(x > w, x, w), [(2, 4), (2, 4)]),
    "maximum": (lambda x, w: torch.maximum(x, w) * 2, [(2, 4), (2, 4)]),
    "scatter": (
        lambda x, w: x.scatter(1, torch.zeros(2, 1, dtype=torch.long), w),
        [(2, 4), (2, 1)],
    ),
    "slice_scatter": (lambda x, w: torch.slice_scatter(x, w, 0, 0, 2), [(4, 4), (2, 4)]),
    "index_copy": (lambda x, w: x.index_copy(0, torch.tensor([0, 1]), w), [(4, 4), (2, 4)]),
    "masked_fill": (lambda x, w: x.masked_fill(x > 0, w[0]), [(4, 4), (1,)]),
    "rope": (
        lambda x, cos, sin: x * cos + torch.cat((-x[..., 4:], x[..., :4]), -1) * sin,
        [(2, 3, 8), (3, 8), (3, 8)],
    ),
}


class Model(nn.Module):
    """Applies a function to an input and, as constants or inputs, to the rest."""

    def __init__(self, function: Callable[..., Any], constants: list[Tensor]) -> None:
        super().__init__()
        self.function = function
        for i, constant in enumerate(constants):
            self.register_buffer(f"constant_{i}", constant)

    def forward(self, *arguments: Tensor) -> Any:
        return self.function(*arguments, *self.buffers())


FRONT_ENDS: dict[str, Callable[..., Any]] = {
    "frozen": frozen,
    "compiled": partial(compiled, rest="eager"),
    "exported": exported,
}
#: What is tried: all pairs where that is fast, elsewhere one operand that differs.
PAIR = (torch.float32, torch.bfloat16)


def dtypes_of(count: int, few: bool) -> list[tuple[torch.dtype, ...]]:
    every = itertools.product(PAIR, repeat=count)
    return [dtypes for dtypes in every if not few or dtypes.count(torch.bfloat16) <= 1]


def assert_as_stock(run: Callable[[], Any], plain: Callable[[], Any], where: str) -> None:
    with stock():
        wanted_kind, want = outcome(plain)
    kind, got = _any_outcome(run)
    assert (kind == "value") == (wanted_kind == "value"), f"{where}: {got} for {want}"
    if kind == "value":
        assert got.dtype == want.dtype, where
        torch.testing.assert_close(got, want, rtol=4e-2, atol=4e-2, msg=where)


def _any_outcome(run: Callable[[], Any]) -> tuple[str, Any]:
    try:
        return outcome(run)
    except Exception as error:  # Dynamo and torch.export have errors of their own
        return type(error).__name__, str(error)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("front_end", nightly_but(("frozen", "compiled"), FRONT_ENDS))
def test_constants_of_another_dtype_do_what_they_do_in_eager_mode(
    front_end: str, name: str
) -> None:
    function, sizes = CASES[name]
    for dtypes in dtypes_of(len(sizes), few=front_end != "frozen"):
        x, *rest = [
            values(*size, seed=seed).to(dtype)
            for seed, (size, dtype) in enumerate(zip(sizes, dtypes, strict=True))
        ]
        model = Model(function, rest).eval()
        where = f"{name} of {dtypes}"
        assert_as_stock(partial(_run, front_end, model, [x]), partial(model, x), where)
        torch._dynamo.reset()


@pytest.mark.parametrize("name", CASES)
def test_exported_programs_raise_the_errors_of_torchs_own(name: str) -> None:
    function, sizes = CASES[name]
    for dtypes in dtypes_of(len(sizes), few=True):
        x, *rest = [
            values(*size, seed=seed).to(dtype)
            for seed, (size, dtype) in enumerate(zip(sizes, dtypes, strict=True))
        ]
        model = Model(function, rest).eval()
        with torch.no_grad():
            program = _any_outcome(partial(torch.export.export, model, (x,)))[1]
            if isinstance(program, str):
                continue
            with stock():
                wanted = _any_outcome(partial(program.module(), x))
            if wanted[0] != "value":
                fast = export(program).module()
                assert _any_outcome(partial(fast, x)) == wanted, f"{name} of {dtypes}"


def _run(front_end: str, model: nn.Module, inputs: list[Tensor]) -> Any:
    with torch.no_grad():
        return FRONT_ENDS[front_end](model, *inputs)(*inputs)


@pytest.mark.parametrize("name", CASES)
def test_a_module_that_was_frozen_for_one_dtype_takes_inputs_of_two_as_stock_does(
    name: str,
) -> None:
    """A trace of float32 states no dtypes, so that only plans see them."""
    function, sizes = CASES[name]
    plain = [values(*size, seed=seed) for seed, size in enumerate(sizes)]
    model = Model(function, []).eval()
    with torch.no_grad():
        fast = frozen(model, *plain)
        slow = torch.jit.freeze(torch.jit.trace(model, plain))
        for dtypes in dtypes_of(len(sizes), few=False):
            arguments = [x.to(dtype) for x, dtype in zip(plain, dtypes, strict=True)]
            where = f"{name} of {dtypes}"
            assert_as_stock(partial(fast, *arguments), partial(slow, *arguments), where)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_states_of_another_dtype_are_refused_as_by_stock(kind: Any) -> None:
    for own, other in itertools.permutations(PAIR):
        net = kind(8, 8).eval().to(own)
        x, h = values(3, 2, 8).to(own), values(1, 2, 8)
        for dtypes in ((other, own), (own, other), (other, other)):
            states: Any = tuple(h.to(dtype) for dtype in dtypes)
            states = states if kind is nn.LSTM else states[0]
            with torch.no_grad():
                run = partial(_first, net, x, states)
                assert_as_stock(run, run, str((kind, own, dtypes)))


def _first(net: nn.Module, *arguments: Any) -> Tensor:
    y: Tensor = net(*arguments)[0]
    return y


@pytest.mark.parametrize("layer", [lambda: nn.Linear(8, 4), lambda: nn.Conv1d(8, 4, 1)])
def test_prepacked_layers_refuse_a_bias_of_another_dtype_as_stock_does(
    layer: Callable[[], Any],
) -> None:
    for own, other in itertools.permutations(PAIR):
        net = layer().eval().to(own)
        x = values(2, 8, 8).to(own)
        net.bias.data = net.bias.data.to(other)
        with torch.no_grad():
            fast = prepack(net)
            assert_as_stock(partial(fast, x), partial(net, x), str(own))
