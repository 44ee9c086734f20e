"""Where time goes: operators, plans' steps, and what ZenDNN left to torch.

>>> with torch.backends.zendnn.profiler:
...     model(x)
>>> print(torch.backends.zendnn.profiler.stats())

It hears all threads of the process, and may run together with ``torch.profiler``. It keeps an event
for each operator until the next ``enable()``.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch.backends.zendnn._columns import table
from torch.backends.zendnn.doctor.limits import Roof
from torch.backends.zendnn.doctor.limits import roof as measure_roof
from torch.backends.zendnn.observe import chart, route
from torch.backends.zendnn.observe.calls import CallEvent
from torch.backends.zendnn.observe.interval import calls, disable, enable, is_in_roi, last

__all__ = ["chart", "disable", "enable", "is_in_ROI", "is_in_roi", "route", "stats"]

#: HammerBlade's name of it.
is_in_ROI = is_in_roi


@dataclass
class _Row:
    """Calls of one operator, from one place of the call tree, that ran in one way."""

    operator: str
    route: str = ""
    implementation: str = ""
    reason: str = ""
    calls: int = 0
    ms: float = 0.0
    self_ms: float = 0.0
    #: Of a plan's step, where something counts them: the time of the implementation alone, in
    #: milliseconds, its floating-point operations, and the bytes of its operands and results.
    step_ms: float = 0.0
    flops: float = 0.0
    bytes: float = 0.0
    dtype: torch.dtype | None = None
    children: dict[tuple[str, ...], _Row] = field(default_factory=dict)

    def add(self, call: CallEvent, *, trimming: bool) -> None:
        """Add a call below this row."""
        if trimming and call.is_preparation:
            return
        reported = call.reported
        how = (
            (reported.route, reported.implementation, reported.reason) if reported else ("", "", "")
        )
        row = self.children.setdefault((call.operator, *how), _Row(call.operator, *how))
        row.calls += 1
        row.ms += (ms := call.milliseconds(trimming=trimming))
        inside = sum(child.milliseconds(trimming=trimming) for child in call.children)
        row.self_ms += max(ms - inside, 0.0)
        if reported:
            row.step_ms += reported.ms
            row.flops += reported.flops
            row.bytes += reported.bytes
            row.dtype = reported.dtype
        for child in call.children:
            row.add(child, trimming=trimming)

    def walk(self, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], _Row]]:
        """Yield it and all below it, the longest first, each with the operators that lead there."""
        path = (*path, self.operator)
        yield path, self
        for row in sorted(self.children.values(), key=lambda row: -row.ms):
            yield from row.walk(path)

    @property
    def how(self) -> str:
        """The implementation, or why torch's kernel ran."""
        return f"torch: {self.reason}" if self.reason else self.implementation

    def rate(self, amount: float) -> str:
        """Return an amount per nanosecond of its steps; nothing where it is unknown."""
        return f"{amount / self.step_ms / 1e6:.1f}" if amount and self.step_ms else ""

    def share_of(self, roof: Roof) -> float | None:
        """Return its steps' speed as a part of what the machine can do; None where unknown."""
        least = roof.ms(self.dtype, self.flops, self.bytes) if self.bytes else None
        return least / self.step_ms if least and self.step_ms else None


def _tree(*, trimming: bool) -> _Row:
    """Return the region of interest with all calls below it."""
    root, roi = _Row("ROI", calls=1), last()
    if roi is None:
        return root
    for call in (outermost := calls()):
        root.add(call, trimming=trimming)
    here = [call for call in outermost if call.event.thread == roi.thread]
    root.ms = roi.ms
    if trimming:
        root.ms -= roi.overhead + sum(call.preparation() for call in here)
    inside = sum(call.milliseconds(trimming=trimming) for call in here)
    root.self_ms = max(root.ms - inside, 0.0)
    return root


def _exec_time(*, trimming: bool, roof: Roof | None) -> str:
    root = _tree(trimming=trimming)
    head = ("total ms", "self ms", "share", "calls", "Gflop/s", "GB/s")
    rows = [(*head, *(("of limit",) if roof else ()), "operator", "ran as")]
    for path, row in root.walk():
        share = f"{row.ms / root.ms:.1%}" if root.ms else ""
        name = "  " * (len(path) - 1) + row.operator
        times = (f"{row.ms:.3f}", f"{row.self_ms:.3f}", share, str(row.calls))
        rates = [row.rate(row.flops), row.rate(row.bytes)]
        if roof:
            reached = row.share_of(roof)
            rates.append("" if reached is None else f"{reached:.0%}")
        rows.append((*times, *rates, name, row.how))
    return "\n".join(table(rows, ">" * (len(rows[0]) - 2) + "<<"))


def _exec_time_latex(*, trimming: bool, roof: Roof | None) -> str:
    del roof
    root = _tree(trimming=trimming)
    operators: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for path, row in root.walk():
        name = "other" if len(path) == 1 else row.operator
        operators[name][0] += row.calls
        operators[name][1] += row.self_ms
    lines = [
        r"\begin{tabular}{lrrr}",
        r"\hline",
        r"operator & calls & self time (ms) & share \\",
        r"\hline",
    ]
    for name, (count, ms) in sorted(operators.items(), key=lambda item: -item[1][1]):
        share = f"{ms / root.ms:.1%}" if root.ms else "0%"
        cells = (_latex(name), f"{count:.0f}", f"{ms:.3f}", _latex(share))
        lines.append(" & ".join(cells) + r" \\")
    lines += [r"\hline", r"\end{tabular}"]
    return "\n".join(lines)


_LATEX = str.maketrans(
    {c: f"\\{c}" for c in "_&%$#{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
)


def _latex(text: str) -> str:
    return text.translate(_LATEX)


def _exec_time_raw(*, trimming: bool, roof: Roof | None) -> str:
    rows = [
        {
            "path": path,
            "route": row.route,
            "implementation": row.implementation,
            "reason": row.reason,
            "calls": row.calls,
            "total_ms": row.ms,
            "self_ms": row.self_ms,
            "flop": row.flops,
            "bytes": row.bytes,
            **({"of_limit": row.share_of(roof)} if roof else {}),
        }
        for path, row in _tree(trimming=trimming).walk()
    ]
    return json.dumps(rows, indent=1)


def _unimpl(*, trimming: bool, roof: Roof | None) -> str:
    del roof
    times: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for outermost in calls():
        for call in outermost.walk():
            if call.is_kernel and not call.offloaded:
                reason = call.reported.reason if call.reported else "an operator that ZenDNN lacks"
                times[call.operator, reason].append(call.milliseconds(trimming=trimming))
    rows = [
        (f"{sum(ms):.3f}", str(len(ms)), *key)
        for key, ms in sorted(times.items(), key=lambda item: -sum(item[1]))
    ]
    return "\n".join(table([("total ms", "calls", "operator", "reason"), *rows], ">><<"))


_STATS = {
    "ExecTime": ("Time by operator", _exec_time),
    "ExecTime-Latex": ("Time by operator (LaTeX)", _exec_time_latex),
    "ExecTime-Raw": ("Time by operator (JSON)", _exec_time_raw),
    "Unimpl": ("Operators that ran on torch's own kernels", _unimpl),
}


def stats(
    key: Sequence[str] = ("ExecTime", "Unimpl"), trimming: bool = False, limits: bool = False
) -> str:
    """Return tables of the last region of interest; several have titles.

    Args:
        key: which tables:

            - ``'ExecTime'``: the call tree. Calls from one place that ran in one way are one row;
              ``share`` is of the time from ``enable()`` to ``disable()``. The steps of a plan are
              below their region, with Gflop/s where they multiply, and GB/s of their operands and
              results. Threads are added up, so that shares may exceed 100 %.
            - ``'ExecTime-Latex'``: self times of the same operators, as a LaTeX tabular.
            - ``'ExecTime-Raw'``: for programs, the call tree as a JSON list of objects: ``path``
              (operators from ``'ROI'`` on), ``route`` (``'plan'``, ``'eager'``, ``'torch'``, or
              ``''`` where ZenDNN has no say), ``implementation``, ``reason``, ``calls``,
              ``total_ms``, ``self_ms`` and, of plans' steps, ``flop``, ``bytes`` and, with
              ``limits``, ``of_limit``.
            - ``'Unimpl'``: operators that ran on torch's own kernels, and why.
        trimming: leave out the profiler's own time, and the preparation of first calls: what plans
            take to build and tune, and ``torch.compile`` to compile.
        limits: also show the speed of plans' steps as a part of the machine's limit, at torch's
            number of threads: of its multiply-adds or of reading memory, whichever bounds the step.
            Steps whose operands are in caches may exceed it. The first use measures the limits, in
            about two seconds.

    Raises:
        ValueError: for an unknown key.
    """
    keys = [key] if isinstance(key, str) else list(key)
    for name in keys:
        if name not in _STATS:
            raise ValueError(f"stats() has no key {name!r}: use some of {', '.join(_STATS)}")
    roof = measure_roof(torch.get_num_threads()) if limits else None
    sections = [(_STATS[name][0], _STATS[name][1](trimming=trimming, roof=roof)) for name in keys]
    if len(sections) == 1:
        return sections[0][1]
    return "\n\n".join(f"{title}\n{text}" for title, text in sections)


class _Profiler(ModuleType):
    """This module, as a context manager that profiles its block."""

    def __enter__(self) -> _Profiler:
        enable()
        return self

    def __exit__(self, *_: Any) -> None:
        disable()


sys.modules[__name__].__class__ = _Profiler
