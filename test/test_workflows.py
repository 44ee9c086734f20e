"""The workflows: each step runs a script that also runs anywhere else, with no secret."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

REPO = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((REPO / ".github/workflows").glob("*.yml"))
#: What a step may run beside scripts: moves files between the actions before and after it.
PLAIN = {"mkdir dist && mv made/*.whl dist/"}


def steps(path: Path) -> Iterator[dict[str, Any]]:
    jobs = yaml.safe_load(path.read_text())["jobs"]
    for job in jobs.values():
        yield from job.get("steps", ())


def scripts() -> set[str]:
    return {
        step["run"].split()[0]
        for path in WORKFLOWS
        for step in steps(path)
        if "run" in step and step["run"] not in PLAIN
    }


def test_steps_run_scripts_of_the_repository() -> None:
    assert scripts() == {f".ci/{path.name}" for path in (REPO / ".ci").iterdir()}
    assert all(os.access(REPO / script, os.X_OK) for script in scripts())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_step_uses_a_secret_or_writes_an_expression_into_a_command(path: Path) -> None:
    assert "secrets." not in path.read_text()
    assert not [step for step in steps(path) if "${{" in step.get("run", "")]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit_and_name_their_version(path: Path) -> None:
    used = re.findall(r"uses: (.*)", path.read_text())
    own = [line for line in used if line.startswith("./")]
    for line in sorted(set(used) - set(own)):
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)


@pytest.mark.parametrize(
    ("script", "arguments"),
    [("wheel", "PYTHON TORCH"), ("try-wheel", "PYTHON TORCH"), ("drift", "TREE")],
)
def test_scripts_say_how_to_call_them(script: str, arguments: str) -> None:
    done = subprocess.run(
        [REPO / ".ci" / script], capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"usage: .ci/{script} {arguments}")
