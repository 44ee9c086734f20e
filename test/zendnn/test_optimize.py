"""``torch.backends.zendnn.optimize``: exported programs and modules on plans."""

from __future__ import annotations

import copy
import io
import logging
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.backends.zendnn import explain, optimize

from .common import stock, values
from .support.compiled import IMAGE, Net, routes

pytestmark = [
    pytest.mark.filterwarnings(
        "error:ZenDNN", "ignore:.*LeafSpec:FutureWarning", "ignore::torch.jit.TracerWarning"
    ),
    pytest.mark.usefixtures("fresh_dynamo"),
]


def assert_same(fast: Any, model: Any, *inputs: Any, **named: Any) -> None:
    with torch.no_grad():
        got = fast(*copy.deepcopy(inputs), **named)
        with stock():
            want = model(*copy.deepcopy(inputs), **named)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("exported", [False, True])
def test_a_model_runs_as_one_plan(exported: bool) -> None:
    net = Net().eval()
    program = torch.export.export(net, (IMAGE,)) if exported else None
    fast = optimize(program) if program else optimize(net, (IMAGE,))
    assert_same(fast, net, IMAGE)
    assert routes(fast, IMAGE) == {"plan"}


def test_sizes_may_change_where_they_are_said_to() -> None:
    net = Net().eval()
    shapes = {"x": {0: torch.export.Dim.DYNAMIC, 2: torch.export.Dim.DYNAMIC}}
    fast = optimize(net, (IMAGE,), dynamic_shapes=shapes)
    for batch, height in ((2, 8), (5, 17), (3, 9)):
        assert_same(fast, net, values(batch, 3, height, 9))
    assert routes(fast, values(7, 3, 11, 9)) == {"plan"}
    with pytest.raises(ValueError, match=r"x is torch.float32 \(2, 3, 8, 8\); the program takes"):
        fast(values(2, 3, 8, 8))


class Choosing(nn.Module):
    """Does something else with few rows, or where it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor, scale: float, loud: bool = False, name: str = "a") -> Tensor:
        y: Tensor = self.layer(x) * scale
        y = y.relu() if x.shape[0] >= 4 else y
        return y + 1 if loud or name == "b" else y


def test_sizes_and_values_that_choose_something_else_are_refused() -> None:
    net, x = Choosing().eval(), values(6, 8)
    shapes = {"x": {0: torch.export.Dim.DYNAMIC}, "scale": None, "loud": None, "name": None}
    fast = optimize(net, (x, 0.5, True, "a"), dynamic_shapes=shapes)
    for model in (fast, pickle.loads(pickle.dumps(fast))):
        assert_same(model, net, values(4, 8), 0.5, True, "a")
        for arguments, message in (
            (
                (x[:2], 0.5, True, "a"),
                r"^x is \(2, 8\); the program takes .* from 4 to inf: export",
            ),
            ((x, 0.25, True, "a"), "^scale is 0.25; the program was exported for 0.5: export the"),
            ((x, 0.5, False, "a"), "^loud is False; the program was exported for True: export the"),
            ((x, 0.5, True, "b"), "^name is 'b'; the program was exported for 'a': export the"),
        ):
            with pytest.raises(ValueError, match=message):
                model(*arguments)


def test_sizes_out_of_their_range_are_refused() -> None:
    rows = torch.export.Dim("rows", max=8)
    net = nn.Linear(8, 8).eval()
    fast = optimize(net, (values(6, 8),), dynamic_shapes=({0: 2 * rows},))
    assert_same(fast, net, values(16, 8))
    with pytest.raises(ValueError, match=r"from .* to 16: export"):
        fast(values(18, 8))


class Asking(nn.Module):
    """Chooses by what divides a size, and by how sizes of several inputs compare."""

    def forward(self, x: Tensor, more: dict[str, list[Tensor]], *others: Tensor) -> Tensor:
        y = more["y"][0]
        x = x * 2 if x.shape[0] % 2 == 0 else x
        x = x - 1 if y.shape[0] > 3 * x.shape[0] else x
        x = x + 1 if others[0].shape[0] * x.shape[0] < 1000 else x
        return x + y.sum() + others[0].sum()


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("saved", [False, True])
def test_sizes_of_which_the_model_asked_something_else_are_refused(
    strict: bool, saved: bool, tmp_path: Path
) -> None:
    net, auto = Asking().eval(), torch.export.Dim.AUTO
    args = values(4, 3), {"y": [values(20)]}, values(6)
    shapes = {"x": {0: auto}, "more": {"y": [{0: auto}]}, "others": ({0: auto},)}
    program = torch.export.export(net, args, dynamic_shapes=shapes, strict=strict)
    if saved:
        torch.export.save(program, tmp_path / "program.pt2")
        program = torch.export.load(tmp_path / "program.pt2")
    fast = optimize(program)
    for model in (fast, pickle.loads(pickle.dumps(fast))):
        assert_same(model, net, values(6, 3), {"y": [values(19)]}, values(5))
        for x, y, z in ((5, 20, 6), (6, 18, 6), (6, 20, 200)):
            with pytest.raises(ValueError, match="the program was exported for inputs with"):
                model(values(x, 3), {"y": [values(y)]}, values(z))


def test_other_inputs_are_refused() -> None:
    fast = optimize(Net().eval(), (IMAGE,))
    message = r"^x is torch.float32 \(3, 3, 8, 9\); the program takes torch.float32 \(2, 3, 8, 9\):"
    with pytest.raises(ValueError, match=message):
        fast(values(3, 3, 8, 9))
    with pytest.raises(ValueError, match=r"^x is torch.bfloat16 \(2, 3, 8, 9\)"):
        fast(IMAGE.bfloat16())


class Named(nn.Module):
    """Takes and returns containers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(6, 6)

    def forward(self, x: dict[str, Tensor], *, scale: Tensor) -> dict[str, Any]:
        y = self.layer(x["a"]) * scale
        return {"sum": (y + x["b"], y), "soft": F.softmax(y, -1)}


def test_containers_and_names_are_those_of_the_model() -> None:
    net = Named().eval()
    inputs, scale = {"a": values(4, 6), "b": values(4, 6, seed=1)}, values(6)
    fast = optimize(net, (inputs,), {"scale": scale})
    assert_same(fast, net, inputs, scale=scale)


class Counter(nn.Module):
    """Writes to a buffer."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(6, 6)
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        self.seen.add_(y.sum(0))
        return F.softmax(y * self.seen, -1)


def test_buffers_are_written() -> None:
    net = Counter().eval()
    fast = optimize(net, (values(4, 6),))
    other = copy.deepcopy(net)
    for seed in range(3):
        assert_same(fast, other, values(4, 6, seed=seed))
    torch.testing.assert_close(dict(fast.named_buffers())["seen"], other.seen)


@pytest.mark.parametrize("how", ["copied", "saved"])
def test_it_is_copied_and_saved_with_its_plans(how: str) -> None:
    net = Net().eval()
    fast = optimize(net, (IMAGE,))
    if how == "copied":
        again = copy.deepcopy(fast)
    else:
        stream = io.BytesIO()
        torch.save(fast, stream)
        stream.seek(0)
        again = torch.load(stream, weights_only=False)
    assert_same(again, net, IMAGE)
    assert routes(again, IMAGE) == {"plan"}
    with pytest.raises(ValueError, match="the program takes"):
        again(values(3, 3, 8, 9))
    assert "1 region" in str(explain(again))


class Branching(nn.Module):
    """Decides by a number in a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) if float(x.sum()) > 0 else x


def test_what_cannot_be_exported_is_traced_and_a_warning_says_so() -> None:
    net, x = Branching().eval(), torch.ones(2, 4)
    with pytest.warns(UserWarning, match="torch.export cannot capture the model, and it is traced"):
        fast = optimize(net, (x,))
    assert isinstance(fast, torch.jit.ScriptModule)
    assert_same(fast, net, x)


def test_torchs_graph_of_what_cannot_be_exported_is_shown_on_request(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    net, x, shown = Branching().eval(), torch.ones(2, 4), "torch.ops.aten.sum.default"
    with pytest.warns(UserWarning, match="torch.export cannot capture"):
        optimize(net, (x,))
    assert shown not in "".join((*capfd.readouterr(), *caplog.messages))
    with (
        caplog.at_level(logging.DEBUG, logger="torch.backends.zendnn"),
        pytest.warns(UserWarning, match="torch.export cannot capture"),
    ):
        optimize(net, (x,))
    assert shown in "".join(caplog.messages)
    assert shown not in "".join(capfd.readouterr())
    with pytest.raises(Exception, match="data-dependent"):  # torch's own way is as ever
        torch.export.export(net, (x,))
    assert shown in capfd.readouterr().err


class WritingDiagonals(Net):
    """Fills the diagonal of a view, for which torch itself takes as_strided."""

    def forward(self, x: Tensor) -> Tensor:
        mask, tall = torch.ones(2, 3, 3), torch.ones(7, 3)
        mask[0].fill_diagonal_(0.5)
        tall.fill_diagonal_(2, wrap=True)
        return super().forward(x) * mask.sum() + tall.sum()


class WritingStridedViews(Net):
    """Writes to a view by as_strided of another view, which torch cannot make functional."""

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.ones(2, 3, 3)
        mask[0].as_strided((3,), (4,)).fill_(0)
        return super().forward(x) * mask.sum()


def test_the_diagonal_of_a_view_is_filled_in_plans() -> None:
    net = WritingDiagonals().eval()
    with torch.no_grad():
        program = torch.export.export(net, (IMAGE,))
    for fast in (optimize(program), optimize(net, (IMAGE,)), torch.compile(net, backend="zendnn")):
        assert_same(fast, net, IMAGE)
        assert explain(fast).methods


class WritingTiedBuffers(nn.Module):
    """Writes to a buffer of which another one is a view, which torch cannot make functional."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("state", torch.zeros(4, 8))
        self.register_buffer("turned", self.state.t())

    def forward(self, x: Tensor) -> Any:
        self.state.add_(self.layer(x))
        return self.layer(self.turned.t())


def test_a_program_with_tied_buffers_runs_as_it_is() -> None:
    net = WritingTiedBuffers().eval()
    with torch.no_grad():
        program = torch.export.export(copy.deepcopy(net), (values(4, 8),))
    with pytest.warns(UserWarning, match="torch cannot make the program functional, and it runs"):
        fast = optimize(program)
    for seed in range(3):
        assert_same(fast, net, values(4, 8, seed=seed))


class BranchingOnViews(nn.Module):
    """Gives a branch two tensors with the same memory."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Any:
        y = self.layer(x)
        return torch.cond(
            x.sum() > 0,
            lambda y, turned: (y.clone(), turned.sin()),
            lambda y, turned: (self.layer(y), turned * 2),
            (y, y.t()),
        )


def test_a_module_whose_program_cannot_be_functional_is_not_traced() -> None:
    net, x = BranchingOnViews().eval(), values(3, 8)
    with torch.no_grad():
        expected = [net(x), net(-x)]
    with pytest.warns(UserWarning, match="torch cannot make the program functional") as warned:
        fast = optimize(net, (x,))
    assert [Path(w.filename).name for w in warned if "functional" in str(w.message)] == [
        Path(__file__).name
    ]
    for argument, result in zip((x, -x), expected, strict=True):
        torch.testing.assert_close(fast(argument), result)


def test_a_program_that_cannot_be_functional_runs_as_it_is_and_a_warning_says_so() -> None:
    net = WritingStridedViews().eval()
    with torch.no_grad():
        program = torch.export.export(net, (IMAGE,))
    with pytest.warns(UserWarning, match="torch cannot make the program functional, and it runs"):
        fast = optimize(program)
    for model in (fast, pickle.loads(pickle.dumps(fast))):
        assert_same(model, net, IMAGE)
        assert explain(model).methods == ()
        with pytest.raises(ValueError, match="the program takes"):
            model(values(3, 3, 8, 9))
    with pytest.warns(UserWarning, match=r"functional, and it runs .*; torch says: \w+ \w+"):
        fast = optimize(net, (IMAGE,))
    assert_same(fast, net, IMAGE)


def test_an_error_of_constants_is_raised_when_the_program_runs() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.ones(2, 4, dtype=torch.bfloat16))
            self.register_buffer("weight", torch.ones(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.linear(x, self.weight) + F.linear(self.table, self.weight)

    x = torch.randn(2, 4)
    program = torch.export.export(Net(), (x,))
    ours = torch.backends.zendnn.optimize(program)
    with pytest.raises(RuntimeError, match="same dtype"):
        program.module()(x)
    with pytest.raises(RuntimeError, match="same dtype"):
        ours(x)


def test_wrong_uses_are_refused() -> None:
    with pytest.raises(ValueError, match="training mode"):
        optimize(Net(), (IMAGE,))
    with pytest.raises(TypeError, match="an object of type int"):
        optimize(3)
    with pytest.raises(ValueError, match="inputs and dynamic sizes of its own"):
        optimize(torch.export.export(Net().eval(), (IMAGE,)), (IMAGE,))


def test_a_compiled_model_is_explained_by_its_graphs() -> None:
    net, other = Net().eval(), Net().eval()
    fast = torch.compile(net, backend="zendnn")
    assert explain(fast).methods == ()
    with torch.no_grad():
        fast(IMAGE)
        torch.compile(other, backend="zendnn")(IMAGE)
    (method,) = explain(fast).methods
    (region,) = method.regions
    assert "convolution" in [operator.name for operator in region.operators]


@torch.compiler.disable
def outside(x: Tensor) -> Tensor:
    """What Dynamo breaks a graph at."""
    return x


def broken(x: Tensor) -> Tensor:
    """A graph before the break, and one after it."""
    return outside(x.softmax(-1) @ x).relu() @ x


def calls_broken(x: Tensor) -> Tensor:
    """A graph before the call, those of the call, and one after it."""
    return broken(x @ x) @ x


def operators_of(compiled: Any) -> list[list[str]]:
    """The operators of each graph of a compiled function, in the order of the graphs."""
    return [
        [operator.name for region in method.regions for operator in region.operators]
        for method in explain(compiled).methods
    ]


def test_a_compiled_function_is_explained_by_its_graphs() -> None:
    x = values(4, 4)
    # Options of their own make backends of their own.
    compiled = [
        torch.compile(function, backend="zendnn", options={"tune": False, "rest": rest})
        for function, rest in ((broken, "eager"), (calls_broken, "inductor"))
    ]
    assert [operators_of(fast) for fast in compiled] == [[], []]
    with torch.no_grad():
        for fast in compiled:
            fast(x)
    own = [["softmax", "matmul"], ["eltwise", "matmul"]]
    assert [operators_of(fast) for fast in compiled] == [own, [["matmul"], *own, ["matmul"]]]
    again = torch.compile(broken, backend="zendnn", options={"tune": False, "rest": "eager"})
    assert operators_of(again) == own, "Dynamo keeps one cache for both"
    assert explain(compiled[0], format="json").json() == str(explain(compiled[0], format="json"))


def test_a_compiled_method_is_explained() -> None:
    net = Net().eval()
    fast = torch.compile(net.forward, backend="zendnn")
    with torch.no_grad():
        fast(IMAGE)
    (method,) = explain(fast).methods
    assert "convolution" in [operator.name for operator in method.regions[0].operators]


class Sorted(nn.Module):
    """Sorts between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(self.first(x).sort(1).values)
        return y


@pytest.mark.parametrize("exported", [False, True])
def test_what_was_left_out_is_explained_with_its_lines(exported: bool) -> None:
    net, x = Sorted().eval(), values(4, 6)
    fast: Any = optimize(net, (x,)) if exported else torch.compile(net, backend="zendnn")
    with torch.no_grad():
        fast(x)
    for model in (fast, pickle.loads(pickle.dumps(fast))) if exported else (fast,):
        (method,) = explain(model).methods
        assert len(method.regions) == 2
        assert method.left_out is not None
        (item,) = method.left_out
        assert (item.op, item.reason) == ("aten::sort", "the engine has no such operator")
        (line,) = item.lines
        assert re.match(r".*test_optimize.py:\d+: y: Tensor = self.second\(self.first\(x\)", line)
        assert "  the engine has no such operator  test_optimize.py:" in str(explain(model))


def test_graph_breaks_are_explained() -> None:
    def broken(x: Tensor) -> Tensor:
        y: Tensor = net.first(x)
        torch._dynamo.graph_break()
        return net.second(y)

    net = Sorted().eval()
    net.forward = broken
    fast = torch.compile(net, backend="zendnn")
    with torch.no_grad():
        fast(values(4, 6))
    first, second = explain(fast).methods
    assert re.match(r".*test_optimize.py:\d+: .*graph_break", first.graph_break)
    assert second.graph_break == ""


def test_options_are_those_of_compiled_models() -> None:
    net = Net().eval()
    fast = optimize(net, (IMAGE,), options={"passes": {"fold_batch_norm": False}, "tune": 0.25})
    assert_same(fast, net, IMAGE)
    assert fast.zendnn_0.plan.description().splitlines()[1] == "tune 0.25"
    with torch.no_grad(), torch.backends.zendnn.record() as events:
        fast(IMAGE)
    assert any("batch_norm" in event.implementation for event in events)
    with pytest.raises(
        ValueError,
        match="no option 'rest' here: use some of emulate_precision_casts, passes, precision",
    ):
        optimize(net, (IMAGE,), options={"rest": "eager"})


def test_a_traced_module_gets_the_options_too() -> None:
    class Printing(Net):
        def forward(self, x: Tensor) -> Tensor:
            if float(x.sum()) > 1e9:  # which torch.export cannot capture
                return x
            return super().forward(x)

    with pytest.warns(UserWarning, match="it is traced"):
        fast = optimize(Printing().eval(), (IMAGE,), options={"tune": False})
    assert "tune 0" in fast._zendnn_plan_forward_0.description().splitlines()
