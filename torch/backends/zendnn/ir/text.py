"""Writes and reads the descriptions that plans are made from; docs/plan.md defines them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch.backends.zendnn.ir.graph import Region

#: The first line of a description, and the version that saved plans are checked against.
DESCRIPTION = "zendnn-plan"
VERSION = 3


def describe(
    region: Region, without: Iterable[str] = (), tune: float | None = None
) -> tuple[str, list[torch.Tensor]]:
    """Return the description and the constants that a plan is made from.

    ``without`` are passes that the plan shall not run, ``tune`` the seconds that it may time
    implementations for, where that is not the default.
    """
    values = dict.fromkeys(value for node in region.nodes for value in node.values())
    constants = [value for value in values if value.constant is not None]
    lines = [f"{DESCRIPTION} {VERSION}"]
    lines += [f"without {' '.join(names)}"] if (names := sorted(without)) else []
    lines += [] if tune is None else [f"tune {tune}"]
    for value in region.inputs:
        dtype = f" {value.dtype}" if value.is_assumed else ""
        lines.append(f"{value} = input {value.kind}{dtype}")
    lines += [f"{value} = constant {index}" for index, value in enumerate(constants)]
    for node in region.nodes:
        lines.append(f"{node} # {'+'.join(node.origin)}" if node.origin else str(node))
    lines.append(f"return {', '.join(map(str, region.outputs))}")
    return "\n".join(lines) + "\n", [v.constant for v in constants if v.constant is not None]


@dataclass(frozen=True)
class Operator:
    """A line of a description: its values and post-ops are as it writes them."""

    name: str
    results: tuple[str, ...]
    operands: tuple[str, ...]
    attributes: dict[str, str]
    post_ops: tuple[str, ...]
    #: The model's operators that it performs.
    label: tuple[str, ...]


@dataclass(frozen=True)
class Description:
    """A description without its constants' values.

    Attributes:
        inputs: their names and kinds, 'tensor' or 'number', in order.
        constants: their names.
        operators: in the order in which they run.
        outputs: the names of the results.
    """

    inputs: dict[str, str]
    constants: tuple[str, ...]
    operators: tuple[Operator, ...]
    outputs: tuple[str, ...]


_OPERATOR = re.compile(r"(\w+)\((.*?)\)(.*)")


def read(text: str) -> Description:
    """Read a description, which a plan has taken, and so is one.

    Raises:
        ValueError: with the line, if it is none.
    """
    inputs: dict[str, str] = {}
    constants: list[str] = []
    operators: list[Operator] = []
    outputs: tuple[str, ...] = ()
    for line in text.splitlines():
        code, _, label = (part.strip() for part in line.partition("#"))
        names, _, rest = (part.strip() for part in code.partition(" = "))
        word = rest.split(maxsplit=1)[0] if rest else code.partition(" ")[0]
        if word in ("", DESCRIPTION, "without", "tune"):
            continue  # what the plan reads
        if word == "return":
            outputs = _split(code.removeprefix("return"), ",")
        elif word == "input":
            inputs[names] = rest.split()[1]
        elif word == "constant":
            constants.append(names)
        elif match := _OPERATOR.fullmatch(rest):
            name, operands, words = match.groups()
            attributes = dict(word.split("=", 1) for word in words.split())
            post_ops = _split(attributes.pop("post", ""), ";")
            values, does = (_split(names, ","), _split(operands, ",")), _split(label, "+")
            operators.append(Operator(name, *values, attributes, post_ops, does))
        else:
            raise ValueError(f"'{line}' is no line of a description")
    return Description(inputs, tuple(constants), tuple(operators), outputs)


def _split(text: str, separator: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(separator))))
