"""Importers that are read off mappings (``table/notation.py``), and ways to combine importers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.backends.zendnn.frontends.calls import ANY, BOOL, FLOATING, INDEX, Call, Dtypes, Refused
from torch.backends.zendnn.ir.node import Operand, Value
from torch.backends.zendnn.table.functions import COMBINATIONS, FUNCTIONS
from torch.backends.zendnn.table.notation import (
    Argument,
    Attribute,
    AttributeSpec,
    Mapping,
    Operator,
)
from torch.backends.zendnn.table.notation import Operand as OperandSpec
from torch.backends.zendnn.table.operators import OPERATORS, VIEWS

Importer = Callable[[Call], None]

_DTYPES: dict[str, Dtypes] = {"Any": ANY, "Index": INDEX, "Bool": BOOL}


def operands(call: Call, op: str, *names: str) -> list[Operand]:
    """Return arguments as the first operands of an operator."""
    specs = zip(names, OPERATORS[op].operands, strict=False)
    return [operand for name, spec in specs for operand in _read_operand(call, name, spec)]


def _read_operand(call: Call, name: str, spec: OperandSpec) -> list[Operand]:
    """What an argument is as an operand of a signature."""
    dtypes = _DTYPES.get(spec.type, FLOATING)
    if spec.optional and call.absent(name):
        return [None]
    if spec.many and spec.is_number:
        return list(call.numbers(name) if spec.type == "int" else call.integers(name))
    if spec.many:
        return [call.as_tensor(element, name, dtypes) for element in call.elements(name)]
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


def _import(call: Call, row: Operator, mapping: Mapping, fixed: dict[str, Attribute]) -> None:
    """Add the one node that a mapping stands for; ``fixed`` is what no argument gives."""
    for argument in mapping.arguments:
        if not argument.target:
            call.require(argument.name, argument.literal)
    call.require_defaults({argument.name for argument in mapping.arguments})
    attributes = fixed | mapping.fixed
    specs = {operand.name: operand for operand in row.operands}
    inputs: dict[str, list[Operand]] = {}
    for name in specs.keys() & attributes.keys():
        number = attributes.pop(name)
        assert isinstance(number, int)
        inputs[name] = [number]
    for argument in mapping.arguments:
        if argument.target in specs:
            inputs[argument.target] = _read_operand(call, argument.name, specs[argument.target])
        elif argument.target in row.attributes:
            value = _read_attribute(call, argument, row.attributes[argument.target])
            if value != ():
                attributes[argument.target] = value
    _check_constants(
        call,
        [
            call.weight(argument.name)
            for argument in mapping.arguments
            if argument.target in specs and specs[argument.target].type == "Float"
            if inputs[argument.target] != [None]
        ],
        inputs,
    )
    listed = [x for operand in row.operands for x in inputs.get(operand.name, [None])]
    call.result(row.name, listed, **attributes)


def _check_constants(call: Call, constants: list[Tensor], inputs: dict[str, list[Operand]]) -> None:
    """Refuse constants that torch does not take: they are all float32, or of the input's dtype."""
    dtypes = {str(constant.dtype).removeprefix("torch.") for constant in constants}
    if len(dtypes) > 1:
        raise Refused("its constants have several dtypes")
    if dtypes <= {"float32"}:
        return
    (dtype,) = dtypes
    (x,) = inputs["x"]
    assert isinstance(x, Value)
    if x.producer is None and x.constant is None and x.dtype is None:
        x.dtype, x.is_assumed = dtype, True  # the plan refuses another one
    elif x.dtype != dtype:
        raise Refused(f"its constants are {dtype}, and its input may not be")


_WINDOW = "kernel_size=kernel, stride=stride, padding=padding, "
#: Operators, and mappings to them that are only imported: the passes make no such calls.
_IMPORTED = (
    ("binary", "aten::max.other(self, other) algorithm='max'"),
    ("binary", "aten::min.other(self, other) algorithm='min'"),
    ("eltwise", "aten::neg(self) algorithm='affine' alpha=-1.0 beta=-0.0"),
    ("eltwise", "aten::pow.Tensor_Scalar(self, exponent=0.5) algorithm='sqrt' alpha=0.0 beta=0.0"),
    ("eltwise", "aten::pow.Tensor_Scalar(self, exponent=2) algorithm='square' alpha=0.0 beta=0.0"),
    (
        "batch_norm",
        "aten::_native_batch_norm_legit_no_training(input, weight, bias, running_mean, "
        "running_var, momentum=_, eps=eps)",
    ),
    ("size", "aten::sym_size.int(self, dim)"),
    ("view", "aten::_unsafe_view(self, size)"),
    *(
        (op, f"aten::{op}{n}d(self, {arguments})")
        for op, arguments in (
            ("max_pool", _WINDOW + "dilation=dilation, ceil_mode=ceil"),
            ("avg_pool", _WINDOW + "ceil_mode=ceil, count_include_pad=include_pad"),
            ("adaptive_avg_pool", "output_size=sizes"),
        )
        for n in (1, 2, 3)
    ),
)


def _rows() -> dict[str, list[tuple[Operator, Mapping, dict[str, Attribute]]]]:
    """Return all mappings, by aten operator: their rows, and attributes that no argument gives."""
    rows: dict[str, list[tuple[Operator, Mapping, dict[str, Attribute]]]] = defaultdict(list)

    def add(op: str, *mappings: Mapping, **fixed: Attribute) -> None:
        for mapping in mappings:
            rows[mapping.name].append((OPERATORS[op], mapping, fixed))

    for row in OPERATORS.values():
        add(row.name, *row.mappings)
    for op, text in _IMPORTED:
        add(op, Mapping(text, tuple(operand.name for operand in OPERATORS[op].operands)))
    for function in FUNCTIONS.values():
        add("eltwise", *function.mappings, algorithm=function.name, alpha=0.0, beta=0.0)
    for combination in COMBINATIONS.values():
        add("binary", *combination.mappings, algorithm=combination.name)
    return dict(rows)


_ROWS = _rows()


def mapped(call: Call) -> None:
    """What the first mapping that does not refuse the call stands for."""
    refusals = []
    for row, mapping, fixed in _ROWS[call.name]:
        try:
            return _import(call, row, mapping, fixed)
        except Refused as refused:
            refusals.append(refused)
    raise refusals[0]


def same_number(call: Call) -> None:
    """A number that the model only moves: into a tensor, out of it, from one type to another."""
    call.identity(call.number("a"))


def same_tensor(call: Call, *, name: str, **required: Any) -> None:
    """A result that is the argument."""
    for key, value in required.items():
        call.require(key, value)
    call.identity(call.tensor(name, ANY))


MAPPED: dict[str, Importer] = dict.fromkeys(_ROWS, mapped)

#: The aten operators, without overloads, that only rearrange a tensor.
VIEWS = frozenset(
    mapping.name.partition(".")[0] for op in VIEWS for mapping in OPERATORS[op].mappings
)
