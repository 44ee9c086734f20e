"""Gathers the embeddings of one cat or stack: many small look-ups become one call."""

from __future__ import annotations

from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node
from torch.backends.zendnn.passes._match import constant, labels
from torch.backends.zendnn.table.notation import Attribute


def group_embedding_bags(graph: Graph) -> int:
    """Join the bags, or the rows, that one cat or stack reads, by mode and width; return how many
    groups.
    """
    groups: dict[tuple[object, ...], list[Node]] = {}
    for node in graph.nodes:
        if node.op not in ("embedding", "embedding_bag"):
            continue
        reader, table = graph.only_user(node.output), constant(node.inputs[0])
        if reader is None or reader.op not in ("cat", "stack") or table is None:
            continue
        key = (reader, *_attributes(node).values(), table.dtype, table.shape[1:])
        groups.setdefault(key, []).append(node)
    joined = [members for members in groups.values() if len(members) > 1]
    for members in joined:
        _join(graph, members)
    return len(joined)


def _attributes(node: Node) -> dict[str, Attribute]:
    """What all members of a group have in common."""
    mode = "each" if node.op == "embedding" else node.get("mode")
    return {"mode": mode, "last_offset": bool(node.get("last_offset"))}


def _join(graph: Graph, members: list[Node]) -> None:
    """Put one node at the last bag, where all indices exist and no bag has been read."""
    operands = [
        node.inputs[column] if column < len(node.inputs) else None
        for column in range(max(3, *(len(node.inputs) for node in members)))
        for node in members
    ]
    node = graph.add(
        "embedding_bags",
        operands,
        before=members[-1],
        attributes={"count": len(members), **_attributes(members[0])},
        origin=labels(members),
    )
    graph.take_over(node, *(member.output for member in members))
