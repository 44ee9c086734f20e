"""Measures layouts of a program, and shows the curve."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from torch.backends.zendnn._binding import PlacingError
from torch.backends.zendnn._commands import Program, Tools, shell
from torch.backends.zendnn._processes import Outcome, log_of, run
from torch.backends.zendnn._table import table
from torch.backends.zendnn.placement import Instance, layouts
from torch.backends.zendnn.topology import Topology

_RATE = re.compile(rb"^samples/s: *([0-9.]+(?:e[-+]?[0-9]+)?)\s*$", re.MULTILINE)


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
    found: list[tuple[tuple[Instance, ...], float]] = []
    names: set[str] = set()
    code = 0
    for number, instances in enumerate(tried, 1):
        told = f"{len(instances)} x {_cpus_each(instances)} CPUs ({number} of {len(tried)})"
        print(f"measuring {told}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            code, outcomes = run(program.commands(instances, tools), Path(folder))
            texts = [log_of(Path(folder), index).read_bytes() for index in range(len(instances))]
        if code:
            failed = next((i for i, outcome in enumerate(outcomes) if outcome.code == code), 0)
            sys.stderr.write(texts[failed][-2000:].decode(errors="replace"))
            print(f"error: {told}: the script ended with code {code}", file=sys.stderr)
            break
        name, value = _measured(texts, outcomes, latency)
        names.add(name)
        if len(names) > 1:
            raise PlacingError(_MIXED)
        found.append((instances, value))
    if found:
        commands = program.commands(_best(found, latency), tools)
        print(*_curve(found, name, latency), "", shell(commands), sep="\n")
    return code


_MIXED = "the script printed samples/s above 0 in some of its runs only: print it in all or in none"


def _measured(
    texts: Sequence[bytes], outcomes: Sequence[Outcome], latency: bool
) -> tuple[str, float]:
    """Return what a run says of its layout: a name with a unit, and a value."""
    rates = [float(found[-1]) for text in texts if (found := _RATE.findall(text))]
    seconds = max(outcome.seconds for outcome in outcomes)
    if len(rates) not in (0, len(texts)) or not all(rates):
        raise PlacingError(_MIXED)
    if latency:
        return ("ms/sample", 1e3 / rates[0]) if rates else ("s/run", seconds)
    return ("samples/s", sum(rates)) if rates else ("runs/s", len(outcomes) / seconds)


def _best(
    found: Sequence[tuple[tuple[Instance, ...], float]], latency: bool
) -> tuple[Instance, ...]:
    return (min if latency else max)(found, key=lambda pair: pair[1])[0]


def _curve(
    found: Sequence[tuple[tuple[Instance, ...], float]], name: str, latency: bool
) -> list[str]:
    """Return the layouts as lines of a table, with a bar and the best one marked."""
    largest, best = max(value for _, value in found), _best(found, latency)
    rows = [("instances", "CPUs each", name, "")]
    for instances, value in found:
        bar = "#" * max(1, round(40 * value / largest))
        row = (str(len(instances)), _cpus_each(instances), f"{value:.4g}")
        rows.append((*row, bar + " best" * (instances is best)))
    return table(rows, ">>><")


def _cpus_each(instances: Sequence[Instance]) -> str:
    sizes = sorted({len(instance.cpus) for instance in instances})
    return "-".join(map(str, sizes[:1] + sizes[1:][-1:]))
