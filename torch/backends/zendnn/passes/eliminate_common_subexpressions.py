"""Computes once what several nodes compute from the same operands.

Autocast converts a value anew for each operator that reads it, and models compute masks and tables
anew in each layer. Front ends that read traced calls get all of that.
"""

from __future__ import annotations

from torch.backends.zendnn.graph import OPAQUE, Graph, Node, Value
from torch.backends.zendnn.signatures import Trait


def eliminate_common_subexpressions(graph: Graph) -> int:
    """Let readers of a node that repeats an earlier one read that; return how many are gone.

    What reads or writes a state stays, since the same memory holds different numbers in time. Two
    results that both get out of the graph stay two tensors, since their readers may write to them.
    """
    getting_out = _getting_out(graph)
    first: dict[str, Node] = {}
    repeated = 0
    for node in list(graph.nodes):
        if node.op == OPAQUE or node.writes or any(value.is_state for value in node.values()):
            continue
        known = first.setdefault(_computation(node), node)
        if known is node or not all(map(graph.is_private, node.outputs)):
            continue
        if not (getting_out.isdisjoint(node.outputs) or getting_out.isdisjoint(known.outputs)):
            continue
        for value, same in zip(node.outputs, known.outputs, strict=True):
            if value.dims is not None:
                same.learn_dims(value.dims)
            graph.replace_uses(value, same)
            if value in getting_out:
                getting_out.add(same)
        graph.remove(node)
        repeated += 1
    return repeated


def _computation(node: Node) -> str:
    """What a node does to which operands, as a plan's description says it."""
    return f"{len(node.outputs)} {str(node).partition(' = ')[2]}"


def _getting_out(graph: Graph) -> set[Value]:
    """The tensors whose memory may be read outside the graph's nodes, under any name."""
    found: set[Value] = set()
    for node in reversed(graph.nodes):
        found.update(value for value in node.outputs if not graph.is_private(value))
        # Whatever is no arithmetic may return its operand.
        if not node.has(Trait.COMPUTES) and not found.isdisjoint(node.outputs):
            found.update(node.values())
    return found
