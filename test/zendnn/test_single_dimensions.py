"""Concatenations of results and operands with a dimension of size 1, whose stride has no meaning.

A primitive that takes such strides for those of another layout writes out of place.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .common import LAYOUTS, PRIMITIVE_DTYPES, stock
from .support.frozen import optimised

Make = Callable[[Tensor, Tensor], Tensor]

pytestmark = pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "error:ZenDNN")


class Made(nn.Module):
    """An operator's result concatenated with another tensor, along each dimension that fits."""

    def __init__(self, make: Callable[[Tensor], Tensor], weights: list[Tensor], first: bool):
        super().__init__()
        self.make, self.first = make, first
        self.weights = nn.ParameterList(weights)

    def forward(self, x: Tensor) -> list[Tensor]:
        result = self.make(x, *self.weights)
        joined = []
        for dim in range(result.dim()):
            other = F.relu(result + 1)
            joined.append(torch.cat([result, other] if self.first else [other, result], dim))
            joined.append(torch.cat([other, result * 2, other], dim))
        return joined


#: The sizes of the input and of the weights, and the operator.
OPERATORS: dict[str, tuple[tuple[int, ...], list[tuple[int, ...]], Callable[..., Tensor]]] = {
    "linear to one": ((6, 5), [(1, 5)], F.linear),
    "linear of one": ((6, 1), [(4, 1)], F.linear),
    "linear of a row": ((1, 5), [(3, 5)], F.linear),
    "linear of one number": ((1, 1), [(1, 1)], F.linear),
    "linear in batches": ((2, 1, 3, 7), [(1, 7)], F.linear),
    "matmul to one": ((6, 5), [], lambda x: x @ x[:1].t()),
    "matmul of one": ((6, 1), [], lambda x: x @ x.t()),
    "matmul of a row": ((1, 6), [], lambda x: x @ x.t()),
    "matmul in batches": ((3, 4, 5), [], lambda x: x @ x[:, :1].transpose(1, 2)),
    "matmul of a row in batches": ((3, 1, 5), [], lambda x: x @ x.transpose(1, 2)),
    "convolution to one channel": ((2, 3, 6, 5), [(1, 3, 3, 3)], F.conv2d),
    "convolution of one channel": ((2, 1, 6, 5), [(4, 1, 3, 3)], F.conv2d),
    "convolution of a row": ((2, 3, 1, 5), [(4, 3, 1, 1)], F.conv2d),
    "convolution to a column": ((2, 16, 6, 1), [(16, 16, 1, 1)], F.conv2d),
    "convolution to a point": ((3, 16, 3, 3), [(16, 16, 3, 3)], F.conv2d),
    "convolution in one dimension": ((2, 3, 7), [(1, 3, 3)], F.conv1d),
    "transposed convolution": ((2, 3, 4, 1), [(3, 1, 2, 2)], F.conv_transpose2d),
    "depthwise convolution": ((1, 1, 6, 5), [(1, 1, 3, 3)], F.conv2d),
    "max pooling of one channel": ((2, 1, 6, 5), [], lambda x: F.max_pool2d(x, 2)),
    "max pooling to a point": ((2, 16, 4, 4), [], lambda x: F.max_pool2d(x, 4)),
    "average pooling of one channel": ((2, 1, 6, 5), [], lambda x: F.avg_pool2d(x, 2)),
    "average pooling to a point": ((2, 16, 4, 4), [], lambda x: F.adaptive_avg_pool2d(x, 1)),
    "layer norm of one": ((6, 1), [(1,), (1,)], lambda x, w, b: F.layer_norm(x, (1,), w, b)),
    "layer norm of a row": ((1, 6), [(6,), (6,)], lambda x, w, b: F.layer_norm(x, (6,), w, b)),
    "softmax of one": ((6, 1), [], lambda x: F.softmax(x, -1)),
    "softmax over a row": ((1, 6), [], lambda x: F.softmax(x, 0)),
    "group norm of one channel": ((2, 1, 5), [], lambda x: F.group_norm(x, 1)),
    "mean to one": ((6, 5), [], lambda x: x.mean(-1, keepdim=True)),
    "sigmoid of a column": ((6, 1), [], torch.sigmoid),
    "sum of a column and a row": ((6, 1), [], lambda x: x + x[:1]),
    "select": ((6, 4), [], lambda x: x[:, 1:2] * 2),
    "embedding of one number": (
        (6, 4),
        [(9, 1)],
        lambda x, table: F.embedding((x.abs() * 2).long().clamp(0, 8), table),
    ),
    "attention of one head": (
        (2, 1, 5, 8),
        [],
        lambda x: F.scaled_dot_product_attention(x, x, x),
    ),
    "attention of one query": (
        (2, 3, 5, 8),
        [],
        lambda x: F.scaled_dot_product_attention(x[:, :, :1], x, x),
    ),
    "attention of one number": (
        (2, 3, 5, 1),
        [],
        lambda x: F.scaled_dot_product_attention(x, x, x),
    ),
    "interpolation of one channel": (
        (2, 1, 3, 4),
        [],
        lambda x: F.interpolate(x, scale_factor=2),
    ),
    "bilinear interpolation of a column": (
        (2, 3, 4, 1),
        [],
        lambda x: F.interpolate(x, (7, 1), mode="bilinear", align_corners=True),
    ),
    "bilinear interpolation of a row": (
        (2, 3, 1, 4),
        [],
        lambda x: F.interpolate(x, (1, 7), mode="bilinear"),
    ),
}


def with_odd_strides(x: Tensor) -> Tensor:
    """The same numbers, with strides in dimensions of size 1 that no layout has."""
    strides = [7 if size == 1 else step for size, step in zip(x.shape, x.stride(), strict=True)]
    return x.as_strided(x.shape, strides)


def with_gaps(x: Tensor) -> Tensor:
    """The same numbers as a slice of a larger tensor with NaN around it."""
    whole = torch.full((*x.shape[:-1], x.shape[-1] + 3), torch.nan, dtype=x.dtype)
    part = whole[..., 1:-2]
    return part.copy_(x)


def with_last_dimension_first(x: Tensor) -> Tensor:
    """The same numbers, stored with the order of dimensions reversed."""
    order = tuple(reversed(range(x.dim())))
    return x.permute(order).contiguous().permute(order)


ARRANGEMENTS = (
    LAYOUTS["contiguous"],
    LAYOUTS["strided"],
    with_odd_strides,
    with_gaps,
    with_last_dimension_first,
)


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
@pytest.mark.parametrize("name", OPERATORS)
def test_concatenations_are_right(name: str, first: bool, dtype: torch.dtype) -> None:
    sizes, weights, make = OPERATORS[name]
    torch.manual_seed(0)
    # The scale is that of models: sums are about 1, and rounding errors relative to that.
    scaled = [torch.randn(size) / math.prod(size[1:]) ** 0.5 for size in weights]
    net = Made(make, [weight.to(dtype) for weight in scaled], first).eval()
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 5e-2}[dtype]
    with torch.no_grad():
        x = torch.randn(sizes).to(dtype)
        module = optimised(torch.jit.trace(net, x, check_trace=False))
        for arrange in ARRANGEMENTS:
            x = arrange(torch.randn(sizes).to(dtype))
            results = module(x)
            with stock():
                wanted = net(x)
            for got, right in zip(results, wanted, strict=True):
                assert got.stride() == right.stride(), arrange
                torch.testing.assert_close(got, right, rtol=tolerance, atol=tolerance)
