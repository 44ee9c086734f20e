"""Attention in plans: masks, replaced scores, grouped heads."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.backends.zendnn.ir.node import Value

from test.drawing import property_test

from ..common import DTYPES, dtypes
from ..support.graphs import Builder
from ..support.plans import (
    ARRANGEMENTS,
    arena_bytes,
    check,
    interpret,
    make_plan,
    refusal,
    region_of,
    tensor,
    tensors_and_numbers,
)
from ..support.samples import arrangements, batches


@property_test
@given(data=st.data())
def test_attention(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dtype, swapped = draw(dtypes), draw(st.booleans())
    batch, kv_heads, group = draw(batches), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    target, source = (draw(st.sampled_from([1, 2, 5, 17, 33, 70, 300])) for _ in range(2))
    size = draw(st.sampled_from([1, 8, 15, 16, 33, 64, 80]))
    operands = []
    for seed, (heads, length) in enumerate(
        [(kv_heads * group, target), (kv_heads, source), (kv_heads, source)]
    ):
        layout = draw(arrangements)
        if draw(st.booleans()):  # as after a projection
            x = b.input(tensor(batch, length, heads, size, dtype=dtype, layout=layout, seed=seed))
            operands.append(b("transpose", x, 1, 2))
        else:
            x = b.input(tensor(batch, heads, length, size, dtype=dtype, layout=layout, seed=seed))
            operands.append(x)
    mask, meant = None, None
    if draw(st.booleans()):
        whole = (batch, kv_heads * group, target, source)
        shape = [n if draw(st.booleans()) else 1 for n in whole[draw(st.integers(0, 3)) :]]
        seen = torch.rand(shape) < 0.7
        seen[..., 0] = True
        allowed = torch.zeros(shape).masked_fill(~seen, -math.inf)
        kind = draw(st.sampled_from(["bool", "added", "infinite"]))
        layout = draw(arrangements.filter(lambda name: not name.startswith("repeated")))
        if kind == "bool":
            mask = b.input(seen.expand(shape))
            meant = {mask: allowed.to(dtype)}
        else:
            numbers = tensor(*shape, dtype=dtype, seed=9)
            numbers = numbers + allowed.to(dtype) if kind == "infinite" else numbers
            mask = b.input(ARRANGEMENTS[layout](numbers))
    out = b(
        "attention",
        *operands,
        mask,
        scale=draw(st.sampled_from([0.0, 0.3])),
        causal=draw(st.booleans()),
        swapped=swapped,
        grouped=group > 1,
    )
    if group == 1:
        check(b, out, dtype=dtype, meant=meant)
        return
    check_grouped(b, out, group, dtype, meant)


def check_grouped(
    b: Builder, out: Value, group: int, dtype: torch.dtype, meant: dict[Value, Tensor] | None
) -> None:
    """Compares grouped heads with the same keys and values repeated for each head."""
    assert out.producer is not None
    q, k, v, *rest = out.producer.inputs
    region = region_of(b, out)
    tensors, _ = tensors_and_numbers([b.examples[b.graph.inputs.index(x)] for x in region.inputs])
    plan = make_plan(region)
    assert plan.takes(tensors, []), refusal(plan)
    (got,) = plan.run(tensors, [])
    wide = Builder()
    wide.graph.inputs, wide.examples = list(b.graph.inputs), list(b.examples)
    values = {x: e.double() for x, e in zip(b.graph.inputs, b.examples, strict=True)}
    values |= {x: e.double() for x, e in (meant or {}).items()}

    def read(x: Any) -> Any:
        if x is None or x in values:
            return None if x is None else values[x]
        return values[x.producer.inputs[0]].transpose(1, 2)

    a = out.producer.attributes
    q, k, v, mask = (read(x) for x in (q, k, v, rest[0] if rest else None))
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) * (a["scale"] or q.shape[3] ** -0.5)
    scores = scores if mask is None else scores + mask
    if a["causal"]:
        later = torch.ones(scores.shape[2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -math.inf)
    want = scores.softmax(3) @ v
    want = want.transpose(1, 2) if a["swapped"] else want
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    assert got.shape == want.shape
    assert (got.double() - want).abs().max() <= tolerance * want.abs().max()


MASKS = [
    shape
    for rank in range(5)
    for shape in itertools.product(*((1, n) for n in (2, 3, 5, 7)[4 - rank :]))
]


@pytest.mark.parametrize("kind", ["bool", "float32", "bfloat16"])
@pytest.mark.parametrize("shape", MASKS, ids=str)
def test_masks_of_every_shape(b: Builder, shape: tuple[int, ...], kind: str) -> None:
    dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32  # as torch asks of masks
    q = b.input(tensor(2, 3, 5, 8).to(dtype))
    k, v = (b.input(tensor(2, 3, 7, 8, seed=seed).to(dtype)) for seed in (1, 2))
    seen = torch.rand(shape) < 0.7
    if shape:
        seen[..., 0] = True
    else:
        seen.fill_(True)
    allowed = torch.zeros(shape).masked_fill(~seen, -math.inf)
    mask = b.input(seen if kind == "bool" else allowed.to(getattr(torch, kind)))
    out = b("attention", q, k, v, mask, scale=0.0, causal=False, swapped=False)
    check(b, out, dtype=dtype, meant={mask: allowed})


def test_subnormal_weights_count_as_zero(b: Builder) -> None:
    """Products with subnormals take sixty times as long as others."""
    scores = torch.tensor([[[[0.0, -100.0, -90.0, -1.0]]]]).expand(1, 2, 3, 4).contiguous()
    large = torch.full((1, 2, 4, 8), 1e35)
    large[:, :, [0, 3]] = 1.0
    weights = b("softmax", b.input(scores), dim=-1, log=False)
    (got,) = make_plan(region_of(b, b("matmul", weights, b.input(large)))).run(b.examples, [])
    torch.testing.assert_close(got, torch.ones(1, 2, 3, 8))


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_queries_that_see_no_key_give_zero(b: Builder, kind: str) -> None:
    q, k, v = (b.input(tensor(1, 2, 5, 8, seed=seed)) for seed in range(3))
    seen = torch.ones(5, 5, dtype=torch.bool).tril(-1)
    mask = b.input(seen if kind == "bool" else torch.zeros(5, 5).masked_fill(~seen, -math.inf))
    region = region_of(b, b("attention", q, k, v, mask, scale=0.0, causal=False, swapped=False))
    (got,) = make_plan(region).run(b.examples, [])
    want = F.scaled_dot_product_attention(*b.examples)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_unfused_attention_keeps_the_meaning_of_softmax(kind: str) -> None:
    """Adding True adds 1, and the softmax of an empty set is NaN."""

    class Attention(torch.nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
            return ((q @ k.transpose(2, 3)) * 0.3 + mask).softmax(-1) @ v

    q, k, v = (tensor(2, 3, 70, 8, seed=seed) for seed in range(3))
    seen = torch.ones(70, 70, dtype=torch.bool).tril(-1)
    mask = seen if kind == "bool" else torch.zeros(70, 70).masked_fill(~seen, -math.inf)
    want = Attention()(q, k, v, mask)
    assert want.isnan().any() == (kind == "float")
    frozen = torch.jit.freeze(torch.jit.trace(Attention().eval(), (q, k, v, mask)))
    with torch.no_grad():
        got = torch.jit.optimize_for_inference(frozen)(q, k, v, mask)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [1, 5, 300])
def test_additive_attention_gives_nan_where_no_key_is_seen(
    b: Builder, length: int, causal: bool
) -> None:
    q, k, v = (b.input(tensor(1, 2, length, 16, seed=seed)) for seed in range(3))
    unseen = torch.rand(1, 1, length, length) < 0.5
    unseen[..., ::3, :] = True
    mask = b.input(torch.zeros(unseen.shape).masked_fill(unseen, -math.inf))
    out = b("attention", q, k, v, mask, scale=0.0, causal=causal, swapped=False, additive=True)
    region = region_of(b, out)
    (got,) = make_plan(region).run(b.examples, [])
    (want,) = interpret(region, b.examples, torch.float32, torch.float32)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6, equal_nan=True)


#: Shapes of conditions that replace scores of (batch, heads, target, source).
CHOICES = [(5, 7), (2, 1, 1, 7), (1, 3, 5, 1), (2, 3, 5, 7), ()]

LOWEST = torch.finfo(torch.float32).min


@pytest.mark.parametrize("fill_where", [True, False])
@pytest.mark.parametrize("fill", [-math.inf, LOWEST, -1e9, 0.75])
@pytest.mark.parametrize("shape", CHOICES, ids=str)
def test_attention_with_replaced_scores(
    b: Builder, shape: tuple[int, ...], fill: float, fill_where: bool
) -> None:
    q = b.input(tensor(2, 3, 5, 8))
    k, v = (b.input(tensor(2, 3, 7, 8, seed=seed)) for seed in (1, 2))
    replaced = torch.rand(shape) < 0.4
    if fill == -math.inf:
        replaced = replaced & (torch.arange(shape[-1] if shape else 1) > 0).view(
            [-1] if shape else []
        )
    elif shape:
        replaced[..., :1, :] = True  # a query that sees no key has equal weights
    chosen = b.input(replaced == fill_where)
    mask = b.input(tensor(1, 3, 1, 7, seed=5))
    attributes = {"scale": 0.3, "causal": False, "swapped": False}
    attributes |= {"fill": fill, "fill_where": fill_where}
    check(
        b,
        b("attention", q, k, v, None, chosen, **attributes),
        b("attention", q, k, v, mask, chosen, **attributes),
    )


def test_queries_that_see_no_key_give_nan_in_recognised_attention(b: Builder) -> None:
    q, k, v = (b.input(tensor(1, 2, 5, 8, seed=seed)) for seed in range(3))
    seen = torch.ones(5, 5, dtype=torch.bool).tril(-1)
    chosen = b.input(seen)
    mask = b.input(torch.zeros(5, 5).masked_fill(~seen, -math.inf))
    attributes = {"scale": 0.5, "causal": False, "swapped": False, "additive": True}
    region = region_of(
        b,
        b("attention", q, k, v, mask, **attributes),
        b("attention", q, k, v, None, chosen, fill=-math.inf, fill_where=False, **attributes),
    )
    arguments = [b.examples[b.graph.inputs.index(value)] for value in region.inputs]
    scores = (b.examples[0] @ b.examples[1].mT * 0.5).masked_fill(~seen, -math.inf)
    want = scores.softmax(-1) @ b.examples[2]
    assert want.isnan().any()
    for got in make_plan(region).run(arguments, []):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("source", [7, 300])
def test_the_lowest_number_masks_without_being_infinite(b: Builder, source: int) -> None:
    """If all scores of a query are the lowest number, its weights are equal, as in torch."""
    q = b.input(tensor(2, 2, 5, 8))
    k, v = (b.input(tensor(2, 2, source, 8, seed=seed)) for seed in (1, 2))
    mask = torch.zeros(2, 1, 5, source)
    mask[0, :, :, source // 2 :] = LOWEST
    mask[1] = LOWEST
    causal = torch.ones(5, source, dtype=torch.bool).tril()
    added, chosen = b.input(mask), b.input(causal)
    attributes = {"scale": 0.3, "causal": False, "swapped": False}
    region = region_of(
        b,
        b("attention", q, k, v, added, **attributes),
        b("attention", q, k, v, added, chosen, fill=LOWEST, fill_where=False, **attributes),
    )
    got = make_plan(region).run(b.examples, [])
    scores = b.examples[0] @ b.examples[1].mT * 0.3
    replaced = torch.where(causal, scores, LOWEST)
    want = [(s + mask).softmax(-1) @ b.examples[2] for s in (scores, replaced)]
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(6, 5, 16), (5, 16)])
def test_attention_without_heads_or_batch(
    b: Builder, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    q, k, v = (b.input(tensor(*shape, dtype=dtype, seed=seed)) for seed in range(3))
    mask = b.input(tensor(*shape[:-1], 5, dtype=dtype, seed=4))
    attributes = {"scale": 0.25, "causal": False, "swapped": False}
    check(
        b,
        b("attention", q, k, v, None, **attributes),
        b("attention", q, k, v, mask, **attributes),
        dtype=dtype,
    )


def test_a_number_that_replaces_scores_is_rounded_like_them(b: Builder) -> None:
    bf16 = torch.bfloat16
    fours = torch.full((1, 1, 4, 8), 4.0, dtype=bf16)
    q, k = b.input(fours[..., :3, :]), b.input(fours)
    v, hidden = tensor(1, 1, 4, 8, dtype=bf16), torch.tensor([True, False, False, False])
    options = {"scale": 1.0, "fill": 128.6, "fill_where": True}
    out = b("attention", q, k, b.input(v), None, b.input(hidden), **options)
    (got,) = make_plan(region_of(b, out), bf16).run(b.examples, [])
    scores = torch.full((3, 4), 128.0, dtype=bf16).masked_fill(hidden, 128.6)
    want = scores.float().softmax(-1) @ v[0, 0].float()
    torch.testing.assert_close(got[0, 0].float(), want, rtol=0.01, atol=0.01)


def test_a_number_that_is_infinite_in_bfloat16_is_refused(b: Builder) -> None:
    q, k, v = (b.input(tensor(1, 1, 3, 8, dtype=torch.bfloat16, seed=seed)) for seed in range(3))
    hidden = b.input(torch.ones(3, 3, dtype=torch.bool))
    options = {"scale": 0.5, "fill": -3.4e38, "fill_where": True}
    region = region_of(b, b("attention", q, k, v, None, hidden, **options))
    assert not make_plan(region, torch.bfloat16).takes(b.examples, [])


@pytest.mark.parametrize("layout", ["transposed", "strided"])
def test_masks_of_other_strides(b: Builder, layout: str) -> None:
    q, k, v = (b.input(tensor(1, 2, n, 8, seed=seed)) for seed, n in enumerate((5, 7, 7)))
    mask = b.input(tensor(5, 7, layout=layout))
    check(b, b("attention", q, k, v, mask, scale=0.5))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("repeated", [(0,), (1,), (0, 1)], ids=str)
def test_keys_and_masks_that_are_repeated_are_not_made_whole(
    b: Builder, repeated: tuple[int, ...], transposed: bool, dtype: torch.dtype
) -> None:
    """Even if their elements must be rearranged."""

    def operand(*wide: int, seed: int, dtype: torch.dtype = dtype) -> Value:
        own = [1 if dim in repeated else size for dim, size in enumerate(wide)]
        turned = (*own[:2], own[3], own[2]) if transposed else own
        x = b.input(tensor(*turned, dtype=dtype, seed=seed))
        return b("expand", b("transpose", x, 2, 3) if transposed else x, *wide)

    q = b.input(tensor(64, 8, 2, 16, dtype=dtype))
    k, v = (operand(64, 8, 256, 16, seed=seed, dtype=dtype) for seed in (1, 2))
    mask = operand(64, 8, 2, 256, seed=3)
    out = b("attention", q, k, v, mask, scale=0.0, causal=False, swapped=False)
    whole = 2 * 64 * 8 * 256 * 16 * dtype.itemsize  # keys and values
    assert arena_bytes(check(b, out, dtype=dtype)) <= whole // 4
