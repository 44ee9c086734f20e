"""examples/cpp: built with CMake against the installed torch, it matches Python's results."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

SOURCE = Path(__file__).parents[2] / "examples" / "cpp"
SHAPE = (2, 3, 16, 16)

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.skipif(not shutil.which("cmake"), reason="needs CMake"),
]


class Net(nn.Module):
    """A convolution with a residual, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.second = nn.Conv2d(16, 16, 3, padding=1)
        self.last = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x))
        x = F.relu(self.second(x) + x)
        out: Tensor = self.last(x.mean((2, 3)))
        return out


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **environment},
    )


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled example."""
    build = tmp_path_factory.mktemp("cpp") / "build"
    root = f"-DTORCH_ROOT={Path(torch.__file__).parent}"
    commands: tuple[list[str | Path], ...] = (
        ["cmake", "-S", SOURCE, "-B", build, root, "-DCMAKE_BUILD_TYPE=Release"],
        ["cmake", "--build", build],
    )
    for command in commands:
        done = run(*command)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return build / "run_model"


@pytest.fixture
def saved(tmp_path: Path) -> tuple[nn.Module, Path]:
    """A net, and the file of its optimised module."""
    torch.manual_seed(0)
    net = Net().eval()
    module = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.script(net)))
    assert "zendnn::run" in str(module.graph)
    torch.jit.save(module, tmp_path / "net.pt")
    return net, tmp_path / "net.pt"


def test_the_example_prints_what_python_computes(
    program: Path, saved: tuple[nn.Module, Path]
) -> None:
    net, path = saved
    with torch.no_grad(), torch.backends.zendnn.flags(enabled=False):
        want = net(torch.ones(SHAPE))
    done = run(program, path, *map(str, SHAPE))
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert lines["shape"] == "[2, 10]"
    assert float(lines["sum"]) == pytest.approx(want.sum().item(), rel=1e-4)


def test_the_example_runs_plans(program: Path, saved: tuple[nn.Module, Path]) -> None:
    done = run(program, saved[1], *map(str, SHAPE), ZENDNN_VERBOSE="1")
    assert "zendnn_verbose,plan," in done.stdout


def test_the_example_runs_packages_of_aotinductor(program: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = Net().eval()
    shapes = {"x": {0: torch.export.Dim.DYNAMIC}}
    exported = torch.backends.zendnn.export(net, (torch.ones(SHAPE),), dynamic_shapes=shapes)
    package = tmp_path / "net.pt2"
    torch._inductor.aoti_compile_and_package(exported, package_path=str(package))
    with torch.no_grad(), torch.backends.zendnn.flags(enabled=False):
        want = net(torch.ones(5, *SHAPE[1:]))
    done = run(program, package, "5", *map(str, SHAPE[1:]), ZENDNN_VERBOSE="1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("zendnn_verbose,plan,") for line in lines)
    assert "shape [5, 10]" in lines
    (total,) = [float(line.split()[1]) for line in lines if line.startswith("sum ")]
    assert total == pytest.approx(want.sum().item(), rel=1e-4)


def test_wrong_usage_prints_one_sentence(program: Path, saved: tuple[nn.Module, Path]) -> None:
    assert run(program).returncode == 2
    for size in ("x", "3x", ""):
        done = run(program, saved[1], "2", size)
        assert done.returncode == 2
        assert done.stderr == f"{program}: '{size}' is not a size: give a number\n"
    for arguments in ([saved[1], "2", "3"], ["missing.pt", "1"]):
        done = run(program, *arguments)
        assert done.returncode == 1
        assert done.stderr
