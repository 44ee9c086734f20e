"""Plans of thousands of operators in a row: nothing recurses over the length of one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

#: Recursion over so many ends a process with a stack of 8 MiB.
LENGTH = 12_000

#: Operators of a description, each of which reads the result before it, and what they compute.
STEPS: dict[str, tuple[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "cat": ("cat(%{}, %1) dim=0", lambda y, x: torch.cat([y, x])),
    "views": ("unflatten(%{}, 0, 1, -1) | flatten(%{}, 0, 1)", lambda y, x: y),
    "eltwise": ("eltwise(%{}) algorithm=tanh", lambda y, x: y.tanh()),
    "binary": ("binary(%{}, %1) algorithm=add", lambda y, x: y + x),
    "softmax": ("softmax(%{}) dim=0", lambda y, x: y.softmax(0)),
    "pad": (
        "pad(%{}, 1, 0) | slice(%{}, 0, none, 2, 1)",
        lambda y, x: torch.nn.functional.pad(y, (1, -1)),
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_operators_in_a_row(name: str) -> None:
    line, compute = STEPS[name]
    x = want = torch.rand(2)
    text, last = ["zendnn-plan 3", "%1 = input tensor"], 1
    while last < LENGTH:
        for operator in line.split(" | "):
            text.append(f"%{last + 1} = {operator.format(last)}")
            last += 1
        want = compute(want, x)
    plan = torch.classes.zendnn.Plan("\n".join([*text, f"return %{last}", ""]), [], "long")
    (result,) = plan.run([x], [])
    torch.testing.assert_close(result, want)
