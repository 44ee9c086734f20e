"""What masks and positions are computed with: comparisons, and integers.

Their dtypes must be known, since torch promotes them: an operator of two tensors is taken where
both have one dtype, and a number is what the other one holds.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.backends.zendnn.frontends.aten.dtypes import INT64_NUMBER
from torch.backends.zendnn.frontends.aten.mappings import mapped
from torch.backends.zendnn.frontends.calls import BOOL, FLOATING, Call, Dtypes, Refused, words
from torch.backends.zendnn.ir.node import Operand, Value
from torch.backends.zendnn.table.dtypes import MADE

INT64: Dtypes = frozenset({torch.int64})
_WHOLE = INT64 | BOOL
_COMPARED = _WHOLE | FLOATING


def are_integers(call: Call, *names: str) -> bool:
    """Whether one of the arguments is surely a tensor of int64, and none of another dtype."""
    arguments = [call.operand_of(call.arguments[name]) for name in names]
    tensors = [x for x in arguments if isinstance(x, Value) and x.kind == "tensor"]
    return any(x.dtype == "int64" for x in tensors) and all(x.is_integer for x in tensors)


def constant_number(call: Call, name: str) -> int | float | None:
    """Return a constant argument that is one number, also in a tensor without dimensions.

    torch's executor makes numbers of such tensors, too; ``decides_dtype`` says when their dtype
    matters. A bool is an int here. None stands for what is no number.
    """
    constant = call.constant(name)
    if isinstance(constant, torch.Tensor) and constant.layout == torch.strided:
        constant = None if constant.dim() else constant.item()
    return constant if isinstance(constant, int | float) else None


def decides_dtype(call: Call, name: str, x: Value) -> bool:
    """Whether a constant number, in a tensor, gives its dtype to what is computed of it and x.

    It does if x has no dimensions, either. If their number is unknown, it may.
    """
    constant = call.constant(name)
    if x.rank or not isinstance(constant, torch.Tensor) or not constant.is_floating_point():
        return False
    dtype = getattr(torch, x.dtype or "", torch.float32)
    return torch.promote_types(dtype, constant.dtype) != dtype


def _pair(call: Call, names: Iterable[str], dtypes: Dtypes) -> list[Operand]:
    """Return two arguments as tensors of one of these dtypes."""
    first, second = names
    numbers = [constant_number(call, x) is not None or call.are_numbers(x) for x in (first, second)]
    if all(numbers):
        raise Refused("both are numbers")
    if numbers[0]:
        return _pair(call, (second, first), dtypes)[::-1]
    x = known(call, first, dtypes)
    return [x, like(call, second, x, dtypes)]


def known(call: Call, name: str, dtypes: Dtypes) -> Value:
    """Return a tensor whose dtype is known."""
    x = call.tensor(name, dtypes)
    if getattr(torch, x.dtype or "", None) not in dtypes:
        raise Refused(f"{name} is not surely {words(dtypes)}")
    return x


def like(call: Call, name: str, x: Value, dtypes: Dtypes) -> Value:
    """Return an argument as a tensor of the dtype of another one."""
    number = constant_number(call, name)
    if number is None and not call.are_numbers(name):
        y = known(call, name, dtypes)
        if y.dtype != x.dtype:
            raise Refused(f"{name} is {y.dtype} and not {x.dtype}")
        return y
    if decides_dtype(call, name, x):
        raise Refused(f"{name} may give its dtype to what is compared")
    whole = x.dtype == "int64"
    if number is None and whole:
        return call.step("scalar", [call.number(name)])
    promoted = isinstance(number, bool) if x.dtype != "bool" else not isinstance(number, bool)
    if number is None or promoted or (whole and isinstance(number, float)):
        raise Refused(f"{name} is a number that {x.dtype} does not hold")
    if whole and not -(2**63) <= number < 2**63:
        raise Refused(f"{name} is {number}")
    return call.graph.constant(torch.tensor(number, dtype=getattr(torch, str(x.dtype))))


def compare(call: Call, *, algorithm: str) -> None:
    """A comparison of two tensors of one dtype, or of a tensor and a number."""
    call.result("compare", _pair(call, ("self", "other"), _COMPARED), algorithm=algorithm)


def arithmetic(
    call: Call, *, algorithm: str, names: Iterable[str] = ("self", "other"), dtypes: Dtypes = INT64
) -> None:
    """A sum, difference or product of integers."""
    call.result("integer", _pair(call, names, dtypes), algorithm=algorithm)


def bitwise(call: Call, *, algorithm: str) -> None:
    """Logic of the bits of two integers, or of booleans."""
    arithmetic(call, algorithm=algorithm, dtypes=_WHOLE)


def logical(call: Call, *, algorithm: str) -> None:
    """Logic of booleans."""
    arithmetic(call, algorithm=algorithm, dtypes=BOOL)


def negate(call: Call) -> None:
    """The negation of booleans."""
    x = known(call, "self", BOOL)
    call.result("integer", [x, call.graph.constant(torch.tensor(True))], algorithm="xor")


def cumsum(call: Call) -> None:
    """A running sum, of int64 if it is one of integers or booleans."""
    x = known(call, "self", _WHOLE | {torch.float32})
    result_dtype = "int64" if x.is_integer else "float32"
    dtype = call.python("dtype")
    if dtype is not None and MADE.get(dtype) != result_dtype:
        raise Refused("dtype is another one")
    call.result("cumsum", [x], dim=call.integer("dim"), dtype=result_dtype)


def total(call: Call) -> None:
    """A sum, of int64 if it is one of integers or booleans."""
    x = call.operand_of(call.arguments["self"])
    if not (isinstance(x, Value) and x.is_integer):
        mapped(call)
        return
    call.require("dtype", None, INT64_NUMBER)
    call.result("sum", [known(call, "self", _WHOLE)], **call.reduction(), dtype="int64")


def arange(call: Call) -> None:
    """Whole numbers in order."""
    call.require("dtype", None, INT64_NUMBER)
    defaults = {"start": 0, "end": 0, "step": 1}
    arguments = [call.number(name) if call.has(name) else n for name, n in defaults.items()]
    call.result("arange", arguments)


def filled(call: Call, *, value: float | None = None) -> None:
    """A tensor of one constant number."""
    number = constant_number(call, "fill_value") if value is None else value
    if number is None:
        raise Refused("fill_value is not a constant number")
    dtype = MADE.get(call.python("dtype"))
    if dtype is None:
        raise Refused("dtype is not stated as float32, bfloat16, int64 or bool")
    held = torch.tensor(number, dtype=torch.float32).item()
    if dtype == "int64" and held != number:
        raise Refused(f"fill_value is {number}")
    call.result("full", call.numbers("size"), value=held, dtype=dtype)
