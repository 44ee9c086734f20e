"""tools/setup_helpers/progress.py: the remaining time, from the weights of a build's steps."""

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
SLOW = "zendnn/src/CMakeFiles/zendnn.dir/slow.cpp.o"
QUICK = "CMakeFiles/kernels.dir/quick.cpp.o"


def test_weights_are_the_times_of_long_steps() -> None:
    assert progress.weights_of(LOG) == {"zendnn.dir/slow.cpp.o": 9.0}


def test_the_time_left_follows_from_finished_weights() -> None:
    now = 0.0
    estimate = progress.Estimate([SLOW, QUICK], progress.weights_of(LOG), lambda: now)
    assert estimate.finish(None, 2) == ""
    now = 90.0
    assert estimate.finish(SLOW, 1) == "0:30"
    now = 125.0
    assert estimate.finish(QUICK, 0) == "0:00"


def test_an_unexpected_step_has_the_usual_weight() -> None:
    now = 0.0
    estimate = progress.Estimate([], {}, lambda: now)
    estimate.finish("a.o", 3)
    now = 60.0
    assert estimate.finish("b.o", 2) == "1:00"


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
    targets = f"{SLOW}: CXX\n{QUICK}: CXX\n"
    first, second = f"Building CXX object {SLOW}", f"Building CXX object {QUICK}"
    ninja.write_text(
        f"#!/bin/sh\n[ \"$1\" = -t ] && printf '{targets}' && exit\n"
        f"echo '[1/2] {first}'\necho 'a.cpp:3: warning'\necho '[2/2] {second}'\nexit 3\n"
    )
    ninja.chmod(ninja.stat().st_mode | stat.S_IXUSR)
    assert progress.run_ninja([str(ninja)], dict(os.environ)) == 3
    assert capfd.readouterr().out.splitlines() == [
        f"[1/2] {first}",
        "a.cpp:3: warning",
        f"[2/2, 0:00 left] {second}",
    ]
