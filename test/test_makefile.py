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


@pytest.mark.parametrize(("which", "goes_on"), [("WANTED", True), ("NEEDED", False)])
def test_only_packages_that_are_needed_must_be_had(
    which: str, goes_on: bool, tmp_path: Path
) -> None:
    """Root, with an apt that cannot reach its mirror."""
    for name, script in (("id", "echo 0"), ("apt-get", "exit 100")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    packages = {"WANTED": "", "NEEDED": "", which: "no-such-command:its-package"}
    done = subprocess.run(
        [
            *("make", f"DONE={tmp_path}/done", f"{tmp_path}/done/system"),
            *(f"{name}={text}" for name, text in packages.items()),
        ],
        cwd=REPO,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) == goes_on
    assert (tmp_path / "done/system").exists() == goes_on
    assert ("going on without its-package" in done.stdout) == goes_on
