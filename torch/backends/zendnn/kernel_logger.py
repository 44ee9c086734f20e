"""A log of kernel calls: what they were given, what ran, and how long it took.

>>> torch.backends.zendnn.kernel_logger.enable()
>>> model(x)
>>> torch.backends.zendnn.kernel_logger.disable()
>>> pathlib.Path("log.json").write_text(torch.backends.zendnn.kernel_logger.json())

``python -m torch.backends.zendnn replay log.json`` runs the calls again, on random data. The log
has no elements of tensors.
"""

from __future__ import annotations

import json as json_
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.backends.zendnn import _C
from torch.backends.zendnn.observe.calls import CallEvent, calls
from torch.backends.zendnn.observe.events import Event, Recording

__all__ = ["clear", "disable", "enable", "json"]

#: The format of logs; another version has another number.
FORMAT = "torch.backends.zendnn kernel log"
VERSION = 1

Json = dict[str, Any]

#: One for each time that the log was on, oldest first.
_recordings: list[Recording] = []
_enabled = False


def enable() -> None:
    """Log from now on, after what is in the log."""
    global _enabled
    if not _enabled:
        _recordings.append(Recording(ranges=True, arguments=True))
        _enabled = True


def disable() -> None:
    """Log no more; the log stays."""
    global _enabled
    if _enabled:
        _recordings[-1].stop()
        _enabled = False


def clear() -> None:
    """Empty the log."""
    if _enabled:
        _recordings[:-1] = []
        _recordings[-1].clear()
    else:
        _recordings.clear()


def json() -> str:
    """Return the log as a JSON object.

    ``calls`` lists the calls of kernels, ZenDNN's and torch's, in the order of their starts. A call
    is an object:

    - ``operator``: torch's name with the overload, or ``zendnn::`` and the name of a region;
    - ``operands``: for each tensor, its ``name``, ``shape``, ``strides`` (in elements) and
      ``dtype``; a list of tensors has ``list`` in the place of these three;
    - ``attributes``: all other arguments, by name;
    - ``route``: ``'plan'``, ``'eager'`` or ``'torch'``; ``implementation`` of ZenDNN; ``reason``
      why it ran on torch;
    - ``ms``: milliseconds;
    - ``steps``, of a region: its steps, as calls without attributes.

    A region's attributes are its description (docs/plan.md), numbers, and the types of its
    constants. What printing a tensor computes, views, and allocations are left out.
    """
    found = [entry for log in _recordings for call in calls(log) for entry in _entries(call)]
    head = {"format": FORMAT, "version": VERSION, "torch": torch.__version__, "zendnn": _version()}
    lines = ",\n  ".join(json_.dumps(entry) for entry in found)
    top = json_.dumps(head | {"cpu": _C._cpu()["name"], "threads": torch.get_num_threads()})
    return f'{top[:-1]}, "calls": [\n  {lines}\n]}}' if found else f'{top[:-1]}, "calls": []}}'


def _version() -> str:
    return str(_C._version())


def _entries(call: CallEvent) -> Iterator[Json]:
    """Yield what the log has of a call and of those that it made."""
    if call.is_preparation:
        return
    if call.is_region:
        yield _region_entry(call)
    elif call.is_kernel:
        yield _operator_entry(call)
    else:
        for child in call.children:
            yield from _entries(child)


def _outcome(call: CallEvent) -> Json:
    reported = call.reported
    return {
        "route": reported.route if reported else "torch",
        "implementation": reported.implementation if reported else "",
        "reason": reported.reason if reported else "an operator that ZenDNN lacks",
        "ms": call.event.ms,
    }


def _operator_entry(call: CallEvent) -> Json:
    name, _, overload = call.event.operator.partition(".")
    try:
        names = [x.name for x in torch._C._get_schema(name, overload).arguments]
    except RuntimeError:  # an event without a range
        names = []
    operands, attributes = [], {}
    for name, value in zip(names, call.event.arguments, strict=False):
        if isinstance(value, torch.Tensor):
            operands.append({"name": name, **_tensor(value)})
        elif isinstance(value, list) and any(isinstance(x, torch.Tensor) for x in value):
            operands.append({"name": name, "list": [x if x is None else _tensor(x) for x in value]})
        else:
            attributes[name] = _attribute(value)
    if not names:
        operands = _operands(call.event)
    return {
        "operator": call.event.operator,
        "operands": operands,
        "attributes": attributes,
        **_outcome(call),
    }


def _region_entry(call: CallEvent) -> Json:
    *inputs, numbers, constants, description = call.event.arguments
    return {
        "operator": call.event.operator,
        "operands": [{"name": f"input {i}", **_tensor(x)} for i, x in enumerate(inputs)],
        "attributes": {
            "numbers": list(numbers),
            "constants": [_tensor(x) for x in constants],
            "description": description,
        },
        "route": "plan",
        "implementation": "",
        "reason": "",
        "ms": call.event.ms,
        "steps": [
            {"operator": x.reported.operator, "operands": _operands(x.reported), **_outcome(x)}
            for x in call.children
            if x.reported
        ],
    }


def _operands(reported: Event) -> list[Json]:
    """Return the tensors that ZenDNN's own event has, which have no names."""
    return [
        _type(shape, strides, dtype)
        for shape, strides, dtype in zip(
            reported.shapes, reported.strides, reported.dtypes, strict=True
        )
    ]


def _tensor(tensor: torch.Tensor) -> Json:
    return _type(tensor.shape, tensor.stride(), tensor.dtype)


def _type(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> Json:
    name = str(dtype).removeprefix("torch.")
    return {"shape": list(shape), "strides": list(strides), "dtype": name}


def _attribute(value: Any) -> Any:
    """Return a value that JSON has; infinities and NaN as text, complex numbers, too."""
    if isinstance(value, list):
        return [_attribute(x) for x in value]
    if isinstance(value, float) and value not in (float("inf"), float("-inf")) and value == value:
        return value
    return value if isinstance(value, bool | int | str | None) else str(value)
