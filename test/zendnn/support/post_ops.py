"""Layers that take post-ops."""

from __future__ import annotations

import torch
from torch.backends.zendnn.ir.node import Value

from .graphs import Builder
from .plans import tensor
from .samples import convolved

PRODUCERS = ("convolution", "transposed", "linear", "matmul", "binary")


def producer(b: Builder, op: str, dtype: torch.dtype) -> Value:
    """The result, of size (3, 17, 6, 8), of an operator that accepts post-ops."""
    if op == "convolution":
        x = b.input(tensor(3, 8, 6, 8, dtype=dtype))
        return convolved(b, x, 8, 17, 3)
    if op == "transposed":
        x = b.input(tensor(3, 8, 3, 4, dtype=dtype))
        weight, bias = b.constant(8, 17, 2, 2), b.constant(17)
        more = {"transposed": True, "output_padding": (0, 0), "stride": (2, 2)}
        return b.convolution(x, weight, bias, **more)
    if op == "linear":
        return b.linear(b.input(tensor(3, 17, 6, 5, dtype=dtype)), 8, 5)
    x, y = (b.input(tensor(*shape, dtype=dtype)) for shape in ((3, 17, 6, 5), (17, 5, 8)))
    if op == "matmul":
        return b("matmul", x, y)
    return b.binary(
        "mul", b.input(tensor(3, 17, 6, 8, dtype=dtype)), b.input(tensor(8, dtype=dtype))
    )
