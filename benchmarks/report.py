"""The measurements, and how they are reported: ratios, tables and JSON."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.backends import BACKENDS
from tools.setup_helpers.errors import SetupError

#: The largest allowed difference from eager fp32, as a share of the largest output.
TOLERANCE = {"fp32": 1e-4, "bf16": 1e-1, "int8": 3e-1}


@dataclass(frozen=True)
class Sample:
    """One process's measurement: the median time of a call, and the error of the result."""

    ms: float
    prepare_s: float
    error: float
    gflop: float
    note: str = ""


@dataclass(frozen=True)
class Series:
    """One backend's samples, one for each round, or the reason why it failed."""

    backend: str
    samples: tuple[Sample, ...]
    failure: str = ""

    @property
    def ms(self) -> float:
        """The median over the rounds."""
        return statistics.median(sample.ms for sample in self.samples)

    @property
    def prepare_s(self) -> float:
        """The first round's value; later rounds may reuse what the first one left in a cache."""
        return self.samples[0].prepare_s

    @property
    def error(self) -> float:
        """The largest error of all rounds."""
        return max(sample.error for sample in self.samples)


@dataclass(frozen=True)
class Case:
    """A model in one precision, on every backend."""

    model: str
    precision: str
    series: tuple[Series, ...]

    @property
    def gflop(self) -> float | None:
        """The operations of one call, in billions; a multiply-add counts as two."""
        return next((one.samples[0].gflop for one in self.series if one.samples), None)

    def wrong(self, series: Series) -> bool:
        """Whether a result differed by more than the tolerance."""
        return not series.failure and not series.error <= TOLERANCE[self.precision]

    def right(self) -> list[Series]:
        """The series that neither failed nor were wrong, the fastest first."""
        good = [one for one in self.series if not one.failure and not self.wrong(one)]
        return sorted(good, key=lambda one: one.ms)

    def ratio(self, ours: str, peer: str) -> float | None:
        """The median over the rounds of the time of ``ours`` divided by that of ``peer``.

        None if one of them has no valid result.
        """
        samples = {one.backend: one.samples for one in self.right()}
        if ours == peer or ours not in samples or peer not in samples:
            return None
        pairs = zip(samples[ours], samples[peer], strict=True)
        return statistics.median(mine.ms / other.ms for mine, other in pairs)

    def fastest_peer(self) -> str | None:
        """The fastest backend that is not ours."""
        peers = (one.backend for one in self.right() if not BACKENDS[one.backend].ours)
        return next(peers, None)

    def share(self, series: Series, limits: Mapping[str, float]) -> float | None:
        """The share of the machine's limit that the backend reached; None if unknown."""
        limit = limits.get(self.precision)
        if limit is None or series.failure or self.wrong(series):
            return None
        return series.samples[0].gflop / (series.ms / 1e3) / limit

    def problems(self) -> list[str]:
        """The problems that make the run fail, each as a sentence."""
        found = []
        for one in self.series:
            where = f"{self.model} in {self.precision} on {one.backend}"
            if one.failure:
                found.append(f"{where} failed: {one.failure}")
            elif self.wrong(one):
                allowed = TOLERANCE[self.precision]
                found.append(f"{where} is WRONG by {one.error:.1e} (allowed {allowed:.0e})")
        return found


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """The rows with aligned columns: the first and last to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    lines = (
        "  ".join(
            cell.ljust(width) if place in (0, last) else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def in_document(text: str, part: str, lines: Sequence[str]) -> str:
    """A document with other lines between ``<!-- part -->`` and ``<!-- end -->``.

    Raises SetupError if it has no such part.
    """
    new = "\n".join([f"<!-- {part} -->", *lines, "<!-- end -->"])
    done, count = re.subn(f"<!-- {part} -->.*?<!-- end -->", lambda _: new, text, flags=re.DOTALL)
    if count == 0:
        raise SetupError(f"the document has no part between <!-- {part} --> and <!-- end -->")
    return done


def _text(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def remark(case: Case, series: Series) -> str:
    """A remark about this backend's numbers; empty if there is nothing to say."""
    if series.failure:
        return f"failed: {series.failure}"
    note = next((sample.note for sample in series.samples if sample.note), "")
    return ", ".join(filter(None, ["WRONG" if case.wrong(series) else "", note]))


def table(case: Case, ours: Sequence[str], limits: Mapping[str, float]) -> str:
    """The table of one case: a line for each backend, the fastest first, failures last."""
    ran = {one.backend for one in case.series}
    ours = [name for name in ours if name in ran]
    ratios = [f"{name}/it" for name in ours]
    rows = [["  backend", "ms", "prepare", *ratios, "of limit", "difference", ""]]
    for one in sorted(case.series, key=lambda one: math.inf if one.failure else one.ms):
        numbers = [""] * (len(ratios) + 4)
        if not one.failure:
            numbers = [
                f"{one.ms:.2f}" if one.ms >= 1 else f"{one.ms:.4f}",
                f"{one.prepare_s:.1f} s",
                *(_text(case.ratio(name, one.backend), ".2f") for name in ours),
                _text(case.share(one, limits), ".0%"),
                f"{one.error:.1e}",
            ]
        rows.append([f"  {one.backend}", *numbers, remark(case, one)])
    gflop = "" if case.gflop is None else f", {case.gflop:.3g} Gflop"
    return f"{case.model}, {case.precision}{gflop}\n{aligned(rows)}"


def summary(cases: Sequence[Case], ours: Sequence[str]) -> str:
    """The ratios' geometric means over the models, by precision; empty for fewer than two."""
    rows = []
    for precision in dict.fromkeys(case.precision for case in cases):
        chosen = [case for case in cases if case.precision == precision]
        peers = dict.fromkeys(one.backend for case in chosen for one in case.series)
        for peer in [*(name for name in peers if not BACKENDS[name].ours), "the fastest of them"]:
            cells, counts = [], set()
            for name in ours:
                pairs = [(case, peer if peer in peers else case.fastest_peer()) for case in chosen]
                found = [case.ratio(name, other) for case, other in pairs if other is not None]
                ratios = [ratio for ratio in found if ratio is not None]
                counts.add(len(ratios))
                cells.append(f"{statistics.geometric_mean(ratios):.2f}" if ratios else "")
            if max(counts, default=0) > 1:
                models = "/".join(map(str, sorted(counts)))
                rows.append([f"  {precision} {peer}", *cells, models, ""])
    if not rows:
        return ""
    heads = ["  backend", *(f"{name}/it" for name in ours), "models", ""]
    return "Geometric means of the ratios\n" + aligned([heads, *rows])


def as_json(cases: Sequence[Case], ours: Sequence[str], limits: Mapping[str, float]) -> Any:
    """All measurements and the values of the tables; an infinite error becomes null."""

    def sample(one: Sample) -> dict[str, Any]:
        return {**asdict(one), "error": one.error if math.isfinite(one.error) else None}

    def series(case: Case, one: Series) -> dict[str, Any]:
        reported: dict[str, Any] = {
            "backend": one.backend,
            "rounds": [sample(s) for s in one.samples],
        }
        if one.failure:
            return {**reported, "failure": one.failure}
        return {
            **reported,
            "ms": one.ms,
            "ratios": {name: case.ratio(name, one.backend) for name in ours},
            "share_of_limit": case.share(one, limits),
            "wrong": case.wrong(one),
        }

    return [
        {
            "model": case.model,
            "precision": case.precision,
            "gflop": case.gflop,
            "backends": [series(case, one) for one in case.series],
        }
        for case in cases
    ]
