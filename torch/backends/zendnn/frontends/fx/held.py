"""Programs whose weights only their plans hold."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.backends.zendnn.frontends.constants import is_large, place_of
from torch.backends.zendnn.frontends.fx.reader import attribute
from torch.backends.zendnn.frontends.fx.writer import PlannedRegion

#: By the place of a constant, a plan that has it, and its number there.
Known = dict[tuple[object, ...], tuple[Any, int]]


class PlanConstants(nn.Module):
    """Returns all constants of a plan."""

    def __init__(self, plan: Any) -> None:
        super().__init__()
        self.plan = plan

    def forward(self) -> list[Tensor]:
        """Return them; those that the plan has released are unpacked."""
        constants: list[Tensor] = torch.ops.zendnn.constants(self.plan)
        return constants


def hold_in_plans(planned: fx.GraphModule, captured: fx.GraphModule) -> None:
    """Let what runs in the place of plans read their large constants from them.

    Args:
        planned: a graph with calls of plans.
        captured: the graph that it was made from.
    """
    regions = [module for module in planned.modules() if isinstance(module, PlannedRegion)]
    known: Known = {}
    for region in regions:
        for number, constant in enumerate(region.plan.constants()):
            if is_large(constant):
                known.setdefault(place_of(constant), (region.plan, number))
    for module in (captured, *(region.original for region in regions)):
        _read_from_plans(module, known)


def _read_from_plans(module: fx.GraphModule, known: Known) -> None:
    graph = module.graph
    first = next(iter(graph.nodes))
    lists: dict[int, fx.Node] = {}  # by the plan
    replaced = set()
    for node in graph.find_nodes(op="get_attr"):
        held = attribute(module, node)
        if not is_large(held) or (place := place_of(held)) not in known:
            continue
        plan, number = known[place]
        if id(plan) not in lists:
            name = f"zendnn_constants_{len(lists)}"
            setattr(module, name, PlanConstants(plan))
            with graph.inserting_before(first):
                lists[id(plan)] = graph.call_module(name)
        with graph.inserting_before(node):
            constant = graph.call_function(operator.getitem, (lists[id(plan)], number))
        constant.meta = dict(node.meta)
        node.replace_all_uses_with(constant)
        replaced.add(str(node.target))
        graph.erase_node(node)
    for path in replaced:
        *parents, last = path.split(".")
        delattr(module.get_submodule(".".join(parents)), last)
    if replaced:
        module.recompile()
