"""The table of operators: its notation, and its agreement with documents, plans and importers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.backends.zendnn.ir.node import SOME_FLOAT
from torch.backends.zendnn.table.functions import COMBINATIONS, ENUMERATIONS, FUNCTIONS
from torch.backends.zendnn.table.notation import (
    AttributeSpec,
    Mapping,
    Operand,
    Operator,
    Result,
    Trait,
    Work,
)
from torch.backends.zendnn.table.operators import OPERATORS

from .support.graphs import Builder, random
from .support.interpreter import BINARY, ELTWISE
from .support.interpreter import OPERATORS as INTERPRETED
from .support.samples import plan_of


def test_a_signature_names_operands_and_attributes() -> None:
    attributes = "Eltwise algorithm, float eps=1e-5, int[] dims=[1]"
    row = Operator(f"f(Tensor x, Index? i, int[] n, *, {attributes})", "f", work=Work.SOME)
    assert row.name == "f"
    assert row.operands == (
        Operand("x", "Tensor", optional=False, many=False),
        Operand("i", "Index", optional=True, many=False),
        Operand("n", "int", optional=False, many=True),
    )
    assert row.attributes == {
        "algorithm": AttributeSpec("algorithm", "Eltwise", None),
        "eps": AttributeSpec("eps", "float", 1e-5),
        "dims": AttributeSpec("dims", "int[]", (1,)),
    }
    assert row.operand(7) == row.operands[2]


def test_a_row_states_how_much_work_it_is_unless_that_follows() -> None:
    message = "operator 'f' lacks work=: one of Work.LIGHT, Work.SOME, Work.HEAVY"
    with pytest.raises(ValueError, match=message):
        Operator("f(Tensor x)")
    assert Operator("f(Tensor x)", traits=Trait.VIEW).work is Work.LIGHT
    assert Operator("f(Tensor x)", result=Result(kind="number")).work is Work.NONE


@pytest.mark.parametrize("text", ["f", "f(Tensor x", "(Tensor x)"])
def test_an_invalid_signature_is_an_error(text: str) -> None:
    with pytest.raises(AssertionError, match="is no signature"):
        _ = Operator(text, "f").name


def test_a_mapping_binds_arguments_to_operands_and_attributes() -> None:
    text = "aten::f.x(self, low=alpha|-inf, mode='a', n=_, m=_|0.0) beta=2.0"
    mapping = Mapping(text, ("x",))
    found = [(a.name, a.target, a.literal) for a in mapping.arguments]
    assert mapping.name == "aten::f.x"
    assert found == [
        ("self", "x", None),
        ("low", "alpha", -math.inf),
        ("mode", "", "a"),
        ("n", "_", None),
        ("m", "_", 0.0),
    ]
    assert [a.name for a in mapping.arguments if a.is_stated] == ["self", "low", "mode", "m"]
    assert mapping.fixed == {"beta": 2.0}


def all_mappings() -> dict[str, Mapping]:
    mappings = [mapping for row in OPERATORS.values() for mapping in row.mappings]
    functions = (*FUNCTIONS.values(), *COMBINATIONS.values())
    mappings += [mapping for function in functions for mapping in function.mappings]
    return {mapping.text: mapping for mapping in mappings}


@pytest.mark.parametrize("text", all_mappings())
def test_a_mapping_names_arguments_that_torch_has(text: str) -> None:
    mapping = all_mappings()[text]
    name, _, overload = mapping.name.partition(".")
    schema = torch._C._get_schema(name, overload)
    arguments = [argument.name for argument in schema.arguments]
    named = [argument.name for argument in mapping.arguments]
    assert set(named) <= set(arguments)
    called = [argument.name for argument in mapping.arguments if argument.is_stated]
    left = [a for a in schema.arguments if a.name not in called]
    assert all(argument.has_default_value() for argument in left)


def test_every_operator_and_function_is_in_the_reference_interpreter() -> None:
    assert set(OPERATORS) == set(INTERPRETED)
    assert set(FUNCTIONS) == set(ELTWISE)
    assert set(COMBINATIONS) == set(BINARY)


@pytest.mark.parametrize("name", [n for n, r in OPERATORS.items() if not r.traits & Trait.FOREIGN])
def test_plans_know_the_operator(name: str) -> None:
    stated = [x for x in OPERATORS[name].attributes.values() if x.default is None]
    chosen = {x.name: min(ENUMERATIONS[x.type]) for x in stated}
    if name == "compare":
        chosen["algorithm"] = "eq"  # the other pairs are those of `integer`
    words = " ".join(f"{key}={word}" for key, word in chosen.items())
    plan_of("%1 = input tensor", f"%2 = {name}(%1) {words}", "return %2")
    with pytest.raises(RuntimeError, match=f"there is no operator '{name}_'"):
        plan_of("%1 = input tensor", f"%2 = {name}_(%1)", "return %2")


@pytest.mark.parametrize(
    ("algorithm", "floats"), [("relu", False), ("round", False), ("exp", True), ("sigmoid", True)]
)
def test_functions_make_floats_unless_torch_lets_them_keep_integers(
    algorithm: str, floats: bool
) -> None:
    b = Builder()
    result: Any = b.eltwise(algorithm, b.input(random(2)))
    assert (result.dtype == SOME_FLOAT) == floats
