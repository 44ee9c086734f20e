"""TorchScript's calls, as importers see them, and its own operators of lists and numbers."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.backends.zendnn.frontends.aten import IMPORTERS, Importer, same_number
from torch.backends.zendnn.frontends.calls import ANY, MISSING, Call, Refused
from torch.backends.zendnn.graph import SOME_INTEGER, Graph, Kind, Operand, Value

if TYPE_CHECKING:
    from torch.backends.zendnn.frontends.torchscript.state import States

# torch's own stubs of its graph know too little of it.
TorchValue = Any
TorchNode = Any


def is_constant(value: TorchValue) -> bool:
    """Whether the graph itself says what ``value`` is."""
    return bool(value.node().kind() == "prim::Constant")


def kind_of(value: TorchValue) -> Kind:
    """Return the engine's kind of a TorchScript value."""
    kinds: dict[str, Kind] = {"TensorType": "tensor", "IntType": "number"}
    return kinds.get(value.type().kind(), "other")


#: The elements of a list, or the tensor whose sizes it holds.
ListContent = tuple[TorchValue, ...] | Value


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
        self.operands[value.unique()] = operand
        if isinstance(operand, Value):
            self.learn_type(operand, value)
            if self.states is not None and value.unique() in self.states.roots:
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

    def learn_type(self, operand: Value, value: TorchValue) -> None:
        """Note what TorchScript says of the type of its value."""
        if kind_of(value) != "tensor" or operand.kind != "tensor" or operand.constant is not None:
            return
        rank = value.type().dim()
        if rank is not None and operand.rank != rank:
            operand.dims = (None,) * rank
        if value.unique() in self.whole and operand.dtype is None:
            operand.dtype = SOME_INTEGER

    def read(self, value: TorchValue) -> list[Value]:
        """Return all the engine's values that a node reads by reading ``value``."""
        content = self.lists.get(value.unique())
        if isinstance(content, Value):
            return [content]
        if content is not None:
            return [v for element in content for v in self.read(element)]
        operand = self.operand(value)
        return [operand] if isinstance(operand, Value) else []


class TorchScriptCall(Call):
    """One TorchScript node."""

    def __init__(self, scope: Scope, node: TorchNode) -> None:
        self.scope = scope
        self.node = node
        self.graph = scope.graph
        self.name = operator_name(node)
        self.label = node.kind()
        names, self.defaults = schema_arguments(node.schema())
        self.arguments = dict(zip(names, node.inputs(), strict=False))
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

    def list_of(self, handle: TorchValue) -> ListContent | None:
        return self.scope.lists.get(handle.unique())

    def dtype_of(self, handle: TorchValue) -> torch.dtype | None:
        return handle.type().dtype()

    def is_used(self, position: int) -> bool:
        return bool(self.outputs[position].uses())

    def parts(self, count: int | None = None) -> list[TorchValue | None]:
        unpacked = self._unpacked()
        if unpacked is not None:
            return unpacked
        if count is None:
            raise Refused("its results are not unpacked at once")
        found: list[TorchValue | None] = [None] * count
        for position, value in self.parts_read():
            if not -count <= position < count or found[position] is not None:
                raise Refused("what is read of its results is not known")
            found[position] = value
        return found

    def parts_read(self) -> list[tuple[int, TorchValue]]:
        unpacked = self._unpacked()
        if unpacked is not None:
            return list(enumerate(unpacked))
        found = []
        for user in (use.user for use in self.node.output().uses()):
            if user.kind() != "aten::__getitem__" or not is_constant(user.inputsAt(1)):
                raise Refused("what is read of its results is not known")
            found.append((user.inputsAt(1).toIValue(), user.output()))
        return found

    def _unpacked(self) -> list[TorchValue] | None:
        """Return all elements of the list, if they are taken out at once."""
        users = [use.user for use in self.node.output().uses()]
        at_once = [user.kind() for user in users] == ["prim::ListUnpack"]
        return list(users[0].outputs()) if at_once else None

    def bind(self, handle: TorchValue, operand: Operand) -> None:
        self.scope.bind(handle, operand)


@functools.cache
def schema_arguments(schema: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the names of a schema's arguments, and their defaults.

    There are none for a node without a schema.
    """
    if "(" not in schema or schema.startswith("("):
        return (), {}
    arguments = torch._C.parse_schema(schema).arguments
    defaults = {a.name: a.default_value for a in arguments if a.has_default_value()}
    return tuple(argument.name for argument in arguments), defaults


def operator_name(node: TorchNode) -> str:
    """Return the key of a node in the table: its operator with its overload."""
    schema = node.schema()
    return node.kind() if schema.startswith("(") else str(schema.split("(", 1)[0])


# Lists and numbers.


def constant_chunk(call: TorchScriptCall) -> None:
    """Equal parts, in torch's own form of it after it has run."""
    x = call.as_tensor(call.node.inputsAt(0), "self", ANY)
    chunks, dim = call.node.i("chunks"), call.node.i("dim")
    call.results("split", [x], call.outputs, dim=dim, chunks=chunks)


def list_construct(call: TorchScriptCall) -> None:
    """A list or a tuple: whoever reads it looks through it."""
    call.scope.lists[call.node.output().unique()] = tuple(call.node.inputs())


def size_list(call: TorchScriptCall) -> None:
    """All sizes of a tensor."""
    call.scope.lists[call.node.output().unique()] = call.tensor("self", ANY)


def get_item(call: TorchScriptCall) -> None:
    """One element of a list."""
    if call.outputs[0].unique() in call.scope.operands:
        return  # the node that made the list has made it
    position = call.integer("idx")
    content = call.scope.lists.get(call.arguments["list"].unique())
    _bind_element(call, call.outputs[0], content, position)


def list_unpack(call: TorchScriptCall) -> None:
    """All elements of a list."""
    if all(output.unique() in call.scope.operands for output in call.outputs):
        return  # the node that made the list has made them
    content = call.scope.lists.get(call.node.inputsAt(0).unique())
    if isinstance(content, tuple) and len(content) != len(call.outputs):
        content = None
    for position, output in enumerate(call.outputs):
        _bind_element(call, output, content, position)


def _bind_element(
    call: TorchScriptCall, output: TorchValue, content: ListContent | None, position: int
) -> None:
    if isinstance(content, Value):
        call.results("size", [content, position], [output])
        return
    if content is None or not -len(content) <= position < len(content):
        raise Refused("what the list holds is not known")
    operand = call.scope.operand(content[position])
    if operand is None or (isinstance(operand, Value) and operand.kind == "other"):
        raise Refused("the list holds neither tensors nor integers")
    call.bind(output, operand)


#: Every operator that the engine takes of a TorchScript graph.
OPERATORS: dict[str, Importer] = IMPORTERS | {  # type: ignore[assignment]
    "prim::ConstantChunk": constant_chunk,
    "prim::ListConstruct": list_construct,
    "prim::TupleConstruct": list_construct,
    "prim::ListUnpack": list_unpack,
    "prim::NumToTensor.Scalar": same_number,
    "aten::__getitem__.t": get_item,
    "aten::size": size_list,
}
