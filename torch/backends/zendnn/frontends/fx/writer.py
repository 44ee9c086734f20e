"""Writes FX: in the place of each region a graph gets the call of a ``PlannedRegion``."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MethodType, SimpleNamespace
from typing import Any

import torch
from torch import fx, nn
from torch.backends.zendnn import _C, passes
from torch.backends.zendnn.frontends.fx.calls import hint_of
from torch.backends.zendnn.frontends.fx.reader import Imported, output_of
from torch.backends.zendnn.frontends.schedule import Item, Schedule
from torch.backends.zendnn.ir.graph import Region
from torch.backends.zendnn.ir.text import describe

MakePlan = Callable[[str, list[torch.Tensor], str], Any]


class PlannedRegion(nn.Module):
    """A region: its plan, and the operators that it was made from.

    It is called with the region's tensors, then its numbers, then what only the operators read.
    """

    def __init__(
        self,
        plan: Any,
        tensors: int,
        numbers: int,
        orders: list[list[int]],
        original: fx.GraphModule,
    ) -> None:
        super().__init__()
        self.plan = plan
        self.original = original
        self._leave_out_of_states()
        self.signature = tensors, numbers, orders
        self._call = _C._PlanCall(plan, *self.signature)

    def __getstate__(self) -> dict[str, Any]:
        return {name: held for name, held in self.__dict__.items() if name != "_call"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._leave_out_of_states()
        self._call = _C._PlanCall(self.plan, *self.signature)

    def _leave_out_of_states(self) -> None:
        """Keep constants out of ``state_dict``: a plan would not get those that are loaded."""
        # fx.GraphModule makes all buffers persistent.
        self.original._non_persistent_buffers_set.update(self.original._buffers)

    def forward(self, *arguments: Any) -> Sequence[torch.Tensor]:
        result: tuple[torch.Tensor, ...] | None = self._call(*arguments)
        return self.original(*arguments) if result is None else result


def emit(source: fx.GraphModule, schedule: Schedule, make_plan: MakePlan) -> fx.GraphModule:
    """Return the module with a schedule's regions as calls."""
    imported = schedule.imported
    assert isinstance(imported, Imported)
    graph = fx.Graph()
    graph.set_codegen(copy.copy(source.graph._codegen))
    copies: dict[fx.Node, fx.Node] = {}
    for node in source.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            copies[node] = graph.node_copy(node)
    modules: dict[str, PlannedRegion] = {}
    for item in schedule.order:
        if item.region is None:
            (node,) = item.nodes
            copies[node] = graph.node_copy(node, copies.__getitem__)
            continue
        outputs = schedule.outputs[item.region]
        region = replace(item.region, outputs=tuple(outputs.values()))
        name = f"zendnn_{len(modules)}"
        arguments = _arguments(item, region)
        modules[name] = _planned(imported, region, item, arguments, name, make_plan)
        results = graph.call_module(name, tuple(copies[node] for node in arguments))
        for position, key in enumerate(outputs):
            assert isinstance(key, fx.Node)
            copies[key] = graph.call_function(operator.getitem, (results, position))
            copies[key].meta = dict(key.meta)
    handed_over = {key for outputs in schedule.outputs.values() for key in outputs}
    for node in imported.views:
        if node in handed_over or node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.node_copy(output_of(source.graph), copies.__getitem__)
    for node in graph.find_nodes(op="get_attr"):
        if not node.users:  # plans hold their own constants
            graph.erase_node(node)
    root = nn.Module()
    for node in graph.nodes:
        if node.op in ("get_attr", "call_module") and node.target not in modules:
            _copy_attribute(source, root, str(node.target))
    for name, module in modules.items():
        setattr(root, name, module)
    return fx.GraphModule(root, graph)


def function_of(made: fx.GraphModule) -> Callable[..., Any]:
    """Return what runs an emitted graph, without what ``nn.Module`` adds to each call."""
    names = {*vars(made), *made._parameters, *made._buffers, *made._modules}
    held = {name: getattr(made, name) for name in names}
    regions = {name: x.forward for name, x in held.items() if isinstance(x, PlannedRegion)}
    return MethodType(type(made).forward, SimpleNamespace(**{**held, **regions}))


def _arguments(item: Item, region: Region) -> list[fx.Node]:
    """Return what a region is called with: tensors, numbers, and what only its operators read."""
    kinds = {
        kind: [v.source for v in region.inputs if v.kind == kind] for kind in ("tensor", "number")
    }
    first = [*kinds["tensor"], *kinds["number"]]
    return [*first, *sorted(item.reads.difference(first), key=str)]


def _planned(
    imported: Imported,
    region: Region,
    item: Item,
    arguments: list[fx.Node],
    name: str,
    make_plan: MakePlan,
) -> PlannedRegion:
    """Return a region with a copy of its operators; constants are attributes of that."""
    constants = imported.scope.constants
    graph, root = fx.Graph(), nn.Module()
    copies = {node: graph.placeholder(node.name) for node in arguments}

    def read(node: fx.Node) -> fx.Node:
        if node not in copies:
            attribute = f"constant_{node.name}"
            root.register_buffer(attribute, constants[node], persistent=False)
            copies[node] = graph.get_attr(attribute)
        return copies[node]

    for node in item.nodes:
        for needed in node.all_input_nodes:
            read(needed)
        copies[node] = graph.node_copy(node, read)
    graph.output(tuple(copies[value.source] for value in region.outputs))
    plan = make_plan(*describe(region, passes.off_in_plans(), passes.tuning_budget()), name)
    tensors = sum(value.kind == "tensor" for value in region.inputs)
    numbers = sum(value.kind == "number" for value in region.inputs)
    orders = [_order(value.source.meta["val"]) for value in region.outputs]
    original = fx.GraphModule(root, graph)
    original.graph.owning_module = None  # in no cycle: it holds weights
    return PlannedRegion(plan, tensors, numbers, orders, original)


def _order(made: torch.Tensor) -> list[int]:
    """Return a result's dimensions in the order in which they lie in memory, innermost last."""
    known = [hint_of(stride) or 0 for stride in made.stride()]
    dims = list(range(made.dim()))
    if not all(known):  # repeated elements, or nobody knows
        return dims
    return sorted(dims, key=lambda dim: -known[dim])


def _copy_attribute(source: nn.Module, target: nn.Module, path: str) -> None:
    """Give a module what another one holds under a path."""
    *parents, last = path.split(".")
    for name in parents:
        source = getattr(source, name)
        if not hasattr(target, name):
            target.add_module(name, nn.Module())
        target = getattr(target, name)
    held = getattr(source, last)
    if isinstance(held, torch.Tensor) and not isinstance(held, nn.Parameter):
        target.register_buffer(last, held)
    else:
        setattr(target, last, held)
