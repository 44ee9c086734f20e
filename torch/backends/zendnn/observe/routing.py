"""Routes: which calls run on torch's own kernels although ZenDNN takes them.

A route is a chart (``profiler.chart.json()``), whose entries choose for each call in order, or an
object with rules:

>>> {
...     "format": "torch.backends.zendnn route",
...     "version": 1,
...     "rules": [
...         {"operator": "aten::linear", "shapes": [["*", 768]], "offload": false},
...         {"operator": "zendnn::_zendnn_plan_forward_0", "offload": false},
...         {"operator": "*", "offload": true},
...     ],
... }
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.backends.zendnn import _C, _settings
from torch.backends.zendnn.observe.chart import operators_of

__all__ = ["clear", "set_route_from_json"]

#: The format of routes with rules; another version has another number.
FORMAT = "torch.backends.zendnn route"
VERSION = 1

#: Why a call runs on torch that a route leaves.
REASON = "the route says torch"

#: What names all operators and regions that no other rule matches.
_OTHERS = "*"

Json = Mapping[str, Any]


def set_route_from_json(route: Sequence[Json] | Json | str | os.PathLike[str]) -> None:
    """Set which calls run on ZenDNN and which on torch's own kernels, in the whole process.

    Args:
        route: a chart or an object with rules, as Python has it, as JSON text, or the path of a
            file. An entry or rule has:

            - ``signature`` or ``operator``: an operator as ``profiler.chart.add_beacon`` takes it;
              ``zendnn::`` and the name of a region, of which ``"offload": false`` makes the
              region's operators run one by one, each by its own rule; in a rule ``*`` for all that
              no other rule names;
            - ``offload``: ``true`` for ZenDNN, where it takes the call, ``false`` for torch;
            - ``shapes``, only in a rule: the sizes of the first tensors of the call, each a list in
              which ``"*"`` is any size, or ``null`` for any tensor.

            The first rule that matches decides. A chart's first entry is for the first call of an
            operator that the chart names, and so on; the first follows the last. Counting starts
            here, and with ``profiler.enable()``. In plans, an operator that goes to torch takes
            those with it that are fused into it.

    Raises:
        ValueError: for a route of another version, with an unknown operator, or of another form.
        OSError: where the file cannot be read.
    """
    rules, chart = _read(route)
    others = [rule["offload"] for rule in rules if rule["operator"] == _OTHERS]
    _C._set_route(
        [_rule(rule, "operator") for rule in rules if rule["operator"] != _OTHERS],
        [_rule(entry, "signature") for entry in chart],
        others[0] if others else True,
    )


def clear() -> None:
    """Let ZenDNN take all calls again that it can take."""
    _C._clear_route()


def set_from_environment() -> None:
    """Set the route that ``ZENDNN_ROUTE`` names; a wrong one warns and sets none."""
    if path := _settings.text("ZENDNN_ROUTE"):
        try:
            set_route_from_json(Path(path))
        except (OSError, ValueError) as error:
            warnings.warn(f"ZENDNN_ROUTE sets no route: {error}", stacklevel=2)


def _read(route: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rules and the chart, checked."""
    place = "the route"
    if isinstance(route, str | os.PathLike):
        text = os.fspath(route)
        if not text.lstrip().startswith(("[", "{")):
            place, text = f"the route {text}", Path(text).read_text(encoding="utf-8")
        try:
            route = json.loads(text)
        except ValueError as error:
            raise ValueError(
                f"{place} is no JSON ({error}): give what chart.json() or measure() returned"
            ) from error
    if isinstance(route, Mapping):
        if route.get("format") != FORMAT:
            raise ValueError(
                f'{place} has no "format": "{FORMAT}": give it that, or give a chart, '
                "which is a list"
            )
        if route.get("version") != VERSION:
            raise ValueError(
                f"{place} is of version {route.get('version')}: measure it anew, since this build "
                f"reads version {VERSION}"
            )
        return _checked(route.get("rules"), place, "rule", "operator", {"shapes"}), []
    return [], _checked(route, place, "entry", "signature", set())


def _checked(
    items: Any, place: str, kind: str, name: str, optional: set[str]
) -> list[dict[str, Any]]:
    """Return the items of a route, of which each has a name and an ``offload``."""
    if not isinstance(items, Sequence) or isinstance(items, str):
        plural = {"entry": "entries", "rule": "rules"}[kind]
        raise ValueError(
            f'{place} has no list of {plural}: give objects with "{name}" and "offload" in a list'
        )
    checked = []
    for number, item in enumerate(items, 1):
        where = f"{kind} {number} of {place}"
        if not isinstance(item, Mapping) or not isinstance(item.get(name), str):
            raise ValueError(f'{where} has no "{name}": name an operator, such as "aten::linear"')
        if not isinstance(item.get("offload"), bool):
            raise ValueError(
                f'{where} has no "offload" that is true (for ZenDNN) or false (for torch): add one'
            )
        if unknown := item.keys() - optional - {name, "offload"}:
            raise ValueError(
                f'{where} has "{min(unknown)}", which has no meaning there: leave it out'
            )
        checked.append({**item, "shapes": _shapes(item.get("shapes", []), where)})
        if item[name] == _OTHERS and (not optional or checked[-1]["shapes"]):
            raise ValueError(f'{where} is for "*": only a rule without shapes may be')
    return checked


def _shapes(shapes: Any, where: str) -> list[list[int] | None]:
    """Return patterns of shapes; -1 stands for any size."""

    def size(value: Any) -> int:
        if value == "*":
            return -1
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        raise ValueError(f'{where} has a size {value!r}: sizes are numbers from 0 on, or "*"')

    if not isinstance(shapes, list) or not all(x is None or isinstance(x, list) for x in shapes):
        raise ValueError(
            f'{where} has "shapes" that are no list of lists: write them as [["*", 768], null]'
        )
    return [None if shape is None else [size(x) for x in shape] for shape in shapes]


def _rule(item: Json, name: str) -> _C._Rule:
    operators = [item[name]] if item[name].startswith("zendnn::") else operators_of(item[name])
    return _C._Rule(list(operators), item["shapes"], item["offload"])
