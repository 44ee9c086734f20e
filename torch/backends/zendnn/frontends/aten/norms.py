"""Normalisation and softmax."""

from __future__ import annotations

import math

import torch
from torch.backends.zendnn import _C
from torch.backends.zendnn.frontends.aten.dtypes import engine_dtype
from torch.backends.zendnn.frontends.aten.mappings import operands
from torch.backends.zendnn.frontends.calls import Call, Refused
from torch.backends.zendnn.ir.node import Operand
from torch.backends.zendnn.table.notation import Attribute


def normalized(call: Call) -> dict[str, Attribute]:
    """How many trailing dimensions are normalised, and their sizes if they are known."""
    sizes = call.numbers("normalized_shape")
    known = tuple(size for size in sizes if isinstance(size, int))
    return {"dims": len(sizes), **({"sizes": known} if len(known) == len(sizes) else {})}


def layer_norm(call: Call) -> None:
    """Normalise the trailing dimensions; there is no residual yet."""
    inputs = [*operands(call, "layer_norm", "input", "weight", "bias"), None]
    call.result("layer_norm", inputs, eps=call.real("eps"), **normalized(call))


def rms_norm(call: Call) -> None:
    """Divide the trailing dimensions by the root of their mean square."""
    if call.absent("eps") and not _C._has_one_default_eps():
        raise Refused("eps is not given, and depends on the dtype in this torch")
    eps = torch.finfo(torch.float32).eps if call.absent("eps") else call.real("eps")
    inputs = [*operands(call, "rms_norm", "input", "weight"), None, None]
    call.result("rms_norm", inputs, eps=eps, **normalized(call))


def instance_norm(call: Call) -> None:
    """Normalise each channel by its own statistics: a group norm, whose groups are channels."""
    call.require("use_input_stats", True)
    for name in ("running_mean", "running_var"):  # it would write them
        call.require(name, None)
    inputs = operands(call, "group_norm", "input", "weight", "bias")
    dims = call.tensor("input").dims or ()
    channels = dims[1] if len(dims) > 1 else None
    if not isinstance(channels, int):
        raise Refused("how many channels it has is not known")
    call.result("group_norm", inputs, eps=call.real("eps"), groups=channels)


def vector_norm(call: Call) -> None:
    """The Euclidean norm along dimensions, or of all elements."""
    call.require("ord", 2)
    call.require("dtype", None)
    plain: dict[str, Attribute] = {"alpha": 0.0, "beta": 0.0}
    squared = call.step("eltwise", [call.tensor("self")], algorithm="square", **plain)
    total = call.step("sum", [squared], **call.reduction())
    call.result("eltwise", [total], algorithm="sqrt", **plain)


def variance(call: Call, *, root: bool) -> None:
    """The variance along dimensions, or of all elements, or its root, which the deviation is."""
    x = call.tensor("self")
    if not x.dims:
        raise Refused("self is not known to have dimensions")
    dims = () if call.absent("dim") else call.integers("dim")
    sizes = [x.dims[dim] for dim in dims or range(len(x.dims))]
    known = [size for size in sizes if isinstance(size, int)]
    correction = call.python("correction" if call.has("correction") else "unbiased")
    divisor = math.prod(known) - (1 if correction is None else correction)
    if len(known) != len(sizes) or divisor <= 0:
        raise Refused("the number of elements is not known to be large enough")
    plain: dict[str, Attribute] = {"alpha": 0.0, "beta": 0.0}
    wide = x if x.dtype == "float32" else call.step("to", [x], dtype="float32")
    mean = call.step("mean", [wide], **{**call.reduction(), "keep": True})
    apart = call.step("binary", [wide, mean], algorithm="sub")
    squared = call.step("eltwise", [apart], algorithm="square", **plain)
    total = call.step("sum", [squared], **call.reduction())
    result = call.step("eltwise", [total], algorithm="affine", alpha=1 / divisor, beta=0.0)
    if root:
        result = call.step("eltwise", [result], algorithm="sqrt", **plain)
    call.identity(result if wide is x else call.step("to_like", [result, x]))


def softmax(call: Call, *, log: bool) -> None:
    """Softmax, of a converted tensor if a dtype is given."""
    x: Operand = call.tensor("self")
    if not call.absent("dtype"):
        x = call.step("to", [x], dtype=engine_dtype(call, "dtype"))
    call.result("softmax", [x], dim=call.integer("dim"), log=log)
