"""The schedule of a block: what stays, what becomes calls of plans, and in which order they run."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from torch.backends.zendnn.frontends.torchscript.blocks import captured
from torch.backends.zendnn.frontends.torchscript.calls import TorchNode, TorchValue
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

    #: The node, or those that the fallback of the region repeats, in order.
    nodes: Sequence[TorchNode]
    reads: set[int]
    makes: set[int]
    region: Region | None = None


class Schedule:
    """Where everything of a block goes: what stays, what becomes calls, and in which order.

    TorchScript values are named by ``unique()``.
    """

    def __init__(self, imported: Imported, regions: Sequence[Region]) -> None:
        self.imported = imported
        self.position = {node: index for index, node in enumerate(imported.nodes)}
        self.producers = {
            value.unique(): node
            for node in imported.nodes
            if node not in imported.opaque
            for value in node.outputs()
        }
        owner = {node: region for region in regions for node in region.nodes}
        #: What writes to states, and the region that does so in its place.
        self.writes = {node.source: owner.get(node) for node in imported.graph.nodes if node.writes}
        self.engine = {
            value.source.unique(): (region, value)
            for region in regions
            for node in region.nodes
            for value in node.outputs
            if value.source is not None and value.kind == "tensor" and not value.is_state
        }
        self.outputs: dict[Region, dict[int, Value]] = {}
        for region in regions:
            # A region can only be cut off where TorchScript has values.
            works = region.outputs or any(node.writes for node in region.nodes)
            if not works or any(v.source is None for v in (*region.inputs, *region.outputs)):
                raise Unplaceable(region)
            self.outputs[region] = {value.source.unique(): value for value in region.outputs}
        self.kept = self._find_kept()
        self.order = self._in_order()

    def _makers(
        self, region: Region | None, values: Iterable[TorchValue], given: Container[int]
    ) -> tuple[set[TorchNode], set[int]]:
        """Return the imported nodes that make values out of what is given, and what they read.

        The nodes that write for the region, or for none, are among them.
        """
        nodes = {node for node, owner in self.writes.items() if owner is region}
        read: set[int] = set()
        pending = [*values, *(value for node in nodes for value in node.inputs())]
        while pending:
            key = pending.pop().unique()
            node = None if key in given else self.producers.get(key)
            if node is None:
                read.add(key)
            elif node not in nodes:
                nodes.add(node)
                pending += node.inputs()
        return nodes, read

    def _find_kept(self) -> set[TorchNode]:
        """Return the imported nodes that stay, and note which tensors of regions they read.

        Numbers never leave a region: what others need of them is computed beside it, from tensors
        that then do.
        """
        needed = [value for node in self.imported.opaque for value in captured(node)]
        needed += self.imported.block.outputs()
        needed += [value.source for region in self.outputs for value in region.inputs]
        kept, read = self._makers(None, needed, self.engine)
        for key in sorted(read & self.engine.keys()):
            region, made = self.engine[key]
            self.outputs[region][key] = made
        return kept

    def _region_item(self, region: Region) -> Item:
        inputs = {value.source.unique() for value in region.inputs}
        outputs = self.outputs[region]
        nodes, read = self._makers(region, [v.source for v in outputs.values()], inputs)
        order = sorted(nodes, key=self.position.__getitem__)
        return Item(order, read | inputs, set(outputs), region)

    def _in_order(self) -> list[Item]:
        """Return all items, each after what it reads, and in the model's order otherwise."""
        items = [
            Item([node], {v.unique() for v in captured(node)}, {v.unique() for v in node.outputs()})
            for node in (*self.imported.opaque, *self.kept)
        ]
        items += map(self._region_item, self.outputs)
        items.sort(key=lambda item: self.position[item.nodes[-1]] if item.nodes else 0)
        makers = {key: item for item in items for key in item.makes}
        own = {item.nodes[0]: item for item in items if item.region is None}
        waits: dict[Item, set[Item]] = {}
        ordered = []
        for item in items:
            waits[item] = {makers[key] for key in item.reads if key in makers}
            if item.region is None and self.imported.opaque.get(item.nodes[0]):
                ordered.append(item)
            else:
                written = item.reads & self.imported.settled.keys()
                waits[item] |= {own[node] for key in written for node in self.imported.settled[key]}
        for before, after in itertools.pairwise(ordered):
            waits[after].add(before)
        self._order_writes(items, waits)
        return self._sorted(items, waits)

    def _order_writes(self, items: list[Item], waits: dict[Item, set[Item]]) -> None:
        """Order what writes to states and what may notice as the model does.

        The waits are circular where a region would read or write one too early or too late.
        """
        near = self.imported.near_states
        touching = [
            (node, item)
            for item in (items if near else ())
            for node in item.nodes
            if reads_memory(node)
            and any(value.unique() in near for value in (*captured(node), *node.outputs()))
        ]
        writer: set[Item] = set()  # the last one
        readers: set[Item] = set()  # since the last write
        for node, item in sorted(touching, key=lambda pair: self.position[pair[0]]):
            waits[item] |= writer - {item}
            if node in self.writes:
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
