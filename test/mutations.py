"""Random changes of a text or of bytes, for tests of what reads files that anyone may have changed.

How many examples such a test draws follows the hypothesis profile; see ``test/conftest.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

#: What draws from a strategy.
Draw = Callable[..., Any]


def examples(count: int) -> settings:
    """Settings for ``count`` examples under the default profile, and in proportion under others."""
    of_profile = settings.default
    assert of_profile is not None
    return settings(max_examples=max(1, count * of_profile.max_examples // 100))


def one_of(draw: Draw, choices: Sequence[Any]) -> Any:
    """One of them, drawn by its number, which shrinks to the first."""
    return choices[draw(st.integers(0, len(choices) - 1))]


def span(draw: Draw, length: int) -> tuple[int, int]:
    """Where a piece of something this long begins and ends; most pieces are short."""
    start = draw(st.integers(0, length))
    longest = length - start if draw(st.integers(0, 3)) == 3 else min(8, length - start)
    return start, start + draw(st.integers(0, longest))


def changed_lines(draw: Draw, lines: list[bytes]) -> list[bytes]:
    """With a line removed, repeated, moved, or exchanged with another."""
    if not lines:
        return lines
    i, j = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    lines = list(lines)
    kind = one_of(draw, ("remove", "repeat", "move", "swap"))
    if kind == "swap":
        lines[i], lines[j] = lines[j], lines[i]
    elif kind == "repeat":
        lines.insert(j, lines[i])
    else:
        line = lines.pop(i)
        if kind == "move":
            lines.insert(min(j, len(lines)), line)
    return lines


def changed(draw: Draw, data: bytes, tokens: Sequence[bytes], most: int = 3) -> bytes:
    """Up to ``most`` changes: of bytes, pieces, lines, and to tokens that the reader looks for."""
    for _ in range(draw(st.integers(1, most))):
        kind = one_of(draw, ("token", "lines", "byte", "remove", "repeat", "cut"))
        start, end = span(draw, len(data))
        if kind == "token":
            data = data[:start] + one_of(draw, tokens) + data[end:]
        elif kind == "lines":
            data = b"\n".join(changed_lines(draw, data.split(b"\n")))
        elif kind == "byte":
            data = data[:start] + draw(st.binary(min_size=1, max_size=1)) + data[start + 1 :]
        elif kind == "remove":
            data = data[:start] + data[end:]
        elif kind == "repeat":
            data = data[:end] + data[start:]
        else:
            data = data[:start]
    return data
