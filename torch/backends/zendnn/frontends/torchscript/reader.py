"""Reads TorchScript: each block of a method's graph becomes a graph of the engine.

What the importers take becomes nodes of the engine, everything else an opaque node with its reason.
Values that something writes to stay opaque, by torch's own alias analysis, until the last write;
not so where ``state.py`` knows what is written.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from torch.backends.zendnn.frontends.calls import Refused
from torch.backends.zendnn.frontends.torchscript.blocks import (
    TorchBlock,
    TorchGraph,
    blocks_below,
    captured,
    is_guard,
    is_guarded_call,
    outer_block,
)
from torch.backends.zendnn.frontends.torchscript.calls import (
    OPERATORS,
    Scope,
    TorchNode,
    TorchScriptCall,
    TorchValue,
    kind_of,
    operator_name,
)
from torch.backends.zendnn.frontends.torchscript.dtypes import whole_values
from torch.backends.zendnn.frontends.torchscript.state import (
    WRITES,
    States,
    Unproven,
    find_states,
    join_attributes,
)
from torch.backends.zendnn.graph import OPAQUE, Graph, Value

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
    #: What may share memory with a state, by ``unique()``.
    near_states: frozenset[int] = frozenset()

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
        self.scope.bind(value, after)


def import_graph(graph: TorchGraph) -> Graph:
    """Return the engine's graph of a TorchScript graph's outermost block, which stays as it is."""
    return import_block(outer_block(graph), Facts.of(graph)).graph


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
    #: What the outermost block writes to, where all of that is known.
    states: States | None = None

    @staticmethod
    def of(graph: TorchGraph) -> Facts:
        """Find out; emission invalidates nothing of it."""
        outermost = list(outer_block(graph).nodes())
        nodes = [node for block in blocks_below(outer_block(graph)) for node in block.nodes()]
        join_attributes(outermost, nodes)
        states = find_states(outermost, [node for node in outermost if may_write(node)])
        written = written_values(graph)
        return Facts(
            written,
            writers_of(graph, written),
            {node: position for position, node in enumerate(outermost)},
            whole_values(nodes),
            states,
        )

    def states_of(self, block: TorchBlock) -> States | None:
        """Return the states of the outermost block; others have none."""
        return self.states if next(iter(block.nodes()), None) in self.position else None

    def may_change(self, value: TorchValue, node: TorchNode) -> bool:
        """Whether something may write to a value when a node runs, or later."""
        if value.unique() not in self.written:
            return False
        writers = self.writers.get(value.unique())
        if not writers or node not in self.position:
            return True
        return self.position[writers[-1]] >= self.position[node]


def import_block(block: TorchBlock, facts: Facts) -> Imported:
    """Return one block, imported; what it takes from outside are inputs of its graph.

    Raises Unproven where a state cannot be followed.
    """
    states = facts.states_of(block)
    scope = Scope(Graph(), facts.whole, states=states)
    imported = Imported(block, scope, [], {})
    if states is not None:
        imported.near_states, facts = facts.written, replace(facts, written=frozenset(), writers={})
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
            if reason and states is not None and (node in states.writes or states.is_view(node)):
                raise Unproven(reason)
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
    written = scope.states is not None and node in scope.states.writes
    importer = (WRITES if written else OPERATORS).get(name)
    if importer is None:
        return "the engine has no such operator"
    try:
        importer(TorchScriptCall(scope, node))
    except Refused as refused:
        return str(refused)
    return ""


def add_opaque(scope: Scope, node: TorchNode, reason: str, ordered: bool) -> None:
    """Add a node that nobody but this front end understands."""
    inputs = dict.fromkeys(v for value in captured(node) for v in scope.read(value))
    made = [scope.graph.value(kind_of(value), value) for value in node.outputs()]
    for value in made:
        scope.bind(value.source, value)
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
