"""TorchScript's calls, as importers see them, and its own operators of lists and numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.backends.zendnn.frontends.aten import IMPORTERS, same_number
from torch.backends.zendnn.frontends.calls import ANY, MISSING, Call, Refused
from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import SOME_INTEGER, Kind, Operand, Value

if TYPE_CHECKING:
    from torch.backends.zendnn.frontends.torchscript.state import States

# torch's own stubs of its graph know too little of it.
TorchValue = Any
TorchNode = Any


def qualified(namespace: str, names: str) -> frozenset[str]:
    """Return the operators of a namespace that have these names, which spaces separate."""
    return frozenset(f"{namespace}::{name}" for name in names.split())


def is_constant(value: TorchValue) -> bool:
    """Whether the graph itself says what ``value`` is."""
    return bool(value.node().kind() == "prim::Constant")


def kind_of(value: TorchValue) -> Kind:
    """Return the engine's kind of a TorchScript value."""
    kinds: dict[str, Kind] = {"TensorType": "tensor", "IntType": "number"}
    return kinds.get(value.type().kind(), "other")


#: The elements of a list, the tensor whose sizes it holds, or how to get an element of it.
ListContent = tuple[TorchValue, ...] | Value | Callable[[int], Value]


@dataclass
class Scope:
    """What the values of one block have become so far; they are named by ``unique()``."""

    graph: Graph
    #: Values that must be integers or booleans (``dtypes.py``).
    whole: frozenset[int] = frozenset()
    #: An identity gives its result the operand that it read.
    operands: dict[int, Operand] = field(default_factory=dict)
    #: Lists make no nodes: their readers look through them.
    lists: dict[int, ListContent] = field(default_factory=dict)
    #: What the block writes to, where that is known (``state.py``).
    states: States | None = None

    def operand(self, value: TorchValue) -> Operand:
        """Return what a TorchScript value is here, an input of the graph if nothing made it."""
        key = value.unique()
        if key not in self.operands:
            self.bind(value, self._outer(value))
        return self.operands[key]

    def bind(self, value: TorchValue, operand: Operand) -> None:
        """Note what a TorchScript value is here."""
        key = value.unique()
        self.operands[key] = operand
        if not isinstance(operand, Value):
            return
        if operand.source is None:
            operand.source = value
        if key in self.whole and operand.kind == "tensor" and operand.dtype is None:
            operand.dtype = SOME_INTEGER
        if self.states is not None and key in self.states.roots:
            operand.is_state = operand.constant is None

    def _outer(self, value: TorchValue) -> Operand:
        if not is_constant(value):
            return self.graph.input(kind_of(value), value)
        constant = value.toIValue()
        if isinstance(constant, torch.Tensor):
            return self.graph.constant(constant, value)
        if isinstance(constant, int) and not isinstance(constant, bool):
            return constant
        return None

    def read(self, value: TorchValue) -> list[Value]:
        """Return all the engine's values that a node reads by reading ``value``."""
        content = self.lists.get(value.unique())
        if isinstance(content, tuple):
            return [v for element in content for v in self.read(element)]
        operand = content or self.operand(value)
        return [operand] if isinstance(operand, Value) else []


class TorchScriptCall(Call):
    """One TorchScript node."""

    def __init__(self, scope: Scope, node: TorchNode) -> None:
        self.scope = scope
        self.node = self.source = node
        self.graph = scope.graph
        self.name = operator_name(node)
        self.label = node.kind()
        self.schema = schema_arguments(node.schema())
        self.arguments = dict(zip(self.schema, node.inputs(), strict=False))
        self.outputs = list(node.outputs())

    def constant_of(self, handle: TorchValue) -> Any:
        if is_constant(handle):
            return handle.toIValue()
        elements = self.scope.lists.get(handle.unique())
        if isinstance(elements, tuple) and all(map(is_constant, elements)):
            return [element.toIValue() for element in elements]
        return MISSING

    def operand_of(self, handle: TorchValue) -> Operand:
        return self.scope.operand(handle)

    def list_of(self, handle: TorchValue) -> tuple[TorchValue, ...] | Value | None:
        content = self.scope.lists.get(handle.unique())
        return content if isinstance(content, tuple | Value) else None

    def is_used(self, handle: TorchValue) -> bool:
        return bool(handle.uses())

    def unpacked(self) -> int | None:
        users = [use.user for use in self.outputs[0].uses()]
        at_once = [user.kind() for user in users] == ["prim::ListUnpack"]
        return users[0].outputsSize() if at_once else None

    def make_list(self, element: Callable[[int], Value]) -> None:
        for user in (use.user for use in self.outputs[0].uses()):
            one = user.kind() == "aten::__getitem__" and is_constant(user.inputsAt(1))
            if not one and self.unpacked() is None:
                raise Refused("what is read of its results is not known")
        self.scope.lists[self.outputs[0].unique()] = element

    def bind(self, handle: TorchValue, operand: Operand) -> None:
        self.scope.bind(handle, operand)


@functools.cache
def schema_arguments(schema: str) -> dict[str, Any]:
    """Return what a schema says of each argument; nothing for a node without a schema."""
    if schema.startswith("("):
        return {}
    return {argument.name: argument for argument in torch._C.parse_schema(schema).arguments}


def operator_name(node: TorchNode) -> str:
    """Return the key of a node in the table: its operator with its overload."""
    schema = node.schema()
    return node.kind() if schema.startswith("(") else str(schema.split("(", 1)[0])


# Lists and numbers.


def list_construct(call: TorchScriptCall) -> None:
    """A list or a tuple: whoever reads it looks through it."""
    call.scope.lists[call.outputs[0].unique()] = tuple(call.node.inputs())


def size_list(call: TorchScriptCall) -> None:
    """All sizes of a tensor."""
    call.scope.lists[call.outputs[0].unique()] = call.tensor("self", ANY)


def get_item(call: TorchScriptCall) -> None:
    """One element of a list."""
    call.identity(_element(call, call.integer("idx")))


def list_unpack(call: TorchScriptCall) -> None:
    """All elements of a list."""
    for position, output in enumerate(call.outputs):
        call.bind(output, _element(call, position, len(call.outputs)))


def _element(call: TorchScriptCall, position: int, length: int | None = None) -> Operand:
    """Return an element of the list that a call reads, which has this length if it is known."""
    content = call.scope.lists.get(call.node.inputsAt(0).unique())
    if isinstance(content, Value):
        if length is None or content.rank == length:
            return call.step("size", [content, position])
        if content.rank is not None:
            raise Refused(f"{content.rank} sizes are unpacked into {length}")
        return call.step("size", [content, position], rank=length)
    try:
        if callable(content):
            return content(position)
        if content is None or len(content) != (length or len(content)):
            raise IndexError
        operand = call.scope.operand(content[position])
    except IndexError:
        raise Refused("what the list holds is not known") from None
    if operand is None or (isinstance(operand, Value) and operand.kind == "other"):
        raise Refused("the list holds neither tensors nor integers")
    return operand


#: Every operator that the engine takes of a TorchScript graph.
OPERATORS: dict[str, Callable[[TorchScriptCall], None]] = {
    **IMPORTERS,
    "prim::ListConstruct": list_construct,
    "prim::TupleConstruct": list_construct,
    "prim::ListUnpack": list_unpack,
    "prim::NumToTensor.Scalar": same_number,
    "aten::__getitem__.t": get_item,
    "aten::size": size_list,
}
