"""Packed weights: how much memory they take over many sizes, and when they give it back."""

from __future__ import annotations

import copy
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ..common import nightly_but, values
from ..support.front_ends import compiled, frozen
from ..support.frozen import the_plan
from ..support.plans import explained

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]

WIDTH = 320
#: Numbers of rows; a plan for each chooses how its weights are packed.
SIZES = (1, 7, 33, 64, 128, 200)
MANY_SIZES = (*SIZES, *range(2, 200, 9))
#: Packed layouts are of whole blocks.
MOST = 1.1

Call = Callable[[Tensor], Tensor]


@pytest.fixture(autouse=True)
def timed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Implementations are timed, more briefly than users', so that sizes may choose differently."""
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "0.3")
    torch._dynamo.reset()
    gc.collect()
    yield
    torch._dynamo.reset()


def net(layers: int = 4, width: int = WIDTH) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU()))
    ).eval()


def weights_of(module: nn.Module) -> int:
    return sum(p.nbytes for p in module.parameters())


def exact(module: nn.Module, x: Tensor) -> Tensor:
    with torch.backends.zendnn.flags(enabled=False):
        result: Tensor = copy.deepcopy(module).double()(x.double())
    return result


def assert_near(got: Tensor, want: Tensor) -> None:
    largest = want.abs().max().item()
    torch.testing.assert_close(got.double(), want, rtol=0, atol=2e-5 * largest)


def packed() -> int:
    gc.collect()
    return torch.backends.zendnn.packed_memory()


def program(module: nn.Module) -> Call:
    rows = {0: torch.export.Dim.DYNAMIC}
    result: Call = torch.backends.zendnn.optimize(
        module, (torch.zeros(8, WIDTH),), dynamic_shapes=(rows,)
    )
    return result


FRONT_ENDS: dict[str, Callable[[nn.Module], Call]] = {
    "frozen": lambda module: frozen(module, torch.zeros(1, WIDTH)),
    "compiled": compiled,
    "dynamic": lambda module: compiled(module, dynamic=True),
    "prepacked": torch.backends.zendnn.prepack,
    "program": program,
}


@pytest.mark.parametrize("sizes", nightly_but([SIZES], [SIZES, MANY_SIZES]), ids=len)
@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_weight_is_packed_once_for_all_sizes_and_given_back(
    front_end: str, sizes: tuple[int, ...]
) -> None:
    module, before = net(), packed()
    call = FRONT_ENDS[front_end](module)
    with torch.no_grad():
        for rows in sizes:
            x = values(rows, WIDTH)
            assert_near(call(x), exact(module, x))
            assert packed() - before <= MOST * weights_of(module)
    del call, module
    torch._dynamo.reset()
    assert packed() == before


def test_graphs_of_one_module_share_its_packed_weights() -> None:
    module, before = net(), packed()
    x = values(16, WIDTH)
    calls = []
    with torch.no_grad():
        for _ in range(3):
            torch._dynamo.reset()
            calls.append(torch.compile(module, backend="zendnn", dynamic=False))
            assert_near(calls[-1](x), exact(module, x))
        frozen(module, x)(x)
    assert packed() - before <= MOST * weights_of(module)


def test_a_tied_weight_is_packed_once() -> None:
    layer, before = nn.Linear(WIDTH, WIDTH), packed()
    module = nn.Sequential(layer, nn.ReLU(), layer, nn.ReLU(), layer).eval()
    call = frozen(module, values(16, WIDTH))
    with torch.no_grad():
        for rows in MANY_SIZES:
            x = values(rows, WIDTH)
            assert_near(call(x), exact(module, x))
    assert packed() - before <= MOST * layer.weight.nbytes


def negate_two(p: Tensor) -> None:
    """Two signs that lie 16 float32 values apart, as in vectors of 64 bytes."""
    p.data.view(-1)[[1, 17]] *= -1


WRITES: dict[str, Callable[[Tensor], object]] = {
    "in place": lambda p: p.mul_(-0.5),
    "by data": lambda p: p.data.mul_(-0.5),
    "one element": lambda p: p.data.view(-1)[-1:].add_(1),
    "two signs": negate_two,
}


@pytest.mark.parametrize("way", WRITES)
def test_weights_that_changed_are_not_taken_for_those_that_are_packed(way: str) -> None:
    """The plan of the old weights is still there when that of the new ones is made."""
    module = net()
    x = values(16, WIDTH)
    with torch.no_grad():
        old = frozen(module, x)
        old(x)
        wanted = old(x)
        for p in module.parameters():
            WRITES[way](p)
        torch._dynamo.reset()
        new = torch.compile(module, backend="zendnn")
        assert_near(new(x), exact(module, x))
        again = frozen(module, x)
        assert_near(again(x), exact(module, x))
    assert not torch.equal(wanted, new(x))


class Many(nn.Module):
    """Merged layers, convolutions of several kinds, and layers of few features."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 32, 3, padding=1)
        self.wide = nn.Conv2d(32, 96, 3, padding=1)
        self.depth = nn.Conv2d(96, 96, 3, padding=1, groups=96)
        self.line = nn.Conv1d(96, 96, 3, padding=1)
        self.parts = nn.ModuleList(nn.Linear(96, 96) for _ in range(3))
        self.last = nn.Linear(96, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.depth(torch.relu(self.wide(torch.relu(self.first(x)))))
        x = self.line(x.flatten(2)).mean(2)
        q, k, v = (part(x) for part in self.parts)
        out: Tensor = self.last(torch.relu(q * k) + v)
        return out


@pytest.mark.parametrize("factor", nightly_but(("0", "1"), ["0", "0.5", "1", "2", "1e9"]))
@pytest.mark.parametrize("front_end", ["frozen", "compiled", "prepacked"])
def test_the_factor_bounds_what_is_packed(
    front_end: str, factor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZENDNN_PACKED_MEMORY", factor)
    module, before = Many().eval(), packed()
    make = {
        **FRONT_ENDS,
        "frozen": lambda module: frozen(module, torch.zeros(1, 3, 12, 12)),
    }[front_end]
    call = make(module)
    with torch.no_grad():
        for batch, size in ((1, 12), (2, 12), (5, 9), (1, 33), (3, 33)):
            x = values(batch, 3, size, size)
            for _ in range(3):
                assert_near(call(x), exact(module, x))
    if factor == "0":
        assert packed() == before


def test_of_linear_layers_nothing_exceeds_the_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    for factor in (0, 1, 2):
        monkeypatch.setenv("ZENDNN_PACKED_MEMORY", str(factor))
        module, before = net(width=512), packed()
        call = frozen(module, torch.zeros(1, 512))
        with torch.no_grad():
            for rows in MANY_SIZES:
                call(values(rows, 512))
        assert packed() - before <= MOST * factor * weights_of(module)
        del call, module


def test_threads_that_build_for_sizes_of_their_own_keep_the_bound() -> None:
    module, before = net(), packed()
    call = frozen(module, torch.zeros(1, WIDTH))
    barrier, errors = threading.Barrier(len(MANY_SIZES[:8])), []

    def work(rows: int) -> None:
        try:
            barrier.wait(60)
            with torch.no_grad():
                x = values(rows, WIDTH)
                assert_near(call(x), exact(module, x))
        except BaseException as error:
            errors.append(error)

    for _ in range(3):
        threads = [threading.Thread(target=work, args=(rows,)) for rows in MANY_SIZES[:8]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not errors
        assert packed() - before <= MOST * weights_of(module)
        the_plan(call).clear()
        assert explained(the_plan(call))["packed_bytes"] == 0
    assert packed() == before


def test_what_is_packed_goes_with_the_sizes_that_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    module, before = net(), packed()
    call: Any = frozen(module, torch.zeros(1, WIDTH))
    with torch.no_grad():
        call(values(16, WIDTH))
        assert packed() > before
        the_plan(call).clear()
        assert packed() == before
