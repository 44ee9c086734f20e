"""Environment variables of plans, each in a separate process, which reads it once."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from ..common import run_python

# How many shapes a plan keeps.

KEPT = """
import json, torch
from torch import nn
from torch.backends.zendnn import _C, explain
net = nn.Linear(8, 8).eval()
module = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.script(net)))
with torch.no_grad():
    for rows in range(1, 41):
        module(torch.ones(rows, 8))
(method,) = explain(module).methods
(region,) = method.regions
print(_C._plan_cache_capacity(), *(built.inputs[0].sizes[0] for built in region.built))
"""


@pytest.mark.parametrize(
    ("setting", "entries"),
    [({}, 32), ({"ZENDNN_PLAN_CACHE_CAPACITY": "3"}, 3), ({"ZENDNN_PLAN_CACHE_CAPACITY": "0"}, 1)],
    ids=["unset", "3", "0"],
)
def test_a_plan_keeps_the_given_number_of_shapes(setting: dict[str, str], entries: int) -> None:
    """It keeps the latest ones, and at least one."""
    capacity, *kept = map(int, run_python(KEPT, ZENDNN_TUNING_BUDGET="0", **setting).split())
    assert capacity == entries
    assert kept == list(range(40, 40 - entries, -1))


# The tuning cache.

TUNED = """
import sys, torch, warnings
from torch import nn
torch.manual_seed(0)
width = int(sys.argv[1])
net = nn.Sequential(
    nn.Conv2d(3, width, 3), nn.ReLU(), nn.Flatten(), nn.Linear(width * 36, 40)
)
module = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.script(net.eval())))
with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for turn in range(2):
        print("call", turn, flush=True)
        module(torch.ones(2, 3, 8, 8))
print(*(str(w.message).splitlines()[0] for w in caught if "ZENDNN" in str(w.message)))
"""


def tuning(path: Path, width: int = 16, **more: str) -> subprocess.Popen[str]:
    """Start a process that optimises a module of this width with a tuning cache."""
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", TUNED, str(width)],
        env={**os.environ, "ZENDNN_TUNING_CACHE": str(path), "ZENDNN_TUNING_BUDGET": "60", **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def printed(process: subprocess.Popen[str]) -> str:
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    return out


def runs(path: Path) -> list[Counter[tuple[str, str]]]:
    """What ran in the first and in the second call: steps, and primitives outside steps.

    Packing runs reorders; timing runs convolutions and products.
    """
    text = printed(tuning(path, ZENDNN_VERBOSE="1"))
    _, *calls = text.split("call ")
    lines = [[line.split(",") for line in call.splitlines()] for call in calls]
    return [
        Counter(("plan", x[3]) for x in call if "plan" in x)
        + Counter((x[5], x[6]) for x in call if "exec" in x and "reorder" not in x)
        for call in lines
    ]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Counter[tuple[str, str]]]]:
    """A tuning cache, and what ran in the process that wrote it."""
    path = tmp_path_factory.mktemp("tuning") / "choices"
    ran = runs(path)
    return path.read_text(), ran


def test_with_a_tuning_cache_the_next_process_times_nothing(
    tmp_path: Path, written: tuple[str, list[Counter[tuple[str, str]]]]
) -> None:
    path = tmp_path / "choices"
    path.write_text(written[0])
    (timing, cold), (first, second) = written[1], runs(path)
    assert timing.total() > cold.total() > 0
    assert first == second == cold


@pytest.mark.parametrize("part", [1, 2], ids=["of the format", "of the library"])
def test_a_tuning_cache_of_another_version_is_ignored_with_a_warning(
    tmp_path: Path, written: tuple[str, list[Counter[tuple[str, str]]]], part: int
) -> None:
    path = tmp_path / "choices"
    header, rest = written[0].split("\n", 1)
    words = header.split(" ")
    words[part] += "9"
    path.write_text(other := " ".join(words) + "\n" + rest)
    assert "is from another CPU or version and is ignored" in printed(tuning(path))
    assert path.read_text() == other


def test_processes_that_write_a_tuning_cache_together_leave_a_valid_one(tmp_path: Path) -> None:
    path = tmp_path / "choices"
    for process in [tuning(path, width) for width in (16, 16, 32)]:
        assert "ZENDNN" not in printed(process)
    header, *lines = path.read_text().splitlines()
    assert header.startswith("zendnn-tuning ")
    assert lines
    assert all(line.count("\t") == 1 for line in lines)
    assert [p.name for p in tmp_path.iterdir() if "." in p.name] == [], "a draft was left behind"
    assert "ZENDNN" not in printed(tuning(path))


@pytest.mark.parametrize("kind", ["folder", "device", "endless device", "pipe", "text", "one line"])
def test_a_path_that_is_no_tuning_cache_stays_unchanged(tmp_path: Path, kind: str) -> None:
    """A device is not replaced, although it is writable, and no read of it hangs."""
    path = tmp_path / "choices"
    makers: dict[str, Callable[[], object]] = {
        "folder": path.mkdir,
        "device": lambda: os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3)),  # as /dev/null
        "endless device": lambda: os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5)),
        "pipe": lambda: os.mkfifo(path),
        "text": lambda: path.write_bytes(b"\0\xff mine\n"),
        "one line": lambda: path.write_bytes(b"mine" * (1 << 22)),
    }
    try:
        makers[kind]()
    except PermissionError:
        pytest.skip("only root makes devices")
    before = path.stat()
    said = "is from another CPU or version" if path.is_file() else "cannot be written"
    assert said in printed(tuning(path))
    after = path.stat()
    assert (after.st_ino, after.st_mode, after.st_size) == (
        before.st_ino,
        before.st_mode,
        before.st_size,
    )
    assert [p.name for p in tmp_path.iterdir()] == ["choices"]


def test_a_tuning_cache_behind_a_link_is_replaced_where_it_is(tmp_path: Path) -> None:
    path, link = tmp_path / "choices", tmp_path / "link"
    path.touch(mode=0o600)
    link.symlink_to(path)
    assert "ZENDNN" not in printed(tuning(link))
    assert link.is_symlink()
    assert path.read_text().startswith("zendnn-tuning ")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(p.name for p in tmp_path.iterdir()) == ["choices", "link"]
