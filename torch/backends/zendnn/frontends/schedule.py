"""The schedule of an imported program: what stays, what becomes calls of plans, and the order."""

from __future__ import annotations

import abc
import heapq
import itertools
from collections.abc import Container, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

from torch.backends.zendnn.ir.graph import Graph, Region
from torch.backends.zendnn.ir.node import Value

#: A front end's own node, and what names one of its values.
SourceNode = Any
Key = Hashable


class Unproven(Exception):
    """What a program writes to cannot be followed; it is imported without states."""


@dataclass
class Imported(abc.ABC):
    """A straight line of a front end's nodes, as the engine sees it."""

    #: The engine's graph.
    graph: Graph
    #: The front end's nodes in order, without constants.
    nodes: list[SourceNode] = field(default_factory=list)
    #: Those that are not imported, and whether they are ordered.
    opaque: dict[SourceNode, bool] = field(default_factory=dict)
    #: Those that make tensors other than by viewing.
    computing: frozenset[SourceNode] = frozenset()
    #: What wrote to a value before others read it.
    settled: dict[Key, tuple[SourceNode, ...]] = field(default_factory=dict)
    #: What may share memory with a state.
    near_states: frozenset[Key] = frozenset()

    def finish(self) -> None:
        """Note which nodes compute, before passes, and remove dead nodes of the engine's graph."""
        self.computing = frozenset(
            node.source
            for node in self.graph.nodes
            if not node.is_view and any(value.kind != "number" for value in node.outputs)
        )
        self.graph.remove_dead()

    @abc.abstractmethod
    def key(self, source: Any) -> Key:
        """Return what names a value of the front end."""

    @abc.abstractmethod
    def inputs(self, node: SourceNode) -> Sequence[Key]:
        """Return the values that a node is given."""

    @abc.abstractmethod
    def reads(self, node: SourceNode) -> Sequence[Key]:
        """Return the values that a node or one inside it reads."""

    @abc.abstractmethod
    def makes(self, node: SourceNode) -> Sequence[Key]:
        """Return the values that a node makes."""

    @abc.abstractmethod
    def results(self) -> Sequence[Key]:
        """Return the values that the program returns."""

    @abc.abstractmethod
    def reads_memory(self, node: SourceNode) -> bool:
        """Whether a node reads or writes elements, so that it matters when it runs."""

    def writes_memory(self, node: SourceNode) -> bool:
        """Whether a node that is not imported writes to what may be near states."""
        return False


class Unplaceable(Exception):
    """A region that cannot be put anywhere; its operators stay what they were."""

    def __init__(self, region: Region) -> None:
        super().__init__("the region has no place")
        self.region = region


@dataclass(eq=False)
class Item:
    """What is put in order: a node that stays, or a region."""

    #: The node, or those that the fallback of the region repeats, in order.
    nodes: Sequence[SourceNode]
    reads: set[Key]
    makes: set[Key]
    region: Region | None = None


class Schedule:
    """Where everything of a program goes: what stays, what becomes calls, and in which order."""

    def __init__(self, imported: Imported, regions: Sequence[Region]) -> None:
        self.imported = imported
        self.position = {node: index for index, node in enumerate(imported.nodes)}
        self.producers = {
            key: node
            for node in imported.nodes
            if node not in imported.opaque
            for key in imported.makes(node)
        }
        owner = {node: region for region in regions for node in region.nodes}
        #: What writes to states, and the region that does so in its place.
        self.writes = {node.source: owner.get(node) for node in imported.graph.nodes if node.writes}
        self.engine = {
            imported.key(value.source): (region, value)
            for region in regions
            for node in region.nodes
            for value in node.outputs
            if value.source is not None and value.kind == "tensor" and not value.is_state
        }
        for key in [key for key in self.engine if self._is_view(key)]:
            del self.engine[key]
        self.outputs: dict[Region, dict[Key, Value]] = {}
        for region in regions:
            # A region can only be cut off where the front end has values.
            works = region.outputs or any(node.writes for node in region.nodes)
            if not works or any(v.source is None for v in (*region.inputs, *region.outputs)):
                raise Unplaceable(region)
            outputs = {imported.key(value.source): value for value in region.outputs}
            self.outputs[region] = {key: v for key, v in outputs.items() if key in self.engine}
        self.kept = self._find_kept()
        states = {
            node.source
            for region in regions
            for node in region.nodes
            if not (node.writes or node.is_view) and any(value.is_state for value in node.outputs)
        }
        if not states.isdisjoint(self.kept):
            # Others would read a second tensor, without what regions write.
            raise Unproven("something outside of a region reads a state that it makes")
        self.order = self._in_order()

    def _is_view(self, key: Key) -> bool:
        """Whether what a region makes is a view of what it reads or hands over.

        Others make the view beside the region: its strides, and the memory around it, which
        operators such as ``as_strided`` read, are not those of a copy.
        """
        node = self.engine[key][1].producer
        if node is None or not node.is_view or any(value.is_state for value in node.values()):
            return False
        pending = [self.producers[key]]
        while pending:
            if (maker := pending.pop()) in self.imported.computing:
                return False
            read = (k for k in self.imported.inputs(maker) if k not in self.engine)
            pending += [self.producers[k] for k in read if k in self.producers]
        return True

    def _makers(
        self, region: Region | None, keys: Iterable[Key], available: Container[Key]
    ) -> tuple[set[SourceNode], set[Key]]:
        """Return the imported nodes that make values out of what is available, and what they read.

        The nodes that write for the region, or for none, are among them.
        """
        nodes = {node for node, owner in self.writes.items() if owner is region}
        read: set[Key] = set()
        pending = [*keys, *(key for node in nodes for key in self.imported.inputs(node))]
        while pending:
            key = pending.pop()
            node = None if key in available else self.producers.get(key)
            if node is None:
                read.add(key)
            elif node not in nodes:
                nodes.add(node)
                pending += self.imported.inputs(node)
        return nodes, read

    def _find_kept(self) -> set[SourceNode]:
        """Return the imported nodes that stay, and note which tensors of regions they read.

        Numbers never leave a region: what others need of them is computed beside it, from tensors
        that then do.
        """
        imported = self.imported
        needed = [key for node in imported.opaque for key in imported.reads(node)]
        needed += imported.results()
        needed += [imported.key(v.source) for region in self.outputs for v in region.inputs]
        kept, read = self._makers(None, needed, self.engine)
        for key, (region, value) in self.engine.items():
            if key in read:
                self.outputs[region][key] = value
        return kept

    def _region_item(self, region: Region) -> Item:
        inputs = {self.imported.key(value.source) for value in region.inputs}
        outputs = self.outputs[region]
        nodes, read = self._makers(region, outputs, inputs)
        order = sorted(nodes, key=self.position.__getitem__)
        return Item(order, read | inputs, set(outputs), region)

    def _in_order(self) -> list[Item]:
        """Return all items, each after what it reads, and in the model's order otherwise."""
        imported = self.imported
        items = [
            Item([node], set(imported.reads(node)), set(imported.makes(node)))
            for node in (*imported.opaque, *self.kept)
        ]
        items += map(self._region_item, self.outputs)
        items.sort(key=lambda item: self.position[item.nodes[-1]] if item.nodes else 0)
        makers = {key: item for item in items for key in item.makes}
        own = {item.nodes[0]: item for item in items if item.region is None}
        waits: dict[Item, set[Item]] = {}
        ordered = []
        for item in items:
            waits[item] = {makers[key] for key in item.reads if key in makers}
            if item.region is None and imported.opaque.get(item.nodes[0]):
                ordered.append(item)
            else:
                written = item.reads & imported.settled.keys()
                waits[item] |= {own[node] for key in written for node in imported.settled[key]}
        for before, after in itertools.pairwise(ordered):
            waits[after].add(before)
        self._order_writes(items, waits)
        return self._sorted(items, waits)

    def _order_writes(self, items: list[Item], waits: dict[Item, set[Item]]) -> None:
        """Order what writes to states and what may notice as the model does.

        The waits are circular where a region would read or write one too early or too late.
        """
        imported = self.imported
        near = imported.near_states
        touching = [
            (node, item)
            for item in (items if near else ())
            for node in item.nodes
            if imported.reads_memory(node)
            and not near.isdisjoint((*imported.reads(node), *imported.makes(node)))
        ]
        writer: set[Item] = set()  # the last one
        readers: set[Item] = set()  # since the last write
        for node, item in sorted(touching, key=lambda pair: self.position[pair[0]]):
            waits[item] |= writer - {item}
            if node in self.writes or imported.writes_memory(node):
                waits[item] |= readers - {item}
                writer, readers = {item}, set()
            else:
                readers.add(item)

    @staticmethod
    def _sorted(items: list[Item], waits: dict[Item, set[Item]]) -> list[Item]:
        sorter = TopologicalSorter(waits)
        try:
            sorter.prepare()
        except CycleError as error:
            regions = [item.region for item in error.args[1] if item.region is not None]
            assert regions, "the model's own order is circular"
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


def schedule(imported: Imported, regions: Sequence[Region]) -> Schedule:
    """Return the schedule of the regions that have a place.

    Raises Unproven where one has none, and states are the reason.
    """
    remaining = list(regions)
    while True:
        try:
            return Schedule(imported, remaining)
        except Unplaceable as error:
            if any(node.writes for node in imported.graph.nodes):
                raise Unproven(str(error)) from error
            remaining.remove(error.region)
            for node in error.region.nodes:
                node.reason = "its results cannot be handed over"
