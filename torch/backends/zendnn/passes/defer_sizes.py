"""Reads the sizes of a value after the operators that keep its shape, so that these can be fused.

A convolution whose size is read cannot be fused with its activation, which has the same size.
"""

from __future__ import annotations

from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node, Value
from torch.backends.zendnn.table.operators import SIZES


def defer_sizes(graph: Graph) -> int:
    """Read sizes from the last value of a chain that has them; return how many."""
    deferred = 0
    place = {node: index for index, node in enumerate(graph.nodes)}
    for node in [node for node in graph.nodes if node.op in SIZES]:
        value, number = node.inputs[0], node.output
        if not isinstance(value, Value) or not graph.is_private(number):
            continue
        last = _last_of_its_shape(graph, value)
        maker = last.producer
        if last is value or maker is None or not number.users:
            continue
        if any(place[user] < place[maker] for user in number.users):
            continue
        graph.set_inputs(node, [last, *node.inputs[1:]])
        if place[node] < place[maker]:
            graph.move_before(node, graph.nodes[graph.nodes.index(maker) + 1])
        deferred += 1
    return deferred


def _last_of_its_shape(graph: Graph, value: Value) -> Value:
    while graph.is_private(value):
        match [user for user in value.users if user.op not in SIZES]:
            case [Node("eltwise" | "batch_norm" | "to", (first, *_)) as reader] if first is value:
                value = reader.output
            case _:
                break
    return value
