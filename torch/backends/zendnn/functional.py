"""Functions of language models, made of torch's operators, which plans run as one step each.

They take float32 and bfloat16 tensors, work with any compiler, ``torch.func`` and fake tensors, and
record gradients; only writes to a cache do not.
"""

from __future__ import annotations

import warnings
from typing import overload

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["rms_norm", "rope", "sdpa", "silu_and_mul"]


def rope(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Tensor:
    """Return x after a rotary position embedding.

    Each pair (a, b) of a row becomes (a·cos - b·sin, b·cos + a·sin). How a model scales its
    embedding (linear, YaRN, Llama 3) only shows in its tables.

    Args:
        x: (…, size), such as the queries or the keys (batch, heads, time, size).
        cos, sin: (…, rotary), with a number for each element of a pair, as models in transformers
            have them; they broadcast to (…, rotary) of x, such as (time, rotary) or
            (batch, 1, time, rotary). ``rotary`` is even and at most ``size``; the elements of x
            from there on stay what they are.
        interleaved: pairs are neighbours, 2i and 2i + 1, as in GPT-J; otherwise they are i and
            i + rotary / 2, as in Llama.

    Returns:
        A tensor of the sizes of x. Its dtype is that of x·cos.

    Raises:
        ValueError: where the tables differ in their last size, or that is odd or larger than that
            of x.
        RuntimeError: where they do not broadcast.
    """
    size, rotary, other = _size(x, -1), _size(cos, -1), _size(sin, -1)
    if other != rotary or rotary % 2 != 0 or rotary > size:
        raise ValueError(
            f"rope needs tables with an even number of columns, at most {size}, "
            f"not {rotary} and {other}"
        )
    turned = x if rotary == size else x[..., :rotary]
    if interleaved:
        quarter = torch.stack((-turned[..., 1::2], turned[..., ::2]), -1).flatten(-2)
    else:
        quarter = torch.cat((-turned[..., rotary // 2 :], turned[..., : rotary // 2]), -1)
    result = turned * cos + quarter * sin
    return result if rotary == size else torch.cat((result, x[..., rotary:]), -1)


@overload
def rms_norm(
    x: Tensor, weight: Tensor | None = ..., eps: float = ..., *, residual: None = ...
) -> Tensor: ...
@overload
def rms_norm(
    x: Tensor, weight: Tensor | None = ..., eps: float = ..., *, residual: Tensor
) -> tuple[Tensor, Tensor]: ...
def rms_norm(
    x: Tensor, weight: Tensor | None = None, eps: float = 1e-6, residual: Tensor | None = None
) -> Tensor | tuple[Tensor, Tensor]:
    """Return x / √(mean(x²) + eps) · weight over the last dimension.

    Args:
        x: (…, size).
        weight: (size,), of the dtype of x; None for 1.
        eps: what is added to the mean square.
        residual: of the sizes and dtype of x; it is added to x first.

    Returns:
        A tensor of the sizes and dtype of x; with a residual, the norm of x + residual, and
        x + residual.

    Raises:
        RuntimeError: where the sizes of the weight differ, or those of the residual do not
            broadcast.
    """
    if residual is None:
        return F.rms_norm(x, x.shape[-1:], weight, eps)
    total = x + residual
    return F.rms_norm(total, total.shape[-1:], weight, eps), total


def silu_and_mul(x: Tensor) -> Tensor:
    """Return silu(a)·b of the halves a and b of the last dimension: SwiGLU behind its layers.

    Args:
        x: (…, 2 · size), such as the result of one layer with the weights of the gate above those
            of the other.

    Returns:
        A tensor (…, size) of the dtype of x.

    Raises:
        ValueError: where the last size is odd.
    """
    size = _size(x, -1)
    if size % 2 != 0:
        raise ValueError(f"silu_and_mul needs an even number of columns, not {size}")
    gate, other = x.chunk(2, -1)
    return F.silu(gate) * other


def sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    cache: tuple[Tensor, Tensor] | None = None,
    position: Tensor | None = None,
) -> Tensor:
    """Return softmax(query · keyᵀ · scale + mask) · value, over a cache if there is one.

    Args:
        query: (batch, heads, time, size).
        key, value: (batch, groups, source, size); the number of heads is a multiple of that of
            groups, and heads / groups heads in a row share one.
        mask: broadcasts to (batch, heads, time, source): bool, true where a query looks, or of the
            dtype of the query, which is added to the scores. With a cache, ``source`` is its
            length.
        causal: query i only looks at keys up to i, or, with a cache, up to its own position.
            Without a cache it excludes a mask.
        scale: a factor of the scores; 1 / √size by default.
        cache: the keys and the values so far, each (batch, groups, length, size), of the dtype of
            the keys. The new ones are written to their rows ``position``, in place, before queries
            look at all of it. Rows that were never written must be hidden: by ``causal``, where
            they are the last ones, or by the mask.
        position: int64 (source,), distinct rows of the cache: the positions of the keys. With
            ``causal`` there are as many queries, at the same positions.

    Returns:
        A tensor (batch, heads, time, size) of the dtype of the query.

    Raises:
        ValueError: where heads are no multiple of groups; where only one of cache and position is
            given; and where a gradient of what a cache gets would be recorded.
        IndexError: for a position outside the cache.
        RuntimeError: where other sizes or dtypes do not fit.
    """
    heads, groups = _size(query, -3), _size(key, -3)
    if heads % groups != 0:
        raise ValueError(f"sdpa needs a multiple of {groups} heads, not {heads}")
    if cache is not None and position is not None:
        if torch.is_grad_enabled() and (key.requires_grad or value.requires_grad):
            raise ValueError(
                "sdpa records no gradient through a cache: call it under torch.no_grad()"
            )
        keys, values = cache
        key, value = keys.index_copy_(-2, position, key), values.index_copy_(-2, position, value)
        if causal:
            rows = torch.arange(key.shape[-2], device=key.device)
            seen = rows <= position[:, None]
            mask = _both(seen, mask, query.dtype)
            causal = False
    elif cache is not None or position is not None:
        raise ValueError("sdpa needs a cache and positions in it, or neither")
    return F.scaled_dot_product_attention(
        query, key, value, mask, is_causal=causal, scale=scale, enable_gqa=heads != groups
    )


def _size(x: Tensor, dim: int) -> int:
    """A size that decides what is computed: a number, also while torch.jit.trace records."""
    if not torch.jit.is_scripting():  # noqa: SIM102 - scripts leave out what is inside
        if torch.jit.is_tracing():
            with warnings.catch_warnings():  # the trace is for this number, as the checks are
                warnings.simplefilter("ignore", torch.jit.TracerWarning)
                return int(x.shape[dim])
    return x.shape[dim]


def _both(seen: Tensor, mask: Tensor | None, dtype: torch.dtype) -> Tensor:
    """The mask, where queries look at all."""
    if mask is None:
        return seen
    if mask.dtype == torch.bool:
        return seen & mask
    return torch.where(seen, mask, torch.full((), -torch.inf, dtype=dtype))


# Dynamo skips what is in torch's folder; AOTAutograd looks through what is allowed.
for _function in (rms_norm, rope, sdpa, silu_and_mul):
    torch.compiler.allow_in_graph(_function)
