"""Draws the sweep as SVG: a row for each problem, coloured by its ratio and share of the limit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

LABELS = 210  # width of the column of names
CELL, ROW = 44, 15
GAP = 24
#: A ratio of this, or of 1 over this, is drawn in the full colour.
STRONGEST = 4.0
Colour = tuple[int, int, int]
WHITE: Colour = (255, 255, 255)
FASTER: Colour = (34, 139, 60)
SLOWER: Colour = (200, 30, 30)
LIMIT: Colour = (70, 110, 190)


@dataclass(frozen=True)
class Row:
    """A problem; ``cells`` maps a dtype to (ratio, share of the limit, whether it is slower)."""

    operator: str
    size: str
    cells: dict[str, tuple[float, float | None, bool]]


def _mixed(colour: Colour, part: float) -> str:
    """The colour mixed with white: 1 is the full colour, 0 is white."""
    part = min(max(part, 0.0), 1.0)
    red, green, blue = (round(w + (c - w) * part) for w, c in zip(WHITE, colour, strict=True))
    return f"#{red:02x}{green:02x}{blue:02x}"


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}"{more}>{escape(text)}</text>'


def _box(x: float, y: float, colour: str, text: str, strong: bool = False) -> list[str]:
    edge = ' stroke="black"' if strong else ' stroke="white"'
    return [
        f'<rect x="{x:g}" y="{y:g}" width="{CELL}" height="{ROW}" fill="{colour}"{edge}/>',
        _text(x + CELL / 2, y + 11, text, ' text-anchor="middle"'),
    ]


def _line(row: Row, dtypes: Sequence[str], x: float, y: float) -> list[str]:
    parts = [_text(x + LABELS - 6, y + 11, row.size, ' text-anchor="end"')]
    for place, dtype in enumerate(dtypes):
        if dtype not in row.cells:
            continue
        ratio, share, slower = row.cells[dtype]
        left = x + LABELS + 2 * CELL * place
        colour = _mixed(SLOWER if ratio > 1 else FASTER, abs(math.log(ratio, STRONGEST)))
        parts += _box(left, y, colour, f"{ratio:.2f}", slower)
        if share is not None:
            parts += _box(left + CELL, y, _mixed(LIMIT, share), f"{share:.0%}")
    return parts


def svg(rows: Sequence[Row], dtypes: Sequence[str], title: str) -> str:
    """The map has two columns of operators; each dtype has a ratio and a share of the limit.

    Green means faster than stock torch, red slower, and a black frame slower beyond noise.
    """
    blocks = [(name, list(of)) for name, of in itertools.groupby(rows, lambda row: row.operator)]
    heights = [ROW * (len(of) + 1) + 6 for _, of in blocks]
    width = LABELS + 2 * CELL * len(dtypes)
    top = 64.0
    parts = [
        _text(8, 20, title, ' font-size="14" font-weight="bold"'),
        _text(8, 38, "green: faster, red: slower, framed: beyond noise; blue: share of the limit"),
    ]
    x, y, bottom = 8.0, top, top
    columns = [x]
    for (name, of), height in zip(blocks, heights, strict=True):
        if len(columns) == 1 and y > top and y - top + height / 2 > sum(heights) / 2:
            x, y = x + width + GAP, top
            columns.append(x)
        parts.append(_text(x, y + 11, name, ' font-weight="bold"'))
        y += ROW
        for row in of:
            parts += _line(row, dtypes, x, y)
            y += ROW
        y += 6
        bottom = max(bottom, y)
    for left, (place, dtype) in itertools.product(columns, enumerate(dtypes)):
        middle = left + LABELS + CELL * (2 * place + 1)
        parts.append(_text(middle, top - 6, dtype, ' text-anchor="middle" font-weight="bold"'))
    full = columns[-1] + width + 8
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {full:g} {bottom:g}"'
        f' width="{full:g}" height="{bottom:g}" font-family="sans-serif" font-size="10"'
        f' role="img">\n<title>{escape(title)}</title>\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )
