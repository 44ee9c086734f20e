"""Tables as people read them: rows of text in aligned columns."""

from __future__ import annotations

from collections.abc import Sequence


def table(rows: Sequence[Sequence[str]], alignments: str) -> list[str]:
    """Return rows as lines, with each column aligned to the left (<) or to the right (>)."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    formats = [f"{side}{width}" for side, width in zip(alignments, widths, strict=False)]
    return ["  ".join(map(format, row, formats)).rstrip() for row in rows]
