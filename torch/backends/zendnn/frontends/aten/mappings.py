"""Importers that are read off the mappings of ``operators.py``, and ways to combine importers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch.backends.zendnn.frontends.calls import ANY, BOOL, FLOATING, INDEX, Call, Dtypes, Refused
from torch.backends.zendnn.graph import Attribute, Operand
from torch.backends.zendnn.operators import COMBINATIONS, FUNCTIONS, OPERATORS
from torch.backends.zendnn.signatures import (
    Argument,
    AttributeSpec,
    Combination,
    Function,
    Mapping,
    Operator,
)
from torch.backends.zendnn.signatures import Operand as OperandSpec

Importer = Callable[[Call], None]

_DTYPES: dict[str, Dtypes] = {"Any": ANY, "Index": INDEX, "Bool": BOOL}


def _read_operand(call: Call, argument: Argument, spec: OperandSpec) -> list[Operand]:
    """What an argument is as an operand of a signature."""
    name, dtypes = argument.name, _DTYPES.get(spec.type, FLOATING)
    if spec.optional and call.absent(name):
        return [None]
    if spec.many and spec.is_number:
        return list(call.numbers(name) if spec.type == "int" else call.integers(name))
    if spec.many:
        return list(call.tensors(name, dtypes))
    if spec.is_number:
        return [call.number(name) if spec.type == "int" else call.integer(name)]
    operand = call.tensor(name, dtypes)
    if spec.type in ("Constant", "Float"):
        constant = call.weight(name, dtypes)
        if spec.type == "Float":
            operand = call.graph.constant(constant.float())
    return [operand]


def _read_attribute(call: Call, argument: Argument, spec: AttributeSpec) -> Attribute:
    """What an argument is as an attribute of a signature."""
    name = argument.name
    if argument.literal is not None and call.absent(name):
        return argument.literal
    read: dict[str, Callable[[str], Attribute]] = {
        "int": call.integer,
        "float": call.real,
        "bool": lambda name: bool(call.python(name)),
        "int[]": call.integers,
    }
    return read[spec.type](name)


def _require_literals(call: Call, mapping: Mapping) -> None:
    """Refuse the call unless its arguments are those that the mapping states."""
    for argument in mapping.arguments:
        if not argument.target:
            call.require(argument.name, argument.literal)


def _import_mapping(call: Call, row: Operator, mapping: Mapping) -> None:
    """Add the one node that a mapping stands for."""
    operands: dict[str, list[Operand]] = {}
    attributes: dict[str, Attribute] = {}
    _require_literals(call, mapping)
    call.require_defaults({argument.name for argument in mapping.arguments})
    specs = {operand.name: operand for operand in row.operands}
    for argument in mapping.arguments:
        if argument.target in specs:
            operands[argument.target] = _read_operand(call, argument, specs[argument.target])
        elif argument.target in row.attributes:
            spec = row.attributes[argument.target]
            value = _read_attribute(call, argument, spec)
            if value != ():
                attributes[argument.target] = value
    for name, value in mapping.fixed.items():
        if name in specs:
            assert isinstance(value, int)
            operands[name] = [value]
        else:
            attributes[name] = value
    inputs = [x for operand in row.operands for x in operands.get(operand.name, [None])]
    call.results(
        row.name,
        inputs,
        call.outputs[:1],
        "number" if row.results == "number" else "tensor",
        **attributes,
    )


def _import_function(call: Call, function: Function, mapping: Mapping) -> None:
    """Add the ``eltwise`` that a mapping to a function stands for."""
    attributes: dict[str, Attribute] = {"alpha": 0.0, "beta": 0.0, **mapping.fixed}
    _require_literals(call, mapping)
    specs = OPERATORS["eltwise"].attributes
    for argument in mapping.arguments:
        if argument.target in specs:
            spec = specs[argument.target]
            attributes[argument.target] = _read_attribute(call, argument, spec)
    (x,) = (call.tensor(a.name) for a in mapping.arguments if a.target == "x")
    call.result("eltwise", [x], algorithm=function.name, **attributes)


def _import_combination(call: Call, row: Combination) -> None:
    """Add the ``binary`` that a mapping to a combination stands for."""
    operands = [call.tensor(argument.name) for argument in row.mapping.arguments]
    call.result("binary", operands, algorithm=row.name)


def from_mappings() -> dict[str, Importer]:
    """Return the importers of all mappings of the table, by aten operator."""
    found: dict[str, list[Importer]] = {}
    for operator in OPERATORS.values():
        for mapping in operator.mappings:
            importer = functools.partial(_import_mapping, row=operator, mapping=mapping)
            found.setdefault(mapping.name, []).append(importer)
    for function in FUNCTIONS.values():
        for mapping in function.mappings:
            importer = functools.partial(_import_function, function=function, mapping=mapping)
            found.setdefault(mapping.name, []).append(importer)
    for name in ("max", "min"):
        row = COMBINATIONS[name]
        importer = functools.partial(_import_combination, row=row)
        found[row.mapping.name] = found[f"aten::{name}.other"] = [importer]
    return {name: first_of(*importers) for name, importers in found.items()}


def first_of(*importers: Importer) -> Importer:
    """The first importer that does not refuse the call; the reason is the first one's."""
    first, *others = importers
    if not others:
        return first

    def importer(call: Call) -> None:
        try:
            first(call)
        except Refused:
            for other in others:
                try:
                    return other(call)
                except Refused:
                    continue
            raise

    return importer


def first_that(takes: Callable[[Call], bool], yes: Importer, no: Importer) -> Importer:
    """One importer or another."""
    return lambda call: yes(call) if takes(call) else no(call)


def same_number(name: str) -> Importer:
    """A number that the model only moves: into a tensor, out of it, from one type to another."""
    return lambda call: call.identity(call.number(name))


def same_tensor(name: str, **required: Any) -> Importer:
    """A result that is the argument."""

    def importer(call: Call) -> None:
        for key, value in required.items():
            call.require(key, value)
        call.identity(call.tensor(name, ANY))

    return importer


MAPPED = from_mappings()
