"""What stays between plans is compiled in groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.backends.zendnn.frontends.fx import rest

from ..common import stock, values
from ..support.fx_calls import Called, functional

LARGE = values(512, 300)


pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def grouped(function: Callable[..., Any], *inputs: Tensor) -> tuple[fx.GraphModule, list[str]]:
    """Compile a function's groups; return its graph and what each group computes."""
    module = functional(Called(function), inputs)
    groups: list[str] = []

    def compile(group: fx.GraphModule) -> fx.GraphModule:
        targets = [str(node.target) for node in group.graph.nodes if node.op == "call_function"]
        groups.append(" ".join(name.split(".")[1] for name in targets if name.startswith("aten.")))
        return group

    rest.compile_groups(module, compile)
    for ours, theirs in zip(module(*inputs), function(*inputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
        assert ours.stride() == theirs.stride()
    return module, groups


def test_neighbours_on_large_tensors_form_a_group() -> None:
    _, groups = grouped(lambda x: ((x.sin() * 2).floor(),), LARGE)
    assert groups == ["sin mul floor"]


def test_many_small_operators_form_a_group() -> None:
    def function(x: Tensor) -> tuple[Tensor]:
        for _ in range(rest.MANY):
            x = x + 1
        return (x,)

    _, groups = grouped(function, torch.arange(3))
    assert groups == [" ".join(["add"] * rest.MANY)]


@pytest.mark.parametrize("function", [lambda x: (x.sin(),), lambda x: (x[:2, :3].sin().cos(),)])
def test_what_gains_little_stays(function: Callable[[Tensor], tuple[Tensor]]) -> None:
    _, groups = grouped(function, LARGE)
    assert groups == []


@pytest.mark.parametrize("index", [torch.tensor([3, 1, 1]), torch.tensor([True, False] * 256)])
def test_an_index_divides_where_it_decides_about_sizes(index: Tensor) -> None:
    _, groups = grouped(lambda x, index: (x.sin().floor()[index].cos().ceil(),), LARGE, index)
    whole = index.dtype == torch.int64
    assert groups == (["sin floor index cos ceil"] if whole else ["sin floor"])


@pytest.mark.parametrize(
    "look_up", [lambda x, index: x.take(index), lambda x, index: x.index_add(0, index, x[:3])]
)
def test_a_lookup_that_nobody_checks_divides(look_up: Callable[[Tensor, Tensor], Tensor]) -> None:
    def function(x: Tensor, index: Tensor) -> tuple[Tensor]:
        return (look_up(x.sin().floor(), index).cos().ceil(),)

    _, groups = grouped(function, LARGE, torch.tensor([3, 1, 1]))
    assert groups[0].startswith("sin floor")
    assert not {"take", "index_add"} & set(" ".join(groups).split())


def test_a_write_divides() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        first = y.sin().floor()
        x.mul_(2)
        return first, x.cos().ceil()

    inputs = LARGE.clone(), LARGE + 1
    module = functional(Called(function), inputs)
    groups: list[fx.GraphModule] = []

    def compile(group: fx.GraphModule) -> fx.GraphModule:
        groups.append(group)
        return group

    rest.compile_groups(module, compile)
    assert groups
    x = LARGE.clone()
    first, second = module(x, LARGE + 1)
    assert torch.equal(x, LARGE * 2)
    assert torch.equal(first, (LARGE + 1).sin().floor())
    assert torch.equal(second, x.cos().ceil())


def test_random_numbers_are_drawn_as_in_eager_mode() -> None:
    def function(x: Tensor) -> tuple[Tensor]:
        torch.manual_seed(0)
        return ((x.sin() + torch.rand_like(x)).floor().cos(),)

    fast = torch.compile(function, backend="zendnn", options={"rest": "inductor"})
    torch.testing.assert_close(fast(LARGE), function(LARGE))


def test_views_of_what_a_group_is_given_keep_its_memory() -> None:
    module, groups = grouped(lambda x: (x.t(), x.t().sin().floor(), x[:4]), LARGE)
    assert groups == ["sin floor"]
    view, _, part = module(LARGE)
    assert view.data_ptr() == part.data_ptr() == LARGE.data_ptr()


def test_results_of_a_group_can_be_several() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        most, places = (x.sin() + 1).max(1)
        return most, places, x.cos().floor()

    _, groups = grouped(function, LARGE)
    assert groups == ["sin add max cos floor"]


class Between(nn.Module):
    """Layers around operators that the engine lacks."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 300), nn.Linear(300, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.special.i0(self.first(x).sin()) - 1
        return self.last(y.erfinv().clamp(-1, 1).nan_to_num())


@pytest.mark.parametrize("dynamic", [False, True])
def test_inductor_compiles_what_is_between_plans(dynamic: bool) -> None:
    model = Between().eval()
    fast = torch.compile(model, backend="zendnn", dynamic=dynamic, options={"rest": "inductor"})
    for rows in (64, 65, 130):
        x = values(8 * rows, 64)
        for _ in range(rest.RECURRING):
            with torch.no_grad():
                with torch.backends.zendnn.record() as events:
                    got = fast(x)
                with stock():
                    torch.testing.assert_close(got, model(x), rtol=1e-4, atol=1e-4)
            assert [event.route for event in events].count("plan") >= 2
    with torch.no_grad():
        model.first.weight.mul_(0.5)
        got = fast(x)
        with stock():
            torch.testing.assert_close(got, model(x), rtol=1e-4, atol=1e-4)


def test_what_inductor_cannot_compile_stays_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **named: Any) -> None:
        raise NotImplementedError("no such operator")

    from torch._inductor import compile_fx

    monkeypatch.setattr(compile_fx, "compile_fx", fail)
    model, x = Between().eval(), values(512, 64)
    fast = torch.compile(model, backend="zendnn", options={"rest": "inductor"})
    for _ in range(rest.RECURRING):
        with torch.no_grad():
            got = fast(x)
            with stock():
                torch.testing.assert_close(got, model(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dynamic", [False, True])
def test_inductor_compiles_a_group_once_it_recurs(dynamic: bool) -> None:
    """A prompt's graph may run once, and its first answer would wait for a C++ compiler."""
    from torch._inductor import metrics

    model = Between().eval()
    fast = torch.compile(model, backend="zendnn", dynamic=dynamic, options={"rest": "inductor"})
    compiled = []
    for _ in range(rest.RECURRING + 1):
        with torch.no_grad():
            fast(values(512, 64))
        compiled.append(metrics.generated_kernel_count)
    *early, late, later = (number - compiled[0] for number in compiled)
    assert set(early) == {0}
    assert late == later > 0


def test_without_a_compiler_the_rest_is_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **named: Any) -> None:
        raise AssertionError("Inductor was called")

    from torch._inductor import compile_fx
    from torch.backends.zendnn import _compile

    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(compile_fx, "compile_fx", fail)
    _compile._has_compiler.cache_clear()
    model = Between().eval()
    try:
        fast = torch.compile(model, backend="zendnn")
        x = values(64, 64)
        with torch.no_grad():
            got = fast(x)
            with stock():
                torch.testing.assert_close(got, model(x), rtol=1e-4, atol=1e-4)
        fast(x).sum().backward()
        assert model.first.weight.grad is not None
    finally:
        _compile._has_compiler.cache_clear()


@pytest.mark.parametrize("choice", ["eager", "inductor"])
def test_training_follows_stock_torch(choice: str) -> None:
    losses = []
    for backend, options in (("zendnn", {"rest": choice}), ("eager", None)):
        torch.manual_seed(0)
        torch._dynamo.reset()
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)
        )
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        fast = torch.compile(model, backend=backend, options=options)
        found = []
        for step in range(200):
            x = values(16, 3, 8, 8, seed=step % 8)
            target = torch.arange(16) % 10
            loss = F.cross_entropy(fast(x), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(float(loss.detach()))
        losses.append(found)
    ours, theirs = map(torch.tensor, losses)
    assert theirs[-1] < theirs[0] / 4
    torch.testing.assert_close(ours[:20], theirs[:20], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(ours[-20:].mean(), theirs[-20:].mean(), rtol=0.1, atol=0.01)
