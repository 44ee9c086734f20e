"""Reads an optimised FX graph as people see it: calls of plans, and what runs between them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import fx
from torch.backends.zendnn.frontends import CallReport
from torch.backends.zendnn.frontends.fx.calls import kind_of, name_of
from torch.backends.zendnn.frontends.fx.mutation import is_view, writes
from torch.backends.zendnn.frontends.fx.reader import attribute
from torch.backends.zendnn.frontends.fx.rest import Group

#: The plan that a node calls, with the tensors and the numbers that it gives it; None for others.
CallOf = Callable[[fx.Node], tuple[Any, Sequence[fx.Node], Sequence[fx.Node]] | None]


def calls_of(module: fx.GraphModule, call_of: CallOf) -> tuple[CallReport, ...]:
    """Return the calls of a graph, in order; plans count in the order of their calls.

    Views and numbers are not among them, nor what checks the graph's inputs.
    """
    calls: list[CallReport] = []
    places: dict[fx.Node, tuple[int, int]] = {}
    plans = 0
    for node in module.graph.nodes:
        if node.op not in ("call_function", "call_module"):
            continue
        first = node.all_input_nodes[0] if node.all_input_nodes else None
        if node.target == operator.getitem:
            if first in places:
                places[node] = places[first][0], node.args[1]
            continue
        if is_view(node) and not writes(node):
            if first in places:
                places[node] = places[first]
            continue
        called = call_of(node)
        if called is not None:
            read = [places.get(argument) for argument in _in_order(*called)]
            calls.append(CallReport(tuple(read), plan=plans))
            plans += 1
        elif node.users or writes(node):
            if kind_of(node) == "number":
                continue
            found = dict.fromkeys(places.get(argument) for argument in node.all_input_nodes)
            calls.append(CallReport(tuple(found), operators=_operators(module, node)))
        else:
            continue
        places[node] = len(calls) - 1, 0
    return tuple(calls)


def _in_order(
    plan: Any, tensors: Sequence[fx.Node], numbers: Sequence[fx.Node]
) -> Iterator[fx.Node]:
    """Yield what a plan is given in the order in which its description lists it."""
    arguments = {"tensor": iter(tensors), "number": iter(numbers)}
    for kind in plan.inputs():
        yield next(arguments[kind])


def _operators(module: fx.GraphModule, node: fx.Node) -> tuple[str, ...]:
    """Return the operators that a node stands for: those of a group, or its own."""
    group = attribute(module, node) if node.op == "call_module" else None
    inner = group.group.graph.nodes if isinstance(group, Group) else (node,)
    return tuple(
        name_of(each)
        for each in inner
        if each.op in ("call_function", "call_module") and each.target != operator.getitem
    )
