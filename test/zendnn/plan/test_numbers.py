"""Arithmetic on numbers in plans."""

from __future__ import annotations

import pytest
import torch

from ..support.graphs import Builder
from ..support.plans import check, refusal, tensor
from ..support.samples import plan_of


def test_numbers(b: Builder) -> None:
    x, number = b.input(tensor(6, 10)), b.input(3)
    rows, columns = b("size", x, 0), b("size", x, -1)
    half = b("number_floordiv", rows, 2)
    sizes = [
        b("number_mul", half, 2),
        b("number_sub", columns, number),
        b("number_add", number, -3),
    ]
    y = b("slice", b.eltwise("abs", x), 1, number, None, 1)
    y = b("view", y, sizes[0], sizes[1])
    y = b("slice", y, 0, sizes[2], b("number_floordiv", b("numel", x), -17), 1)
    check(b, b("unsqueeze", y, 0))


@pytest.mark.parametrize(("a", "c"), [(7, 2), (-7, 2), (7, -2), (-7, -2), (6, -3)])
def test_division_of_numbers_rounds_down(b: Builder, a: int, c: int) -> None:
    x, left, right = b.input(tensor(40)), b.input(a), b.input(c)
    check(b, b("slice", x, 0, b("number_floordiv", left, right), None, 1))
    check(b, b("slice", x, 0, b("number_remainder", left, right), None, 1))


@pytest.mark.parametrize("exponent", [-0.5, 0.5, -1.0, 2.5])
def test_powers_of_numbers(b: Builder, exponent: float) -> None:
    x, n = b.input(tensor(3, 5)), b.input(7)
    check(b, b.binary("mul", x, b("power", n, exponent=exponent)))


def test_powers_of_numbers_take_the_dtype_of_the_other_operand(b: Builder) -> None:
    x, n = b.input(tensor(3, 5, dtype=torch.bfloat16)), b.input(7)
    factor = b("to_like", b("power", n, exponent=-0.5), x)
    check(b, b.binary("mul", x, factor), dtype=torch.bfloat16)


#: Views of a tensor of 2 by 6 elements with negative sizes.
NEGATIVE = {
    "%2 = view(%1, -2, -6)": "%2",
    "%2 = unflatten(%1, 1, -2, -3)": "%2",
    "%2 = slice(%1, 0, 0, 1, 1)\n%3 = expand(%2, -3, 6)": "%3",
    "%2, %3 = split(%1) dim=0 sizes=1000000,-999998": "%2, %3",
}

MOST, THIRD = 2**63 - 1, 3074457345618258603  # 3 · THIRD is 1 in 64 bits

#: Nodes with numbers so large that computations on them overflow 64 bits.
TOO_LARGE = {
    f"%y = pad(%x, {MOST}, {MOST}) value=0.0": "padding",
    f"%1 = view(%x, 64, 3, 1)\n%2 = expand(%1, 64, 3, {THIRD})\n%y = eltwise(%2) algorithm=abs": (
        "more elements than there can be"
    ),
    f"%y = max_pool(%x) kernel=2,2 stride=1,1 padding=0,0 dilation={MOST},1": "window",
    f"%1 = number_add({MOST}, %n)\n%y = slice(%x, 0, 0, %1, 1)": "64 bits",
    f"%1 = number_sub(%n, {-MOST})\n%y = slice(%x, 0, 0, %1, 1)": "64 bits",
    f"%1 = number_mul({MOST}, %n)\n%y = slice(%x, 0, 0, %1, 1)": "64 bits",
    f"%1 = number_floordiv({-MOST - 1}, -1)\n%y = slice(%x, 0, 0, %1, 1)": "64 bits",
    "%y = layer_norm(%x, none, none, none) eps=0.1 dims=1 sizes=4,4,4": "other sizes",
}


@pytest.mark.parametrize("lines", TOO_LARGE)
def test_numbers_that_are_too_large_are_refused(lines: str) -> None:
    plan = plan_of("%x = input tensor", "%n = input number", lines, "return %y")
    assert not plan.takes([tensor(2, 6, 4, 4)], [2])
    assert TOO_LARGE[lines] in refusal(plan)


def test_a_remainder_by_minus_one() -> None:
    """CPUs trap when they divide the lowest integer by it."""
    lines = f"%1 = number_remainder({-MOST - 1}, %n)\n%y = slice(%x, 0, %1, 1, 1)"
    plan = plan_of("%x = input tensor", "%n = input number", lines, "return %y")
    x = tensor(2, 6)
    (got,) = plan.run([x], [-1])
    assert torch.equal(got, x[:1])


@pytest.mark.parametrize("lines", NEGATIVE)
def test_sizes_below_zero_are_refused(lines: str) -> None:
    """torch's own operators run then, and raise an error."""
    plan = plan_of("%1 = input tensor", lines, f"return {NEGATIVE[lines]}")
    assert not plan.takes([tensor(2, 6)], [])
    assert refusal(plan)


def test_the_largest_number_of_chunks_is_accepted() -> None:
    split = "%2, %3 = split(%1) dim=0 chunks=9223372036854775807"
    assert plan_of("%1 = input tensor", split, "return %2, %3").takes([tensor(2, 6)], [])
