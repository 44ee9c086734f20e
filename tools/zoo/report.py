"""What came of the models: lines of progress, a summary, and the document docs/models.md."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import yaml
from torch.backends.zendnn import _C

from tools.zoo.check import TOLERANCE, WAYS, Way

#: The packages whose versions the document names.
PACKAGES = ("torch", "transformers", "torchvision")
#: How many of the operators that are left out most often the document names.
MOST = 40
#: A model is slower than with Inductor if it takes more than this share of its time.
MARGIN = 1.05
#: Why those are.
SLOWER = Path(__file__).with_name("slower.yaml")


@dataclass(frozen=True)
class Report:
    """What came of one architecture."""

    name: str
    #: Why there is no tiny model; empty when there is one.
    missing: str = ""
    #: The class of the model, and the names of its inputs.
    model: str = ""
    inputs: tuple[str, ...] = ()
    ways: tuple[Way, ...] = ()

    @staticmethod
    def read(items: Mapping[str, Any]) -> Report:
        """Return a report that was saved as JSON."""
        ways = tuple(Way(**{**way, "breaks": tuple(way["breaks"])}) for way in items["ways"])
        return Report(**{**items, "inputs": tuple(items["inputs"]), "ways": ways})

    def __str__(self) -> str:
        if self.missing:
            return f"{self.name}: not built: {self.missing}"
        return f"{self.name}: " + ", ".join(f"{way.way} {_told(way)}" for way in self.ways)


def _told(way: Way) -> str:
    return f"{way.outcome} ({way.detail})" if way.detail else way.outcome


def _built(reports: Iterable[Report]) -> list[Report]:
    return [report for report in reports if not report.missing]


def _counts(reports: Sequence[Report]) -> list[tuple[str, Counter[str], str]]:
    """Return for each way the numbers of outcomes, and the mean of times as text."""
    rows = []
    for place, way in enumerate(WAYS):
        found = [report.ways[place] for report in _built(reports)]
        ratios = [one.ratio for one in found if one.ratio]
        mean = f"{statistics.geometric_mean(ratios):.2f}" if ratios else ""
        rows.append((way, Counter(one.outcome for one in found), mean))
    return rows


def summary(reports: Sequence[Report]) -> str:
    """Return the numbers of outcomes, and the faults."""
    lines = [f"{len(reports)} architectures, {len(_built(reports))} built"]
    for way, outcomes, mean in _counts(reports):
        reported = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
        lines.append(f"  {way}: {reported}{f'; {mean} of stock time' if mean else ''}")
    faults = [(r.name, way) for r in reports for way in r.ways if way.is_ours]
    return "\n".join([*lines, *(f"fault: {name}, {w.way}: {_told(w)}" for name, w in faults)])


# The document.

_HEAD = """# Models

Written by `python -m tools.zoo --write` on {cpu}, {threads} threads,
with {packages}.

The architectures of transformers as tiny models, and those of torchvision on small images, with
random weights in float32, against stock eager torch:

- *compiled*: `torch.compile(model, backend="zendnn")`;
- *dynamic*: the same with `dynamic=True`, and a second call with inputs of other sizes;
- *exported*: `torch.backends.zendnn.optimize` of what `torch.export.export` makes;
- *frozen*: `torch.jit.trace`, `freeze` and `optimize_for_inference`.

A result is right when its largest error is at most {tolerance:g} of its largest number. *Unstable*:
it is not, but stock torch's own result moves about as far in float64, or when rounding moves the
weights, for instance where one of two nearly equal scores is chosen. *Upstream*: stock torch fails,
or is wrong, in the same way: its back end `aot_eager`, or its own pass on frozen graphs.
"""

_MODELS = """
## Each model

The largest error, or what came instead of a right result. The columns *eager* and *Inductor* divide
the compiled model's time by that of stock torch, where it was measured. In models this small, most
time is the overhead of calls. *Graphs* are Dynamo's compilations and, in brackets, the breaks
between them. *Steps* are those of plans in a call, *outside* overridden
operators that ran by themselves, *left out* operators outside of plans and, of these, the one that
the engine refuses most often: all of them compiled.
"""

_COLUMNS = (
    *("model", *WAYS, "/ eager", "/ Inductor", "graphs", "regions", "steps", "outside"),
    *("left out", "most of all"),
)
#: Reasons that follow from what else is left out, or from how small a model is.
_CONSEQUENCES = (
    "only operators outside read it",
    "a view of a result or of an input",
    "too little work for a call",
)


def document(reports: Sequence[Report], known: int) -> str:
    """Return the text of docs/models.md on reports of so many architectures that are known."""
    cpu = _C._cpu()
    head = _HEAD.format(
        cpu=f"{cpu['name'].strip()} (family {cpu['family']}, model {cpu['model']})",
        threads=torch.get_num_threads(),
        packages=", ".join(f"{name} {version(name)}" for name in PACKAGES if find_spec(name)),
        tolerance=TOLERANCE,
    )
    built = _built(reports)
    counts = _counts(reports)
    outcomes = sorted({outcome for _, found, _ in counts for outcome in found})
    rows = [[way, *(found[one] for one in outcomes)] for way, found, _ in counts]
    parts = [
        head,
        f"{len(reports)} of {known} architectures were tried, and {len(built)} could be built:\n",
        _table(["", *outcomes], rows),
        *_times([report.ways[0] for report in built]),
        *_slower(built, reasons(SLOWER)),
        _MODELS,
        _table(_COLUMNS, [_row(report) for report in built]),
    ]
    notes = [(r.name, way) for r in built for way in r.ways if way.outcome != "right"]
    if notes:
        parts.append("\n## Not right\n")
        parts += [f"- {name}, {way.way}: {_told(way)}" for name, way in notes]
    return "\n".join([*parts, *_left_out(built), *_missing(reports), ""])


def _times(compiled: Sequence[Way]) -> Iterator[str]:
    """Yield the section on the times of compiled models, if any was measured."""
    against = {
        "stock eager torch": [way.ratio for way in compiled if way.ratio],
        "Inductor": [way.of_inductor for way in compiled if way.of_inductor],
    }
    rows = [
        [other, len(found), *(f"{one:.2f}" for one in (statistics.median(found), max(found)))]
        for other, found in against.items()
        if found
    ]
    if rows:
        yield "\nTimes of compiled models, divided by those of others:\n"
        yield _table(["", "models", "median", "largest"], rows)


def reasons(file: Path) -> Mapping[str, str]:
    """Return why models are slower than with Inductor, by their names."""
    entries = yaml.safe_load(file.read_text(encoding="utf-8"))
    return {name: entry["reason"] for entry in entries for name in entry["models"]}


def _slower(built: Sequence[Report], known: Mapping[str, str]) -> Iterator[str]:
    """Yield the section on models that are slower than with Inductor, beyond noise."""
    found = {r.name: r.ways[0].of_inductor for r in built if r.ways[0].of_inductor > MARGIN}
    if found:
        yield f"\nModels that take more than {MARGIN} of Inductor's time, and why:\n"
        rows = [[name, f"{found[name]:.2f}", known.get(name, "not known")] for name in found]
        yield _table(["model", "/ Inductor", "reason"], rows)


def _row(report: Report) -> list[Any]:
    compiled = report.ways[0]
    cells = [f"{way.error:.0e}" if way.outcome == "right" else way.outcome for way in report.ways]
    breaks = f" ({len(compiled.breaks)})" if compiled.breaks else ""
    return [
        report.name,
        *cells,
        *(f"{ratio:.2f}" if ratio else "" for ratio in (compiled.ratio, compiled.of_inductor)),
        f"{compiled.compilations}{breaks}",
        compiled.regions,
        compiled.steps,
        compiled.outside,
        sum(compiled.left_out.values()),
        refused_most(compiled),
    ]


def refused_most(way: Way) -> str:
    """Return the operator that the engine refuses most often in a model, and how often."""
    refused: Counter[str] = Counter()
    for what, count in way.left_out.items():
        operator, _, reason = what.partition(": ")
        if reason not in _CONSEQUENCES:
            refused[operator.removeprefix("aten::")] += count
    return "".join(f"{count} {operator}" for operator, count in refused.most_common(1))


def _left_out(built: Sequence[Report]) -> list[str]:
    """Return the section on operators that plans leave out."""
    models: dict[str, Counter[str]] = {way: Counter() for way in WAYS}
    for report in built:
        for way in report.ways:
            refused = [what for what in way.left_out if not what.endswith(_CONSEQUENCES)]
            models[way.way].update(refused)
    total = sum(models.values(), Counter())
    rows = [[what, *(models[way][what] for way in WAYS)] for what, _ in total.most_common(MOST)]
    title = "\n## Left out most often\n\nThe numbers are those of models.\n"
    return [title, _table(["operator: reason", *WAYS], rows)]


def _missing(reports: Sequence[Report]) -> list[str]:
    rows = [f"- {report.name}: {report.missing}" for report in reports if report.missing]
    return ["\n## Not built\n", *rows] if rows else []


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table in Markdown; the first column is text, the others are numbers."""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(map(_cell, cells))} |" for cells in lines)


def _cell(item: Any) -> str:
    return str(item).replace("|", "\\|")
