"""Draws measurements as an SVG file: a bar for each backend, grouped by model."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from benchmarks.backends import BACKENDS
from benchmarks.report import Case, Series, remark

WIDTH = 800
LABELS = 120  # width of the column of names
BARS = 440  # length of a group's longest bar
ROW = 18
OUR_COLOUR, PEER_COLOUR, BAD_COLOUR = "#b3261e", "#8a9bb0", "#d9d9d9"


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}"{more}>{escape(text)}</text>'


def _bar(case: Case, series: Series, ours: Sequence[str], longest: float, y: float) -> list[str]:
    label = _text(LABELS - 8, y + 13, series.backend, ' text-anchor="end"')
    said = remark(case, series)
    if series.failure:
        return [label, _text(LABELS, y + 13, said[:90])]
    length = BARS * series.ms / longest
    colour = OUR_COLOUR if BACKENDS[series.backend].ours else PEER_COLOUR
    if case.wrong(series):
        colour = BAD_COLOUR
    ratios = [(name, case.ratio(name, series.backend)) for name in ours[:1]]
    shown = [f"{name}/it {ratio:.2f}" for name, ratio in ratios if ratio is not None]
    words = ", ".join([f"{series.ms:.3g} ms", *shown, *([said] if said else [])])
    return [
        label,
        f'<rect x="{LABELS}" y="{y + 2:g}" width="{length:.1f}" height="{ROW - 4}"'
        f' fill="{colour}"/>',
        _text(LABELS + length + 6, y + 13, words),
    ]


def svg(cases: Sequence[Case], ours: Sequence[str], title: str) -> str:
    """The cases from top to bottom. The bars show times, so the shortest is best.

    Each group has its own scale. The text next to a bar includes the time of the first of ``ours``
    divided by the bar's time.
    """
    parts = [_text(8, 22, title, ' font-size="15" font-weight="bold"')]
    y = 36.0
    for case in cases:
        parts.append(_text(8, y + 14, f"{case.model}, {case.precision}", ' font-weight="bold"'))
        y += ROW + 2
        longest = max((one.ms for one in case.series if not one.failure), default=1.0)
        for one in case.series:
            parts += _bar(case, one, ours, longest, y)
            y += ROW
        y += 8
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y:g}" width="{WIDTH}"'
        f' height="{y:g}" font-family="sans-serif" font-size="12" role="img">\n'
        f"<title>{escape(title)}</title>\n"
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )
