"""``python -m torch.backends.zendnn replay``: the calls of a log, on random data."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.backends.zendnn.observe import replay

from .common import of_products, run_python, values

LOG = torch.backends.zendnn.kernel_logger


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where to save a log; replaying takes little time."""
    monkeypatch.setattr(replay, "_SECONDS", 0.0)
    LOG.clear()
    return tmp_path / "log.json"


def save(path: Path, *functions: Any) -> list[dict[str, Any]]:
    """Save the log of some functions, and return its entries."""
    with torch.no_grad():
        for function in functions:
            LOG.enable()
            function()
            LOG.disable()
    path.write_text(LOG.json())
    LOG.clear()
    calls: list[dict[str, Any]] = json.loads(path.read_text())["calls"]
    return calls


def lines(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """The words of each line of the table, without its head."""
    return [line.split() for line in capsys.readouterr().out.splitlines()[1:]]


@of_products
def test_calls_run_again_and_agree_with_stock(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, image = values(64, 256), values(1, 16, 20, 20)
    batch_norm, weight = nn.BatchNorm2d(16).eval(), values(32, 16, 3, 3)
    save(
        path,
        lambda: torch.mm(x, x.t()),
        lambda: torch.mm(x, x.t()),
        lambda: F.conv2d(image, weight, padding=1),
        lambda: batch_norm(image),
        lambda: F.embedding_bag(torch.tensor([1, 2, 4, 5]), x, torch.tensor([0, 2])),
        lambda: torch.softmax(x.bfloat16(), -1),
        lambda: F.dropout(x, 0.1),
        lambda: torch.cat([x, x]),
        lambda: x.clone().mul_(2),
        lambda: torch.clamp(x, max=float("inf")),
        lambda: x.sum(-1, dtype=torch.float64),
    )
    assert replay.main([str(path)]) == 0
    found = lines(capsys)
    assert all("same" in line for line in found), found
    assert found[0][0] == "2"
    assert found[0][6:] == ["same", "aten::mm", "float32", "64x256", "256x64"]
    operators = {line[7] for line in found}
    assert operators >= {"aten::_convolution", "aten::_softmax", "aten::mul_.Tensor", "aten::cat"}


def test_a_region_runs_again_as_a_plan(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Softmax(-1)).eval()
    plan = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.script(module)))
    x = values(64, 256)
    for _ in range(2):  # TorchScript's optimiser runs
        plan(x)
    (call,) = save(path, lambda: plan(x))
    assert replay.main([str(path)]) == 0
    (line,) = lines(capsys)
    assert line[6:8] == ["same", call["operator"]]


def test_a_packed_layer_runs_again_as_a_plan(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layer, x = torch.backends.zendnn.prepack(nn.Linear(256, 128).eval()), values(64, 256)
    save(path, lambda: layer(x))
    assert replay.main([str(path)]) == 0
    assert all("same" in line for line in lines(capsys))


def test_wrong_answers_are_shown(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    save(path, lambda: torch.sigmoid(values(4, 64)))
    answers = replay._answers
    seen: list[int] = []

    def wrong(function: Any, seed: int) -> list[torch.Tensor]:
        seen.append(seed)
        return [x + 1e-2 * len(seen) for x in answers(function, seed)]

    monkeypatch.setattr(replay, "_answers", wrong)
    assert replay.main([str(path)]) == 1
    assert "WRONG" in lines(capsys)[0]


def test_calls_that_cannot_run_again_say_why(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = values(4, 64)
    (call,) = save(path, lambda: torch.sigmoid(x))
    log = json.loads(path.read_text())
    log["calls"] = [call | {"operator": "aten::nothing"}, call]
    path.write_text(json.dumps(log))
    assert replay.main([str(path)]) == 0
    first, second = capsys.readouterr().out.splitlines()[1:]
    assert "not run: this torch has no such operator" in first
    assert "same" in second


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (None, "cannot read .*log.json"),
        ("{", "cannot read .*log.json"),
        ("[]", "is no kernel log: save what kernel_logger.json"),
        ('{"format": "torch.backends.zendnn kernel log", "version": 9}', "is a log of version 9"),
        ('{"format": "torch.backends.zendnn kernel log", "version": 1}', "has no calls"),
    ],
)
def test_a_bad_log_is_refused_in_one_line(
    path: Path, capsys: pytest.CaptureFixture[str], text: str | None, error: str
) -> None:
    if text is not None:
        path.write_text(text)
    assert replay.main([str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert re.search(error, captured.err)


def test_the_command_replays(path: Path) -> None:
    save(path, lambda: torch.sigmoid(values(4, 64)))
    code = f"""
import runpy, sys
sys.argv = ["zendnn", "replay", {str(path)!r}]
runpy.run_module("torch.backends.zendnn", run_name="__main__")
"""
    assert "aten::sigmoid" in run_python(code)
