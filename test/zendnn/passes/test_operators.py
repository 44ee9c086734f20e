"""The table of operators has a row for each that is documented, and for each that plans know."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from torch.backends.zendnn.graph import Value
from torch.backends.zendnn.passes._operators import OPERATORS, makes_floats

from ..plan.check import make_plan, refusal, region_of, tensor
from .build import Builder, random

ROOT = Path(__file__).parents[3]


def documented() -> set[str]:
    """The operators in the first column of the document's tables, each before its operands."""
    text = (ROOT / "docs/plan.md").read_text()
    rows = re.findall(r"^\| (`.+?`) \|", text, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)[(`]", row)}


def test_the_table_and_the_document_name_the_same_operators() -> None:
    assert set(OPERATORS) == documented()


def test_the_table_and_that_of_plans_name_the_same_operators() -> None:
    text = (ROOT / "torch/csrc/zendnn/plan/Operators.cpp").read_text()
    assert set(OPERATORS) == set(re.findall(r'^      \{"(\w+)",', text, re.MULTILINE))


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_plans_know_the_operator(name: str) -> None:
    b = Builder()
    x = tensor(2, 3)
    plan = make_plan(region_of(b, b(name, b.input(x))))
    plan.takes([x], [])
    assert f"the operator '{name}'" not in refusal(plan)


@pytest.mark.parametrize(
    ("algorithm", "floats"), [("relu", False), ("round", False), ("exp", True), ("sigmoid", True)]
)
def test_functions_make_floats_unless_torch_lets_them_keep_integers(
    algorithm: str, floats: bool
) -> None:
    b = Builder()
    made: Value = b.eltwise(algorithm, b.input(random(2)))
    assert made.producer is not None
    assert makes_floats(made.producer) == floats
