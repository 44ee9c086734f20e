"""Times single operations on ZenDNN and on torch's own kernels: what an override gains or costs.

    python -m benchmarks.operations [--only TEXT] [--dtype float32] [--seconds S] [--threads N]

Both sides take turns in one process, so that the ratio stands on a machine whose speed changes.
The ratio is ZenDNN's median time over stock torch's: below 1 is a gain. Exit code 2: a wrong
option, or a torch without ZenDNN.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Problem:
    """An operation at one size; ``make`` returns what to time, a function without arguments."""

    name: str
    make: Callable[[torch.dtype], Callable[[], object]]


def linear(rows: int, inner: int, columns: int) -> Problem:
    """(rows, inner) times (inner, columns), with a bias."""

    def make(dtype: torch.dtype) -> Callable[[], Tensor]:
        x = torch.randn(rows, inner).to(dtype)
        weight, bias = torch.randn(columns, inner).to(dtype), torch.randn(columns).to(dtype)
        return lambda: F.linear(x, weight, bias)

    return Problem(f"linear {rows}x{inner}x{columns}", make)


def bmm(batch: int, rows: int, inner: int, columns: int) -> Problem:
    """A batch of matrix products."""

    def make(dtype: torch.dtype) -> Callable[[], Tensor]:
        a = torch.randn(batch, rows, inner).to(dtype)
        b = torch.randn(batch, inner, columns).to(dtype)
        return lambda: torch.bmm(a, b)

    return Problem(f"bmm {batch}x{rows}x{inner}x{columns}", make)


def conv2d(
    channels: int, out: int, size: int, kernel: int, *, stride: int = 1, groups: int = 1
) -> Problem:
    """One square image, padded to keep its size when the stride is 1."""

    def make(dtype: torch.dtype) -> Callable[[], Tensor]:
        image = torch.randn(1, channels, size, size).to(dtype)
        weight = torch.randn(out, channels // groups, kernel, kernel).to(dtype)
        padding = kernel // 2
        return lambda: F.conv2d(image, weight, None, stride, padding, 1, groups)

    return Problem(f"conv2d {channels}->{out} {size}x{size} k{kernel} s{stride} g{groups}", make)


def lstm(steps: int, features: int, hidden: int) -> Problem:
    """One layer over one sequence."""

    def make(dtype: torch.dtype) -> Callable[[], object]:
        layer = nn.LSTM(features, hidden).to(dtype).eval()
        x = torch.randn(steps, 1, features).to(dtype)
        return lambda: layer(x)

    return Problem(f"lstm {steps} steps {features}->{hidden}", make)


#: Sizes from BERT-base (128 tokens), ResNet-50, MobileNetV2 and a small recurrent net; and one so
#: small that only the cost of a call shows.
PROBLEMS: Sequence[Problem] = (
    linear(1, 16, 16),
    linear(1, 768, 768),
    linear(128, 768, 768),
    linear(128, 768, 3072),
    linear(128, 3072, 768),
    bmm(12, 128, 64, 128),
    bmm(12, 128, 128, 64),
    conv2d(3, 64, 224, 7, stride=2),
    conv2d(64, 64, 56, 3),
    conv2d(64, 256, 56, 1),
    conv2d(512, 512, 7, 3),
    conv2d(2048, 512, 7, 1),
    conv2d(96, 96, 56, 3, groups=96),
    lstm(32, 128, 256),
)


def compare(call: Callable[[], object], seconds: float) -> tuple[float, float, int]:
    """Median microseconds on stock kernels and on ZenDNN, and the ZenDNN calls of one run."""
    zendnn = torch.backends.zendnn
    times: dict[bool, list[float]] = {False: [], True: []}
    for enabled in times:
        with zendnn.flags(enabled=enabled):
            zendnn.reset_counters()
            call()
    calls = sum(zendnn.counters().values())
    end = time.perf_counter() + seconds
    while not times[True] or time.perf_counter() < end:
        for enabled, seen in times.items():
            with zendnn.flags(enabled=enabled):
                start = time.perf_counter()
                call()
                seen.append(time.perf_counter() - start)
    stock, ours = (statistics.median(times[enabled]) * 1e6 for enabled in (False, True))
    return stock, ours, calls


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison and returns the exit code."""
    parser = argparse.ArgumentParser(description="Single operations: ZenDNN against stock torch.")
    parser.add_argument("--only", default="", help="problems whose name holds this text")
    parser.add_argument("--dtype", choices=list(DTYPES), default="float32")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each problem (default: 1)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args(arguments)
    problems = [problem for problem in PROBLEMS if options.only in problem.name]
    if not problems:
        parser.error(f"no problem's name holds '{options.only}'")
    if options.threads < 1 or not options.seconds > 0:
        parser.error("--threads and --seconds must be above zero")
    if getattr(torch.backends, "zendnn", None) is None:
        parser.error("this Python's torch has no ZenDNN")
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    width = max(len(problem.name) for problem in problems)
    print(f"{'problem':{width}}  {'stock us':>10}  {'ZenDNN us':>10}  {'ratio':>6}  calls")
    with torch.inference_mode():
        for problem in problems:
            stock, ours, calls = compare(problem.make(DTYPES[options.dtype]), options.seconds)
            row = f"{problem.name:{width}}  {stock:10.1f}  {ours:10.1f}  {ours / stock:6.2f}"
            print(f"{row}  {calls:5}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
