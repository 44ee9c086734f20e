"""``torch.backends.zendnn.export``: programs that are saved and compiled with their plans."""

from __future__ import annotations

import gc
import io
import re
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.backends.zendnn import _C, explain, export
from torch.export import Dim, ExportedProgram

from .common import nightly_but, of_bfloat16, run_python, stock, values
from .support.compiled import routes
from .support.descriptions import Case, samples, single_nodes

pytestmark = pytest.mark.filterwarnings("error:ZenDNN", "ignore:.*LeafSpec:FutureWarning")

BATCH: Mapping[int, Any] = {0: Dim.DYNAMIC}
REGION = torch.ops.zendnn.run_region.default


class Cnn(nn.Module):
    """Convolutions with batch norms, a residual and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 16, 3, padding=1)
        self.last = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.first(x)))
        x = F.relu(self.second(x) + x)
        out: Tensor = self.last(x.mean((2, 3)))
        return out


class Mlp(nn.Sequential):
    """Linear layers."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8), nn.LayerNorm(8))


class Attention(nn.Module):
    """An embedding and a block of attention."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(20, 32)
        self.projection = nn.Linear(32, 96)
        self.out = nn.Linear(32, 32)
        self.norm = nn.LayerNorm(32)

    def forward(self, input: Tensor) -> Tensor:
        x = self.table(input)
        batch, length, size = x.shape
        heads = self.projection(x).view(batch, length, 3, 4, size // 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        out: Tensor = self.norm(x + self.out(y.transpose(1, 2).reshape(batch, length, size)))
        return out


def ids(*shape: int) -> Tensor:
    return torch.arange(shape[0] * shape[1]).reshape(shape) * 7 % 20


#: A model, its dynamic sizes, and how to make inputs of some batch size.
MODELS: dict[str, tuple[Callable[[], nn.Module], Any, Callable[[int], Tensor]]] = {
    "cnn": (Cnn, {"x": BATCH}, lambda batch: values(batch, 3, 8, 8)),
    "mlp": (Mlp, {"input": BATCH}, lambda batch: values(batch, 16)),
    "attention": (Attention, {"input": {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}}, lambda n: ids(n, n + 3)),
}
TOLERANCE = {torch.float32: (1e-4, 1e-5), torch.bfloat16: (2e-2, 4e-2)}


def prepared(name: str, dtype: torch.dtype) -> tuple[nn.Module, ExportedProgram]:
    """The model, and its program of some batch size."""
    make, shapes, inputs = MODELS[name]
    net = make().eval().to(dtype)
    return net, export(net, (cast(inputs(4), dtype),), dynamic_shapes=shapes)


def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype) if x.is_floating_point() else x


def through_a_file(program: ExportedProgram) -> ExportedProgram:
    stream = io.BytesIO()
    torch.export.save(program, stream)
    stream.seek(0)
    return torch.export.load(stream)


def assert_same(fast: Callable[..., Any], net: nn.Module, *inputs: Tensor) -> None:
    with torch.no_grad():
        got = fast(*inputs)
        with stock():
            want = net(*inputs)
    rtol, atol = TOLERANCE[want.dtype]
    torch.testing.assert_close(got, want, rtol=rtol, atol=atol)
    assert got.stride() == want.stride()


def regions(program: ExportedProgram) -> list[Any]:
    return [node for node in program.graph.nodes if node.target == REGION]


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=of_bfloat16)])
@pytest.mark.parametrize("name", MODELS)
def test_saved_programs_run_as_one_plan(name: str, dtype: torch.dtype) -> None:
    net, program = prepared(name, dtype)
    loaded = through_a_file(program)
    assert len(regions(loaded)) == 1
    fast = loaded.module()
    for batch in (4, 2, 7):
        x = cast(MODELS[name][2](batch), dtype)
        assert_same(fast, net, x)
        assert routes(fast, x) == {"plan"}


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=of_bfloat16)])
@pytest.mark.parametrize("name", nightly_but(("mlp",), MODELS))
def test_packages_of_aotinductor_run_plans(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    net, program = prepared(name, dtype)
    path = str(tmp_path / "package.pt2")
    fast = torch._inductor.aoti_load_package(
        torch._inductor.aoti_compile_and_package(program, package_path=path)
    )
    for batch in (4, 2, 7):
        x = cast(MODELS[name][2](batch), dtype)
        assert_same(fast, net, x)
        assert routes(fast, x) == {"plan"}


def test_a_fresh_process_needs_torch_only(tmp_path: Path) -> None:
    net, program = prepared("mlp", torch.float32)
    path = tmp_path / "model.pt2"
    torch.export.save(program, path)
    code = f"""
import torch
fast = torch.export.load({str(path)!r}).module()
with torch.no_grad(), torch.backends.zendnn.record() as events:
    print(fast(torch.ones(5, 16)).sum().item())
print({{event.route for event in events}})
"""
    total, found = run_python(code).splitlines()[-2:]
    with torch.no_grad(), stock():
        assert float(total) == pytest.approx(net(torch.ones(5, 16)).sum().item(), abs=1e-4)
    assert found == "{'plan'}"


def test_several_threads_run_one_program() -> None:
    net, program = prepared("cnn", torch.float32)
    fast = program.module()
    failures: list[Exception] = []

    def work(number: int) -> None:
        try:
            for batch in (2 + number % 3, 3, 2):
                assert_same(fast, net, values(batch, 3, 8, 8, seed=number))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_what_a_plan_does_not_take_runs_in_torch() -> None:
    net, program = prepared("mlp", torch.float32)
    fast = program.module(check_guards=False)
    x = values(4, 16)
    with torch.no_grad():
        want = net(x)
        with stock():
            torch.testing.assert_close(fast(x), want, rtol=1e-4, atol=1e-5)
        assert fast(values(0, 16)).shape == (0, 8)
        fixed = export(net, (x,)).module(check_guards=False)
        batched = torch.vmap(fixed)(torch.stack([x, x + 1]))
        torch.testing.assert_close(batched[0], want, rtol=1e-4, atol=1e-5)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    for argument, model in zip(inputs, (fast, net), strict=True):
        model(argument).square().sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad, rtol=1e-4, atol=1e-5)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(fast(x), net(x), rtol=2e-2, atol=4e-2)


def test_a_constant_that_changes_makes_another_plan() -> None:
    net, program = prepared("mlp", torch.float32)
    fast = program.module()
    assert_same(fast, net, values(4, 16))
    for model in (fast, net):
        with torch.no_grad():
            dict(model.named_parameters())["2.weight"].mul_(2)
    assert_same(fast, net, values(4, 16))


def test_a_constant_elsewhere_in_its_memory_makes_another_plan() -> None:
    """At another offset, and with other strides at the same one."""
    net = nn.Sequential(nn.Linear(16, 16), nn.ReLU()).eval()
    fast = export(net, (values(4, 16),)).module()
    weights = [dict(model.named_parameters())["0.weight"] for model in (fast, net)]
    flat = values(2, 16, 16, seed=5)
    for data in (flat[0], flat[1], flat[1].t()):
        for weight in weights:
            weight.data = data
        assert_same(fast, net, values(4, 16))


def test_writes_that_leave_versions_alone_make_another_plan() -> None:
    net, x = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 8)).eval(), values(4, 16)
    fast = export(net, (x,)).module()
    assert_same(fast, net, x)
    for model in (fast, net):
        weight = nn.Parameter(dict(model.named_parameters())["2.weight"].detach())
        weight.grad = torch.ones_like(weight)
        torch.optim.SGD([weight], 0.5, fused=True).step()
    assert_same(fast, net, x)


def test_weights_are_freed_after_their_program() -> None:
    _, program = prepared("mlp", torch.float32)
    fast = program.module()
    with torch.no_grad():
        fast(values(4, 16))
    storage = weakref.ref(dict(fast.named_parameters())["2.weight"])
    del fast, program
    gc.collect()
    assert storage() is None


class Counting(nn.Module):
    """Writes to a buffer, has a tied weight, and returns an input's size and a view."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, x: dict[str, Tensor]) -> dict[str, Any]:
        y = self.second(F.relu(self.first(x["a"])))
        self.seen.add_(y.sum(0))
        return {"y": F.softmax(y * self.seen, -1), "view": y[:, 1:3], "rows": x["a"].shape[0] * 2}


def test_buffers_containers_and_sizes_are_those_of_the_model() -> None:
    net = Counting().eval()
    program = export(net, ({"a": values(4, 6)},), dynamic_shapes=({"a": BATCH},))
    fast = through_a_file(program).module()
    for batch in (4, 3, 5):
        inputs = {"a": values(batch, 6, seed=batch)}
        with torch.no_grad():
            got = fast(inputs)
            with stock():
                want = net(inputs)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(dict(fast.named_buffers())["seen"], net.seen, rtol=1e-4, atol=1e-5)


class Folded(nn.Module):
    """Returns what depends on constants alone, and a layer's result."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.arange(8.0).view(2, 4).t().reshape(-1), self.layer(x)


def test_results_that_are_folded_are_constants_of_the_program() -> None:
    net = Folded().eval()
    program = export(net, (values(6, 4),))
    assert program.state_dict.keys() == net.state_dict().keys()
    fast = through_a_file(program).module()
    x = values(6, 4)
    for _ in range(3):
        with torch.no_grad():
            got = fast(x)
            with stock():
                torch.testing.assert_close(got, net(x))
        got[0].fill_(7)


class Selecting(nn.Module):
    """Computes with as many rows as are positive."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x[x[:, 0] > 0])
        return out


def test_sizes_that_depend_on_data_leave_operators_as_they_are() -> None:
    net = Selecting().eval()
    program = export(net, (values(6, 4),))
    assert not regions(program)
    assert_same(through_a_file(program).module(), net, values(6, 4))


class Even(nn.Module):
    """Computes something else for an odd number of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y.relu() if x.shape[0] % 2 == 0 else y


def test_what_a_loaded_program_asks_of_sizes_is_kept() -> None:
    net = Even().eval()
    program = torch.export.export(net, (values(6, 4),), dynamic_shapes=({0: Dim.AUTO},))
    fast = through_a_file(export(through_a_file(program))).module()
    assert_same(fast, net, values(8, 4))
    with pytest.raises(AssertionError, match="% 2 == 0"):
        fast(values(5, 4))


def test_wrong_uses_are_refused() -> None:
    with pytest.raises(ValueError, match="training mode"):
        export(Mlp(), (values(4, 16),))
    with pytest.raises(TypeError, match="an object of type int"):
        export(3)


#: Each operator of the table, without those that write.
CASES = {
    name: case
    for name, case in {**samples(), **single_nodes()}.items()
    if " = write(" not in case.text
}


@pytest.mark.parametrize("name", CASES)
def test_the_interpreter_computes_what_plans_do(name: str) -> None:
    case: Case = CASES[name]
    plan = torch.classes.zendnn.Plan(case.text, list(case.constants), name)
    inputs = list(case.tensors), list(case.numbers)
    assert plan.takes(*inputs)
    want = plan.run(*inputs)
    got = plan.interpret(*inputs)
    for one, other in zip(got, want, strict=True):
        assert one.dtype == other.dtype
        rounded = any(x.dtype == torch.bfloat16 for x in (*case.constants, *case.tensors, one))
        rtol, atol = TOLERANCE[torch.bfloat16 if rounded else torch.float32]
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol, equal_nan=True)


@pytest.mark.skipif(not _C._multiplies_bfloat16(), reason="this CPU has no products of bfloat16")
def test_programs_take_options_and_keep_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "0")
    net, x = nn.Linear(16, 8).eval(), values(4, 16)
    program = export(net, (x,), options={"precision": "medium", "tune": 1})
    (region,) = regions(through_a_file(program))
    assert "tune 1.0" in str(region.args[4]).splitlines()
    exact = F.linear(x.bfloat16().float(), net.weight.bfloat16().float(), net.bias)
    with torch.no_grad():
        fast = through_a_file(program).module()
        torch.testing.assert_close(fast(x), exact, rtol=1e-5, atol=1e-6)
        with stock():  # in torch's own operators
            torch.testing.assert_close(fast(x), exact, rtol=1e-2, atol=1e-2)


class Mixed(nn.Module):
    """Two regions, with operators between them that the engine lacks."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.first(x))
        out: Tensor = self.last(y.cumprod(0) + y)
        return out


def test_a_program_is_explained_before_and_after_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "0")
    program = export(Mixed().eval(), (values(4, 16),))
    for known in (program, through_a_file(program)):
        (method,) = explain(known).methods
        assert [region.name for region in method.regions] == ["zendnn_0", "zendnn_1"]
        assert [region.built for region in method.regions] == [(), ()]
        assert method.left_out is not None
        (left,) = method.left_out
        assert (left.op, left.reason) == ("aten::cumprod", "the engine has no such operator")
        (line,) = left.lines
        assert line.endswith("self.last(y.cumprod(0) + y)")
        assert [call.plan for call in method.calls] == [0, None, 1]
        assert method.calls[1].operators == ("aten::cumprod",)
        assert set(method.calls[2].reads) == {(0, 0), (1, 0)}
        fast = known.module()
        with torch.no_grad():
            fast(values(4, 16))
        explained = explain(known)
        assert [len(region.built) for region in explained.methods[0].regions] == [1, 1]
        assert str(explain(fast)) == str(explained)


def test_operators_of_regions_that_cannot_be_stated_are_left_out() -> None:
    class Chosen(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x[x > 0].unsqueeze(0) @ x[x > 0].unsqueeze(1)).softmax(-1).sum()

    program = export(Chosen().eval(), (values(4, 16),))
    (method,) = explain(program).methods
    assert not regions(program)
    assert method.regions == ()
    reasons = {item.op: item.reason for item in method.left_out or ()}
    for op in ("aten::matmul", "aten::softmax", "aten::sum"):
        assert re.fullmatch(r"the size \w+ depends on data", reasons[op])


def test_a_program_without_regions_of_ours_has_no_plan() -> None:
    program = torch.export.export(Mixed().eval(), (values(4, 16),))
    assert explain(program).methods == ()
    assert "torch.backends.zendnn.export puts them into a program" in str(explain(program))
