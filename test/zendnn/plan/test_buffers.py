"""The arena: buffers that are needed at the same time do not overlap."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from torch.backends.zendnn import _C

from test.drawing import property_test

ALIGNMENT = 64

Buffer = tuple[int, int, int]  # bytes, the first step and the last

buffers = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 12), st.integers(0, 12)).map(
        lambda of: (of[0], min(of[1:]), max(of[1:]))
    ),
    max_size=24,
)


def aligned(size: int) -> int:
    return max(-(-size // ALIGNMENT), 1) * ALIGNMENT


def needed_at(step: int, buffers: list[Buffer]) -> int:
    """Of a buffer without bytes, which no step reads or writes, none."""
    return sum(aligned(size) for size, first, last in buffers if size and first <= step <= last)


@property_test
@given(buffers=buffers)
def test_buffers_that_are_needed_together_do_not_overlap(buffers: list[Buffer]) -> None:
    offsets, total = _C._lay_out(buffers)
    assert len(offsets) == len(buffers)
    spans: list[tuple[int, int, int, int]] = []
    for (size, first, last), offset in zip(buffers, offsets, strict=True):
        assert offset % ALIGNMENT == 0
        assert 0 <= offset <= total - size
        for begin, end, others_first, others_last in spans:
            apart = offset + size <= begin or end <= offset
            assert apart or last < others_first or others_last < first
        spans.append((offset, offset + size, first, last))


@property_test
@given(buffers=buffers)
@example(buffers=[(0, 0, 0), (0, 0, 0)])
def test_the_arena_is_no_larger_than_all_buffers_side_by_side(buffers: list[Buffer]) -> None:
    _, total = _C._lay_out(buffers)
    assert max((needed_at(step, buffers) for step in range(13)), default=0) <= total
    assert total <= sum(aligned(size) for size, _, _ in buffers)


@pytest.mark.parametrize("length", [1, 7])
def test_a_chain_of_steps_needs_two_buffers(length: int) -> None:
    """Each step reads the buffer that the step before it wrote."""
    chain = [(1000, step, step + 1) for step in range(length)]
    _, total = _C._lay_out(chain)
    assert total == min(length, 2) * aligned(1000)


def test_no_buffers_need_no_memory() -> None:
    assert _C._lay_out([]) == ([], 0)


# FIX
