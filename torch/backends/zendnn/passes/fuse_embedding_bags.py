"""Recognises bags of equal length: the offsets of a 2-D index, flattened, say nothing new."""

from __future__ import annotations

from torch.backends.zendnn.graph import Graph, Node, Operand, Value, replace_node
from torch.backends.zendnn.passes._match import constant, producer


def fuse_embedding_bags(graph: Graph) -> int:
    """Let bags read a 2-D index instead of its elements and their offsets; return how many."""
    fused = 0
    for node in graph.nodes:
        if node.op != "embedding_bag":
            continue
        if node.attributes.get("last_offset"):
            continue
        table, flat, offsets, *weights = node.inputs
        ids = _before_flattening(flat)
        counted = producer(offsets, "arange")
        if ids is None or counted is None or not isinstance(flat, Value):
            continue
        # An unknown rank is left to the plan, which takes none but 2.
        if ids.rank in (None, 2) and _counts_rows(counted, ids, flat):
            graph.set_inputs(node, [table, ids, None, *weights])
            replace_node(node, origin=counted.origin + node.origin)
            fused += 1
    return fused


def _before_flattening(flat: Operand) -> Value | None:
    node = producer(flat, "view", "flatten")
    if node is None:
        return None
    whole = (-1,) if node.op == "view" else (0, -1)
    ids = node.inputs[0]
    return ids if node.inputs[1:] == whole and isinstance(ids, Value) else None


def _counts_rows(node: Node, ids: Value, flat: Value) -> bool:
    """Whether the node makes 0, width, 2 · width ... up to the number of elements."""
    start, end, step = node.inputs
    return (
        start == 0
        and isinstance(start, int)
        and _is_count(end, ids, flat)
        and (_is_size(step, ids, (1, -1)))
    )


def _is_count(number: Operand, ids: Value, flat: Value) -> bool:
    node = producer(number, "numel")
    if node is not None:
        return node.inputs[0] in (ids, flat)
    if _is_size(number, flat, (0, -1)):
        return True
    product = producer(number, "number_mul")
    if product is None:
        return False
    a, b = product.inputs
    return any(_is_size(x, ids, (0, -2)) and _is_size(y, ids, (1, -1)) for x, y in ((a, b), (b, a)))


def _is_size(number: Operand, tensor: Value, dims: tuple[int, ...]) -> bool:
    if isinstance(number, int):
        fixed = constant(tensor)
        return fixed is not None and fixed.dim() > dims[0] and number == fixed.shape[dims[0]]
    node = producer(number, "size")
    return node is not None and node.inputs[0] is tensor and node.inputs[1] in dims
