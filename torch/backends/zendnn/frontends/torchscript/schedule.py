"""The schedule of a block: what stays, what becomes calls of plans, and in which order they run."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from torch.backends.zendnn.frontends.torchscript.blocks import captured
from torch.backends.zendnn.frontends.torchscript.calls import TorchNode
from torch.backends.zendnn.frontends.torchscript.reader import Imported
from torch.backends.zendnn.frontends.torchscript.state import Unproven, reads_memory
from torch.backends.zendnn.graph import Region, Value


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
    #: Where it reads or makes what may share memory with a state, and where it writes to one.
    touches: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    #: The nodes that the fallback of a region repeats, in order.
    fallback: list[TorchNode] = field(default_factory=list)


class Schedule:
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
            if value.source is not None and node in self.owner and not value.is_state
        }
        self.writes = {
            source: node for node in imported.graph.nodes if node.writes for source in node.source
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
        works = tensors or any(node.writes for node in region.nodes)
        if not works or any(v.source is None for v in (*region.inputs, *region.outputs)):
            raise Unplaceable(region)

    def _find_kept(self) -> None:
        """Find the nodes that stay, and which tensors of regions they read.

        Numbers never leave a region: what others need of them is computed beside it, from tensors
        that then do.
        """
        needed = [value for node in self.imported.opaque for value in captured(node)]
        needed += self.imported.block.outputs()
        needed += [value.source for region in self.outputs for value in region.inputs]
        for node, write in self.writes.items():
            if write not in self.owner:
                self.kept.add(node)
                needed += node.inputs()
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
        item = Item(self.position[node], reads, makes, node=node, ordered=ordered)
        return self._near_states(item, [node])

    def _near_states(self, item: Item, nodes: Sequence[TorchNode]) -> Item:
        """Note where an item, which runs these nodes, has to do with states."""
        near = self.imported.near_states
        for node in nodes if near else ():
            values = (*captured(node), *node.outputs())
            if reads_memory(node) and any(value.unique() in near for value in values):
                item.touches.append(self.position[node])
            if node in self.writes:
                item.writes.append(self.position[node])
        return item

    def _region_item(self, region: Region) -> Item:
        inputs = {value.source.unique() for value in region.inputs}
        fallback, reads = self._fallback(region, inputs)
        position = max((self.position[node] for node in fallback), default=0)
        makes = set(self.outputs[region])
        item = Item(position, reads | inputs, makes, region=region, fallback=fallback)
        return self._near_states(item, fallback)

    def _fallback(self, region: Region, inputs: set[int]) -> tuple[list[TorchNode], set[int]]:
        """Return the nodes between a region's inputs and its outputs, and what they read."""
        nodes: set[TorchNode] = set()
        reads: set[int] = set()
        pending = list(self.outputs[region])
        for node, write in self.writes.items():
            if self.owner.get(write) is region:
                nodes.add(node)
                pending += [value.unique() for value in node.inputs()]
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
        for writer in (item for item in items if item.writes):
            for item in items:
                if item.touches and item is not writer:
                    before, after = self._around(writer, item)
                    waits[after].add(before)
        return self._sorted(items, waits)

    @staticmethod
    def _around(writer: Item, item: Item) -> tuple[Item, Item]:
        """Order what writes to states and what may notice as the model does."""
        if max(item.touches) < min(writer.writes):
            return item, writer
        if min(item.touches) > max(writer.writes):
            return writer, item
        raise Unproven("a region would read or write a state too early or too late")

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


def schedule_block(imported: Imported, regions: Sequence[Region]) -> Schedule:
    """Return the schedule of the regions that have a place.

    Raises Unproven where one has none, and states are the reason.
    """
    remaining = list(regions)
    while True:
        try:
            return Schedule(imported, remaining)
        except Unplaceable as error:
            if imported.near_states:
                raise Unproven(str(error)) from error
            remaining.remove(error.region)
            for node in error.region.nodes:
                node.reason = "its results cannot be handed over"
