"""The pass that undoes the repetition of heads before attention."""

from __future__ import annotations

import pytest
from torch.backends.zendnn.ir.node import Value
from torch.backends.zendnn.passes.share_heads import share_heads

from ..support.graphs import Builder, only, ops, random

N, H, REPEATS, T, S, D = 2, 3, 2, 4, 5, 6


@pytest.fixture
def b() -> Builder:
    return Builder()


def known(b: Builder, *shape: int) -> Value:
    """An input whose sizes the graph knows."""
    value = b.input(random(*shape))
    value.dims = shape
    return value


def repeat(b: Builder, x: Value, copy: bool = True, at: int = 2, time: int = S) -> Value:
    """Each head as often as queries share it."""
    dims = [N, H, time, D]
    dims.insert(at, REPEATS)
    x = b("expand", b("unsqueeze", x, at), *dims)
    x = b("contiguous", x) if copy else x
    return b("view", x, N, H * REPEATS, time, D)


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_repeated_heads_are_shared(b: Builder, masked: bool, copy: bool) -> None:
    q, k, v = known(b, N, H * REPEATS, T, D), known(b, N, H, S, D), known(b, N, H, S, D)
    mask = b.input(random(N, 1, T, S)) if masked else None
    repeated = (repeat(b, x, copy) for x in (k, v))
    graph = b.done(b("attention", q, *repeated, mask, scale=0.5, causal=not masked))
    assert b.check(share_heads) == [1]
    graph.remove_dead()
    assert ops(graph) == ["attention"]
    assert only(graph, "attention").inputs == (q, k, v, mask)


def test_times_that_are_not_known_stay_what_they_are(b: Builder) -> None:
    q, k, v = known(b, N, H * REPEATS, T, D), known(b, N, H, S, D), known(b, N, H, S, D)
    k.dims = v.dims = (N, H, None, D)
    graph = b.done(
        b("attention", q, *(repeat(b, x, time=-1) for x in (k, v)), None, scale=0.5, causal=False)
    )
    assert b.check(share_heads) == [1]
    assert only(graph, "attention").inputs == (q, k, v, None)


def test_what_repeats_otherwise_stays(b: Builder) -> None:
    q, k, v = known(b, N, H * REPEATS, T, D), known(b, N, H, S, D), known(b, N, H, S, D)
    unknown, one, few = b.input(random(N, H, S, D)), known(b, 1, H, S, D), known(b, N, H, 1, D)
    late = b.input(random(N, H, S, D))
    late.dims = (N, H, None, D)
    single, whole = known(b, N, 1, T, D), known(b, N, H * REPEATS, S, D)

    def attend(k: Value, v: Value, q: Value = q, **attributes: bool) -> Value:
        return b("attention", q, k, v, None, scale=0.5, causal=False, **attributes)

    b.done(
        attend(repeat(b, k), whole),
        attend(repeat(b, k, at=1), repeat(b, v)),
        attend(repeat(b, unknown), repeat(b, v)),
        attend(repeat(b, one), repeat(b, v)),
        attend(repeat(b, k), repeat(b, late)),
        attend(repeat(b, k), repeat(b, few)),
        attend(repeat(b, k), repeat(b, v), single),
        attend(repeat(b, k), repeat(b, v), additive=True),
    )
    assert b.check(share_heads) == [0]
