"""Logs: one level from 0 to 4 for messages and for verbose lines, whichever variable sets it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from torch.backends.zendnn import _C

#: All that the level is read from.
VARIABLES = (
    "ZENDNN_DEBUG_MODE",
    "ZENDNN_LOG_OPTS",
    "ZENDNN_PRIMITIVE_LOG_ENABLE",
    "ZENDNN_PY_LOG_LEVEL",
    "ZENDNN_VERBOSE",
)


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Without the variables; the levels of this process are read again at the end."""
    with monkeypatch.context() as context:
        for name in VARIABLES:
            context.delenv(name, raising=False)
        yield context
    _C._log_levels()


#: Settings, and the levels of messages and of lines.
LEVELS: list[tuple[dict[str, str], tuple[int, int]]] = [
    ({}, (2, 2)),
    *(({"ZENDNN_DEBUG_MODE": str(level)}, (level, level)) for level in range(5)),
    ({"ZENDNN_LOG_OPTS": "ALL:-1"}, (0, 0)),
    ({"ZENDNN_LOG_OPTS": "ALL:2"}, (3, 3)),
    ({"ZENDNN_LOG_OPTS": "ALL:9"}, (4, 4)),
    ({"ZENDNN_LOG_OPTS": "FWK:3"}, (4, 2)),
    ({"ZENDNN_LOG_OPTS": "ALGO:2"}, (2, 3)),
    ({"ZENDNN_LOG_OPTS": "PROF:3,ALL:0,ALGO:2"}, (1, 4)),
    ({"ZENDNN_LOG_OPTS": "CORE:2", "ZENDNN_DEBUG_MODE": "0"}, (0, 3)),
    ({"ZENDNN_PRIMITIVE_LOG_ENABLE": "1"}, (2, 4)),
    ({"ZENDNN_PRIMITIVE_LOG_ENABLE": "0", "ZENDNN_LOG_OPTS": "ALL:2"}, (3, 3)),
    ({"ZENDNN_VERBOSE": "0", "ZENDNN_PRIMITIVE_LOG_ENABLE": "1"}, (2, 2)),
    ({"ZENDNN_VERBOSE": "1"}, (2, 3)),
    ({"ZENDNN_VERBOSE": "2"}, (2, 4)),
    ({"ZENDNN_VERBOSE": "profile_exec,filter=matmul,debuginfo=1"}, (2, 3)),
    ({"ZENDNN_VERBOSE": "check,profile,none"}, (2, 2)),
    *(
        ({"ZENDNN_PY_LOG_LEVEL": word, "ZENDNN_DEBUG_MODE": "3"}, (level, 3))
        for level, word in enumerate(("CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG"))
    ),
]


@pytest.mark.parametrize(("settings", "levels"), LEVELS, ids=str)
def test_each_variable_sets_the_one_level(
    unset: pytest.MonkeyPatch, settings: dict[str, str], levels: tuple[int, int]
) -> None:
    for name, value in settings.items():
        unset.setenv(name, value)
    assert _C._log_levels() == levels


@pytest.mark.parametrize(
    "value", ["ALL", "ALL:", "ALL:2,", "ALL:-2", "ALL:two", "ALL:2x", "OTHER:2", ":2", "ALL=2"]
)
def test_a_wrong_list_of_modules_is_ignored(unset: pytest.MonkeyPatch, value: str) -> None:
    unset.setenv("ZENDNN_LOG_OPTS", value)
    unset.setenv("ZENDNN_DEBUG_MODE", "1")  # no warnings
    assert _C._log_levels() == (1, 1)


def run(code: str, **settings: str) -> tuple[str, str]:
    """What a process prints on standard output and on standard error."""
    dropped = (*VARIABLES, "TORCH_LOGS", "TORCH_CPP_LOG_LEVEL")
    inherited = {name: value for name, value in os.environ.items() if name not in dropped}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**inherited, "ZENDNN_TUNING_BUDGET": "0", **settings},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return done.stdout, done.stderr


#: A layer in a plan behind an eager operator, and one that goes to torch.
MODEL = """
import torch
from torch import nn
net = nn.Linear(16, 16).eval()
fast = {how}
with torch.no_grad():
    fast(torch.rand(4, 16).softmax(-1))
    torch.rand(3, 4, dtype=torch.float64) @ torch.rand(4, 5, dtype=torch.float64)
"""
COMPILED = MODEL.format(how='torch.compile(net, backend="zendnn", options={"rest": "eager"})')
FROZEN = MODEL.format(how="torch.jit.optimize_for_inference(torch.jit.script(net))")


def test_the_highest_level_tells_everything() -> None:
    out, err = run(COMPILED, ZENDNN_DEBUG_MODE="4")
    for kind in (",create:", ",exec,", "zendnn_verbose,plan,", "zendnn_verbose,torch,"):
        assert kind in out
    for line in ("regions 1, operators in them 1", "changes by passes: ", "region zendnn_0:"):
        assert line in err


def test_level_3_tells_what_is_done() -> None:
    out, err = run(COMPILED, ZENDNN_LOG_OPTS="ALL:2")
    assert "zendnn_verbose,plan," in out
    assert "zendnn_verbose,eager," in out
    assert not re.search(",create:|zendnn_verbose,torch,", out)
    assert "regions 1, operators in them 1" in err
    assert "region zendnn_0:" not in err


def test_torchs_own_level_shows_each_event_on_standard_error() -> None:
    out, err = run(FROZEN, TORCH_CPP_LOG_LEVEL="INFO")
    assert not out
    (eager,) = re.findall(r"ZenDNN eager aten::\w*softmax \(Float 4x16\): (.*), [\d.e-]+ ms", err)
    assert "kernel:" in eager
    assert re.search(r"ZenDNN plan aten::linear \(.*\): matmul ", err)
    assert re.search(r"ZenDNN torch aten::mm \(Double 3x4:4x5\): a dtype that ", err)


def test_an_unknown_word_warns_once_and_is_as_if_unset() -> None:
    out, err = run("import torch", ZENDNN_VERBOSE="yes")
    assert not out
    assert err.count("ZENDNN_VERBOSE is 'yes', which is none of 0 1 2") == 1


def test_torch_logs_precedes_for_the_logger() -> None:
    code = """
import logging
import torch
print(logging.getLogger("torch.backends.zendnn").getEffectiveLevel())
torch._logging.set_logs()
print(logging.getLogger("torch.backends.zendnn").getEffectiveLevel())
"""
    assert run(code, ZENDNN_PY_LOG_LEVEL="DEBUG")[0].split() == ["10", "30"]
    assert run(code, ZENDNN_PY_LOG_LEVEL="DEBUG", TORCH_LOGS="zendnn")[0].split() == ["20", "20"]
