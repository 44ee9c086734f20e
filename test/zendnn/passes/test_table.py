"""The table of passes, its switches, and all passes together on random graphs."""

from __future__ import annotations

import math
import random as python_random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.backends.zendnn import passes
from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Value
from torch.backends.zendnn.passes.partition import partition

from ..support.graphs import Builder, assert_same, only, ops, posts, random
from ..support.interpreter import read, run_nodes, run_regions


@pytest.fixture(autouse=True)
def _verified(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("ZENDNN_VERIFY", "1")
    with passes.disable():
        yield


# The table

#: Passes that plans run, since plans know sizes.
IN_PLANS = {"choose_layout", "join_in_place", "reuse_operands", "fuse_pointwise", "share_memory"}


def test_every_pass_has_a_name_and_a_line() -> None:
    assert len(set(passes.names())) == len(passes.names()) == 34
    assert set(passes.describe()) == set(passes.names())
    assert all(passes.describe().values())


def test_passes_that_change_results_are_off_by_default() -> None:
    off = {name for name in passes.names() if not passes.is_enabled(name)}
    assert off == {"round_products", "round_as_eager"}


def test_each_pass_can_be_switched_off() -> None:
    for name in passes.names():
        passes.set_enabled(name, True)
    for name in passes.names():
        with passes.disable(name):
            assert not passes.is_enabled(name)
            ran = [*passes.run(Graph()), *IN_PLANS.difference(passes.off_in_plans())]
            assert set(ran) == set(passes.names()) - {name}
        assert passes.is_enabled(name)
        passes.set_enabled(name, False)
        assert not passes.is_enabled(name)
        assert (name in passes.off_in_plans()) == (name in IN_PLANS)
        passes.set_enabled(name, True)


def test_switches_are_restored_after_an_error() -> None:
    with pytest.raises(RuntimeError), passes.disable("fold_pad"):
        raise RuntimeError
    assert passes.is_enabled("fold_pad")


@pytest.mark.parametrize(
    "use",
    [
        lambda: passes.set_enabled("fold_bath_norm", True),
        lambda: passes.is_enabled("fold_bath_norm"),
        lambda: passes.disable("fold_pad", "fold_bath_norm").__enter__(),
    ],
)
def test_an_unknown_name_error_lists_the_known_ones(use: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=r"no pass named 'fold_bath_norm'.*fold_batch_norm, fold_"):
        use()
    assert passes.is_enabled("fold_pad")


def broken(graph: Graph) -> int:
    """A pass that sets wrong dims on a result."""
    graph.nodes[0].output.dims = (7, 7)
    return 1


def test_a_pass_that_breaks_a_graph_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(passes._FUNCTIONS, "fold_pad", broken)
    b = Builder()
    b.done(b.linear(b("view", b.input(random(6)), 2, 3), 4, 3))
    with pytest.raises(RuntimeError, match=r"the pass fold_pad broke the graph: .*\(7, 7\)"):
        passes.run(b.graph)


# Together


def residual_block() -> Builder:
    b = Builder()
    x = b.input(random(2, 4, 6, 6))
    padded = b("pad", x, 1, 1, 1, 1, value=0.0)
    y = b.eltwise("relu", b.batch_norm(b.convolution(padded, b.constant(4, 4, 3, 3)), 4))
    y = b.batch_norm(b.convolution(y, b.constant(4, 4, 1, 1)), 4)
    b.done(b.eltwise("relu", b.binary("add", y, x)))
    return b


def transformer_layer() -> Builder:
    """An encoder layer of BERT, as traced."""
    b = Builder()
    x = b.input(random(2, 5, 64))
    mask = b("slice", b.input(random(2, 1, 1, 5)), 0, 0, None, 1)

    def heads(value: Value) -> Value:
        sizes = (b("size", value, 0), b("size", value, 1))
        return b("permute", b("view", value, *sizes, 4, 16), 0, 2, 1, 3)

    q, k, v = (heads(b.linear(x, 64, 64)) for _ in range(3))
    scores = b.binary("div", b("matmul", q, b("transpose", k, -1, -2)), b.number(4.0))
    weights = b("softmax", b.binary("add", scores, mask), dim=-1)
    context = b("contiguous", b("permute", b("matmul", weights, v), 0, 2, 1, 3))
    context = b("view", context, b("size", context, 0), b("size", context, 1), 64)
    y = b.layer_norm(b.binary("add", b.linear(context, 64, 64), x), 64)
    middle = b.eltwise("gelu", b.linear(y, 128, 64))
    b.done(b.layer_norm(b.binary("add", b.linear(middle, 64, 128), y), 64))
    return b


def recommender() -> Builder:
    b = Builder()
    dense = b.eltwise("relu", b.linear(b.input(random(3, 6)), 4, 6))
    index = b.input(torch.randint(0, 10, (2, 3, 5)))
    bags = []
    for i in range(2):
        ids = b("select", index, 0, i)
        offsets = b("arange", 0, b("numel", ids), b("size", ids, 1))
        bags.append(b("embedding_bag", b.constant(10, 4), b("view", ids, -1), offsets, mode="sum"))
    features = b("stack", dense, *bags, dim=1)
    b.done(b("matmul", features, b("transpose", features, 1, 2)))
    return b


def test_a_residual_block_is_two_convolutions() -> None:
    b = residual_block()
    b.check(passes.run)
    assert ops(b.graph) == ["convolution", "convolution"]
    assert posts(b.graph.nodes[1]) == ["add", "relu"]


def test_a_transformer_layer_is_six_primitives() -> None:
    b = transformer_layer()
    b.check(passes.run)
    free = ("size", "view", "permute", "split", "cat")  # only weights are concatenated
    computing = [op for op in ops(b.graph) if op not in free]
    assert computing == [
        "linear",
        "attention",
        "linear",
        "layer_norm",
        "linear",
        "linear",
        "layer_norm",
    ]
    node = only(b.graph, "attention")
    assert (node.attributes["scale"], node.attributes["swapped"]) == (0.25, True)
    assert only(b.graph, "split").attributes["sizes"] == (64, 64, 64)


def test_a_recommender_looks_up_once() -> None:
    b = recommender()
    b.check(passes.run)
    assert ops(b.graph).count("embedding_bags") == 1
    assert "arange" not in ops(b.graph)


EXAMPLES = [residual_block, transformer_layer, recommender]


@pytest.mark.parametrize("name", passes.names())
@pytest.mark.parametrize("example", EXAMPLES)
def test_models_are_right_without_any_single_pass(
    example: Callable[[], Builder], name: str
) -> None:
    b = example()
    with passes.disable(name):
        (changes,) = b.check(passes.run)
    assert name not in changes
    divide(b)


def divide(b: Builder) -> None:
    """Check that the graph gives the same results in regions."""
    regions = partition(b.graph)
    assert_same(run_regions(b.graph, regions, b.examples), b.run())
    for region in regions:
        assert all(value.kind == "tensor" for value in region.outputs)
        assert all(value.constant is None for value in region.inputs)


# Random graphs


class Writer:
    """Appends random operators to a graph, and evaluates its values."""

    def __init__(self, seed: int) -> None:
        self.choose = python_random.Random(seed)
        torch.manual_seed(seed)
        self.b = Builder()
        self.now: dict[Value, Any] = {}
        self.pool: list[Value] = []
        image = random(2, 4, 6, 6) if self.choose.random() < 0.5 else random(2, 4, 8)
        for _ in range(2):
            self.keep(self.b.input(image + len(self.pool)))

    def keep(self, value: Value) -> Value:
        self.pool.append(value)
        return value

    def tensor(self, value: Value) -> Any:
        """A value's tensor for the examples."""
        if not self.now:
            self.now.update(zip(self.b.graph.inputs, self.b.examples, strict=True))
        done = sum(1 for node in self.b.graph.nodes if all(v in self.now for v in node.outputs))
        run_nodes(self.b.graph.nodes[done:], self.now)
        return read(value, self.now)

    def pick(self, shape: tuple[int, ...] | None = None) -> Value:
        """A random value, more often a late one, optionally of a given shape."""
        found = [v for v in self.pool if shape is None or self.tensor(v).shape == shape]
        return found[-1 - min(int(self.choose.expovariate(0.7)), len(found) - 1)]

    def step(self) -> None:
        """Append an operator, or an expression that a pass recognises."""
        x = self.pick()
        shape = tuple(self.tensor(x).shape)
        steps = [self.eltwise, self.scalar, self.binary, self.constant, self.identity, self.linear]
        steps += [self.activation, self.shape, self.layer_norm, self.opaque]
        if len(shape) == 4:
            steps += [
                self.convolution,
                self.convolution,
                self.norm,
                self.pool_or_gate,
                self.attention,
            ]
        if len(shape) == 3:
            steps += [self.layers, self.product]
        self.keep(self.choose.choice(steps)(x, shape))

    def eltwise(self, x: Value, shape: tuple[int, ...]) -> Value:
        algorithm = self.choose.choice(["relu", "tanh", "sigmoid", "clip", "affine", "abs", "gelu"])
        alpha, beta = sorted((self.choose.uniform(-1, 1), self.choose.uniform(-1, 1)))
        return self.b.eltwise(algorithm, x, alpha, beta)

    def scalar(self, x: Value, shape: tuple[int, ...]) -> Value:
        number = self.b.number(self.choose.choice([0.5, 1.0, -2.0, 3.0]))
        algorithm = self.choose.choice(["add", "sub", "mul", "div"])
        if algorithm != "div" and self.choose.random() < 0.3:
            return self.b.binary(algorithm, number, x)
        return self.b.binary(algorithm, x, number)

    def binary(self, x: Value, shape: tuple[int, ...]) -> Value:
        operands = [x, self.pick(shape)]
        self.choose.shuffle(operands)
        return self.b.binary(self.choose.choice(["add", "add", "mul", "sub", "max"]), *operands)

    def constant(self, x: Value, shape: tuple[int, ...]) -> Value:
        channel = [1] * len(shape)
        channel[1] = shape[1]
        options = [tuple(channel), tuple(channel[1:]), shape[-1:], (1,) * len(shape)]
        value = self.b.constant(*self.choose.choice(options))
        if self.choose.random() < 0.3:
            value = self.b.eltwise("sigmoid", value)
        return self.b.binary(self.choose.choice(["add", "mul", "sub"]), x, value)

    def identity(self, x: Value, shape: tuple[int, ...]) -> Value:
        b = self.b
        last = len(shape) - 1
        options: list[Callable[[], Value]] = [
            lambda: b("contiguous", x),
            lambda: b("transpose", b("transpose", x, 1, last), last, 1),
            lambda: b("slice", x, 1, 0, None, 1),
            lambda: b("expand", x, *[-1] * len(shape)),
            lambda: b("view", b("view", x, shape[0], -1), b("size", x, 0), *shape[1:]),
            lambda: b("pad", x, 0, 0, value=0.0),
            lambda: b("cat", x, dim=0),
        ]
        return self.choose.choice(options)()

    def linear(self, x: Value, shape: tuple[int, ...]) -> Value:
        return self.b.linear(x, shape[-1], shape[-1], self.choose.random() < 0.7)

    def activation(self, x: Value, shape: tuple[int, ...]) -> Value:
        b = self.b
        if self.choose.random() < 0.5:
            return b.binary("mul", x, b.eltwise("sigmoid", x))
        clipped = b.eltwise("clip", b.binary("add", x, b.number(3.0)), 0.0, 6.0)
        return b.binary("div", b.binary("mul", x, clipped), b.number(6.0))

    def shape(self, x: Value, shape: tuple[int, ...]) -> Value:
        b = self.b
        number = b("number_mul", b("size", x, 0), b("number_add", b("size", x, 1), 0))
        folded = b("view", x, number, -1)
        self.keep(folded)
        return b("view", b.eltwise("tanh", folded), *shape)

    def layer_norm(self, x: Value, shape: tuple[int, ...]) -> Value:
        return self.b.layer_norm(x, shape[-1])

    def opaque(self, x: Value, shape: tuple[int, ...]) -> Value:
        return self.b.opaque(torch.atan, x, ordered=self.choose.random() < 0.3)

    def convolution(self, x: Value, shape: tuple[int, ...]) -> Value:
        b, channels = self.b, shape[1]
        kind = self.choose.choice(["same", "pad", "point", "transposed", "groups"])
        weight = b.constant(channels, 2 if kind == "groups" else channels, 3, 3)
        bias = b.constant(channels) if self.choose.random() < 0.5 else None
        if kind == "point":
            return b.convolution(x, b.constant(channels, channels, 1, 1), bias)
        if kind == "pad":
            return b.convolution(b("pad", x, 0, 2, 1, 1, value=0.0), weight, bias)
        more: dict[str, Any] = {
            "padding": (1, 1),
            "groups": channels // 2 if kind == "groups" else 1,
        }
        if kind == "transposed":
            more.update(transposed=True, output_padding=(0, 0))
        return b.convolution(x, weight, bias, **more)

    def norm(self, x: Value, shape: tuple[int, ...]) -> Value:
        return self.b.batch_norm(x, shape[1])

    def pool_or_gate(self, x: Value, shape: tuple[int, ...]) -> Value:
        b = self.b
        attributes = {"kernel": (3, 3), "stride": (1, 1), "padding": (0, 0)}
        if self.choose.random() < 0.3:
            padded = b("pad", x, 1, 1, 1, 1, value=-math.inf)
            return b("max_pool", padded, **attributes, dilation=(1, 1))
        if self.choose.random() < 0.3:
            padded = b("pad", x, 1, 1, 1, 1, value=0.0)
            return b("avg_pool", padded, **attributes, include_pad=True)
        squeezed = b("mean", x, dims=(2, 3), keep=True)
        gate = b.convolution(squeezed, b.constant(shape[1], shape[1], 1, 1))
        return b.binary("mul", x, b.eltwise("sigmoid", gate))

    def attention(self, x: Value, shape: tuple[int, ...]) -> Value:
        b = self.b
        q, k, v = x, self.pick(shape), self.pick(shape)
        if self.choose.random() < 0.5:
            q = b.binary("mul", b("view", q, *shape), b.number(0.5))
        scores = b("matmul", q, b("transpose", k, 2, 3))
        if self.choose.random() < 0.5:
            scores = b.binary("div", scores, b.number(3.0))
        if self.choose.random() < 0.5:
            scores = b.binary("add", scores, b.constant(1, 1, 1, shape[2]))
        result = b("matmul", b("softmax", scores, dim=-1), v)
        if self.choose.random() < 0.5:
            return b("transpose", b.eltwise("tanh", b("permute", result, 0, 2, 1, 3)), 1, 2)
        return result

    def layers(self, x: Value, shape: tuple[int, ...]) -> Value:
        b = self.b
        wide = [b.linear(x, 64, shape[-1]) for _ in range(2)]
        if self.choose.random() < 0.5:
            wide = [b.eltwise("relu", value) for value in wide]
        if self.choose.random() < 0.5:
            return b.binary("max", *(b.linear(value, shape[-1], 64) for value in wide))
        return b.linear(b.binary("mul", *wide), shape[-1], 64)

    def product(self, x: Value, shape: tuple[int, ...]) -> Value:
        b = self.b
        return b("matmul", x, b("matmul", b("transpose", self.pick(shape), 1, 2), x))

    def finish(self) -> Builder:
        """Return the last value and some others as outputs."""
        last = self.pool[-1]
        others = [value for value in self.pool if self.choose.random() < 0.15]
        outputs = list(dict.fromkeys([*others, last]))
        self.b.done(*outputs)
        return self.b


@settings(max_examples=300, deadline=None, derandomize=True)
@given(seed=st.integers(0, 1 << 30), steps=st.integers(1, 14))
def test_random_graphs_keep_their_results(seed: int, steps: int) -> None:
    writer = Writer(seed)
    for _ in range(steps):
        writer.step()
    b = writer.finish()
    before = b.run()
    assume(all(float(value.abs().max()) < 1e6 for value in before))  # not infinite, and not chaotic
    divide(b)
    for name in passes.names():
        with passes.disable(*(other for other in passes.names() if other != name)):
            passes.run(b.graph)
        b.graph.check()
        after = b.run()
        assert len(after) == len(before)
        for ours, theirs in zip(after, before, strict=True):
            scale = max(1.0, float(theirs.abs().max())) if theirs.numel() else 1.0
            torch.testing.assert_close(
                ours,
                theirs,
                rtol=1e-6,
                atol=1e-6 * scale,
                msg=lambda text, name=name: f"{name}: {text}",
            )
    divide(b)
