"""tools/setup_helpers/progress.py: the time left, from the weights of a build's steps."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tools.setup_helpers import progress

LOG = """# ninja log v5
0\t9000\t0\tzendnn/src/CMakeFiles/zendnn.dir/slow.cpp.o\tab
100\t1100\t0\tCMakeFiles/kernels.dir/quick.cpp.o\tcd
"""
SLOW = "Building CXX object zendnn/src/CMakeFiles/zendnn.dir/slow.cpp.o"
QUICK = "Building CXX object CMakeFiles/kernels.dir/quick.cpp.o"


def test_weights_are_what_long_steps_took() -> None:
    assert progress.weights_of(LOG) == {"zendnn.dir/slow.cpp.o": 9.0}


@pytest.mark.parametrize(
    ("step", "weight"),
    [(SLOW, 9.0), (QUICK, progress.USUAL), ("Re-checking globbed directories...", 0.0)],
)
def test_a_step_weighs_what_the_table_says_or_the_usual(step: str, weight: float) -> None:
    assert progress.weight_of(step, progress.weights_of(LOG)) == weight


def test_the_time_left_follows_from_the_weights_that_are_done() -> None:
    now = 0.0
    estimate = progress.Estimate([SLOW, QUICK], progress.weights_of(LOG), lambda: now)
    assert estimate.left() == ""
    now = 90.0
    estimate.finish(SLOW)
    assert estimate.left() == "0:30"
    now = 125.0
    estimate.finish(QUICK)
    assert estimate.left() == "0:00"


def test_the_table_names_objects_and_their_seconds() -> None:
    weights = progress.read_weights()
    assert len(weights) > 20
    assert all(seconds >= progress.LEAST for seconds in weights.values())
    assert all(name.endswith((".o", ".gch", ".so", ".a")) for name in weights)


def test_a_table_is_written_from_ninjas_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").write_text(LOG)
    monkeypatch.setattr(progress, "WEIGHTS", tmp_path / "weights.txt")
    assert progress.main([str(tmp_path / "log")]) == 0
    assert progress.read_weights(progress.WEIGHTS) == {"zendnn.dir/slow.cpp.o": 9.0}


def test_steps_messages_and_the_exit_code_pass_through(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ninja = tmp_path / "ninja"
    steps = f"[1/2] {SLOW}", "a.cpp:3: warning", f"[2/2] {QUICK}"
    ninja.write_text("#!/bin/sh\n" + "".join(f"echo '{s}'\n" for s in steps) + "exit 3\n")
    ninja.chmod(ninja.stat().st_mode | stat.S_IXUSR)
    assert progress.run_ninja([str(ninja)], dict(os.environ)) == 3
    first, message, last = capfd.readouterr().out.splitlines()
    assert first.startswith("[1/2, ")
    assert first.endswith(f"] {SLOW}")
    assert message == "a.cpp:3: warning"
    assert last == f"[2/2, 0:00 left] {QUICK}"
