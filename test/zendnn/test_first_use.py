"""What several threads use first at the same time, each time in a new process."""

from __future__ import annotations

import pytest

from .common import nightly_but, run_python

THREADS = """
import threading, traceback
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.out = nn.Linear(8, 16), nn.Linear(16, 4)
    def forward(self, x):
        y = torch.relu(self.layer(x))
        return self.out(y) + torch.cumprod(y, 1)[:, :4]

x = torch.rand(3, 8)
count = 4
nets = [Net().eval() for _ in range(count)]
with torch.no_grad():
    wanted = [net(x) for net in nets]
barrier, failed = threading.Barrier(count), []

def check(number):
    try:
        with torch.no_grad():
            barrier.wait()
            use(number)
    except BaseException:
        failed.append(traceback.format_exc())

def start(use_):
    global use
    use = use_
    threads = [threading.Thread(target=check, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, "\\n".join(failed)

def same(fast, number):
    torch.testing.assert_close(fast(x), wanted[number], rtol=1e-4, atol=1e-5)
"""

USES = {
    "compile": """
start(lambda number: same(torch.compile(nets[number], backend="zendnn"), number))
""",
    "compile with other options": """
passes = torch.backends.zendnn.passes
before = [name for name in passes.names() if passes.is_enabled(name)]
options = [{"passes": {"fuse_eltwise": False}}, {"tune": 0.1}, {"rest": "eager"}, {}]
start(lambda number: same(
    torch.compile(nets[number], backend="zendnn", options=options[number]), number))
assert [name for name in passes.names() if passes.is_enabled(name)] == before
assert passes.tuning_budget() is None
""",
    "one compiled model": """
fast = torch.compile(nets[0], backend="zendnn")
start(lambda number: same(fast, 0))
""",
    "optimize": """
start(lambda number: same(torch.backends.zendnn.optimize(nets[number], (x,)), number))
""",
    "export": """
start(lambda number: same(torch.backends.zendnn.export(nets[number], (x,)).module(), number))
""",
    "optimize_for_inference": """
traced = [torch.jit.trace(net, x) for net in nets]
start(lambda number: same(
    torch.jit.optimize_for_inference(torch.jit.freeze(traced[number])), number))
""",
    "prepack": """
start(lambda number: same(torch.backends.zendnn.prepack(nets[number]), number))
""",
    "each another": """
uses = [
    lambda net: torch.compile(net, backend="zendnn"),
    lambda net: torch.backends.zendnn.optimize(net, (x,)),
    lambda net: torch.backends.zendnn.prepack(net),
    lambda net: torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(net, x))),
]
start(lambda number: same(uses[number](nets[number]), number))
""",
    "attributes": """
names = ["profiler", "kernel_logger", "functional", "passes", "explain", "export", "optimize",
         "prepack", "record", "bind", "Event"]
count = 8
barrier = threading.Barrier(count)
def use_all(number):
    for name in names[number:] + names[:number]:
        getattr(torch.backends.zendnn, name)
start(use_all)
""",
    "list_backends": """
def use_one(number):
    assert "zendnn" in torch._dynamo.list_backends()
    same(torch.compile(nets[number], backend="zendnn"), number)
start(use_one)
""",
}


@pytest.mark.parametrize("attempt", [0, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", nightly_but(("one compiled model", "each another"), USES))
def test_threads_use_it_first_at_the_same_time(name: str, attempt: int) -> None:
    run_python(THREADS + USES[name], ZENDNN_TUNING_BUDGET="0")


def test_the_registry_of_backends_has_it_at_once() -> None:
    """torch asks no entry point, which two threads could do at the same time."""
    code = """
import sys, torch
assert "torch._dynamo" not in sys.modules
from torch._dynamo.backends import registry
assert registry._COMPILER_FNS["zendnn"].__module__ == "torch.backends.zendnn._backend"
assert "torch.backends.zendnn._compile" not in sys.modules
assert not any(type(finder).__name__ == "_AtImport" for finder in sys.meta_path)
"""
    run_python(code)


@pytest.mark.parametrize("first", ["", "import torch._dynamo\n", "import torch.backends.zendnn\n"])
def test_without_autoload_the_entry_point_has_it(first: str) -> None:
    code = "import torch\n" + first + "torch.compile(torch.relu, backend='zendnn')(torch.ones(3))"
    run_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
