"""Values and the operators that make and read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch.backends.zendnn.table.dtypes import of_kind
from torch.backends.zendnn.table.functions import FUNCTIONS
from torch.backends.zendnn.table.notation import Attribute, Function, Operator, Trait
from torch.backends.zendnn.table.operators import OPERATORS
from torch.backends.zendnn.table.shapes import Dim, Dims

Kind = Literal["tensor", "number", "other"]

#: The operator of a node that only its front end understands; it stays where it was.
OPAQUE = "opaque"

OPAQUE_ROW = Operator("opaque(Any?[] operands)", traits=Trait.FOREIGN)

#: Dtypes of which only the class is known.
SOME_FLOAT, SOME_INTEGER = "floating", "integer"
FLOATS = of_kind("float") | {SOME_FLOAT}
_INTEGERS = of_kind("integer") | {SOME_INTEGER}


@dataclass(eq=False)
class Value:
    """What a node makes, the graph is given, or a constant.

    Attributes:
        kind: 'tensor', 'number' (one Python int) or 'other' (what only opaque nodes touch).
        dtype: its name, SOME_FLOAT or SOME_INTEGER (which bool is, too); None when unknown.
        dims: its sizes, as far as they are known; None where not even their number is.
        is_assumed: whether a pass relied on a dtype that the graph does not prove. A plan refuses
            an input of another one.
        is_state: whether it is memory that a node writes to, as of this point in the order, or a
            view of it. Regions take it as an input and never return it.
        is_rounded: whether eager mode rounds it and no pass may skip that.
        escapes: whether it is read outside the graph's nodes. Opaque nodes count as outside too
            (``Graph.is_private`` checks both).
    """

    name: str
    kind: Kind = "tensor"
    constant: torch.Tensor | None = None
    producer: Node | None = None
    escapes: bool = False
    dtype: str | None = None
    dims: Dims | None = None
    is_assumed: bool = False
    is_state: bool = False
    is_rounded: bool = False
    source: Any = None
    #: The nodes that read this value, once for each operand. Graph alone maintains it.
    users: list[Node] = field(default_factory=list, repr=False)

    def __str__(self) -> str:
        return self.name

    @property
    def rank(self) -> int | None:
        """How many dimensions it has."""
        return None if self.dims is None else len(self.dims)

    @property
    def is_floating(self) -> bool:
        """Whether it surely holds floating-point numbers."""
        return self.dtype in FLOATS

    @property
    def is_integer(self) -> bool:
        """Whether it surely holds integers or booleans."""
        return self.dtype in _INTEGERS

    def learn_dims(self, dims: Dims) -> None:
        """Note dims; sizes that are known already stay, and so does a rank."""
        if self.dims is None:
            self.dims = dims
        elif len(self.dims) == len(dims):
            self.dims = tuple(map(_more_exact, self.dims, dims))


def _more_exact(old: Dim, new: Dim) -> Dim:
    return new if old is None or (isinstance(new, int) and not isinstance(old, int)) else old


Operand = Value | int | None


@dataclass(frozen=True)
class PostOp:
    """What a compute node applies to each element of its result before it stores it.

    ``algorithm`` is an eltwise algorithm (with ``alpha`` and ``beta``) or a binary one ('add',
    'sub', 'mul', 'div', 'max', 'min'), whose other operand is the node's input ``operand``. Both
    broadcast, but ``keeps`` may be whose size the result has: 'result' (so far) or 'operand'.
    """

    algorithm: str
    alpha: float = 0.0
    beta: float = 0.0
    operand: int | None = None
    keeps: str = ""

    def __str__(self) -> str:
        """Return it as a description writes it."""
        if self.operand is None:
            return f"{self.algorithm}:{self.alpha!r}:{self.beta!r}"
        return f"{self.algorithm}@{self.operand}" + (f":{self.keeps}" if self.keeps else "")


@dataclass(eq=False)
class Node:
    """One operator. Inputs change through the graph only, so that use lists stay right."""

    op: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Value, ...]
    attributes: dict[str, Attribute] = field(default_factory=dict)
    post_ops: tuple[PostOp, ...] = ()
    #: The model's operators that this node performs, in order, by their public names.
    origin: tuple[str, ...] = ()
    #: Whether an opaque node keeps its order among such nodes: it writes, prints, or reads what
    #: another one writes.
    ordered: bool = False
    #: Why a front end left the node opaque.
    reason: str = ""
    source: Any = None

    @property
    def row(self) -> Operator:
        """The row of its operator."""
        return OPERATORS.get(self.op, OPAQUE_ROW)

    @property
    def function(self) -> Function | None:
        """The function of an ``eltwise``, if there is one of that name."""
        return FUNCTIONS.get(self.get("algorithm")) if self.op == "eltwise" else None

    def has(self, trait: Trait) -> bool:
        """Whether its operator has one of these traits."""
        # Of the numbers, since passes ask often, and Flag makes a new one to answer.
        return self.row.traits._value_ & trait._value_ != 0

    @property
    def is_view(self) -> bool:
        """Whether its results are views of its first operand."""
        return self.has(Trait.VIEW)

    @property
    def keeps_rounding(self) -> bool:
        """Whether it makes the same of its operands if they are rounded after it."""
        is_exact = self.function is not None and self.function.exact
        return self.is_view or self.op in ("cat", "stack") or is_exact

    @property
    def writes(self) -> bool:
        """Whether it writes to its first operand."""
        return self.has(Trait.WRITES)

    @property
    def is_foreign(self) -> bool:
        """Whether no plan can hold it: opaque nodes, and those made for passes to match only."""
        return self.has(Trait.FOREIGN) or (self.function is not None and self.function.foreign)

    @property
    def output(self) -> Value:
        """The only output."""
        (value,) = self.outputs
        return value

    def values(self) -> Iterator[Value]:
        """The operands that are values, with repetitions."""
        return (operand for operand in self.inputs if isinstance(operand, Value))

    @property
    def readers(self) -> list[Node]:
        """The nodes that read its results, with repetitions."""
        return [user for value in self.outputs for user in value.users]

    @property
    def escapes(self) -> bool:
        """Whether one of its results does."""
        return any(value.escapes for value in self.outputs)

    def get(self, name: str) -> Any:
        """An attribute, or its default; None where the operator has none of that name."""
        spec = self.row.attributes.get(name)
        return self.attributes.get(name, None if spec is None else spec.default)

    def __str__(self) -> str:
        """Return it as one line of a plan's description (docs/plan.md)."""
        inputs = ("none" if operand is None else str(operand) for operand in self.inputs)
        words = [f"{', '.join(map(str, self.outputs))} = {self.op}({', '.join(inputs)})"]
        words += [f"{key}={_format_attribute(x)}" for key, x in sorted(self.attributes.items())]
        if self.post_ops:
            words.append("post=" + ";".join(map(str, self.post_ops)))
        return " ".join(words)


def _format_attribute(value: Attribute) -> str:
    """Return an attribute's value as a description writes it, without spaces."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(int(value) if isinstance(value, bool) else value)
