"""The C++ example: a module that Python optimised and saved runs without Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "cpp"


def run(*command: str | int | Path) -> str:
    """What a command prints."""
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build = tmp_path_factory.mktemp("example")
    run(
        *("cmake", "-S", EXAMPLE, "-B", build, "-G", "Ninja"),
        f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}",
        f"-DPython_EXECUTABLE={sys.executable}",
    )
    run("cmake", "--build", build)
    return build / "run_model"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_saved_module_gives_the_results_of_python(program: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 64, 5)
    ).eval()
    x = torch.ones(2, 3, 8, 8)
    module = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(net, x)))
    torch.jit.save(module, tmp_path / "net.pt")
    sizes, total = run(program, tmp_path / "net.pt", 2, 3, 8, 8).rsplit(maxsplit=1)
    with torch.no_grad():
        assert sizes == "[2, 5]"
        assert float(total) == pytest.approx(module(x).sum().item(), rel=1e-4)


def test_a_file_that_is_no_module_is_an_error_in_a_sentence(program: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [program, tmp_path / "none.pt", "1"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
