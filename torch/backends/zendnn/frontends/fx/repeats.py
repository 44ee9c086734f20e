"""Computes once what a functional graph computes several times.

Autocast converts a value anew for each operator that reads it, and models compute masks and tables
anew in each layer. Traced graphs come without such repetitions.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping

import torch
from torch import fx
from torch.backends.zendnn.frontends.fx.calls import FUNCTIONS, is_ordered
from torch.backends.zendnn.frontends.fx.mutation import viewed_by, writes, written_by

#: Whose operators are functions, unless their tags tell otherwise.
_NAMESPACES = frozenset({"aten", "prims"})
#: The tags of operators whose results have sizes of their own, or may be their operands. They are
#: names, since torch 2.6 lacks some of the tags.
_OTHERWISE = ("dynamic_output_shape", "data_dependent_output", "maybe_aliasing_or_mutating")


def join_repeats(graph: fx.Graph) -> None:
    """Let readers of a node that repeats an earlier one read that.

    Results of the graph stay tensors of their own, since who gets them may write to them. Inputs
    are read again after a write, since the caller may have given one tensor twice.
    """
    *_, output = graph.nodes
    makers: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        makers[node] = _maker(node, makers)
    own = {makers[node] for node in output.all_input_nodes} | written_by(graph)
    copies = [node for node in graph.nodes if writes(node)]
    writing = {*copies, *(node for copy in copies for node in copy.all_input_nodes[1:])}
    written = 0
    first: dict[tuple[object, str, int], fx.Node] = {}
    for node in list(graph.nodes):
        written += node in writing
        makers[node] = _maker(node, makers)  # of what it reads by now
        if not _is_function(node) or makers[node] in own:
            continue
        # Memory from outside the graph may be written through another input.
        outside = any(makers[read].op != "call_function" for read in node.all_input_nodes)
        since = written if outside else 0
        # The text tells 0.0 from -0.0 and from 0.
        known = first.setdefault((node.target, repr((node.args, node.kwargs)), since), node)
        if known is not node:
            node.replace_all_uses_with(known)
            graph.erase_node(node)


def _maker(node: fx.Node, known: Mapping[fx.Node, fx.Node]) -> fx.Node:
    """The node that made the memory of a tensor, or a list that holds it."""
    taken = node.all_input_nodes[0] if node.target == operator.getitem else viewed_by(node)
    return node if taken is None else known[taken]


def _is_function(node: fx.Node) -> bool:
    """Whether a node makes the same of the same operands each time."""
    target = node.target
    if node.op != "call_function" or is_ordered(node):
        return False
    if not isinstance(target, torch._ops.OpOverload):
        return target in FUNCTIONS
    tags = {tag.name for tag in target.tags}
    return target.namespace in _NAMESPACES and tags.isdisjoint(_OTHERWISE)
