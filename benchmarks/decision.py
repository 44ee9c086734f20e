"""Measures what an override costs when it examines a problem and leaves it to torch.

    python -m benchmarks.decision [--only TEXT] [--rounds 3] [--check]

Each operator is called on tiny operands that its override refuses: because of their size, because
of their dtype (float64), or because ZenDNN is switched off. A process without ZenDNN and one with
it take turns. The cost is the difference of the best times, because those are the least disturbed
by other programs.

Exit code: 0; 1 if ``--check`` is given and a decision costs more than 1 us; 2 for a wrong option, a
torch without ZenDNN or a process that fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.backends import OURS, STOCK
from benchmarks.compare import Parser, progress
from benchmarks.report import aligned
from tools.setup_helpers.errors import SetupError, exit_code_of
from tools.setup_helpers.options import positive

ROOT = Path(__file__).parents[1]
MOST_US = 1.0
REPEAT, BEST_OF = 300, 30
REASONS = ("size", "dtype", "switched off")


def operators() -> dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]]:
    """Every operator that is or may be overridden, with the shapes of tiny operands."""
    import torch
    import torch.nn.functional as F

    aten = torch.ops.aten
    # has_biases, num_layers, dropout, train, bidirectional, batch_first
    recurrent = (False, 1, 0.0, False, False, False)
    return {
        "mm": (torch.mm, ((4, 4), (4, 4))),
        "addmm": (torch.addmm, ((4,), (4, 4), (4, 4))),
        "addmv": (torch.addmv, ((4,), (4, 4), (4,))),
        "bmm": (torch.bmm, ((2, 4, 4), (2, 4, 4))),
        "baddbmm": (torch.baddbmm, ((2, 4, 4), (2, 4, 4), (2, 4, 4))),
        "linear": (F.linear, ((4, 4), (4, 4), (4,))),
        "conv1d": (F.conv1d, ((1, 2, 8), (2, 2, 3))),
        "conv2d": (F.conv2d, ((1, 2, 4, 4), (2, 2, 3, 3))),
        "conv_transpose2d": (F.conv_transpose2d, ((1, 2, 4, 4), (2, 2, 3, 3))),
        "max_pool2d": (lambda x: F.max_pool2d(x, 2), ((1, 2, 4, 4),)),
        "lstm": (
            lambda x, h, *weights: torch.lstm(x, (h, h), weights, *recurrent),
            ((2, 1, 4), (1, 1, 4), (16, 4), (16, 4)),
        ),
        "gru": (
            lambda x, h, *weights: torch.gru(x, h, weights, *recurrent),
            ((2, 1, 4), (1, 1, 4), (12, 4), (12, 4)),
        ),
        "attention": (F.scaled_dot_product_attention, ((1, 1, 4, 8),) * 3),
        "layer_norm": (lambda x, w, b: F.layer_norm(x, (8,), w, b), ((2, 8), (8,), (8,))),
        "rms_norm": (lambda x, w: F.rms_norm(x, (8,), w, 1e-5), ((2, 8), (8,))),
        "gelu": (F.gelu, ((8,),)),
        "gelu.out": (lambda x, out: aten.gelu.out(x, out=out), ((8,), (8,))),
        "silu": (F.silu, ((8,),)),
        "tanh": (torch.tanh, ((8,),)),
        "sigmoid": (torch.sigmoid, ((8,),)),
        "softmax": (lambda x: torch.softmax(x, -1), ((2, 8),)),
        "log_softmax": (lambda x: torch.log_softmax(x, -1), ((2, 8),)),
        "bernoulli": (lambda x: x.bernoulli_(0.9), ((8,),)),
        "embedding_bag": (
            lambda table: F.embedding_bag(torch.zeros(2, 2, dtype=torch.int64), table),
            ((4, 4),),
        ),
    }


def best_times(chosen: str) -> dict[str, dict[str, float]]:
    """The time of a call in microseconds, by operator and reason, measured in this process."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    zendnn: Any = getattr(torch.backends, "zendnn", None)
    found: dict[str, dict[str, float]] = {}
    with torch.inference_mode():
        for name, (function, shapes) in operators().items():
            if chosen not in name:
                continue
            found[name] = {}
            for reason in REASONS:
                dtype = torch.float64 if reason == "dtype" else torch.float32
                operands = [torch.randn(shape, dtype=dtype) for shape in shapes]
                if zendnn is not None:
                    zendnn.set_flags(reason != "switched off")
                    zendnn.reset_counters()
                function(*operands)
                if zendnn is not None and sum(zendnn.counters().values()):
                    continue  # not refused: the time would be that of our kernel
                best = float("inf")
                for _ in range(BEST_OF):
                    start = time.perf_counter()
                    for _ in range(REPEAT):
                        function(*operands)
                    best = min(best, time.perf_counter() - start)
                found[name][reason] = best / REPEAT * 1e6
    return found


def ask(chosen: str, environment: dict[str, str]) -> dict[str, dict[str, float]]:
    """``best_times`` measured in a new process. Raises SetupError if the process fails."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.decision", "--worker"]
    done = subprocess.run(
        [*command, "--only", chosen],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
        check=False,
    )
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise SetupError(f"{' '.join(command)} failed: {said}")
    answer: dict[str, dict[str, float]] = json.loads(done.stdout)
    return answer


def costs(rounds: Sequence[tuple[Any, Any]]) -> dict[str, dict[str, tuple[float, float]]]:
    """By operator and reason: stock torch's best time, and the time that ours adds to it."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for name, reasons in rounds[0][1].items():
        found[name] = {}
        for reason in reasons:
            stock, ours = (min(one[side][name][reason] for one in rounds) for side in (0, 1))
            found[name][reason] = stock, ours - stock
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit code."""
    import torch

    parser = Parser(description="Measure what it costs to leave a problem to torch.")
    parser.add_argument("--only", default="", help="operators whose name contains this text")
    parser.add_argument("--rounds", type=positive(int), default=3, help="(default: 3)")
    parser.add_argument("--check", action="store_true", help="exit with 1 if one costs over 1 us")
    parser.add_argument("--worker", action="store_true", help="measure in this process, as JSON")
    options = parser.parse_args(arguments)
    if options.worker:
        print(json.dumps(best_times(options.only)))
        return 0
    if not any(options.only in name for name in operators()):
        parser.error(f"no operator's name contains '{options.only}'")
    if getattr(torch.backends, "zendnn", None) is None:
        parser.error("this Python's torch has no ZenDNN")
    return exit_code_of(
        lambda: compare(options.only, options.rounds, check=options.check), resumes=False
    )


def compare(chosen: str, count: int, *, check: bool) -> int:
    """Measure ``count`` rounds, print the costs, and return the exit code."""
    rounds = []
    for number in range(count):
        progress(f"round {number + 1} of {count}")
        rounds.append((ask(chosen, dict(STOCK)), ask(chosen, dict(OURS))))
    found = costs(rounds)
    rows = [["operator", "stock us", *(f"{reason}, us" for reason in REASONS), ""]]
    for name, reasons in found.items():
        stock = [f"{times[0]:.2f}" for times in reasons.values()]
        added = [f"{reasons[r][1]:+.2f}" if r in reasons else "taken" for r in REASONS]
        rows.append([name, *(stock[:1] or [""]), *added, ""])
    print(aligned(rows))
    dear = [
        f"{name} ({reason}) costs {cost:.2f} us"
        for name, reasons in found.items()
        for reason, (_, cost) in reasons.items()
        if cost > MOST_US
    ]
    for line in dear:
        print(line, file=sys.stderr)
    return 1 if dear and check else 0


if __name__ == "__main__":
    sys.exit(main())
