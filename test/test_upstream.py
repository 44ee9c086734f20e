"""Upstream's tests on our build: its converted oneDNN tests, tests of overridden operators, and
samples of operators that are compiled.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tools.upstream.compare import compare, table
from tools.upstream.suites import LEFT_OUT, SUITES

REPO = Path(__file__).resolve().parents[1]
CONVERTED = REPO / "build" / "generated" / "test" / "test_zendnn.py"
#: Passed and skipped tests of the original file, for each counted version of torch. The two skipped
#: tests need torchvision, which is not available everywhere for a CPU-only torch.
COUNTS = {"2.13.0": (81, 2)}


def count(summary: str, outcome: str) -> int:
    """The number of tests with ``outcome`` in pytest's last line."""
    found = re.search(rf"(\d+) {outcome}", summary)
    return int(found[1]) if found else 0


@pytest.mark.nightly
def test_the_converted_file_passes_as_often_as_the_original() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", CONVERTED.name],
        cwd=CONVERTED.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    summary = done.stdout.strip().splitlines()[-1]
    outcomes = count(summary, "passed"), count(summary, "skipped")
    expected = COUNTS.get(torch.__version__.partition("+")[0])
    assert outcomes[0], summary
    assert expected in (None, outcomes), summary


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["frozen_ops_to_zendnn", "zendnn_rewrite"])
def test_converted_passes_that_the_engine_replaces_compile(name: str) -> None:
    """They are for a PyTorch built from source; our libraries leave them out."""
    commands = json.loads((REPO / "build/native/compile_commands.json").read_text())
    folder = REPO / "build" / "generated"
    generated = "/torch_zendnn_generated.dir/Unity/"
    command = next(entry["command"] for entry in commands if generated in entry["file"])
    compiler, *options = shlex.split(command.partition(" -o ")[0])
    source = folder / f"torch/csrc/jit/passes/{name}.cpp"
    done = subprocess.run(
        [compiler, *options, "-fsyntax-only", source],
        cwd=REPO / "build" / "native",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[:8000]


@pytest.mark.nightly
def test_no_test_fails_that_passes_on_stock_torch() -> None:
    rows = compare([suite for suite in SUITES if suite.quick], quick=True, processes=2)
    report = table(rows)
    assert all(row.stock for row in rows), f"no test of a file passes on stock torch:\n{report}"
    assert not any(row.lost for row in rows), report
    left_out = {test for row in rows for test in row.left_out}
    files = {row.file for row in rows}
    assert left_out == {test for test in LEFT_OUT if test.partition("::")[0] in files}, report


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["--imported", "--most", "2"], marks=pytest.mark.nightly),
        ["--dynamo", "--most", "1", "mul", "reshape", "nn_functional_linear", "softmax", "cat"],
    ],
    ids=["directly", "through Dynamo"],
)
def test_compiled_operators_do_what_stock_torch_does(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.upstream.samples", *arguments],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
