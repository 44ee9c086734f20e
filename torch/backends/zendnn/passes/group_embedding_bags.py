"""Gathers the embedding bags of one cat or stack: many small look-ups become one call."""

from __future__ import annotations

from torch.backends.zendnn.graph import Graph, Node
from torch.backends.zendnn.passes._match import constant


def group_embedding_bags(graph: Graph) -> int:
    """Join the bags that one cat or stack reads, by mode and width; return how many groups."""
    groups: dict[tuple[object, ...], list[Node]] = {}
    for node in graph.nodes:
        if node.op != "embedding_bag" or len(node.inputs) != 3 or node.inputs[2] is not None:
            continue
        reader, table = graph.only_user(node.output), constant(node.inputs[0])
        if reader is None or reader.op not in ("cat", "stack") or table is None:
            continue
        key = (reader, node.attributes["mode"], table.dtype, table.shape[1:])
        groups.setdefault(key, []).append(node)
    joined = [members for members in groups.values() if len(members) > 1]
    for members in joined:
        _join(graph, members)
    return len(joined)


def _join(graph: Graph, members: list[Node]) -> None:
    """At the place of the last bag, where all indices are known and nobody has read a bag yet."""
    operands = [node.inputs[column] for column in (0, 1) for node in members]
    node = graph.add(
        "embedding_bags",
        operands,
        before=members[-1],
        attributes={"count": len(members), "mode": members[0].attributes["mode"]},
        origin=tuple(label for member in members for label in member.origin),
    )
    graph.take_over(node, *(member.output for member in members))
