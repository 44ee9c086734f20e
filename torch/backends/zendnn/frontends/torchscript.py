"""The TorchScript front end: frozen modules come in, calls of plans go out.

Each block of a method's graph is imported as a graph of its own. What the engine takes becomes its
nodes, all else an opaque node that keeps its reason. Passes and the partition then say which nodes
are one region, and in the place of each region the method gets

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

import heapq
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

import torch
from torch.backends.zendnn import _C, passes
from torch.backends.zendnn.frontends import LeftOut, Optimized
from torch.backends.zendnn.frontends.torchscript_dtypes import whole_values
from torch.backends.zendnn.frontends.torchscript_ops import (
    OPERATORS,
    Call,
    Refused,
    Scope,
    TorchNode,
    TorchValue,
    kind_of,
    operator_name,
)
from torch.backends.zendnn.graph import OPAQUE, Graph, Region, Value, replace_node
from torch.backends.zendnn.passes import partition

#: ``torch._C.Block``, ``Graph`` and ``ScriptModule``; torch's stubs know too little of them.
TorchBlock = Any
TorchGraph = Any
TorchModule = Any

MakePlan = Callable[[str, list[torch.Tensor], str], Any]

#: Names of the module's attributes: plans, by method and number; and what was left out, by method.
PLAN_ATTRIBUTE = "_zendnn_plan_{method}_{number}"
LEFT_OUT_ATTRIBUTE = "_zendnn_left_out_{method}"

#: Builds and takes apart what others read; nobody needs to hear that the engine does not take it.
STRUCTURE = frozenset(
    {
        *("prim::ListConstruct", "prim::TupleConstruct", "prim::DictConstruct"),
        *("prim::ListUnpack", "prim::TupleUnpack", "prim::TupleIndex", "prim::GetAttr"),
    }
)
#: Operators of these kinds only look at what they are given, unless a schema says otherwise.
PURE_PRIMS = STRUCTURE | {
    *("prim::ConstantChunk", "prim::NumToTensor", "prim::dtype", "prim::device", "prim::shape"),
    *("prim::layout", "prim::unchecked_cast", "prim::Uninitialized", "prim::isinstance"),
    *("prim::min", "prim::max", "prim::is_nested", "prim::AutogradZero", "prim::unchecked_unwrap"),
}
CONTROL = frozenset({"prim::If", "prim::Loop"})
EFFECTS = frozenset({"aten::warn", "aten::save", "aten::manual_seed", "aten::wait"})


@dataclass
class MethodReport:
    """What became of one method."""

    method: str
    regions: list[tuple[str, Region]] = field(default_factory=list)
    left_out: tuple[LeftOut, ...] = ()


@dataclass
class Imported:
    """A block as the engine sees it."""

    block: TorchBlock
    scope: Scope
    #: The block's TorchScript nodes in order, without constants.
    nodes: list[TorchNode]
    #: Those that are not imported, and whether they are ordered.
    opaque: dict[TorchNode, bool]
    #: What wrote to a value, by ``unique()``, before others read it.
    settled: dict[int, tuple[TorchNode, ...]] = field(default_factory=dict)

    @property
    def graph(self) -> Graph:
        """The engine's graph."""
        return self.scope.graph

    def settle(self, value: TorchValue, writers: tuple[TorchNode, ...]) -> None:
        """Make a value one that is there when all that writes to it has run, in order."""
        if value.unique() in self.settled or value.unique() in self.scope.lists:
            return  # of a list that is looked through, the elements are settled
        before = self.scope.operand(value)
        if not isinstance(before, Value):
            return  # a constant list, which only seems to share what is written to
        self.settled[value.unique()] = writers
        after = self.graph.value(before.kind, value)
        self.graph.add(OPAQUE, [before], outputs=[after], ordered=True)
        self.scope.operands[value.unique()] = after
        self.scope.learn_type(after)


# Import.


def import_graph(graph: TorchGraph) -> Graph:
    """Return the engine's graph of a TorchScript graph's outermost block, which stays as it is."""
    return import_block(outer_block(graph), Facts.of(graph)).graph


def outer_block(graph: TorchGraph) -> TorchBlock:
    """Return the block that holds all others."""
    return graph.return_node().owningBlock()


def blocks_below(block: TorchBlock, *, of_calls: bool = False) -> Iterator[TorchBlock]:
    """Yield a block and the blocks inside it; those that an earlier run made if ``of_calls``."""
    yield block
    for node in list(block.nodes()):
        if of_calls or not is_guarded_call(node):
            for inner in node.blocks():
                yield from blocks_below(inner, of_calls=of_calls)


def is_guarded_call(node: TorchNode) -> bool:
    """Whether a node is a call of a plan with its fallback."""
    return node.kind() == "prim::If" and is_guard(node.inputsAt(0).node())


def is_guard(node: TorchNode) -> bool:
    """Whether a node asks a plan what it takes."""
    return bool(node.kind() == "zendnn::takes")


def written_values(graph: TorchGraph) -> frozenset[int]:
    """Return the values, by ``unique()``, that something in the graph may write to.

    So are lists and tuples that hold what is written.
    """
    aliases = graph.alias_db()
    targets = [target for node in outer_block(graph).nodes() for target in may_write(node)]
    written: set[int] = set()
    for block in blocks_below(outer_block(graph)):
        for value in (*block.inputs(), *(v for node in block.nodes() for v in node.outputs())):
            if aliases.has_writers(value) or (
                kind_of(value) == "other"
                and any(aliases.may_contain_alias(target, value) for target in targets)
            ):
                written.add(value.unique())
    return frozenset(written)


def captured(node: TorchNode) -> list[TorchValue]:
    """Return what a node reads: its inputs and what its blocks take from outside."""
    read = {value.unique(): value for value in node.inputs()}
    made: set[int] = set()
    for inner in node.blocks():
        for block in blocks_below(inner, of_calls=True):
            made.update(value.unique() for value in block.inputs())
            values = list(block.outputs())
            for member in block.nodes():
                made.update(value.unique() for value in member.outputs())
                values.extend(member.inputs())
            read.update((value.unique(), value) for value in values)
    return [value for key, value in read.items() if key not in made]


def may_write(node: TorchNode) -> list[TorchValue]:
    """Return what a node, or one inside it, may write to: what its schema says, or all it reads."""
    values = [v for block in node.blocks() for inner in block.nodes() for v in may_write(inner)]
    kind = node.kind()
    if "!" in node.schema() or not (kind.startswith("aten::") or kind in PURE_PRIMS | CONTROL):
        values += node.inputs()
    return values


def writers_of(graph: TorchGraph, written: frozenset[int]) -> dict[int, tuple[TorchNode, ...]]:
    """Return the nodes of the outermost block that may write to each of these values, in order."""
    aliases = graph.alias_db()
    nodes = list(outer_block(graph).nodes())
    writing = [(node, targets) for node in nodes if (targets := may_write(node))]
    values = [*graph.inputs(), *(value for node in nodes for value in node.outputs())]
    return {
        value.unique(): tuple(
            node
            for node, targets in writing
            if any(aliases.may_contain_alias(target, value) for target in targets)
        )
        for value in values
        if value.unique() in written
    }


@dataclass(frozen=True)
class Facts:
    """What is known about the values of a whole TorchScript graph, by ``unique()``."""

    #: What something in the graph may write to.
    written: frozenset[int]
    #: What of the outermost block does so.
    writers: dict[int, tuple[TorchNode, ...]]
    #: The order of the outermost block.
    position: dict[TorchNode, int]
    #: Tensors of integers or booleans.
    whole: frozenset[int]

    @staticmethod
    def of(graph: TorchGraph) -> Facts:
        """Find out; emission invalidates nothing of it."""
        nodes = [node for block in blocks_below(outer_block(graph)) for node in block.nodes()]
        written = written_values(graph)
        outer = outer_block(graph).nodes()
        return Facts(
            written,
            writers_of(graph, written),
            {node: position for position, node in enumerate(outer)},
            whole_values(nodes),
        )

    def may_change(self, value: TorchValue, node: TorchNode) -> bool:
        """Whether something may write to a value when a node runs, or later."""
        if value.unique() not in self.written:
            return False
        writers = self.writers.get(value.unique())
        if not writers or node not in self.position:
            return True
        return self.position[writers[-1]] >= self.position[node]


def import_block(block: TorchBlock, facts: Facts) -> Imported:
    """Return one block, imported; what it takes from outside are inputs of its graph."""
    scope = Scope(Graph(), facts.whole)
    imported = Imported(block, scope, [], {})
    for value in block.inputs():
        scope.operand(value)
    for node in block.nodes():
        if node.kind() == "prim::Constant":
            continue
        imported.nodes.append(node)
        reason = ordered_reason(node, facts)
        ordered = bool(reason)
        if not reason:
            # All that writes to what it reads comes before it, or it would be ordered; also where
            # the value itself, such as an attribute that is read again, is made after that.
            for value in node.inputs():
                if writers := facts.writers.get(value.unique()):
                    imported.settle(value, writers)
            reason = try_import(scope, node)
            # What is imported is not random with the arguments that it has.
            ordered = node.isNondeterministic()
        if reason:
            imported.opaque[node] = ordered
            add_opaque(scope, node, reason, ordered)
    results = (v for output in block.outputs() for v in scope.read(output))
    scope.graph.set_outputs([v for v in dict.fromkeys(results) if v.constant is None])
    scope.graph.remove_dead()
    return imported


def ordered_reason(node: TorchNode, facts: Facts) -> str:
    """Return why a node must stay in order with its kin, or nothing."""
    kind = node.kind()
    values = [*node.inputs(), *node.outputs()]
    if any(facts.may_change(value, node) for value in values):
        return "something writes to a tensor or list that it reads or makes"
    if list(node.blocks()):
        return "it is control flow"
    unknown = not kind.startswith(("aten::", "prim::"))
    if unknown or kind in EFFECTS or (kind.startswith("prim::") and kind not in PURE_PRIMS):
        return "it may have effects"
    return ""


def try_import(scope: Scope, node: TorchNode) -> str:
    """Import a node, or return why not."""
    name = operator_name(node)
    importer = OPERATORS.get(name)
    if importer is None:
        return "the engine has no such operator"
    try:
        importer(Call(scope, node))
    except Refused as refused:
        return str(refused)
    return ""


def add_opaque(scope: Scope, node: TorchNode, reason: str, ordered: bool) -> None:
    """Add a node that nobody but this front end understands."""
    inputs = dict.fromkeys(v for value in captured(node) for v in scope.read(value))
    made = [scope.graph.value(kind_of(value), value) for value in node.outputs()]
    scope.operands.update((value.source.unique(), value) for value in made)
    for value in made:
        scope.learn_type(value)
    origin = () if is_guard(node) or is_guarded_call(node) else (node.kind(),)
    scope.graph.add(
        OPAQUE,
        list(inputs),
        outputs=made,
        origin=origin,
        ordered=ordered,
        reason=reason,
        source=(node,),
    )


def left_out(graphs: Iterable[Graph]) -> tuple[LeftOut, ...]:
    """Return what stays outside of plans and says why, the most frequent first."""
    return counted(
        (op, node.reason)
        for graph in graphs
        for node in graph.nodes
        for op in node.origin
        if node.reason and op not in STRUCTURE
    )


def counted(pairs: Iterable[tuple[str, str]]) -> tuple[LeftOut, ...]:
    """Return operators and reasons with their numbers, the most frequent first."""
    counts = Counter(pairs).most_common()
    return tuple(LeftOut(op, reason, count) for (op, reason), count in counts)


# Emission.


class Unplaceable(Exception):
    """A region that cannot be put anywhere; its operators stay what they were."""

    def __init__(self, region: Region) -> None:
        super().__init__("the region has no place")
        self.region = region


@dataclass(eq=False)
class Item:
    """What is put in order: a TorchScript node that stays, or a region."""

    position: int
    reads: set[int]
    makes: set[int]
    node: TorchNode | None = None
    region: Region | None = None
    ordered: bool = False
    #: The nodes that the fallback of a region repeats, in order.
    fallback: list[TorchNode] = field(default_factory=list)


class Layout:
    """Where everything of a block goes: what stays, what becomes calls, and in which order.

    TorchScript values are named by ``unique()``.
    """

    def __init__(self, imported: Imported, regions: Sequence[Region]) -> None:
        self.imported = imported
        self.position = {node: index for index, node in enumerate(imported.nodes)}
        self.producers = {
            value.unique(): node for node in imported.nodes for value in node.outputs()
        }
        self.owner = {node: region for region in regions for node in region.nodes}
        self.engine = {
            value.source.unique(): value
            for node in imported.graph.nodes
            for value in node.outputs
            if value.source is not None and node in self.owner
        }
        self.outputs: dict[Region, dict[int, Value]] = {}
        for region in regions:
            self._check_sources(region)
            tensors = [value for value in region.outputs if value.kind == "tensor"]
            self.outputs[region] = {value.source.unique(): value for value in tensors}
        self.kept: set[TorchNode] = set()
        self._find_kept()
        self.order = self._in_order()

    @staticmethod
    def _check_sources(region: Region) -> None:
        """A region can only be cut off where TorchScript has values."""
        tensors = [value for value in region.outputs if value.kind == "tensor"]
        if not tensors or any(v.source is None for v in (*region.inputs, *region.outputs)):
            raise Unplaceable(region)

    def _find_kept(self) -> None:
        """Find the nodes that stay, and which tensors of regions they read.

        Numbers never leave a region: what others need of them is computed beside it, from tensors
        that then do.
        """
        needed = [value for node in self.imported.opaque for value in captured(node)]
        needed += self.imported.block.outputs()
        needed += [value.source for region in self.outputs for value in region.inputs]
        seen: set[int] = set()
        while needed:
            value = needed.pop()
            key = value.unique()
            node = self.producers.get(key)
            if key in seen or node is None or node in self.imported.opaque:
                continue
            seen.add(key)
            made = self.engine.get(key)
            if made is not None and made.kind == "tensor" and made.producer is not None:
                self.outputs[self.owner[made.producer]][key] = made
            else:
                self.kept.add(node)
                needed += node.inputs()

    def _item(self, node: TorchNode) -> Item:
        reads = {value.unique() for value in captured(node)}
        makes = {value.unique() for value in node.outputs()}
        ordered = self.imported.opaque.get(node, False)
        return Item(self.position[node], reads, makes, node=node, ordered=ordered)

    def _region_item(self, region: Region) -> Item:
        inputs = {value.source.unique() for value in region.inputs}
        fallback, reads = self._fallback(region, inputs)
        position = max((self.position[node] for node in fallback), default=0)
        makes = set(self.outputs[region])
        return Item(position, reads | inputs, makes, region=region, fallback=fallback)

    def _fallback(self, region: Region, inputs: set[int]) -> tuple[list[TorchNode], set[int]]:
        """Return the nodes between a region's inputs and its outputs, and what they read."""
        nodes: set[TorchNode] = set()
        reads: set[int] = set()
        pending = list(self.outputs[region])
        while pending:
            key = pending.pop()
            node = self.producers.get(key)
            if key in inputs or node is None or node in self.imported.opaque:
                reads.add(key)
            elif node not in nodes:
                nodes.add(node)
                pending += [value.unique() for value in node.inputs()]
        return sorted(nodes, key=self.position.__getitem__), reads

    def _in_order(self) -> list[Item]:
        """Return all items so that each comes after what it reads, else as they were."""
        items = [self._item(node) for node in {*self.imported.opaque, *self.kept}]
        items += [self._region_item(region) for region in self.outputs]
        items.sort(key=lambda item: item.position)
        makers = {key: item for item in items for key in item.makes}
        own = {item.node: item for item in items}
        waits: dict[Item, set[Item]] = {}
        for item in items:
            waits[item] = {makers[key] for key in item.reads if key in makers}
            if not item.ordered:
                written = item.reads & self.imported.settled.keys()
                waits[item] |= {own[node] for key in written for node in self.imported.settled[key]}
        ordered = [item for item in items if item.ordered]
        for before, after in itertools.pairwise(ordered):
            waits[after].add(before)
        return self._sorted(items, waits)

    @staticmethod
    def _sorted(items: list[Item], waits: dict[Item, set[Item]]) -> list[Item]:
        sorter = TopologicalSorter(waits)
        try:
            sorter.prepare()
        except CycleError as error:
            regions = [item.region for item in error.args[1] if item.region is not None]
            assert regions, "TorchScript's own order is circular"
            raise Unplaceable(regions[0]) from error
        rank = {item: index for index, item in enumerate(items)}
        ready: list[int] = []
        done: list[Item] = []
        while sorter.is_active():
            for item in sorter.get_ready():
                heapq.heappush(ready, rank[item])
            done.append(items[heapq.heappop(ready)])
            sorter.done(done[-1])
        return done


def lay_out(imported: Imported, regions: Sequence[Region]) -> Layout:
    """Return the layout of the regions that have a place."""
    remaining = list(regions)
    while True:
        try:
            return Layout(imported, remaining)
        except Unplaceable as error:
            remaining.remove(error.region)
            for node in error.region.nodes:
                replace_node(node, reason="its results cannot be handed over")


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

    def emit(self, layout: Layout) -> None:
        """Rewrite a block."""
        end = layout.imported.block.returnNode()
        current: dict[int, TorchValue] = {}
        for item in layout.order:
            if item.node is not None:
                item.node.moveBefore(end)
            elif item.region is not None:
                outputs = list(layout.outputs[item.region].values())
                region = Region(item.region.nodes, item.region.inputs, tuple(outputs))
                self._call(region, item.fallback, current, end)
        for node in reversed(layout.imported.nodes):
            if node not in layout.kept and node not in layout.imported.opaque:
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
        self._fill_call(branch.addBlock(), operands, fallback, wanted)
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
    ) -> None:
        end = block.returnNode()
        made = self._node("zendnn::run", operands, [TENSORS], end).output()
        if os.environ.get("ZENDNN_VERIFY") == "1":
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


# The whole.


def make_plan(description: str, constants: list[torch.Tensor], name: str) -> Any:
    """Return the plan that C++ makes of a region."""
    return torch.classes.zendnn.Plan(description, constants, name)


def type_of(thing: Any) -> Any:
    """Return TorchScript's type of a thing."""
    return torch._C._jit_try_infer_type(thing).type()


@dataclass
class Rewritten:
    """A method as it is to become."""

    graph: TorchGraph
    plans: dict[str, Any]
    report: MethodReport


def optimize(
    model: object,
    method_names: Sequence[str],
    make_plan: MakePlan = make_plan,
) -> list[MethodReport]:
    """Move what the engine takes of a frozen module's methods into plans, in place.

    The module changes when all is ready: an error on the way leaves it as it was.
    """
    module = module_of(model)
    rewritten = [rewrite(module, name, make_plan) for name in method_names]
    for method in rewritten:
        for name, plan in method.plans.items():
            module._register_attribute(name, type_of(plan), plan)
        _C._set_graph(module, method.report.method, method.graph)
        store_left_out(module, method.report)
    return [method.report for method in rewritten]


def rewrite(module: TorchModule, name: str, make_plan: MakePlan) -> Rewritten:
    """Return a method with calls of plans; the module stays as it is."""
    graph: TorchGraph = module._get_method(name).graph.copy()
    simplify(graph)
    facts = Facts.of(graph)
    emitter = Emitter(module, name, graph, make_plan)
    graphs = []
    for block in list(blocks_below(outer_block(graph))):
        imported = import_block(block, facts)
        graphs.append(imported.graph)
        passes.run(imported.graph)
        emitter.emit(lay_out(imported, partition.partition(imported.graph)))
    torch._C._jit_pass_dce(graph)
    graph.lint()
    report = MethodReport(name, emitter.made, left_out(graphs))
    return Rewritten(graph, emitter.plans, report)


def simplify(graph: TorchGraph) -> None:
    """Make operators of their in-place twins where nobody can tell, and join equal ones."""
    torch._C._jit_pass_remove_mutation(graph)
    torch._C._jit_pass_constant_propagation(graph)
    torch._C._jit_pass_cse(graph)
    torch._C._jit_pass_dce(graph)


def store_left_out(module: TorchModule, report: MethodReport) -> None:
    """Keep on the module what was left out and why, so that it can be explained later."""
    name = LEFT_OUT_ATTRIBUTE.format(method=report.method)
    pairs = [(item.op, item.reason) for item in report.left_out for _ in range(item.count)]
    if module.hasattr(name):
        module.setattr(name, pairs)
        return
    text = torch._C.StringType.get()
    pair_list = torch._C.ListType(torch._C.TupleType([text, text]))
    module._register_attribute(name, pair_list, pairs)


def reasons(module: TorchModule, method: str = "forward") -> list[tuple[str, str]]:
    """Return each operator of an optimised method that was left out, and why."""
    name = LEFT_OUT_ATTRIBUTE.format(method=method)
    if not module.hasattr(name):
        return []
    return [(op, reason) for op, reason in module.getattr(name)]


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
        method_plans, noted = tuple(plans(module, name)), None
        if module.hasattr(LEFT_OUT_ATTRIBUTE.format(method=name)):
            noted = counted(reasons(module, name))
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
