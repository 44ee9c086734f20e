"""How tests compare ZenDNN with stock torch, and how they detect that ZenDNN ran.

The reference is the same operation in float64. Our error may be at most ``SLACK`` times stock
torch's. Stock torch can be exact by luck on a small problem, so a few units in the last place of
the *operands' magnitude* (the same operation on absolute values) are always allowed, and for
bfloat16 one in the last place of the largest result.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.backends.zendnn import _C

SLACK = 4.0
ULPS = 4.0


def nightly_but(often: Container[Any], values: Iterable[Any]) -> list[Any]:
    """The values of a test's parameter; `make nightly` alone runs those that are not ``often``."""
    return [
        pytest.param(value, marks=[] if value in often else pytest.mark.nightly) for value in values
    ]


#: This CPU, and whether it has AVX-512, products of bfloat16, and AMX tiles (which no AMD CPU has).
CPU = _C._cpu()
HAS_WIDE_VECTORS = CPU["isa"].startswith("AVX-512")
HAS_BFLOAT16 = _C._multiplies_bfloat16()
HAS_TILES = CPU["isa"].endswith("AMX")

#: The dtypes of our kernels on any CPU, and of ZenDNN's primitives on this CPU.
DTYPES = (torch.float32, torch.bfloat16)
PRIMITIVE_DTYPES = DTYPES if HAS_WIDE_VECTORS else (torch.float32,)
#: Those whose products have several implementations here, with packed weights.
PRODUCT_DTYPES = DTYPES if HAS_BFLOAT16 else (torch.float32,)

of_products = pytest.mark.skipif(
    not HAS_WIDE_VECTORS, reason="without AVX-512, eager products are left to torch"
)
of_bfloat16 = pytest.mark.skipif(
    not HAS_WIDE_VECTORS, reason="without AVX-512, no primitive computes in bfloat16"
)


def stock() -> contextlib.AbstractContextManager[None]:
    """Runs the block on torch's own kernels."""
    context: contextlib.AbstractContextManager[None] = torch.backends.zendnn.flags(enabled=False)
    return context


@contextlib.contextmanager
def counting() -> Iterator[Counter[str]]:
    """Yields a counter; after the block it holds the block's calls that ran on ZenDNN."""
    before = Counter(torch.backends.zendnn.counters())
    calls: Counter[str] = Counter()
    yield calls
    calls.update(Counter(torch.backends.zendnn.counters()) - before)


def assert_as_exact(ours: Tensor, theirs: Tensor, exact: Tensor, magnitude: float) -> None:
    """Asserts that ``ours`` approximates ``exact`` as well as ``theirs`` does.

    ``exact`` is the float64 result, ``magnitude`` the largest value of its partial sums. Also
    asserts that dtype, shape and strides (in dimensions longer than 1) equal stock torch's.
    """
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape == exact.shape
    assert long_strides(ours) == long_strides(theirs)
    if not ours.numel():
        return
    our_error = (ours.double() - exact).abs().max().item()
    their_error = (theirs.double() - exact).abs().max().item()
    floor = ULPS * torch.finfo(torch.float32).eps * magnitude  # bfloat16 also sums in float32,
    if ours.dtype != torch.float32:  # and rounds once more at the end
        floor += torch.finfo(ours.dtype).eps * exact.abs().max().item()
    # In this order `max` returns the floor when stock torch's error is NaN.
    assert our_error <= max(floor, SLACK * their_error), (
        f"error {our_error:.3e}, stock torch's {their_error:.3e}, always allowed {floor:.3e}"
    )


def long_strides(tensor: Tensor) -> list[int]:
    """The meaningful strides: those of dimensions longer than 1, none for empty tensors."""
    if not tensor.numel():
        return []
    sizes_and_strides = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride for size, stride in sizes_and_strides if size > 1]


def check(
    function: Callable[..., Tensor], *operands: Tensor | None, grow: float = 1.0
) -> Counter[str]:
    """Checks ``function(*operands)`` on ZenDNN against stock torch; returns ZenDNN's calls.

    ``function`` is a sum of products of its operands, so its value on their absolute values bounds
    all partial sums; ``grow`` scales the bound for scalar factors that are not operands. The
    operands must stay unchanged.
    """
    copies = [operand if operand is None else operand.clone() for operand in operands]
    with counting() as calls:
        ours = function(*operands)
    for operand, copy in zip(operands, copies, strict=True):
        if operand is not None and copy is not None:
            assert torch.equal(operand, copy), "an operand was changed"
    with stock():
        theirs = function(*operands)
        exact = function(*(o if o is None else o.double() for o in operands))
        bound = function(*(o if o is None else o.double().abs() for o in operands))
    magnitude = grow * (bound.abs().max().item() if bound.numel() else 0.0)
    assert_as_exact(ours, theirs, exact, magnitude)
    return calls


def outcome(function: Callable[[], Any]) -> tuple[str, Any]:
    """The outcome of a call: ('value', result), or the error's type name and text."""
    try:
        return "value", function()
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
        return type(error).__name__, str(error)


def assert_same_bits(function: Callable[[], Tensor]) -> None:
    """Asserts that ZenDNN does not run: stock torch's exact bits, or its exact error."""
    with counting() as calls:
        kind, ours = outcome(function)
    with stock():
        stock_kind, theirs = outcome(function)
    assert kind == stock_kind, (ours, theirs)
    assert not calls
    if kind != "value":
        assert ours == theirs
        return
    assert ours.dtype == theirs.dtype
    assert long_strides(ours) == long_strides(theirs)
    assert torch.equal(torch.nan_to_num(ours, nan=7.0), torch.nan_to_num(theirs, nan=7.0))


def assert_same_outcome(function: Callable[[], Any]) -> None:
    """Asserts that ``function`` has stock torch's outcome, within rounding.

    The outcome is the exact error, or one or a tuple of tensors with the same type and (in
    dimensions longer than 1) strides.
    """
    kind, ours = outcome(function)
    with stock():
        stock_kind, theirs = outcome(function)
    assert kind == stock_kind, (ours, theirs)
    if kind != "value":
        assert ours == theirs
        return
    pairs = zip(*([x] if isinstance(x, Tensor) else list(x) for x in (ours, theirs)), strict=True)
    for mine, other in pairs:
        if other is None:
            assert mine is None
            continue
        assert long_strides(mine) == long_strides(other)
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4, equal_nan=True)


def same_error(function: Callable[[], Any]) -> str:
    """Asserts that ``function`` raises stock torch's error; returns its text."""
    kind, text = outcome(function)
    with stock():
        stock_kind, stock_text = outcome(function)
    assert kind != "value", "no error was raised"
    assert (kind, text) == (stock_kind, stock_text)
    return str(text)


def gradients(
    function: Callable[..., Tensor], *leaves: Tensor, weight: Tensor | None = None
) -> list[Tensor]:
    """The output of ``function`` and the gradient of its weighted sum for each leaf."""
    fresh = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    out = function(*fresh)
    loss = (out if weight is None else out * weight.to(out.dtype)).sum()
    return [out.detach(), *torch.autograd.grad(loss, fresh)]


def check_gradients(function: Callable[..., Tensor], *leaves: Tensor) -> Counter[str]:
    """Checks the output and every gradient of ``function``; returns ZenDNN's calls.

    The magnitudes are those of the exact results: tests choose operands that do not cancel out.
    """
    with stock(), torch.no_grad():
        weight = torch.rand_like(function(*leaves).float()) + 0.5
    with counting() as calls:
        ours = gradients(function, *leaves, weight=weight)
    with stock():
        theirs = gradients(function, *leaves, weight=weight)
        exact = gradients(function, *(leaf.double() for leaf in leaves), weight=weight)
    for our, their, true in zip(ours, theirs, exact, strict=True):
        magnitude = true.abs().max().item() * max(1.0, true.numel() ** 0.5)
        assert our.dtype == their.dtype
        our_error = (our.double() - true).abs().max().item()
        their_error = (their.double() - true).abs().max().item()
        floor = torch.finfo(our.dtype).eps * magnitude
        assert our_error <= max(floor, SLACK * their_error), (our_error, their_error, floor)
    return calls


def rearranged(tensor: Tensor, how: str) -> Tensor:
    """The same values in another memory layout, one of ``LAYOUTS``."""
    return LAYOUTS[how](tensor)


def _transposed(tensor: Tensor) -> Tensor:
    if tensor.dim() < 2:
        return tensor
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)


def _strided(tensor: Tensor) -> Tensor:
    """Every second element of each row of a larger tensor, from the second on."""
    larger = tensor.new_full((*tensor.shape[:-1], 2 * tensor.shape[-1] + 1), float("nan"))
    larger[..., 1::2] = tensor
    return larger[..., 1::2]


def _padded(tensor: Tensor) -> Tensor:
    """The left part of longer rows, as in a slice of a larger matrix."""
    larger = tensor.new_full((*tensor.shape[:-1], tensor.shape[-1] + 3), float("nan"))
    larger[..., : tensor.shape[-1]] = tensor
    return larger[..., : tensor.shape[-1]]


def _misaligned(tensor: Tensor) -> Tensor:
    """One element after an allocation's start, where vector loads are not aligned."""
    flat = tensor.new_full((tensor.numel() + 1,), float("nan"))
    flat[1:] = tensor.reshape(-1)
    return flat[1:].view(tensor.shape)


def _negated(tensor: Tensor) -> Tensor:
    """With torch's lazy negative bit: the memory holds the negated values."""
    return torch._neg_view(-tensor)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": Tensor.contiguous,
    "transposed": _transposed,
    "strided": _strided,
    "padded": _padded,
    "misaligned": _misaligned,
    "negated": _negated,
}

layouts = st.sampled_from(sorted(LAYOUTS))
dtypes = st.sampled_from(DTYPES)
primitive_dtypes = st.sampled_from(PRIMITIVE_DTYPES)
#: Sizes on both sides of the usual vector lengths and blocks.
sizes = st.one_of(st.integers(1, 9), st.sampled_from((15, 16, 17, 31, 33, 48, 64, 65)))


def values(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Normal random numbers, determined by the arguments; small integers for integer dtypes."""
    numbers = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return (numbers if dtype.is_floating_point or dtype.is_complex else numbers * 8).to(dtype)


def run_python(code: str, **environment: str) -> str:
    """The standard output of ``code`` in a new interpreter, which must exit with code 0."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def assembled_by(code: str, **environment: str) -> list[str]:
    """The lines of perf's map of the kernels that ``code`` assembles in a new interpreter."""
    process = run_python(
        f"{code}\nimport os\nprint(os.getpid())", ZENDNN_JIT_PROFILE="2", **environment
    )
    names = Path(f"/tmp/perf-{process.split()[-1]}.map")
    lines = names.read_text().splitlines()
    names.unlink()
    return lines
