"""Lets linear layers take and make tensors, not matrices of all their rows.

Between a layer and its activation or residual, the view that undoes the matrix keeps them apart.
"""

from __future__ import annotations

from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node, Value
from torch.backends.zendnn.passes._match import each


@each("view")
def unflatten_linears(graph: Graph, node: Node) -> int:
    """Remove the two views around a layer that reads a tensor's rows; return how many layers."""
    match node.inputs[0]:
        case Value(
            producer=Node(
                "linear", (Value(producer=Node("view" | "flatten", (Value() as x, *_))) as rows, *_)
            ) as layer
        ) if _is_matrix_of(rows, x) and _have_same_rows(x, node.output):
            pass
        case _:
            return 0
    if graph.only_user(layer.output) is not node:
        return 0
    graph.set_inputs(layer, [x, *layer.inputs[1:]])
    layer.origin = layer.origin + node.origin
    graph.take_over(layer, node.output)
    return 1


def _is_matrix_of(rows: Value, x: Value) -> bool:
    """Whether a view is the matrix of a tensor's rows."""
    of = x.dims[-1] if x.dims else None
    return rows.rank == 2 and rows.dims is not None and rows.dims[-1] == of is not None


def _have_same_rows(x: Value, y: Value) -> bool:
    """Whether all dims but the last are the same: as many rows, and one dim unknown at most."""
    if x.dims is None or y.dims is None or x.rank != y.rank:
        return False
    pairs = list(zip(x.dims[:-1], y.dims[:-1], strict=True))
    unknown = [pair for pair in pairs if None in pair]
    return len(unknown) <= 1 and all(a == b != 0 for a, b in pairs if None not in (a, b))
