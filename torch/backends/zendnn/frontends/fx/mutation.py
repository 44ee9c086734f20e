"""Writes of functional graphs: which memory they concern, and which can be done in place.

A functional graph makes a new cache for each write, and copies it to the old one at its end. Where
nobody reads the old one afterwards, the write itself is done in place.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, fx

_aten = torch.ops.aten

#: Operators that write a part of their first argument, and their twins in place.
_IN_PLACE = {
    _aten.index_copy.default: _aten.index_copy_.default,
    _aten.index_put.default: _aten.index_put_.default,
    _aten.index_fill.int_Scalar: _aten.index_fill_.int_Scalar,
    _aten.scatter.src: _aten.scatter_.src,
    _aten.scatter.value: _aten.scatter_.value,
}


def writes(node: fx.Node) -> bool:
    """Whether a node writes to its first argument."""
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable


def written_by(graph: fx.Graph) -> set[fx.Node]:
    """Return whose memory the nodes of a graph write to, be it through views."""
    own = bases(graph)
    return {own[node.args[0]] for node in graph.nodes if writes(node)}


def bases(graph: fx.Graph) -> dict[fx.Node, fx.Node]:
    """Return the ``base`` of each node, in one pass, since chains of views may be long."""
    found: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        viewed = viewed_by(node)
        found[node] = node if viewed is None else found[viewed]
    return found


def base(node: Any) -> fx.Node:
    """Return the node whose memory another one views."""
    assert isinstance(node, fx.Node)
    while (viewed := viewed_by(node)) is not None:
        node = viewed
    return node


def viewed_by(node: fx.Node) -> fx.Node | None:
    """Return the node of which another one is a view; None where it is none."""
    several = node.args[0] if node.target == operator.getitem else node
    same = node.target in (written, _aten._unsafe_view.default)
    if same or (isinstance(several, fx.Node) and is_view(several)):
        return several.all_input_nodes[0]
    return None


def is_view(node: fx.Node) -> bool:
    """Whether a node makes another view of what it reads."""
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and _makes_views(target)


@functools.cache
def _makes_views(target: torch._ops.OpOverload) -> bool:
    return any(result.alias_info is not None for result in target._schema.returns)


def views_at_end(graph: fx.Graph) -> list[fx.Node]:
    """Return the nodes that make results only by viewing, in order; others may read them, too."""
    *nodes, output = graph.nodes
    read, found = set(output.all_input_nodes), []
    for node in reversed(nodes):
        several = node.args[0] if node.target == operator.getitem else node
        views = isinstance(several, fx.Node) and is_view(several) and not writes(several)
        if views and node in read:
            found.append(node)
            read.update(node.all_input_nodes)
    return found[::-1]


def sharing(graph: fx.Graph, memory: Iterable[fx.Node]) -> set[fx.Node]:
    """Return nodes, and all others whose results may share memory with theirs."""
    found = set(memory)
    for node in graph.nodes:
        handed_on = is_view(node) or node.target in (operator.getitem, written)
        if handed_on and not found.isdisjoint(node.all_input_nodes):
            found.add(node)
    return found


def written(target: Tensor, *writes: Any) -> Tensor:
    """Return a tensor, after it was written."""
    return target


def write_in_place(graph: fx.Graph) -> None:
    """Do writes of parts in place, where a graph ends with a copy of the whole."""
    for copy in [node for node in graph.nodes if node.target == _aten.copy_.default]:
        target, value = copy.args[:2]
        if not isinstance(value, fx.Node) or not value.args or value.args[0] is not target:
            continue
        if value.target not in _IN_PLACE and value.target != _aten.slice_scatter.default:
            continue
        near = sharing(graph, [target])
        readers = {user for node in near for user in node.users} - {value, copy}
        late = not readers.isdisjoint(_after(graph, value))
        returned = any(user.op == "output" for user in value.users)
        if late or returned or not near.isdisjoint(value.all_input_nodes[1:]):
            continue
        with graph.inserting_before(value):
            done = _in_place(graph, value)
        done.meta = dict(value.meta)
        value.replace_all_uses_with(done)
        graph.erase_node(copy)
        graph.erase_node(value)


def _after(graph: fx.Graph, node: fx.Node) -> Iterator[fx.Node]:
    """Yield the nodes behind a node, last ones first."""
    return itertools.takewhile(lambda other: other is not node, reversed(graph.nodes))


def _in_place(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """Add what writes in place; return a node whose result is the target, written."""
    if node.target in _IN_PLACE:
        return graph.call_function(_IN_PLACE[node.target], node.args, node.kwargs)
    target, source, *where = node.args
    assert isinstance(target, fx.Node)
    part = graph.call_function(_aten.slice.Tensor, (target, *where), node.kwargs)
    assert isinstance(source, fx.Node)
    part.meta = {"val": source.meta["val"]}
    write = graph.call_function(_aten.copy_.default, (part, source))
    write.meta = {"val": source.meta["val"]}
    return graph.call_function(written, (target, write))
