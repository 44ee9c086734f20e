"""Reads TorchScript: each block of a method's graph becomes a graph of the engine.

What the importers take becomes nodes of the engine, everything else an opaque node with its reason.
A value that is written to stays opaque until the last write, by torch's own alias analysis, unless
``state.py`` knows what is written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch.backends.zendnn.frontends import schedule
from torch.backends.zendnn.frontends.calls import Refused
from torch.backends.zendnn.frontends.schedule import Unproven
from torch.backends.zendnn.frontends.torchscript.aliases import (
    IN_PLACE,
    PURE_PRIMS,
    Aliases,
    may_write,
)
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
    qualified,
)
from torch.backends.zendnn.frontends.torchscript.dtypes import whole_values
from torch.backends.zendnn.frontends.torchscript.mutation import import_in_place
from torch.backends.zendnn.frontends.torchscript.state import (
    WRITES,
    States,
    find_states,
    join_attributes,
    reads_memory,
)
from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import OPAQUE, Value

EFFECTS = qualified("aten", "warn save manual_seed wait")
_IMPORTERS = OPERATORS | WRITES | {IN_PLACE: import_in_place}


class Imported(schedule.Imported):
    """A block as the engine sees it; ``unique()`` names its values."""

    def __init__(self, block: TorchBlock, scope: Scope) -> None:
        super().__init__(scope.graph)
        self.block = block
        self.scope = scope

    def key(self, source: TorchValue) -> int:
        return int(source.unique())

    def inputs(self, node: TorchNode) -> list[int]:
        return [value.unique() for value in node.inputs()]

    def reads(self, node: TorchNode) -> list[int]:
        return [value.unique() for value in captured(node)]

    def makes(self, node: TorchNode) -> list[int]:
        return [value.unique() for value in node.outputs()]

    def results(self) -> list[int]:
        return [value.unique() for value in self.block.outputs()]

    def reads_memory(self, node: TorchNode) -> bool:
        return reads_memory(node)

    def settle(self, value: TorchValue, writers: tuple[TorchNode, ...]) -> None:
        """Make a value depend on everything that writes to it."""
        if value.unique() in self.settled or value.unique() in self.scope.lists:
            return  # of a list that is looked through, the elements are settled
        before = self.scope.operand(value)
        if not isinstance(before, Value):
            return  # a constant list, which only seems to share what is written to
        self.settled[value.unique()] = writers
        after = self.graph.value(before.kind, value)
        self.graph.add(OPAQUE, [before], outputs=[after], ordered=True)
        self.scope.bind(value, after)


def writers_of(graph: TorchGraph) -> dict[int, tuple[TorchNode, ...]]:
    """Return the values, by ``unique()``, that something in the graph may write to.

    Each comes with the nodes of the outermost block that may do so, in order. A list or tuple that
    holds a written value is written, too.
    """
    aliases = Aliases(graph)
    outermost = outer_block(graph)
    targets = {node: values for node in outermost.nodes() if (values := may_write(node))}
    writers = {}
    for block in blocks_below(outermost):
        for value in (*block.inputs(), *(v for node in block.nodes() for v in node.outputs())):
            if not (written := aliases.has_writers(value)) and kind_of(value) != "other":
                continue
            by = tuple(
                node
                for node in targets
                if any(aliases.may_share(target, value) for target in targets[node])
            )
            if written or by:
                writers[value.unique()] = by
    return writers


@dataclass(frozen=True)
class Facts:
    """What is known about the values of a whole TorchScript graph, by ``unique()``."""

    #: What something in the graph may write to, and what of the outermost block does so.
    writers: dict[int, tuple[TorchNode, ...]]
    #: The order of the outermost block.
    position: dict[TorchNode, int]
    #: Tensors of integers or booleans.
    whole: frozenset[int]
    #: What the outermost block writes to, where all of that is known.
    states: States | None = None

    @staticmethod
    def of(graph: TorchGraph) -> Facts:
        """Analyse a graph; emission does not invalidate the result."""
        outermost = list(outer_block(graph).nodes())
        nodes = [node for block in blocks_below(outer_block(graph)) for node in block.nodes()]
        join_attributes(outermost, nodes)
        states = find_states(outermost, [node for node in outermost if may_write(node)])
        return Facts(
            writers_of(graph),
            {node: position for position, node in enumerate(outermost)},
            whole_values(nodes),
            states,
        )

    def may_change(self, value: TorchValue, node: TorchNode) -> bool:
        """Whether something may write to a value when a node runs, or later."""
        writers = self.writers.get(value.unique())
        if not writers or node not in self.position:
            return writers is not None
        return self.position[writers[-1]] >= self.position[node]


def import_block(block: TorchBlock, facts: Facts) -> Imported:
    """Return one block, imported; what it takes from outside are inputs of its graph.

    Raises Unproven where a state cannot be followed.
    """
    outermost = next(iter(block.nodes()), None) in facts.position
    states = facts.states if outermost else None
    scope = Scope(Graph(), facts.whole, states=states)
    imported = Imported(block, scope)
    if states is not None:
        imported.near_states, facts = frozenset(facts.writers), replace(facts, writers={})
    for value in block.inputs():
        scope.operand(value)
    for node in block.nodes():
        if node.kind() == "prim::Constant":
            continue
        imported.nodes.append(node)
        reason = ordered_reason(node, facts)
        ordered = bool(reason)
        if not reason:
            # All writes to what it reads come before it, or it would be ordered. So they do where
            # the value itself is made after them, as an attribute that is read again.
            for value in node.inputs():
                if writers := facts.writers.get(value.unique()):
                    imported.settle(value, writers)
            reason = try_import(scope, node)
            if reason and states is not None and (node in states.writes or states.is_view(node)):
                raise Unproven(reason)
            # An operator that was imported is not random with these arguments.
            ordered = node.isNondeterministic()
        if reason:
            imported.opaque[node] = ordered
            add_opaque(scope, node, reason, ordered)
    results = (v for output in block.outputs() for v in scope.read(output))
    scope.graph.set_outputs([v for v in dict.fromkeys(results) if v.constant is None])
    imported.finish()
    return imported


def ordered_reason(node: TorchNode, facts: Facts) -> str:
    """Return why a node must stay in order with its kin, or nothing."""
    kind = node.kind()
    values = [*node.inputs(), *node.outputs()]
    if any(facts.may_change(value, node) for value in values):
        return "something writes to a tensor or list that it reads or makes"
    if list(node.blocks()):
        return "it is control flow"
    if kind in EFFECTS or not (kind.startswith("aten::") or kind in PURE_PRIMS):
        return "it may have effects"
    return ""


def try_import(scope: Scope, node: TorchNode) -> str:
    """Import a node, or return why not."""
    importer = _IMPORTERS.get(operator_name(node))
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
    results = [scope.graph.value(kind_of(value), value) for value in node.outputs()]
    for value in results:
        scope.bind(value.source, value)
    origin = () if is_guard(node) or is_guarded_call(node) else (node.kind(),)
    scope.graph.add(
        OPAQUE,
        list(inputs),
        outputs=results,
        origin=origin,
        ordered=ordered,
        reason=reason,
        source=node,
    )
