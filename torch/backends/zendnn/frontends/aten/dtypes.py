"""Conversions of dtypes and memory formats."""

from __future__ import annotations

import torch
from torch.backends.zendnn.frontends.calls import ANY, Call, Refused

#: torch's own numbers of the engine's dtypes.
DTYPES = {6: "float32", 15: "bfloat16"}
BOOL_NUMBER = 11


def engine_dtype(call: Call, name: str) -> str:
    """Return what the engine calls a dtype that a constant argument states."""
    number_ = call.python(name)
    if number_ not in DTYPES:
        raise Refused(f"{name} is not float32 or bfloat16")
    return DTYPES[number_]


#: torch's own numbers of memory formats: of a tensor's own, and of the order of its dimensions.
PRESERVED = (None, 1)
CONTIGUOUS = 0


def require_cpu(call: Call) -> None:
    """Refuse a conversion to another device."""
    device = call.python("device") if call.has("device") else None
    if device is not None and torch.device(device).type != "cpu":
        raise Refused("device is not the CPU")


def to_dtype(call: Call) -> None:
    """A conversion between the engine's dtypes, or to the truth of numbers."""
    number_ = call.python("dtype")
    if number_ not in DTYPES and number_ != BOOL_NUMBER:
        raise Refused("dtype is not float32, bfloat16 or bool")
    require_cpu(call)
    call.require("memory_format", *PRESERVED)
    if number_ == BOOL_NUMBER:
        call.result("nonzero", [call.tensor("self", ANY)])
    else:
        call.result("to", [call.tensor("self", ANY)], dtype=DTYPES[number_])


def to_layout(call: Call) -> None:
    """A conversion, or none, to a dtype and to the order of dimensions."""
    call.require("layout", None, 0)
    call.require("pin_memory", None, False)
    call.require("memory_format", *PRESERVED, CONTIGUOUS)
    require_cpu(call)
    x = call.tensor("self", ANY)
    if call.python("memory_format") == CONTIGUOUS:
        x = call.step("contiguous", [x])
    if call.absent("dtype"):
        call.identity(x)
    else:
        call.result("to", [x], dtype=engine_dtype(call, "dtype"))


def autocast(call: Call, *, dtype: str | None) -> None:
    """What autocast does to a floating tensor: to its own dtype, or back to float32."""
    if not call.python("cpu_enabled"):
        call.identity(call.tensor("self", ANY))
        return
    wanted = dtype or engine_dtype(call, "cpu_dtype")
    call.result("to", [call.tensor("self")], dtype=wanted, floating=True)
