"""Makefile: it remembers the choices for `.venv`, and only changed ones rebuild it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="needs make")


@pytest.fixture
def setup(tmp_path: Path) -> Callable[..., list[str]]:
    """Runs `make setup` in separate folders; returns its calls of Python's venv and of pip."""
    done = tmp_path / "done"
    done.mkdir()
    (done / "system").touch()
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\n[ "$2" != venv ] || echo venv\n')
    python.chmod(0o755)
    shutil.copy(python, python.with_name("python9"))
    left_out = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "PYTHON", "TORCH", "PIP_TORCH_ARGS", "CHOICES")
    inherited = {name: text for name, text in os.environ.items() if name not in left_out}
    environ = {**inherited, "PATH": f"{python.parent}:{os.environ['PATH']}"}

    def call(*choices: str, **variables: str) -> list[str]:
        printed = subprocess.run(
            ["make", "--silent", "setup", f"DONE={done}", "PIP=echo pip", *choices],
            cwd=REPO,
            env={**environ, **variables},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        return [line for line in printed.splitlines() if not line.startswith("--")]

    return call


def test_a_run_without_choices_uses_the_last_ones(
    setup: Callable[..., list[str]],
) -> None:
    chosen = [
        "venv",
        "pip install --quiet --index-url x y torch==9",
        "pip install --quiet torch==9 -r requirements.txt",
    ]
    assert setup("TORCH=torch==9", "PIP_TORCH_ARGS=--index-url x y") == chosen
    assert setup() == []
    assert setup("TORCH=torch==9") == []
    assert setup("PYTHON=python9") == chosen
    assert setup(TORCH="torch==8")[1] == "pip install --quiet --index-url x y torch==8"
    assert setup() == []


def test_without_choices_the_venv_is_made_once(setup: Callable[..., list[str]]) -> None:
    assert setup()[0] == "venv"
    assert setup() == []
