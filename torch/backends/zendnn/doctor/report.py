"""What the doctor found, as a page of text, as JSON and as HTML with plots."""

from __future__ import annotations

import dataclasses
import html
import json
import os
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from torch.backends.zendnn._columns import table
from torch.backends.zendnn.doctor.facts import Facts
from torch.backends.zendnn.doctor.findings import Finding
from torch.backends.zendnn.doctor.log import Log
from torch.backends.zendnn.doctor.model import Observation

#: The most rows of a table of operators.
_ROWS = 12

_WIDTH = 100


@dataclass(frozen=True)
class Report:
    """All that is known; what was not asked for is None.

    Attributes:
        findings: the most expensive first.
        notes: what went wrong on the way.
    """

    findings: tuple[Finding, ...]
    facts: Facts | None = None
    model: Observation | None = None
    log: Log | None = None
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return everything in dicts, lists, numbers and text."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self), default=_plain))
        return plain

    def json(self) -> str:
        """Return everything as JSON."""
        return json.dumps(self.as_dict(), indent=2)

    def text(self, colours: bool = False) -> str:
        """Return a page for people."""
        paint = _Paint(colours)
        lines: list[str] = []
        for section in self.sections():
            lines += [paint.title(section.title), *section.lines(), ""]
        lines += _finding_lines(self.findings, paint)
        return "\n".join([*lines, *map(paint.problem, self.notes)])

    def html(self) -> str:
        """Return a page that needs nothing else."""
        body = [_findings_html(self.findings)]
        body += [f'<p class="problem">{html.escape(note)}</p>' for note in self.notes]
        body += [section.html() for section in self.sections()]
        return _PAGE.format(style=_STYLE, body="\n".join(body))

    def sections(self) -> Iterator[Section]:
        """Yield the tables."""
        if self.facts:
            yield _machine(self.facts)
            if self.facts.limits:
                yield _products(self.facts)
        if self.model:
            yield _operators(self.model)
            if self.model.left_out:
                rows = [("count", "operator", "reason", "where"), *self.model.left_out]
                yield Section("Left out of plans", rows, "><<<")
            if self.model.trials:
                yield _trials(self.model)
        if self.log:
            yield _primitives(self.log)


def _plain(value: object) -> object:
    return sorted(value) if isinstance(value, frozenset) else str(value)


@dataclass(frozen=True)
class Section:
    """A table, and the bars of its plot: a label and a value each."""

    title: str
    rows: Sequence[tuple[str, ...]]
    alignments: str
    bars: Sequence[tuple[str, float]] = ()
    unit: str = ""

    def lines(self) -> list[str]:
        """Return lines of text."""
        return [f"  {line}" for line in table(self.rows, self.alignments)] if self.rows else []

    def html(self) -> str:
        """Return a heading, the plot and the table."""
        rows = "".join(
            "<tr>"
            + "".join(
                f'<td class="{"number" if side == ">" else "text"}">{html.escape(cell)}</td>'
                for cell, side in zip(row, self.alignments, strict=False)
            )
            + "</tr>"
            for row in self.rows
        )
        plot = _bars(self.bars, self.unit) if self.bars else ""
        return f"<h2>{html.escape(self.title)}</h2>{plot}<table>{rows}</table>"


def _machine(facts: Facts) -> Section:
    load, limits = facts.load, facts.limits
    l1, l2, l3 = (size >> 10 for size in facts.caches)
    quota = "" if facts.quota is None else f", of which the control group allows {facts.quota:.3g}"
    measured = []
    if limits:
        measured = [f"reading memory {limits.read:.1f} GB/s"]
        if limits.gflops:
            measured.insert(0, f"multiply-adds {limits.gflops:.0f} Gflop/s (float32)")
    clock = [facts.governor and f"governor {facts.governor}"]
    clock.append({True: "boost on", False: "boost off", None: ""}[facts.boost])
    torch_version, made_for, zendnn = facts.versions
    variables = [f"{name}={value}" for name, value in facts.variables.items()]
    rows = [
        ("CPU", f"{facts.cpu}; {facts.isa}"),
        ("caches", f"L1d {l1} KiB, L2 {l2} KiB, L3 {l3 >> 10} MiB"),
        ("layout", facts.topology.describe() + quota),
        ("clock", ", ".join(filter(None, clock))),
        (
            "memory",
            f"{facts.total / 2**30:.1f} GiB, {facts.free / 2**30:.1f} free; "
            f"huge pages {facts.huge_pages or 'unknown'}; policy {facts.policy}",
        ),
        ("limits", ", ".join(measured)),
        (
            "other load",
            f"{100 * load.others:.0f} % of the CPUs' time"
            + (f", hypervisor {100 * load.stolen:.0f} %" if load.stolen else ""),
        ),
        ("torch", f"{torch_version} ({facts.build}), ZenDNN {zendnn} for torch {made_for}"),
        (
            "threads",
            f"{facts.threads} of torch; subnormals {'are 0' if facts.flushes else 'count'}",
        ),
        ("OpenMP", ", ".join(Path(path).name for path in facts.openmp)),
        ("allocator", facts.allocator),
        ("variables", ", ".join(variables) or "nothing set"),
    ]
    return Section("Machine", [row for row in rows if row[1]], "<<")


def _products(facts: Facts) -> Section:
    assert facts.limits
    rates = facts.limits.products
    rows = [(f"{threads}", f"{rate:.0f} Gflop/s") for threads, rate in rates]
    bars = [(f"{threads} threads", rate) for threads, rate in rates]
    return Section("Matrix products by threads", rows, ">>", bars, "Gflop/s")


def _operators(model: Observation) -> Section:
    groups: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
    for operation in model.operations:
        event = operation.event
        how = (event.reason or event.implementation) if event else ""
        groups[operation.operator, event.route if event else "torch", how].append(operation.ms)
    header = ("ms", "share", "calls", "route", "operator", "implementation, or why not ZenDNN")
    title = f"Time of {model.name}: {model.ms:.2f} ms in operators"
    return _shares(title, header, groups, model.ms)


def _primitives(log: Log) -> Section:
    groups: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
    for execution in log.executions:
        groups[execution.kind, execution.route, execution.implementation].append(execution.ms)
    facts = ", ".join(f"{key} {value}" for key, value in log.facts)
    header = ("ms", "share", "calls", "route", "primitive", "implementation, or why not ZenDNN")
    title = f"Time of the log: {log.ms:.2f} ms" + (f" ({facts})" if facts else "")
    return _shares(title, header, groups, log.ms)


def _shares(
    title: str,
    header: tuple[str, ...],
    groups: Mapping[tuple[str, str, str], Sequence[float]],
    total: float,
) -> Section:
    ordered = sorted(groups.items(), key=lambda item: -sum(item[1]))
    rows, bars = [header], []
    for (name, route, how), times in ordered[:_ROWS]:
        ms = sum(times)
        share = f"{100 * ms / (total or 1):.1f} %"
        rows.append((f"{ms:.3f}", share, str(len(times)), route, name, how))
        bars.append((name, ms))
    if rest := ordered[_ROWS:]:
        ms, calls = sum(sum(times) for _, times in rest), sum(len(times) for _, times in rest)
        share = f"{100 * ms / (total or 1):.1f} %"
        rows.append((f"{ms:.3f}", share, str(calls), "", f"{len(rest)} more", ""))
    return Section(title, rows, ">>><<<", bars, "ms")


def _gain(percent: float) -> str:
    """Return a gain, or how much slower it is; a factor reads better than thousands of per cent."""
    factor = 1 - percent / 100
    return f"{percent:+.0f} %" if factor < 2 else f"{factor:.3g} x slower"


def _trials(model: Observation) -> Section:
    rows = [("variant", "ms", "gain", "results", "code")]
    for trial in model.trials:
        ms = "" if trial.ms is None else f"{trial.ms:.3f}"
        gain = "" if trial.gain is None or not trial.code else _gain(trial.gain)
        rows.append((trial.name, ms, gain, trial.note, trial.code))
    bars = [(trial.name, trial.ms) for trial in model.trials if trial.ms is not None]
    batch = f", batch of {model.batch}" if model.batch else ""
    return Section(f"Tried on {model.name}{batch}", rows, "<>><<", bars, "ms")


# For people.


@dataclass(frozen=True)
class _Paint:
    """Colours, where there is a terminal."""

    on: bool

    def _in(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.on else text

    def title(self, text: str) -> str:
        return self._in("1", text)

    def problem(self, text: str) -> str:
        return self._in("1;31", text)

    def cost(self, text: str) -> str:
        return self._in("33", text)

    def fix(self, text: str) -> str:
        return self._in("32", text)


def colours(stream: IO[str], environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether text for a stream may have colours: see https://no-color.org."""
    plain = environment.get("NO_COLOR") or environment.get("TERM") == "dumb"
    return stream.isatty() and not plain


def _cost(finding: Finding) -> str:
    return "" if finding.cost is None else f"costs {finding.cost:.0f} % of {finding.of}"


def _finding_lines(findings: Sequence[Finding], paint: _Paint) -> Iterator[str]:
    if not findings:
        yield paint.title("Nothing found")
        return
    yield paint.title(f"{len(findings)} finding{'s' * (len(findings) > 1)}")
    for number, finding in enumerate(findings, 1):
        cost = _cost(finding)
        separator = ": " if cost else ""
        yield f"{number:>3}. {paint.problem(finding.problem)}{separator}{paint.cost(cost)}"
        wrapped = textwrap.wrap(finding.evidence, _WIDTH - 11, break_long_words=False)
        yield from (f"     {'seen' if not i else '':<4}  {line}" for i, line in enumerate(wrapped))
        yield f"     mend  {paint.fix(finding.fix)}"


# For browsers.

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem;
  color: #222; background: #fff }
h2 { margin-top: 2rem; font-size: 1.15rem }
table { border-collapse: collapse; font-size: .9rem }
td { padding: .15rem .8rem .15rem 0; vertical-align: top; border-bottom: 1px solid #eee }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
li { margin-bottom: 1rem }
code { background: #f3f3f3; padding: .1rem .3rem; overflow-wrap: anywhere }
.problem { font-weight: 600; color: #a11 }
svg { display: block; margin: .5rem 0 1rem; max-width: 100% }
svg text { font: 12px system-ui, sans-serif; fill: #222 }
svg rect { fill: #3b6ea5 }
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>ZenDNN doctor</title>
<style>{style}</style>
</head>
<body>
<h1>ZenDNN doctor</h1>
{body}
</body>
</html>
"""


def _findings_html(findings: Iterable[Finding]) -> str:
    items = "".join(
        f'<li><span class="problem">{html.escape(finding.problem)}</span> '
        f"{html.escape(_cost(finding))}<br>{html.escape(finding.evidence)}"
        f"<br><code>{html.escape(finding.fix)}</code></li>"
        for finding in findings
    )
    return f"<h2>Findings</h2><ol>{items}</ol>" if items else "<h2>Nothing found</h2>"


def _bars(bars: Sequence[tuple[str, float]], unit: str) -> str:
    """Return a plot of horizontal bars as SVG."""
    longest = max((value for _, value in bars), default=0.0) or 1.0
    left, row, room = 260, 20, 420
    parts = []
    for index, (label, value) in enumerate(bars):
        top, width = row * index, max(1.0, room * value / longest)
        short = label if len(label) <= 40 else label[:39] + "…"
        parts.append(
            f'<text x="{left - 8}" y="{top + 14}" text-anchor="end">{html.escape(short)}</text>'
            f'<rect x="{left}" y="{top + 3}" width="{width:.1f}" height="{row - 6}"/>'
            f'<text x="{left + width + 6:.1f}" y="{top + 14}">{value:.3g} {unit}</text>'
        )
    size = f'width="{left + room + 100}" height="{row * len(bars)}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{"".join(parts)}</svg>'
