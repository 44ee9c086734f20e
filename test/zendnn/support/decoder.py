"""A decoder with a cache that grows."""

from __future__ import annotations

from typing import Any

from .graphs import Builder
from .plans import tensor

BATCH, WIDTH, LENGTH = 2, 8, 7


def decoder(b: Builder) -> tuple[Any, ...]:
    """A token that attends to a cache, which grows by it: (BATCH, 1, WIDTH) and (…, LENGTH, …)."""
    x, cache = b.input(tensor(BATCH, 1, WIDTH)), b.input(tensor(BATCH, LENGTH, WIDTH, seed=1))
    normed = b.layer_norm(x, WIDTH)
    grown = b("cat", cache, b.linear(normed, WIDTH, WIDTH), dim=1)
    scores = b("matmul", b.linear(normed, WIDTH, WIDTH), b("transpose", grown, 1, 2))
    seen = b("matmul", b("softmax", scores, dim=-1), grown)
    after = b.binary("add", b.linear(seen, WIDTH, WIDTH), x)
    gated = b.linear(b.eltwise("silu", b.linear(b.layer_norm(after, WIDTH), 24, WIDTH)), WIDTH, 24)
    return grown, gated
