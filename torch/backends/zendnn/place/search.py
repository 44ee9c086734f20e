"""Measures layouts of a program, and shows the curve."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from torch.backends.zendnn._columns import table
from torch.backends.zendnn.place.binding import PlacingError
from torch.backends.zendnn.place.commands import Program, Tools, shell
from torch.backends.zendnn.place.placement import Layout, layouts
from torch.backends.zendnn.place.processes import Outcome, log_of, run
from torch.backends.zendnn.place.topology import Topology

_RATE = re.compile(rb"^samples/s: *([0-9]+\.?[0-9]*(?:[eE][-+]?[0-9]+)?)\s*$", re.MULTILINE)

#: What a layout was measured at: the unit, and the value.
Measure = tuple[str, float]


def search(
    topology: Topology, program: Program, tools: Tools, *, latency: bool, memory: str
) -> int:
    """Measure layouts, and print them as a table with the commands of the best.

    The measure is the script's own, if it prints ``samples/s: X`` (the last such line counts), and
    else the time from the start of all instances to the end of the last.

    Returns:
        The exit code: of the first script that failed, which ends the search, or 0.
    """
    tried = layouts(topology, latency, memory)
    found: list[tuple[Layout, Measure]] = []
    code = 0
    for number, instances in enumerate(tried, 1):
        attempt = f"{len(instances)} x {_cpus_each(instances)} CPUs ({number} of {len(tried)})"
        print(f"measuring {attempt}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            code, outcomes = run(program.commands(instances, tools), Path(folder))
            texts = [log_of(Path(folder), index).read_bytes() for index in range(len(instances))]
        if code:
            failed = next((i for i, outcome in enumerate(outcomes) if outcome.code == code), 0)
            sys.stderr.write(texts[failed][-2000:].decode(errors="replace"))
            print(f"error: {attempt}: the script ended with code {code}", file=sys.stderr)
            break
        found.append((instances, _measure(texts, outcomes, latency)))
    if len({name for _, (name, _) in found}) > 1:
        raise PlacingError(_MIXED)
    if found:
        best = (min if latency else max)(found, key=lambda pair: pair[1][1])[0]
        print(*_curve(found, best), "", shell(program.commands(best, tools)), sep="\n")
    return code


_MIXED = "the script printed samples/s above 0 in some of its runs only: print it in all or in none"


def _measure(texts: Sequence[bytes], outcomes: Sequence[Outcome], latency: bool) -> Measure:
    rates = [float(found[-1]) for text in texts if (found := _RATE.findall(text))]
    seconds = max(outcome.seconds for outcome in outcomes)
    if len(rates) not in (0, len(texts)) or not all(rates):
        raise PlacingError(_MIXED)
    if latency:
        return ("ms/sample", 1e3 / rates[0]) if rates else ("s/run", seconds)
    return ("samples/s", sum(rates)) if rates else ("runs/s", len(outcomes) / seconds)


def _curve(found: Sequence[tuple[Layout, Measure]], best: Layout) -> list[str]:
    """Return the layouts as lines of a table, with a bar and the best one marked."""
    name = found[0][1][0]
    largest = max(value for _, (_, value) in found)
    rows = [("instances", "CPUs each", name, "")]
    for instances, (_, value) in found:
        bar = "#" * max(1, round(40 * value / largest))
        row = (str(len(instances)), _cpus_each(instances), f"{value:.4g}")
        rows.append((*row, bar + " best" * (instances is best)))
    return table(rows, ">>><")


def _cpus_each(instances: Layout) -> str:
    sizes = sorted({len(instance.cpus) for instance in instances})
    return "-".join(map(str, sizes[:1] + sizes[1:][-1:]))
