"""Converts operands that are combined with float32 to float32, as torch's type promotion does.

Under autocast a layer's result is bfloat16 and the residual float32. The pass assumes that a value
of unknown dtype that is converted to bfloat16 is float32, and keeps the assumption where a
conversion relied on it. The plan refuses inputs of another dtype: the model's own operators run.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.infer import dtype_sources, infer_types
from torch.backends.zendnn.ir.node import SOME_FLOAT, Node, Operand, Value
from torch.backends.zendnn.table.notation import Trait


def promote_operands(graph: Graph) -> int:
    """Convert operands so that those of an operator share one dtype; return how many."""
    converted = 0
    before = {value: value.dtype for value in _values(graph)}
    _assume(graph.inputs)
    with_dims = _with_dims(graph)
    for node in list(graph.nodes):
        tensors = [value for value in node.values() if value.kind == "tensor"]
        narrow = [value for value in tensors if value.dtype == "bfloat16"]
        wide = [value for value in tensors if value.dtype == "float32"]
        promotes = node.has(Trait.PROMOTES) and len(narrow) + len(wide) == len(tensors)
        # A tensor without dimensions does not widen others, and one of unknown rank may be such.
        if promotes and narrow and not with_dims.isdisjoint(wide):
            inputs = [_widened(graph, node, v) if v in narrow else v for v in node.inputs]
            graph.set_inputs(node, inputs)
            _rely_on(wide, before)
            converted += len(narrow)
            if node.get("in_place") and tensors[0] in narrow:
                _narrow(graph, node)
        infer_types(node)
        _assume(node.outputs)
    for value, dtype in before.items():
        assumed = value.is_assumed and dtype in (None, SOME_FLOAT)
        value.dtype = "float32" if assumed else dtype
    graph.infer_types()
    return converted


def _values(graph: Graph) -> set[Value]:
    return {*graph.inputs, *(v for node in graph.nodes for v in (*node.values(), *node.outputs))}


def _assume(values: Iterable[Value]) -> None:
    for value in values:
        dtypes = [user.get("dtype") for user in value.users if user.op == "to"]
        if value.dtype in (None, SOME_FLOAT) and "bfloat16" in dtypes:
            value.dtype = "float32"


def _with_dims(graph: Graph) -> set[Value]:
    """The tensors that surely have dimensions, by what makes or reads them."""
    found = {value for value in _values(graph) if value.rank}
    for node in reversed(graph.nodes):
        kept = node.has(Trait.KEEPS_DIMS) and not found.isdisjoint(node.outputs)
        if kept or node.has(Trait.WANTS_DIMS):
            found.update(value for value in node.inputs[:1] if isinstance(value, Value))
    for node in graph.nodes:
        keeps = node.inputs[:1] if node.has(Trait.KEEPS_DIMS) else ()
        read = node.inputs if node.op == "binary" else keeps
        if node.has(Trait.MAKES_DIMS) or any(operand in found for operand in read):
            found.update(node.outputs)
    return found


def _rely_on(values: list[Value], proven: dict[Value, str | None]) -> None:
    """Mark as assumed these float32 values and those that give them their dtype."""
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if value.is_assumed or proven.get(value) not in (None, SOME_FLOAT):
            continue
        value.is_assumed, value.dtype = True, "float32"
        if value.producer is not None:
            waiting += dtype_sources(value.producer)


def _narrow(graph: Graph, node: Node) -> None:
    """Convert the result of an operator in place back to bfloat16, its target's dtype."""
    wide = graph.add(
        node.op, node.inputs, before=node, attributes=node.attributes, origin=node.origin
    )
    graph.set_inputs(node, [wide.output])
    node.op, node.attributes, node.origin = "to", {"dtype": "bfloat16"}, ()


def _widened(graph: Graph, node: Node, operand: Operand) -> Value:
    assert isinstance(operand, Value)
    if operand.constant is not None:
        return graph.constant(operand.constant.float())
    return graph.add("to", [operand], before=node, attributes={"dtype": "float32"}).output
