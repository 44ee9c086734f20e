"""Programs whose weights only their plans hold."""

from __future__ import annotations

import operator
from typing import Any

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
        constants: list[Tensor] = self.plan.operands()
        return constants


def hold_in_plans(planned: fx.GraphModule, captured: fx.GraphModule) -> None:
    """Let what runs in the place of plans read their large constants from them.

    Args:
        planned: a graph with calls of plans.
        captured: the graph that it was made from. Like plans, it gives its weights no gradients.
    """
    regions = [module for module in planned.modules() if isinstance(module, PlannedRegion)]
    known: Known = {}
    for region in regions:
        for number, constant in enumerate(region.plan.constants()):
            if is_large(constant):
                known.setdefault(place_of(constant), (region.plan, number))
    for module in (captured, *(region.original for region in regions)):
        _read_from_plans(module, known)
    for node in captured.graph.find_nodes(op="get_attr"):
        if isinstance(held := attribute(captured, node), nn.Parameter):
            parent, name = _parent_of(captured, node)
            setattr(parent, name, nn.Parameter(held.detach(), requires_grad=False))


def _read_from_plans(module: fx.GraphModule, known: Known) -> None:
    graph = module.graph
    order = {node: number for number, node in enumerate(graph.nodes)}
    by_plan: dict[int, list[tuple[fx.Node, Any, int]]] = {}
    for node in graph.find_nodes(op="get_attr"):
        held = attribute(module, node)
        if is_large(held) and (place := place_of(held)) in known:
            plan, number = known[place]
            by_plan.setdefault(id(plan), []).append((node, plan, number))
    places = {_parent_of(module, node): None for reads in by_plan.values() for node, _, _ in reads}
    for reads in by_plan.values():
        name = _free_name(module)
        setattr(module, name, PlanConstants(reads[0][1]))
        # Behind checks of the inputs, since reading unpacks.
        readers = {reader for node, _, _ in reads for reader in node.users}
        with graph.inserting_before(min(readers, key=order.__getitem__)):
            constants = graph.call_module(name)
            for node, _, number in reads:
                constant = graph.call_function(operator.getitem, (constants, number))
                constant.meta = dict(node.meta)
                node.replace_all_uses_with(constant)
                graph.erase_node(node)
    for parent, name in places:
        delattr(parent, name)
    if by_plan:
        module.recompile()


def _free_name(module: nn.Module) -> str:
    number = 0
    while hasattr(module, f"zendnn_constants_{number}"):
        number += 1
    return f"zendnn_constants_{number}"


def _parent_of(module: nn.Module, node: fx.Node) -> tuple[nn.Module, str]:
    """Return the submodule that holds what a node reads, and the name there."""
    *parents, name = str(node.target).split(".")
    return module.get_submodule(".".join(parents)), name
