"""Measures what the profiler costs while it is on, and what events cost while nobody listens.

    python -m benchmarks.listening [--models bert@1] [--rounds 30] [--threads N] [--check]

Each model runs eagerly and frozen (as plans). Runs with and without the profiler take turns in one
process. The ratio is the median over the rounds of the time with it divided by the time without it.

Exit code: 0; 1 if ``--check`` is given and the profiler costs more than 3 %, or an operator spends
5 ns or more on events that nobody hears; 2 for a wrong option or a torch without ZenDNN.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence

from benchmarks import models
from benchmarks.compare import Parser, model_names, physical_cores, progress
from benchmarks.report import aligned
from tools.setup_helpers.errors import exit_code_of
from tools.setup_helpers.options import positive

MOST_RATIO, MOST_NS = 1.03, 5.0
OPERATORS, BEST_OF = 10_000_000, 5


def modes(name: str) -> dict[str, Callable[[], object]]:
    """Functions that run a model, eagerly and frozen."""
    import torch

    module, inputs = models.build(name)
    with torch.no_grad():
        frozen = torch.jit.freeze(torch.jit.trace(module, inputs))
        plans = torch.jit.optimize_for_inference(frozen)
    return {"eager": lambda: module(*inputs), "frozen": lambda: plans(*inputs)}


def pairs(run: Callable[[], object], rounds: int) -> list[tuple[float, float]]:
    """The seconds of runs without the profiler and with it, in turns."""
    import torch

    profiler = torch.backends.zendnn.profiler

    def seconds() -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    with torch.no_grad():
        for _ in range(3):  # prepares plans, and fills caches
            run()
        found = []
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}")
            without = seconds()
            with profiler:
                found.append((without, seconds()))
    return found


def nanoseconds() -> float:
    """What events that nobody hears, and routes that nobody set, cost an operator."""
    from torch.backends.zendnn import _C

    return float(min(_C._nanoseconds_of_asking(OPERATORS) for _ in range(BEST_OF)))


def measure(names: Sequence[str], rounds: int, *, check: bool) -> int:
    """Measure, print, and return the exit code."""
    rows = [["model", "", "off ms", "on ms", "on / off"]]
    dear = []
    for name in names:
        for mode, run in modes(name).items():
            found = pairs(run, rounds)
            off, on = (1e3 * statistics.median(pair[side] for pair in found) for side in (0, 1))
            ratio = statistics.median(with_ / without for without, with_ in found)
            rows.append([name, mode, f"{off:.2f}", f"{on:.2f}", f"{ratio:.3f}"])
            if ratio > MOST_RATIO:
                dear.append(f"the profiler costs {ratio - 1:.1%} of {name}, {mode}")
    cost = nanoseconds()
    if cost >= MOST_NS:
        dear.append(f"events that nobody hears cost {cost:.1f} ns")
    print(aligned(rows))
    print(f"\nan operator spends {cost:.2f} ns on events while nobody listens")
    for line in dear:
        print(line, file=sys.stderr)
    return 1 if dear and check else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    import torch

    parser = Parser(description="Measure what the profiler and events cost.")
    parser.add_argument("--models", type=model_names, default=("bert@1",), help="(default: bert@1)")
    parser.add_argument("--rounds", type=positive(int), default=30, help="(default: 30)")
    parser.add_argument("--threads", type=positive(int), default=physical_cores())
    parser.add_argument("--check", action="store_true", help="exit with 1 if one is over its bound")
    options = parser.parse_args(arguments)
    if getattr(torch.backends, "zendnn", None) is None:
        parser.error("this Python's torch has no ZenDNN")
    torch.set_num_threads(options.threads)
    return exit_code_of(
        lambda: measure(options.models, options.rounds, check=options.check), resumes=False
    )


if __name__ == "__main__":
    sys.exit(main())
