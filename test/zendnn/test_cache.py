"""Warm starts: a second process loads what Dynamo and AOTAutograd made for the backend."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._functorch.config as functorch_config
from torch import nn
from torch._dynamo.utils import counters

from .common import run_python, values

pytest.importorskip("torch._dynamo.precompile_context")

MODEL = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(8, 16), nn.LayerNorm(16)
        self.activation = torch.relu
    def forward(self, x):
        return self.activation(self.norm(self.layer(x)))
"""

#: What each process has: a model of its own weights, and how wrong a compiled model is.
START = """
import torch
from torch._dynamo.utils import counters
from model import Model

model, x = Model().eval(), torch.rand(3, 8)

def error(fast, x):
    with torch.no_grad():
        got = fast(x)
        with torch.backends.zendnn.flags(enabled=False):
            return (got - model(x)).abs().max().item()

def graphs():
    return counters["stats"]["unique_graphs"]

def found():
    return {name.removeprefix("dynamo_cache_"): n for name, n in counters["dynamo_cache"].items()}
"""

SAVE = """
fast = torch.compile(model, backend="zendnn")
assert error(fast, x) < 1e-5
assert torch.compiler.save_cache_artifacts() is not None
"""


class Processes:
    """Processes that share a folder with a module ``model``, and the folder of torch's caches."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.model = folder, folder / "model.py"
        self.model.write_text(MODEL)

    def run(self, code: str, caching: bool = True) -> str:
        return run_python(
            START + code,
            PYTHONPATH=os.pathsep.join((str(self.folder), os.environ.get("PYTHONPATH", ""))),
            TORCHINDUCTOR_CACHE_DIR=str(self.folder / "cache"),
            TORCH_CACHING_PRECOMPILE=str(int(caching)),
            ZENDNN_TUNING_BUDGET="0",
        )

    def cached(self) -> set[str]:
        """The folders of torch's caches with files in them."""
        cache = self.folder / "cache"
        files = (path.relative_to(cache) for path in cache.rglob("*") if path.is_file())
        return {path.parts[0] for path in files}


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    return Processes(tmp_path)


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Processes:
    """One process has compiled the model and saved what it made."""
    processes = Processes(tmp_path_factory.mktemp("warm"))
    processes.run(SAVE)
    return processes


def test_a_second_process_captures_no_graph(warm: Processes) -> None:
    code = """
    fast = torch.compile(model, backend="zendnn")
    assert error(fast, x) < 1e-5
    with torch.backends.zendnn.record() as events, torch.no_grad():
        fast(x)
    assert {event.route for event in events} == {"plan"}
    assert (found(), graphs()) == ({"hit": 1}, 0), (found(), graphs())
    """
    warm.run(_lines(code))


def test_modules_that_dynamo_loads_by_a_name_of_its_own_are_loaded_with_the_graph(
    processes: Processes,
) -> None:
    body = MODEL.replace("return self", "return OrderedDict(y=self").replace("(x)))", "(x))))")
    processes.model.write_text("from collections import OrderedDict\n" + body)
    call = """
fast = torch.compile(model, backend="zendnn")
with torch.no_grad():
    assert (fast(x)["y"] - model(x)["y"]).abs().max() < 1e-5
"""
    processes.run(call + "torch.compiler.save_cache_artifacts()")
    assert processes.run(call + "print(graphs())").strip() == "0"


def test_a_second_process_notices_changed_weights(warm: Processes) -> None:
    code = """
    fast = torch.compile(model, backend="zendnn")
    assert error(fast, x) < 1e-5
    with torch.no_grad():
        model.layer.weight.mul_(2)
    assert error(fast, x) < 1e-5
    model.norm = torch.nn.LayerNorm(16)
    torch.nn.init.normal_(model.norm.weight)
    assert error(fast, x) < 1e-5
    assert graphs() == 0, graphs()
    """
    warm.run(_lines(code))


def test_a_second_process_compiles_for_other_inputs(warm: Processes) -> None:
    code = """
    fast = torch.compile(model, backend="zendnn")
    assert all(error(fast, torch.rand(rows, 8)) < 1e-5 for rows in (3, 5, 7, 3))
    assert (found(), graphs()) == ({"hit": 1}, 2), (found(), graphs())  # the last for all sizes
    model.bfloat16()
    assert error(fast, x.bfloat16()) < 1e-1
    assert graphs() == 3, graphs()
    """
    warm.run(_lines(code))


def test_only_the_same_backend_with_the_same_options_loads_a_graph(warm: Processes) -> None:
    code = """
    def load(backend="zendnn", **more):
        counters.clear()
        torch.compile(model, backend=backend, **more)
        return found()

    assert load() == {"hit": 1}
    assert load(options={"freeze": True}) == {"error": 1}
    assert load("eager") == load("inductor") == {"error": 1}
    torch.set_float32_matmul_precision("medium")
    assert load() == {"error": 1}
    assert load(options={"precision": "highest"}) == {"hit": 1}
    from torch.backends.zendnn import _cache
    _cache.version = lambda: "another"
    assert load() == {"error": 1}
    """
    warm.run(_lines(code))


def test_a_model_with_another_function_is_compiled_again(warm: Processes) -> None:
    code = """
    model.activation = torch.sigmoid
    fast = torch.compile(model, backend="zendnn")
    assert error(fast, x) < 1e-5
    assert (found(), graphs()) == ({"error": 1}, 1), (found(), graphs())
    """
    warm.run(_lines(code))


def test_changed_code_is_compiled_again(processes: Processes) -> None:
    processes.run(SAVE)
    processes.model.write_text(MODEL.replace("self.layer(x)", "self.layer(-x)"))
    code = """
    fast = torch.compile(model, backend="zendnn")
    assert error(fast, x) < 1e-5
    assert graphs() == 1, graphs()
    """
    processes.run(_lines(code))


def test_sizes_that_change_are_loaded_with_their_graph(processes: Processes) -> None:
    code = """
    fast = torch.compile(model, backend="zendnn", dynamic=True)
    assert all(error(fast, torch.rand(rows, 8)) < 1e-5 for rows in (3, 5, 7))
    assert graphs() == {graphs}, graphs()
    torch.compiler.save_cache_artifacts()
    """
    processes.run(_lines(code).replace("{graphs}", "1"))
    processes.run(_lines(code).replace("{graphs}", "0"))


def test_groups_between_regions_are_not_taken_for_each_other(processes: Processes) -> None:
    between = "for i in range(20): y = torch.{}(y).abs() + 1\n        "
    forward = f"y = x\n        {between}y = self.layer(y)\n        {between}return y"
    returned = "return self.activation(self.norm(self.layer(x)))"
    processes.model.write_text(MODEL.replace(returned, forward.format("erfc", "digamma")))
    code = """
    fast = torch.compile(model, backend="zendnn", dynamic=True)
    assert all(error(fast, torch.rand(rows, 8)) < 1e-3 for rows in (3, 5))
    torch.compiler.save_cache_artifacts()
    """
    processes.run(_lines(code))
    processes.run(_lines(code))


def test_nothing_is_written_unless_it_is_asked_for(processes: Processes) -> None:
    code = """
    assert error(torch.compile(model, backend="zendnn", options={"rest": "eager"}), x) < 1e-5
    """
    processes.run(_lines(code), caching=False)
    assert not processes.cached()


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_function_that_is_compiled_ahead_of_time_can_be_saved(
    processes: Processes, dynamic: bool
) -> None:
    path = processes.folder / "saved.pt"
    setting = f"path, dynamic = {str(path)!r}, {dynamic}\n"
    save = """
    torch._dynamo.config.enable_aot_compile = True
    torch._dynamo.config.specialize_float = True
    made = torch.compile(model.forward, backend="zendnn", fullgraph=True, dynamic=dynamic)
    with torch.no_grad():
        made = made.aot_compile(((x,), {}))
    assert error(lambda x: made(model, x), x) < 1e-5
    made.save_compiled_function(path)
    """
    load = """
    with open(path, "rb") as file:
        made = torch.compiler.load_compiled_function(file)
    for x in (x, *([torch.rand(5, 8)] if dynamic else [])):
        assert error(lambda x: made(model, x), x) < 1e-5
    with torch.no_grad():
        model.layer.weight.mul_(2)
    assert error(lambda x: made(model, x), x) < 1e-5
    with torch.backends.zendnn.record() as events, torch.no_grad():
        made(model, x)
    assert {event.route for event in events} == {"plan"}
    assert graphs() == 0, graphs()
    """
    processes.run(setting + _lines(save), caching=False)
    processes.run(setting + _lines(load), caching=False)


def _lines(code: str) -> str:
    """The code without its indentation."""
    return "\n".join(line[4:] for line in code.splitlines())


@pytest.fixture
def caching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch caches what backends return, in a folder of its own."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "0")
    torch._dynamo.reset()
    counters.clear()
    with functorch_config.patch(bundled_autograd_cache=True):
        yield
    torch._dynamo.reset()


def _hits(model: Callable[..., Any], options: Mapping[str, Any]) -> int:
    """How often the cache had the model's graph, which is compiled anew."""
    torch._dynamo.reset()
    counters.clear()
    x = values(3, 8)
    with torch.no_grad():
        got = torch.compile(model, backend="zendnn", options=dict(options))(x)
        torch.testing.assert_close(got, model(x), rtol=1e-4, atol=1e-5)
    return counters["aot_autograd"]["autograd_cache_hit"]


def test_the_cache_of_graphs_is_keyed_by_options(caching: None) -> None:
    model = nn.Linear(8, 4)
    sequence: list[dict[str, Any]] = [
        {},
        {},
        {"freeze": True},
        {"rest": "eager"},
        {"freeze": True},
        {},
    ]
    assert [_hits(model, options) for options in sequence] == [0, 1, 0, 0, 1, 1]
