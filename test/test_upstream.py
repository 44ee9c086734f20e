"""Upstream's own test file of its oneDNN integration, converted by zendnnify, on our build."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import torch

REPO = Path(__file__).resolve().parents[1]
CONVERTED = REPO / "build" / "generated" / "test" / "test_zendnn.py"

#: What the original file comes to on a torch that we have counted it on: passed, skipped. The two
#: that are skipped want torchvision, of which there is no build for a CPU-only torch everywhere.
COUNTS = {"2.13.0": (81, 2)}


def count(summary: str, outcome: str) -> int:
    """How many tests pytest's closing line says had ``outcome``."""
    found = re.search(rf"(\d+) {outcome}", summary)
    return int(found[1]) if found else 0


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
    passed, skipped = count(summary, "passed"), count(summary, "skipped")
    expected = COUNTS.get(torch.__version__.partition("+")[0])
    assert passed, summary
    assert expected in (None, (passed, skipped)), summary
