"""Converts to float32 what is combined with float32, as torch does without saying so.

Under autocast a layer's result is bfloat16 and the residual float32. What a model is given has no
dtype here; it is taken for float32 where somebody converts it to bfloat16. Should it be of another,
the plan refuses it, and the model's own operators run.
"""

from __future__ import annotations

from torch.backends.zendnn.graph import Graph, Node, Operand, Value
from torch.backends.zendnn.passes._dtypes import dtype_of, dtype_sources, result_dtype
from torch.backends.zendnn.passes._operators import Trait, operator
from torch.backends.zendnn.passes._sizes import Sizes

_PROMOTE = frozenset({"binary", "cat", "stack"})


def promote_operands(graph: Graph) -> int:
    """Convert operands so that those of an operator share one dtype; return how many."""
    converted = 0
    known = {value: "float32" for value in graph.inputs if _is_narrowed(value)}
    with_dimensions = _with_dimensions(graph)
    for node in list(graph.nodes):
        tensors = [value for value in node.values() if value.kind == "tensor"]
        narrow = [value for value in tensors if dtype_of(value, known) == "bfloat16"]
        wide = [value for value in tensors if dtype_of(value, known) == "float32"]
        # A tensor without dimensions does not widen others, and one that is not known may be such.
        if (
            node.op in _PROMOTE
            and narrow
            and not with_dimensions.isdisjoint(wide)
            and len(narrow) + len(wide) == len(tensors)
        ):
            graph.set_inputs(
                node, [_widened(graph, node, v) if v in narrow else v for v in node.inputs]
            )
            _rely_on(wide, known)
            known.update(dict.fromkeys(node.values(), "float32"))
            converted += len(narrow)
        dtype = result_dtype(node, known)
        for value in node.outputs:
            if dtype is not None or _is_narrowed(value):
                known[value] = dtype or "float32"
    return converted


def _with_dimensions(graph: Graph) -> set[Value]:
    """The tensors that surely have dimensions, by what makes or reads them."""
    sizes = Sizes(graph.nodes)
    tensors = {value for node in graph.nodes for value in (*node.values(), *node.outputs)}
    found = {value for value in tensors if sizes.rank(value)}
    for node in reversed(graph.nodes):
        traits = operator(node).traits
        kept = Trait.KEEPS_DIMENSIONS in traits and not found.isdisjoint(node.outputs)
        if kept or Trait.WANTS_DIMENSIONS in traits:
            found.update(value for value in node.inputs[:1] if isinstance(value, Value))
    for node in graph.nodes:
        traits = operator(node).traits
        keeps = node.inputs[:1] if Trait.KEEPS_DIMENSIONS in traits else ()
        read = node.inputs if node.op == "binary" else keeps
        if Trait.MAKES_DIMENSIONS in traits or any(operand in found for operand in read):
            found.update(node.outputs)
    return found


def _rely_on(values: list[Value], known: dict[Value, str]) -> None:
    """Note that these values must be float32, and so must those that give them their dtype."""
    open_values = list(values)
    while open_values:
        value = open_values.pop()
        if value.taken_for or dtype_of(value, known) not in (None, "float32"):
            continue
        value.taken_for = "float32"
        if value.producer is not None:
            open_values += dtype_sources(value.producer)


def _is_narrowed(value: Value) -> bool:
    return any(user.op == "to" and user.attributes["dtype"] == "bfloat16" for user in value.users)


def _widened(graph: Graph, node: Node, operand: Operand) -> Value:
    assert isinstance(operand, Value)
    if operand.constant is not None:
        return graph.constant(operand.constant.float())
    return graph.add("to", [operand], before=node, attributes={"dtype": "float32"}).output
