"""Divides an optimised graph into regions, each of which becomes one call.

Time has stages: the opaque nodes of stage 0 run first, then region 1, the opaque nodes of stage 1,
then region 2 and so on. Each node has the earliest stage that its operands allow, and the others of
one stage form a region; so no path leaves a region and comes back to it.

Numbers are cheap: each side computes those it needs. A region returns the tensor whose size a
number is, never the number. Where a node that stays outside reads a value that a pass has removed,
the front end runs the model's operators in between.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Iterable

from torch.backends.zendnn.ir.graph import Graph, Region, reach
from torch.backends.zendnn.ir.node import Node, Value
from torch.backends.zendnn.table.notation import Work
from torch.backends.zendnn.table.operators import NUMBERS, VIEWS, WRITES, of_work

#: One of these is worth a call.
HEAVY = of_work(Work.HEAVY)

#: So are this many others that are not light, or one that stands for more of the model's.
ENOUGH = 2

#: So are this many light ones, apart from views and writes, since a plan runs functions of the same
#: elements as one step.
MANY = 4

#: With this many elements, a compiler's loop over light operators is at least as fast as that step.
LARGE = 1 << 18

#: Operators of which few are not worth a region of their own.
LIGHT = of_work(Work.LIGHT)


def partition(graph: Graph, *, rest_is_compiled: bool = False) -> list[Region]:
    """Return the graph's regions in an order in which they can run.

    Nodes of no region stay where they are; ``reason`` says why, for those that a plan could hold.
    With ``rest_is_compiled``, light operators on ``LARGE`` tensors stay for a compiler.
    """
    outer = _outer(graph)
    stages = _stages(graph, outer)
    groups: dict[int, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        if node.op not in NUMBERS and node not in outer:
            groups[stages[node]].append(node)
    regions = []
    for _, group in sorted(groups.items()):
        members = _without_outer_views(group)
        for node in set(group) - members.keys():
            node.reason = "a view of a result or of an input"
        if _is_worth_a_call(members, rest_is_compiled):
            regions.append(_region(graph, members))
        else:
            for node in members:
                node.reason = "too little work for a call"
    read = {value for node in outside(graph, regions) for value in node.values()}
    read.update(value for region in regions for value in region.inputs)
    return [Region.of(region.nodes, read) for region in regions]


def outside(graph: Graph, regions: Iterable[Region]) -> list[Node]:
    """Return the nodes that run outside the regions, in order.

    A number can be made outside as well as in regions, and is when it is read outside, or is an
    input of a region.
    """
    regions = tuple(regions)
    inside = {node for region in regions for node in region.nodes}
    needed = {value for region in regions for value in region.inputs}
    nodes = []
    for node in reversed(graph.nodes):
        if node.op in NUMBERS:
            if not node.escapes and needed.isdisjoint(node.outputs):
                continue
        elif node in inside:
            continue
        needed.update(node.values())
        nodes.append(node)
    return nodes[::-1]


def _outer(graph: Graph) -> set[Node]:
    """The nodes that no region takes: foreign ones, and light ones that only these read.

    The latter make masks and positions from the model's inputs. In a region they would run before
    the foreign nodes, whose readers would end up in another region. So would views of inputs that
    foreign nodes read, too.
    """
    outer: set[Node] = set()
    early, views = (_only(graph, ops | NUMBERS) for ops in (LIGHT, VIEWS))
    for node in reversed(graph.nodes):
        light = node.op in LIGHT and node.readers and not node.escapes
        # Steps that the model lacks go with their reader.
        chain = reach([node], _steps)
        own = all(x in early and chain.issuperset(x.readers) for x in chain - {node})
        if node.is_foreign:
            outer.add(node)
        elif light and own and outer.issuperset(node.readers):
            outer |= chain
            for x in chain:
                x.reason = "only operators outside read it"
        elif node in views and _can_be_outside(node) and not outer.isdisjoint(node.readers):
            outer.add(node)
            node.reason = "a view of a result or of an input"
    return outer


def _only(graph: Graph, ops: Container[str]) -> set[Node | None]:
    """The nodes that are of some operators, and so are all before them; None stands for inputs."""
    found: set[Node | None] = {None}
    for node in graph.nodes:
        if node.op in ops and found.issuperset(value.producer for value in node.values()):
            found.add(node)
    return found


def _is_of_model(node: Node) -> bool:
    """Whether the model has each tensor that a node reads: a pass may have made others."""
    return all(map(_is_models, node.values()))


def _steps(node: Node) -> list[Node]:
    """The nodes that make the tensors which a node reads and the model lacks."""
    return [v.producer for v in node.values() if not _is_models(v) and v.producer is not None]


def _is_models(value: Value) -> bool:
    return value.kind != "tensor" or value.source is not None or value.constant is not None


def _stages(graph: Graph, outer: set[Node]) -> dict[Node, int]:
    """The stage of each node that is not a number's.

    Light nodes for foreign ones leave ``outer`` where a region can compute them without delay.
    """
    stages: dict[Node, int] = {}
    #: From which stage on a value can be read: by what runs outside, and by a region.
    after: dict[Value, int] = defaultdict(int)
    within: dict[Value, int] = defaultdict(lambda: 1)
    effects = 0
    for node in graph.nodes:
        late = max((after[value] for value in node.values()), default=0)
        early = max((within[value] for value in node.values()), default=1)
        leaves = not node.is_foreign and all(map(_is_models, node.outputs))
        if node in outer and leaves and 0 < early <= late:
            # A region has what it reads, and ends before its readers run.
            for gone in reach([node], _steps):
                outer.remove(gone)
                gone.reason = ""
        if node in outer:
            if node.ordered:
                late = effects = max(late, effects)
            stages[node], early = late, late + 1
        elif node.op not in NUMBERS:
            stages[node] = late = early
        after.update(dict.fromkeys(node.outputs, late))
        within.update(dict.fromkeys(node.outputs, early))
    _delay_steps(graph, stages)
    return stages


def _delay_steps(graph: Graph, stages: dict[Node, int]) -> None:
    """Move nodes whose results the model lacks to the stage that reads them.

    Such values cannot cross from one region to another.
    """
    for node in reversed(graph.nodes):
        known = any(value.source is not None and not value.is_state for value in node.outputs)
        if known or node.escapes or not node.readers or node not in stages or node.is_foreign:
            continue
        if not any(user.op in NUMBERS or user.is_foreign for user in node.readers):
            stages[node] = min(stages[user] for user in node.readers)


def _makers(node: Node) -> list[Node]:
    return [value.producer for value in node.values() if value.producer is not None]


def _with_numbers(nodes: Iterable[Node]) -> set[Node]:
    """These nodes and those that make the numbers which they need."""
    return reach(nodes, lambda node: [maker for maker in _makers(node) if maker.op in NUMBERS])


def _without_outer_views(group: list[Node]) -> dict[Node, None]:
    """The members of a stage without the views that only rearrange its results or inputs.

    Outside, these views keep torch's strides and aliases.
    """
    members = dict.fromkeys(group)
    while gone := _outer_views(members):
        for view in gone:
            del members[view]
    return members


def _outer_views(members: dict[Node, None]) -> set[Node]:
    """The views of results that no member reads, and those of inputs that others read."""
    gone: set[Node] = set()
    needed, leading = _with_numbers(members), _views_of_inputs(members)
    # From the last one on, so that chains of views go at once.
    for node in reversed([*filter(_can_be_outside, members)]):
        others = {user for user in node.readers if user.op not in NUMBERS} - members.keys()
        if needed.isdisjoint(node.readers):
            gone.add(node)
            needed.discard(node)
        elif node in leading and node not in gone and (others or node.escapes):
            gone |= reach([node], lambda view: _made_in(members, view))
    return gone


def _can_be_outside(node: Node) -> bool:
    """Whether it is a view that the model has, too: of a value of the model, and making one."""
    if node.op not in VIEWS:
        return False
    if any(value.is_state for value in (*node.values(), *node.outputs)):
        return False  # a plan must see that it shares memory
    return _is_of_model(node) and all(value.source is not None for value in node.outputs)


def _made_in(members: dict[Node, None], node: Node) -> set[Node]:
    """The members that make what this node, or a number that it reads, reads."""
    return {maker for need in _with_numbers([node]) for maker in _makers(need) if maker in members}


def _views_of_inputs(members: dict[Node, None]) -> set[Node]:
    """The views, and views of views, of what the region is given."""
    found: set[Node] = set()
    for node in members:
        if _can_be_outside(node) and found.issuperset(_made_in(members, node)):
            found.add(node)
    return found


def _is_worth_a_call(members: Iterable[Node], rest_is_compiled: bool) -> bool:
    computing = [node for node in members if node.op not in LIGHT]
    if len(computing) >= ENOUGH or any(
        node.op in HEAVY or len(node.origin) > ENOUGH for node in computing
    ):
        return True
    light = [node for node in members if node.op not in VIEWS | WRITES]
    return len(light) >= MANY and not (rest_is_compiled and any(map(_is_large, light)))


def _is_large(node: Node) -> bool:
    """Whether the node makes ``LARGE`` tensors, as far as their sizes are known."""
    dims = node.output.dims or ()
    return math.prod(dim for dim in dims if isinstance(dim, int)) >= LARGE


def _region(graph: Graph, members: dict[Node, None]) -> Region:
    """The region of these nodes and of the numbers that it can make itself."""
    results = {value for node in members for value in node.outputs}
    near = results | {value for node in members for value in node.values()}
    needed = _with_numbers(members) - members.keys()
    chosen: dict[Node, None] = {}
    for node in graph.nodes:
        if node not in needed:
            continue
        # A size of a value made here must be made here, and so must one that the model lacks, which
        # cannot be handed over; others may be.
        of_result = not results.isdisjoint(node.values())
        if of_result:
            results.update(node.outputs)
        can = all(
            v.constant is not None
            or (v in near if v.kind == "tensor" else v.producer in {None, *chosen})
            for v in node.values()
        )
        if of_result or node.output.source is None or can:
            chosen[node] = None
    read = {value for node in members for value in node.values()}
    for node in reversed(list(chosen)):
        if read.isdisjoint(node.outputs):
            del chosen[node]
        else:
            read.update(node.values())
    return Region.of(node for node in graph.nodes if node in members or node in chosen)
