"""Makes a plan of a small graph, and compares it with the reference interpreter."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.backends.zendnn import passes
from torch.backends.zendnn.ir.graph import Graph, Region
from torch.backends.zendnn.ir.node import Node, PostOp, Value
from torch.backends.zendnn.ir.text import describe

from ..common import LAYOUTS, SLACK, values
from .graphs import Builder
from .interpreter import BINARY, run_region

CHANNELS = (3, 8, 16, 17, 32)
BATCHES = (1, 3)

#: The error that is always allowed, relative to the largest value; for bfloat16 one unit in the
#: last place.
FLOOR = {torch.float32: 1e-5, torch.bfloat16: 2.0**-7}

#: Layouts of inputs. The last ones repeat elements, which changes values.
ARRANGEMENTS: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: make for name, make in LAYOUTS.items() if name != "negated"},
    "channels_last": lambda x: (
        x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x.contiguous()
    ),
    "repeated": lambda x: x[:1].expand_as(x),
    "repeated_last": lambda x: x[..., :1].expand_as(x),
}


def tensor(
    *shape: int, dtype: torch.dtype = torch.float32, layout: str = "contiguous", seed: int = 0
) -> Tensor:
    """Normal random numbers in one of ``ARRANGEMENTS``."""
    numbers = values(*shape or (1,), dtype=dtype, seed=seed).reshape(shape)
    return ARRANGEMENTS[layout](numbers)


def then(b: Builder, value: Value, *posts: str | tuple[Any, ...]) -> Value:
    """Add post-ops to the producer of a value, and return the value.

    A post-op is a name, (name, alpha, beta), or (name, value) for a binary one. The producers of
    such values must precede the node.
    """
    node = value.producer
    assert node is not None
    for post in posts:
        name, *rest = (post,) if isinstance(post, str) else post
        if name in BINARY:
            b.graph.set_inputs(node, [*node.inputs, *rest])
            node.post_ops += (PostOp(name, operand=len(node.inputs) - 1),)
        else:
            node.post_ops += (PostOp(name, *rest),)
    return value


def make_plan(
    region: Region, dtype: torch.dtype = torch.float32, name: str = "test"
) -> torch.classes.zendnn.Plan:
    """The plan of a region with constants of this dtype."""
    description, constants = describe(region, passes.off_in_plans())
    return torch.classes.zendnn.Plan(description, [cast(c, dtype) for c in constants], name)


def check(
    b: Builder,
    *outputs: Value,
    dtype: torch.dtype = torch.float32,
    constants: torch.dtype | None = None,
    meant: dict[Value, Tensor] | None = None,
) -> torch.classes.zendnn.Plan:
    """Check the plan of a graph against the interpreter in float64, and return it.

    The error may be ``SLACK`` times that of torch's own operators in ``dtype``. The plan first runs
    on NaN, which exposes reads of stale memory. Inputs must stay unchanged, and a second run must
    give the same bits. ``constants`` is their dtype if it differs; ``meant`` replaces inputs for
    the interpreter.
    """
    region = region_of(b, *outputs)
    plan = make_plan(region, constants or dtype)
    examples = dict(zip(b.graph.inputs, b.examples, strict=True))
    arguments = [examples[value] for value in region.inputs]
    tensors, numbers = tensors_and_numbers(arguments)
    assert plan.takes(tensors, numbers), refusal(plan)
    assert layout_of(plan) in ("", *asked_layouts())

    copies = [x.clone() for x in tensors]
    plan.run([poisoned(x) for x in tensors], numbers)
    results = plan.run(tensors, numbers)
    again = plan.run(tensors, numbers)
    for x, copy in zip(tensors, copies, strict=True):
        assert torch.equal(x, copy), "an input was changed"

    read = [(meant or {}).get(v, x) for v, x in zip(region.inputs, arguments, strict=True)]
    theirs = interpret(region, read, dtype, constants or dtype)
    exact = interpret(region, read, torch.float64, constants or dtype)
    assert len(results) == len(exact)
    for i, (ours, second, their, true) in enumerate(
        zip(results, again, theirs, exact, strict=True)
    ):
        where = f"result {i} of\n{plan.description()}"
        assert (ours.dtype, ours.shape) == (their.dtype, true.shape), where
        assert torch.equal(ours, second), f"other bits in a second run: {where}"
        assert_near(ours, their, true, where)
    return plan


def assert_near(ours: Tensor, theirs: Tensor, exact: Tensor, where: str) -> None:
    """Assert that ``ours`` is as close to ``exact`` as ``theirs``, or within the floor."""
    error = (ours.double() - exact).abs().max().item()
    their_error = (theirs.double() - exact).abs().max().item()
    floor = FLOOR[ours.dtype] * exact.abs().max().item()
    assert error <= max(floor, SLACK * their_error), (
        f"error {error:.3e}, torch's {their_error:.3e}, always allowed {floor:.3e}: {where}"
    )


def region_of(b: Builder, *outputs: Value) -> Region:
    """The region of the whole graph."""
    graph: Graph = b.done(*outputs)
    return Region.of(graph.nodes)


def interpret(
    region: Region, arguments: list[Any], dtype: torch.dtype, rounded: torch.dtype
) -> list[Tensor]:
    """The region's results in ``dtype``, for constants first rounded to another dtype.

    In float64, conversions between dtypes of floating point round nothing.
    """
    constants = {
        value: value.constant
        for node in region.nodes
        for value in node.values()
        if value.constant is not None
    }
    kept = dtype if dtype == torch.float64 else rounded
    attributes = {
        node: node.attributes
        for node in region.nodes
        if node.op == "to" and dtype == torch.float64
        if getattr(torch, node.get("dtype")).is_floating_point
    }
    try:
        for node, before in attributes.items():
            node.attributes = before | {"dtype": "float64"}
        for value, constant in constants.items():
            value.constant = cast(cast(constant, rounded), kept)
        return run_region(region, [cast(x, dtype) for x in arguments])
    finally:
        for value, constant in constants.items():
            value.constant = constant
        for node, before in attributes.items():
            node.attributes = before


def cast(x: Any, dtype: torch.dtype) -> Any:
    """Converts floating-point tensors; returns everything else unchanged."""
    return x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x


def tensors_and_numbers(arguments: list[Any]) -> tuple[list[Tensor], list[int]]:
    """The inputs split into tensors and numbers, as plans take them."""
    return (
        [x for x in arguments if isinstance(x, Tensor)],
        [x for x in arguments if not isinstance(x, Tensor)],
    )


def poisoned(x: Tensor) -> Tensor:
    """NaN in place of all values, in the same layout; integers stay."""
    if not x.is_floating_point():
        return x
    memory = x.new_full((x.untyped_storage().nbytes() // x.element_size(),), float("nan"))
    return memory.as_strided(x.size(), x.stride(), x.storage_offset())


def explained(plan: torch.classes.zendnn.Plan) -> dict[str, Any]:
    """A plan's explanation."""
    explanation: dict[str, Any] = plan.explain()
    return explanation


def refusal(plan: torch.classes.zendnn.Plan) -> str:
    """The plan's reason for refusing its latest inputs."""
    built = explained(plan)["built"]
    reason: str = built[0].get("refused", "") if built else "nothing was asked of it"
    return reason


def left_of(plan: torch.classes.zendnn.Plan) -> list[dict[str, Any]]:
    """The operators that the plan leaves to torch for its latest inputs, with reasons."""
    left: list[dict[str, Any]] = explained(plan)["built"][0].get("left_to_torch", [])
    return left


def implementations(plan: torch.classes.zendnn.Plan) -> list[str]:
    """The implementations that the plan runs for its latest inputs."""
    return [step["implementation"] for step in explained(plan)["built"][0]["steps"]]


def layout_of(plan: torch.classes.zendnn.Plan) -> str:
    """The layout of images in the plan, as in ``ZENDNN_PLAN_LAYOUT``; '' without images."""
    layout: str = explained(plan)["built"][0]["layout"]
    return layout.replace(" ", "_")


def asked_layouts() -> tuple[str, ...]:
    """The layouts that ``ZENDNN_PLAN_LAYOUT`` allows."""
    asked = os.environ.get("ZENDNN_PLAN_LAYOUT", "any")
    return ("channels_last", "blocked") if asked == "any" else (asked,)


def copies_of(plan: torch.classes.zendnn.Plan) -> int:
    """The number of the plan's steps that only copy data."""
    return sum(name.startswith(("copy", "reorder")) for name in implementations(plan))


def last_node(b: Builder) -> Node:
    """The node that was added last."""
    return b.graph.nodes[-1]


def arena_bytes(plan: torch.classes.zendnn.Plan) -> int:
    """The size of the plan's arena for its latest inputs."""
    size: int = explained(plan)["built"][0]["arena_bytes"]
    return size
