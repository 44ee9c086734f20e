"""Lets the plans of a program release large weights.

What runs in the place of plans reads these weights from them, so that nobody else holds any.
"""

from __future__ import annotations

import operator
from typing import Any

from torch import Tensor, fx, nn
from torch.backends.zendnn.frontends.constants import is_large, place_of, without_gradient
from torch.backends.zendnn.frontends.fx.reader import attribute, output_of
from torch.backends.zendnn.frontends.fx.writer import PlannedRegion

#: By the place of a constant, a region whose plan has it, and its number there.
Known = dict[tuple[object, ...], tuple[PlannedRegion, int]]


class PlanConstants(nn.Module):
    """Returns all constants of a plan."""

    def __init__(self, plan: Any) -> None:
        super().__init__()
        self.plan = plan

    def forward(self) -> list[Tensor]:
        """Return them; those that the plan has released are unpacked."""
        constants: list[Tensor] = self.plan.operands()
        return constants


def read_from_plans(planned: fx.GraphModule, captured: fx.GraphModule) -> None:
    """Let the regions' own operators, and ``captured``, read large constants from the plans.

    Args:
        planned: a graph with calls of plans.
        captured: the graph that it was made from. Like plans, it gives its weights no gradients.
    """
    regions = [module for module in planned.modules() if isinstance(module, PlannedRegion)]
    known: Known = {}
    for region in regions:
        for number, constant in enumerate(region.plan.constants()):
            if is_large(constant):
                known.setdefault(place_of(constant), (region, number))
    for module in (captured, *(region.original for region in regions)):
        _read_from_plans(module, known)
    for node in captured.graph.find_nodes(op="get_attr"):
        parent, name = _parent_of(captured, node)
        setattr(parent, name, without_gradient(getattr(parent, name)))


def _read_from_plans(module: fx.GraphModule, known: Known) -> None:
    graph = module.graph
    order = {node: number for number, node in enumerate(graph.nodes)}
    reads: dict[PlannedRegion, list[tuple[fx.Node, int]]] = {}
    for node in graph.find_nodes(op="get_attr"):
        held = attribute(module, node)
        if is_large(held) and (place := place_of(held)) in known:
            region, number = known[place]
            reads.setdefault(region, []).append((node, number))
    places = {_parent_of(module, node) for nodes in reads.values() for node, _ in nodes}
    for region, nodes in reads.items():
        name = _free_name(module)
        setattr(module, name, PlanConstants(region.plan))
        # Reading unpacks, so it comes after the checks of inputs, with the first operator.
        readers = (reader for node, _ in nodes for reader in node.users)
        first = min(readers, key=order.__getitem__, default=output_of(graph))
        with graph.inserting_before(first):
            constants = graph.call_module(name)
            for node, number in nodes:
                constant = graph.call_function(operator.getitem, (constants, number))
                constant.meta = dict(node.meta)
                node.replace_all_uses_with(constant)
                graph.erase_node(node)
    for parent, name in places:
        delattr(parent, name)
    if reads:
        module.recompile()


def _free_name(module: nn.Module) -> str:
    number = 0
    while hasattr(module, f"zendnn_constants_{number}"):
        number += 1
    return f"zendnn_constants_{number}"


def _parent_of(module: nn.Module, node: fx.Node) -> tuple[nn.Module, str]:
    """Return the submodule that holds what a node reads, and the name there."""
    parent, _, name = str(node.target).rpartition(".")
    return module.get_submodule(parent), name
