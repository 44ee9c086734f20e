"""``torch.compile(model, backend="zendnn")``: as eager, whatever changes between calls."""

from __future__ import annotations

import copy
import gc
import logging
import math
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo.testing
import torch.nn.functional as F
from torch import Tensor, nn
from torch.backends.zendnn import _C, _compile
from torch.backends.zendnn.frontends import fx as front_end

from .common import run_python, stock, values
from .support.compiled import IMAGE, Net, routes

pytestmark = [
    pytest.mark.filterwarnings("error:ZenDNN"),
    pytest.mark.usefixtures("fresh_dynamo"),
]


def compiled(model: Callable[..., Any], **more: Any) -> tuple[Any, Any]:
    """A compiled model and the counter of its compilations."""
    counter = torch._dynamo.testing.CompileCounterWithBackend("zendnn")
    return torch.compile(model, backend=counter, **more), counter


def assert_as_eager(fast: Callable[..., Any], model: Callable[..., Any], *inputs: Any) -> None:
    with torch.no_grad():
        got = fast(*copy.deepcopy(inputs))
        with stock():
            want = model(*copy.deepcopy(inputs))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_it_is_listed_after_a_bare_import() -> None:
    code = "import torch; print('zendnn' in torch._dynamo.list_backends())"
    assert run_python(code).strip() == "True"


def test_nothing_is_imported_before_it_is_used() -> None:
    code = "import sys, torch; print('torch.backends.zendnn._compile' in sys.modules)"
    assert run_python(code).strip() == "False"


def test_a_model_runs_as_one_plan() -> None:
    net = Net().eval()
    fast, counter = compiled(net, fullgraph=True)
    assert_as_eager(fast, net, IMAGE)
    assert routes(fast, IMAGE) == {"plan"}
    assert counter.frame_count == 1


def multiplied(net: Net) -> None:
    net.conv.weight.mul_(2)


def loaded(net: Net) -> None:
    net.load_state_dict({name: tensor + 1 for name, tensor in net.state_dict().items()})


def replaced(net: Net) -> None:
    net.out.weight = nn.Parameter(values(10, 16, seed=5))


def given_other_data(net: Net) -> None:
    net.out.weight.data = values(10, 16, seed=6)


def given_other_part(net: Net) -> None:
    """A part of the same memory as before, the second time."""
    flat = net.__dict__.setdefault("flat", values(2 * 10, 16, seed=7))
    net.out.weight.data = flat[10:] if net.out.weight.data_ptr() == flat.data_ptr() else flat[:10]


def with_another_mean(net: Net) -> None:
    assert net.norm.running_mean is not None
    net.norm.running_mean.add_(3)


def trained(net: Net) -> None:
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with torch.enable_grad():
        net(IMAGE).square().sum().backward()
    optimizer.step()


def trained_by_a_fused_optimizer(net: Net) -> None:
    """torch leaves the versions of the weights as they are."""
    optimizer = torch.optim.AdamW(net.parameters(), 0.1, fused=True)
    with torch.enable_grad():
        net(IMAGE).square().sum().backward()
    optimizer.step()


def calibrated(net: Net) -> None:
    """torch leaves the versions of the statistics as they are."""
    net.train()(IMAGE * 3 + 1)
    net.eval()


def calibrated_without_zendnn(net: Net) -> None:
    with stock():
        calibrated(net)


CHANGES = (
    *(multiplied, loaded, replaced, given_other_data, given_other_part),
    *(with_another_mean, calibrated, calibrated_without_zendnn),
    *(trained, trained_by_a_fused_optimizer),
)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changed_weights_are_seen_at_once_without_compiling_again(
    change: Callable[[Net], None],
) -> None:
    net = Net().eval()
    fast, counter = compiled(net)
    assert_as_eager(fast, net, IMAGE)
    for _ in range(2):
        with torch.no_grad():
            change(net)
        assert_as_eager(fast, net, IMAGE)
    assert routes(fast, IMAGE) == {"plan"}
    assert counter.frame_count == 1


def test_tied_weights_change_together() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.out = nn.Embedding(30, 8), nn.Linear(8, 30, bias=False)
            self.out.weight = self.table.weight

        def forward(self, ids: Tensor) -> Tensor:
            y: Tensor = self.out(self.table(ids))
            return y

    net, ids = Tied().eval(), torch.randint(30, (4, 5))
    fast, _ = compiled(net)
    assert_as_eager(fast, net, ids)
    with torch.no_grad():
        net.table.weight.mul_(-3)
    assert_as_eager(fast, net, ids)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was given each time that plans of a graph were made."""
    made, optimize = [], front_end.optimize

    def counted(*arguments: Any, **named: Any) -> Any:
        made.append(arguments)
        return optimize(*arguments, **named)

    monkeypatch.setattr(front_end, "optimize", counted)
    return made


def test_modules_that_share_a_graph_keep_their_own_plans(made: list[Any]) -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            torch._dynamo.graph_break()
            return F.relu(self.linear(x))

    net, x = nn.Sequential(Layer(), Layer(), Layer()).eval(), values(4, 8)
    fast, _ = compiled(net)
    for _ in range(3):
        assert_as_eager(fast, net, x)
    assert len(made) == 3


def test_a_buffer_that_changes_with_every_call_is_an_input(made: list[Any]) -> None:
    net = Cache().eval()

    def read(x: Tensor) -> Tensor:
        return F.softmax(net.layer(x) @ net.cache.t(), -1)

    fast, _ = compiled(read)
    for _ in range(8):
        net.cache.add_(1)
        assert_as_eager(fast, read, values(4, 8))
    assert len(made) == 4
    with torch.no_grad():
        net.layer.weight.mul_(2)
    assert_as_eager(fast, read, values(4, 8))
    assert routes(fast, values(4, 8)) == {"plan"}


class Recurrent(nn.Module):
    """A layer that replaces its state with every call, of which many share one graph."""

    def __init__(self, with_weights: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8) if with_weights else nn.Softmax(-1)
        self.state = torch.zeros(4, 8)

    def forward(self, x: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        self.state = F.gelu(self.linear(x)) @ x.t() @ self.state + self.linear(x)
        return F.softmax(self.state, -1)


@pytest.mark.parametrize("with_weights", [False, True])
def test_a_state_that_every_call_replaces_is_an_input(made: list[Any], with_weights: bool) -> None:
    net = nn.Sequential(*(Recurrent(with_weights) for _ in range(2))).eval()
    (fast, _), same = compiled(net), copy.deepcopy(net)
    with torch.no_grad():
        for seed in range(12):
            x = values(4, 8, seed=seed)
            with stock():
                want = same(x)
            torch.testing.assert_close(fast(x), want)
            if seed == 5:
                before = len(made)
    assert len(made) == before <= 8
    assert "plan" in routes(fast, values(4, 8))


def test_plans_of_weights_that_are_gone_are_dropped() -> None:
    net = nn.Linear(8, 8).eval()
    fast, _ = compiled(net)
    assert_as_eager(fast, net, values(4, 8))
    gone = weakref.ref(net.weight)
    net.weight = nn.Parameter(values(8, 8))
    assert_as_eager(fast, net, values(4, 8))
    assert gone() is None


def test_plans_that_were_replaced_are_gone_at_once() -> None:
    net, others = Net().eval(), set(front_end._origins)
    fast, _ = compiled(net)
    assert_as_eager(fast, net, IMAGE)
    (graph,) = set(front_end._origins) - others
    gone = [weakref.ref(module) for module in graph.modules()]
    del graph
    gc.disable()
    try:
        with torch.no_grad():
            multiplied(net)
        assert_as_eager(fast, net, IMAGE)
        assert {module() for module in gone} == {None}
        assert len(torch.backends.zendnn.explain(fast).methods) == 1
    finally:
        gc.enable()


def test_frozen_weights_are_looked_at_once() -> None:
    net = Net().eval()
    fast = torch.compile(net, backend="zendnn", options={"freeze": True})
    with torch.no_grad():
        before = fast(IMAGE)
        net.out.weight.mul_(2)
        torch.testing.assert_close(fast(IMAGE), before)


def test_a_snapshot_holds_until_something_changes() -> None:
    arguments = (values(3), 7, values(4))
    snapshot = _C._Snapshot([0, 2], arguments)
    assert snapshot.holds(arguments)
    assert snapshot.holds((arguments[0], 8, arguments[2]))
    assert not snapshot.holds((arguments[0], 7, arguments[2].clone()))
    assert not snapshot.holds(arguments[:2])
    arguments[0].add_(1)
    assert not snapshot.holds(arguments)
    with pytest.raises(TypeError, match="int where it reads a tensor"):
        _C._Snapshot([1], arguments)


@pytest.mark.parametrize("number", [float, torch.tensor], ids=["float", "tensor"])
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_a_snapshot_sees_what_fused_optimizers_write(name: str, number: Any) -> None:
    # The weights are parts of one storage.
    weights = [nn.Parameter(part) for part in values(3, 4).unbind()]
    others = (values(5), weights[2])
    snapshot, other = _C._Snapshot([0], (weights[1],)), _C._Snapshot([0], others)
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer = getattr(torch.optim, name)(weights, lr=number(0.1), fused=True)
    optimizer.step()
    assert not snapshot.holds((weights[1],))
    assert _C._Snapshot([0], (weights[1],)).holds((weights[1],))
    assert other.holds(others)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch has no collectives")
def test_weights_that_a_collective_has_written_are_seen() -> None:
    script = """
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
net, x = nn.Linear(512, 512).eval(), torch.randn(16, 512)
fast = torch.compile(net, backend="zendnn")
weight, zeros = net.weight, torch.zeros(512, 512)
writes = {
    "broadcast": lambda: dist.broadcast(weight.data, 0),
    "broadcast later": lambda: dist.broadcast(weight, 0, async_op=True).wait(),
    "all_reduce": lambda: dist.all_reduce(weight),
    "all_gather": lambda: dist.all_gather([weight], zeros),
    "scatter": lambda: dist.scatter(weight, [zeros], 0),
    "all_to_all": lambda: dist.all_to_all_single(weight, zeros),
}
with torch.no_grad():
    fast(x)
    for name, write in writes.items():
        # Written unseen, as by another process.
        weight.data.copy_(torch.randn(512, 512))
        write()
        torch.testing.assert_close(fast(x), net(x), rtol=1e-4, atol=1e-3, msg=name)
dist.destroy_process_group()
"""
    run_python(script)


def test_a_snapshot_sees_old_writes_after_many_others() -> None:
    weight, rate = nn.Parameter(values(3)), {"lr": 0.1, "momentum": 0.0, "dampening": 0.0}
    snapshot = _C._Snapshot([0], (weight,))

    def step(weights: list[Tensor]) -> None:
        plain = {"weight_decay": 0.0, "nesterov": False, "maximize": False, "is_first_step": True}
        torch._fused_sgd_(weights, [torch.ones(3)] * len(weights), [], **rate, **plain)

    with torch.no_grad():
        step([weight])
        assert not snapshot.holds((weight,))
        step([torch.zeros(3) for _ in range(2**16 + 1)])
    assert not snapshot.holds((weight,))


def test_many_sizes_are_compiled_twice_at_most() -> None:
    net = Net().eval()
    fast, counter = compiled(net)
    for height in (8, 9, 17, 23, 8):
        assert_as_eager(fast, net, values(2, 3, height, 9))
    assert counter.frame_count == 2
    assert routes(fast, values(2, 3, 31, 9)) == {"plan"}


def test_sizes_that_are_computed_with() -> None:
    def function(x: Tensor) -> Tensor:
        n = x.shape[0]
        y = F.linear(x, x[: n // 2]).reshape(-1, n)
        return F.softmax(y * n, -1) @ x.expand(n, x.shape[1]) / x.shape[1] ** 0.5

    fast, counter = compiled(function, dynamic=True)
    for rows in (4, 8, 20):
        assert_as_eager(fast, function, values(rows, 12))
    assert counter.frame_count == 1


class Scaled(nn.Module):
    """Multiplies by a number of its own, which Dynamo makes symbolic."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 12)
        self.scale = 0.7

    def forward(self, x: Tensor, dropout: float = 0.0) -> Tensor:
        y = F.softmax(self.layer(x) * self.scale, -1)
        return F.dropout(y, dropout, self.training) * self.scale**-0.5


def test_numbers_of_modules_may_be_symbolic() -> None:
    net = Scaled().eval()
    fast, _ = compiled(net, dynamic=True)
    assert_as_eager(fast, net, values(4, 12))
    assert_as_eager(fast, net, values(6, 12), 0.1)
    assert routes(fast, values(5, 12)) == {"plan"}


def test_numbers_of_modules_are_constants_until_they_change() -> None:
    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.eps = nn.Parameter(values(12)), 1e-3
            self.layer = nn.Linear(12, 12)

        def forward(self, x: Tensor, scale: float) -> Tensor:
            y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
            return self.layer(y * self.weight) * scale

    net = Norm().eval()
    fast, counter = compiled(net, dynamic=True)
    for rows, scale in ((4, 0.5), (6, 0.7)):
        assert_as_eager(fast, net, values(rows, 12), scale)
        assert counter.frame_count == 2  # Dynamo began again
    assert "rms_norm" in str(torch.backends.zendnn.explain(fast))
    net.eps = 0.5
    assert_as_eager(fast, net, values(4, 12), 0.5)
    assert_as_eager(fast, net, values(5, 12), 0.9)


def test_numbers_of_globals_are_constants_until_they_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer = nn.Linear(12, 12).eval()

    def gelu(x: Tensor) -> Tensor:
        x = layer(x)
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
        return 0.5 * x * (1.0 + torch.tanh(inner))

    fast, _ = compiled(gelu, dynamic=True)
    for rows in (4, 6):
        assert_as_eager(fast, gelu, values(rows, 12))
    assert routes(fast, values(5, 12)) == {"plan"}
    monkeypatch.setattr(math, "pi", 3.0)
    assert_as_eager(fast, gelu, values(4, 12))


def test_a_number_that_is_given_is_converted_by_aten() -> None:
    def scaled(x: Tensor, temperature: float) -> Tensor:
        return F.linear(x, x) / temperature

    fast, counter = compiled(scaled, dynamic=True)
    for temperature in (0.7, 0.8, 0.9):
        assert_as_eager(fast, scaled, values(4, 12), temperature)
    assert counter.frame_count == 1
    with torch.no_grad(), torch.profiler.profile() as profiled:
        fast(values(4, 12), 0.5)
    assert not [event.key for event in profiled.key_averages() if event.key.startswith("prims")]


class Cache(nn.Module):
    """Writes to a buffer and to an input."""

    cache: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("cache", torch.zeros(6, 8))

    def forward(self, x: Tensor, position: int) -> Tensor:
        y = self.layer(x)
        self.cache[position : position + y.shape[0]].copy_(y)
        x.mul_(2)
        return F.softmax(y @ self.cache.t(), -1) @ self.cache


def test_writes_to_buffers_and_inputs_are_done() -> None:
    net = Cache().eval()
    other = copy.deepcopy(net)
    fast, _ = compiled(net)
    for position in range(5):
        x, y = values(1, 8, seed=position), values(1, 8, seed=position)
        with torch.no_grad():
            got = fast(x, position)
            with stock():
                want = other(y, position)
        torch.testing.assert_close((got, x, net.cache), (want, y, other.cache))


def swapped(x: Tensor, y: Tensor) -> Tensor:
    product, before = x @ y, x.clone()
    x.copy_(y)
    y.copy_(before)
    return product


def returned(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    product = x @ y
    y.add_(1)
    return product, product.view(-1), x, x.t(), y.t()


def read_and_returned(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    product = x @ y
    columns, (_, below) = product.unsqueeze(-1), product.chunk(2)
    return product, columns, below, F.softmax(columns * 2, 0) * below.mean()


def written_by_other_names(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    same, turned, diagonal = x.type_as(y), torch.einsum("ij->ji", x), torch.einsum("ii->i", y)
    same.mul_(2)
    turned[1].add_(1)
    diagonal.zero_()
    return x @ y, same, turned, diagonal


def read_before_a_write(x: Tensor, y: Tensor) -> Tensor:
    product = F.gelu(x @ y)
    x[1:].clamp_(-0.1, 0.1)
    return F.layer_norm(product.clone(), [6])


def read_before_and_after_a_write(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    before = F.gelu(x[1])
    x[:2].clamp_(-0.1, 0.1)
    return before, F.softmax(x @ y, -1)


WRITERS = (
    swapped,
    returned,
    read_and_returned,
    written_by_other_names,
    read_before_a_write,
    read_before_and_after_a_write,
)


@pytest.mark.parametrize("function", WRITERS, ids=lambda f: f.__name__)
def test_memory_is_shared_as_in_eager_mode(function: Callable[..., Any]) -> None:
    fast, _ = compiled(function)
    inputs, others = (values(6, 6), values(6, 6, seed=1)), (values(6, 6), values(6, 6, seed=1))
    with torch.no_grad():
        got, want = fast(*inputs), function(*others)
    torch.testing.assert_close((got, inputs), (want, others))

    def shared(results: Any, arguments: tuple[Tensor, ...]) -> list[int]:
        found = [*(results if isinstance(results, tuple) else (results,)), *arguments]
        memory = [tensor.untyped_storage().data_ptr() for tensor in found]
        return [memory.index(address) for address in memory]

    assert shared(got, inputs) == shared(want, others)


def test_results_that_are_no_tensors() -> None:
    def function(x: Tensor, n: int) -> dict[str, Any]:
        return {"y": F.linear(x, x) * n, "n": n + 1, "none": None, "size": x.shape[0] * 2}

    fast, _ = compiled(function, dynamic=True)
    for n in (2, 3):
        assert_as_eager(fast, function, values(5, 7), n)


def broken(x: Tensor) -> Tensor:
    y = F.linear(x, x)
    torch._dynamo.graph_break()
    return F.linear(y, y)


def nothing(x: Tensor) -> Tensor:
    return x


def complex_part(x: Tensor) -> Tensor:
    return torch.fft.rfft(F.linear(x, x)).abs() @ x[:4].t().contiguous().t()[:, :4].t()


def no_engine(x: Tensor) -> Tensor:
    return torch.cumprod(x, 0).sort(1).values


def conditional(x: Tensor) -> Tensor:
    y: Tensor = torch.cond(x.sum() > 0, lambda x: x @ x.t(), lambda x: x @ x.t() + 1, (x,))
    return y


def batched(x: Tensor) -> Tensor:
    return torch.func.vmap(lambda row: F.linear(row, x))(x)


FUNCTIONS = (broken, nothing, complex_part, no_engine, conditional, batched)


def test_a_model_around_what_no_graph_can_hold_is_compiled_in_parts() -> None:
    net, count = Net().eval(), torch.tensor(5)

    def outer(x: Tensor, count: Tensor) -> Tensor:
        y: Tensor = net(x) + torch.arange(count).sum()  # its size depends on data
        return y

    fast, _ = compiled(outer)
    assert_as_eager(fast, outer, IMAGE, count)
    assert "plan" in routes(fast, IMAGE, count)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_whatever_dynamo_hands_over_is_as_eager(function: Callable[..., Any]) -> None:
    fast, _ = compiled(function)
    assert_as_eager(fast, function, values(6, 6))
    assert_as_eager(fast, function, -values(6, 6))


@pytest.mark.parametrize("where", ["around", "inside"])
def test_autocast_computes_in_bfloat16(where: str) -> None:
    net = Net().eval()

    def inside(x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y: Tensor = net(x)
        return y

    model = net if where == "around" else inside
    fast, _ = compiled(model)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=where == "around"):
        got = fast(IMAGE)
        with stock():
            want = model(IMAGE)
        assert routes(fast, IMAGE) == {"plan"}
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
    assert_as_eager(fast, model, IMAGE) if where == "around" else None


def test_inference_mode() -> None:
    net = Net().eval()
    fast, _ = compiled(net)
    with torch.inference_mode():
        got = fast(IMAGE)
        with stock():
            want = net(IMAGE)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        assert routes(fast, IMAGE) == {"plan"}


def test_training_has_the_gradients_of_eager_mode() -> None:
    net = Net()
    other = copy.deepcopy(net)
    fast, _ = compiled(net)
    for step in range(3):
        x = values(4, 3, 8, 9, seed=step)
        fast(x).square().sum().backward()
        with stock():
            other(x).square().sum().backward()
    for ours, theirs in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-4)


def test_changed_weights_are_noticed_without_guards_of_modules() -> None:
    net = Net().eval()
    options = {"guard_filter_fn": torch.compiler.skip_guard_on_all_nn_modules_unsafe}
    fast = torch.compile(net, backend="zendnn", options=options)
    assert_as_eager(fast, net, IMAGE)
    with torch.no_grad():
        net.conv.weight.mul_(2)
    assert_as_eager(fast, net, IMAGE)
    net.out.bias = nn.Parameter(torch.ones(10))
    assert_as_eager(fast, net, IMAGE)


def test_results_are_freed_when_nobody_holds_them() -> None:
    net = Net().eval()
    fast, _ = compiled(net)
    with torch.no_grad():
        assert routes(fast, IMAGE) == {"plan"}
        result = weakref.ref(fast(IMAGE))
    assert result() is None


@pytest.mark.parametrize("dynamic", [False, True])
def test_results_have_torch_strides(dynamic: bool) -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            y = x.transpose(0, 1)
            return y + self.layer(y), F.relu(self.layer(y)), self.layer(y).t() + x

    model = Residual().eval()
    fast, _ = compiled(model, dynamic=dynamic)
    for columns in (24, 32):
        x = values(16, columns)
        assert_as_eager(fast, model, x)
        with torch.no_grad():
            assert [y.stride() for y in fast(x)] == [y.stride() for y in model(x)]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("source", ["same", "smaller", "repeated", "bfloat16"])
def test_writes_of_whole_tensors_stay_in_the_plan(source: str, dynamic: bool) -> None:
    class Written(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            y = self.layer(x)
            target = torch.empty_like(x.t() if source == "same" else x)
            if source == "bfloat16":
                target = target.bfloat16()
            old = target.clone()
            old.copy_({"same": y.t(), "smaller": y[0], "repeated": y[:1, :1]}.get(source, y))
            return old, self.layer(x + old.float().mean())

    model = Written().eval()
    fast, _ = compiled(model, dynamic=dynamic)
    for rows in (24, 32):
        x = values(rows, 16)
        assert_as_eager(fast, model, x)
        with torch.no_grad():
            assert [y.stride() for y in fast(x)] == [y.stride() for y in model(x)]
    methods = torch.backends.zendnn.explain(fast).methods
    assert not [item for method in methods for item in method.left_out if item.op == "aten::copy"]


@pytest.mark.parametrize("tracked", [False, True])
def test_instance_norms_are_in_plans_unless_they_write_statistics(tracked: bool) -> None:
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.InstanceNorm2d(16, track_running_stats=tracked))
    net.append(nn.Conv2d(16, 8, 3))
    other, (fast, _) = copy.deepcopy(net), compiled(net)
    for seed in range(2):
        assert_as_eager(fast, other, values(2, 3, 12, 12, seed=seed))
    torch.testing.assert_close(dict(net.named_buffers()), dict(other.named_buffers()))
    (method,) = torch.backends.zendnn.explain(fast).methods
    assert (len(method.regions), bool(method.left_out)) == ((2, True) if tracked else (1, False))


def test_channels_last_inputs() -> None:
    net = Net().eval()
    fast, _ = compiled(net)
    assert_as_eager(fast, net, IMAGE.to(memory_format=torch.channels_last))


def test_threads_share_a_compiled_model() -> None:
    net = Net().eval()
    fast, _ = compiled(net)
    assert_as_eager(fast, net, IMAGE)
    with torch.no_grad(), stock():
        want = net(IMAGE)
    wrong: list[float] = []

    def run() -> None:
        with torch.no_grad():
            for _ in range(20):
                wrong.append((fast(IMAGE) - want).abs().max().item())

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) == 80
    assert max(wrong) < 1e-4


def test_it_is_drawn_with_what_runs_between_its_regions() -> None:
    class Mixed(Net):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            z: Tensor = self.out(F.pad(y.cumprod(1), (0, 6)) + 1)
            return z

    fast = torch.compile(Mixed().eval(), backend="zendnn", options={"rest": "eager"})
    with torch.no_grad():
        fast(IMAGE)
    text = torch.backends.zendnn.explain(fast).dot()
    assert text.count("subgraph") == 2
    assert r'm0_call_1 [label="cumprod\nthe engine has no such operator", style=dashed]' in text
    assert "r0_output_0 -> m0_call_1;" in text
    assert "m0_call_1 -> r1_input_0;" in text


def test_switched_off_it_is_eager_mode() -> None:
    net = Net().eval()
    with torch.backends.zendnn.flags(enabled=False):
        fast, _ = compiled(net)
        assert_as_eager(fast, net, IMAGE)
        assert routes(fast, IMAGE) <= {"torch"}


@pytest.mark.parametrize(
    ("named", "message"),
    [
        (
            {"mode": "fast"},
            "has no mode 'fast': call torch.compile without a mode, or with one of 'default', 'red",
        ),
        (
            {"options": {"fast": 1}},
            "has no option 'fast' here: use some of emulate_precision_casts, freeze, passes, "
            "precision, rest, tune",
        ),
        ({"options": {"freeze": 1}}, "the option 'freeze' is True or False, not 1"),
        ({"options": {"passes": {"fold": True}}}, "there is no pass named 'fold'"),
        ({"options": {"passes": {"fold_pad": 1}}}, "the pass 'fold_pad' is switched by"),
        ({"options": {"precision": "low"}}, "'precision' is one of 'highest', 'high', 'medium', n"),
        ({"options": {"tune": "no"}}, "'tune' is True, False or a number of seconds, not 'no'"),
        ({"options": {"tune": -1}}, "'tune' is True, False or a number of seconds, not -1"),
    ],
)
def test_wrong_options_are_refused(named: dict[str, Any], message: str) -> None:
    fast: Any = torch.compile(Net().eval(), backend="zendnn", **named)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=message), torch.no_grad():
        fast(IMAGE)


def test_a_pass_can_be_switched_off() -> None:
    net = Net().eval()
    options = {"passes": {"fold_batch_norm": False}}
    fast = torch.compile(net, backend="zendnn", options=options)
    with torch.no_grad(), torch.backends.zendnn.record() as events:
        fast(IMAGE)
    assert any("batch_norm" in event.implementation for event in events)
    assert torch.backends.zendnn.passes.is_enabled("fold_batch_norm")


@pytest.fixture
def torchs_precision() -> Iterator[None]:
    """Restores torch's setting after the test."""
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


of_products_of_bfloat16 = pytest.mark.skipif(
    not _C._multiplies_bfloat16(), reason="this CPU has no products of bfloat16"
)


@of_products_of_bfloat16
@pytest.mark.usefixtures("torchs_precision")
@pytest.mark.parametrize(
    ("of_torch", "options", "rounds"),
    [
        ("highest", {}, False),
        ("high", {}, False),
        ("medium", {}, True),
        ("highest", {"precision": "medium"}, True),
        ("medium", {"precision": "high"}, False),
        ("medium", {"precision": "highest"}, False),
        ("medium", {"passes": {"round_products": False}}, False),
    ],
)
def test_layers_multiply_in_bfloat16_where_the_precision_is_medium(
    of_torch: str, options: dict[str, Any], rounds: bool
) -> None:
    layer, x = nn.Linear(64, 48).eval(), values(32, 64)
    weight = layer.weight.detach()
    if rounds:
        expected = F.linear(x.bfloat16().double(), weight.bfloat16().double(), layer.bias.double())
    else:
        expected = F.linear(x.double(), weight.double(), layer.bias.double())
    torch.set_float32_matmul_precision(of_torch)
    fast = torch.compile(layer, backend="zendnn", options=options)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), expected.float(), rtol=1e-5, atol=1e-6)
    assert torch.get_float32_matmul_precision() == of_torch


@of_products_of_bfloat16
@pytest.mark.usefixtures("torchs_precision")
def test_the_precision_is_what_torch_was_set_to_at_the_compilation() -> None:
    layer, x = nn.Linear(64, 48).eval(), values(32, 64)
    torch.set_float32_matmul_precision("high")
    fast = torch.compile(layer, backend="zendnn")
    with torch.no_grad():
        before = fast(x)
        torch.set_float32_matmul_precision("medium")  # which Dynamo takes for the same
        layer.weight.mul_(1)  # plans are made anew
        assert torch.equal(fast(x), before)


@pytest.mark.parametrize(
    ("budget", "options", "times"),
    [
        ("0", {}, False),
        ("0", {"tune": True}, False),
        ("0", {"tune": 60}, True),
        ("60", {}, True),
        ("60", {"tune": True}, True),
        ("60", {"tune": False}, False),
        ("60", {"tune": 0.0}, False),
    ],
)
def test_plans_time_implementations_for_as_long_as_the_option_says(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    budget: str,
    options: dict[str, Any],
    times: bool,
) -> None:
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", budget)
    _C._forget_tuning()
    net = nn.Linear(96, 80).eval()
    fast = torch.compile(net, backend="zendnn", options=options)
    with torch.backends.zendnn.verbose(torch.backends.zendnn.VERBOSE_ON):
        assert_as_eager(fast, net, values(32, 96))
    assert ("zendnn_verbose,tune," in capfd.readouterr().out) == times


@pytest.mark.parametrize(
    ("mode", "tune"),
    [
        ("default", None),
        ("reduce-overhead", None),
        ("max-autotune", "tune 0.5"),
        ("max-autotune-no-cudagraphs", "tune 0.5"),
    ],
)
def test_modes_of_torch_are_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mode: str, tune: str | None
) -> None:
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "0.1")
    net = Net().eval()
    with caplog.at_level(logging.INFO, logger="torch.backends.zendnn"):
        fast = torch.compile(net, backend="zendnn", mode=mode)
        assert_as_eager(fast, net, IMAGE)
    assert routes(fast, IMAGE) == {"plan"}
    (plan,) = [graph.zendnn_0.plan for graph in front_end._graphs(fast)]
    stated = [line for line in plan.description().splitlines() if line.startswith("tune")]
    assert stated == ([] if tune is None else [tune])
    # torch passes no default on.
    records = [record for record in caplog.messages if record.startswith("mode=")]
    assert len(records) == (mode != "default")


def test_an_option_outweighs_a_mode() -> None:
    options = _compile.Options.of({"tune": 3}, "max-autotune")
    assert options.tune == 3
    assert _compile.Options.of({"tune": False}, "max-autotune").tune is False


def test_a_known_choice_serves_without_tuning() -> None:
    _C._forget_tuning()
    net, x = nn.Linear(96, 80).eval(), values(32, 96)

    def implementations(tune: float) -> list[str]:
        torch._dynamo.reset()
        fast = torch.compile(net, backend="zendnn", options={"tune": tune})
        assert_as_eager(fast, net, x)
        with torch.no_grad(), torch.backends.zendnn.record() as events:
            fast(x)
        return [event.implementation for event in events]

    assert implementations(60.0) == implementations(False)


def test_the_profiler_shows_regions_and_the_steps_inside() -> None:
    fast, _ = compiled(Net().eval())
    with torch.no_grad():
        fast(IMAGE)
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True
        ) as profile:
            fast(IMAGE)
        with torch.backends.zendnn.record() as events:
            fast(IMAGE)
    (region,) = (event for event in profile.events() if event.name == "zendnn::zendnn_0")
    assert region.input_shapes == [list(IMAGE.shape)]
    inside = [(child.name, child.input_shapes) for child in region.cpu_children]
    assert inside == [
        (f"zendnn::{event.implementation}", [list(sizes) for sizes in event.shapes])
        for event in events
    ]
    shapes = [event.shapes for event in events if event.operator != "reorder"]
    assert shapes == [
        ((2, 3, 8, 9), (16, 3, 3, 3), (16,)),
        ((2, 16, 6, 7),),
        ((2, 16), (10, 16), (10,)),
    ]
    assert {event.dtype for event in events} == {torch.float32}


def test_the_profiler_shows_no_sizes_of_steps_unless_they_are_wanted() -> None:
    fast, _ = compiled(Net().eval())
    with torch.no_grad():
        fast(IMAGE)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            fast(IMAGE)
    (region,) = (event for event in profile.events() if event.name == "zendnn::zendnn_0")
    assert region.cpu_children
    assert not any(child.input_shapes for child in region.cpu_children)


def test_it_runs_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval()
with torch.no_grad():
    x = torch.ones(2, 8)
    print(torch.allclose(torch.compile(net, backend="zendnn")(x), net(x), atol=1e-5))
"""
    assert run_python(code, PATH="/nowhere", CXX="/nowhere/c++").strip() == "True"
