"""Writes TorchScript: in the place of each region a method gets a guarded call of a plan.

    %ok : bool = zendnn::takes(%plan, %tensors, %numbers)
    %out : Tensor = prim::If(%ok)
      block0():
        %list : Tensor[] = zendnn::run(%plan, %tensors, %numbers)
        %a : Tensor = prim::ListUnpack(%list)
        -> (%a)
      block1():
        %constants : Tensor[] = zendnn::constants(%plan)
        ... the operators that the region was made from
        -> (%b)

The plan is an attribute of the module, so that saving and copying keep it. Large constants are read
from it where the operators have the same ones: the plan can release what nobody else holds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.backends.zendnn import _settings, passes
from torch.backends.zendnn.frontends.constants import is_large, place_of
from torch.backends.zendnn.frontends.schedule import Schedule
from torch.backends.zendnn.frontends.torchscript.blocks import (
    TorchBlock,
    TorchGraph,
    captured,
)
from torch.backends.zendnn.frontends.torchscript.calls import TorchNode, TorchValue
from torch.backends.zendnn.ir.graph import Region
from torch.backends.zendnn.ir.text import describe

#: ``torch._C.ScriptModule``.
TorchModule = Any

MakePlan = Callable[[str, list[torch.Tensor], str], Any]

#: The name of a module's attribute for a plan, by method and number.
PLAN_ATTRIBUTE = "_zendnn_plan_{method}_{number}"

BOOL, INTEGER = torch._C.BoolType.get(), torch._C.IntType.get()
TENSOR = torch._C.TensorType.get()
TENSORS, INTEGERS = torch._C.ListType(TENSOR), torch._C.ListType(INTEGER)


class Emitter:
    """Makes plans and writes their calls into the graph of one method of a module."""

    def __init__(
        self, module: TorchModule, method: str, graph: TorchGraph, make_plan: MakePlan
    ) -> None:
        self.graph = graph
        self.make_plan = make_plan
        #: The plans by the names of the attributes that the graph reads them from.
        self.plans: dict[str, Any] = {}
        numbered = (PLAN_ATTRIBUTE.format(method=method, number=n) for n in itertools.count())
        self._free_names = (name for name in numbered if not module.hasattr(name))
        #: The results of calls, by the ``unique()`` of the value that each replaces.
        self._current: dict[int, TorchValue] = {}

    def emit(self, block: TorchBlock, schedule: Schedule) -> None:
        """Rewrite a block."""
        for item in schedule.order:
            if item.region is None:
                item.nodes[0].moveBefore(block.returnNode())
            else:
                outputs = schedule.outputs[item.region].values()
                self._call(block, replace(item.region, outputs=tuple(outputs)), item.nodes)
        for node in reversed(schedule.imported.nodes):
            if node not in schedule.kept and node not in schedule.imported.opaque:
                assert not node.hasUses(), f"{node.kind()} is still read"
                node.destroy()

    def _call(self, block: TorchBlock, region: Region, fallback: Sequence[TorchNode]) -> None:
        """Append the call of a region's plan to a block."""
        read = [(v.kind, self._current.get(v.source.unique(), v.source)) for v in region.inputs]
        tensors = [value for kind, value in read if kind == "tensor"]
        numbers = [self._integer(block, value) for kind, value in read if kind == "number"]
        plan, constants = self._plan(region)
        operands = [
            plan,
            self._append(block, "prim::ListConstruct", tensors, TENSORS).output(),
            self._append(block, "prim::ListConstruct", numbers, INTEGERS).output(),
        ]
        wanted = [value.source for value in region.outputs]
        types = [TENSOR] * len(wanted)
        takes = self._append(block, "zendnn::takes", operands, BOOL).output()
        branch = self._append(block, "prim::If", [takes], *types)
        call, otherwise = branch.addBlock(), branch.addBlock()
        # Where a plan writes, its operators cannot be run beside it: they would write, too.
        writes = any(node.writes for node in region.nodes)
        result = self._append(call, f"zendnn::{'update' if writes else 'run'}", operands, TENSORS)
        if _settings.word("ZENDNN_VERIFY") == "1" and not writes:
            result = self._verified(call, [*operands, result.output()], constants, fallback, wanted)
        for value in self._append(call, "prim::ListUnpack", [result.output()], *types).outputs():
            call.registerOutput(value)
        known = self._constants(otherwise, plan, constants, fallback)
        for value in self._clone(otherwise, fallback, wanted, known):
            otherwise.registerOutput(value)
        for old, new in zip(wanted, branch.outputs(), strict=True):
            name = old.debugName()
            old.replaceAllUsesWith(new)
            if not name.isdigit():
                new.setDebugName(name)
            self._current[old.unique()] = new

    def _plan(self, region: Region) -> tuple[TorchValue, list[torch.Tensor]]:
        """Make a plan and return its value in the graph, and its constants."""
        name = next(self._free_names)
        description, constants = describe(region, passes.off_in_plans(), passes.tuning_budget())
        plan = self.make_plan(description, constants, name)
        self.plans[name] = plan
        (owner, *_) = self.graph.inputs()
        node = self.graph.create("prim::GetAttr", [owner], 1)
        node.s_("name", name)
        node.output().setType(type_of(plan))
        self.graph.prependNode(node)
        return node.output(), constants

    def _constants(
        self,
        block: TorchBlock,
        plan: TorchValue,
        constants: Sequence[torch.Tensor],
        nodes: Sequence[TorchNode],
    ) -> dict[int, TorchValue]:
        """Append to a block what reads a plan's constants.

        Return those that nodes read as constants of the graph, by the ``unique()`` of these.
        """
        positions = {place_of(constant): i for i, constant in enumerate(constants)}
        read = {value.unique(): value for node in nodes for value in captured(node)}
        large = {key: held for key, value in read.items() if (held := _large(value)) is not None}
        found = {
            key: positions[place]
            for key, held in large.items()
            if (place := place_of(held)) in positions
        }
        if not found:
            return {}
        result = self._append(block, "zendnn::constants", [plan], TENSORS)
        types = [TENSOR] * len(constants)
        values = list(self._append(block, "prim::ListUnpack", [result.output()], *types).outputs())
        return {key: values[position] for key, position in found.items()}

    def _verified(
        self,
        block: TorchBlock,
        operands: list[TorchValue],
        constants: Sequence[torch.Tensor],
        fallback: Sequence[TorchNode],
        wanted: Sequence[TorchValue],
    ) -> TorchNode:
        """Return what a plan made, the last operand, or, where that is due, what torch makes."""
        due = self._append(block, "zendnn::is_due", operands[:-1], BOOL).output()
        branch = self._append(block, "prim::If", [due], TENSORS)
        compared, kept = branch.addBlock(), branch.addBlock()
        known = self._constants(compared, operands[0], constants, fallback)
        values = self._clone(compared, fallback, wanted, known)
        original = self._append(compared, "prim::ListConstruct", values, TENSORS).output()
        both = [*operands, original]
        compared.registerOutput(self._append(compared, "zendnn::verified", both, TENSORS).output())
        kept.registerOutput(operands[-1])
        return branch

    def _clone(
        self,
        block: TorchBlock,
        nodes: Sequence[TorchNode],
        wanted: Sequence[TorchValue],
        known: Mapping[int, TorchValue],
    ) -> list[TorchValue]:
        """Append clones of nodes to a block, and return what they make of some values.

        ``known`` are values that the clones read instead of others.
        """
        clones = dict(known)
        for node in nodes:
            clone = self.graph.createClone(node, lambda value: clones.get(value.unique(), value))
            clone.insertBefore(block.returnNode())
            for old, new in zip(node.outputs(), clone.outputs(), strict=True):
                clones[old.unique()] = new
        return [clones[value.unique()] for value in wanted]

    def _integer(self, block: TorchBlock, value: TorchValue) -> TorchValue:
        """Return a number as an int, which traced graphs may keep in a tensor."""
        is_integer = value.type().kind() == "IntType"
        return value if is_integer else self._append(block, "aten::Int", [value], INTEGER).output()

    def _append(
        self, block: TorchBlock, kind: str, inputs: Sequence[TorchValue], *types: Any
    ) -> TorchNode:
        """Append a node that makes values of these types to a block."""
        node = self.graph.create(kind, list(inputs), len(types))
        for value, type_ in zip(node.outputs(), types, strict=True):
            value.setType(type_)
        node.insertBefore(block.returnNode())
        return node


def _large(value: TorchValue) -> torch.Tensor | None:
    """Return the tensor that a value is, if it is a large constant."""
    if value.node().kind() != "prim::Constant":
        return None
    held = value.toIValue()
    return held if is_large(held) else None


def type_of(thing: Any) -> Any:
    """Return TorchScript's type of a thing."""
    return torch._C._jit_try_infer_type(thing).type()
