"""Which TorchScript operators the engine takes: a table from a schema's name to an importer.

An importer reads one TorchScript node and adds the engine's nodes that do the same (docs/plan.md),
or raises ``Refused`` with a reason for people. It states what can be known before anything runs:
dtypes and ranks are mostly unknown here, and the plan checks them when it sees tensors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch.backends.zendnn import _C
from torch.backends.zendnn.graph import Attribute, Graph, Kind, Node, Operand, Value
from torch.backends.zendnn.passes import _match
from torch.backends.zendnn.passes._sizes import Sizes
from torch.backends.zendnn.passes.remove_identities import NO_END

# torch's own stubs of its graph know too little of it.
TorchValue = Any
TorchNode = Any

Dtypes = frozenset[torch.dtype]
FLOATING: Dtypes = frozenset({torch.float32, torch.bfloat16})
INDEX: Dtypes = frozenset({torch.int64, torch.int32})
BOOL: Dtypes = frozenset({torch.bool})
#: What views and sizes may be taken of.
ANY: Dtypes = FLOATING | INDEX | {torch.bool}


class Refused(Exception):
    """Why the engine does not take a node."""


def is_constant(value: TorchValue) -> bool:
    """Whether the graph itself says what ``value`` is."""
    return bool(value.node().kind() == "prim::Constant")


def is_none(value: TorchValue) -> bool:
    """Whether ``value`` is the constant None."""
    return is_constant(value) and value.toIValue() is None


def kind_of(value: TorchValue) -> Kind:
    """Return the engine's kind of a TorchScript value."""
    kinds: dict[str, Kind] = {"TensorType": "tensor", "IntType": "number"}
    return kinds.get(value.type().kind(), "other")


def is_dense(tensor_: torch.Tensor) -> bool:
    """Whether a constant is an ordinary tensor."""
    strided = tensor_.layout == torch.strided and tensor_.device.type == "cpu"
    return strided and not tensor_.is_quantized


def words(dtypes: Iterable[torch.dtype]) -> str:
    """Return dtypes as people write them."""
    return " or ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))


@dataclass
class SizeList:
    """The list that ``x.size()`` makes."""

    tensor: Value


@dataclass
class Scope:
    """What the values of one block have become so far."""

    graph: Graph
    #: Values that must be integers or booleans (``frontends.torchscript_dtypes``).
    whole: frozenset[int] = frozenset()
    #: By ``torch._C.Value.unique()``. An identity gives its result the operand that it read.
    operands: dict[int, Operand] = field(default_factory=dict)
    #: Lists make no nodes: their readers look through them.
    lists: dict[int, tuple[TorchValue, ...] | SizeList] = field(default_factory=dict)
    #: The sizes of values, as far as the graph says them.
    sizes: Sizes = field(default_factory=Sizes)

    def operand(self, value: TorchValue) -> Operand:
        """Return what a TorchScript value is here, an input of the graph if nothing made it."""
        key = value.unique()
        if key not in self.operands:
            self.operands[key] = self._outer(value)
        return self.operands[key]

    def _outer(self, value: TorchValue) -> Operand:
        if not is_constant(value):
            given = self.graph.input(kind_of(value), value)
            self.learn_type(given)
            return given
        constant = value.toIValue()
        if isinstance(constant, torch.Tensor):
            return self.graph.constant(constant, value)
        if isinstance(constant, int) and not isinstance(constant, bool):
            return constant
        return None

    def learn_type(self, value: Value) -> None:
        """Note what TorchScript says of the rank of its value."""
        rank = value.source.type().dim() if value.kind == "tensor" else None
        if rank is not None:
            self.sizes.learn_rank(value, rank)

    def read(self, value: TorchValue) -> list[Value]:
        """Return all the engine's values that a node reads by reading ``value``."""
        content = self.lists.get(value.unique())
        if isinstance(content, SizeList):
            return [content.tensor]
        if content is not None:
            return [v for element in content for v in self.read(element)]
        operand = self.operand(value)
        return [operand] if isinstance(operand, Value) else []


class Call:
    """One TorchScript node, as an importer sees it."""

    def __init__(self, scope: Scope, node: TorchNode) -> None:
        self.scope = scope
        self.node = node
        self.kind: str = node.kind()
        names = argument_names(node.schema())
        self.arguments: dict[str, TorchValue] = dict(zip(names, node.inputs(), strict=False))

    # What was given.

    def python(self, name: str) -> Any:
        """Return a constant argument."""
        value = self.arguments[name]
        if is_constant(value):
            return value.toIValue()
        elements = self.scope.lists.get(value.unique())
        if isinstance(elements, tuple) and all(map(is_constant, elements)):
            return [element.toIValue() for element in elements]
        raise Refused(f"{name} is not a constant")

    def integer(self, name: str) -> int:
        """Return a constant integer."""
        value = self.python(name)
        if not isinstance(value, int):
            raise Refused(f"{name} is {value}")
        return int(value)

    def integers(self, name: str, length: int | None = None) -> tuple[int, ...]:
        """Return a constant list of integers; a single one stands for ``length`` equal ones."""
        value = self.python(name)
        if value is None:
            raise Refused(f"{name} is None")
        items = tuple(value) if isinstance(value, list) else (value,)
        return items * (length or 1) if len(items) == 1 else items

    def real(self, name: str) -> float:
        """Return a constant number that float32 can hold: infinite, or with all its digits."""
        value = self.python(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Refused(f"{name} is {value}")
        if not (math.isinf(value) or _match.is_sound(value)):
            raise Refused(f"{name} is {value}, which float32 does not hold")
        return float(value)

    def absent(self, name: str) -> bool:
        """Whether an argument is None."""
        return is_none(self.arguments[name])

    def tensor(self, name: str, dtypes: Dtypes = FLOATING) -> Value:
        """Return a tensor; of constants and of values with a known type the dtype is checked."""
        return self.as_tensor(self.arguments[name], name, dtypes)

    def as_tensor(self, value: TorchValue, name: str, dtypes: Dtypes = FLOATING) -> Value:
        """Return an argument, or an element of one, as a tensor."""
        operand = self.scope.operand(value)
        if not isinstance(operand, Value) or operand.kind != "tensor":
            raise Refused(f"{name} is not a tensor")
        dtype = value.type().dtype()
        if operand.constant is not None:
            dtype = operand.constant.dtype
            if not is_dense(operand.constant):
                raise Refused(f"{name} is not a dense CPU tensor")
        if dtype is not None and dtype not in dtypes:
            raise Refused(f"{name} is {words([dtype])}, not {words(dtypes)}")
        if dtypes <= FLOATING and value.unique() in self.scope.whole:
            raise Refused(f"{name} holds integers or booleans")
        return operand

    def weight(self, name: str, dtypes: Dtypes = FLOATING) -> torch.Tensor:
        """Return a constant tensor."""
        constant = self.tensor(name, dtypes).constant
        if constant is None:
            raise Refused(f"{name} is not a constant")
        return constant

    def tensors(self, name: str, dtypes: Dtypes = FLOATING) -> list[Value]:
        """Return the elements of a list of tensors."""
        return [self.as_tensor(element, name, dtypes) for element in self.elements(name)]

    def elements(self, name: str) -> tuple[TorchValue, ...]:
        """Return the elements of a list that the graph makes."""
        elements = self.scope.lists.get(self.arguments[name].unique())
        if not isinstance(elements, tuple):
            raise Refused(f"the length of {name} is not known")
        return elements

    def as_number(self, value: TorchValue, name: str) -> Operand:
        """Return an argument, or an element of one, as an integer or a value of kind number."""
        operand = self.scope.operand(value)
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
        if is_constant(self.arguments[name]):
            return list(self.integers(name))
        content = self.scope.lists.get(self.arguments[name].unique())
        if isinstance(content, SizeList):
            return self.sizes(content.tensor, name)
        return [self.as_number(element, name) for element in self.elements(name)]

    def sizes(self, tensor_: Value, name: str) -> list[Operand]:
        """Return all sizes of a tensor, which is what the argument ``name`` is about."""
        rank = self.scope.sizes.rank(tensor_)
        if rank is None:
            raise Refused(f"how many dimensions {name} has is not known")
        made: list[Operand] = []
        for dim in range(rank):
            size = self.scope.graph.value("number")
            self._add("size", [tensor_, dim], [size], {})
            made.append(size)
        return made

    def are_numbers(self, *names: str) -> bool:
        """Whether all these arguments are integers, even if TorchScript keeps them in tensors."""
        try:
            return bool([self.number(name) for name in names])
        except Refused:
            return False

    # What is made.

    def step(self, op: str, inputs: Sequence[Operand], **attributes: Attribute) -> Value:
        """Add a node whose result only this importer knows."""
        return self._add(op, inputs, None, attributes).output

    def result(self, op: str, inputs: Sequence[Operand], **attributes: Attribute) -> None:
        """Add the node that makes what the TorchScript node makes first."""
        self.results(op, inputs, [self.node.outputsAt(0)], "tensor", **attributes)

    def results(
        self,
        op: str,
        inputs: Sequence[Operand],
        sources: Sequence[TorchValue | None],
        kind: Kind = "tensor",
        **attributes: Attribute,
    ) -> None:
        """Add a node that makes these TorchScript values; None stands for one that nobody reads."""
        made = [self.scope.graph.value(kind, source) for source in sources]
        self._add(op, inputs, made, attributes)
        self.scope.operands.update((v.source.unique(), v) for v in made if v.source is not None)

    def has_rank(self, rank: int) -> None:
        """State how many dimensions the result has."""
        result = self.scope.operand(self.node.output())
        assert isinstance(result, Value)
        self.scope.sizes.learn_rank(result, rank)

    def rename(self, value: Value) -> None:
        """Make what a step made the first result of the TorchScript node."""
        source = self.node.outputsAt(0)
        value.source = source
        self.scope.operands[source.unique()] = value

    def number_result(self, op: str, inputs: Sequence[Operand]) -> None:
        """Add the node that makes a number."""
        self.results(op, inputs, [self.node.output()], "number")

    def identity(self, operand: Operand) -> None:
        """Give the TorchScript node's result the operand that it read."""
        self.scope.operands[self.node.output().unique()] = operand

    def _add(
        self,
        op: str,
        inputs: Sequence[Operand],
        outputs: Sequence[Value] | None,
        attributes: dict[str, Attribute],
    ) -> Node:
        node = self.scope.graph.add(
            op,
            inputs,
            outputs=outputs,
            attributes=attributes,
            origin=(self.kind,),
            source=(self.node,),
        )
        self.scope.sizes.learn(node)
        return node

    def unpacked(self, count: int | None = None) -> list[TorchValue | None]:
        """Return the elements of the list that the node makes; None for those that nobody reads.

        How many there are is known when ``count`` says it, or when all are taken out at once.
        """
        users = [use.user for use in self.node.output().uses()]
        if len(users) == 1 and users[0].kind() == "prim::ListUnpack":
            return list(users[0].outputs())
        if count is None:
            raise Refused("its results are not unpacked at once")
        found: list[TorchValue | None] = [None] * count
        for position, value in self.taken():
            if not -count <= position < count or found[position] is not None:
                raise Refused("what is read of its results is not known")
            found[position] = value
        return found

    def taken(self) -> list[tuple[int, TorchValue]]:
        """Return what is taken out of the list that the node makes, one by one, and from where."""
        found = []
        for use in self.node.output().uses():
            user = use.user
            if user.kind() != "aten::__getitem__" or not is_constant(user.inputsAt(1)):
                raise Refused("what is read of its results is not known")
            found.append((user.inputsAt(1).toIValue(), user.output()))
        return found


@functools.cache
def argument_names(schema: str) -> tuple[str, ...]:
    """Return the names of a schema's arguments; none for a node without a schema."""
    if "(" not in schema or schema.startswith("("):
        return ()
    return tuple(argument.name for argument in torch._C.parse_schema(schema).arguments)


def operator_name(node: TorchNode) -> str:
    """Return the key of a node in the table: its operator with its overload."""
    schema = node.schema()
    return node.kind() if schema.startswith("(") else str(schema.split("(", 1)[0])


Importer = Callable[[Call], None]
Operands = Callable[[Call], Sequence[Operand]]
AttributeOf = Callable[[Call], Attribute]
Requirement = Callable[[Call], None]


# Operands.


def tensor(name: str, dtypes: Dtypes = FLOATING) -> Operands:
    """A tensor."""
    return lambda call: [call.tensor(name, dtypes)]


def optional_tensor(name: str, dtypes: Dtypes = FLOATING) -> Operands:
    """A tensor or None."""
    return lambda call: [None if call.absent(name) else call.tensor(name, dtypes)]


def weight(name: str, dtypes: Dtypes = FLOATING) -> Operands:
    """A constant tensor."""

    def operands(call: Call) -> Sequence[Operand]:
        call.weight(name, dtypes)
        return [call.tensor(name, dtypes)]

    return operands


def optional_weight(name: str) -> Operands:
    """A constant tensor or None."""
    return lambda call: [None] if call.absent(name) else weight(name)(call)


def in_float32(operands: Operands) -> Operands:
    """Constants, as float32."""

    def converted(call: Call) -> Sequence[Operand]:
        found: list[Operand] = []
        for operand in operands(call):
            if isinstance(operand, Value) and operand.constant is not None:
                operand = call.scope.graph.constant(operand.constant.float())
            found.append(operand)
        return found

    return converted


def tensors(name: str) -> Operands:
    """A list of tensors."""
    return lambda call: call.tensors(name)


def number(name: str) -> Operands:
    """An integer, known now or when the plan runs."""
    return lambda call: [call.number(name)]


def numbers(name: str) -> Operands:
    """A list of integers, known now or when the plan runs."""
    return lambda call: call.numbers(name)


def sizes_of(name: str) -> Operands:
    """All sizes of a tensor."""
    return lambda call: call.sizes(call.tensor(name, ANY), name)


def dimension(name: str) -> Operands:
    """A constant integer, as an operand."""
    return lambda call: [call.integer(name)]


def dimensions(name: str) -> Operands:
    """A constant list of integers, as operands."""
    return lambda call: call.integers(name)


def literal(*operands: Operand) -> Operands:
    """What TorchScript does not say."""
    return lambda call: operands


# Attributes.


def fixed(value: Attribute) -> AttributeOf:
    """The same for each call."""
    return lambda call: value


def integer(name: str) -> AttributeOf:
    """A constant integer."""
    return lambda call: call.integer(name)


def integers(name: str, length: int | None = None) -> AttributeOf:
    """A constant list of integers; a single one stands for ``length`` equal ones."""
    return lambda call: call.integers(name, length)


def not_negative(name: str) -> Operands:
    """A list of integers; those that are known now are not below 0."""

    def checked(call: Call) -> Sequence[Operand]:
        values = call.numbers(name)
        known = tuple(value for value in values if isinstance(value, int))
        if min(known, default=0) < 0:
            raise Refused(f"{name} is {known}")
        return values

    return checked


def real(name: str) -> AttributeOf:
    """A constant number, as a float."""
    return lambda call: call.real(name)


def real_or(name: str, default: float) -> AttributeOf:
    """A constant number, as a float, or what stands for None."""
    return lambda call: default if call.absent(name) else call.real(name)


# Requirements.


def absent(name: str) -> Requirement:
    """The argument must be None."""

    def check(call: Call) -> None:
        if not call.absent(name):
            raise Refused(f"{name} is given")

    return check


def given(name: str) -> Requirement:
    """The argument must be a list that is not empty."""

    def check(call: Call) -> None:
        if not call.integers(name):
            raise Refused(f"{name} is empty")

    return check


def equal(name: str, *allowed: Any) -> Requirement:
    """The argument must be one of these constants."""

    def check(call: Call) -> None:
        value = call.python(name)
        if value not in allowed:
            raise Refused(f"{name} is {value}")

    return check


def matrix_and_vector(matrix: str, vector: str) -> Requirement:
    """The weights of a linear layer must be a matrix and, if any, a bias for each of its rows."""

    def check(call: Call) -> None:
        rows = call.weight(matrix).shape[:-1]
        if len(rows) != 1:
            raise Refused(f"{matrix} is no matrix")
        if not call.absent(vector) and call.weight(vector).shape != rows:
            raise Refused(f"{vector} has not one number for each row of {matrix}")

    return check


# Importers.


def row(
    op: str, *operands: Operands, requires: Sequence[Requirement] = (), **attributes: AttributeOf
) -> Importer:
    """One node: these operands, these attributes."""

    def importer(call: Call) -> None:
        for requirement in requires:
            requirement(call)
        inputs = [operand for part in operands for operand in part(call)]
        call.result(op, inputs, **{name: value(call) for name, value in attributes.items()})

    return importer


ZERO = fixed(0.0)


def eltwise(
    algorithm: str,
    alpha: AttributeOf = ZERO,
    beta: AttributeOf = ZERO,
    requires: Sequence[Requirement] = (),
) -> Importer:
    """A function of each element."""
    attributes = {"algorithm": fixed(algorithm), "alpha": alpha, "beta": beta}
    return row("eltwise", tensor("self"), requires=requires, **attributes)


def chosen(name: str, importers: dict[Any, Importer]) -> Importer:
    """The importer that a constant argument chooses."""

    def importer(call: Call) -> None:
        value = call.python(name)
        if value not in importers:
            raise Refused(f"{name} is {value}")
        importers[value](call)

    return importer


def first_that(takes: Callable[[Call], bool], yes: Importer, no: Importer) -> Importer:
    """One importer or another."""
    return lambda call: yes(call) if takes(call) else no(call)


def number_row(op: str, *operands: Operands, requires: Sequence[Requirement] = ()) -> Importer:
    """One node that makes a number."""

    def importer(call: Call) -> None:
        for requirement in requires:
            requirement(call)
        call.number_result(op, [operand for part in operands for operand in part(call)])

    return importer


def same_number(name: str) -> Importer:
    """A number that TorchScript only moves: into a tensor, out of it, from one type to another."""
    return lambda call: call.identity(call.number(name))


def same_tensor(name: str, requires: Sequence[Requirement] = ()) -> Importer:
    """A result that is the argument."""

    def importer(call: Call) -> None:
        for requirement in requires:
            requirement(call)
        call.identity(call.tensor(name, ANY))

    return importer


def scalar(call: Call, name: str) -> float | None:
    """Return a constant argument that is one number, also in a tensor without dimensions.

    torch's executor makes numbers of such tensors, too: their dtype does not matter.
    """
    value = call.arguments[name]
    if not is_constant(value):
        return None
    constant = value.toIValue()
    if isinstance(constant, torch.Tensor):
        real_number = not (constant.dtype == torch.bool or constant.is_complex())
        if constant.dim() or not real_number or constant.layout != torch.strided:
            return None
        constant = constant.item()
    if isinstance(constant, bool) or not isinstance(constant, int | float):
        return None
    return float(constant)


def is_tensor(call: Call, name: str, dtype: torch.dtype) -> bool:
    """Whether an argument is a constant tensor of this dtype."""
    value = call.arguments[name]
    constant = value.toIValue() if is_constant(value) else None
    return isinstance(constant, torch.Tensor) and constant.dtype == dtype


def binary(algorithm: str, *, swapped: bool = False) -> Importer:
    """``self ∘ alpha·other``, or ``other ∘ alpha·self`` when swapped.

    A constant number makes it a line.
    """
    names = ("other", "self") if swapped else ("self", "other")

    def importer(call: Call) -> None:
        alpha = call.real("alpha") if "alpha" in call.arguments else 1.0
        numbers = [scalar(call, name) for name in names]
        left, right = numbers
        if right is not None:
            of_number(call, *names, _match.line(algorithm, alpha * right))
        elif left is not None:
            found = _match.line(algorithm, left, left=True)
            of_number(call, *names[::-1], found and (alpha * found[0], found[1]))
        else:
            a, b = (call.tensor(name) for name in names)
            # A number in a tensor takes the dtype of the other one.
            if _match.producer(b, "power") is not None:
                b = call.step("to_like", [b, a])
            elif _match.producer(a, "power") is not None:
                a = call.step("to_like", [a, b])
            if alpha != 1.0:
                b = call.step("eltwise", [b], algorithm="linear", alpha=alpha, beta=0.0)
            call.result("binary", [a, b], algorithm=algorithm)

    return importer


def of_number(call: Call, name: str, number: str, found: tuple[float, float] | None) -> None:
    """A line of the argument ``name``; the argument ``number`` made it."""
    if found is None or not all(map(_match.is_sound, found)):
        raise Refused(f"{number} is {scalar(call, number)}")
    call.result("eltwise", [call.tensor(name)], algorithm="linear", alpha=found[0], beta=found[1])


def cube(call: Call) -> None:
    """The third power, which spelled-out activations take."""
    x = call.tensor("self")
    squared = call.step("eltwise", [x], algorithm="square", alpha=0.0, beta=0.0)
    call.result("binary", [squared, x], algorithm="mul")


def on_numbers(
    op: str, otherwise: Importer, requires: Sequence[Requirement] = (), *, swapped: bool = False
) -> Importer:
    """Arithmetic of sizes, which traced graphs do on tensors without dimensions."""
    names = ("other", "self") if swapped else ("self", "other")
    return first_that(
        lambda call: call.are_numbers(*names),
        number_row(op, *map(number, names), requires=requires),
        otherwise,
    )


def power(call: Call) -> None:
    """A power of a size, such as the scale of attention, which is a float32 tensor."""
    exponent = call.python("exponent")
    if not isinstance(exponent, float):
        raise Refused(f"exponent is {exponent}")
    call.result("power", [call.number("self")], exponent=call.real("exponent"))


def scalar_of(call: Call) -> None:
    """A number that was made into a tensor: of a size, or of a power of one."""
    if call.are_numbers("a"):
        call.identity(call.number("a"))
        return
    made = call.scope.operand(call.arguments["a"])
    if _match.producer(made, "power") is None:
        raise Refused("a is neither an integer nor a power of one")
    call.identity(made)


def full(call: Call) -> None:
    """The power of a size again, in a tensor without dimensions."""
    if call.numbers("size"):
        raise Refused("it makes more than one number")
    made = call.scope.operand(call.arguments["fill_value"])
    if _match.producer(made, "power") is None:
        raise Refused("fill_value is not a power of a size")
    call.result("to", [made], dtype=engine_dtype(call, "dtype"))


def fill_value(number: float) -> float:
    """Return a number to fill with; torch raises an error where float32 has none so large."""
    if math.isfinite(number) and abs(number) > torch.finfo(torch.float32).max:
        raise Refused("a number is larger than any of float32")
    return number


def masked_fill(call: Call) -> None:
    """A number where a mask says so, the tensor elsewhere."""
    fill = scalar(call, "value")
    if fill is None:
        raise Refused("value is not a constant number")
    operands = [call.tensor("mask", BOOL), None, call.tensor("self")]
    call.result("where", operands, value=fill_value(fill), filled=True)


def where(call: Call) -> None:
    """One of two tensors, or a tensor or a constant number."""
    names = ("self", "other")
    numbers_ = [scalar(call, name) for name in names]
    if None not in numbers_:
        raise Refused("both self and other are numbers")
    operands = [
        call.tensor(name) if given is None else None
        for name, given in zip(names, numbers_, strict=True)
    ]
    # A tensor without dimensions has a say in the result's dtype if the other has none, too.
    wide = any(is_tensor(call, name, torch.float64) for name in names)
    if wide and not any(x is not None and call.scope.sizes.rank(x) for x in operands):
        raise Refused("a number of float64 meets what may have no dimensions")
    fill = next((given for given in numbers_ if given is not None), 0.0)
    call.result("where", [call.tensor("condition", BOOL), *operands], value=fill_value(fill))


# Convolutions, products.


def convolution(*, transposed: bool | None = None, words_for_padding: bool = False) -> Importer:
    """A convolution with constant weights; ``transposed`` None reads it from the call."""

    def importer(call: Call) -> None:
        kernel = call.weight("weight")
        spatial = kernel.dim() - 2
        if spatial not in (1, 2, 3):
            raise Refused(f"it has {spatial} spatial dimensions")
        is_transposed = bool(call.python("transposed")) if transposed is None else transposed
        attributes: dict[str, Attribute] = {
            name: call.integers(name, spatial) for name in ("stride", "dilation")
        }
        attributes["groups"] = call.integer("groups")
        if words_for_padding:
            attributes.update(padding_of_word(call, kernel.shape[2:], attributes))
        else:
            attributes["padding"] = call.integers("padding", spatial)
        if is_transposed:
            attributes["transposed"] = True
            attributes["output_padding"] = call.integers("output_padding", spatial)
        inputs = [call.tensor("input"), call.tensor("weight"), *optional_weight("bias")(call)]
        call.result("convolution", inputs, **attributes)

    return importer


def padding_of_word(
    call: Call, kernel: Sequence[int], attributes: dict[str, Attribute]
) -> dict[str, Attribute]:
    """Return what 'same' or 'valid' stands for."""
    word, stride, dilation = call.python("padding"), attributes["stride"], attributes["dilation"]
    assert isinstance(stride, tuple)
    assert isinstance(dilation, tuple)
    if word == "valid":
        return {"padding": (0,) * len(stride)}
    if word != "same" or any(step != 1 for step in stride):
        raise Refused(f"padding is {word} and stride {stride}")
    total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    begin, end = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    padding: dict[str, Attribute] = {"padding": begin}
    return padding if begin == end else padding | {"padding_end": end}


def factors(call: Call, a: str, b: str) -> tuple[str, list[Operand]]:
    """Return the operator and the operands of a product; a constant matrix makes it a layer."""
    left, right = call.tensor(a), call.tensor(b)
    matrix = right.constant
    if matrix is None or matrix.dim() != 2:
        return "matmul", [left, right]
    return "linear", [left, call.scope.graph.constant(matrix.t()), None]


def product(a: str, b: str, rank: int | None = None) -> Importer:
    """A matrix product, of this rank; one with a constant matrix is a linear layer."""

    def importer(call: Call) -> None:
        call.result(*factors(call, a, b))
        if rank is not None:
            call.has_rank(rank)

    return importer


def product_and_sum(a: str, b: str, rank: int) -> Importer:
    """``self + a @ b``, of this rank; with a constant matrix and vector it is a linear layer."""

    def importer(call: Call) -> None:
        if call.real("alpha") != 1.0 or call.real("beta") != 1.0:
            raise Refused("alpha or beta is not 1")
        added = call.tensor("self")
        op, operands = factors(call, a, b)
        vector = added.constant
        if op == "linear" and vector is not None and vector.shape == call.weight(b).shape[1:]:
            call.result(op, [*operands[:2], added])
        else:
            call.result("binary", [call.step(op, operands), added], algorithm="add")
        call.has_rank(rank)

    return importer


def einsum(call: Call) -> None:
    """A product of matrices, whatever the order of their dimensions."""
    elements = call.elements("tensors")
    terms, _, result = call.python("equation").replace(" ", "").partition("->")
    left, _, right = terms.partition(",")
    a, b, c = (set(term) for term in (left, right, result))
    rows, columns, inner = a - b, b - a, a & b - c
    if (
        len(elements) != 2
        or not all(t.isalpha() and len(t) == len(set(t)) for t in (left, right, result))
        or not len(rows) == len(columns) == len(inner) == 1
        or c != (a | b) - inner
    ):
        raise Refused("it is not a product of two matrices")
    x, y = (call.as_tensor(element, "tensors") for element in elements)
    batch = [letter for letter in left if letter in b & c]
    x = _permuted(call, x, left, [*batch, *rows, *inner])
    y = _permuted(call, y, right, [*batch, *inner, *columns])
    made = [*batch, *rows, *columns]
    if made == list(result):
        call.result("matmul", [x, y])
    else:
        call.result("permute", [call.step("matmul", [x, y]), *map(made.index, result)])


def _permuted(call: Call, x: Value, dims: str, order: Sequence[str]) -> Value:
    return x if list(dims) == order else call.step("permute", [x, *map(dims.index, order)])


def normalized(call: Call) -> dict[str, Attribute]:
    """How many trailing dimensions are normalised, and their sizes if they are known."""
    sizes = call.numbers("normalized_shape")
    known = tuple(size for size in sizes if isinstance(size, int))
    return {"dims": len(sizes), **({"sizes": known} if len(known) == len(sizes) else {})}


def layer_norm(call: Call) -> None:
    """Normalise the trailing dimensions; there is no residual yet."""
    inputs = [
        call.tensor("input"),
        *optional_weight("weight")(call),
        *optional_weight("bias")(call),
        None,
    ]
    call.result("layer_norm", inputs, eps=call.real("eps"), **normalized(call))


def rms_norm(call: Call) -> None:
    """Divide the trailing dimensions by the root of their mean square."""
    if call.absent("eps") and not _C._has_one_default_eps():
        raise Refused("eps is not given, and depends on the dtype in this torch")
    eps = torch.finfo(torch.float32).eps if call.absent("eps") else call.real("eps")
    inputs = [call.tensor("input"), *optional_weight("weight")(call), None, None]
    call.result("rms_norm", inputs, eps=eps, **normalized(call))


def softmax(*, log: bool) -> Importer:
    """Softmax, of a converted tensor if a dtype is given."""

    def importer(call: Call) -> None:
        x: Operand = call.tensor("self")
        if not call.absent("dtype"):
            x = call.step("to", [x], dtype=engine_dtype(call, "dtype"))
        call.result("softmax", [x], dim=call.integer("dim"), log=log)

    return importer


def mean(call: Call) -> None:
    """The mean over adjacent dimensions."""
    absent("dtype")(call)
    x, dims = call.tensor("self"), call.integers("dim")
    if not dims:
        raise Refused("dim is empty")
    rank = call.scope.sizes.rank(x)
    first, *_, last = sorted(dim % rank if rank else dim for dim in (*dims, dims[0]))
    # Without a rank, dimensions of both signs may be adjacent or not.
    if (rank or first >= 0 or last < 0) and last - first != len(dims) - 1:
        raise Refused(f"dim is {dims}, which are apart")
    call.result("mean", [x], dims=dims, keep=bool(call.python("keepdim")))


def attention(call: Call) -> None:
    """Scaled dot product attention, with a mask or a causal one, not both."""
    scale = 0.0 if call.absent("scale") else call.real("scale")
    if scale == 0.0 and not call.absent("scale"):
        raise Refused("scale is 0")
    if call.real("dropout_p") != 0.0:
        raise Refused("dropout_p is not 0")
    causal = bool(call.python("is_causal"))
    if causal and not call.absent("attn_mask"):
        raise Refused("it is causal and has a mask")
    grouped = "enable_gqa" in call.arguments and bool(call.python("enable_gqa"))
    masks = optional_tensor("attn_mask", FLOATING | {torch.bool})(call)
    inputs = [call.tensor("query"), call.tensor("key"), call.tensor("value"), *masks]
    more: dict[str, Attribute] = {"grouped": True} if grouped else {}
    call.result("attention", inputs, scale=scale, causal=causal, **more)


def linear_step(
    call: Call, x: Operand, weight_: str, bias: str, part: slice | None = None
) -> Value:
    """One of the linear layers of an operator, with its weights or with some rows of them."""
    rows = slice(None) if part is None else part
    constants = [call.weight(name)[rows] for name in (weight_, bias)]
    return call.step("linear", [x, *map(call.scope.graph.constant, constants)])


def self_attention(call: Call, query: Operand, key: Operand, value: Operand) -> Value:
    """Multi-head attention with its projections, of (batch, time, features)."""
    heads = call.integer("num_heads" if "num_heads" in call.arguments else "num_head")
    features = call.integer("embed_dim")
    if call.weight("qkv_weight").shape != (3 * features, features) or features % heads:
        raise Refused("qkv_weight has another shape")
    projected = []
    for position, x in enumerate((query, key, value)):
        part = slice(position * features, (position + 1) * features)
        y = linear_step(call, x, "qkv_weight", "qkv_bias", part)
        y = call.step("unflatten", [y, -1, heads, features // heads])
        projected.append(call.step("transpose", [y, 1, 2]))
    inputs: list[Operand] = [*projected, None]
    attributes: dict[str, Attribute] = {"scale": 0.0, "causal": False, "additive": True}
    if not call.absent("mask"):
        # Whatever is not 0 hides.
        hidden: Operand = call.step("nonzero", [call.tensor("mask", FLOATING | BOOL)])
        mask_type = None if call.absent("mask_type") else call.integer("mask_type")
        if mask_type == 1:  # (batch, source)
            hidden = call.step("unsqueeze", [call.step("unsqueeze", [hidden, 1]), 1])
        elif mask_type not in (0, 2):  # (target, source), or for each head
            raise Refused(f"mask_type is {mask_type}")
        inputs.append(hidden)
        attributes |= {"fill": -math.inf, "fill_where": True}
    y = call.step("transpose", [call.step("attention", inputs, **attributes), 1, 2])
    return linear_step(call, call.step("flatten", [y, 2, 3]), "proj_weight", "proj_bias")


def multi_head_attention(call: Call) -> None:
    """What nn.MultiheadAttention is when it is not trained."""
    if call.node.outputsAt(1).uses():
        raise Refused("its weights are used")
    result = self_attention(call, *(call.tensor(name) for name in ("query", "key", "value")))
    call.rename(result)


def encoder_layer(call: Call) -> None:
    """What nn.TransformerEncoderLayer is when it is not trained."""
    first = bool(call.python("norm_first"))

    def norm(x: Operand, number_: int) -> Value:
        names = (f"norm_weight_{number_}", f"norm_bias_{number_}")
        inputs = [x, *(operand for name in names for operand in weight(name)(call)), None]
        return call.step("layer_norm", inputs, eps=call.real("eps"), dims=1)

    def feed_forward(x: Operand) -> Value:
        y = linear_step(call, x, "ffn_weight_1", "ffn_bias_1")
        name = "gelu" if call.python("use_gelu") else "relu"
        y = call.step("eltwise", [y], algorithm=name, alpha=0.0, beta=0.0)
        return linear_step(call, y, "ffn_weight_2", "ffn_bias_2")

    x: Value = call.tensor("src")
    for position, layer in ((1, lambda y: self_attention(call, y, y, y)), (2, feed_forward)):
        y = layer(norm(x, position) if first else x)
        x = call.step("binary", [x, y], algorithm="add")
        x = x if first else norm(x, position)
    call.rename(x)


BAG_MODES = {0: "sum", 1: "mean", 2: "max"}


def embedding_bag(call: Call) -> None:
    """Sums, means or maxima of bags; what else the operator returns is for training."""
    if any(output.uses() for output in list(call.node.outputs())[1:]):
        raise Refused("its offsets, sizes or indices are used")
    if "padding_idx" in call.arguments:
        absent("padding_idx")(call)
    mode = call.integer("mode")
    if mode not in BAG_MODES:
        raise Refused(f"mode is {mode}")
    inputs = [
        *weight("weight")(call),
        call.tensor("indices", INDEX),
        call.tensor("offsets", INDEX),
    ]
    if not call.absent("per_sample_weights"):
        inputs.append(call.tensor("per_sample_weights"))
    last = {"last_offset": True} if call.python("include_last_offset") else {}
    call.result("embedding_bag", inputs, mode=BAG_MODES[mode], **last)


def arange(call: Call) -> None:
    """Whole numbers in order; only the passes' patterns read it."""
    equal("dtype", None, 4)(call)  # 4 is int64
    given = [call.number(name) for name in ("start", "end", "step") if name in call.arguments]
    defaults: dict[int, tuple[list[Operand], list[Operand]]] = {
        1: ([0], [1]),
        2: ([], [1]),
        3: ([], []),
    }
    before, after = defaults[len(given)]
    call.result("arange", [*before, *given, *after])


def index(call: Call) -> None:
    """Pairs of the last two dimensions, chosen by constant rows and columns."""
    value = call.arguments["indices"]
    given: list[Value | None]
    if is_constant(value):
        constant = call.scope.graph.constant
        given = [None if item is None else constant(item) for item in value.toIValue()]
    else:
        elements = call.elements("indices")
        given = [None if is_none(e) else call.as_tensor(e, "an index", ANY) for e in elements]
    leading, pair = given[:-2], given[-2:]
    constants = [i.constant for i in pair if i is not None and i.constant is not None]
    if len(constants) != 2 or not leading or any(i is not None for i in leading):
        raise Refused("its indices are not two constants at the end")
    rows, columns = constants
    chosen_pairs = all(
        i.dtype == torch.int64 and i.dim() == 1 and not (i < 0).any() for i in constants
    )
    if not chosen_pairs or rows.shape != columns.shape:
        raise Refused("its indices are not two lists of int64")
    x = call.tensor("self")
    if call.scope.sizes.rank(x) != len(given):
        raise Refused("how many dimensions it indexes is not known")
    if len(given) > 3:
        raise Refused(f"it indexes {len(given)} dimensions")
    call.result("gather_pairs", [x, *pair])


# Pooling, padding, joining.


def pool(op: Literal["max_pool", "avg_pool"], spatial: int) -> Importer:
    """A window that moves; without a stride it moves by its own size."""

    def importer(call: Call) -> None:
        kernel = call.integers("kernel_size", spatial)
        attributes: dict[str, Attribute] = {
            "kernel": kernel,
            "stride": call.integers("stride", spatial) or kernel,
            "padding": call.integers("padding", spatial),
            "ceil": bool(call.python("ceil_mode")),
        }
        if "dilation" in call.arguments:
            attributes["dilation"] = call.integers("dilation", spatial)
        if op == "avg_pool":
            attributes["include_pad"] = bool(call.python("count_include_pad"))
        if "divisor_override" in call.arguments:
            absent("divisor_override")(call)
        call.result(op, [call.tensor("self")], **attributes)

    return importer


def resample(algorithm: str) -> Importer:
    """An image in another size, or by factors."""

    def importer(call: Call) -> None:
        sizes: list[Operand] = [None, None]
        if not call.absent("output_size"):
            sizes = call.numbers("output_size")
        if "scale_factors" in call.arguments:
            factors = call.python("scale_factors") or (0.0, 0.0)
        else:
            factors = [0.0 if call.absent(n) else call.real(n) for n in ("scales_h", "scales_w")]
        corners = "align_corners" in call.arguments and bool(call.python("align_corners"))
        height, width = factors
        call.result(
            "resample",
            [call.tensor("input" if "input" in call.arguments else "self"), *sizes],
            algorithm=algorithm,
            align_corners=corners,
            scale_height=float(height),
            scale_width=float(width),
        )

    return importer


#: torch's own numbers of the engine's dtypes.
DTYPES = {6: "float32", 15: "bfloat16"}
BOOL_NUMBER = 11


def engine_dtype(call: Call, name: str) -> str:
    """Return what the engine calls a dtype that a constant argument states."""
    number_ = call.python(name)
    if number_ not in DTYPES:
        raise Refused(f"{name} is not float32 or bfloat16")
    return DTYPES[number_]


#: torch's own numbers of memory formats: of a tensor's own, and of the order of its dimensions.
PRESERVED = (None, 1)
CONTIGUOUS = 0


def to_dtype(call: Call) -> None:
    """A conversion between the engine's dtypes, or to the truth of numbers."""
    number_ = call.python("dtype")
    if number_ not in DTYPES and number_ != BOOL_NUMBER:
        raise Refused("dtype is not float32, bfloat16 or bool")
    if "device" in call.arguments and torch.device(call.python("device")).type != "cpu":
        raise Refused("device is not the CPU")
    equal("memory_format", *PRESERVED)(call)
    if number_ == BOOL_NUMBER:
        call.result("nonzero", [call.tensor("self", ANY)])
    else:
        call.result("to", [call.tensor("self", ANY)], dtype=DTYPES[number_])


def to_layout(call: Call) -> None:
    """A conversion, or none, to a dtype and to the order of dimensions."""
    for requirement in (equal("layout", None, 0), equal("pin_memory", None, False)):
        requirement(call)
    equal("memory_format", *PRESERVED, CONTIGUOUS)(call)
    device = call.python("device")
    if device is not None and torch.device(device).type != "cpu":
        raise Refused("device is not the CPU")
    x = call.tensor("self", ANY)
    if call.python("memory_format") == CONTIGUOUS:
        x = call.step("contiguous", [x])
    if call.absent("dtype"):
        call.identity(x)
    else:
        call.result("to", [x], dtype=engine_dtype(call, "dtype"))


def autocast(dtype: str | None) -> Importer:
    """What autocast does to a floating tensor: to its own dtype, or back to float32."""

    def importer(call: Call) -> None:
        if not call.python("cpu_enabled"):
            call.identity(call.tensor("self", ANY))
            return
        wanted = dtype or engine_dtype(call, "cpu_dtype")
        call.result("to", [call.tensor("self")], dtype=wanted, floating=True)

    return importer


# Views.


def slice_(call: Call) -> None:
    """A part of a dimension."""
    start = None if call.absent("start") else call.number("start")
    end = None if call.absent("end") else call.number("end")
    if isinstance(end, int) and end >= NO_END:
        end = None
    x = call.tensor("self", ANY)
    call.result("slice", [x, call.integer("dim"), start, end, call.number("step")])


def split_equal(call: Call) -> None:
    """Parts of one size; the last may be smaller."""
    parts = call.unpacked()
    sizes = (call.integer("split_size"),)
    dim = call.integer("dim")
    call.results("split", [call.tensor("self", ANY)], parts, dim=dim, sizes=sizes)


def split_sizes(name: str) -> Importer:
    """Parts of stated sizes."""

    def importer(call: Call) -> None:
        sizes = call.integers(name)
        parts = call.unpacked(len(sizes))
        if len(sizes) != len(parts):
            raise Refused(f"{len(sizes)} sizes make {len(parts)} parts")
        dim = call.integer("dim")
        call.results("split", [call.tensor("self", ANY)], parts, dim=dim, sizes=sizes)

    return importer


def chunk(call: Call) -> None:
    """Equal parts."""
    chunks = call.integer("chunks")
    parts = call.unpacked(chunks)
    if chunks != len(parts):
        raise Refused(f"{chunks} chunks make {len(parts)} parts")
    dim = call.integer("dim")
    call.results("split", [call.tensor("self", ANY)], parts, dim=dim, chunks=chunks)


def constant_chunk(call: Call) -> None:
    """Equal parts, in torch's own form of it after it has run."""
    x = call.as_tensor(call.node.inputsAt(0), "self", ANY)
    chunks, dim = call.node.i("chunks"), call.node.i("dim")
    call.results("split", [x], list(call.node.outputs()), dim=dim, chunks=chunks)


def unbind(call: Call) -> None:
    """All slices of a dimension."""
    x, dim = call.tensor("self", ANY), call.integer("dim")
    users = {use.user.kind() for use in call.node.output().uses()}
    whole = users == {"prim::ListUnpack"}
    for position, part in enumerate(call.unpacked()) if whole else call.taken():
        call.results("select", [x, dim, position], [part])


# Lists and numbers.


def list_construct(call: Call) -> None:
    """A list or a tuple: whoever reads it looks through it."""
    call.scope.lists[call.node.output().unique()] = tuple(call.node.inputs())


def size_list(call: Call) -> None:
    """All sizes of a tensor."""
    call.scope.lists[call.node.output().unique()] = SizeList(call.tensor("self", ANY))


def get_item(call: Call) -> None:
    """One element of a list."""
    if call.node.output().unique() in call.scope.operands:
        return  # the node that made the list has made it
    position = call.integer("idx")
    content = call.scope.lists.get(call.arguments["list"].unique())
    if isinstance(content, SizeList):
        call.number_result("size", [content.tensor, position])
    elif content is None or not -len(content) <= position < len(content):
        raise Refused("what the list holds is not known")
    else:
        _same_as(call, call.node.output(), content[position])


def list_unpack(call: Call) -> None:
    """All elements of a list."""
    value = call.node.inputsAt(0)
    outputs = list(call.node.outputs())
    if all(output.unique() in call.scope.operands for output in outputs):
        return  # the node that made the list has made them
    content = call.scope.lists.get(value.unique())
    if isinstance(content, SizeList):
        for position, output in enumerate(outputs):
            call.results("size", [content.tensor, position], [output], "number")
    elif content is None or len(content) != len(outputs):
        raise Refused("what the list holds is not known")
    else:
        for output, element in zip(outputs, content, strict=True):
            _same_as(call, output, element)


def _same_as(call: Call, output: TorchValue, element: TorchValue) -> None:
    operand = call.scope.operand(element)
    if operand is None or (isinstance(operand, Value) and operand.kind == "other"):
        raise Refused("the list holds neither tensors nor integers")
    call.scope.operands[output.unique()] = operand


#: Functions of each element that both sides call the same and that have no parameters.
SAME_NAMES = (
    *("sigmoid", "tanh", "silu", "hardswish", "hardsigmoid", "mish"),
    *("exp", "log", "abs", "sqrt", "square", "erf", "rsqrt"),
)
CLIP_LOW = real_or("min", -math.inf)
CLIP_HIGH = real_or("max", math.inf)
ALPHA_IS_1 = (equal("alpha", 1),)
WITH_EITHER = ("Tensor", "Scalar")
PLAIN_POOL = ((1, "1d"), (2, "2d"), (3, "3d"))

OPERATORS: dict[str, Importer] = {
    # Convolutions
    "aten::_convolution": convolution(),
    "aten::_convolution.deprecated": convolution(),
    **{f"aten::conv{n}d": convolution(transposed=False) for n in (1, 2, 3)},
    **{
        f"aten::conv{n}d.padding": convolution(transposed=False, words_for_padding=True)
        for n in (1, 2, 3)
    },
    "aten::_convolution_mode": convolution(transposed=False, words_for_padding=True),
    "aten::conv_transpose1d": convolution(transposed=True),
    "aten::conv_transpose2d.input": convolution(transposed=True),
    "aten::conv_transpose3d.input": convolution(transposed=True),
    # Products
    "aten::linear": row(
        "linear",
        tensor("input"),
        weight("weight"),
        optional_weight("bias"),
        requires=[matrix_and_vector("weight", "bias")],
    ),
    "aten::addmm": product_and_sum("mat1", "mat2", 2),
    "aten::baddbmm": product_and_sum("batch1", "batch2", 3),
    "aten::matmul": product("self", "other"),
    "aten::einsum": einsum,
    "aten::mm": product("self", "mat2", 2),
    "aten::bmm": product("self", "mat2", 3),
    # Functions of each element
    "aten::relu": eltwise("relu"),
    "aten::relu6": eltwise("clip", fixed(0.0), fixed(6.0)),
    "aten::hardtanh": eltwise("clip", real("min_val"), real("max_val")),
    "aten::clamp": eltwise("clip", CLIP_LOW, CLIP_HIGH),
    "aten::clamp_min": eltwise("clip", CLIP_LOW, fixed(math.inf)),
    "aten::clamp_max": eltwise("clip", fixed(-math.inf), CLIP_HIGH),
    "aten::leaky_relu": eltwise("leaky_relu", real("negative_slope")),
    "aten::gelu": chosen("approximate", {"none": eltwise("gelu"), "tanh": eltwise("gelu_tanh")}),
    "aten::elu": eltwise(
        "elu", real("alpha"), requires=[equal("scale", 1), equal("input_scale", 1)]
    ),
    "aten::pow.Tensor_Scalar": first_that(
        lambda call: call.are_numbers("self"),
        power,
        chosen(
            "exponent",
            {0.5: eltwise("sqrt"), 1: same_tensor("self"), 2: eltwise("square"), 3: cube},
        ),
    ),
    "aten::neg": eltwise("linear", fixed(-1.0)),
    **{f"aten::{name}": eltwise(name) for name in SAME_NAMES},
    # Of two tensors, or of a tensor and a number
    **{
        f"aten::{name}.{overload}": on_numbers(f"number_{name}", binary(name), requires)
        for name, requires in (("add", ALPHA_IS_1), ("sub", ALPHA_IS_1), ("mul", ()))
        for overload in WITH_EITHER
    },
    **{
        f"aten::rsub.{overload}": on_numbers(
            "number_sub", binary("sub", swapped=True), ALPHA_IS_1, swapped=True
        )
        for overload in WITH_EITHER
    },
    **{f"aten::div.{overload}": binary("div") for overload in WITH_EITHER},
    **{
        f"aten::{name}": row("binary", tensor("self"), tensor("other"), algorithm=fixed(name[:3]))
        for name in ("maximum", "minimum", "max.other", "min.other")
    },
    "aten::masked_fill.Scalar": masked_fill,
    "aten::masked_fill.Tensor": masked_fill,
    **{f"aten::where.{overload}": where for overload in ("self", "ScalarSelf", "ScalarOther")},
    # Along dimensions
    "aten::softmax.int": softmax(log=False),
    "aten::log_softmax.int": softmax(log=True),
    "aten::prelu": row("prelu", tensor("self"), weight("weight")),
    "aten::layer_norm": layer_norm,
    "aten::rms_norm": rms_norm,
    "aten::group_norm": row(
        "group_norm",
        tensor("input"),
        optional_weight("weight"),
        optional_weight("bias"),
        groups=integer("num_groups"),
        eps=real("eps"),
    ),
    "aten::batch_norm": row(
        "batch_norm",
        tensor("input"),
        in_float32(optional_weight("weight")),
        in_float32(optional_weight("bias")),
        in_float32(weight("running_mean")),
        in_float32(weight("running_var")),
        requires=[equal("training", False)],
        eps=real("eps"),
    ),
    "aten::mean.dim": mean,
    "aten::scaled_dot_product_attention": attention,
    "aten::_native_multi_head_attention": multi_head_attention,
    "aten::_transformer_encoder_layer_fwd": encoder_layer,
    # Tables
    "aten::embedding": row("embedding", weight("weight"), tensor("indices", INDEX)),
    "aten::embedding_bag": embedding_bag,
    "aten::embedding_bag.padding_idx": embedding_bag,
    "aten::arange": arange,
    "aten::arange.start": arange,
    "aten::arange.start_step": arange,
    "aten::index.Tensor": index,
    # Windows
    **{f"aten::max_pool{name}": pool("max_pool", n) for n, name in PLAIN_POOL},
    **{f"aten::avg_pool{name}": pool("avg_pool", n) for n, name in PLAIN_POOL},
    **{
        f"aten::adaptive_avg_pool{name}": row(
            "adaptive_avg_pool", tensor("self"), sizes=integers("output_size", n)
        )
        for n, name in PLAIN_POOL
    },
    **{
        f"aten::upsample_{name}2d{overload}": resample(algorithm)
        for name, algorithm in (("nearest", "nearest"), ("bilinear", "linear"))
        for overload in ("", ".vec")
    },
    # Joined and padded
    "aten::cat": row("cat", tensors("tensors"), dim=integer("dim")),
    "aten::stack": row("stack", tensors("tensors"), dim=integer("dim")),
    "aten::pad": row(
        "pad",
        tensor("self"),
        not_negative("pad"),
        requires=[equal("mode", "constant")],
        value=real_or("value", 0.0),
    ),
    "aten::constant_pad_nd": row("pad", tensor("self"), not_negative("pad"), value=real("value")),
    "aten::roll": row(
        "roll",
        tensor("self"),
        requires=[given("dims")],
        shifts=integers("shifts"),
        dims=integers("dims"),
    ),
    # The same tensor
    **{
        f"aten::{name}": same_tensor("input", [equal("train", False)])
        for name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
    },
    "aten::detach": same_tensor("self"),
    "aten::contiguous": row(
        "contiguous", tensor("self", ANY), requires=[equal("memory_format", CONTIGUOUS)]
    ),
    "aten::to.dtype": to_dtype,
    "aten::to.dtype_layout": to_layout,
    "aten::_autocast_to_reduced_precision": autocast(None),
    "aten::_autocast_to_full_precision": autocast("float32"),
    "aten::to.device": to_dtype,
    "aten::type_as": row("to_like", tensor("self", ANY), tensor("other", ANY)),
    # Views
    "aten::view": row("view", tensor("self", ANY), numbers("size")),
    "aten::reshape": row("view", tensor("self", ANY), numbers("shape")),
    "aten::view_as": row("view", tensor("self", ANY), sizes_of("other")),
    "aten::reshape_as": row("view", tensor("self", ANY), sizes_of("other")),
    "aten::flatten.using_ints": row(
        "flatten", tensor("self", ANY), dimension("start_dim"), dimension("end_dim")
    ),
    "aten::unflatten.int": row(
        "unflatten", tensor("self", ANY), dimension("dim"), numbers("sizes")
    ),
    **{
        f"aten::{name}": row(
            "transpose", tensor("self", ANY), dimension(f"{dim}0"), dimension(f"{dim}1")
        )
        for name, dim in (("transpose.int", "dim"), ("swapaxes", "axis"), ("swapdims", "dim"))
    },
    "aten::t": row("transpose", tensor("self", ANY), literal(0, 1)),
    "aten::mT": row("transpose", tensor("self", ANY), literal(-2, -1)),
    "aten::permute": row("permute", tensor("self", ANY), dimensions("dims")),
    "aten::unsqueeze": row("unsqueeze", tensor("self", ANY), dimension("dim")),
    "aten::squeeze.dim": row("squeeze", tensor("self", ANY), dimension("dim")),
    "aten::expand": row("expand", tensor("self", ANY), numbers("size")),
    "aten::expand_as": row("expand_as", tensor("self", ANY), tensor("other", ANY)),
    "aten::select.int": row("select", tensor("self", ANY), dimension("dim"), number("index")),
    "aten::slice.Tensor": slice_,
    "aten::split.Tensor": split_equal,
    "aten::split.sizes": split_sizes("split_size"),
    "aten::split": split_sizes("split_sizes"),
    "aten::split_with_sizes": split_sizes("split_sizes"),
    "aten::chunk": chunk,
    "prim::ConstantChunk": constant_chunk,
    "aten::unbind.int": unbind,
    # Lists and numbers
    "prim::ListConstruct": list_construct,
    "prim::TupleConstruct": list_construct,
    "prim::ListUnpack": list_unpack,
    "aten::__getitem__.t": get_item,
    "aten::size": size_list,
    "aten::size.int": number_row("size", tensor("self", ANY), dimension("dim")),
    "aten::numel": number_row("numel", tensor("self", ANY)),
    **{
        f"aten::{name}.int": number_row(f"number_{name}", number("a"), number("b"))
        for name in ("add", "sub", "mul", "floordiv", "remainder")
    },
    "aten::neg.int": number_row("number_sub", literal(0), number("a")),
    **{
        f"aten::{name}": number_row(f"number_{op}", number("self"), number("other"))
        for op, names in (
            ("remainder", ("remainder.Tensor", "remainder.Scalar")),
            ("floordiv", ("floor_divide", "floor_divide.Scalar")),
        )
        for name in names
    },
    "aten::div.Tensor_mode": number_row(
        "number_floordiv",
        number("self"),
        number("other"),
        requires=[equal("rounding_mode", "floor")],
    ),
    "prim::NumToTensor.Scalar": same_number("a"),
    "aten::Int.Tensor": same_number("a"),
    "aten::Int.Scalar": same_number("a"),
    "aten::ScalarImplicit": scalar_of,
    "aten::full": full,
    "aten::IntImplicit": same_number("a"),
}
