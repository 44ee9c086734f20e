"""Plans as objects: builds, caches, memory, fallbacks and copies."""

from __future__ import annotations

import copy
import ctypes
import gc
import io
import os
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.backends.zendnn import _C

from ..common import counting, of_bfloat16, run_python, stock, values
from ..support import front_ends
from ..support.frozen import the_plan
from ..support.graphs import Builder
from ..support.plans import explained, make_plan, region_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]

THREADS = 8
ROUNDS = 25
PLAN = "zendnn::_zendnn_plan_forward_0"
MIB = 2**20


class Net(nn.Module):
    """Convolutions with a residual, and a linear layer."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.last = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x))
        x = F.relu(self.second(x) + x)
        out: Tensor = self.last(x.mean((2, 3)))
        return out


def built(module: torch.jit.ScriptModule) -> list[dict[str, Any]]:
    """The executables of a module's only plan, most recently used first."""
    entries: list[dict[str, Any]] = explained(the_plan(module))["built"]
    return entries


def assert_near(got: Tensor, want: Tensor) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    assert (got - want).abs().max() <= 1e-5 * want.abs().max()


def expected(net: nn.Module, x: Tensor) -> Tensor:
    with stock(), torch.no_grad():
        out: Tensor = net(x)
    return out


def exact(net: nn.Module, x: Tensor) -> Tensor:
    """The float64 result, rounded: stock torch's float32 result varies by 3e-5 between runs."""
    return expected(copy.deepcopy(net).double(), x.double()).to(x.dtype)


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def net() -> nn.Module:
    return Net().eval()


@pytest.fixture
def module(net: nn.Module) -> torch.jit.ScriptModule:
    return front_ends.frozen(net, values(1, 3, 8, 8))


@pytest.fixture
def capacity() -> Iterator[Callable[[int], None]]:
    """Sets how many shapes a plan keeps; the test's end restores the number."""
    before = _C._plan_cache_capacity()
    yield _C._set_plan_cache_capacity
    _C._set_plan_cache_capacity(before)


# Builds and caches.


def test_a_plan_is_built_once_for_a_shape(net: nn.Module, module: torch.jit.ScriptModule) -> None:
    with torch.no_grad():
        for _ in range(3):
            for batch in (1, 2):
                x = values(batch, 3, 8, 8)
                assert_near(module(x), expected(net, x))
    sizes = [entry["inputs"][0]["sizes"] for entry in built(module)]
    assert sizes == [[2, 3, 8, 8], [1, 3, 8, 8]]


def test_a_plan_distinguishes_layouts_dtypes_and_numbers() -> None:
    b = Builder()
    x, size = b.input(values(4, 6)), b.input(2)
    plan = make_plan(region_of(b, b("view", b.eltwise("relu", x), size, -1)))
    inputs = [values(4, 6), values(6, 4).t(), values(4, 6, dtype=torch.bfloat16)]
    for x_now in inputs:
        for rows in (2, 3):
            (got,) = plan.run([x_now], [rows])
            assert torch.equal(got, x_now.relu().reshape(rows, -1))
    assert len(explained(plan)["built"]) == 6


@pytest.mark.parametrize("entries", [1, 3])
def test_shapes_beyond_the_capacity_are_forgotten_and_right(
    net: nn.Module,
    module: torch.jit.ScriptModule,
    capacity: Callable[[int], None],
    entries: int,
) -> None:
    capacity(entries)
    with torch.no_grad():
        for turn in range(2):
            for size in (5, 6, 7, 8, 9):
                x = values(1, 3, size, 8, seed=turn)
                assert_near(module(x), expected(net, x))
                assert len(built(module)) <= entries
    kept = [entry["inputs"][0]["sizes"][2] for entry in built(module)]
    assert kept == [9, 8, 7][:entries]


def test_the_least_recently_used_shape_is_evicted(
    module: torch.jit.ScriptModule, capacity: Callable[[int], None]
) -> None:
    capacity(2)
    with torch.no_grad():
        for batch in (1, 2, 1, 3):
            module(values(batch, 3, 8, 8))
    assert [entry["inputs"][0]["sizes"][0] for entry in built(module)] == [3, 1]


def test_refused_shapes_do_not_evict_built_ones(
    module: torch.jit.ScriptModule, capacity: Callable[[int], None]
) -> None:
    capacity(2)
    with torch.no_grad():
        for batch in (1, 2):
            module(values(batch, 3, 8, 8))
        for size in range(4, 9):
            module(values(0, 3, size, 8))
    refused = [entry["inputs"][0]["sizes"] for entry in built(module) if entry["refused"]]
    runs = [entry["inputs"][0]["sizes"][0] for entry in built(module) if not entry["refused"]]
    assert refused == [[0, 3, 8, 8], [0, 3, 7, 8]]
    assert runs == [2, 1]


@pytest.mark.parametrize("entries", [0, -1])
def test_a_capacity_of_nothing_is_refused(entries: int) -> None:
    before = _C._plan_cache_capacity()
    with pytest.raises(ValueError, match="at least 1 entry"):
        _C._set_plan_cache_capacity(entries)
    assert _C._plan_cache_capacity() == before


def test_the_plans_of_two_shapes_share_their_packed_weights(module: torch.jit.ScriptModule) -> None:
    plan = the_plan(module)
    packed = []
    with torch.no_grad():
        for batch in (2, 3):
            module(values(batch, 3, 8, 8))
            packed.append(explained(plan)["packed_bytes"])
    first, second = ([step["implementation"] for step in x["steps"]] for x in built(module))
    assert first == second, "weights are packed for an implementation"
    assert packed[0] == packed[1] > 0


def test_packed_weights_are_released_with_their_plans(module: torch.jit.ScriptModule) -> None:
    plan, x = the_plan(module), values(1, 3, 8, 8)
    with torch.no_grad():
        module(x)
        packed = explained(plan)["packed_bytes"]
        for _ in range(3):
            plan.clear()
            assert explained(plan)["built"] == []
            assert explained(plan)["packed_bytes"] == 0
            module(x)
            assert explained(plan)["packed_bytes"] == packed > 0


def in_threads(work: Callable[[int], None]) -> None:
    """Run ``work(0)`` … ``work(7)`` concurrently from one start; re-raise an error of any."""
    barrier = threading.Barrier(THREADS)

    def start(number: int) -> None:
        barrier.wait(timeout=60)
        with torch.no_grad():  # this switch is per thread
            work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        for future in [pool.submit(start, number) for number in range(THREADS)]:
            future.result(120)


def test_threads_that_run_one_plan_at_once_get_their_own_results(
    net: nn.Module, module: torch.jit.ScriptModule
) -> None:
    """Inputs have one shape: memory of one run must not reach another run's result."""
    inputs = [values(2, 3, 24, 24, seed=number) for number in range(THREADS)]
    wants = [exact(net, x) for x in inputs]

    def work(number: int) -> None:
        for turn in range(ROUNDS):
            which = (number + turn) % THREADS
            assert_near(module(inputs[which]), wants[which])

    in_threads(work)
    assert len(built(module)) == 1


BUILT_BY = """
import threading, torch
from torch import nn
net = nn.Sequential(
    nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.Flatten(), nn.Linear(256, 8)
)
module = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.script(net.eval())))
barrier = threading.Barrier({threads})
def work():
    barrier.wait(60)
    with torch.no_grad():
        module(torch.ones(2, 3, 8, 8))
threads = [threading.Thread(target=work) for _ in range({threads})]
for thread in threads: thread.start()
for thread in threads: thread.join(120)
"""


def test_eight_threads_build_a_plan_once() -> None:
    """Counts the created primitives, in a process where only plans create them."""

    def made(threads: int) -> int:
        printed = run_python(BUILT_BY.format(threads=threads), ZENDNN_VERBOSE="profile_create")
        return sum(",create:" in line for line in printed.splitlines())

    assert made(THREADS) == made(1) > 0


GROWING = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)
    def forward(self, x, cache):
        return torch.cat([cache, torch.relu(self.layer(x))])
net = Net().eval()
with torch.no_grad():
    traced = torch.jit.trace(net, (torch.rand(1, 64), torch.rand(2, 64)))
    module = torch.jit.optimize_for_inference(torch.jit.freeze(traced))
    for rows in range(1, 5):
        print("rows", rows, flush=True)
        x, cache = torch.rand(1, 64), torch.rand(rows, 64)
        with torch.backends.zendnn.flags(enabled=False):
            want = net(x, cache)
        torch.testing.assert_close(module(x, cache), want)
"""


def test_a_product_that_a_new_size_leaves_alone_is_not_created_again() -> None:
    settings = {"ZENDNN_VERBOSE": "profile_create", "ZENDNN_TUNING_BUDGET": "2"}
    printed = run_python(GROWING, **settings)
    created = [part.count(",create:") for part in printed.split("rows ")[1:]]
    assert created[0] > 0
    assert created[1:] == [0, 0, 0]


def test_layers_that_only_differ_in_a_number_of_an_activation_are_two_problems() -> None:
    layer = nn.Linear(32, 32)
    net = nn.Sequential(layer, nn.LeakyReLU(0.1), layer, nn.LeakyReLU(0.4), layer).eval()
    module, x = front_ends.frozen(net, values(3, 32)), values(3, 32)
    with torch.no_grad():
        for _ in range(2):
            assert_near(module(x), exact(net, x))
            the_plan(module).clear()


def test_threads_with_more_shapes_than_are_kept_get_right_results(
    net: nn.Module, module: torch.jit.ScriptModule, capacity: Callable[[int], None]
) -> None:
    capacity(1)
    inputs = [values(1, 3, 5 + number, 6, seed=number) for number in range(THREADS)]
    wants = [exact(net, x) for x in inputs]

    def work(number: int) -> None:
        for turn in range(6):
            which = (number + turn) % THREADS
            assert_near(module(inputs[which]), wants[which])

    in_threads(work)


def test_threads_that_build_plans_at_once_wait_for_the_weights_that_they_share() -> None:
    """One layer has most of the weights, and the others less than a thread's share."""
    net = nn.Sequential(
        *(layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.Tanh())),
        nn.Linear(256, 4096),
    ).eval()
    inputs = [values(16 + number, 256, seed=number) for number in range(THREADS)]
    wants = [exact(net, x) for x in inputs]
    module = front_ends.frozen(net, inputs[0])
    packed = set()

    def work(number: int) -> None:
        assert_near(module(inputs[number]), wants[number])

    for _ in range(10):
        in_threads(work)
        assert len(built(module)) == THREADS
        packed.add(explained(the_plan(module))["packed_bytes"])
        the_plan(module).clear()
    (held,) = packed
    assert held > 0, "each weight is packed, once"


def test_each_number_of_threads_has_a_plan(net: nn.Module, module: torch.jit.ScriptModule) -> None:
    x = values(2, 3, 33, 33)
    want = expected(net, x)
    for _ in range(2):
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            with torch.no_grad():
                assert_near(module(x), want)
    assert [entry["threads"] for entry in built(module)] == [5, 2, 1]


# Fallbacks to the model's own operators.


def test_inputs_that_need_gradients_get_them(
    net: nn.Module, module: torch.jit.ScriptModule
) -> None:
    x = values(2, 3, 8, 8).requires_grad_()
    with stock():
        (want,) = torch.autograd.grad(net(x).square().sum(), x)
    for _ in range(3):
        out = module(x)
        (got,) = torch.autograd.grad(out.square().sum(), x)
        assert_near(got, want)
    assert built(module) == []


def test_without_gradients_the_plan_runs_inputs_that_could_need_them(
    net: nn.Module, module: torch.jit.ScriptModule
) -> None:
    x = values(2, 3, 8, 8).requires_grad_()
    with torch.no_grad():
        got = module(x)
    assert not got.requires_grad
    assert len(built(module)) == 1
    assert_near(got, expected(net, x))


def test_a_plan_runs_in_grad_mode_when_no_input_needs_gradients(
    net: nn.Module, module: torch.jit.ScriptModule
) -> None:
    x = values(2, 3, 8, 8)
    for _ in range(3):
        got = module(x)
        assert_near(got, expected(net, x))
    assert len(built(module)) == 1
    assert not got.requires_grad
    (got * torch.ones((), requires_grad=True)).sum().backward()


def test_forward_mode_tangents_are_propagated(
    net: nn.Module, module: torch.jit.ScriptModule
) -> None:
    """In forward mode, no tensor says that it requires a gradient."""
    forward_ad = torch.autograd.forward_ad
    x, tangent = values(2, 3, 8, 8), values(2, 3, 8, 8, seed=1)
    wants = []
    for run in (net, module):
        with forward_ad.dual_level():
            out = run(forward_ad.make_dual(x, tangent))
            wants.append(forward_ad.unpack_dual(out).tangent)
    assert wants[1] is not None, "the tangent was lost"
    assert_near(wants[1], wants[0].detach())


def test_switched_off_gives_the_bits_of_the_frozen_graph(net: nn.Module) -> None:
    x = values(2, 3, 8, 8)
    with torch.no_grad():
        frozen = torch.jit.freeze(torch.jit.trace(net, x))
    module = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(net, x)))
    with torch.no_grad(), stock(), counting() as calls:
        assert torch.equal(module(x), frozen(x))
    assert not calls
    assert built(module) == []


def test_inference_mode(net: nn.Module, module: torch.jit.ScriptModule) -> None:
    x = values(2, 3, 8, 8)
    with torch.inference_mode():
        for own in (x, values(2, 3, 8, 8)):
            got = module(own)
            assert got.is_inference()
            assert_near(got, expected(net, x))
    assert len(built(module)) == 1
    with torch.no_grad():
        assert not module(x).is_inference()


def events_of(module: torch.jit.ScriptModule, x: Tensor) -> set[str]:
    """The profiler's events of a call."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        module(x)
    return {event.name for event in profile.events()}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_lowers_what_was_traced_without_it(net: nn.Module, dtype: torch.dtype) -> None:
    x = values(2, 3, 8, 8)
    module = front_ends.frozen(net, x)
    with torch.no_grad(), torch.autocast("cpu", dtype):
        want = expected(net, x)
        for _ in range(2):
            got = module(x)
            assert got.dtype == want.dtype == dtype
            assert (got.float() - want.float()).abs().max() <= 2e-2 * want.abs().max()
    assert built(module) == []
    with torch.no_grad():
        assert_near(module(x), expected(net, x))
        assert PLAN in events_of(module, x)


def test_autocast_lowers_layers_that_were_merged() -> None:
    class Twins(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(32, 64), nn.Linear(32, 64)

        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([self.one(x), self.other(x)])

    net, x = Twins().eval(), values(8, 32)
    module = front_ends.frozen(net, x)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert module(x).dtype == expected(net, x).dtype == torch.bfloat16
    assert built(module) == []
    with torch.no_grad():
        assert_near(module(x), expected(net, x))
        assert PLAN in events_of(module, x)


def test_autocast_lowers_products_without_weights() -> None:
    class Product(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.softmax(x @ x.transpose(1, 2), -1)

    x = values(2, 8, 8)
    module = front_ends.frozen(Product(), x)
    for lowered in (True, False):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=lowered):
            assert module(x).dtype == expected(Product(), x).dtype
            assert (PLAN in events_of(module, x)) == (not lowered)


@of_bfloat16
def test_autocast_does_not_change_modules_traced_under_it(net: nn.Module) -> None:
    x = values(2, 3, 8, 8)
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            frozen = torch.jit.freeze(torch.jit.trace(net, x, check_trace=False))
        module = torch.jit.optimize_for_inference(frozen)
        outside = module(x)
        with torch.autocast("cpu", torch.bfloat16):
            want, inside = expected(net, x), module(x)
            assert PLAN in events_of(module, x)
    assert outside.dtype == inside.dtype == want.dtype == torch.bfloat16
    assert torch.equal(outside, inside)
    assert (inside.float() - want.float()).abs().max() <= 2e-2 * want.abs().max()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda x: torch._neg_view(-x), id="negated"),
        pytest.param(lambda x: x.to(memory_format=torch.channels_last), id="channels last"),
        pytest.param(lambda x: x.to_mkldnn().to_dense(), id="dense again"),
        pytest.param(lambda x: x[:1].expand(2, -1, -1, -1), id="expanded"),
        pytest.param(lambda x: x.as_subclass(torch.nn.Parameter).detach(), id="parameter"),
    ],
)
def test_unusual_tensors(
    net: nn.Module, module: torch.jit.ScriptModule, change: Callable[[Tensor], Tensor]
) -> None:
    x = change(values(2, 3, 8, 8))
    with torch.no_grad():
        for _ in range(2):
            assert_near(module(x), expected(net, x))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(lambda x: x.to("meta"), "not on the expected device meta", id="meta"),
        pytest.param(lambda x: x.to_sparse(), "torch.sparse.FloatTensor", id="sparse"),
    ],
)
def test_tensors_without_memory_raise_torchs_error(
    net: nn.Module,
    module: torch.jit.ScriptModule,
    change: Callable[[Tensor], Tensor],
    reason: str,
) -> None:
    """The error text is the same, and the module still works."""
    x = values(2, 3, 8, 8)
    with torch.no_grad():
        with pytest.raises(RuntimeError, match=reason), stock():
            net(change(x))
        with pytest.raises(RuntimeError, match=reason):
            module(change(x))
        assert built(module) == []
        assert_near(module(x), expected(net, x))


def test_vmap_over_a_module(net: nn.Module, module: torch.jit.ScriptModule) -> None:
    x = values(3, 2, 3, 8, 8)
    with torch.no_grad():
        got = torch.func.vmap(module)(x)
        want = torch.stack([expected(net, part) for part in x])
    assert_near(got, want)


def test_functional_gradients_and_tangents_of_a_module(
    net: nn.Module, module: torch.jit.ScriptModule
) -> None:
    x, tangent = values(2, 3, 8, 8), values(2, 3, 8, 8, seed=1)
    with stock():
        want = torch.func.grad(lambda y: net(y).square().sum())(x)
        want_out, want_tangent = torch.func.jvp(net, (x,), (tangent,))
    assert_near(torch.func.grad(lambda y: module(y).square().sum())(x), want)
    out, got_tangent = torch.func.jvp(module, (x,), (tangent,))
    assert_near(out, want_out.detach())
    assert_near(got_tangent, want_tangent.detach())


def test_fake_tensors_get_the_size_of_the_result(module: torch.jit.ScriptModule) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    x = values(2, 3, 8, 8)
    with torch.no_grad():
        for _ in range(2):  # torch compares constants in these runs, which fake tensors forbid
            module(x)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            assert tuple(module(mode.from_tensor(x)).shape) == (2, 10)
    assert len(built(module)) == 1


# Copies.


def test_a_saved_module_gives_the_same_results(
    net: nn.Module, module: torch.jit.ScriptModule, tmp_path: Path
) -> None:
    path, x = tmp_path / "module.pt", values(2, 3, 8, 8)
    torch.jit.save(module, path)
    loaded = torch.jit.load(path)
    with torch.no_grad():
        for _ in range(2):
            assert torch.equal(loaded(x), module(x))
            assert_near(loaded(x), expected(net, x))
    assert len(built(loaded)) == 1
    assert the_plan(loaded).description() == the_plan(module).description()


def test_a_saved_module_runs_in_another_process(
    net: nn.Module, module: torch.jit.ScriptModule, tmp_path: Path
) -> None:
    path, x = tmp_path / "module.pt", torch.ones(2, 3, 8, 8)
    torch.jit.save(module, path)
    load = f"import torch; m = torch.jit.load({str(path)!r}); x = torch.ones(2, 3, 8, 8)"
    printed = run_python(f"{load}; print(m(x).sum().item())")
    assert float(printed) == pytest.approx(expected(net, x).sum().item(), rel=1e-4)


def test_a_plan_of_another_version_is_refused_when_it_is_loaded(
    module: torch.jit.ScriptModule,
) -> None:
    saved, changed = io.BytesIO(), io.BytesIO()
    torch.jit.save(module, saved)
    found = 0
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(changed, "w") as new:
        for item in old.infolist():
            content = old.read(item)
            found += content.count(b"zendnn-plan 3\n")
            new.writestr(item.filename, content.replace(b"zendnn-plan 3\n", b"zendnn-plan 7\n"))
    assert found
    changed.seek(0)
    with pytest.raises(
        RuntimeError, match=r"version 7 .*reads version 3.*optimize the module again"
    ):
        torch.jit.load(changed)


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy])
def test_copies_work_without_the_original(
    net: nn.Module, how: Callable[[torch.jit.ScriptModule], torch.jit.ScriptModule]
) -> None:
    x = values(2, 3, 8, 8)
    module = front_ends.frozen(net, x)
    with torch.no_grad():
        module(x)
        twin = how(module)
        del module
        gc.collect()
        assert_near(twin(x), expected(net, x))


# Memory.


def test_memory_is_flat_over_many_calls(module: torch.jit.ScriptModule) -> None:
    x = values(4, 3, 32, 32)
    with torch.no_grad():
        for _ in range(50):
            module(x)
        before = resident_bytes()
        for _ in range(1000):
            module(x)
    assert resident_bytes() - before < 4 * MIB


#: Prints how many choices there are after calls of sizes.
CHOICES = """
import os, pathlib, torch
from torch import nn
net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3)).eval()
path = pathlib.Path(os.environ["ZENDNN_TUNING_CACHE"])
with torch.no_grad():
    traced = torch.jit.trace(net, torch.randn(1, 3, 64, 64))
    module = torch.jit.optimize_for_inference(torch.jit.freeze(traced))
    for size in (*range(65, 75), 71, 71, 72):
        module(torch.randn(1, 3, size, size))
        print(len(path.read_text().splitlines()))
"""


def test_sizes_after_the_fourth_are_timed_once_they_recur(tmp_path: Path) -> None:
    settings = {"ZENDNN_TUNING_BUDGET": "2", "ZENDNN_TUNING_CACHE": str(tmp_path / "choices")}
    printed = run_python(CHOICES, **settings)
    counts = [int(count) for count in printed.split()]
    early, late, again = counts[:4], counts[4:10], counts[10:]
    assert early == sorted(set(early))
    assert set(late) == {early[-1]}
    assert again[0] == late[-1] < again[1] == again[2]


def test_memory_is_bounded_over_many_shapes(
    net: nn.Module, module: torch.jit.ScriptModule, capacity: Callable[[int], None]
) -> None:
    capacity(4)
    with torch.no_grad():
        for number in range(600):  # fills ZenDNN's own cache, of 1,024 primitives
            module(values(1, 3, 8 + number % 50, 7 + number // 50))
        before = resident_bytes()
        # An executable of this net takes about 120 KiB: 96 MiB if each shape leaked one.
        for number in range(800):
            module(values(1, 3, 8 + number % 50, 19 + number // 50))
    assert resident_bytes() - before < 24 * MIB
    assert len(built(module)) == 4
    x = values(1, 3, 9, 11)
    with torch.no_grad():
        assert_near(module(x), expected(net, x))


def test_an_arena_is_kept_for_the_next_run_and_given_back(module: torch.jit.ScriptModule) -> None:
    with torch.no_grad():
        result = module(values(4, 3, 32, 32))
        torch.backends.zendnn.empty_cache()
        before = torch.backends.zendnn.memory_cached()
        for _ in range(3):
            module(values(4, 3, 32, 32))
    (entry,) = built(module)
    kept = torch.backends.zendnn.memory_cached() - before
    assert entry["arena_bytes"] <= kept <= 1.125 * entry["arena_bytes"] + 3 * result.nbytes + MIB
    torch.backends.zendnn.empty_cache()
    assert torch.backends.zendnn.memory_cached() == 0


def test_without_memory_to_prepare_a_plan_steps_aside_until_there_is() -> None:
    code = """
import resource, torch
from torch import nn
from torch.backends.zendnn.frontends import torchscript
net = nn.Conv2d(1024, 1024, 3, bias=False).eval()
module = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.script(net)))
(plan,) = torchscript.plans(module._c)
x = torch.ones(1, 1024, 5, 5)
print(plan.takes([x], []))
plan.clear()
torch.backends.zendnn.empty_cache()
pages = int(open("/proc/self/statm").read().split()[0])
_, most = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (8 << 20), most))
print(plan.takes([x], []))  # 36 MiB of weights want packing
resource.setrlimit(resource.RLIMIT_AS, (most, most))
print(plan.takes([x], []))
"""
    assert run_python(code, ZENDNN_TUNING_BUDGET="0").split() == ["True", "False", "True"]


TIMED = {"ZENDNN_TUNING_BUDGET": "2"}
LIMITED = """
import resource, torch
from torch import nn
from torch.backends.zendnn.frontends import torchscript
def plan_of(net):
    module = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.script(net.eval())))
    return torchscript.plans(module._c)[0]
def limit(mebibytes):
    #What more there shall be than is used now.
    pages = int(open("/proc/self/statm").read().split()[0])
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + (mebibytes << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))
"""


def test_a_plan_that_there_is_no_memory_to_time_serves_untimed() -> None:
    code = """
plan = plan_of(nn.Linear(256, 256))
x = torch.ones(1 << 16, 256)  # 64 MiB, and as much for the result
print(plan.takes([x[:300]], []))  # whose timing starts threads
limit(100)  # for the result, and not for what candidates run on
print(plan.takes([x], []), len(plan.explain()["built"]))
"""
    assert run_python(LIMITED + code, **TIMED).split() == ["True", "True", "2"]


def test_without_memory_to_run_the_operators_run_the_original_way() -> None:
    code = """
net = nn.Sequential(*(nn.Softmax(-1) for _ in range(12)))
passes = torch.backends.zendnn.passes
with passes.disable("share_memory"), passes.disable("reuse_operands"):  # an arena of 704 MiB
    module = torch.jit.freeze(torch.jit.script(net.eval()))
    module = torch.jit.optimize_for_inference(module)
(plan,) = torchscript.plans(module._c)
x = torch.randn(1 << 12, 1 << 12)  # 64 MiB
print(plan.takes([x], []))
wanted = module(x)
torch.backends.zendnn.empty_cache()
limit(400)
print(plan.takes([x], []))
result = module(x)
limit(4000)
print(torch.allclose(result, wanted))
print(plan.takes([x], []))
"""
    assert run_python(LIMITED + code, **TIMED).split() == ["True", "False", "True", "True"]


def test_no_convolution_has_a_scratchpad_out_of_proportion() -> None:
    """Some have a scratchpad of an image's size times a kernel's."""
    net = nn.Conv1d(1, 1, 65533, padding=65530, stride=40000).eval()
    x = values(1, 1, 65536)
    module = front_ends.frozen(net, x)
    with torch.no_grad():
        result = module(x)
        exact = copy.deepcopy(net).double()(x.double())
    torch.testing.assert_close(result.double(), exact, rtol=1e-3, atol=1e-4)
    (built,) = the_plan(module).explain()["built"]
    assert built["arena_bytes"] < (64 << 20) + 16 * (2 * x.nbytes)


def test_a_layout_that_there_is_no_memory_for_leaves_the_other() -> None:
    code = """
plan = plan_of(nn.Conv2d(1024, 1024, 3, bias=False))
x = torch.ones(1, 1024, 5, 5)
print(plan.takes([x], []), plan.explain()["packed_bytes"] >> 20)
plan.clear()
torch.backends.zendnn.empty_cache()
limit(60)  # for weights that are packed in one way, of 36 MiB
print(plan.takes([x], []), plan.explain()["built"][0]["layout"])
"""
    got = run_python(LIMITED + code, ZENDNN_TUNING_BUDGET="0").split()
    assert got == ["True", "36", "True", "channels", "last"]


def test_candidates_are_timed_in_the_memory_of_one() -> None:
    code = """
plan = plan_of(nn.Linear(256, 256))
x = torch.ones(1 << 16, 256)  # 64 MiB, and as much for the result
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(plan.takes([x], []))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 2.5 * 64)
"""
    assert run_python(LIMITED + code, **TIMED).split() == ["True", "True"]


def test_a_cached_choice_does_not_wait_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "2")
    known, large = (
        front_ends.frozen(nn.Linear(8, 24), values(3, 8)),
        nn.Conv2d(256, 256, 3, padding=1),
    )
    known(values(3, 8))
    slow = front_ends.frozen(large, values(1, 256, 8, 8))
    the_plan(known).clear()
    with ThreadPoolExecutor(1) as pool, torch.no_grad():
        choice = pool.submit(the_plan(slow).takes, [values(16, 256, 56, 56)], [])
        time.sleep(0.3)  # the choice takes seconds
        assert the_plan(known).takes([values(3, 8)], [])
        then = time.monotonic()
        assert choice.result()
        assert time.monotonic() - then > 0.3


def test_a_module_frees_what_its_plan_holds() -> None:
    """40 MiB of weights, and as much packed. torch itself keeps those of a frozen graph."""
    x = values(8, 1024)

    def use(prepare: Callable[[nn.Module, Tensor], torch.jit.ScriptModule]) -> None:
        net = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(10)))
        module = prepare(net.eval(), x)
        with torch.no_grad():
            module(x)
            module(x[:3])

    def growth(prepare: Callable[[nn.Module, Tensor], torch.jit.ScriptModule]) -> int:
        use(prepare)
        before = held()
        for _ in range(5):
            use(prepare)
            gc.collect()
        return held() - before

    def held() -> int:
        gc.collect()
        torch.backends.zendnn.empty_cache()
        ctypes.CDLL(None).malloc_trim(0)  # the C library keeps what is freed
        return resident_bytes()

    frozen = growth(lambda net, x: torch.jit.freeze(torch.jit.trace(net, x)))
    assert growth(front_ends.frozen) < frozen + 60 * MIB


# Settings.


TUNED = """
import torch, warnings, sys
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 40)).eval()
x = torch.ones(2, 3, 8, 8)
module = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.script(net)))
with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    out = module(x)
    assert (out - net(x)).abs().max() < 1e-5
print(*(str(w.message).splitlines()[0] for w in caught if "ZENDNN" in str(w.message)))
"""


class TestTuningCache:
    @staticmethod
    def run(path: Path) -> str:
        return run_python(TUNED, ZENDNN_TUNING_CACHE=str(path), ZENDNN_TUNING_BUDGET="2").strip()

    def test_is_written_and_read_again(self, tmp_path: Path) -> None:
        path = tmp_path / "choices"
        assert self.run(path) == ""
        header, *lines = path.read_text().splitlines()
        assert header.startswith("zendnn-tuning 1 ")
        assert lines
        assert all(line.count("\t") == 1 for line in lines)
        assert [p.name for p in tmp_path.iterdir()] == ["choices"], "a draft was left behind"
        before = path.stat()
        assert self.run(path) == ""
        after = path.stat()
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)

    def test_keeps_what_other_processes_wrote_meanwhile(self, tmp_path: Path) -> None:
        path = tmp_path / "choices"
        add = f"""
with open({str(path)!r}, "a") as file:
    file.write("another process\\tits choice\\n")
"""
        code = TUNED + add + TUNED.replace("ones(2", "ones(3")
        run_python(code, ZENDNN_TUNING_CACHE=str(path), ZENDNN_TUNING_BUDGET="2")
        _, *lines = path.read_text().splitlines()
        assert "another process\tits choice" in lines
        assert len(lines) == len(set(lines)) > 2
        assert [p.name for p in tmp_path.iterdir()] == ["choices"]

    @pytest.mark.parametrize(
        ("x", "is_timed"), [("ones(2, 3, 8, 8)", True), ("ones(40, 3, 8, 8)[::39]", False)]
    )
    def test_has_no_layout_for_inputs_with_large_strides(
        self, tmp_path: Path, x: str, is_timed: bool
    ) -> None:
        """Random operands in their place would take far more memory."""
        path = tmp_path / "choices"
        code = TUNED.replace("ones(2, 3, 8, 8)", x)
        run_python(code, ZENDNN_TUNING_CACHE=str(path), ZENDNN_TUNING_BUDGET="2")
        keys = path.read_text().splitlines()[1:]
        assert any(key.startswith("layout ") for key in keys) == is_timed

    def test_of_another_cpu_is_ignored_with_a_warning(self, tmp_path: Path) -> None:
        path = tmp_path / "choices"
        path.write_text("zendnn-tuning 1 another CPU\nlinear\tnonsense\n")
        printed = self.run(path)
        assert str(path) in printed
        assert "another CPU or version" in printed
        assert path.read_text() == "zendnn-tuning 1 another CPU\nlinear\tnonsense\n"

    @pytest.mark.parametrize("damage", ["cut", "noise", "unknown names", "empty"])
    def test_that_is_damaged_is_ignored(self, tmp_path: Path, damage: str) -> None:
        path = tmp_path / "choices"
        self.run(path)
        header, *lines = path.read_text().splitlines()
        if damage == "cut":
            path.write_text("\n".join([header, *lines])[: len(header) + 20])
        elif damage == "noise":
            path.write_bytes(header.encode() + b"\n" + bytes(range(256)) * 20)
        elif damage == "unknown names":
            keys = [line.split("\t")[0] for line in lines]
            path.write_text("\n".join([header, *(f"{key}\tno such kernel" for key in keys)]) + "\n")
        else:
            path.write_text("")
        self.run(path)

    def test_that_cannot_be_written_warns(self, tmp_path: Path) -> None:
        printed = self.run(tmp_path / "missing" / "choices")
        assert "cannot be written" in printed


def test_verbose_prints_a_line_for_each_step() -> None:
    code = """
import torch
from torch import nn
net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Softmax(1)).eval()
module = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.script(net)))
with torch.no_grad():
    module(torch.ones(2, 3, 8, 8))
"""
    lines = [line for line in run_python(code, ZENDNN_VERBOSE="1").splitlines() if ",plan," in line]
    assert lines
    for number, line in enumerate(lines):
        name, plan, index, implementation, label, milliseconds = line.split(",")
        assert (name, plan, int(index)) == ("zendnn_verbose", "plan", number)
        assert implementation
        assert label
        assert float(milliseconds) >= 0
    assert "aten::conv2d" in lines[0] or any("conv" in line for line in lines)
    assert any(",softmax,aten::softmax," in line for line in lines)


def test_the_profiler_shows_plans(module: torch.jit.ScriptModule) -> None:
    x = values(2, 3, 8, 8)
    with torch.no_grad():
        module(x)
        activities = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities, record_shapes=True) as profile:
            module(x)
    (event,) = [e for e in profile.events() if e.name == PLAN]
    assert event.input_shapes == [[2, 3, 8, 8]]
    assert not [e for e in profile.events() if e.name == "aten::convolution"]


def test_a_plan_explains_itself(module: torch.jit.ScriptModule) -> None:
    with torch.no_grad():
        module(values(2, 3, 8, 8))
        module(values(0, 3, 8, 8))
    explanation = the_plan(module).explain()
    refused, entry = explanation["built"]
    assert refused["refused"] == "an empty tensor"
    assert explanation["name"] == "_zendnn_plan_forward_0"
    assert len(explanation["inputs"]) == 1
    operators = [x["name"] for x in explanation["operators"]]
    assert operators == ["convolution", "convolution", "mean", "linear"]
    assert entry["inputs"] == [
        {"dtype": "Float", "sizes": [2, 3, 8, 8], "strides": [192, 64, 8, 1]}
    ]
    assert entry["gflop"] == pytest.approx(
        2 * 2 * 64 * 16 * 27e-9 + 2 * 2 * 64 * 16 * 144e-9, rel=0.1
    )
    assert all(step["implementation"] for step in entry["steps"])


def test_a_sparse_constant_is_refused() -> None:
    text = "%1 = input tensor\n%2 = constant 0\n%3 = binary(%1, %2) algorithm=add\nreturn %3\n"
    constants = [torch.eye(3).to_sparse()]
    plan = torch.classes.zendnn.Plan(f"zendnn-plan 3\n{text}", constants, "test")
    assert not plan.takes([torch.ones(3, 3)], [])


def test_a_name_of_any_letters_is_explained() -> None:
    name = 'a\\b"c\n'
    plan = torch.classes.zendnn.Plan(
        "zendnn-plan 3\n%1 = input tensor\n%2 = eltwise(%1) algorithm=relu\nreturn %2\n", [], name
    )
    assert plan.explain()["name"] == name
