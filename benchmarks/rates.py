"""Measures how fast the library's own primitives multiply in fp32, bf16 and int8.

    python -m benchmarks.rates [--seconds S] [--threads N] [--document docs/performance.md]

The shapes are those of BERT, ResNet-50 and MobileNetV2. For each dtype the table has the rate in
billions of operations per second, its share of the machine's limit (``peak.c``) and the
implementation that the library chose. Weights are in the layout that it prefers, and all operands
are in the caches as far as they fit, so these are the highest rates that a plan can reach with it.

The program is compiled against the libzendnn of this checkout's build. ``--document`` replaces the
table between two marks in a document. Exit code: 0; 2 for a wrong option or without a build.
"""

from __future__ import annotations

import datetime
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import limit
from benchmarks.compare import Parser, cpu_name, output, physical_cores, progress
from benchmarks.report import aligned, in_document
from tools.setup_helpers.build import GENERATED, NATIVE
from tools.setup_helpers.errors import SetupError, exit_code_of
from tools.setup_helpers.files import write_atomic
from tools.setup_helpers.options import positive

SOURCE = Path(__file__).with_name("rates.cpp")
DTYPES = ("fp32", "bf16", "int8")

#: Names, and the lines that rates.cpp reads.
PROBLEMS = {
    "BERT, query, 1 token": "product 1 768 768",
    "BERT, first of MLP, 16 tokens": "product 16 768 3072",
    "BERT, query, 128 tokens": "product 128 768 768",
    "BERT, first of MLP, 128 tokens": "product 128 768 3072",
    "BERT, second of MLP, 128 tokens": "product 128 3072 768",
    "BERT, first of MLP, 1024 tokens": "product 1024 768 3072",
    "ResNet-50, 7x7, stride 2, 3 to 64": "convolution 1 3 224 64 7 2 1",
    "ResNet-50, 1x1, 64 to 256, 56x56": "convolution 1 64 56 256 1 1 1",
    "ResNet-50, 3x3, 64, 56x56": "convolution 1 64 56 64 3 1 1",
    "ResNet-50, 3x3, stride 2, 128, 56x56": "convolution 1 128 56 128 3 2 1",
    "ResNet-50, 1x1, 1024 to 256, 14x14": "convolution 1 1024 14 256 1 1 1",
    "ResNet-50, 3x3, 512, 7x7": "convolution 1 512 7 512 3 1 1",
    "MobileNetV2, 3x3 depthwise, 96, 112x112": "convolution 1 96 112 96 3 2 96",
    "MobileNetV2, 1x1, 96 to 24, 56x56": "convolution 1 96 56 24 1 1 1",
}


def rates(seconds: float, threads: int) -> list[tuple[float, str]]:
    """The rate and the implementation of each problem in each dtype.

    Raises SetupError without a build, and LimitError.
    """
    zendnn, blis = NATIVE / "zendnn", NATIVE.parent / "sources/blis/lib/libblis.a"
    libraries = [zendnn / "src/libzendnn.a", blis]
    missing = [path for path in libraries if not path.exists()]
    if missing:
        raise SetupError(f"{missing[0]} is missing: run `make build` first")
    folders = [zendnn / "include", GENERATED / "third_party/zendnn/include"]
    compile_ = [*shlex.split(os.environ.get("CXX", "c++")), "-std=c++20", "-O2", "-fopenmp"]
    compile_ += [f"-I{folder}" for folder in folders]
    lines = limit.output_of_program(
        compile_,
        SOURCE,
        seconds,
        libraries=[*map(str, libraries), "-ldl", "-lpthread"],
        text="".join(f"{problem}\n" for problem in PROBLEMS.values()),
        environment={"OMP_NUM_THREADS": str(threads)},
    )
    found = [line.split() for line in lines]
    return [(float(rate), implementation) for rate, implementation in found]


def table(found: Sequence[tuple[float, str]], limits: dict[str, float]) -> list[list[str]]:
    """A head and a row for each problem, with what ``rates`` returned."""
    rows = [["operation", *(f"{dtype}{what}" for dtype in DTYPES for what in ("", " of limit"))]]
    rows[0].append("implementation in int8")
    for position, name in enumerate(PROBLEMS):
        row = [name]
        for offset, dtype in enumerate(DTYPES):
            rate, implementation = found[position * len(DTYPES) + offset]
            row += [f"{rate:.0f}", f"{rate / limits[dtype]:.2f}" if dtype in limits else ""]
        rows.append([*row, implementation])
    return rows


def markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of the table in a document."""
    rules = ["---", *["--:"] * (len(rows[0]) - 2), "---"]
    return [f"| {' | '.join(row)} |" for row in (rows[0], rules, *rows[1:])]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return the exit code."""
    parser = Parser(description="Measure the rates of the library's primitives.")
    add = parser.add_argument
    add("--seconds", type=positive(float), default=1.0, help="for each (default: 1)")
    add("--threads", type=positive(int), default=physical_cores(), help="(default: %(default)s)")
    add("--document", type=output, metavar="FILE", help="replace the table in this document")
    options = parser.parse_args(arguments)

    def run() -> None:
        progress(f"measuring {len(PROBLEMS)} operations in {len(DTYPES)} dtypes")
        try:
            found = rates(options.seconds, options.threads)
            limits = limit.measure(options.threads)
        except limit.LimitError as error:
            raise SetupError(f"nothing was measured: {error}") from error
        rows = table(found, limits)
        reported = ", ".join(f"{name} {rate:.0f}" for name, rate in limits.items())
        about = (
            f"{cpu_name()}, {options.threads} threads, {datetime.date.today()}. Limits in Gop/s:"
            f" {reported}."
        )
        print(f"{about}\n{aligned(rows)}")
        if options.document is not None:
            lines = [about, "", *markdown(rows)]
            text = in_document(options.document.read_text(), "rates", lines)
            write_atomic(options.document, text.encode())

    return exit_code_of(run, resumes=False)


if __name__ == "__main__":
    sys.exit(main())
