"""The TorchScript front end: imports, refusals with reasons, and emitted calls."""

from __future__ import annotations

import copy
import io
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.backends.zendnn import _C
from torch.backends.zendnn.frontends import LeftOut, schedule, torchscript
from torch.backends.zendnn.frontends.torchscript import reader
from torch.backends.zendnn.ir.graph import Graph, Region
from torch.backends.zendnn.ir.node import OPAQUE, Value

from ..support import interpreter
from ..support.calls import (
    BATCH,
    IDS,
    IMAGE,
    IMPORTED,
    NOT_INTERPRETED,
    PLACES,
    REFUSED,
    ROWS,
    TABLE,
    traced,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
    pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning"),
]

NameOf = Callable[[Any], str]


def scripted(function: Callable[..., Any]) -> Any:
    """The graph of a scripted function."""
    graph = torch.jit.script(function).graph
    torchscript.simplify(graph)
    return graph


def import_graph(graph: Any) -> Graph:
    """The engine's graph of a TorchScript graph's outermost block, which stays as it is."""
    return reader.import_block(reader.outer_block(graph), reader.Facts.of(graph)).graph


def text(graph: Graph) -> str:
    """The nodes of a graph, one per line: inputs are x, y, …, constants c0, …, results r0, …."""
    names: dict[str, str] = {}
    inputs = [value for value in graph.inputs if value.kind != "other"]
    names.update((value.name, "xyzw"[position]) for position, value in enumerate(inputs))
    constants = [v for node in graph.nodes for v in node.values() if v.constant is not None]
    for value in dict.fromkeys(constants):
        names[value.name] = f"c{len(names) - len(inputs)}"
    results = [value for node in graph.nodes for value in node.outputs]
    names.update((value.name, f"r{position}") for position, value in enumerate(results))
    lines = map(str, graph.nodes)
    return "\n".join(re.sub(r"%\d+", lambda m: names[m[0]], line) for line in lines)


@pytest.mark.parametrize("name", IMPORTED)
def test_operators_are_imported_with_the_same_meaning(name: str) -> None:
    if name == "rms_norm without eps" and not _C._has_one_default_eps():
        pytest.skip("in this older torch it depends on the dtype, and is left to torch")
    function, inputs, expected = IMPORTED[name]
    graph = import_graph(traced(function, *inputs))
    assert text(graph) == expected
    graph.check()
    if name not in NOT_INTERPRETED:
        (result,) = interpreter.evaluate(graph, inputs)
        torch.testing.assert_close(result, function(*inputs))


@pytest.mark.parametrize("name", REFUSED)
def test_left_out_operators_have_a_reason(name: str) -> None:
    function, inputs, op, reason = REFUSED[name]
    graph = import_graph(traced(function, *inputs))
    assert (op, reason) in torchscript.left_out([graph])


def test_a_conversion_to_another_layout_is_left_out() -> None:
    def function(x: Tensor) -> Tensor:
        return x.to(dtype=torch.float32, layout=torch.sparse_coo) + 1

    (left, *_) = torchscript.left_out([import_graph(scripted(function))])
    assert left == ("aten::to", "layout is 1")


def test_an_eps_that_depends_on_the_dtype_is_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_C, "_has_one_default_eps", lambda: False)
    graph = import_graph(traced(lambda x: F.rms_norm(x, (6,)), ROWS))
    (left,) = torchscript.left_out([graph])
    assert left[1] == "eps is not given, and depends on the dtype in this torch"
    assert not torchscript.left_out(
        [import_graph(traced(lambda x: F.rms_norm(x, (6,), None, 1e-6), ROWS))]
    )


def test_parts_of_a_split_of_unknown_count_are_left_out() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.stack(x.split(2), 0)

    assert torchscript.left_out([import_graph(scripted(function))]) == [
        ("aten::split", "its results are not unpacked at once"),
        ("aten::stack", "the length of tensors is not known"),
    ]


def test_parts_of_a_list_of_known_length_are_known() -> None:
    def function(x: Tensor) -> Tensor:
        return x.chunk(3, 1)[-1] + x.split([2, 4], 0)[0].unbind(1)[3]

    graph = import_graph(scripted(function))
    expected = [
        *("r0, r1, r2 = split(x) chunks=3 dim=1", "r3, r4 = split(x) dim=0 sizes=2,4"),
        *("r5 = select(r3, 1, 3)", "r6 = binary(r2, r5) algorithm=add"),
    ]
    assert text(graph) == "\n".join(expected)
    x = torch.randn(6, 6)
    torch.testing.assert_close(interpreter.evaluate(graph, [x])[0], function(x))


def test_sizes_of_a_tensor_of_known_rank_are_looked_through() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return x.view(torch.stack([y[0], y[0]]).unsqueeze(0).view(2, 6).size())

    graph = import_graph(scripted(function))
    assert [node.op for node in graph.nodes if node.op in ("size", "view")] == [
        *("view", "size", "size", "view")
    ]


def test_statistics_of_batch_norms_are_float32() -> None:
    norm = nn.BatchNorm2d(3).bfloat16().eval().requires_grad_(False)
    graph = import_graph(traced(lambda x: norm(x), IMAGE.bfloat16()))
    (node,) = graph.nodes
    assert [v.constant.dtype for v in node.values() if v.constant is not None] == [
        torch.float32
    ] * 4


def test_writes_stay_in_order() -> None:
    def function(x: Tensor) -> Tensor:
        y = F.relu(x)
        x.add_(1)
        row = y[0]
        row.mul_(2)
        return F.relu(x) + y.sigmoid()

    graph = import_graph(traced(function, ROWS.clone()))
    opaque = [node for node in graph.nodes if node.op == OPAQUE]
    assert all(node.ordered for node in opaque)
    named = [node.origin[0] for node in opaque if node.origin]
    assert named == ["aten::relu", "aten::add_", "aten::select", "aten::mul_"]


def test_values_after_their_last_write_are_imported() -> None:
    def function(x: Tensor) -> Tensor:
        mask = torch.full((4, 4), 1.0)
        mask[1:].fill_(-1.0)
        mask.mul_(x.prod())
        y = F.relu(mask) * x
        y[0].fill_(3.0)
        return (y + mask).sigmoid()

    graph = import_graph(traced(function, torch.randn(4, 4)))
    assert [node.op for node in graph.nodes if node.op != OPAQUE] == [
        "eltwise",
        "binary",
        "eltwise",
    ]
    graph.check()


WRITES: dict[str, Callable[[Tensor], Any]] = {
    "a mask": lambda x: x @ torch.full((4, 4), 1.0).masked_fill_(x > 0, -1.0),
    "a part of a mask": lambda x: write(torch.full_like(x, 2.0), x) @ x,
    "a result of a plan": lambda x: write((x @ x).relu(), x) @ x,
    "a result of a plan, with a result of another": lambda x: write(x @ x, (x @ x).relu()) @ x,
    "a view of a result": lambda x: write((x @ x).t(), x) @ x,
    "between two readers": lambda x: between(x @ x, x),
    "what is read by a view made before": lambda x: behind(x @ x, x),
    "in turn": lambda x: in_turn(x, x.clone()),
}


def write(x: Tensor, y: Tensor) -> Tensor:
    x[1:3].copy_(y[1:3])
    x[:, 0].fill_(0.5)
    return x


def between(x: Tensor, y: Tensor) -> Tensor:
    before = x @ y
    x[0].add_(before[1])
    return x @ before


def behind(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    view = x.view(2, 2, 4)
    x.mul_(y)
    return view @ y, x @ view[0].t()


def in_turn(x: Tensor, y: Tensor) -> Tensor:
    for step in range(3):
        x = (x @ y).tanh()
        y[step].fill_(0.25)
        y[:, step].add_(x[0])
    return x @ y


@pytest.mark.parametrize("name", WRITES)
def test_writes_stay_between_the_same_readers(name: str) -> None:
    function = WRITES[name]

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.after = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Any:
            result = function(self.before(x))
            first, *rest = result if isinstance(result, tuple) else (result,)
            return self.after(first), *rest

    net, x = Net().eval().requires_grad_(False), torch.randn(4, 4)
    module = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(net, x)))
    assert torchscript.plans(module._c)
    for seed in range(3):
        x = torch.randn(4, 4, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(module(x.clone()), net(x.clone()), rtol=1e-5, atol=1e-5)


def test_arithmetic_on_ids_and_masks_of_unknown_dtypes_is_left_out() -> None:
    def function(ids: Tensor, mask: Tensor) -> Tensor:
        places = (ids.ne(1).int().cumsum(1) * 2 + 1).long()
        seen = (mask != 0).unsqueeze(-1) * ids.unsqueeze(-1)
        return F.embedding(places, PLACES) + F.embedding(ids * 1, TABLE) + seen.float()

    graph = import_graph(traced(function, IDS, torch.ones_like(IDS)))
    left = torchscript.left_out([graph])
    assert ("aten::mul", "self holds integers or booleans") in left
    assert ("aten::ne", "self is not surely bfloat16 or bool or float32 or int64") in left
    ops = sorted(node.op for node in graph.nodes if node.op != OPAQUE)
    read = ["binary", "binary", "embedding", "embedding"]
    assert ops == [*read, "to", "to", "unsqueeze", "unsqueeze"]


def test_random_operators_stay_in_order() -> None:
    graph = import_graph(traced(lambda x: torch.rand_like(x) + x, ROWS))
    assert [(node.op, node.ordered) for node in graph.nodes] == [(OPAQUE, True), ("binary", False)]


def test_lists_and_tuples_are_looked_through() -> None:
    def function(x: Tensor) -> dict[str, list[Tensor]]:
        return {"both": [x.relu(), x.tanh()]}

    graph = import_graph(scripted(function))
    assert [node.op for node in graph.nodes] == ["eltwise", "eltwise", OPAQUE]
    assert all(not graph.is_private(node.output) for node in graph.nodes[:2])
    assert not torchscript.left_out([graph])


@pytest.mark.parametrize("function", [lambda x: (x.relu(), x * x), lambda x: [x.relu(), x * x]])
def test_results_in_tuples_are_as_those_in_lists(function: Callable[[Tensor], Any]) -> None:
    graph = import_graph(traced(function, ROWS))
    assert [node.op for node in graph.nodes] == ["eltwise", "binary"]
    assert graph.outputs == [node.output for node in graph.nodes]


def test_scripted_sizes_are_numbers() -> None:
    def function(x: Tensor) -> Tensor:
        batch, _ = x.size()
        return x.view(batch, x.shape[1] // 2, 2).transpose(0, 1)

    graph = import_graph(scripted(function))
    expected = [
        *("r0 = size(x, 0) rank=2", "r1 = size(x, 1)", "r2 = number_floordiv(r1, 2)"),
        *("r3 = view(x, r0, r2, 2)", "r4 = transpose(r3, 0, 1)"),
    ]
    assert text(graph) == "\n".join(expected)


# Emission: the fallback of each call must be exactly the original operators.


def refuse_all(graph: Any) -> int:
    """Make each call of a plan run its fallback; return the number of calls."""
    nodes = graph.findAllNodes("zendnn::takes")
    for node in nodes:
        with graph.insert_point_guard(node):
            node.output().replaceAllUsesWith(graph.insertConstant(False))
        node.destroy()
    graph.lint()
    return len(nodes)


def frozen(module: nn.Module, *inputs: Any, script: bool = False) -> Any:
    """A frozen module whose batch norms are not folded."""
    result = torch.jit.script(module.eval()) if script else torch.jit.trace(module.eval(), inputs)
    return torch.jit.freeze(result, optimize_numerics=False)


def check_fallback(module: nn.Module, *inputs: Any, script: bool = False) -> int:
    """Assert that fallbacks give the module's results; return the number of calls."""
    with torch.no_grad():
        before = frozen(module, *inputs, script=script)
        after = frozen(module, *inputs, script=script)
        torchscript.optimize(after._c, ["forward"])
        count = refuse_all(after.graph)
        for _ in range(3):  # torch specialises a graph after its first runs
            expected = before(*copy.deepcopy(inputs))
            torch.testing.assert_close(after(*copy.deepcopy(inputs)), expected, rtol=0, atol=0)
    return count


class Residual(nn.Module):
    """Convolutions with batch norms, in-place activations and a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding="same")
        self.last = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu_(self.norm(self.first(x)))
        x = F.relu_(self.second(x).add_(x))
        out: Tensor = self.last(F.adaptive_avg_pool2d(x, 1).flatten(1))
        return out


class Interrupted(nn.Module):
    """Supported operators before, between and next to unsupported ones."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))

    def forward(self, x: Tensor) -> tuple[Tensor, dict[str, Tensor], list[Tensor]]:
        a = self.layers[0](x).relu()
        b = a.cumprod(1)
        c = self.layers[1](b + a)
        d = self.layers[2](x).view(x.size(0), -1)
        e = torch.sort(d * c)[0]
        f = self.layers[3](e).reshape(c.shape[0] * 2, -1)
        return f, {"c": c, "x": x.detach()}, [a, F.dropout(f, 0.5, self.training)]


class Branching(nn.Module):
    """Control flow with supported operators inside and outside."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)

    def forward(self, x: Tensor, times: int) -> Tensor:
        x = self.first(x).relu()
        for step in range(times):
            if step % 2 == 0:
                x = self.second(x).tanh() + x
            else:
                y = x.sigmoid()
                y[0] = 1.0
                x = y * x
        if x.size(0) > 100:
            raise ValueError("too large")
        return self.second(x)


class Sizes(nn.Module):
    """Sizes of a region's results, read outside of it and in other regions."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.layer(x)
        rows, width = y.size(0), y.shape[1]
        z = torch.sort(y)[0]
        return z.relu().view(rows * 2, width // 2), torch.zeros(rows, width) + y


class Writing(nn.Module):
    """Writes to its argument, to views and to lists."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a = x.relu() * 2.0
        x.add_(1.0)
        b = x.tanh()
        x[0].mul_(3.0)
        parts = [a, b]
        parts.append(x.sigmoid())
        return torch.cat(parts, 1).softmax(1), x


class Held(nn.Module):
    """Writes to a tensor that is already in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a = x.clone()
        parts = [a, x]
        h = self.before(x)
        a.add_(h)
        return torch.cat(parts), self.after(h), a


class TakenOut(nn.Module):
    """Reads an element of a tuple after a write to it."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor, deep: bool) -> Tensor:
        a = x.clone()
        pairs = [(a, x), (x, a)]
        a.add_(self.before(torch.cumprod(x, 1)))
        out: Tensor = self.after(pairs[int(deep)][0])
        return out


MODELS: dict[str, tuple[type[nn.Module], tuple[Any, ...], bool]] = {
    "residual": (Residual, (torch.randn(2, 3, 8, 8),), False),
    "residual, scripted": (Residual, (torch.randn(2, 3, 8, 8),), True),
    "interrupted": (Interrupted, (torch.randn(4, 6),), True),
    "branching": (Branching, (torch.randn(4, 6), 5), True),
    "sizes": (Sizes, (torch.randn(4, 6),), False),
    "sizes, scripted": (Sizes, (torch.randn(4, 6),), True),
    "writing": (Writing, (torch.randn(4, 6),), False),
    "writing, scripted": (Writing, (torch.randn(4, 6),), True),
    "held by a list": (Held, (torch.randn(4, 6),), True),
    "taken out of a tuple": (TakenOut, (torch.randn(4, 6), False), True),
}


@pytest.mark.parametrize("name", MODELS)
def test_fallbacks_match_the_model(name: str) -> None:
    model, inputs, script = MODELS[name]
    assert check_fallback(model(), *inputs, script=script)


@pytest.mark.parametrize("family", ["bert", "vit"])
def test_fallbacks_match_a_transformer(family: str) -> None:
    transformers = pytest.importorskip("transformers")
    small = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }

    class First(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: Tensor) -> Tensor:
            first: Tensor = self.model(*inputs, return_dict=False)[0]
            return first

    if family == "bert":
        config = transformers.BertConfig(vocab_size=99, max_position_embeddings=32, **small)
        ids = torch.randint(0, 99, (2, 7))
        model, inputs = transformers.BertModel(config), [ids, torch.ones_like(ids)]
    else:
        config = transformers.ViTConfig(image_size=32, patch_size=8, **small)
        model, inputs = transformers.ViTModel(config), [torch.randn(2, 3, 32, 32)]
    assert check_fallback(First(model), *inputs)


class TwoMethods(nn.Module):
    """A module with two methods to optimise."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x).relu().cumprod(0)
        return out

    @torch.jit.export
    def other(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x).tanh()
        return out


def two_methods() -> Any:
    return torch.jit.freeze(torch.jit.script(TwoMethods().eval()), ["other"])


def test_each_method_has_its_plans_and_its_reasons() -> None:
    module = two_methods()
    torchscript.optimize(module._c, ["forward", "other"])
    forward, other = torchscript.optimized(module)
    assert [forward.name, other.name] == ["forward", "other"]
    assert [len(forward.plans), len(other.plans)] == [1, 1]
    for name in ("_zendnn_plan_forward_0", "_zendnn_plan_other_0"):
        assert module._c.hasattr(name)
    assert forward.left_out == (LeftOut("aten::cumprod", "the engine has no such operator", 1),)
    assert other.left_out == ()
    assert len(module.other.graph.findAllNodes("zendnn::run")) == 1


def test_optimising_twice_changes_nothing() -> None:
    module = two_methods()
    torchscript.optimize(module._c, ["forward"])
    once = str(module.graph)
    torchscript.optimize(module._c, ["forward"])
    assert not module._c.hasattr("_zendnn_plan_forward_1")
    assert str(module.graph).count("zendnn::run") == once.count("zendnn::run") == 1


def test_an_error_during_emission_leaves_the_module_unchanged() -> None:
    module, x = two_methods(), torch.randn(4, 6)
    graphs, expected = [str(module.graph), str(module.other.graph)], module(x)
    names: list[str] = []

    def make_plan(description: str, constants: list[Tensor], name: str) -> Any:
        names.append(name)
        if len(names) > 1:
            raise RuntimeError("no such plan")
        return torchscript.make_plan(description, constants, name)

    with pytest.raises(RuntimeError, match="no such plan"):
        torchscript.optimize(module._c, ["forward", "other"], make_plan)
    assert names == ["_zendnn_plan_forward_0", "_zendnn_plan_other_0"]
    assert [str(module.graph), str(module.other.graph)] == graphs
    assert not torchscript.optimized(module)
    assert not any(module._c.hasattr(name) for name in names)
    assert torch.equal(module(x), expected)


def test_a_region_that_cannot_be_separated_keeps_its_operators() -> None:
    graph = traced(lambda x, y: torch.baddbmm(x, x, y).relu(), BATCH[:, :, :4], BATCH[:, :, :4])
    facts = reader.Facts.of(graph)
    imported = reader.import_block(reader.outer_block(graph), facts)
    matmul, add, relu = imported.graph.nodes
    # The border is a value that TorchScript lacks.
    regions = [Region.of([matmul], read=matmul.outputs), Region.of([add, relu])]
    layout = schedule.schedule(imported, regions)
    assert not layout.outputs
    assert [node.kind() for node in layout.imported.nodes if node in layout.kept] == [
        "aten::baddbmm",
        "aten::relu",
    ]
    assert torchscript.left_out([imported.graph])


def test_only_one_region_of_a_cycle_is_given_up() -> None:
    regions = [Region((), (Value(name),), ()) for name in ("reads one", "one", "other")]
    last, one, other = (schedule.Item([], set(), set(), region) for region in regions)
    waits = {last: {one}, one: {other}, other: {one}}
    with pytest.raises(schedule.Unplaceable) as caught:
        schedule.Schedule._sorted([last, one, other], waits)
    assert caught.value.region in (one.region, other.region)


def test_calls_survive_saving_and_copying() -> None:
    module, x = two_methods(), torch.randn(4, 6)
    expected = module(x)
    torchscript.optimize(module._c, ["forward"])
    buffer = io.BytesIO()
    torch.jit.save(module, buffer)
    buffer.seek(0)
    for same in (module, torch.jit.load(buffer), copy.deepcopy(module)):
        assert same.graph.findAllNodes("zendnn::run")
        assert torchscript.optimized(same)[0].left_out
        torch.testing.assert_close(same(x), expected)


class Printing(nn.Module):
    """Prints a layer's result, and then a value without dependencies."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x)
        print("first", y.numel(), y[0, 0] > 1e9)
        print("second", x.numel())
        return self.b(y.relu())


def test_prints_stay_in_order(capfd: pytest.CaptureFixture[str]) -> None:
    model = torch.jit.optimize_for_inference(torch.jit.script(Printing().eval()))
    capfd.readouterr()
    with torch.no_grad():
        model(torch.randn(2, 64))
    said = capfd.readouterr().out.split()
    assert [word for word in said if word in ("first", "second")] == ["first", "second"]


def test_a_part_that_is_read_under_two_numbers_is_one() -> None:
    def function(x: Tensor) -> Tensor:
        parts = x.split([2, 4], 0)
        return parts[0] + parts[-2]

    graph = import_graph(scripted(function))
    assert text(graph) == "r0, r1 = split(x) dim=0 sizes=2,4\nr2 = binary(r0, r0) algorithm=add"


def test_parts_that_are_read_under_numbers_of_the_model_are_left_out() -> None:
    def function(x: Tensor, i: int) -> Tensor:
        return x.split([2, 4], 0)[i]

    left = torchscript.left_out([import_graph(scripted(function))])
    assert ("aten::split", "what is read of its results is not known") in left


def test_missing_elements_raise_the_models_own_error() -> None:
    def part(x: Tensor) -> Tensor:
        return x.split([2, 4], 0)[2]

    def element(x: Tensor) -> Tensor:
        return [x, x + 1][2]

    for function in (part, element):
        import_graph(scripted(function))
