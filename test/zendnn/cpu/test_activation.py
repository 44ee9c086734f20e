"""Functions of one tensor: precise over the whole range, in every form; otherwise stock torch's."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from ..common import (
    DTYPES,
    HAS_WIDE_VECTORS,
    LAYOUTS,
    assert_same_bits,
    counting,
    gradients,
    outcome,
    rearranged,
    same_error,
    stock,
    values,
)
from .ulps import BANDS, floats, ulps

#: Without AVX-512 gelu falls back to torch.
AVX2 = not HAS_WIDE_VECTORS


def _out(operator: str, **named: str) -> Callable[..., Tensor]:
    def call(x: Tensor, out: Tensor) -> Tensor:
        result: Tensor = getattr(torch.ops.aten, operator).out(x, **named, out=out)
        return result

    return call


def _exact_gelu_tanh(x: Tensor) -> Tensor:
    return x * torch.sigmoid(2 * (2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))


@dataclass(frozen=True)
class Function:
    """The three forms of a function, and its exact form on float64."""

    call: Callable[[Tensor], Tensor]
    out: Callable[..., Tensor]
    in_place: Callable[[Tensor], Tensor]
    exact: Callable[[Tensor], Tensor]
    dtypes: tuple[torch.dtype, ...] = DTYPES


FUNCTIONS = {
    "gelu": Function(
        F.gelu,
        _out("gelu"),
        torch.ops.aten.gelu_,
        lambda x: x * 0.5 * torch.special.erfc(-x * 0.5**0.5),
        () if AVX2 else DTYPES,
    ),
    "gelu_tanh": Function(
        lambda x: F.gelu(x, approximate="tanh"),
        _out("gelu", approximate="tanh"),
        lambda x: torch.ops.aten.gelu_(x, approximate="tanh"),
        _exact_gelu_tanh,
    ),
    "silu": Function(F.silu, _out("silu"), torch.ops.aten.silu_, lambda x: x * torch.sigmoid(x)),
    "sigmoid": Function(torch.sigmoid, _out("sigmoid"), torch.sigmoid_, torch.sigmoid),
    "tanh": Function(torch.tanh, _out("tanh"), torch.tanh_, torch.tanh, (torch.bfloat16,)),
}
#: One of each type.
TAKEN = [
    pytest.param(function, dtype, id=f"{name}-{dtype}")
    for name, function in FUNCTIONS.items()
    for dtype in function.dtypes
]
#: For tests that do not depend on the function.
SILU = FUNCTIONS["silu"]

of_each = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
of_each_type = pytest.mark.parametrize(("function", "dtype"), TAKEN)


@of_each_type
def test_error_is_small_and_no_more_than_stock_torchs_anywhere(
    function: Function, dtype: torch.dtype
) -> None:
    x = floats(dtype)
    exact = function.exact(x.double())
    with counting() as calls:
        ours = function.call(x)
    assert calls
    with stock():
        theirs = function.call(x)
    # Values that even float64 cannot represent, such as ∞ · 0, prove nothing.
    normal = exact.isfinite() & (exact.abs() >= torch.finfo(dtype).tiny)
    for low, high in BANDS:
        band = normal & (x.double() > low) & (x.double() < high)
        our_error, their_error = (ulps(y[band], exact[band]).max().item() for y in (ours, theirs))
        allowed = 0.51 if dtype == torch.bfloat16 else min(2.0, their_error)
        assert our_error <= allowed, (low, high, our_error, their_error)
    small = exact.isfinite() & ~normal
    step = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    our_error, their_error = (
        (y[small].double() - exact[small]).abs().max().item() for y in (ours, theirs)
    )
    assert our_error <= max(2 * step, their_error)


@pytest.mark.skipif(AVX2, reason="the tests already run without AVX-512")
def test_error_is_small_on_fewer_instructions() -> None:
    pytest_here = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*pytest_here, "-k", "anywhere", str(Path(__file__))],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "ZENDNN_MAX_CPU_ISA": "AVX2"},
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(AVX2, reason="without AVX-512, gelu is left to torch")
def test_gelu_is_precise_near_zero() -> None:
    x = torch.linspace(-12.5, -5, 10007)
    exact = FUNCTIONS["gelu"].exact(x.double())
    assert ulps(F.gelu(x), exact).max() <= 2


@of_each_type
def test_infinities_nans_and_zeros_match_stock_torch(
    function: Function, dtype: torch.dtype
) -> None:
    inf, nan = float("inf"), float("nan")
    for x in (inf, -inf, nan, -nan, 0.0, -0.0, -200.0):
        many = torch.full((37,), x, dtype=dtype)  # longer than any vector
        ours = function.call(many)
        with stock():
            theirs = function.call(many)
            if x == inf and theirs.isnan().all():  # only in its vectors, through ∞ · 0
                theirs = function.call(many[:1]).expand(37)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
        # Stock torch's AVX2 vectors lose the sign of zero.
        signs = (theirs, function.exact(many.double()))
        zeros = bool((theirs == 0).all())
        assert not zeros or any(torch.equal(ours.signbit(), other.signbit()) for other in signs)


@of_each_type
@pytest.mark.parametrize("layout", LAYOUTS)
def test_result_has_stock_torchs_strides(
    layout: str, function: Function, dtype: torch.dtype
) -> None:
    for shape in ((1,), (7,), (33, 5), (2, 3, 17), (2, 5, 4, 3), (4, 1, 6, 6)):
        x = rearranged(values(*shape, dtype=dtype), layout)
        with counting() as calls:
            ours = function.call(x)
        dense = layout not in ("negated",) and x.is_contiguous()
        assert calls or not dense
        with stock():
            theirs = function.call(x)
        assert ours.stride() == theirs.stride()
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_images_keep_their_memory_format(dtype: torch.dtype) -> None:
    for shape in ((2, 5, 4, 3), (4, 1, 6, 6), (4, 7, 1, 1), (1, 3, 8, 8)):
        x = values(*shape, dtype=dtype).to(memory_format=torch.channels_last)
        with counting() as calls:
            ours = F.silu(x)
        assert calls
        with stock():
            theirs = F.silu(x)
        assert ours.stride() == theirs.stride()
        torch.testing.assert_close(ours, theirs)
    permuted = values(5, 4, 3, dtype=dtype).permute(2, 0, 1)
    assert F.silu(permuted).stride() == permuted.stride()


@of_each_type
def test_forms_agree(function: Function, dtype: torch.dtype) -> None:
    x = values(3, 1001, dtype=dtype)
    want = function.call(x)
    out = torch.full_like(x, float("nan"))
    with counting() as calls:
        assert function.out(x, out) is out
        mine = x.clone()
        assert function.in_place(mine) is mine
    assert sum(calls.values()) == 2
    assert torch.equal(out, want)
    assert torch.equal(mine, want)
    mine = x.clone()
    assert torch.equal(function.out(mine, mine), want)
    rows = x.repeat(3, 1)
    function.in_place(rows[3:6])
    assert torch.equal(rows[:3], x)
    assert torch.equal(rows[3:6], want)
    assert torch.equal(rows[6:], x)


@of_each_type
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_any_out_is_written_or_refused_as_by_stock_torch(
    function: Function, dtype: torch.dtype
) -> None:
    x = values(6, 10, dtype=dtype)
    outs: dict[str, Callable[[], Tensor]] = {
        "empty": lambda: x.new_zeros(0),
        "too large": lambda: x.new_zeros(7, 10),
        "transposed": lambda: x.new_zeros(10, 6).t(),
        "with gaps": lambda: x.new_zeros(6, 20)[:, ::2],
        "double": lambda: x.new_zeros(6, 10, dtype=torch.float64),
        "integers": lambda: x.new_zeros(6, 10, dtype=torch.int32),
        "negated": lambda: torch._neg_view(x.new_zeros(6, 10)),
        "expanded": lambda: x.new_zeros(6, 1).expand(6, 10),
        "on meta": lambda: x.new_zeros(6, 10, device="meta"),
    }
    for name, make in outs.items():
        ours, theirs = make(), make()
        kind, text = outcome(partial(function.out, x, ours))
        with stock():
            stock_kind, stock_text = outcome(partial(function.out, x, theirs))
        assert kind == stock_kind, (name, text, stock_text)
        if kind != "value":
            assert text == stock_text
        elif name != "on meta":
            assert ours.stride() == theirs.stride(), name
            torch.testing.assert_close(ours, theirs)


def test_operands_that_share_memory_are_refused_as_by_stock_torch() -> None:
    x = values(100)
    same_error(lambda: SILU.out(x[:-1], x[1:]))
    same_error(lambda: SILU.in_place(torch.ones(1).expand(5)))


def test_a_write_to_a_lazy_clone_leaves_the_original_unchanged() -> None:
    x = values(1000)
    before = x.clone()
    copy = torch._lazy_clone(x)
    SILU.in_place(copy)
    assert torch.equal(x, before)
    assert torch.equal(copy, SILU.call(before))
    out = torch._lazy_clone(x)
    SILU.out(x, out)
    assert torch.equal(x, before)
    assert torch.equal(out, SILU.call(before))


@of_each
@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float16, torch.int32, torch.bool, torch.complex64], ids=str
)
def test_other_types_give_the_bits_of_stock_torch(dtype: torch.dtype, function: Function) -> None:
    x = values(5, 9, dtype=dtype)
    assert_same_bits(lambda: function.call(x))
    assert_same_bits(lambda: function.in_place(x.clone()))


@of_each
def test_a_tensor_without_dimensions_stays_one(function: Function) -> None:
    x = torch.tensor(0.75, dtype=torch.bfloat16)
    with counting() as calls:
        ours = function.call(x)
    assert bool(calls) == bool(function.dtypes)
    with stock():
        torch.testing.assert_close(ours, function.call(x))


@of_each
def test_empty_and_sparse_tensors_give_what_stock_torch_gives(function: Function) -> None:
    assert_same_bits(lambda: function.call(torch.empty(0, 3)))
    assert outcome(lambda: function.call(torch.eye(3).to_sparse()))[0] == "value" or same_error(
        lambda: function.call(torch.eye(3).to_sparse())
    )


def test_tanh_of_floats_is_stock_torchs() -> None:
    x = values(1000)
    assert_same_bits(lambda: torch.tanh(x))


def test_an_unknown_approximation_raises_stock_torchs_error() -> None:
    same_error(lambda: F.gelu(values(8), approximate="none at all"))
    same_error(lambda: torch.ops.aten.gelu_(values(8), approximate="none at all"))


@of_each_type
def test_gradients_are_those_of_stock_torch(function: Function, dtype: torch.dtype) -> None:
    x = values(17, 33, dtype=dtype)
    ours = gradients(function.call, x)
    with stock():
        theirs = gradients(function.call, x)
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their)
    leaf = x.clone().requires_grad_()
    same_error(lambda: function.in_place(leaf))
    same_error(lambda: function.out(leaf, torch.empty_like(x)))


def test_transforms_and_modes_see_the_same_function() -> None:
    x = values(4, 5, 6)
    want = SILU.call(x)
    assert torch.equal(torch.vmap(SILU.call)(x), want)
    assert torch.equal(torch.vmap(SILU.call, in_dims=2, out_dims=2)(x), want)
    with stock():
        slope = torch.func.grad(lambda x: F.silu(x).sum())(x)
    torch.testing.assert_close(torch.func.grad(lambda x: F.silu(x).sum())(x), slope)
    with torch.inference_mode():
        assert torch.equal(SILU.call(x), want)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(SILU.call(x), want)
    with FakeTensorMode() as mode, counting() as calls:
        fake = SILU.call(mode.from_tensor(x))
    assert fake.shape == x.shape
    assert not calls


def test_threads_of_python_and_of_torch_give_the_same_bits() -> None:
    x = values(300, 1000)
    want = SILU.call(x)
    results: list[Tensor] = []
    threads = [threading.Thread(target=lambda: results.append(SILU.call(x))) for _ in range(4)]
    torch.set_num_threads(1)
    results.append(SILU.call(x))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 5
    assert all(torch.equal(result, want) for result in results)
