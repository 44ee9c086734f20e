"""What an importer sees of one call of an aten operator, whatever kind of model it comes from.

Importers (``aten/``) ask for arguments as constants, tensors or numbers of the engine's graph, and
state what the call makes. ``Refused`` says why the engine does not take it.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeGuard

import torch
from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Kind, Operand, Value
from torch.backends.zendnn.passes import _match
from torch.backends.zendnn.table.dtypes import COMPUTED
from torch.backends.zendnn.table.notation import Attribute
from torch.backends.zendnn.table.operators import NUMBERS

Dtypes = frozenset[torch.dtype]
FLOATING: Dtypes = frozenset(getattr(torch, name) for name in COMPUTED)
INDEX: Dtypes = frozenset({torch.int64, torch.int32})
BOOL: Dtypes = frozenset({torch.bool})
#: What views and sizes may be taken of.
ANY: Dtypes = FLOATING | INDEX | BOOL

#: A value or an argument as the model has it.
Handle = Any


class Refused(Exception):
    """Why the engine does not take a call; ``dtype`` is what it lacks, if that is the reason."""

    def __init__(self, reason: str, dtype: torch.dtype | None = None) -> None:
        super().__init__(reason)
        self.dtype = dtype


def _is_tensor(operand: Operand) -> TypeGuard[Value]:
    return isinstance(operand, Value) and operand.kind == "tensor"


#: Stands for an argument that is no constant.
MISSING = object()


def words(dtypes: Iterable[torch.dtype]) -> str:
    """Return dtypes as people write them."""
    return " or ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))


class Call(abc.ABC):
    """One call: ``name`` is the operator with its overload, ``label`` what users know it as."""

    name: str
    label: str
    graph: Graph
    arguments: dict[str, Handle]
    #: What the operator's schema says of each argument.
    schema: dict[str, Any]
    #: What the call makes, in the model's terms.
    outputs: list[Handle]
    #: What the nodes of the call note as their source.
    source: Any
    #: Whether torch has checked that sizes fit together before it calls what it captured.
    is_checked = False

    # What a front end says.

    @abc.abstractmethod
    def constant_of(self, handle: Handle) -> Any:
        """Return a constant, with lists of constants as lists; MISSING for what is none."""

    @abc.abstractmethod
    def operand_of(self, handle: Handle) -> Operand:
        """Return what a value is in the engine's graph; None for what has no part in it."""

    @abc.abstractmethod
    def list_of(self, handle: Handle) -> Sequence[Handle] | Value | None:
        """Return the elements of a list that the model makes, or the tensor whose sizes it holds.

        None where they are not known.
        """

    @abc.abstractmethod
    def is_used(self, handle: Handle) -> bool:
        """Whether anybody reads a value."""

    def is_dense(self) -> bool:
        """Whether the front end knows that the call's result has no gaps in memory."""
        return False

    @abc.abstractmethod
    def unpacked(self) -> int | None:
        """Return the length of the list that the call makes, if it is unpacked at once."""

    @abc.abstractmethod
    def make_list(self, element: Callable[[int], Value]) -> None:
        """State how to get an element of the list that the call makes."""

    @abc.abstractmethod
    def bind(self, handle: Handle, operand: Operand) -> None:
        """Note what a value of the model is in the engine's graph."""

    # Arguments.

    def has(self, name: str) -> bool:
        """Whether the operator has such an argument."""
        return name in self.arguments

    def constant(self, name: str) -> Any:
        """Return a constant argument, or MISSING; None for one that the operator does not have."""
        return self.constant_of(self.arguments[name]) if self.has(name) else None

    def python(self, name: str) -> Any:
        """Return a constant argument."""
        value = self.constant(name)
        if value is MISSING:
            raise Refused(f"{name} is not a constant")
        return value

    def absent(self, name: str) -> bool:
        """Whether an argument is None, or the operator does not have it."""
        return self.constant(name) is None

    def require(self, name: str, *allowed: Any) -> None:
        """Refuse the call unless the argument is one of these constants."""
        value = self.python(name)
        if value not in allowed:
            raise Refused(f"{name} is given" if allowed == (None,) else f"{name} is {value}")

    def require_defaults(self, named: Iterable[str]) -> None:
        """Refuse the call unless all arguments but those named have their defaults."""
        for name in self.arguments.keys() - set(named):
            if not self.schema[name].has_default_value():
                raise Refused(f"{name} is given")
            self.require(name, self.schema[name].default_value)

    def integer(self, name: str) -> int:
        """Return a constant integer."""
        return int(self.python(name))

    def integers(self, name: str, length: int | None = None) -> tuple[int, ...]:
        """Return a constant list of integers; a single one stands for ``length`` equal ones.

        Without ``length``, the schema states it, or any will do.
        """
        value = self.python(name)
        items = tuple(value) if isinstance(value, list | tuple) else (value,)
        return items * (length or self.schema[name].N or 1) if len(items) == 1 else items

    def reduction(self) -> dict[str, Attribute]:
        """Return which dimensions are reduced, unless all are, and whether they stay."""
        dims = () if self.absent("dim") else self.integers("dim")
        keep = not self.absent("keepdim") and bool(self.python("keepdim"))
        return {"keep": keep, **({"dims": dims} if dims else {})}

    def real(self, name: str) -> float:
        """Return a constant number that float32 can hold: infinite, or with all its digits."""
        value = self.python(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Refused(f"{name} is {value}")
        if not (math.isinf(value) or _match.is_sound(value)):
            raise Refused(f"{name} is {value}, which float32 does not hold")
        return float(value)

    def tensor(self, name: str, dtypes: Dtypes = FLOATING) -> Value:
        """Return a tensor; its dtype is checked as far as it is known."""
        return self.as_tensor(self.arguments[name], name, dtypes)

    def as_tensor(self, handle: Handle, name: str, dtypes: Dtypes = FLOATING) -> Value:
        """Return an argument, or an element of one, as a tensor."""
        operand = self.operand_of(handle)
        if not isinstance(operand, Value) or operand.kind != "tensor":
            raise Refused(f"{name} is not a tensor")
        if (constant := operand.constant) is not None:
            strided = constant.layout == torch.strided
            if not strided or constant.device.type != "cpu" or constant.is_quantized:
                raise Refused(f"{name} is not a dense CPU tensor")
            if constant.dtype not in dtypes:
                reason = f"{name} is {words([constant.dtype])}, not {words(dtypes)}"
                raise Refused(reason, constant.dtype)
        if dtypes <= FLOATING and operand.is_integer:
            raise Refused(f"{name} holds integers or booleans")
        known = getattr(torch, operand.dtype or "", None)
        if isinstance(known, torch.dtype) and known not in dtypes:
            raise Refused(f"{name} is {words([known])}, not {words(dtypes)}", known)
        return operand

    def weight(self, name: str, dtypes: Dtypes = FLOATING) -> torch.Tensor:
        """Return a constant tensor."""
        constant = self.tensor(name, dtypes).constant
        if constant is None:
            raise Refused(f"{name} is not a constant")
        if not constant.numel():
            raise Refused(f"{name} is empty")
        return constant

    def elements(self, name: str) -> Sequence[Handle]:
        """Return the elements of a list that the model makes."""
        elements = self.list_of(self.arguments[name])
        if elements is None or isinstance(elements, Value):
            raise Refused(f"the length of {name} is not known")
        return elements

    def as_number(self, handle: Handle, name: str) -> Operand:
        """Return an argument, or an element of one, as an integer or a value of kind number."""
        operand = self.operand_of(handle)
        if isinstance(operand, int) or (isinstance(operand, Value) and operand.kind == "number"):
            return operand
        constant = operand.constant if isinstance(operand, Value) else None
        if constant is not None and constant.dim() == 0 and constant.dtype == torch.int64:
            return int(constant.item())
        raise Refused(f"{name} is not an integer")

    def number(self, name: str) -> Operand:
        """Return an integer or a value of kind number."""
        return self.as_number(self.arguments[name], name)

    def numbers(self, name: str) -> list[Operand]:
        """Return the elements of a list of integers."""
        handle = self.arguments[name]
        if self.constant_of(handle) is not MISSING:
            return list(self.integers(name))
        tensor = self.list_of(handle)
        if isinstance(tensor, Value):
            return self.sizes(tensor, name)
        return [self.as_number(element, name) for element in self.elements(name)]

    def sizes(self, tensor: Value, name: str) -> list[Operand]:
        """Return all sizes of a tensor, which is what the argument ``name`` is about."""
        if tensor.rank is None:
            raise Refused(f"how many dimensions {name} has is not known")
        return [self.step("size", [tensor, dim]) for dim in range(tensor.rank)]

    def are_numbers(self, *names: str) -> bool:
        """Whether all these arguments are integers, even if the model keeps them in tensors."""
        try:
            return bool([self.number(name) for name in names])
        except Refused:
            return False

    # Results.

    def steps(
        self, op: str, inputs: Sequence[Operand], count: int, **attributes: Attribute
    ) -> list[Value]:
        """Add a node that makes so many values, of which no plan holds empty ones."""
        kind: Kind = "number" if op in NUMBERS else "tensor"
        results = [self.graph.value(kind) for _ in range(count)]
        self.graph.add(
            op,
            inputs,
            outputs=results,
            attributes=attributes,
            origin=(self.label,),
            source=self.source,
        )
        near = results if kind == "number" else [*filter(_is_tensor, inputs), *results]
        if any(0 in (value.dims or ()) for value in near):
            raise Refused("a tensor is empty")
        return results

    def step(self, op: str, inputs: Sequence[Operand], **attributes: Attribute) -> Value:
        """Add a node that makes one value."""
        (result,) = self.steps(op, inputs, 1, **attributes)
        return result

    def result(self, op: str, inputs: Sequence[Operand], **attributes: Attribute) -> Value:
        """Add the node that makes the call's result."""
        result = self.step(op, inputs, **attributes)
        self.identity(result)
        return result

    def identity(self, operand: Operand) -> None:
        """Make an operand the call's only result that anybody reads."""
        first, *others = self.outputs
        if any(map(self.is_used, others)):
            raise Refused("more than its first result is used")
        self.bind(first, operand)
