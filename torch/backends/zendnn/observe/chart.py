"""``profiler.chart``: the calls of chosen operators in order, and which ran on ZenDNN.

>>> profiler = torch.backends.zendnn.profiler
>>> profiler.chart.add_beacon("aten::addmm")
>>> with profiler:
...     model(x)
>>> print(profiler.chart.json())
"""

from __future__ import annotations

import json as json_
import re
from collections.abc import Iterator

import torch
from torch.backends.zendnn import _columns
from torch.backends.zendnn.observe.calls import CallEvent
from torch.backends.zendnn.observe.interval import calls

#: The operators that each beacon chooses, all overloads apart.
_beacons: dict[str, frozenset[str]] = {}

#: The types of a schema by those of C++, without const, references and namespaces.
_TYPES = {
    "IntArrayRef": "List[int]",
    "IntList": "List[int]",
    "Scalar": "number",
    "ScalarType": "int",
    "SymInt": "int",
    "SymIntArrayRef": "List[int]",
    "TensorList": "List[Tensor]",
    "double": "float",
    "int64_t": "int",
    "string_view": "str",
}


def add_beacon(signature: str) -> None:
    """Choose an operator.

    Args:
        signature: an operator with all its overloads (``'aten::add'``), one overload
            (``'aten::add.Tensor'``; ``'aten::add.default'`` is the one without a name), or a C++
            signature such as ``'at::Tensor at::add(const at::Tensor&, const at::Tensor&,
            c10::Scalar)'``, whose types choose the overload.

    Raises:
        ValueError: if torch has no such operator.
    """
    _beacons[signature] = frozenset(operators_of(signature))


def clear_beacon() -> None:
    """Choose no operators any more."""
    _beacons.clear()


#: Short names of them.
add, clear = add_beacon, clear_beacon


def json() -> str:
    """Return the chosen calls of the last region of interest, in the order of their starts.

    A JSON list of objects: ``signature``, as it was given to ``add_beacon``, and ``offload``, true
    where ZenDNN computed the call or a part of it. A step of a plan is a call of each chosen
    operator that it performs.
    """
    found = [{"offload": call.offloaded, "signature": beacon} for beacon, call in _chosen()]
    return json_.dumps(found, indent=4)


#: HammerBlade's name of it.
fancy_print = json


def table() -> str:
    """Return the same calls as a table, with times and implementations."""
    rows = [("", "ms", "on", "operator", "implementation")]
    for number, (_, call) in enumerate(_chosen(), 1):
        on = "ZenDNN" if call.offloaded else "torch"
        reported = [x.reported for x in call.walk() if x.reported]
        how = " + ".join(dict.fromkeys(x.reason or x.implementation for x in reported))
        rows.append((str(number), f"{call.event.ms:.3f}", on, call.operator, how))
    return "\n".join(_columns.table(rows, ">><<<"))


def _chosen() -> Iterator[tuple[str, CallEvent]]:
    for outermost in calls():
        for call in outermost.walk():
            # A step's operators have no overloads.
            names = call.operator.split("+") if call.is_step else ()
            for beacon, operators in _beacons.items():
                whole = {name.partition(".")[0] for name in operators}
                if call.event.operator in operators or whole.intersection(names):
                    yield beacon, call


def operators_of(signature: str) -> Iterator[str]:
    """Yield the full names of the operators that a signature means; see ``add_beacon``."""
    before, parenthesis, types = signature.partition("(")
    if parenthesis:
        name = re.split(r"::|\s", before.strip())[-1]
        # C++ has other names for variants with `out`, and may have that first.
        known = _schemas(f"aten::{name}") or _schemas(f"aten::{name.removesuffix('_out')}")
        wanted = sorted(_types(types))
        fitting = [x for x in known if sorted(_kind(str(a.type)) for a in x.arguments) == wanted]
        found = [_full_name(schema) for schema in fitting or known]
    else:
        name, _, overload = signature.strip().partition(".")
        known = _schemas(name if "::" in name else f"aten::{name}")
        overload_name = "" if overload == "default" else overload
        found = [_full_name(x) for x in known if not overload or x.overload_name == overload_name]
    if not found:
        raise ValueError(
            f"torch has no operator {signature!r}: name one as aten::add, aten::add.Tensor or "
            "at::Tensor at::add(const at::Tensor&, …)"
        )
    yield from found


def _schemas(name: str) -> list[torch._C.FunctionSchema]:
    return list(torch._C._jit_get_schemas_for_operator(name))


def _full_name(schema: torch._C.FunctionSchema) -> str:
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


def _types(text: str) -> list[str]:
    """Return the types of C++ parameters as a schema writes them."""
    parameters = re.split(r",(?![^<]*>)", text.rpartition(")")[0])
    plain = [re.sub(r"\bconst\b|[&*]|\b\w+::", " ", parameter) for parameter in parameters]
    # `optional< Tensor>` is one word; a parameter's name is another.
    words = [re.sub(r"<\s*(\w+)\s*>", r"<\1>", parameter).split() for parameter in plain]
    return [_TYPES.get(kind, kind) for kind in (_kind(word[0]) for word in words if word)]


def _kind(type_: str) -> str:
    """Return a type, or what it may hold: older signatures have no optional tensors."""
    return re.sub(r"^(?:Optional\[(.*)\]|optional<(.*)>)$", r"\1\2", type_)
