"""FX's calls of aten operators, as importers see them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.backends.zendnn.frontends.calls import MISSING, Call, Handle, Refused
from torch.backends.zendnn.frontends.fx.mutation import base, is_view, writes
from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Kind, Operand, Value
from torch.backends.zendnn.table.dtypes import DTYPES

#: torch's own numbers of dtypes, layouts and memory formats, which importers know them by.
CODES = {
    **{getattr(torch, name): row.number for name, row in DTYPES.items()},
    torch.strided: 0,
    torch.contiguous_format: 0,
    torch.preserve_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
}


class Element(NamedTuple):
    """One of several results of a node."""

    node: fx.Node
    position: int


def kind_of(node: fx.Node) -> Kind:
    """Return the engine's kind of what a node makes."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return "tensor"
    integer = isinstance(value, int | torch.SymInt) and not isinstance(value, bool)
    return "number" if integer else "other"


def hint_of(size: int | torch.SymInt) -> int | None:
    """Return a size, or that of the first call; None if it depends on data."""
    known: int | None = size if isinstance(size, int) else size.node.hint
    return known


@dataclass
class Scope:
    """What the nodes of an FX graph have become so far."""

    graph: Graph
    #: Placeholders and attributes whose tensors are known.
    constants: dict[fx.Node, torch.Tensor]
    operands: dict[fx.Node, Operand] = field(default_factory=dict)
    #: How to get an element of what a node makes: whoever reads it looks through the list.
    lists: dict[fx.Node, Callable[[int], Operand]] = field(default_factory=dict)
    elements: dict[Element, Operand] = field(default_factory=dict)
    #: Inputs to which nodes write that are imported.
    states: set[fx.Node] = field(default_factory=set)

    def operand(self, node: fx.Node) -> Operand:
        """Return what a node's result is here, an input of the graph if nothing imported it."""
        if node not in self.operands:
            constant = self.constants.get(node)
            result = (
                self.graph.input(kind_of(node), node)
                if constant is None
                else self.graph.constant(constant, node)
            )
            self.bind(node, result)
        return self.operands[node]

    def bind(self, node: fx.Node, operand: Operand) -> None:
        """Note what a node's result is here, and what FX knows of its type."""
        self.operands[node] = operand
        if not isinstance(operand, Value):
            return
        if operand.source is None:
            operand.source = node
        operand.is_state = operand.is_state or node in self.states
        value = node.meta.get("val")
        if operand.kind != "tensor" or not isinstance(value, torch.Tensor):
            return
        operand.dtype = str(value.dtype).removeprefix("torch.")
        operand.learn_dims(tuple(size if isinstance(size, int) else None for size in value.shape))

    def read(self, node: fx.Node) -> list[Value]:
        """Return the engine's values that are read with a node's result."""
        if node in self.lists:
            return []
        operand = self.operand(node)
        return [operand] if isinstance(operand, Value) else []


class FxCall(Call):
    """One call of an aten operator."""

    is_checked = True

    def __init__(self, scope: Scope, node: fx.Node) -> None:
        self.scope = scope
        self.node = self.source = node
        self.graph = scope.graph
        assert isinstance(node.target, torch._ops.OpOverload)
        schema = node.target._schema
        self.label = schema.name
        self.name = operator_key(node.target)
        self.schema = {argument.name: argument for argument in schema.arguments}
        self.arguments = {
            **{name: argument.default_value for name, argument in self.schema.items()},
            **dict(zip(self.schema, node.args, strict=False)),
            **node.kwargs,
        }
        value = node.meta.get("val")
        reads = any(isinstance(argument.type, torch.TensorType) for argument in schema.arguments)
        if not reads and isinstance(value, torch.Tensor) and "dtype" in self.arguments:
            self.arguments["dtype"] = value.dtype  # torch's default where none is stated
        several = isinstance(value, list | tuple)
        count = len(value) if isinstance(value, list | tuple) else 1
        self.outputs = [Element(node, i) for i in range(count)] if several else [node]

    def constant_of(self, handle: Handle) -> Any:
        if isinstance(handle, fx.Node):
            return self.scope.constants.get(handle, MISSING)
        if isinstance(handle, list | tuple):
            items = [self.constant_of(item) for item in handle]
            return MISSING if any(item is MISSING for item in items) else items
        if isinstance(handle, torch.dtype | torch.layout | torch.memory_format):
            return CODES.get(handle, -1)
        return handle

    def operand_of(self, handle: Handle) -> Operand:
        if isinstance(handle, fx.Node):
            return self.scope.operand(handle)
        return handle if isinstance(handle, int) and not isinstance(handle, bool) else None

    def is_dense(self) -> bool:
        value = self.node.meta["val"]
        pairs = zip(value.stride(), value.shape, strict=True)
        order = sorted((hint_of(s) or 0, hint_of(n) or 0) for s, n in pairs if hint_of(n) != 1)
        step = 1
        for stride, size in order:
            if stride != step:
                return False
            step *= size
        return True

    def list_of(self, handle: Handle) -> Sequence[Handle] | None:
        return handle if isinstance(handle, list | tuple) else None

    def is_used(self, handle: Handle) -> bool:
        if isinstance(handle, fx.Node):
            return bool(handle.users)
        return any(user.args[1:] == (handle.position,) for user in handle.node.users)

    def unpacked(self) -> int | None:
        return len(self.outputs)

    def make_list(self, element: Callable[[int], Value]) -> None:
        self.scope.lists[self.node] = element

    def bind(self, handle: Handle, operand: Operand) -> None:
        state = isinstance(operand, Value) and operand.is_state
        if state and not is_view(self.node) and self._is_written_later():
            raise Refused("it copies what may be written later")
        if isinstance(handle, Element):
            self.scope.elements[handle] = operand
            self.scope.lists[self.node] = self._element
        else:
            self.scope.bind(handle, operand)

    def _is_written_later(self) -> bool:
        """Whether something after the call writes to what it reads or makes."""
        nodes = list(self.node.graph.nodes)
        own = {self.node, *map(base, self.node.all_input_nodes)}
        later = nodes[nodes.index(self.node) + 1 :]
        return any(writes(node) and base(node.args[0]) in own for node in later)

    def _element(self, position: int) -> Operand:
        return self.scope.elements[Element(self.node, position)]


def operator_key(target: torch._ops.OpOverload) -> str:
    """Return the key of an operator in the table: its name with its overload."""
    schema = target._schema
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


def operator_of(key: str) -> torch._ops.OpOverload | None:
    """Return the operator of a key in the table; None if this torch has none of that name."""
    name, _, overload = key.removeprefix("aten::").partition(".")
    packet = getattr(torch.ops.aten, name, None) if key.startswith("aten::") else None
    found: torch._ops.OpOverload | None = getattr(packet, overload or "default", None)
    return found


# What is no call of aten.


def get_item(scope: Scope, node: fx.Node) -> None:
    """One of several results."""
    several, position = node.args
    if not isinstance(several, fx.Node) or several not in scope.lists:
        raise Refused("what is read of its results is not known")
    assert isinstance(position, int)
    scope.bind(node, scope.lists[several](position))


def _number(scope: Scope, node: fx.Node, op: str, arguments: Sequence[Any]) -> None:
    """Arithmetic of integers, from the left."""
    operands = []
    for argument in arguments:
        operand = scope.operand(argument) if isinstance(argument, fx.Node) else argument
        number = isinstance(operand, int) and not isinstance(operand, bool)
        if not (number or (isinstance(operand, Value) and operand.kind == "number")):
            raise Refused("it is no arithmetic of integers")
        operands.append(operand)
    total, *others = operands
    for other in others:
        result = scope.graph.value("number")
        origin = (name_of(node),)
        scope.graph.add(op, [total, other], outputs=[result], origin=origin, source=node)
        total = result
    scope.bind(node, total)


def name_of(node: fx.Node) -> str:
    """Return the name of what a node calls."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target._schema.name)
    return str(getattr(target, "__name__", target))


def _arithmetic(op: str) -> Callable[[Scope, fx.Node], None]:
    return lambda scope, node: _number(scope, node, op, node.args)


def _sum(scope: Scope, node: fx.Node) -> None:
    (terms,) = node.args
    assert isinstance(terms, list | tuple)
    _number(scope, node, "number_add", terms)


def _power(scope: Scope, node: fx.Node) -> None:
    number, exponent = node.args
    if exponent != 2:
        raise Refused(f"the exponent is {exponent}")
    _number(scope, node, "number_mul", [number, number])


FUNCTIONS: dict[Any, Callable[[Scope, fx.Node], None]] = {
    operator.getitem: get_item,
    operator.add: _arithmetic("number_add"),
    operator.sub: _arithmetic("number_sub"),
    operator.mul: _arithmetic("number_mul"),
    operator.floordiv: _arithmetic("number_floordiv"),
    operator.mod: _arithmetic("number_remainder"),
    operator.pow: _power,
    torch.sym_sum: _sum,
}


def is_ordered(node: fx.Node) -> bool:
    """Whether a node keeps its order among its kin: it is random, or may have effects."""
    if node.target in FUNCTIONS:
        return False
    if not isinstance(node.target, torch._ops.OpOverload):
        return node.op != "call_function" or not callable(node.target) or node.is_impure()
    random = torch.Tag.nondeterministic_seeded in node.target.tags
    return random or writes(node) or node.is_impure()
