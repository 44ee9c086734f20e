"""Tests that run again in another process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def passes(*arguments: str, **environment: str) -> None:
    """Runs pytest with ``arguments`` in a process with these variables."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=TESTS.parents[1],
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
