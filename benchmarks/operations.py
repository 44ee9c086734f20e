"""Times overridden operators, and layers in plans, against torch's own kernels, at real sizes.

    python -m benchmarks.operations [--only TEXT] [--models bert-base,…] [--dtype float32,bfloat16]
        [--seconds S] [--threads N] [--json FILE] [--plot FILE] [--check]

Both sides take turns in one process, in pairs, so that ratios remain valid on a machine whose speed
changes. The ratio is the median over the pairs of ZenDNN's time divided by stock torch's: below 1
is a gain. The next column is the interval that contains the true median with 99 % confidence,
whatever the distribution is; it shows the noise. ``of limit`` is the shortest possible time divided
by our time. The shortest possible time follows from the problem's operations (``peak.c``) or from
what it must read and write (``bandwidth.c``), whichever takes longer. It can be above 100 % for
data in a cache, which is faster than memory.

A problem counts as slower if its whole interval is above 1.03 in two measurements. The second one
is made at the end and takes twice as long. Exit code: 0; 1 if ``--check`` is given and a problem is
slower; 2 for a wrong option or a torch without ZenDNN.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks import limit
from benchmarks.compare import Parser, cpu_name, names_of, output, progress
from benchmarks.heatmap import Row, svg
from benchmarks.layers import LAYERS
from benchmarks.problems import MODELS, PROBLEMS, Call, Problem
from benchmarks.report import aligned
from tools.setup_helpers.errors import exit_code_of
from tools.setup_helpers.files import write_atomic
from tools.setup_helpers.options import positive

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
LIMITS = {"float32": "fp32", "bfloat16": "bf16"}  # the names that peak.c prints

#: A ratio above this counts as slower. Stock torch compared with itself on an idle machine differs
#: by about this much.
MARGIN = 1.03
#: With this many pairs, the interval is their whole range; it misses one true median in 256.
FEWEST_PAIRS = 9
#: Calls are repeated until one measurement takes at least this many seconds.
SHORTEST = 2e-4


@dataclass(frozen=True)
class Times:
    """The result of pairs of measurements."""

    stock_us: float
    ours_us: float
    ratio: float
    low: float
    high: float
    calls: int
    pairs: int

    @property
    def slower(self) -> bool:
        """Whether ours is slower beyond noise."""
        return self.low > MARGIN


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Two of the values between which the true median lies, with 99 % confidence if possible.

    With few values, these are the smallest and the largest.
    """
    ordered = sorted(values)
    count = len(ordered)
    # The number of values below the median has a binomial distribution; 2.576 standard deviations
    # cover 99 %.
    left_out = max(0, math.floor((count - 2.576 * math.sqrt(count)) / 2))
    return ordered[left_out], ordered[count - 1 - left_out]


Switch = Callable[[bool], AbstractContextManager[object]]


def _switch(on: bool) -> AbstractContextManager[object]:
    """Run ZenDNN's kernels, or torch's own."""
    zendnn: Any = torch.backends.zendnn
    switched: AbstractContextManager[object] = zendnn.flags(enabled=on)
    return switched


def _took(call: Call, repeat: int, on: bool, switch: Switch) -> float:
    """The seconds that one call takes, averaged over ``repeat`` calls."""
    with switch(on):
        start = time.perf_counter()
        for _ in range(repeat):
            call()
        return (time.perf_counter() - start) / repeat


def compare(ours: Call, stock: Call, seconds: float, switch: Switch = _switch) -> Times:
    """Time both calls in turn, for about ``seconds`` and at least ``FEWEST_PAIRS`` times each.

    Ours run within ``switch(True)``, the others within ``switch(False)``.
    """
    zendnn = torch.backends.zendnn
    sides = {True: ours, False: stock}
    zendnn.reset_counters()
    _took(ours, 1, True, switch)
    calls = sum(zendnn.counters().values())
    _took(stock, 1, False, switch)
    repeat = 1
    while min(_took(call, repeat, on, switch) for on, call in sides.items()) * repeat < SHORTEST:
        repeat *= 2
    pairs: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while len(pairs) < FEWEST_PAIRS or time.perf_counter() < end:
        # The order alternates, because the second one may run on a busier or warmer machine.
        order = (True, False) if len(pairs) % 2 else (False, True)
        took = {on: _took(sides[on], repeat, on, switch) for on in order}
        pairs.append((took[True], took[False]))
    ratios = [mine / other for mine, other in pairs]
    mine, other = (statistics.median(times) * 1e6 for times in zip(*pairs, strict=True))
    return Times(other, mine, statistics.median(ratios), *interval(ratios), calls, len(pairs))


def share(problem: Problem, dtype: str, us: float, limits: Mapping[str, float]) -> float | None:
    """The problem's shortest possible time divided by ``us``; None if a limit is not known."""
    work = {LIMITS[dtype]: problem.flop, "read": problem.values * DTYPES[dtype].itemsize}
    needed = {name: amount for name, amount in work.items() if amount}
    if not needed.keys() <= limits.keys():
        return None
    return max(amount / limits[name] for name, amount in needed.items()) / 1e3 / us


@dataclass(frozen=True)
class Cell:
    """The measurement of a problem in one dtype."""

    problem: Problem
    dtype: str
    times: Times
    share: float | None

    def row(self) -> list[str]:
        """The row of the table for this cell."""
        times = self.times
        return [
            self.problem.name,
            self.dtype,
            f"{times.stock_us:.1f}",
            f"{times.ours_us:.1f}",
            f"{times.ratio:.2f}",
            f"{times.low:.2f} to {times.high:.2f}",
            "" if self.share is None else f"{self.share:.0%}",
            str(times.calls),
            "SLOWER" if times.slower else "",
        ]

    def as_json(self) -> dict[str, object]:
        """Everything known about this cell, as an object for JSON."""
        problem = self.problem
        return {
            "operator": problem.operator,
            "size": problem.size,
            "models": problem.models,
            "dtype": self.dtype,
            "flop": problem.flop,
            "bytes": problem.values * DTYPES[self.dtype].itemsize,
            **asdict(self.times),
            "slower": self.times.slower,
            "share_of_limit": self.share,
        }


HEADS = ["problem", "dtype", "stock us", "ZenDNN us", "ratio", "99 %", "of limit", "calls", ""]


def measure(problem: Problem, dtype: str, seconds: float, limits: Mapping[str, float]) -> Cell:
    """Measure one cell; the operands are the same each time."""
    torch.manual_seed(0)
    with torch.inference_mode():
        ours, stock = problem.make(DTYPES[dtype])
        times = compare(ours, stock, seconds)
    return Cell(problem, dtype, times, share(problem, dtype, times.ours_us, limits))


def limits_of(threads: int) -> tuple[dict[str, float], str]:
    """The machine's limits by name, and a line of text that describes them."""
    progress("measuring the machine's limits")
    try:
        limits = limit.measure(threads, 1.0)
        rates = [f"{name} {rate:.0f} Gflop/s" for name, rate in limits.items()]
        limits["read"] = limit.bandwidth(threads, 1.0)
    except limit.LimitError as error:
        return {}, f"unknown: {error}"
    return limits, ", ".join([*rates, f"read {limits['read']:.1f} GB/s"])


def summary(cells: Sequence[Cell]) -> str:
    """Geometric means of the ratios, by operator and dtype."""
    rows = [["operator", "dtype", "problems", "ratio", "slower", ""]]
    for operator, dtype in dict.fromkeys((cell.problem.operator, cell.dtype) for cell in cells):
        times = [c.times for c in cells if (c.problem.operator, c.dtype) == (operator, dtype)]
        mean = statistics.geometric_mean(one.ratio for one in times)
        slower = sum(one.slower for one in times)
        rows.append([operator, dtype, str(len(times)), f"{mean:.2f}", str(slower), ""])
    return aligned(rows)


def heat(cells: Sequence[Cell], title: str) -> str:
    """The heat map as SVG."""
    rows: dict[str, Row] = {}
    for cell in cells:
        problem, times = cell.problem, cell.times
        row = rows.setdefault(problem.name, Row(problem.operator, problem.size, {}))
        row.cells[cell.dtype] = (times.ratio, cell.share, times.slower)
    dtypes = tuple(dict.fromkeys(cell.dtype for cell in cells))
    return svg(list(rows.values()), dtypes, title)


@dataclass(frozen=True)
class Options:
    """The command line, checked."""

    only: str
    models: tuple[str, ...]
    dtype: tuple[str, ...]
    seconds: float
    threads: int
    json: Path | None
    plot: Path | None
    check: bool


def parse_arguments(arguments: Sequence[str] | None) -> tuple[Options, list[Problem]]:
    """Parse the command line and choose the problems; exit with code 2 if it is wrong."""
    parser = Parser(description="Time single operations on ZenDNN and on stock torch.")
    add = parser.add_argument
    add("--only", default="", help="problems whose name contains this text")
    models, dtypes = names_of("model", MODELS), names_of("dtype", tuple(DTYPES))
    add("--models", type=models, default=MODELS, metavar="LIST", help=", ".join(MODELS))
    add("--dtype", type=dtypes, default=tuple(DTYPES), metavar="LIST", help=", ".join(DTYPES))
    add("--seconds", type=positive(float), default=0.5, help="for each (default: 0.5)")
    add("--threads", type=positive(int), default=torch.get_num_threads())
    add("--json", type=output, metavar="FILE", help="write all measurements")
    add("--plot", type=output, metavar="FILE", help="draw a heat map, as SVG")
    add("--check", action="store_true", help="exit with code 1 if a problem is slower")
    options = Options(**vars(parser.parse_args(arguments)))
    problems = [
        problem
        for problem in (*PROBLEMS, *LAYERS)
        if options.only in problem.name and set(problem.models) & set(options.models)
    ]
    if not problems:
        parser.error(f"no problem of these models has a name that contains '{options.only}'")
    if getattr(torch.backends, "zendnn", None) is None:
        parser.error("this Python's torch has no ZenDNN")
    return options, [problem for problem in problems if problem.present()]


def sweep(options: Options, problems: Sequence[Problem]) -> list[Cell]:
    """Measure and print; slower problems are measured again, and the second result counts."""
    limits, reported = limits_of(options.threads)
    facts = f"{cpu_name()}, {options.threads} thread{'s' * (options.threads > 1)}"
    print(f"CPU    {facts}\nlimit  {reported}\n", flush=True)
    width = max(len(problem.name) for problem in problems)
    # The widths are fixed, because each row is printed as soon as it is measured.
    form = f"{{:{width}}}  {{:8}}  {{:>10}}  {{:>10}}  {{:>5}}  {{:>12}}  {{:>8}}  {{:>5}}  {{}}"
    print(form.format(*HEADS).rstrip(), flush=True)
    both = itertools.product(options.dtype, problems)
    plan = [(dtype, problem) for dtype, problem in both if DTYPES[dtype] in problem.dtypes]
    cells: dict[tuple[str, str], Cell] = {}
    for number, (dtype, problem) in enumerate(plan, 1):
        progress(f"[{number}/{len(plan)}] {problem.name}, {dtype}")
        cell = measure(problem, dtype, options.seconds, limits)
        cells[dtype, problem.name] = cell
        print(form.format(*cell.row()).rstrip(), flush=True)
    again = [cell for cell in cells.values() if cell.times.slower]
    if again:
        print("\nMeasured again, for twice the time:", flush=True)
    for cell in again:
        progress(f"again: {cell.problem.name}, {cell.dtype}")
        second = measure(cell.problem, cell.dtype, 2 * options.seconds, limits)
        cells[cell.dtype, cell.problem.name] = second
        print(form.format(*second.row()).rstrip(), flush=True)
    if options.json is not None:
        document = {
            "cpu": cpu_name(),
            "threads": options.threads,
            "torch": torch.__version__,
            "limits": limits,
            "cells": [cell.as_json() for cell in cells.values()],
        }
        write_atomic(options.json, f"{json.dumps(document, indent=1)}\n".encode())
    if options.plot is not None:
        title = f"ZenDNN's time over stock torch's, {facts}"
        write_atomic(options.plot, heat(list(cells.values()), title).encode())
    return list(cells.values())


def report(options: Options, problems: Sequence[Problem]) -> int:
    """Measure, print, and return the exit code."""
    torch.set_num_threads(options.threads)
    cells = sweep(options, problems)
    print(f"\n{summary(cells)}")
    slower = [cell for cell in cells if cell.times.slower]
    for cell in slower:
        times = cell.times
        reason = f"{times.ratio:.2f} of stock torch's time ({times.low:.2f} to {times.high:.2f})"
        print(f"slower: {cell.problem.name} in {cell.dtype}, {reason}", file=sys.stderr)
    return 1 if slower and options.check else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison and return the exit code."""
    options, problems = parse_arguments(arguments)
    if not problems:
        print("error: this build does not support these problems", file=sys.stderr)
        return 2
    return exit_code_of(lambda: report(options, problems), resumes=False)


if __name__ == "__main__":
    sys.exit(main())
