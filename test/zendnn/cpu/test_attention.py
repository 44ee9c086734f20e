"""Fused attention and its gradient: right for accepted calls; others fall back to stock torch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from test.drawing import property_test

from ..common import (
    DTYPES,
    HAS_WIDE_VECTORS,
    assert_as_exact,
    assert_same_bits,
    counting,
    dtypes,
    outcome,
    run_python,
    same_error,
    sizes,
    stock,
    values,
)

attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
attention_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward

#: Batch, heads, target, source, size: on both sides of the blocks, strips and tiles of the kernels.
SHAPES = (
    (1, 2, 8, 8, 16),
    (2, 3, 5, 7, 1),
    (1, 2, 37, 70, 33),
    (2, 2, 130, 300, 64),
    (1, 2, 260, 129, 32),
    (1, 2, 1, 500, 128),
    (1, 2, 4, 129, 40),
    (1, 1, 300, 260, 256),
    (1, 2, 7, 513, 65),
    (2, 1, 20, 40, 500),
)

MASKS = (
    "none",
    "causal",
    "full",
    "own dtype",
    "each batch",
    "each head",
    "rows",
    "columns",
    "last",
)


def operands(
    shape: tuple[int, ...], dtype: torch.dtype, *, swapped: bool = True, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value, as views of (batch, time, heads, size) or contiguous."""
    batch, heads, target, source, size = shape

    def make(time: int, offset: int) -> Tensor:
        if swapped:
            x = values(batch, time, heads, size, dtype=dtype, seed=3 * seed + offset)
            return x.transpose(1, 2)
        return values(batch, heads, time, size, dtype=dtype, seed=3 * seed + offset)

    return make(target, 0), make(source, 1), make(source, 2)


def make_mask(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor | None:
    """An additive mask that hides a third of the keys, and all of them from the first query."""
    batch, heads, target, source, _ = shape
    sizes = {
        "full": (batch, heads, target, source),
        "own dtype": (target, source),
        "each batch": (batch, 1, 1, source),
        "each head": (1, heads, target, source),
        "rows": (target, 1),
        "columns": (1, source),
        "last": (1, 1, 1, 1),
    }.get(name)
    if sizes is None:
        return None
    mask = values(*sizes, seed=7)
    mask[mask > 0.6] = -torch.inf
    mask[..., 0, :] = -torch.inf if sizes[-2] > 1 else 0.0
    return mask.to(dtype) if name == "own dtype" else mask


def widened(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else mask.double()


def magnitude(q: Tensor, k: Tensor) -> float:
    """The largest partial sum of a score and of its exponent."""
    keys = k.double().abs().repeat_interleave(q.shape[1] // k.shape[1], 1)
    return (q.double().abs() @ keys.transpose(-1, -2)).max().item()


def check_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    mask: Tensor | None = None,
    scale: float | None = None,
) -> None:
    """Compares the output and the log-sum-exp with stock torch's and with float64."""
    ours, our_sums = attention(q, k, v, 0.0, causal, attn_mask=mask, scale=scale)
    with stock():
        theirs, their_sums = attention(q, k, v, 0.0, causal, attn_mask=mask, scale=scale)
        exact, sums = attention(
            *(x.double() for x in (q, k, v)), 0.0, causal, attn_mask=widened(mask), scale=scale
        )
    bound = magnitude(q, k) * abs(scale if scale is not None else q.shape[-1] ** -0.5)
    assert_as_exact(ours, theirs, exact, v.abs().max().item() * max(1.0, bound))
    assert_as_exact(our_sums, their_sums, sums, max(1.0, bound))
    assert ours.stride() == theirs.stride()
    assert our_sums.stride() == their_sums.stride()


def check_gradient(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    mask: Tensor | None = None,
    scale: float | None = None,
    expanded: bool = False,
) -> None:
    """Compares the three gradients with stock torch's and with float64."""

    def run(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        out, sums = attention(q, k, v, 0.0, causal, attn_mask=mask, scale=scale)
        grad = torch.empty_like(out).copy_(values(*out.shape, seed=9).to(q.dtype))
        if expanded:
            grad = torch.ones((), dtype=q.dtype).expand(out.shape)
        gradients: tuple[Tensor, ...] = attention_backward(
            grad, q, k, v, out, sums, 0.0, causal, attn_mask=mask, scale=scale
        )
        return gradients

    ours = run(q, k, v, mask)
    with stock():
        theirs = run(q, k, v, mask)
        exact = run(q.double(), k.double(), v.double(), widened(mask))
    # A gradient is (gradients of weights minus their mean) times keys: zero for a single key.
    grad = torch.ones(q.shape) if expanded else values(*q.shape, seed=9)
    cancelled = magnitude(grad, v) * k.abs().max().item() * q.shape[-1] ** -0.5
    for our, their, true in zip(ours, theirs, exact, strict=True):
        bound = true.abs().max().item() * max(1.0, magnitude(q, k) * q.shape[-1] ** -0.5)
        assert our.stride() == their.stride()
        assert_as_exact(our, their, true, max(bound, cancelled))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_is_right(shape: tuple[int, ...], kind: str, dtype: torch.dtype) -> None:
    mask = make_mask(kind, shape, dtype)
    check_attention(*operands(shape, dtype), causal=kind == "causal", mask=mask)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("shape", SHAPES)
def test_gradient_is_right(shape: tuple[int, ...], kind: str, dtype: torch.dtype) -> None:
    mask = make_mask(kind, shape, dtype)
    check_gradient(*operands(shape, dtype), causal=kind == "causal", mask=mask)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("target", [1, 70])
def test_attention_whose_heads_share_keys_is_right(
    target: int, groups: int, kind: str, dtype: torch.dtype
) -> None:
    shape = (2, 6, target, 150, 33)
    q, k, v = operands(shape, dtype)
    with counting() as calls:
        check_attention(
            q,
            k[:, :groups],
            v[:, :groups],
            causal=kind == "causal",
            mask=make_mask(kind, shape, dtype),
        )
    assert calls == {"matmul": 1} or not HAS_WIDE_VECTORS


@pytest.mark.parametrize("kind", ["none", "causal", "each head"])
def test_autograd_reaches_our_gradient(kind: str) -> None:
    """A missing mask is None for the operator, and an undefined tensor for autograd."""
    shape = (2, 3, 40, 50, 32)
    mask = make_mask(kind, shape, torch.float32)

    def run() -> list[Tensor]:
        leaves = [x.detach().requires_grad_() for x in operands(shape, torch.float32)]
        q, k, v = leaves
        out = F.scaled_dot_product_attention(q, k, v, mask, is_causal=kind == "causal")
        out.backward(values(*out.shape, seed=3))
        return [x.grad for x in leaves]

    with counting() as calls:
        ours = run()
    assert calls == {"matmul": 2}
    with stock():
        theirs = run()
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["none", "causal", "each head"])
def test_gradients_where_heads_share_keys_are_stock_torchs(kind: str, dtype: torch.dtype) -> None:
    shape = (2, 6, 40, 50, 32)
    q, k, v = operands(shape, dtype)
    mask = make_mask(kind, shape, dtype)

    def run(dtype: torch.dtype) -> list[Tensor]:
        leaves = [x.detach().to(dtype).requires_grad_() for x in (q, k[:, :2], v[:, :2])]
        queries, keys, contents = leaves
        out = F.scaled_dot_product_attention(
            queries,
            keys,
            contents,
            mask if mask is None else mask.to(dtype),
            is_causal=kind == "causal",
            enable_gqa=True,
        )
        weight = values(*out.shape, seed=3).to(dtype)
        return [out.detach(), *torch.autograd.grad((out * weight).sum(), leaves)]

    with counting() as calls:
        ours = run(dtype)
    assert calls == {"matmul": 1}, "the gradient is left to torch"
    with stock():
        theirs, exact = run(dtype), run(torch.float64)
    for our, their, true in zip(ours, theirs, exact, strict=True):
        assert_as_exact(our, their, true, 4 * max(1.0, true.abs().max().item()))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1, 7, 2), (2, 3, 70, 16), (1, 2, 130, 64)])
def test_scores_that_are_far_apart_select_one_key(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    """With scores of 1e15, the rounding error of a product is itself a large number."""
    x = (values(*shape) * 8e7).to(dtype)
    got = F.scaled_dot_product_attention(x, x, x)
    scores = x.double() @ x.double().mT
    assert torch.equal(got.double(), (scores / shape[-1] ** 0.5).softmax(-1) @ x.double())


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_query_that_overlaps_itself_gives_a_dense_result(dtype: torch.dtype) -> None:
    """The query's own strides order the dimensions differently."""
    q = values(1, 1, 100, dtype=dtype).unfold(2, 64, 1)
    k, v = (values(1, 1, 37, 64, dtype=dtype, seed=i) for i in (1, 2))
    ours = attention(q, k, v)[0]
    with stock():
        exact = attention(*(x.double().contiguous() for x in (q, k, v)))[0]
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(ours.double(), exact, rtol=tolerance, atol=tolerance)
    assert ours.stride(3) == 1


def test_gradient_allocates_scratch_only_for_threads_with_work() -> None:
    """A head of 200,000 queries takes 50 MB; sixteen threads would take sixteen times that."""
    code = """
import resource, torch
torch.set_num_threads(16)
attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
q, k = torch.ones(1, 1, 200_000, 64), torch.ones(1, 1, 1, 64)
out, sums = attention(q, k, k)
used = int(open('/proc/self/statm').read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + (300 << 20),) * 2)
backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
print(backward(out, q, k, k, out, sums, 0.0, False)[0].isfinite().all().item())
"""
    assert run_python(code).strip() == "True"


@property_test
@given(
    batch=st.integers(1, 3),
    heads=st.integers(1, 3),
    target=sizes,
    source=sizes,
    size=sizes,
    swapped=st.booleans(),
    causal=st.booleans(),
    dtype=dtypes,
)
def test_attention_is_right_for_any_shape_and_layout(
    batch: int,
    heads: int,
    target: int,
    source: int,
    size: int,
    swapped: bool,
    causal: bool,
    dtype: torch.dtype,
) -> None:
    qkv = operands((batch, heads, target, source, size), dtype, swapped=swapped)
    check_attention(*qkv, causal=causal)
    check_gradient(*qkv, causal=causal)


@pytest.mark.parametrize("dtype", DTYPES)
def test_override_runs(dtype: torch.dtype) -> None:
    """Two kernels with different summation orders differ in some bits."""
    q, k, v = operands((1, 2, 60, 300, 64), dtype)
    out, sums = attention(q, k, v)
    ours = attention_backward(out, q, k, v, out, sums, 0.0, False)
    with stock():
        assert not torch.equal(sums, attention(q, k, v)[1])
        theirs = attention_backward(out, q, k, v, out, sums, 0.0, False)
    assert not torch.equal(ours[0], theirs[0])


@pytest.mark.parametrize("scale", [0.0, 1.0, -0.3])
def test_scale(scale: float) -> None:
    qkv = operands((1, 2, 70, 90, 32), torch.float32)
    check_attention(*qkv, scale=scale)
    check_gradient(*qkv, scale=scale)


@pytest.mark.parametrize("dtype", DTYPES)
def test_query_that_sees_no_key_gives_zero(dtype: torch.dtype) -> None:
    q, k, v = operands((1, 2, 40, 300, 32), dtype)
    mask = torch.full((40, 300), -torch.inf)
    mask[5:] = 0
    out, sums = attention(q, k, v, attn_mask=mask)
    assert not out[:, :, :5].any()
    assert not sums[:, :, :5].any()
    grads = attention_backward(out, q, k, v, out, sums, 0.0, False, attn_mask=mask)
    assert not grads[0][:, :, :5].any()
    assert all(grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize("dtype", DTYPES)
def test_lowest_number_of_a_mask_is_no_infinity(dtype: torch.dtype) -> None:
    qkv = operands((1, 2, 40, 100, 32), dtype)
    mask = torch.zeros(40, 100)
    mask[:, 70:] = mask[:7] = torch.finfo(dtype).min
    check_attention(*qkv, mask=mask)
    out, sums = attention(*qkv, attn_mask=mask)
    grads = attention_backward(out, *qkv, out, sums, 0.0, False, attn_mask=mask)
    assert all(grad.isfinite().all() for grad in grads)


def test_scores_far_from_zero() -> None:
    q, k, v = operands((1, 2, 65, 300, 64), torch.float32)
    check_attention(30 * q, 30 * k, v)
    check_gradient(5 * q, 5 * k, v)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("where", range(3))
def test_nan_and_infinity_propagate_as_on_stock_kernels(where: int, dtype: torch.dtype) -> None:
    qkv = list(operands((1, 1, 40, 90, 16), dtype))
    qkv[where] = qkv[where].clone()
    qkv[where][0, 0, 3, 2] = torch.nan
    ours = attention(*qkv)[0].isnan()
    with stock():
        assert torch.equal(ours, attention(*qkv)[0].isnan())


def test_gradient_of_a_sum_is_an_expanded_scalar() -> None:
    check_gradient(*operands((1, 2, 33, 40, 32), torch.float32), expanded=True)


@pytest.mark.parametrize("layout", ["slices", "padded", "broadcast"])
def test_strided_operands(layout: str) -> None:
    """Slices of a joint projection, parts of longer rows, and a batch that shares its keys."""
    if layout == "slices":
        joint = values(2, 50, 3, 4, 32, seed=1)
        q, k, v = (x.transpose(1, 2) for x in joint.unbind(2))
    elif layout == "padded":
        q, k, v = (values(2, 4, 50, 40, seed=i)[..., 3:35] for i in range(3))
    else:
        q = values(2, 4, 50, 32, seed=1)
        k, v = (values(1, 1, 50, 32, seed=i).expand(2, 4, 50, 32) for i in (2, 3))
    check_attention(q, k, v)
    check_gradient(q, k, v)


@pytest.mark.parametrize("dtype", DTYPES)
def test_masks_of_any_stride(dtype: torch.dtype) -> None:
    q, k, v = operands((2, 3, 40, 60, 32), dtype)
    whole = values(2, 3, 60, 40, seed=4).to(dtype)
    for mask in (
        whole.transpose(-1, -2),
        values(2, 3, 40, 121, seed=5)[..., 1::2],
        whole[:1, :1, :1, :1].expand(2, 3, 40, 60),
        torch._neg_view(values(40, 60, seed=6)),
    ):
        check_attention(q, k, v, mask=mask)
        check_gradient(q, k, v, mask=mask)


def refused() -> dict[str, Callable[[], Tensor]]:
    """Calls that fall back to stock torch's kernel, by reason."""
    q, k, v = operands((1, 2, 40, 50, 16), torch.float32)
    double = [x.double() for x in (q, k, v)]
    half = [x.half() for x in (q, k, v)]

    def first(*arguments: object, **named: object) -> Tensor:
        result: Tensor = attention(*arguments, **named)[0]
        return result

    return {
        "float64": lambda: first(*double),
        "float16": lambda: first(*half),
        "dropout": lambda: first(q, k, v, 0.5),
        "mixed dtypes": lambda: first(q, k.bfloat16(), v),
        "three dimensions": lambda: first(q[0], k[0], v[0]),
        "other head size": lambda: first(q, k[..., :8], v),
        "mask of three dimensions": lambda: first(q, k, v, attn_mask=torch.zeros(1, 40, 50)),
        "mask of float64": lambda: first(q, k, v, attn_mask=torch.zeros(40, 50).double()),
        "mask of another size": lambda: first(q, k, v, attn_mask=torch.zeros(40, 49)),
        "other size of values": lambda: first(q, k, v[..., :8]),
        "no batch": lambda: first(q[:0], k[:0], v[:0]),
    }


@pytest.mark.parametrize("name", list(refused()))
def test_other_calls_are_stock_torchs(name: str) -> None:
    assert_same_bits(refused()[name])


def test_errors_are_stock_torchs() -> None:
    q, k, v = operands((1, 2, 40, 50, 16), torch.float32)
    assert "dropout" in same_error(lambda: attention(q, k, v, 0.5))
    assert same_error(lambda: F.scaled_dot_product_attention(q, k, v, torch.zeros(3, 50)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_functional_form_and_autograd(dtype: torch.dtype) -> None:
    """Through F.scaled_dot_product_attention: bool masks, grouped heads, three dimensions."""
    q, k, v = operands((2, 4, 40, 50, 32), dtype)
    seen = values(2, 1, 40, 50, seed=8) > -0.5
    calls: tuple[Callable[[Tensor, Tensor, Tensor], Tensor], ...] = (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, seen),
        lambda q, k, v: F.scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True),
        lambda q, k, v: F.scaled_dot_product_attention(q[0], k[0], v[0]),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    )

    def run(call: Callable[..., Tensor], dtype: torch.dtype) -> list[Tensor]:
        leaves = [x.detach().to(dtype).requires_grad_() for x in (q, k, v)]
        out = call(*leaves)
        weight = values(*out.shape, seed=3).to(dtype)
        return [out.detach(), *torch.autograd.grad((out * weight).sum(), leaves)]

    for call in calls:
        ours = run(call, dtype)
        with stock():
            theirs, exact = run(call, dtype), run(call, torch.float64)
        for our, their, true in zip(ours, theirs, exact, strict=True):
            assert_as_exact(our, their, true, 4 * max(1.0, true.abs().max().item()))


def test_autocast_and_inference_mode() -> None:
    q, k, v = operands((1, 2, 40, 50, 32), torch.float32)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        ours = F.scaled_dot_product_attention(q, k, v)
        with stock():
            theirs = F.scaled_dot_product_attention(q, k, v)
    with stock():
        exact = F.scaled_dot_product_attention(*(x.bfloat16().double() for x in (q, k, v)))
    assert_as_exact(ours, theirs, exact, v.abs().max().item())


def test_vmap_and_function_transforms() -> None:
    q, k, v = (x.expand(3, *x.shape) for x in operands((1, 2, 20, 30, 16), torch.float32))

    def loss(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v).square().sum()

    def run() -> Tensor:
        mapped: Tensor = torch.func.vmap(torch.func.grad(loss))(q, k, v)
        return mapped

    ours = run()
    with stock():
        torch.testing.assert_close(ours, run())


def test_fake_tensors_know_the_layout() -> None:
    qkv = operands((2, 3, 8, 9, 16), torch.float32)
    real = attention(*qkv)
    with FakeTensorMode() as mode:
        fake = attention(*(mode.from_tensor(x) for x in qkv))
    assert [(x.shape, x.stride(), x.dtype) for x in real] == [
        (x.shape, x.stride(), x.dtype) for x in fake
    ]


def test_results_do_not_depend_on_threads() -> None:
    qkv = operands((2, 3, 130, 150, 32), torch.float32)
    expected = attention(*qkv)
    gradient = attention_backward(expected[0], *qkv, *expected, 0.0, False)
    threads = torch.get_num_threads()

    def same(_: int) -> bool:
        out, sums = attention(*qkv)
        grads = attention_backward(out, *qkv, out, sums, 0.0, False)
        results = zip((out, sums, *grads), (*expected, *gradient), strict=True)
        return all(torch.allclose(a, b, rtol=1e-5, atol=1e-5) for a, b in results)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(same, range(16)))
    try:
        torch.set_num_threads(1)
        assert same(0)
    finally:
        torch.set_num_threads(threads)


def test_no_matrix_of_scores_is_in_memory() -> None:
    """16384² scores in float32 take a gigabyte, more than the limit allows."""
    code = (
        "import resource, torch\n"
        "x = torch.ones(1, 1, 16384, 16, requires_grad=True)\n"
        "attention = torch.nn.functional.scaled_dot_product_attention\n"
        "attention(x[:, :, :64], x, x).sum().backward()\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * 4096\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (300 << 20),) * 2)\n"
        "attention(x, x, x, is_causal=True).sum().backward()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_right_on_fewer_instructions() -> None:
    """The tests above in a process limited to AVX2."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(Path(__file__))),
            *("-k", "is_right and not any_shape or lowest or sees_no_key"),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "ZENDNN_MAX_CPU_ISA": "AVX2"},
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr


def test_unknown_mask_size_raises_stock_torchs_error() -> None:
    q, k, v = operands((2, 2, 4, 5, 8), torch.float32)
    mask = torch.zeros(2, 1, 4, 3)
    kind, _ = outcome(lambda: F.scaled_dot_product_attention(q, k, v, mask))
    with stock():
        assert outcome(lambda: F.scaled_dot_product_attention(q, k, v, mask))[0] == kind != "value"
