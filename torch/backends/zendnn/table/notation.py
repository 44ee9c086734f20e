"""The notation of the table of operators: signatures, mappings and rows.

A *signature* names an operator, its operands and, after ``*``, its attributes with their defaults:

    softmax(Tensor x, *, int dim=-1, bool log=False)

===========  ==============================================================
operand      what it takes
===========  ==============================================================
``Tensor``   float32 or bfloat16
``Index``    int64 or int32
``Bool``     bool
``Any``      all of these
``Constant`` a Tensor that is known before the plan runs
``Float``    a Constant, converted to float32
``int``      a number: an integer, or a value that is known when the plan runs
``dim``      an integer
===========  ==============================================================

``?`` allows None; ``[]`` stands for as many as there are, last of all.

An attribute is a bool, int or float, a list ``int[]``, the name of a ``dtype``, or that of an
algorithm of a type in ``functions.ENUMERATIONS``. One without a default must be stated.

A *mapping* names an equivalent aten operator. It is read in both directions: to import a call, and
to make one. Its items are the operator's arguments. An item without ``=`` is the next operand;
``eps=eps`` names an operand or an attribute; ``min=alpha|-inf`` adds the meaning of None; a
literal, ``training=False``, is the only accepted value; ``_`` accepts any, and ``momentum=_|0.0``
calls with 0.0. An argument that is not named must have its default. Attributes that no argument
gives follow the parentheses:

    aten::relu6(self) alpha=0.0 beta=6.0
"""

from __future__ import annotations

import ast
import re
from collections import abc
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, Flag, auto
from functools import cached_property
from typing import Any

from torch.backends.zendnn.table import shapes as infer

Attribute = bool | int | float | str | tuple[int, ...]

_SIGNATURE = re.compile(r"(\w+)\((.*)\)")
_MAPPING = re.compile(r"([\w:.]+)\((.*?)\)(.*)")


@dataclass(frozen=True)
class Operand:
    """One operand of a signature, or several when it is ``many``."""

    name: str
    type: str
    optional: bool
    many: bool

    @property
    def is_number(self) -> bool:
        """Whether it is a number rather than a tensor."""
        return self.type in ("int", "dim")


@dataclass(frozen=True)
class AttributeSpec:
    """One attribute of a signature; its default is None if it must be stated."""

    name: str
    type: str
    default: Attribute | None


@dataclass(frozen=True)
class Argument:
    """One argument of a mapping: its operand or attribute, or its only accepted value."""

    name: str
    #: The operand or attribute; empty where ``literal`` is required; ``_`` for any, of which calls
    #: state ``literal`` unless it is None.
    target: str
    literal: Any = None

    @property
    def is_named(self) -> bool:
        """Whether an operand or an attribute is its value."""
        return self.target not in ("", "_")

    @property
    def is_stated(self) -> bool:
        """Whether a call states it; else it has its default."""
        return self.target != "_" or self.literal is not None


@dataclass(frozen=True)
class Mapping:
    """An aten operator in terms of a row, whose operands have these names."""

    text: str
    operands: tuple[str, ...]

    @cached_property
    def _parts(self) -> tuple[str, str, str]:
        match = _MAPPING.fullmatch(self.text)
        assert match is not None, f"'{self.text}' is no mapping"
        return match[1], match[2], match[3]

    @property
    def name(self) -> str:
        """The aten operator, with its overload."""
        return self._parts[0]

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """The arguments of the aten operator."""
        free = iter(self.operands)
        return tuple(_argument(item, free) for item in _items(self._parts[1]))

    def arguments_for(self, values: abc.Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call that the parentheses state, by name.

        Args:
            values: of the operands and attributes that the mapping names.
        """
        return {
            argument.name: values[argument.target] if argument.is_named else argument.literal
            for argument in self.arguments
            if argument.is_stated
        }

    @cached_property
    def fixed(self) -> dict[str, Attribute]:
        """The attributes that no argument gives."""
        words = (word.split("=") for word in self._parts[2].split())
        return {key: _literal(text) for key, text in words}


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _literal(text: str) -> Any:
    if text in ("inf", "-inf"):
        return float(text)
    value = ast.literal_eval(text)
    return tuple(value) if isinstance(value, list) else value


def _argument(item: str, free: Iterator[str]) -> Argument:
    name, equals, bound = item.partition("=")
    if not equals:
        return Argument(name, next(free))
    target, bar, default = bound.partition("|")
    if target == "_" or (target.isidentifier() and target not in ("None", "True", "False")):
        return Argument(name, target, _literal(default) if bar else None)
    return Argument(name, "", _literal(bound))


class Trait(Flag):
    """Properties of an operator, or of its results."""

    VIEW = auto()  # it rearranges a tensor and computes nothing
    POST_OPS = auto()  # it takes post-ops
    COMPUTES = auto()  # plans refuse to run it on anything but floating-point numbers
    FLOATING = auto()  # results are floating-point numbers in torch, too, whatever the operands are
    ROW_MAJOR = auto()  # results are contiguous
    ORDERED = auto()  # results lie in one order, whatever the order of operands
    WANTS_DIMS = auto()  # torch refuses a first operand without dimensions
    MAKES_DIMS = auto()  # results have at least one
    KEEPS_DIMS = auto()  # results have some if and only if the first operand has
    CASTS = auto()  # autocast lowers its operands
    FOREIGN = auto()  # passes match it, and no plan holds it
    WRITES = auto()  # it writes to its first operand, which its result is from then on
    KEEPS_GAPS = auto()  # torch's results have the gaps that its strides leave, too
    MAY_SHARE = auto()  # a plan may leave results in an operand's memory where no element changes
    ONE_OR_TWO = auto()  # it makes a second result where one is wanted
    KEEPS_SMALL = auto()  # averages over positions stay small: its result has no more
    PROMOTES = auto()  # torch converts its operands to one dtype
    ROUNDS = auto()  # torch rounds its results, although it does not compute
    FALLS_BACK = auto()  # torch computes it alone, for shapes that a plan refuses


NONE = Trait(0)


class Work(Enum):
    """How much an operator does: whether a region of it is worth a call."""

    NONE = auto()  # numbers, and what no plan holds
    LIGHT = auto()  # many are worth a call
    SOME = auto()  # a few are
    HEAVY = auto()  # one is


@dataclass(frozen=True)
class Result:
    """What is known of an operator's results.

    Attributes:
        dims: the rule for their dims; None says nothing.
        dtype: a slice of the operands that share theirs, or a name. A node's attribute ``dtype``
            comes first.
        strides: whose strides torch's results take over: 'input', 'input_or_weight', 'all', or
            'elements' of all operands that are combined; '' for row-major ones and for views.
        kind: 'tensor', 'tensors' or 'number'.
    """

    dims: infer.Rule | None = None
    dtype: slice | str | None = None
    strides: str = ""
    kind: str = "tensor"


@dataclass(frozen=True)
class Operator:
    """A row of the table.

    Attributes:
        signature: the name, operands and attributes, in the notation above.
        doc: a sentence or two for docs/plan.md.
        aten: mappings; the first serves calls too.
        family: the functions ``infer_<family>`` and ``build_<family>`` of plans run it, and
            ``compute_<family>`` by torch's operators; its name unless given.
        primitive: the kind of ZenDNN's primitives that its kernels count as; empty for none.
        work: how much it does; to be stated unless it makes numbers or views, or writes.
        composed: whether plans call torch's operators in ``compute_<family>``, as for numbers and
            where there is no mapping, instead of by the first mapping.

    Raises:
        ValueError: if ``work`` is missing.
    """

    signature: str
    doc: str = ""
    traits: Trait = NONE
    result: Result = Result()
    aten: tuple[str, ...] = ()
    family: str = ""
    primitive: str = ""
    work: Work | None = None
    composed: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "family", self.family or self.name)
        object.__setattr__(self, "work", self.work or self._derived_work())

    @cached_property
    def _parts(self) -> tuple[str, str, str]:
        match = _SIGNATURE.fullmatch(self.signature)
        assert match is not None, f"'{self.signature}' is no signature"
        operands, _, attributes = match[2].partition("*")
        return match[1], operands, attributes

    @property
    def name(self) -> str:
        """What descriptions call it."""
        return self._parts[0]

    def _derived_work(self) -> Work:
        if self.result.kind == "number" or Trait.FOREIGN in self.traits:
            return Work.NONE
        if self.traits & (Trait.VIEW | Trait.WRITES):
            return Work.LIGHT
        choices = ", ".join(str(work) for work in Work if work is not Work.NONE)
        raise ValueError(f"the row of operator '{self.name}' lacks work=: one of {choices}")

    @cached_property
    def operands(self) -> tuple[Operand, ...]:
        """Its operands."""
        found = []
        for item in _items(self._parts[1]):
            type_, name = item.split()
            one = type_.removesuffix("[]")
            found.append(Operand(name, one.rstrip("?"), one.endswith("?"), one != type_))
        return tuple(found)

    @cached_property
    def attributes(self) -> dict[str, AttributeSpec]:
        """Its attributes, by name."""
        found = {}
        for item in _items(self._parts[2]):
            type_, _, rest = item.partition(" ")
            name, equals, default = rest.partition("=")
            found[name] = AttributeSpec(name, type_, _literal(default) if equals else None)
        return found

    @cached_property
    def mappings(self) -> tuple[Mapping, ...]:
        """The aten operators that do the same."""
        names = tuple(operand.name for operand in self.operands)
        return tuple(Mapping(text, names) for text in self.aten)

    @property
    def in_torch(self) -> Mapping | None:
        """The mapping by which plans call torch; None where ``compute_<family>`` does."""
        of_numbers = self.result.kind == "number"
        return None if self.composed or of_numbers else next(iter(self.mappings), None)

    @cached_property
    def fewest(self) -> int:
        """How many operands a node must have: those at the end may be left out if optional."""
        wanted = (i for i, x in enumerate(self.operands, 1) if not (x.optional or x.many))
        return max(wanted, default=0)

    def operand(self, position: int) -> Operand | None:
        """The operand at a position, of which the last may stand for several; None beyond them."""
        if position < len(self.operands):
            return self.operands[position]
        return self.operands[-1] if self.operands and self.operands[-1].many else None


@dataclass(frozen=True)
class Function:
    """A function of each element: an algorithm of an operator, or a post-op.

    Attributes:
        name: what descriptions call it.
        enumerator: what C++ calls it, and our kernels' function of a vector, which gets alpha and
            beta if they are parameters: the name unless given.
        is_typed: whether that is a template, over the type of the results.
        aten: mappings to ``alpha`` and ``beta``; the first serves calls too.
        doc: what alpha and beta are.
        primitive: ZenDNN's algorithm; empty where only our kernels have the function.
        alpha, beta: the parameters of ZenDNN's algorithm, where they are not the function's own.
        magnifies: the factor by which it may magnify the rounding error of a sum; infinity where
            there is no bound, as for sqrt next to 0.
        keeps_integers: whether torch makes integers of integers.
        exact: whether it makes the operand, its negative or 0, and so never rounds.
        foreign: whether passes match it, and no plan computes it.
        operands: the names of its operands in mappings.
        commutes: whether the two may be exchanged.
    """

    name: str
    aten: tuple[str, ...] = ()
    doc: str = ""
    primitive: str = ""
    alpha: float | None = None
    beta: float | None = None
    magnifies: float = 1.0
    keeps_integers: bool = False
    exact: bool = False
    foreign: bool = False
    operands: tuple[str, ...] = ("x",)
    commutes: bool = False
    enumerator: str = ""
    is_typed: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "enumerator", self.enumerator or self.name)

    @cached_property
    def mappings(self) -> tuple[Mapping, ...]:
        """The aten operators that do the same."""
        return tuple(Mapping(text, self.operands) for text in self.aten)

    @property
    def has_parameters(self) -> bool:
        """Whether alpha and beta are the function's own."""
        return self.alpha is None
