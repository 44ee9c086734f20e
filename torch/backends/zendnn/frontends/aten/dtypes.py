"""Conversions of dtypes and memory formats."""

from __future__ import annotations

import torch
from torch.backends.zendnn.frontends.calls import ANY, Call, Refused
from torch.backends.zendnn.table.dtypes import COMPUTED, CONVERTED, DTYPES, MADE, NAMES, RETURNED

#: torch's own numbers of these.
BOOL_NUMBER, INT64_NUMBER = DTYPES["bool"].number, DTYPES["int64"].number
#: The dtypes of what can be converted.
_CONVERTIBLE = ANY | {getattr(torch, name) for name in CONVERTED}


def engine_dtype(call: Call, name: str) -> str:
    """Return what the engine calls a dtype that a constant argument states."""
    result = MADE.get(call.python(name), "")
    if result not in COMPUTED:
        raise Refused(f"{name} is not {' or '.join(COMPUTED)}")
    return result


#: torch's own numbers of memory formats: of a tensor's own, and of the order of its dimensions.
PRESERVED = (None, 1)
CONTIGUOUS = 0


def convert(call: Call) -> None:
    """A conversion to a dtype that plans return, or of the memory format only."""
    call.require("layout", None, 0)
    call.require("pin_memory", None, False)
    call.require("memory_format", *PRESERVED, CONTIGUOUS)
    device, dtype = call.python("device"), call.python("dtype")
    if device is not None and torch.device(device).type != "cpu":
        raise Refused("device is not the CPU")
    if dtype not in (None, *RETURNED):
        raise Refused(f"dtype is {NAMES.get(dtype, 'unknown')}, which plans do not return")
    x = call.tensor("self", _CONVERTIBLE)
    if call.python("memory_format") == CONTIGUOUS:
        x = call.step("contiguous", [x])
    if dtype is None:
        call.identity(x)
    elif dtype == BOOL_NUMBER:
        call.result("nonzero", [x])
    else:
        call.result("to", [x], dtype=RETURNED[dtype])


def autocast(call: Call) -> None:
    """What autocast does to a floating tensor: to its own dtype, or back to float32."""
    if not call.python("cpu_enabled"):
        call.identity(call.tensor("self", ANY))
        return
    dtype = engine_dtype(call, "cpu_dtype") if call.has("cpu_dtype") else "float32"
    call.result("to", [call.tensor("self")], dtype=dtype, floating=True)
