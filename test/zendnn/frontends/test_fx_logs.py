"""What compiled graphs tell: TORCH_LOGS, TORCH_COMPILE_DEBUG and TORCH_TRACE."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.backends.zendnn import _compile
from torch.backends.zendnn.frontends.fx import logs

from ..common import run_python, values

pytestmark = pytest.mark.usefixtures("fresh_dynamo")

#: A model with a graph break, an operator that the engine lacks, and a weight that changes.
MODEL = """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)

    def forward(self, x):
        y = self.norm(self.conv(x)).relu()
        y = y.cumprod(0)
        torch._dynamo.graph_break()
        return y @ y.transpose(2, 3)

net = Net().eval()
fast = torch.compile(net, backend="zendnn", options={"rest": "eager"})
x = torch.rand(2, 3, 8, 8)
with torch.no_grad():
    fast(x)
    net.conv.weight.mul_(2)
    fast(x)
fast(x)
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the model."""
    path = tmp_path_factory.mktemp("model") / "model.py"
    path.write_text(MODEL)
    return path


def told(model: Path, **environment: str) -> list[str]:
    """What a run of the model prints, without torch's prefixes of times and places."""
    inherited = {key: x for key, x in os.environ.items() if not key.startswith("TORCH_")}
    done = subprocess.run(
        [sys.executable, str(model)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=model.parent,
        env={**inherited, "ZENDNN_TUNING_BUDGET": "0", **environment},
    )
    assert done.returncode == 0, done.stderr
    assert not done.stdout
    return [re.sub(r"^(.)\d.*?:\d+\] ?", r"\1 ", line) for line in done.stderr.splitlines()]


def test_the_component_tells_what_was_compiled_and_what_was_not(model: Path) -> None:
    lines = told(model, TORCH_LOGS="zendnn")
    outside = [
        "I [0/0] model__0_inference_0: regions 1, operators in them 1, operators left out 1",
        "I [0/0] left out: 1 x aten::cumprod: the engine has no such operator",
        f"I [0/0]   {model}:11: y = y.cumprod(0)",
    ]
    assert lines[:3] == outside
    broken = rf"I \[0/0\] ended by a graph break: {re.escape(str(model))}:12: Call to"
    assert re.match(broken, lines[3])
    changed = "I [0/0] model__0_inference_0: plans are made anew for other weights: conv.weight"
    assert lines[lines.index(changed) + 1 :][:3] == outside
    stays = "a graph stays as it is, since it records gradients: call it under torch.no_grad() for"
    assert lines[-1].endswith(f"{stays} plans")
    assert all(line.startswith("I ") for line in lines)


def test_a_plus_adds_passes_and_graphs(model: Path) -> None:
    lines = told(model, TORCH_LOGS="+zendnn")
    assert "V [0/0] changes by passes: fold_batch_norm 1, fuse_eltwise 1" in lines
    prefix = "V [0/0] [__zendnn_graph] "
    graph = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
    assert graph[:2] == ["model__0_inference_0", "region zendnn_0:"]
    assert graph[2].startswith("  %1: float32[2, 3, 8, 8] = input  # ")
    assert any(
        re.match(r"  %\d+: float32\[2, 8, 6, 6\] = convolution\(.* post=relu:0.0:0.0  # ", line)
        for line in graph
    )
    assert any(re.match(r"  %\d+: float32\[8, 3, 3, 3\] = constant", line) for line in graph)
    assert not any("float32[2, 8, 6, 6] = constant" in line for line in graph)
    assert any(line.endswith("# the engine has no such operator") for line in graph)


def test_debug_files_and_traces_hold_the_graphs(model: Path) -> None:
    trace = model.parent / "trace"
    lines = told(model, TORCH_COMPILE_DEBUG="1", TORCH_TRACE=str(trace))
    assert not lines, "nobody asked for logs"
    folder = "torch_compile_debug/run_*/zendnn"
    files = sorted(model.parent.glob(f"{folder}/model__0_inference_0.0/*"))
    assert [file.name for file in files] == [
        "00_imported.txt",
        "01_fold_batch_norm.txt",
        "02_fuse_eltwise.txt",
        "03_regions.txt",
    ]
    before, after, _, regions = (file.read_text() for file in files)
    assert "= batch_norm(" in before
    assert "= batch_norm(" not in after
    assert "# aten::cumprod: the engine has no such operator" in after
    assert regions.startswith("region zendnn_0:\n")
    assert len(list(model.parent.glob(f"{folder}/model__0_inference_0.*"))) == 2, "one a plan"

    (file,) = trace.iterdir()
    entry, _, rest = file.read_text().partition('"zendnn_graph"')[2].partition("\n")
    assert '"frame_id": 0, "frame_compile_id": 0' in entry
    payload = "".join(line[1:] + "\n" for line in rest.split("\nV")[0].splitlines())
    assert payload == regions


@pytest.mark.parametrize(
    ("setting", "level", "graphs"),
    [
        ("zendnn", "INFO", False),
        ("-zendnn,zendnn_graph", "ERROR", True),
        ("+torch.backends.zendnn", "DEBUG", True),
    ],
)
def test_torch_logs_takes_names_and_levels(setting: str, level: str, graphs: bool) -> None:
    code = """
import logging, torch
from torch.backends.zendnn.frontends.fx.logs import graph_log, log
print(logging.getLevelName(log.getEffectiveLevel()), graph_log.isEnabledFor(logging.DEBUG))
"""
    assert run_python(code, TORCH_LOGS=setting) == f"{level} {graphs}\n"


# In this process.


@pytest.fixture
def set_logs() -> Iterator[Any]:
    """torch's function, which is undone."""
    yield torch._logging.set_logs
    torch._logging.set_logs()


@pytest.fixture
def records() -> Iterator[list[logging.LogRecord]]:
    """What the backend logs."""
    found: list[logging.LogRecord] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record)

    handler = Handler()
    _compile.log.addHandler(handler)
    yield found
    _compile.log.removeHandler(handler)


def test_set_logs_takes_the_names(set_logs: Any) -> None:
    set_logs(modules={"zendnn": logging.INFO})
    assert logs.log.isEnabledFor(logging.INFO)
    assert not logs.graph_log.isEnabledFor(logging.DEBUG)
    set_logs(modules={"zendnn_graph": True})
    assert not logs.log.isEnabledFor(logging.INFO)
    assert logs.graph_log.isEnabledFor(logging.DEBUG)


def test_no_text_is_made_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: Any) -> Any:
        raise AssertionError("text was made")

    # pytest listens to all loggers.
    monkeypatch.setattr(logging.getLogger("torch.__trace"), "handlers", [])
    for name in ("_regions", "_lines"):
        monkeypatch.setattr(logs, name, never)
    monkeypatch.setattr(logs.Capture, "name_of", never)
    net = nn.Linear(8, 8).eval()
    fast = torch.compile(net, backend="zendnn")
    with torch.no_grad():
        fast(values(4, 8))
        net.weight.mul_(2)
        fast(values(4, 8))


def test_a_graph_that_cannot_be_compiled_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, records: list[logging.LogRecord]
) -> None:
    def fail(*arguments: Any, **named: Any) -> Any:
        raise NotImplementedError("no such thing")

    monkeypatch.setattr(_compile, "aot_module_simplified", fail)
    with torch.no_grad():
        torch.compile(nn.Linear(8, 8).eval(), backend="zendnn")(values(4, 8))
    (record,) = records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        "a graph stays as it is, on eager operations (TORCH_LOGS=+aot shows where): no such thing"
    )


def test_a_moving_buffer_is_named(set_logs: Any, records: list[logging.LogRecord]) -> None:
    cache = torch.ones(8, 8)

    class Reader(nn.Module):
        cache: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)
            self.register_buffer("cache", cache)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.layer(x) @ self.cache
            return y

    set_logs(modules={"zendnn": logging.INFO})
    fast = torch.compile(Reader().eval(), backend="zendnn")
    with torch.no_grad():
        for _ in range(_compile.MANY_CHANGES + 1):
            fast(values(4, 8))
            cache.add_(1)
    wanted = "taken for inputs, since every call changes them: cache"
    assert wanted in [record.getMessage() for record in records]


def node_with(stack: str | None) -> fx.Node:
    node = fx.Graph().placeholder("x")
    node.meta["stack_trace"] = stack
    return node


def test_a_line_is_the_innermost_of_the_model() -> None:
    own = '  File "/m/net.py", line 7, in forward\n    return F.gelu(x)\n      ^^^\n'
    torchs = f'  File "{torch.nn.functional.__file__}", line 9, in gelu\n    return f(x)\n'
    assert logs.line_of(node_with(own + torchs)) == "/m/net.py:7: return F.gelu(x)"
    assert logs.line_of(node_with(torchs)).endswith("functional.py:9: return f(x)")
    assert logs.line_of(node_with(None)) == logs.line_of(None) == ""


def test_a_graph_of_unknown_origin_names_inputs_as_torch_does() -> None:
    assert logs.UNKNOWN.name_of(node_with(None)) == "x"
