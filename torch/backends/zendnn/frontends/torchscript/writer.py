"""Writes TorchScript: in the place of each region a method gets a guarded call of a plan.

    %ok : bool = zendnn::takes(%plan, %tensors, %numbers)
    %out : Tensor = prim::If(%ok)
      block0():
        %list : Tensor[] = zendnn::run(%plan, %tensors, %numbers)
        %a : Tensor = prim::ListUnpack(%list)
        -> (%a)
      block1():
        ... the operators that the region was made from
        -> (%b)

The plan is an attribute of the module, so that saving and copying keep it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.backends.zendnn import passes
from torch.backends.zendnn.frontends.torchscript.blocks import TorchBlock, TorchGraph
from torch.backends.zendnn.frontends.torchscript.calls import TorchNode, TorchValue
from torch.backends.zendnn.frontends.torchscript.schedule import Schedule
from torch.backends.zendnn.graph import Region

#: ``torch._C.ScriptModule``.
TorchModule = Any

MakePlan = Callable[[str, list[torch.Tensor], str], Any]

#: The name of a module's attribute for a plan, by method and number.
PLAN_ATTRIBUTE = "_zendnn_plan_{method}_{number}"


class Emitter:
    """Makes plans and writes their calls into the graph of one method of a module."""

    def __init__(
        self, module: TorchModule, method: str, graph: TorchGraph, make_plan: MakePlan
    ) -> None:
        self.module = module
        self.method = method
        self.graph = graph
        self.make_plan = make_plan
        self.made: list[tuple[str, Region]] = []
        #: The plans by the names of the attributes that the graph reads them from.
        self.plans: dict[str, Any] = {}
        self._number = 0

    def emit(self, schedule: Schedule) -> None:
        """Rewrite a block."""
        end = schedule.imported.block.returnNode()
        current: dict[int, TorchValue] = {}
        for item in schedule.order:
            if item.node is not None:
                item.node.moveBefore(end)
            elif item.region is not None:
                outputs = list(schedule.outputs[item.region].values())
                region = Region(item.region.nodes, item.region.inputs, tuple(outputs))
                self._call(region, item.fallback, current, end)
        for node in reversed(schedule.imported.nodes):
            if node not in schedule.kept and node not in schedule.imported.opaque:
                assert not node.hasUses(), f"{node.kind()} is still read"
                node.destroy()

    def _call(
        self,
        region: Region,
        fallback: Sequence[TorchNode],
        current: dict[int, TorchValue],
        end: TorchNode,
    ) -> None:
        plan = self._plan(region)
        sources = {
            kind: [
                current.get(v.source.unique(), v.source) for v in region.inputs if v.kind == kind
            ]
            for kind in ("tensor", "number")
        }
        tensors = self._node("prim::ListConstruct", sources["tensor"], [TENSORS], end).output()
        integers = [self._integer(value, end) for value in sources["number"]]
        numbers = self._node("prim::ListConstruct", integers, [INTEGERS], end).output()
        operands = [plan, tensors, numbers]
        takes = self._node("zendnn::takes", operands, [torch._C.BoolType.get()], end)
        wanted = [value.source for value in region.outputs]
        branch = self._node("prim::If", [takes.output()], [TENSOR] * len(wanted), end)
        writes = any(node.writes for node in region.nodes)
        self._fill_call(branch.addBlock(), operands, fallback, wanted, writes=writes)
        self._fill_fallback(branch.addBlock(), fallback, wanted)
        for old, new in zip(wanted, branch.outputs(), strict=True):
            name = old.debugName()
            old.replaceAllUsesWith(new)
            if not name.isdigit():
                new.setDebugName(name)
            current[old.unique()] = new

    def _plan(self, region: Region) -> TorchValue:
        """Make a plan and return its value in the graph."""
        name = self._free_name()
        description, constants = region.describe(passes.off_in_plans())
        plan = self.make_plan(description, constants, name)
        self.made.append((name, region))
        self.plans[name] = plan
        (owner, *_) = self.graph.inputs()
        node = self.graph.create("prim::GetAttr", [owner], 1)
        node.s_("name", name)
        node.output().setType(type_of(plan))
        self.graph.prependNode(node)
        return node.output()

    def _free_name(self) -> str:
        while True:
            name = PLAN_ATTRIBUTE.format(method=self.method, number=self._number)
            self._number += 1
            if not self.module.hasattr(name):
                return name

    def _fill_call(
        self,
        block: TorchBlock,
        operands: list[TorchValue],
        fallback: Sequence[TorchNode],
        wanted: Sequence[TorchValue],
        *,
        writes: bool,
    ) -> None:
        end = block.returnNode()
        # Where a plan writes, its operators cannot be run beside it: they would write, too.
        kind = "zendnn::update" if writes else "zendnn::run"
        made = self._node(kind, operands, [TENSORS], end).output()
        if os.environ.get("ZENDNN_VERIFY") == "1" and not writes:
            made = self._verified(made, operands, fallback, wanted, end)
        results = self._node("prim::ListUnpack", [made], [TENSOR] * len(wanted), end)
        for value in results.outputs():
            block.registerOutput(value)

    def _verified(
        self,
        made: TorchValue,
        operands: list[TorchValue],
        fallback: Sequence[TorchNode],
        wanted: Sequence[TorchValue],
        end: TorchNode,
    ) -> TorchValue:
        """Return what a plan made, or, where that is due, what its operators make."""
        due = self._node("zendnn::is_due", operands, [torch._C.BoolType.get()], end)
        branch = self._node("prim::If", [due.output()], [TENSORS], end)
        compared, kept = branch.addBlock(), branch.addBlock()
        last = compared.returnNode()
        original = self._node(
            "prim::ListConstruct", self._clone(fallback, wanted, last), [TENSORS], last
        )
        both = [*operands, made, original.output()]
        compared.registerOutput(self._node("zendnn::verified", both, [TENSORS], last).output())
        kept.registerOutput(made)
        return branch.output()

    def _fill_fallback(
        self, block: TorchBlock, nodes: Sequence[TorchNode], wanted: Sequence[TorchValue]
    ) -> None:
        for value in self._clone(nodes, wanted, block.returnNode()):
            block.registerOutput(value)

    def _clone(
        self, nodes: Sequence[TorchNode], wanted: Sequence[TorchValue], before: TorchNode
    ) -> list[TorchValue]:
        """Clone nodes, and return what the clones make of some values."""
        clones: dict[int, TorchValue] = {}
        for node in nodes:
            clone = self.graph.createClone(node, lambda value: clones.get(value.unique(), value))
            clone.insertBefore(before)
            for old, new in zip(node.outputs(), clone.outputs(), strict=True):
                clones[old.unique()] = new
        return [clones[value.unique()] for value in wanted]

    def _integer(self, value: TorchValue, end: TorchNode) -> TorchValue:
        """Return a number as an int, which traced graphs may keep in a tensor."""
        if value.type().kind() == "IntType":
            return value
        return self._node("aten::Int", [value], [torch._C.IntType.get()], end).output()

    def _node(
        self, kind: str, inputs: Sequence[TorchValue], types: Sequence[Any], before: TorchNode
    ) -> TorchNode:
        node = self.graph.create(kind, list(inputs), len(types))
        for value, type_ in zip(node.outputs(), types, strict=True):
            value.setType(type_)
        node.insertBefore(before)
        return node


TENSOR = torch._C.TensorType.get()
TENSORS = torch._C.ListType(TENSOR)
INTEGERS = torch._C.ListType(torch._C.IntType.get())


def type_of(thing: Any) -> Any:
    """Return TorchScript's type of a thing."""
    return torch._C._jit_try_infer_type(thing).type()
