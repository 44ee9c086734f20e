"""Measures on both sides of each threshold which implementation is faster there.

    python -m benchmarks.thresholds [--document docs/thresholds.md] [--only TEXT] [--seconds S]
        [--threads N] [--check]

For each row of ``torch/backends/zendnn/table/thresholds.py``, problems of a quarter to four times
the size run with what computes larger problems and with what computes smaller ones, in turns. The
ratio is the median of the former's time divided by the latter's. So a threshold is right if ratios
are above 1 before it and below 1 behind it. One that is wrong beyond noise, by more than 5 %, is
*misplaced*. Rows that decide nothing on this CPU are left out.

``--document`` replaces this CPU's part of a document, once everything is measured. The machine must
be idle. Exit code: 0; 1 if ``--check`` is given and a threshold is misplaced; 2 for a wrong option.
"""

from __future__ import annotations

import contextlib
import datetime
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.backends.zendnn import _C
from torch.backends.zendnn.table.thresholds import THRESHOLDS

from benchmarks.compare import Parser, cpu_name, output, progress
from benchmarks.layers import calls
from benchmarks.operations import Times, compare
from benchmarks.report import aligned
from tools.setup_helpers.errors import SetupError, exit_code_of
from tools.setup_helpers.files import write_atomic
from tools.setup_helpers.options import positive

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
MARGIN = 1.05

Compute = Callable[[], Any]


def _bound(function: Callable[..., Any], *shapes: Sequence[int], dtype: torch.dtype) -> Compute:
    """Return a call of a function with random operands of these shapes."""
    operands = [torch.randn(shape).to(dtype) for shape in shapes]
    return lambda: function(*operands)


_float32, _bfloat16 = (partial(_bound, dtype=dtype) for dtype in (torch.float32, torch.bfloat16))


class _Product(torch.nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.relu(a @ b)


def _planned_products(count: int) -> Compute:
    """Return a plan of so many tiny products."""
    return calls(_Product(), (torch.randn(count, 2, 4), torch.randn(count, 4, 2)))[0]


def _attention_gradient(length: int) -> Compute:
    query, key, value, gradient = (torch.randn(1, 8, length, 64).bfloat16() for _ in range(4))
    forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    result, sums = forward(query, key, value)
    return lambda: backward(gradient, query, key, value, result, sums, 0.0, False)[0]


def _bernoulli(size: int) -> Compute:
    x, generator = torch.empty(size), torch.Generator().manual_seed(0)
    return lambda: x.bernoulli_(0.9, generator=generator)


def _gru(steps: int, hidden: int) -> Compute:
    layer, x = torch.nn.GRU(hidden, hidden).eval(), torch.randn(steps, 8, hidden)
    return lambda: layer(x)[0]


def _square(weights: int) -> int:
    """Return the width of a GRU's input and state with which a layer has so many weights."""
    return round((weights / 6) ** 0.5)


def _last(kernel: int, channels: int, filters: int, *size: int) -> Compute:
    """Return a convolution of one image, channels last."""
    image = torch.randn(1, channels, *size).to(memory_format=torch.channels_last)
    weight = torch.randn(filters, channels, kernel, kernel).to(memory_format=torch.channels_last)
    return lambda: F.conv2d(image, weight, padding=kernel // 2)


_padded = partial(F.conv2d, padding=1)

#: For each threshold, problems of any size, in which no other threshold decides.
CASES: Mapping[str, Callable[[int], Compute]] = {
    "product": lambda n: _float32(torch.mm, (32, n // 1024), (n // 1024, 32)),
    "product_elsewhere": lambda n: _bfloat16(torch.mm, (8, n // 128), (n // 128, 16)),
    "product_with_addend": lambda n: _float32(torch.addmm, (2,), (2, n // 4), (n // 4, 2)),
    "tiny_product": lambda n: _float32(torch.bmm, (1024, 2, n // 4), (1024, n // 4, 2)),
    "many_tiny_products": _planned_products,
    "product_result": lambda n: _bfloat16(torch.mm, (1024, 256), (256, n // 1024)),
    "product_rows": lambda n: _bfloat16(torch.mm, (n, 129), (129, 64)),
    "product_depth": lambda n: _bfloat16(torch.mm, (4096, n | 1), (n | 1, 64)),
    "weight_uses": lambda n: _last(3, 128, 1024, 2, n // 2),
    "convolution_work": lambda n: _last(3, 32, n // 18432, 8, 8),
    "plain_work": lambda n: _float32(_padded, (2, 32, 14, 14), (n // 112896, 32, 3, 3)),
    "plain_bf16_work": lambda n: _bfloat16(_padded, (8, 32, 14, 14), (n // 451584, 32, 3, 3)),
    "pointwise_rows": lambda n: _last(1, 128, 128, n // 64, 64),
    "pointwise_batch_work": lambda n: _float32(F.conv2d, (8, 256, 2, 2), (n // 8192, 256, 1, 1)),
    "pointwise_weights": lambda n: _float32(F.conv2d, (8, 512, 7, 7), (n // 4096, 512, 1, 1)),
    "pointwise_points": lambda n: _float32(F.conv2d, (32, 256, n // 2, 2), (256, 256, 1, 1)),
    "pointwise_image": lambda n: _float32(F.conv2d, (8, 1024, n // 4, 4), (1024, 1024, 1, 1)),
    "attention_gradient_length": _attention_gradient,
    "softmax_row": lambda n: _bfloat16(partial(torch.softmax, dim=-1), (16, n)),
    "softmax_column": lambda n: _bfloat16(partial(torch.softmax, dim=0), (n, 256)),
    "bernoulli_numbers": _bernoulli,
    "gru_steps": lambda n: _gru(n, 64),
    "gru_weights": lambda n: _gru(32, _square(n)),
}


@contextlib.contextmanager
def counted_as(name: str, larger: bool) -> Iterator[None]:
    """Count problems of any size as larger than a threshold, or as smaller."""
    value = _C._thresholds()[name]
    _C._set_threshold(name, 0 if larger else sys.maxsize)
    try:
        yield
    finally:
        _C._set_threshold(name, value)


@contextlib.contextmanager
def ready() -> Iterator[None]:
    """Seed torch, within inference mode."""
    torch.manual_seed(0)
    with torch.inference_mode():
        yield


def ran(compute: Compute) -> list[tuple[str, str]]:
    """Call twice, and return the routes and implementations of the second call."""
    zendnn: Any = torch.backends.zendnn
    compute()
    with zendnn.record() as events:
        compute()
    return [(event.route, event.implementation) for event in events]


def measure(name: str, seconds: float) -> list[Times] | None:
    """Time both sides at each of the factors; None if this threshold decides nothing here.

    Raises:
        SetupError: if it decides at some of the factors only: the case is not its own.
    """
    value, found = THRESHOLDS[name].value, list[Times]()
    for factor in FACTORS:
        progress(f"{name}, {factor:g} times {value}")
        sides, seen = {}, {}
        with ready():
            for larger in (True, False):
                with counted_as(name, larger):
                    sides[larger] = CASES[name](int(value * factor))
                    seen[larger] = ran(sides[larger])
            if seen[True] == seen[False]:
                if found:
                    raise SetupError(f"{name} decides nothing at {factor:g} times {value}")
                return None
            found.append(compare(sides[True], sides[False], seconds, partial(counted_as, name)))
    return found


def misplaced(factor: float, times: Times) -> bool:
    """Whether the wrong side is faster beyond noise, by more than ``MARGIN``."""
    return (factor > 1 and times.low > MARGIN) or (factor < 1 and times.high < 1 / MARGIN)


def cells(times: Sequence[Times]) -> list[str]:
    """Return the ratios as text; those of a misplaced threshold are bold."""
    return [
        f"**{one.ratio:.2f}**" if misplaced(factor, one) else f"{one.ratio:.2f}"
        for factor, one in zip(FACTORS, times, strict=True)
    ]


def table(measured: Mapping[str, Sequence[Times]]) -> Iterator[str]:
    """Yield the lines of a document's table."""
    heads = [f"x {factor:g}" for factor in FACTORS]
    yield f"| threshold | size | counts | smaller → larger | {' | '.join(heads)} |"
    yield f"| --- | --: | --- | --- |{' --: |' * len(heads)}"
    for name, times in measured.items():
        row = THRESHOLDS[name]
        sides = f"{row.smaller} → {row.larger}"
        yield f"| `{name}` | {row.value} | {row.counts} | {sides} | {' | '.join(cells(times))} |"


def document(text: str, cpu: str, lines: Sequence[str]) -> str:
    """Return a document with another part of this CPU: that under its heading, or a new one."""
    part = "\n".join([f"## {cpu}", "", *lines, ""])
    found = re.compile(rf"^## {re.escape(cpu)}\n.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
    if found.search(text):
        rest = found.sub(lambda _: f"{part}\n", text)
        return f"{rest.rstrip()}\n"
    return f"{text.rstrip()}\n\n{part}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return the exit code."""
    parser = Parser(description="Measure on both sides of each threshold.")
    add = parser.add_argument
    add("--document", type=output, metavar="FILE", help="replace this CPU's part of a document")
    add("--only", default="", metavar="TEXT", help="thresholds whose name contains this text")
    add("--seconds", type=positive(float), default=0.5, help="for each size (default: 0.5)")
    add("--threads", type=positive(int), default=torch.get_num_threads())
    add("--check", action="store_true", help="exit with code 1 if a threshold is misplaced")
    options = parser.parse_args(arguments)
    if options.only and options.document:
        parser.error("--document wants all thresholds: leave out --only")
    names = [name for name in THRESHOLDS if options.only in name]
    if not names:
        parser.error(f"no threshold's name contains '{options.only}'")

    def run() -> int:
        before = options.document.read_text() if options.document else ""
        torch.set_num_threads(options.threads)
        measured = {}
        for name in names:
            times = measure(name, options.seconds)
            if times is not None:
                measured[name] = times
        threads = f"{options.threads} thread{'s' * (options.threads > 1)}"
        heads = ["threshold", "value", *(f"x {factor:g}" for factor in FACTORS), ""]
        shown = [
            [name, str(THRESHOLDS[name].value), *cells(measured[name]), ""] for name in measured
        ]
        print(f"{cpu_name()}, {threads}", aligned([heads, *shown]), sep="\n\n")
        wrong = [
            f"misplaced: {name} at {factor:g} times {THRESHOLDS[name].value}, {times.ratio:.2f}"
            for name, found in measured.items()
            for factor, times in zip(FACTORS, found, strict=True)
            if misplaced(factor, times)
        ]
        for line in wrong:
            print(line, file=sys.stderr)
        if options.document:
            today = datetime.datetime.now(tz=datetime.timezone.utc).date()
            lines = [f"Measured on {today} with {threads}.", ""]
            lines += table(measured)
            write_atomic(options.document, document(before, cpu_name(), lines).encode())
        return 1 if wrong and options.check else 0

    return exit_code_of(run, resumes=False)


if __name__ == "__main__":
    sys.exit(main())
