"""Expressions of the engine's functions of each element, from the rows of its table."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator

import torch
from torch.backends.zendnn.table.functions import FUNCTIONS
from torch.backends.zendnn.table.notation import Mapping


def expressions(known: Collection[str]) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield a name for each mapping of a function, and what draws an expression of it.

    Functions without parameters are left out if they are ``known``.
    """
    for row in FUNCTIONS.values():
        if row.name in known and not row.has_parameters:
            continue
        for number, mapping in enumerate(row.mappings):
            name = mapping.name.removeprefix("aten::") if number else row.name
            yield name, _expression(mapping)


def _expression(mapping: Mapping) -> Callable[[], str]:
    name = mapping.name.removeprefix("aten::")
    module = "torch" if hasattr(torch, name) else "F"
    is_bounded = any(argument.target == "beta" for argument in mapping.arguments)

    def draw() -> str:
        # Slopes are positive: those below 0 make -0 of 0 in some kernels only.
        alpha = random.choice([-0.5, 0.0, 0.2] if is_bounded else [0.1, 0.2, 0.7])
        values = {"x": "{0}", "alpha": alpha, "beta": alpha + random.choice([0.3, 1.5])}
        arguments = mapping.arguments_for(values)
        x = arguments.pop("self")
        # Numbers are defaults, which functions of torch.nn.functional do not all take.
        stated = {k.name for k in mapping.arguments if k.is_named or isinstance(k.literal, str)}
        more = [f", {key}={value!r}" for key, value in arguments.items() if key in stated]
        return f"{module}.{name}({x}{''.join(more)})"

    return draw
