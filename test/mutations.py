"""Random changes of text or bytes, for tests of code that reads files from users."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from test.drawing import Draw, one_of


def span(draw: Draw, length: int) -> tuple[int, int]:
    """The start and end of a piece within ``length``; most pieces are short."""
    start = draw(st.integers(0, length))
    longest = length - start if draw(st.integers(0, 3)) == 3 else min(8, length - start)
    return start, start + draw(st.integers(0, longest))


def changed_lines(draw: Draw, lines: list[bytes]) -> list[bytes]:
    """The lines with one removed, repeated, moved, or swapped with another."""
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
    """Applies up to ``most`` changes to bytes, pieces and lines, or inserts known tokens."""
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
