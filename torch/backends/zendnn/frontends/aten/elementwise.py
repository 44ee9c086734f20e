"""Arithmetic, powers, masks and choices."""

from __future__ import annotations

import math

import torch
from torch.backends.zendnn.frontends.aten import integers
from torch.backends.zendnn.frontends.aten.dtypes import engine_dtype
from torch.backends.zendnn.frontends.aten.mappings import mapped, same_tensor
from torch.backends.zendnn.frontends.calls import ANY, BOOL, Call, Refused
from torch.backends.zendnn.ir.node import Operand, Value
from torch.backends.zendnn.passes import _match


def scalar(call: Call, name: str) -> float | None:
    """Return a constant argument that is one number and no bool; None for others."""
    number = integers.constant_number(call, name)
    return None if number is None or isinstance(number, bool) else float(number)


def scaled(call: Call, x: Value, factor: float) -> Value:
    """Return a tensor times a number."""
    if factor == 1.0:
        return x
    return call.step("eltwise", [x], algorithm="affine", alpha=factor, beta=_match.NO_SHIFT)


def floating(call: Call, name: str, other: str) -> Value:
    """Return a tensor; integers and booleans become float32 if the other one surely is that."""
    x, y = (call.tensor(key, ANY) for key in (name, other))
    if x.is_integer and y.dtype == "float32":  # plans make no bfloat16 of integers
        return call.step("to", [x], dtype="float32")
    return call.tensor(name)


def binary(call: Call, *, algorithm: str, swapped: bool = False) -> None:
    """``self ∘ alpha·other``, or ``other ∘ alpha·self`` when swapped.

    A constant number makes it alpha·x + beta.
    """
    names = ("other", "self") if swapped else ("self", "other")
    alpha = call.real("alpha") if call.has("alpha") else 1.0
    left, right = (scalar(call, name) for name in names)
    if right is not None:
        x, number = names
        found = _match.as_affine(algorithm, alpha * right)
    elif left is not None:
        number, x = names
        found = _match.as_affine(algorithm, left, left=True)
        found = found and (alpha * found[0], found[1])
    else:
        a, b = floating(call, *names), floating(call, *names[::-1])
        # A number in a tensor takes the dtype of the other one.
        if _match.producer(b, "power") is not None:
            b = call.step("to_like", [b, a])
        elif _match.producer(a, "power") is not None:
            a = call.step("to_like", [a, b])
        call.result("binary", [a, scaled(call, b, alpha)], algorithm=algorithm)
        return
    if found is None or not all(map(_match.is_sound, found)):
        raise Refused(f"{number} is {scalar(call, number)}")
    tensor = call.tensor(x)
    # Of unknown sizes, torch's executor makes a number, too.
    if tensor.rank == 0 and integers.decides_dtype(call, number, tensor):
        raise Refused(f"{number} gives its dtype to the result")
    call.result("eltwise", [tensor], algorithm="affine", alpha=found[0], beta=found[1])


def arithmetic(call: Call, *, algorithm: str, swapped: bool = False) -> None:
    """``binary``, also of integers.

    Traced graphs compute sizes as tensors without dimensions.
    """
    names = ("other", "self") if swapped else ("self", "other")
    if call.are_numbers(*names):
        call.require("alpha", None, 1)
        call.result(f"number_{algorithm}", [call.number(name) for name in names])
    elif integers.are_integers(call, *names):
        call.require("alpha", None, 1)
        integers.arithmetic(call, algorithm=algorithm, names=names)
    else:
        binary(call, algorithm=algorithm, swapped=swapped)


def power(call: Call) -> None:
    """A power of a tensor, or of a size, such as the scale of attention: a float32 tensor."""
    exponent = call.python("exponent")
    if call.are_numbers("self") and isinstance(exponent, float):
        call.result("power", [call.number("self")], exponent=call.real("exponent"))
    elif exponent == 1:
        same_tensor(call, name="self")
    elif exponent == 3:  # spelled-out activations have it
        x = call.tensor("self")
        squared = call.step("eltwise", [x], algorithm="square", alpha=0.0, beta=0.0)
        call.result("binary", [squared, x], algorithm="mul")
    else:
        mapped(call)


def glu(call: Call) -> None:
    """The first half of a dimension times the sigmoid of the second."""
    dim = call.integer("dim")
    # Halves of an odd size would broadcast where torch raises an error.
    halves = call.step("unflatten", [call.tensor("self"), dim, 2, -1])
    a, b = (call.step("select", [halves, dim - (dim < 0), half]) for half in (0, 1))
    gate = call.step("eltwise", [b], algorithm="sigmoid", alpha=0.0, beta=0.0)
    call.result("binary", [a, gate], algorithm="mul")


def power_of_size(call: Call, name: str) -> Operand:
    """Return an argument that ``power`` made of a size."""
    power = call.operand_of(call.arguments[name])
    if _match.producer(power, "power") is None:
        raise Refused(f"{name} is not a power of a size")
    return power


def scalar_of(call: Call) -> None:
    """A number that was made into a tensor: of a size, or of a power of one."""
    call.identity(call.number("a") if call.are_numbers("a") else power_of_size(call, "a"))


def full(call: Call) -> None:
    """A tensor of one number; one without dimensions may hold the power of a size."""
    if _match.producer(call.operand_of(call.arguments["fill_value"]), "power") is None:
        integers.filled(call)
        return
    if call.numbers("size"):
        raise Refused("it makes more than one number")
    power = power_of_size(call, "fill_value")
    call.result("to", [power], dtype=engine_dtype(call, "dtype"))


def fill_value(number: float) -> float:
    """Return a number to fill with; torch raises an error where float32 has none so large."""
    if math.isfinite(number) and abs(number) > torch.finfo(torch.float32).max:
        raise Refused("a number is larger than any of float32")
    return number


def masked_fill(call: Call) -> None:
    """A number where a mask says so, the tensor elsewhere."""
    fill = scalar(call, "value")
    if fill is None:
        raise Refused("value is not a constant number")
    operands = [call.tensor("mask", BOOL), None, call.tensor("self")]
    call.result("where", operands, value=fill_value(fill), filled=True)


def where(call: Call) -> None:
    """One of two tensors, or a tensor or a constant number."""
    names = ("self", "other")
    numbers = [scalar(call, name) for name in names]
    if None not in numbers:
        raise Refused("both self and other are numbers")
    operands = [
        call.tensor(name) if number is None else None
        for name, number in zip(names, numbers, strict=True)
    ]
    for name, x in zip(names, operands[::-1], strict=True):
        if x is not None and integers.decides_dtype(call, name, x):
            raise Refused(f"{name} may give its dtype to the result")
    fill = next((number for number in numbers if number is not None), 0.0)
    call.result("where", [call.tensor("condition", BOOL), *operands], value=fill_value(fill))
