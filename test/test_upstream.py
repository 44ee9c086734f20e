"""Upstream's tests on our build: of its oneDNN integration, converted, and of freezing, as is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import torch

REPO = Path(__file__).resolve().parents[1]
CONVERTED = REPO / "build" / "generated" / "test" / "test_zendnn.py"
FREEZING = REPO / "build" / "sources" / "pytorch" / "test" / "jit" / "test_freezing.py"

#: What the original file comes to on a torch that we have counted it on: passed, skipped. The two
#: that are skipped want torchvision, of which there is no build for a CPU-only torch everywhere.
COUNTS = {"2.13.0": (81, 2)}

#: Tests of freezing that look for the nodes of upstream's own pass, and why ours cannot have them.
OF_UPSTREAM_ONLY = {
    "test_scalar_mul": "wants in-place and other nodes of upstream's scalar product; here they are "
    "steps of a plan (test_one_value_times_several_numbers compares that module's results)",
}


def count(summary: str, outcome: str) -> int:
    """How many tests pytest's closing line says had ``outcome``."""
    found = re.search(rf"(\d+) {outcome}", summary)
    return int(found[1]) if found else 0


def passed(file: Path, report: Path, *, autoload: bool) -> set[str]:
    """The names of the tests of ``file`` that pass with ZenDNN (``autoload``) or on stock torch."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *(f"--junit-xml={report}", file.name),
        ],
        cwd=file.parent,
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "1" if autoload else "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert report.exists(), done.stdout[-4000:] + done.stderr[-4000:]
    cases = ElementTree.parse(report).iter("testcase")
    return {f"{case.get('classname')}::{case.get('name')}" for case in cases if not len(case)}


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


def test_freezing_fails_nowhere_that_stock_torch_passes(tmp_path: Path) -> None:
    stock = passed(FREEZING, tmp_path / "stock.xml", autoload=False)
    ours = passed(FREEZING, tmp_path / "ours.xml", autoload=True)
    assert len(stock) > 70, "most of the file passes on stock torch"
    lost = {name.rpartition("::")[2] for name in stock - ours}
    assert lost == set(OF_UPSTREAM_ONLY)
