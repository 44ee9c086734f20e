"""Builds graphs for tests, and checks passes: same results, and consistent use lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import OPAQUE, Kind, Node, Operand, Value

from .interpreter import evaluate


def random(*shape: int) -> Tensor:
    """Normal random numbers in float64, which distinguishes a fold from an approximation."""
    return torch.randn(shape, dtype=torch.float64)


class Builder:
    """A graph under construction. Inputs have examples, on which the graph is evaluated."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.examples: list[Any] = []

    def input(self, example: Any) -> Value:
        """A tensor or number as an input of the graph."""
        self.examples.append(example)
        return self.graph.input("tensor" if isinstance(example, Tensor) else "number", example)

    def constant(self, *shape: int) -> Value:
        """A constant with random numbers."""
        return self.graph.constant(random(*shape))

    def number(self, number: float) -> Value:
        """A constant without dimensions."""
        return self.graph.constant(torch.tensor(number, dtype=torch.float64))

    def node(self, op: str, *inputs: Operand, results: int = 1, **attributes: Any) -> Node:
        """Append an operator; its origin is its own name."""
        kind: Kind = "number" if op in ("size", "numel") or op.startswith("number_") else "tensor"
        outputs = [self.graph.value(kind, source=op) for _ in range(results)]
        return self.graph.add(
            op, inputs, outputs=outputs, attributes=attributes, origin=(f"aten::{op}",)
        )

    def __call__(self, op: str, *inputs: Operand, **attributes: Any) -> Value:
        """Append an operator with one result, and return that."""
        return self.node(op, *inputs, **attributes).output

    def eltwise(self, algorithm: str, x: Operand, alpha: float = 0.0, beta: float = 0.0) -> Value:
        return self("eltwise", x, algorithm=algorithm, alpha=alpha, beta=beta)

    def binary(self, algorithm: str, a: Operand, b: Operand) -> Value:
        return self("binary", a, b, algorithm=algorithm)

    def convolution(self, x: Value, weight: Value, bias: Value | None = None, **more: Any) -> Value:
        assert weight.constant is not None
        dims = weight.constant.dim() - 2
        attributes: dict[str, Any] = {
            "stride": (1,) * dims,
            "padding": (0,) * dims,
            "dilation": (1,) * dims,
            "groups": 1,
        }
        return self("convolution", x, weight, bias, **{**attributes, **more})

    def linear(self, x: Value, features: int, of: int, bias: bool = True) -> Value:
        return self(
            "linear", x, self.constant(features, of), self.constant(features) if bias else None
        )

    def batch_norm(self, x: Value, count: int) -> Value:
        variance = self.graph.constant(random(count).abs() + 0.5)
        weight, bias, mean = (self.constant(count) for _ in range(3))
        return self("batch_norm", x, weight, bias, mean, variance, eps=1e-5)

    def layer_norm(self, x: Value, size: int) -> Value:
        weight, bias = self.constant(size), self.constant(size)
        return self("layer_norm", x, weight, bias, None, eps=1e-5, dims=1)

    def opaque(
        self, function: Callable[..., Any], *inputs: Operand, ordered: bool = False
    ) -> Value:
        """A node that no pass understands."""
        return self.graph.add(
            OPAQUE,
            inputs,
            outputs=[self.graph.value(source=function)],
            source=lambda *x: (function(*x),),
            ordered=ordered,
        ).output

    def done(self, *outputs: Value) -> Graph:
        """The graph, checked."""
        self.graph.set_outputs(outputs)
        self.graph.check()
        return self.graph

    def run(self) -> list[Any]:
        """The graph's results for the examples."""
        return evaluate(self.graph, self.examples)

    def check(self, *passes: Callable[[Graph], Any]) -> list[Any]:
        """Run passes, check that results stay the same, and return the passes' counts."""
        before = self.run()
        outputs = list(self.graph.outputs)
        counts = []
        for function in passes:
            counts.append(function(self.graph))
            self.graph.remove_dead()
            self.graph.check()
        assert self.graph.outputs == outputs
        assert_same(self.run(), before)
        return counts


def assert_same(results: list[Any], expected: list[Any]) -> None:
    """Assert that lists of tensors and numbers are equal, tensors up to rounding."""
    assert len(results) == len(expected)
    for ours, theirs in zip(results, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-9)


def ops(graph: Graph) -> list[str]:
    """The operators, in order."""
    return [node.op for node in graph.nodes]


def posts(node: Node) -> list[str]:
    """The post-ops' algorithms."""
    return [post.algorithm for post in node.post_ops]


def only(graph: Graph, op: str) -> Node:
    """The only node of this operator."""
    (node,) = [node for node in graph.nodes if node.op == op]
    return node
