"""Recognises bags of equal length: a flattened 2-D index with its offsets is the index itself."""

from __future__ import annotations

from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node, Operand, Value
from torch.backends.zendnn.passes._match import each, producer


@each("embedding_bag")
def fuse_embedding_bags(graph: Graph, node: Node) -> bool:
    table, flat, offsets, *weights = node.inputs
    ids, counted = _before_flattening(flat), producer(offsets, "arange")
    if ids is None or counted is None or node.get("last_offset"):
        return False
    # An unknown rank is left to the plan, which takes none but 2.
    if ids.rank not in (None, 2) or not _counts_rows(counted, ids, flat):
        return False
    graph.set_inputs(node, [table, ids, None, *weights])
    node.origin = counted.origin + node.origin
    return True


def _before_flattening(flat: Operand) -> Value | None:
    match producer(flat):
        case Node("view", (Value() as ids, -1)) | Node("flatten", (Value() as ids, 0, -1)):
            return ids
    return None


def _counts_rows(node: Node, ids: Value, flat: Operand) -> bool:
    """Whether the node makes 0, width, 2 · width ... up to the number of elements."""
    start, end, step = node.inputs
    return start == 0 and _is_count(end, ids, flat) and _is_size(step, ids, (1, -1))


def _is_count(number: Operand, ids: Value, flat: Operand) -> bool:
    match producer(number):
        case Node("numel", (x,)):
            return x is ids or x is flat
        case Node("number_mul", (a, b)):
            both = ((a, b), (b, a))
            return any(_is_size(x, ids, (0, -2)) and _is_size(y, ids, (1, -1)) for x, y in both)
    return _is_size(number, flat, (0, -1))


def _is_size(number: Operand, tensor: Operand, dims: tuple[int, ...]) -> bool:
    if isinstance(number, int):
        known = tensor.dims if isinstance(tensor, Value) else None
        return known is not None and len(known) > dims[0] and known[dims[0]] == number
    node = producer(number, "size")
    return node is not None and node.inputs[0] is tensor and node.inputs[1] in dims
