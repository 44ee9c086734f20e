"""What a check finds, and how a table of checks is applied to a value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

Value = TypeVar("Value")

#: The least part of the time that is worth a finding, in per cent.
WORTH = 5.0

#: Reasons for torch's kernels with which nothing can be gained, or which another finding tells.
HARMLESS = re.compile(
    r"gain|as fast|memory bounds|lacks required|switched off|the same from run to run"
)


@dataclass(frozen=True)
class Finding:
    """A problem.

    Attributes:
        problem: what is wrong, in one clause.
        evidence: what was seen.
        fix: the command or the code that mends it.
        cost: what it costs, in per cent of ``of``, as measured here; None where it was not.
        of: what the cost is a part of.
        check: the name of the check that found it.
    """

    problem: str
    evidence: str
    fix: str
    cost: float | None = None
    of: str = "the time"
    check: str = ""


Check = Callable[[Value], Iterable[Finding]]


def examine(checks: Sequence[Check[Value]], value: Value) -> tuple[Finding, ...]:
    """Return what all checks find in a value."""
    return tuple(replace(x, check=check.__name__) for check in checks for x in check(value))


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings, the most expensive first; those of unknown cost come last."""
    return tuple(sorted(findings, key=lambda finding: -(finding.cost or 0.0)))
