"""Times training steps on ZenDNN and on torch's own kernels, and shows where the time is spent.

    python -m benchmarks.training [--models bert@8,resnet50@16] [--rounds 5] [--threads N]
        [--dropout 0] [--bf16] [--profile 12] [--json FILE]

A step is forward, loss, backward and SGD with momentum. The models are in training mode, in their
default configuration, with random weights; nothing is downloaded. Both sides take turns, step by
step, in one process on one module. The ratio is the median over the rounds of ZenDNN's time divided
by stock torch's: below 1 is a gain. Exit code 2: a wrong option, or a torch without ZenDNN.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from benchmarks import models
from benchmarks.compare import Parser, cpu_name, model_names, output, progress
from benchmarks.report import aligned
from tools.setup_helpers.errors import exit_code_of
from tools.setup_helpers.files import write_atomic
from tools.setup_helpers.options import positive

DEFAULT = ("bert@8", "resnet50@16")
#: So small that the weights hardly change, so that all steps compute with nearly the same numbers.
RATE = 1e-4


@dataclass(frozen=True)
class Options:
    """The command line, checked."""

    models: tuple[str, ...]
    rounds: int
    threads: int
    dropout: float | None
    bf16: bool
    profile: int
    json: Path | None


@dataclass(frozen=True)
class Result:
    """The measurement of a model's training step."""

    model: str
    stock_ms: float
    ours_ms: float
    ratio: float


@dataclass(frozen=True)
class Part:
    """The milliseconds that an operator itself takes in one step, on both sides."""

    operator: str
    stock_ms: float
    ours_ms: float


def set_dropout(module: nn.Module, probability: float) -> None:
    """Set the probability of every dropout, including those that attention keeps as a number."""
    for layer in module.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = probability
        if isinstance(getattr(layer, "dropout_prob", None), float):
            layer.dropout_prob = probability


def step_of(name: str, options: Options) -> Callable[[], float]:
    """A function that makes one training step of the model and returns its loss."""
    module, inputs = models.build(name)
    module.train()
    if options.dropout is not None:
        set_dropout(module, options.dropout)
    optimiser = torch.optim.SGD(module.parameters(), lr=RATE, momentum=0.9)

    def step() -> float:
        torch.manual_seed(0)  # the same dropout on both sides
        optimiser.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=options.bf16):
            out: Tensor = module(*inputs)
        loss = out.float().square().mean()
        loss.backward()
        optimiser.step()
        return loss.item()

    return step


def profiled(step: Callable[[], float]) -> dict[str, float]:
    """The milliseconds of one step by operator, without the operators that it calls."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        step()
    events: Any = seen.key_averages()
    return {event.key: event.self_cpu_time_total / 1e3 for event in events}


def measure(name: str, step: Callable[[], float], rounds: int) -> Result:
    """Time ``rounds`` pairs of steps, after one pair to warm up."""
    zendnn = torch.backends.zendnn
    took: dict[bool, list[float]] = {False: [], True: []}
    for number in range(rounds + 1):
        progress(f"{name}, step {number} of {rounds}")
        for enabled, seen in took.items():
            with zendnn.flags(enabled=enabled):
                start = time.perf_counter()
                step()
                seen.append((time.perf_counter() - start) * 1e3)
    stock, ours = took[False][1:], took[True][1:]
    ratio = statistics.median(a / b for a, b in zip(ours, stock, strict=True))
    return Result(name, statistics.median(stock), statistics.median(ours), ratio)


def parts_of(step: Callable[[], float], count: int) -> list[Part]:
    """The ``count`` operators that take the most time of a step on either side."""
    shares = []
    for enabled in (False, True):
        with torch.backends.zendnn.flags(enabled=enabled):
            shares.append(profiled(step))
    keys = sorted({key for share in shares for key in share})
    found = [Part(key, *(share.get(key, 0.0) for share in shares)) for key in keys]
    return sorted(found, key=lambda part: -max(part.stock_ms, part.ours_ms))[:count]


def table(parts: Sequence[Part]) -> str:
    """The profile as text."""
    rows = [["  operator", "stock ms", "ZenDNN ms", ""]]
    for part in parts:
        rows.append([f"  {part.operator}", f"{part.stock_ms:.1f}", f"{part.ours_ms:.1f}", ""])
    return aligned(rows)


def probability(text: str) -> float:
    """An argparse type: a number from 0 up to, but not including, 1."""
    value = float(text)
    if not 0 <= value < 1:
        raise ValueError(text)
    return value


def parse_arguments(arguments: Sequence[str] | None) -> Options:
    """Parse the command line; exit with code 2 if it is wrong."""
    parser = Parser(description="Time training steps on ZenDNN and on stock torch.")
    add = parser.add_argument
    add("--models", type=model_names, default=DEFAULT, metavar="LIST")
    add("--rounds", type=positive(int), default=5, help="pairs of steps (default: 5)")
    add("--threads", type=positive(int), default=torch.get_num_threads())
    add("--dropout", type=probability, metavar="P", help="replaces the models' own probability")
    add("--bf16", action="store_true", help="run forward under autocast to bfloat16")
    add("--profile", type=int, default=0, metavar="N", help="show the N longest operators")
    add("--json", type=output, metavar="FILE", help="write all measurements")
    options = Options(**vars(parser.parse_args(arguments)))
    if getattr(torch.backends, "zendnn", None) is None:
        parser.error("this Python's torch has no ZenDNN")
    return options


def compare(options: Options) -> None:
    """Measure, print the results, and write the JSON file."""
    torch.set_num_threads(options.threads)
    print(f"{cpu_name()}, {options.threads} thread{'s' * (options.threads > 1)}", flush=True)
    results = []
    for name in options.models:
        step = step_of(name, options)
        seen = measure(name, step, options.rounds)
        print(
            f"\n{name}: stock {seen.stock_ms:.0f} ms, ZenDNN {seen.ours_ms:.0f} ms,"
            f" ratio {seen.ratio:.2f}",
            flush=True,
        )
        parts = parts_of(step, options.profile) if options.profile else []
        if parts:
            print(table(parts), flush=True)
        results.append({**asdict(seen), "profile": [asdict(part) for part in parts]})
    if options.json is not None:
        found = {"cpu": cpu_name(), "results": results}
        write_atomic(options.json, f"{json.dumps(found, indent=1)}\n".encode())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison and return the exit code."""
    options = parse_arguments(arguments)
    return exit_code_of(lambda: compare(options), resumes=False)


if __name__ == "__main__":
    sys.exit(main())
