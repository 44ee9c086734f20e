"""The TorchScript front end: frozen modules come in, calls of plans go out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.backends.zendnn import _C, frontends, passes
from torch.backends.zendnn.frontends import Optimized, count_left_out
from torch.backends.zendnn.frontends.schedule import Schedule, Unproven, schedule
from torch.backends.zendnn.frontends.torchscript.aliases import STRUCTURE, Aliases
from torch.backends.zendnn.frontends.torchscript.blocks import (
    TorchBlock,
    TorchGraph,
    blocks_below,
    outer_block,
)
from torch.backends.zendnn.frontends.torchscript.calls import TorchValue
from torch.backends.zendnn.frontends.torchscript.mutation import remove_dropout, remove_mutation
from torch.backends.zendnn.frontends.torchscript.reader import (
    Facts,
    import_block,
)
from torch.backends.zendnn.frontends.torchscript.writer import (
    Emitter,
    MakePlan,
    TorchModule,
    type_of,
)
from torch.backends.zendnn.ir.graph import Graph, may_share
from torch.backends.zendnn.passes import partition

#: The name of a module's attribute for the operators that were left out of a method, and why.
LEFT_OUT_ATTRIBUTE = "_zendnn_left_out_{method}"
_TEXT = torch._C.StringType.get()
_PAIRS = torch._C.ListType(torch._C.TupleType([_TEXT, _TEXT]))


def make_plan(description: str, constants: list[torch.Tensor], name: str) -> Any:
    """Return the plan that C++ makes of a region."""
    return torch.classes.zendnn.Plan(description, constants, name)


def optimize(model: object, method_names: Sequence[str], make_plan: MakePlan = make_plan) -> None:
    """Move what the engine takes of a frozen module's methods into plans, in place.

    The module changes when all is ready: an error on the way leaves it as it was.
    """
    module = module_of(model)
    for name, graph, attributes in [rewrite(module, name, make_plan) for name in method_names]:
        for attribute, (type_, value) in attributes.items():
            module._register_attribute(attribute, type_, value)
        _C._set_graph(module, name, graph)


def rewrite(
    module: TorchModule, name: str, make_plan: MakePlan
) -> tuple[str, TorchGraph, dict[str, tuple[Any, Any]]]:
    """Return what becomes of a method: its graph, with calls of plans, and attributes to set."""
    graph: TorchGraph = module._get_method(name).graph.copy()
    simplify(graph)
    facts = Facts.of(graph)
    emitter = Emitter(module, name, graph, make_plan)
    graphs = []
    for block in list(blocks_below(outer_block(graph))):
        planned = plan_block(block, facts)
        graphs.append(planned.imported.graph)
        emitter.emit(block, planned)
    torch._C._jit_pass_dce(graph)
    graph.lint()
    attributes = {key: (type_of(plan), plan) for key, plan in emitter.plans.items()}
    attributes[LEFT_OUT_ATTRIBUTE.format(method=name)] = _PAIRS, left_out(graphs)
    for each in graphs:
        each.forget_constants()
    return name, graph, attributes


def plan_block(block: TorchBlock, facts: Facts) -> Schedule:
    """Return what is to become of one block; without states where they cannot be followed."""
    try:
        imported = import_block(block, facts)
        passes.run(imported.graph)
        if late := imported.graph.late_reader(may_share):
            raise Unproven(f"{late.op} reads what has been overwritten")
        return schedule(imported, partition.partition(imported.graph))
    except Unproven:
        return plan_block(block, replace(facts, states=None))


def simplify(graph: TorchGraph) -> None:
    """Make operators of their in-place twins where nobody can tell, and join equal ones."""
    remove_dropout(graph)
    aliases = Aliases(graph)
    # Passes of torch's that do not see a write would read too early or too late.
    hides = aliases.hides_writes()
    if not hides:
        remove_mutation(graph, aliases)
    torch._C._jit_pass_constant_propagation(graph)
    if not hides:
        torch._C._jit_pass_cse(graph)
    torch._C._jit_pass_dce(graph)


# What an optimised module says about itself.

#: What ``frontends.FrontEnd`` asks for.
TAKES = "a torch.jit.ScriptModule, such as torch.jit.optimize_for_inference returns"
HOW_TO_OPTIMIZE = "torch.jit.optimize_for_inference makes plans, while ZenDNN is enabled"


def takes(model: object) -> bool:
    """Return whether a model is a TorchScript module, as users or as torch's own passes hold it."""
    return isinstance(model, torch.jit.ScriptModule | torch._C.ScriptModule)


def module_of(model: Any) -> TorchModule:
    """Return the module that all functions here work on."""
    return model._c if isinstance(model, torch.jit.ScriptModule) else model


def optimized(model: object) -> list[Optimized]:
    """Return the methods that ``optimize`` has seen, or that call plans of submodules."""
    module = module_of(model)
    found = []
    for name in module._method_names():
        method_plans = tuple(plans(module, name))
        attribute = LEFT_OUT_ATTRIBUTE.format(method=name)
        noted = None
        if module.hasattr(attribute):
            noted = count_left_out(module.getattr(attribute))
        if method_plans or noted is not None:
            found.append(Optimized(name, method_plans, noted))
    return found


def plans(module: TorchModule, method: str = "forward") -> list[Any]:
    """Return the plans that a method calls, those of submodules too, in the order of the calls."""
    graph = module._get_method(method).inlined_graph
    calls = graph.findAllNodes("zendnn::takes")
    found = {node.inputsAt(0).unique(): node.inputsAt(0) for node in calls}
    return [held_by(module, value) for value in found.values()]


def held_by(module: TorchModule, value: TorchValue) -> Any:
    """Return what a value of a method's graph is: an attribute, a constant or the module itself."""
    node = value.node()
    if node.kind() == "prim::GetAttr":
        return held_by(module, node.inputsAt(0)).getattr(node.s("name"))
    return module if node.kind() == "prim::Param" else value.toIValue()


def left_out(graphs: Iterable[Graph]) -> list[tuple[str, str]]:
    """Return each operator that stays outside of plans and says why."""
    return [(op, why) for op, why, _ in frontends.left_out(graphs, STRUCTURE)]
