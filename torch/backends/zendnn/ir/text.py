"""Writes the descriptions that plans are made from; docs/plan.md defines them."""

from __future__ import annotations

from collections.abc import Iterable

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
