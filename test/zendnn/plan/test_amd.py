"""AMD's library among the implementations of linear layers.

AOCL-DLP is not installed where these tests run: a stand-in of the same interface takes its place.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..common import HAS_BFLOAT16, run_python

COMPILER = shutil.which("cc") or shutil.which("gcc")
SOURCE = Path(__file__).with_name("aocl_dlp.c")
NAME = "aocl-dlp 5.3.0"
DTYPES = ["float32", *(["bfloat16"] if HAS_BFLOAT16 else [])]

Install = Callable[..., str]

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler builds the stand-in")

#: Prints for each model: how far it is from stock torch, and the implementations of its steps.
MODELS = """
import json, warnings, torch
from pathlib import Path
from torch import nn
from torch.backends.zendnn import _C, explain, record

class Model(nn.Module):
    def __init__(self, depth, width, bias, last):
        super().__init__()
        self.linear, self.last = nn.Linear(depth, width, bias), last
    def forward(self, x, y):
        return self.last(self.linear(x), y)

class Three(nn.Module):
    "Layers that are merged, so that their weights are joined."
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(48, 64) for _ in range(3))
    def forward(self, x, y):
        a, b, c = [part(x) for part in self.parts]
        return a * b + c

F = nn.functional
LASTS = {
    "nothing": lambda x, y: x,
    "relu": lambda x, y: F.relu(x),
    "gelu": lambda x, y: F.gelu(x),
    "gelu_tanh": lambda x, y: F.gelu(x, approximate="tanh"),
    "silu": lambda x, y: F.silu(x),
    "tanh": lambda x, y: torch.tanh(x),
    "sigmoid": lambda x, y: torch.sigmoid(x),
    "add": lambda x, y: x + y,
    "add to a sum": lambda x, y: x + y.abs(),
    "multiply": lambda x, y: F.silu(x) * y,
    "several": lambda x, y: torch.tanh(F.relu(x + y) * y),
}

def models(dtype, names):
    torch.manual_seed(0)
    for name in names:
        yield name, Model(48, 40, name != "nothing", LASTS[name]).to(dtype).eval(), 40
    if len(names) == len(LASTS):
        yield "joined", Three().to(dtype).eval(), 64

def run(dtype, *names):
    for name, model, width in models(dtype, names or LASTS):
        x, y = torch.randn(7, 48).to(dtype), torch.randn(7, width).to(dtype)
        with torch.no_grad():
            right = model(x, y)
            fast = torch.jit.freeze(torch.jit.trace(model, (x, y)))
            fast = torch.jit.optimize_for_inference(fast)
            fast(x, y)
            with record() as events:
                found = fast(x, y)
        far = ((found - right).abs().max() / right.abs().max()).item()
        wrong = [w for r in explain(fast).methods[0].regions for b in r.built for w in b.wrong]
        yield name, far, [event.implementation for event in events], wrong
"""

SOME = 'print(json.dumps(list(run(torch.float32, "nothing", "gelu", "add"))))'


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Builds the stand-in into a folder of an installation, and returns that."""

    def build(*macros: str, folder: str = "lib") -> str:
        assert COMPILER is not None
        root = tmp_path / ("amd" + "".join(macros))
        (root / folder).mkdir(parents=True)
        library = root / folder / "libaocl-dlp.so"
        options = ["-shared", "-fPIC", "-O2", *(f"-D{macro}" for macro in macros)]
        subprocess.run([COMPILER, *options, "-o", library, SOURCE, "-lm"], check=True)
        return str(root)

    return build


def reported(code: str, **environment: str) -> Any:
    # A busy machine makes threads wait for each other, and one is enough.
    settings = {"OMP_NUM_THREADS": "1", "ZENDNN_TUNING_BUDGET": "60"}
    printed = run_python(MODELS + code, **settings, **environment)
    return json.loads(printed.splitlines()[-1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_its_products_run_where_they_are_chosen(
    install: Install, tmp_path: Path, dtype: str
) -> None:
    """The choices are made for it, since a stand-in is not fast."""
    cache = tmp_path / "choices"
    code = f"""
list(run(torch.{dtype}))
cache = Path({str(cache)!r})
header, *lines = cache.read_text().splitlines()
chosen = [line.split("\\t")[0] + "\\t{NAME}" for line in lines if "linear" in line]
cache.write_text("\\n".join([header, *chosen]) + "\\n")
_C._forget_tuning()
print(json.dumps(list(run(torch.{dtype}))))
"""
    root = install(folder="deps/aocldlp/lib")
    environment = {"ZENDNN_AMD_DIR": root, "ZENDNN_TUNING_CACHE": str(cache)}
    tolerance = {"float32": 1e-5, "bfloat16": 2e-2}[dtype]
    ran = reported(code, **environment)
    for name, far, implementations, wrong in ran:
        assert far < tolerance, name
        assert NAME in " ".join(implementations), name
        assert wrong == [], name
    assert len(ran) > 10
    assert cache.read_text().startswith("zendnn-tuning 1 ")
    assert " AOCL-DLP 5.3.0\n" in cache.read_text()


def test_right_results_are_a_candidate_and_wrong_ones_are_struck_off(install: Install) -> None:
    ran = reported(SOME, ZENDNN_AMD_DIR=install("WRONG"))
    for name, far, implementations, wrong in ran:
        assert far < 1e-5, name
        assert NAME not in " ".join(implementations), name
        assert [text.startswith(NAME) for text in wrong] == [True], name


def test_products_that_fail_are_not_chosen(install: Install) -> None:
    ran = reported(SOME, ZENDNN_AMD_DIR=install("FAILING"))
    for name, far, implementations, wrong in ran:
        assert (far < 1e-5, wrong) == (True, []), name
        assert NAME not in " ".join(implementations), name


#: Prints the configuration twice, in a process for each folder that has loaded nothing yet.
SHOW = """
import json, os, sys, torch
for folder in json.loads(sys.argv[1]):
    if os.fork():
        os.wait()
        continue
    os.environ["ZENDNN_AMD_DIR"] = folder
    print(folder, file=sys.stderr)
    print(torch.__config__.show() + torch.__config__.show(), file=sys.stderr)
    sys.stderr.flush()
    os._exit(0)
"""


def shown(*folders: str) -> list[str]:
    """What is printed for each of the folders, warnings included."""
    command = [sys.executable, "-c", SHOW, json.dumps(folders)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    _, *parts = re.split("^(?:" + "|".join(map(re.escape, folders)) + ")$", done.stderr, flags=re.M)
    return parts


def test_the_configuration_names_it(install: Install) -> None:
    root = install(folder="lib64")
    (text,) = shown(root)
    assert text.count(f"AOCL-DLP: 5.3.0 ({root}/lib64/libaocl-dlp.so)") == 2
    assert "ZENDNN_AMD_DIR" not in text


def test_what_cannot_serve_warns_once(install: Install, tmp_path: Path) -> None:
    (tmp_path / "text/lib").mkdir(parents=True)
    (tmp_path / "text/lib/libaocl-dlp.so").write_text("text")
    wrong = {
        install("LACKING"): "whose library lacks aocl_gemm_bf16bf16f32obf16:",
        install("MINOR=1"): "whose library is 5.1.0, older than 5.2:",
        str(tmp_path): "which holds no libaocl-dlp.so in lib or lib64 or deps/aocldlp/lib:",
        str(tmp_path / "text"): "whose library cannot be loaded (",
    }
    for (root, why), text in zip(wrong.items(), shown(*wrong), strict=True):
        assert text.count(f"ZENDNN_AMD_DIR is '{root}', {why}") == 1
        assert text.count("AMD's matrix products are not used") == 1
        assert "AOCL-DLP" not in text
