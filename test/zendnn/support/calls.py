"""Calls that front ends import, and those that they refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.backends.zendnn.frontends import torchscript
from torch.backends.zendnn.table.functions import FUNCTIONS
from torch.backends.zendnn.table.operators import OPERATORS

IMAGE = torch.randn(2, 3, 8, 9)


ROWS = torch.randn(4, 6)


BATCH = torch.randn(2, 4, 6)


HEADS = torch.randn(2, 3, 5, 4)


POSITIVE = torch.rand(4, 6) + 0.1


IDS = torch.tensor([[3, 1, 0], [2, 2, 4]])


BAG = torch.tensor([3, 1, 0, 2, 2, 4])


OFFSETS = torch.tensor([0, 2, 5])


MATRIX = torch.randn(5, 6)


PARTED = torch.randn(6, 3, 2)


VECTOR = torch.randn(5)


SIX = torch.randn(6)


MEAN, BIAS = torch.randn(2, 3)


TABLE, PLACES = torch.randn(5, 8), torch.randn(9, 8)


FIRST, SECOND = torch.tensor([1, 2, 2]), torch.tensor([0, 0, 1])


def traced(function: Callable[..., Any], *inputs: Any) -> Any:
    """The graph of a traced function, without types, as in a frozen module."""
    graph = torch.jit.trace(function, inputs, check_trace=False).graph
    torch._C._jit_pass_erase_shape_information(graph)
    torchscript.simplify(graph)
    return graph


def eltwise(algorithm: str, alpha: float = 0.0, beta: float = 0.0) -> str:
    """The line of one elementwise function."""
    return f"r0 = eltwise(x) algorithm={algorithm} alpha={alpha!r} beta={beta!r}"


CONV = "dilation=1,1 groups=1 padding=0,0 stride=1,1"


KERNEL = torch.randn(4, 3, 3, 3)


EVEN_KERNEL = torch.randn(4, 3, 2, 4)


def reductions() -> Iterator[tuple[str, tuple[Callable[..., Any], Sequence[Tensor], str]]]:
    """Each mapping of each operator whose attributes are dimensions and whether they stay."""
    for row in OPERATORS.values():
        for mapping in row.mappings if [*row.attributes] == ["dims", "keep"] else ():
            arguments = mapping.arguments_for({"x": None, "dims": 1, "keep": True})
            del arguments["self"]
            name, _, overload = mapping.name.removeprefix("aten::").partition(".")
            call = getattr(getattr(torch.ops.aten, name), overload or "default")
            attributes = " dims=1 keep=1" if arguments else ""
            yield (
                mapping.name,
                (
                    lambda x, call=call, arguments=arguments: call(x, **arguments),
                    [ROWS],
                    f"r0 = {row.name}(x){attributes}",
                ),
            )


IMPORTED: dict[str, tuple[Callable[..., Any], Sequence[Tensor], str]] = {
    "conv1d": (
        lambda x: F.conv1d(x, torch.ones(2, 4, 3), stride=2),
        [BATCH],
        "r0 = convolution(x, c0, none) dilation=1 groups=1 padding=0 stride=2",
    ),
    "conv2d": (lambda x: F.conv2d(x, KERNEL), [IMAGE], f"r0 = convolution(x, c0, none) {CONV}"),
    "conv2d with a bias": (
        lambda x: F.conv2d(x, KERNEL, torch.ones(4), 2, 1),
        [IMAGE],
        "r0 = convolution(x, c0, c1) dilation=1,1 groups=1 padding=1,1 stride=2,2",
    ),
    "conv2d same": (
        lambda x: F.conv2d(x, EVEN_KERNEL, padding="same"),
        [IMAGE],
        "r0 = convolution(x, c0, none) dilation=1,1 groups=1 "
        "padding=0,1 padding_end=1,2 stride=1,1",
    ),
    "conv2d valid": (
        lambda x: F.conv2d(x, KERNEL, padding="valid"),
        [IMAGE],
        f"r0 = convolution(x, c0, none) {CONV}",
    ),
    "conv3d in groups": (
        lambda x: F.conv3d(x[None], torch.ones(4, 1, 1, 3, 3), groups=2, dilation=(1, 2, 2)),
        [IMAGE],
        "r0 = unsqueeze(x, 0)\n"
        "r1 = convolution(r0, c0, none) dilation=1,2,2 groups=2 padding=0,0,0 stride=1,1,1",
    ),
    "conv_transpose2d": (
        lambda x: F.conv_transpose2d(x, torch.ones(3, 2, 3, 3), stride=2, output_padding=1),
        [IMAGE],
        "r0 = convolution(x, c0, none) dilation=1,1 groups=1 output_padding=1,1 padding=0,0 "
        "stride=2,2 transposed=1",
    ),
    "linear": (lambda x: F.linear(x, MATRIX, VECTOR), [ROWS], "r0 = linear(x, c0, c1)"),
    "linear without a bias": (lambda x: F.linear(x, MATRIX), [ROWS], "r0 = linear(x, c0, none)"),
    "addmm": (lambda x: torch.addmm(VECTOR, x, MATRIX.t()), [ROWS], "r0 = linear(x, c0, c1)"),
    "addmm of two tensors": (
        lambda x, y: torch.addmm(VECTOR, x, y),
        [ROWS, torch.randn(6, 5)],
        "r0 = matmul(x, y)\nr1 = binary(r0, c0) algorithm=add",
    ),
    "matmul with a constant": (
        lambda x: x @ MATRIX.t(),
        [BATCH],
        "r0 = linear(x, c0, none)",
    ),
    "matmul": (lambda x, y: x @ y, [BATCH, torch.randn(6, 2)], "r0 = matmul(x, y)"),
    "mm": (lambda x, y: torch.mm(x, y), [ROWS, torch.randn(6, 2)], "r0 = matmul(x, y)"),
    "bmm": (lambda x: torch.bmm(x, x.mT), [BATCH], "r0 = transpose(x, -2, -1)\nr1 = matmul(x, r0)"),
    "baddbmm": (
        lambda x, y, z: torch.baddbmm(x, y, z),
        [torch.randn(2, 4, 4), BATCH, torch.randn(2, 6, 4)],
        "r0 = matmul(y, z)\nr1 = binary(r0, x) algorithm=add",
    ),
    "baddbmm with factors": (
        lambda x, y, z: torch.baddbmm(x, y, z, beta=0.5, alpha=0.25),
        [torch.randn(2, 4, 4), BATCH, torch.randn(2, 6, 4)],
        "r0 = matmul(y, z)\nr1 = eltwise(r0) algorithm=affine alpha=0.25 beta=-0.0\n"
        "r2 = eltwise(x) algorithm=affine alpha=0.5 beta=-0.0\nr3 = binary(r1, r2) algorithm=add",
    ),
    "relu": (F.relu, [ROWS], eltwise("relu")),
    "relu_ of a result": (
        lambda x: F.relu_(x.neg()),
        [ROWS],
        "r0 = eltwise(x) algorithm=affine alpha=-1.0 beta=-0.0\n"
        "r1 = eltwise(r0) algorithm=relu alpha=0.0 beta=0.0",
    ),
    "relu6": (F.relu6, [ROWS], eltwise("clip", 0.0, 6.0)),
    "hardtanh": (lambda x: F.hardtanh(x, -2, 0.5), [ROWS], eltwise("clip", -2.0, 0.5)),
    "clamp": (lambda x: x.clamp(0, 1), [ROWS], eltwise("clip", 0.0, 1.0)),
    "clamp from below": (lambda x: x.clamp(min=0.1), [ROWS], eltwise("clip", 0.1, float("inf"))),
    "clamp_min": (lambda x: x.clamp_min(0.1), [ROWS], eltwise("clip", 0.1, float("inf"))),
    "clamp_max": (lambda x: x.clamp_max(0.1), [ROWS], eltwise("clip", float("-inf"), 0.1)),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.2), [ROWS], eltwise("leaky_relu", 0.2)),
    "gelu": (F.gelu, [ROWS], eltwise("gelu")),
    "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), [ROWS], eltwise("gelu_tanh")),
    "elu": (lambda x: F.elu(x, 0.5), [ROWS], eltwise("elu", 0.5)),
    "square": (lambda x: x**2, [ROWS], eltwise("square")),
    "cube": (
        lambda x: x**3.0,
        [ROWS],
        eltwise("square") + "\nr1 = binary(r0, x) algorithm=mul",
    ),
    "root": (lambda x: x**0.5, [POSITIVE], eltwise("sqrt")),
    **{
        name: (lambda x, name=name: getattr(torch.ops.aten, name)(x), [POSITIVE], eltwise(name))
        for name, function in FUNCTIONS.items()
        if function.aten == (f"aten::{name}(self)",)
    },
    **{name: (getattr(torch, name), [POSITIVE], eltwise(name)) for name in ("rsqrt",)},
    **{
        name: (getattr(F, name), [ROWS], eltwise(name))
        for name in ("silu", "hardswish", "hardsigmoid", "mish")
    },
    "add": (lambda x, y: x + y, [ROWS, SIX], "r0 = binary(x, y) algorithm=add"),
    "add a constant tensor": (lambda x: x + SIX, [ROWS], "r0 = binary(x, c0) algorithm=add"),
    "add a multiple": (
        lambda x, y: torch.add(x, y, alpha=2),
        [ROWS, SIX],
        "r0 = eltwise(y) algorithm=affine alpha=2.0 beta=-0.0\nr1 = binary(x, r0) algorithm=add",
    ),
    "add a number": (lambda x: x + 2, [ROWS], eltwise("affine", 1.0, 2.0)),
    "add a number tensor": (
        lambda x: x + torch.tensor(2.0, dtype=torch.float64),
        [ROWS],
        eltwise("affine", 1.0, 2.0),
    ),
    "subtract a number": (lambda x: x - 2, [ROWS], eltwise("affine", 1.0, -2.0)),
    "subtract from a number": (lambda x: 1.5 - x, [ROWS], eltwise("affine", -1.0, 1.5)),
    "subtract from a number tensor": (
        lambda x: torch.tensor(1.5) - x,
        [ROWS],
        eltwise("affine", -1.0, 1.5),
    ),
    "rsub": (
        lambda x, y: torch.rsub(x, y, alpha=3),
        [ROWS, SIX],
        "r0 = eltwise(x) algorithm=affine alpha=3.0 beta=-0.0\nr1 = binary(y, r0) algorithm=sub",
    ),
    "multiply": (lambda x, y: x * y, [ROWS, SIX], "r0 = binary(x, y) algorithm=mul"),
    "multiply by a number": (lambda x: x * 0.5, [ROWS], eltwise("affine", 0.5, -0.0)),
    "divide": (lambda x, y: x / y, [ROWS, POSITIVE], "r0 = binary(x, y) algorithm=div"),
    "divide by a number": (lambda x: x / 4, [ROWS], eltwise("affine", 0.25, -0.0)),
    "maximum": (torch.maximum, [ROWS, SIX], "r0 = binary(x, y) algorithm=max"),
    "minimum": (torch.min, [ROWS, SIX], "r0 = binary(x, y) algorithm=min"),
    "softmax": (lambda x: x.softmax(-1), [ROWS], "r0 = softmax(x) dim=-1 log=0"),
    "softmax in another type": (
        lambda x: x.softmax(-1, dtype=torch.float32),
        [ROWS],
        "r0 = to(x) dtype=float32\nr1 = softmax(r0) dim=-1 log=0",
    ),
    "masked_fill": (
        lambda x: x.masked_fill(SIX > 0, float("-inf")),
        [ROWS],
        "r0 = where(c0, none, x) filled=1 value=-inf",
    ),
    "masked_fill with a number tensor": (
        lambda x, y: x.masked_fill(y, torch.tensor(2.0)),
        [ROWS, SIX > 0],
        "r0 = where(y, none, x) filled=1 value=2.0",
    ),
    "where": (
        lambda x, y, z: torch.where(z, x, y),
        [ROWS, SIX, SIX > 0],
        "r0 = where(z, x, y) value=0.0",
    ),
    "where or a number": (
        lambda x, y: torch.where(y, x, -1.0) * torch.where(y, 2.0, x),
        [ROWS, SIX > 0],
        "r0 = where(y, x, none) value=-1.0\nr1 = where(y, none, x) value=2.0\n"
        "r2 = binary(r0, r1) algorithm=mul",
    ),
    "expand_as": (
        lambda x, y: x.expand_as(y) * y,
        [SIX, ROWS],
        "r0 = expand_as(x, y)\nr1 = binary(r0, y) algorithm=mul",
    ),
    "log_softmax": (lambda x: x.log_softmax(1), [ROWS], "r0 = softmax(x) dim=1 log=1"),
    "layer_norm": (
        lambda x: F.layer_norm(x, (6,), SIX, None, 1e-3),
        [BATCH],
        "r0 = layer_norm(x, c0, none, none) dims=1 eps=0.001 sizes=6",
    ),
    "rms_norm": (
        lambda x: F.rms_norm(x, (6,), SIX, 1e-3),
        [BATCH],
        "r0 = rms_norm(x, c0, none, none) dims=1 eps=0.001 sizes=6",
    ),
    "rms_norm without eps": (
        lambda x: F.rms_norm(x, (4, 6)),
        [BATCH],
        "r0 = rms_norm(x, none, none, none) dims=2 eps=1.1920928955078125e-07 sizes=4,6",
    ),
    "group_norm": (
        lambda x: F.group_norm(x, 3, MEAN, None, 1e-3),
        [IMAGE],
        "r0 = group_norm(x, c0, none) eps=0.001 groups=3",
    ),
    "upsample by factors": (
        lambda x: F.interpolate(x, scale_factor=(2.0, 1.5)),
        [IMAGE],
        "r0 = resample(x, none, none) algorithm=nearest align_corners=0 scale_height=2.0 "
        "scale_width=1.5",
    ),
    "upsample to a size": (
        lambda x: F.interpolate(x, (x.size(2) * 2, 5), mode="bilinear", align_corners=True),
        [IMAGE],
        "r0 = size(x, 2)\nr1 = number_mul(r0, 2)\n"
        "r2 = resample(x, r1, 5) algorithm=linear align_corners=1 scale_height=0.0 scale_width=0.0",
    ),
    "upsample by one factor": (
        lambda x: torch.ops.aten.upsample_nearest2d(x, [16, 9], 2.0, None),
        [IMAGE],
        "r0 = resample(x, 16, 9) algorithm=nearest align_corners=0 scale_height=2.0 "
        "scale_width=0.0",
    ),
    "batch_norm": (
        lambda x: F.batch_norm(x, MEAN, torch.ones(3), None, BIAS),
        [IMAGE],
        "r0 = batch_norm(x, none, c0, c1, c2) eps=1e-05",
    ),
    "a norm along a dimension": (
        lambda x: torch.linalg.vector_norm(x, dim=-1, keepdim=True),
        [BATCH],
        "r0 = eltwise(x) algorithm=square alpha=0.0 beta=0.0\nr1 = sum(r0) dims=-1 keep=1\n"
        "r2 = eltwise(r1) algorithm=sqrt alpha=0.0 beta=0.0",
    ),
    "a norm of everything": (
        lambda x: torch.linalg.vector_norm(x),
        [BATCH],
        "r0 = eltwise(x) algorithm=square alpha=0.0 beta=0.0\nr1 = sum(r0) keep=0\n"
        "r2 = eltwise(r1) algorithm=sqrt alpha=0.0 beta=0.0",
    ),
    "glu": (
        lambda x: F.glu(x),
        [BATCH],
        "r0 = unflatten(x, -1, 2, -1)\nr1 = select(r0, -2, 0)\nr2 = select(r0, -2, 1)\n"
        "r3 = eltwise(r2) algorithm=sigmoid alpha=0.0 beta=0.0\nr4 = binary(r1, r3) algorithm=mul",
    ),
    "glu of channels": (
        lambda x: F.glu(x, 1),
        [BATCH],
        "r0 = unflatten(x, 1, 2, -1)\nr1 = select(r0, 1, 0)\nr2 = select(r0, 1, 1)\n"
        "r3 = eltwise(r2) algorithm=sigmoid alpha=0.0 beta=0.0\nr4 = binary(r1, r3) algorithm=mul",
    ),
    "mean from the end": (lambda x: x.mean((-1, -2)), [BATCH], "r0 = mean(x) dims=-1,-2 keep=0"),
    "mean over dimensions that are apart": (
        lambda x: x.mean((0, 2)),
        [BATCH],
        "r0 = mean(x) dims=0,2 keep=0",
    ),
    "mean over everything": (lambda x: x.mean(), [BATCH], "r0 = mean(x)"),
    "sum": (lambda x: x.sum((0, -1), True), [BATCH], "r0 = sum(x) dims=0,-1 keep=1"),
    "sum over everything": (lambda x: x.sum(), [BATCH], "r0 = sum(x)"),
    "argmax": (lambda x: x.argmax(-1), [BATCH], "r0 = argmax(x) dims=-1 keep=0"),
    "argmax of everything": (lambda x: x.argmax(), [BATCH], "r0 = argmax(x) keep=0"),
    "triu": (lambda x: x.triu(1), [BATCH], "r0 = triu(x) diagonal=1"),
    "tril": (lambda x: x.tril(-1), [BATCH], "r0 = tril(x) diagonal=-1"),
    "linear1d": (
        lambda x: F.interpolate(x, 9, mode="linear", align_corners=True),
        [BATCH],
        "r0 = resample(x, none, 9) algorithm=linear align_corners=1 scale_height=0.0 "
        "scale_width=0.0",
    ),
    "bicubic": (
        lambda x: F.interpolate(x.view(1, 2, 4, 6), (3, 9), mode="bicubic"),
        [BATCH],
        "r0 = view(x, 1, 2, 4, 6)\nr1 = resample(r0, 3, 9) algorithm=cubic align_corners=0 "
        "scale_height=0.0 scale_width=0.0",
    ),
    "mean from both sides": (
        lambda x: x.view(2, 4, 6).mean((1, -1)),
        [BATCH],
        "r0 = view(x, 2, 4, 6)\nr1 = mean(r0) dims=1,-1 keep=0",
    ),
    "attention": (
        lambda x, y: F.scaled_dot_product_attention(x, y, y),
        [HEADS, HEADS + 1],
        "r0 = attention(x, y, y, none) causal=0 scale=0.0",
    ),
    "attention with a mask": (
        lambda x, y: F.scaled_dot_product_attention(x, x, x, y, scale=0.25),
        [HEADS, torch.rand(5, 5) > 0.3],
        "r0 = attention(x, x, x, y) causal=0 scale=0.25",
    ),
    "causal attention": (
        lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
        [HEADS],
        "r0 = attention(x, x, x, none) causal=1 scale=0.0",
    ),
    "grouped attention": (
        lambda x, y: F.scaled_dot_product_attention(x, y, y, enable_gqa=True),
        [torch.randn(2, 6, 5, 4), HEADS],
        "r0 = attention(x, y, y, none) causal=0 grouped=1 scale=0.0",
    ),
    "embedding": (lambda x: F.embedding(x, TABLE), [IDS], "r0 = embedding(c0, x)"),
    "embedding_bag": (
        lambda x, y: F.embedding_bag(x, TABLE, y, mode="max"),
        [BAG, OFFSETS],
        "r0 = embedding_bag(c0, x, y, none) last_offset=0 mode=max",
    ),
    "embedding_bag with the end of the last bag": (
        lambda x, y: F.embedding_bag(x, TABLE, y, mode="sum", include_last_offset=True),
        [BAG, torch.tensor([0, 2, 6])],
        "r0 = embedding_bag(c0, x, y, none) last_offset=1 mode=sum",
    ),
    "weighted embedding_bag": (
        lambda x, y, z: F.embedding_bag(x, TABLE, y, mode="sum", per_sample_weights=z),
        [BAG, OFFSETS, torch.rand(6)],
        "r0 = embedding_bag(c0, x, y, z) last_offset=0 mode=sum",
    ),
    "embedding_bag of rows": (
        lambda x: F.embedding_bag(x, TABLE, mode="sum"),
        [IDS],
        "r0 = numel(x)\nr1 = size(x, 1)\nr2 = arange(0, r0, r1)\nr3 = view(x, -1)\n"
        "r4 = embedding_bag(c0, r3, r2, none) last_offset=0 mode=sum",
    ),
    "index pairs": (
        lambda x: torch.bmm(x, x.mT)[:, FIRST, SECOND],
        [BATCH],
        "r0 = transpose(x, -2, -1)\nr1 = matmul(x, r0)\nr2 = slice(r1, 0, 0, none, 1)\n"
        "r3 = gather_pairs(r2, c0, c1)",
    ),
    "indices": (
        lambda x: x[:, :, FIRST, SECOND],
        [IMAGE],
        "r0 = slice(x, 0, 0, none, 1)\nr1 = slice(r0, 1, 0, none, 1)\n"
        "r2 = index(r1, none, none, c0, c1)",
    ),
    "rows of indices": (
        lambda x, y: x[y.to(torch.int64)],
        [MATRIX, FIRST],
        "r0 = to(y) dtype=int64\nr1 = index(x, r0)",
    ),
    "topk": (
        lambda x: x.view(4, 6).topk(2)[0],
        [ROWS],
        "r0 = view(x, 4, 6)\nr1 = topk(r0) dim=-1 k=2 largest=1 sorted=1\n"
        "r2 = take_along(r0, r1) dim=-1",
    ),
    "max.dim": (
        lambda x: x.view(4, 6).max(1)[0],
        [ROWS],
        "r0 = view(x, 4, 6)\nr1 = argmax(r0) dims=1 keep=1\nr2 = take_along(r0, r1) dim=1\n"
        "r3 = squeeze(r2, 1)",
    ),
    "gather": (lambda x, y: x.gather(1, y), [ROWS, IDS], "r0 = take_along(x, y) dim=1"),
    "scatter": (
        lambda x, y: x.scatter(1, y, x[:, ::2]),
        [ROWS, IDS],
        "r0 = slice(x, 0, 0, none, 1)\nr1 = slice(r0, 1, 0, none, 2)\nr2 = scatter(x, y, r1) dim=1",
    ),
    "scatter_add": (
        lambda x, y: x.scatter_add(1, y, x),
        [ROWS, IDS],
        "r0 = scatter(x, y, x) add=1 dim=1",
    ),
    "index_add": (
        lambda x, y: x.view(4, 6).index_add(-1, FIRST, y.view(4, 3)),
        [ROWS, ROWS[:, :3]],
        "r0 = view(x, 4, 6)\nr1 = view(y, 4, 3)\nr2 = unsqueeze(c0, 0)\nr3 = expand_as(r2, r1)\n"
        "r4 = scatter(r0, r3, r1) add=1 dim=1 rows=1",
    ),
    "sum of integers": (
        lambda x: x.to(torch.int64).sum(0, True),
        [IDS],
        "r0 = to(x) dtype=int64\nr1 = sum(r0) dims=0 dtype=int64 keep=1",
    ),
    "scatter of a number": (
        lambda x, y: x.view(4, 6).to(torch.float32).scatter(1, y, 2),
        [ROWS, IDS],
        "r0 = view(x, 4, 6)\nr1 = to(r0) dtype=float32\nr2 = scatter(r1, y, c0) dim=1",
    ),
    "slice_scatter": (
        lambda x, y: torch.slice_scatter(x, y, 1, 1, 6, 2),
        [ROWS, ROWS[:, :3]],
        "r0 = slice_scatter(x, y, 1, 1, 6, 2)",
    ),
    "select_scatter": (
        lambda x, y: x.select_scatter(y, 0, -1),
        [ROWS, SIX],
        "r0 = unsqueeze(y, 0)\nr1 = slice_scatter(x, r0, 0, -1, none, 1)",
    ),
    "squeeze of all": (
        lambda x: x.view(1, 4, 1, 6).squeeze(),
        [ROWS],
        "r0 = view(x, 1, 4, 1, 6)\nr1 = squeeze(r0, 2)\nr2 = squeeze(r1, 0)",
    ),
    "squeeze.dims": (
        lambda x: x.view(1, 4, 1, 6).squeeze((-2, 1)),
        [ROWS],
        "r0 = view(x, 1, 4, 1, 6)\nr1 = squeeze(r0, 2)\nr2 = squeeze(r1, 1)",
    ),
    "variance": (
        lambda x: x.view(4, 6).var(1, unbiased=False),
        [ROWS],
        "r0 = view(x, 4, 6)\nr1 = to(r0) dtype=float32\nr2 = mean(r1) dims=1 keep=1\n"
        "r3 = binary(r1, r2) algorithm=sub\n"
        "r4 = eltwise(r3) algorithm=square alpha=0.0 beta=0.0\nr5 = sum(r4) dims=1 keep=0\n"
        f"r6 = eltwise(r5) algorithm=affine alpha={1 / 6} beta=0.0\nr7 = to_like(r6, r0)",
    ),
    "softplus": (F.softplus, [ROWS], "r0 = eltwise(x) algorithm=softplus alpha=0.0 beta=0.0"),
    "max_pool2d": (
        lambda x: F.max_pool2d(x, 3, padding=1),
        [IMAGE],
        "r0 = max_pool(x) ceil=0 dilation=1,1 kernel=3,3 padding=1,1",
    ),
    "max_pool1d": (
        lambda x: F.max_pool1d(x, 2, 1, ceil_mode=True),
        [BATCH],
        "r0 = max_pool(x) ceil=1 dilation=1 kernel=2 padding=0 stride=1",
    ),
    "avg_pool2d": (
        lambda x: F.avg_pool2d(x, (2, 3), count_include_pad=False),
        [IMAGE],
        "r0 = avg_pool(x) ceil=0 include_pad=0 kernel=2,3 padding=0,0",
    ),
    "avg_pool3d": (
        lambda x: F.avg_pool3d(x, (1, 2, 2)),
        [IMAGE],
        "r0 = avg_pool(x) ceil=0 include_pad=1 kernel=1,2,2 padding=0,0,0",
    ),
    "adaptive_avg_pool2d": (
        lambda x: F.adaptive_avg_pool2d(x, 1),
        [IMAGE],
        "r0 = adaptive_avg_pool(x) sizes=1,1",
    ),
    **dict(reductions()),
    "mean of several": (
        lambda x: x.mean((1, 2), True),
        [BATCH],
        "r0 = mean(x) dims=1,2 keep=1",
    ),
    "cat": (lambda x, y: torch.cat([x, y], -1), [ROWS, ROWS], "r0 = cat(x, y) dim=-1"),
    "stack": (lambda x, y: torch.stack([x, y]), [ROWS, ROWS], "r0 = stack(x, y) dim=0"),
    "pad": (lambda x: F.pad(x, (1, 2), value=0.5), [ROWS], "r0 = pad(x, 1, 2) value=0.5"),
    "negative padding": (
        lambda x: F.pad(x, (1, -1, -2, -1), value=0.5),
        [ROWS],
        "r0 = slice(x, -1, 0, -1, 1)\nr1 = slice(r0, -2, 2, -1, 1)\n"
        "r2 = pad(r1, 1, 0, 0, 0) value=0.5",
    ),
    "constant_pad_nd": (
        lambda x: torch.constant_pad_nd(x, (0, 1, 1, 0)),
        [ROWS],
        "r0 = pad(x, 0, 1, 1, 0) value=0.0",
    ),
    "dropout": (lambda x: F.relu(F.dropout(x, 0.5, False)), [ROWS], eltwise("relu")),
    "detach": (lambda x: F.relu(x.detach()), [ROWS], eltwise("relu")),
    "alias": (lambda x: F.relu(torch.ops.aten.alias(x)), [ROWS], eltwise("relu")),
    "contiguous": (
        lambda x: x.contiguous() * 2.0,
        [ROWS.t()],
        "r0 = contiguous(x)\nr1 = eltwise(r0) algorithm=affine alpha=2.0 beta=-0.0",
    ),
    "to float16": (lambda x: x.half(), [ROWS], "r0 = to(x) dtype=float16"),
    "to float16 and back": (
        lambda x: x.half().float(),
        [ROWS],
        "r0 = to(x) dtype=float16\nr1 = to(r0) dtype=float32",
    ),
    "to a memory format": (
        lambda x: x.to(memory_format=torch.contiguous_format),
        [ROWS.t()],
        "r0 = contiguous(x)\nr1 = to(r0) dtype=float32",
    ),
    "to": (lambda x: x.to(torch.bfloat16), [ROWS], "r0 = to(x) dtype=bfloat16"),
    "float of a mask": (lambda x: x.float(), [IDS], "r0 = to(x) dtype=float32"),
    "view": (lambda x: x.view(3, -1), [ROWS], "r0 = view(x, 3, -1)"),
    "reshape": (lambda x: x.reshape(-1), [ROWS.t()], "r0 = view(x, -1)"),
    "view_as": (
        lambda x, y: x.view_as(y.view(3, 8)),
        [ROWS, torch.randn(8, 3)],
        "r0 = view(y, 3, 8)\nr1 = size(r0, 0)\nr2 = size(r0, 1)\nr3 = view(x, r1, r2)",
    ),
    "reshape_as": (
        lambda x, y: x.reshape_as(y.flatten()),
        [ROWS.t(), ROWS],
        "r0 = flatten(y, 0, -1)\nr1 = size(r0, 0)\nr2 = view(x, r1)",
    ),
    "to bool": (
        lambda x, y: y.masked_fill(x.to(torch.bool), -1.0),
        [ROWS > 0, ROWS],
        "r0 = nonzero(x)\nr1 = where(r0, none, y) filled=1 value=-1.0",
    ),
    "flatten": (lambda x: x.flatten(1), [BATCH], "r0 = flatten(x, 1, -1)"),
    "unflatten": (lambda x: x.unflatten(-1, (2, -1)), [ROWS], "r0 = unflatten(x, -1, 2, -1)"),
    "transpose": (lambda x: x.transpose(1, 2), [BATCH], "r0 = transpose(x, 1, 2)"),
    "t": (lambda x: x.t(), [ROWS], "r0 = transpose(x, 0, 1)"),
    "permute": (lambda x: x.permute(2, 0, 1), [BATCH], "r0 = permute(x, 2, 0, 1)"),
    "unsqueeze": (lambda x: x.unsqueeze(1), [ROWS], "r0 = unsqueeze(x, 1)"),
    "squeeze": (lambda x: x.squeeze(0), [ROWS[:1]], "r0 = squeeze(x, 0)"),
    "expand": (lambda x: x.expand(3, -1, -1), [ROWS], "r0 = expand(x, 3, -1, -1)"),
    "select": (lambda x: x.select(1, 1), [BATCH], "r0 = select(x, 1, 1)"),
    "slice": (lambda x: x[1:4:2], [ROWS], "r0 = slice(x, 0, 1, 4, 2)"),
    "slice to the end": (lambda x: x[-2:], [ROWS], "r0 = slice(x, 0, -2, none, 1)"),
    "split": (
        lambda x: x.split(3, 1)[0] + x.split(3, 1)[1],
        [ROWS],
        "r0, r1 = split(x) dim=1 sizes=3\nr2 = binary(r0, r1) algorithm=add",
    ),
    "split with a smaller part": (
        lambda x: x.split(4, 1)[1],
        [ROWS],
        "r0, r1 = split(x) dim=1 sizes=4",
    ),
    "split by sizes": (
        lambda x: x.split([2, 4], 1)[1],
        [ROWS],
        "r0, r1 = split(x) dim=1 sizes=2,4",
    ),
    "indices that follow one another": (
        lambda x: x.view(2, 4, 6).index_select(1, torch.arange(1, 3)),
        [BATCH],
        "r0 = view(x, 2, 4, 6)\nr1 = slice(r0, 1, 1, 3, 1)",
    ),
    "instance_norm": (
        lambda x: F.instance_norm(x.view(2, 4, 6), eps=1e-3),
        [BATCH],
        "r0 = view(x, 2, 4, 6)\nr1 = group_norm(r0, none, none) eps=0.001 groups=4",
    ),
    "repeat": (
        lambda x: VECTOR.repeat(x.size(0), 1),
        [ROWS],
        "r0 = size(x, 0)\nr1 = unsqueeze(c0, 0)\nr2 = unsqueeze(r1, 0)\n"
        "r3 = expand(r2, r0, -1, -1)\nr4 = flatten(r3, 0, 1)",
    ),
    "repeat_interleave": (
        lambda x: x.view(2, 2, 6).repeat_interleave(3, -2),
        [ROWS],
        "r0 = view(x, 2, 2, 6)\nr1 = unsqueeze(r0, 2)\nr2 = expand(r1, -1, -1, 3, -1)\n"
        "r3 = flatten(r2, 1, 2)",
    ),
    "repeat_interleave of a vector": (
        lambda x: x.view(24).repeat_interleave(3),
        [ROWS],
        "r0 = view(x, 24)\nr1 = unsqueeze(r0, 1)\nr2 = expand(r1, -1, 3)\nr3 = flatten(r2, 0, 1)",
    ),
    "chunk": (lambda x: x.chunk(2, -1)[1], [ROWS], "r0, r1 = split(x) chunks=2 dim=-1"),
    "unbind": (
        lambda x: x.unbind(0)[0] * x.unbind(0)[1],
        [BATCH],
        "r0, r1 = split(x) dim=0 sizes=1,1\nr2 = select(r0, 0, 0)\nr3 = select(r1, 0, 0)\n"
        "r4 = binary(r2, r3) algorithm=mul",
    ),
    "unbind of known size": (
        lambda x: x.view(-1, 2, 6).unbind(1)[1],
        [BATCH],
        "r0 = view(x, -1, 2, 6)\nr1 = select(r0, 1, 1)",
    ),
    "sizes": (
        lambda x: x.view(x.size(0) * 2, x.shape[1] // 2 + 1 - 1),
        [ROWS],
        "r0 = size(x, 0)\nr1 = number_mul(r0, 2)\nr2 = size(x, 1)\nr3 = number_floordiv(r2, 2)\n"
        "r4 = number_add(r3, 1)\nr5 = number_sub(r4, 1)\nr6 = view(x, r1, r5)",
    ),
    "padding to a multiple": (
        lambda x: F.pad(x, (0, (4 - x.size(1) % 4) % 4), value=1.0),
        [ROWS],
        "r0 = size(x, 1)\nr1 = number_remainder(r0, 4)\nr2 = number_sub(4, r1)\n"
        "r3 = number_remainder(r2, 4)\nr4 = pad(x, 0, r3) value=1.0",
    ),
    "a power of a size": (
        lambda x: x * (x.size(1) // 2) ** -0.5,
        [ROWS],
        "r0 = size(x, 1)\nr1 = number_floordiv(r0, 2)\nr2 = power(r1) exponent=-0.5\n"
        "r3 = to_like(r2, x)\nr4 = binary(x, r3) algorithm=mul",
    ),
    "a power of a size as a number": (
        lambda x: x / torch.full([], x.size(-1) ** 0.5, dtype=x.dtype),
        [ROWS],
        "r0 = size(x, -1)\nr1 = power(r0) exponent=0.5\nr2 = to(r1) dtype=float32\n"
        "r3 = binary(x, r2) algorithm=div",
    ),
    "type_as": (
        lambda x, y: x.type_as(y),
        [ROWS, MATRIX.bfloat16()],
        "r0 = to_like(x, y)",
    ),
    "roll": (
        lambda x: x.roll((1, -2), (0, -1)),
        [BATCH],
        "r0 = roll(x) dims=0,-1 shifts=1,-2",
    ),
    "swapaxes": (lambda x: x.swapaxes(0, 1), [BATCH], "r0 = transpose(x, 0, 1)"),
    "swapdims": (lambda x: x.swapdims(0, -1), [BATCH], "r0 = transpose(x, 0, -1)"),
    "einsum of matrices": (
        lambda x, y: torch.einsum("ij,jk->ik", x, y),
        [ROWS, torch.randn(6, 5)],
        "r0 = matmul(x, y)",
    ),
    "einsum of heads": (
        lambda x, y: torch.einsum("b q h d, b k h d -> b h q k", x, y),
        [torch.randn(2, 3, 4, 5), torch.randn(2, 6, 4, 5)],
        "r0 = permute(x, 0, 2, 1, 3)\nr1 = permute(y, 0, 2, 3, 1)\nr2 = matmul(r0, r1)",
    ),
    "einsum with a constant": (
        lambda x: torch.einsum("bij,kj->bik", x, MATRIX),
        [BATCH],
        "r0 = linear(x, c0, none)",
    ),
    "einsum with a constant of several columns": (
        lambda x: torch.einsum("bij,jnd->nbid", x, PARTED),
        [BATCH],
        "r0 = linear(x, c0, none)\nr1 = unflatten(r0, 2, 3, 2)\nr2 = permute(r1, 2, 0, 1, 3)",
    ),
    "einsum with a constant of several rows": (
        lambda x: torch.einsum("indb,hnd->bih", x, PARTED),
        [torch.randn(5, 3, 2, 4)],
        "r0 = permute(x, 0, 3, 1, 2)\nr1 = flatten(r0, 2, 3)\nr2 = linear(r1, c0, none)\n"
        "r3 = permute(r2, 1, 0, 2)",
    ),
    "einsum of one more batch": (
        lambda x, y: torch.einsum("bhwc,wkc->bhwk", x, y),
        [torch.randn(2, 3, 4, 5), torch.randn(4, 6, 5)],
        "r0 = permute(x, 0, 2, 1, 3)\nr1 = permute(y, 0, 2, 1)\nr2 = matmul(r0, r1)\n"
        "r3 = permute(r2, 0, 2, 1, 3)",
    ),
    "einsum of elements": (
        lambda x, y: torch.einsum("ij,kj->jik", x, y),
        [ROWS, torch.randn(3, 6)],
        "r0 = permute(x, 1, 0)\nr1 = unsqueeze(r0, 2)\nr2 = permute(y, 1, 0)\n"
        "r3 = unsqueeze(r2, 1)\nr4 = binary(r1, r3) algorithm=mul",
    ),
    "einsum into another order": (
        lambda x, y: torch.einsum("bhqk,bkhd->bqhd", x, y),
        [torch.randn(2, 4, 3, 6), torch.randn(2, 6, 4, 5)],
        "r0 = permute(y, 0, 2, 1, 3)\nr1 = matmul(x, r0)\nr2 = permute(r1, 0, 2, 1, 3)",
    ),
}


#: Their meaning depends on dtypes and sizes that only plans know.
NOT_INTERPRETED = frozenset({"attention with a mask", "grouped attention"})


REFUSED: dict[str, tuple[Callable[..., Any], Sequence[Tensor], str, str]] = {
    "split by sizes that are computed": (
        lambda x: x.split([1, x.size(1) - 1], 1)[1],
        [ROWS],
        "aten::split_with_sizes",
        "what its sizes add up to is not known",
    ),
    "a product alone, of addmm": (
        lambda x: torch.addmm(VECTOR, x, MATRIX.t(), beta=0),
        [ROWS],
        "aten::addmm",
        "beta is 0",
    ),
    "a norm that is not Euclidean": (
        lambda x: torch.linalg.vector_norm(x, 1),
        [ROWS],
        "aten::linalg_vector_norm",
        "ord is 1",
    ),
    "contiguous in another memory format": (
        lambda x: x.contiguous(memory_format=torch.channels_last),
        [IMAGE],
        "aten::contiguous",
        "memory_format is 2",
    ),
    "a conversion to another memory format": (
        lambda x: x.to(memory_format=torch.channels_last),
        [IMAGE],
        "aten::to",
        "memory_format is 2",
    ),
    "a number that float32 cannot hold": (
        lambda x: x.masked_fill(SIX > 0, -1e39),
        [ROWS.double()],
        "aten::masked_fill",
        "a number is larger than any of float32",
    ),
    "a choice of a number that float32 cannot hold": (
        lambda x: torch.where(SIX > 0, x, 1e39),
        [ROWS.double()],
        "aten::where",
        "a number is larger than any of float32",
    ),
    **{
        f"einsum {equation}": (
            lambda *x, of=equation: torch.einsum(of, *x),
            [torch.randn([3] * len(term)) for term in equation.split("->")[0].split(",")],
            "aten::einsum",
            "it is not a product of two matrices",
        )
        for equation in (
            *("ij->ji", "ij,jk", "ii,ij->j", "...j,jk->...k", "ij,jk,kl->il", "ij,kl->ik"),
            *("ij,j->i", "ijk,jl->il", "ij,jkl->ik", "hij,hjk->ik", "hij,jkl->hikl"),
        )
    },
    "indices of a dimension whose size is not known": (
        lambda x: x.index_select(1, torch.arange(1, 3)),
        [ROWS],
        "aten::index_select",
        "what it indexes is not known",
    ),
    "an instance norm of channels whose number is not known": (
        F.instance_norm,
        [BATCH],
        "aten::instance_norm",
        "how many channels it has is not known",
    ),
    "an instance norm with statistics of others": (
        lambda x: F.instance_norm(x, ROWS[0, :4], ROWS[1, :4].abs(), use_input_stats=False),
        [BATCH],
        "aten::instance_norm",
        "use_input_stats is False",
    ),
    "full of a number": (
        lambda x: x + torch.full([], x.size(0)),
        [ROWS],
        "aten::full",
        "fill_value is not a constant number",
    ),
    "more than one number": (
        lambda x: x + torch.full([6], x.size(1) ** 0.5),
        [ROWS],
        "aten::full",
        "it makes more than one number",
    ),
    "rolls of what is flat": (
        lambda x: x.roll(2),
        [ROWS],
        "aten::roll",
        "dims is empty",
    ),
    "remainders of tensors": (
        lambda x, y: x % y,
        [ROWS, POSITIVE],
        "aten::remainder",
        "self is not an integer",
    ),
    "unknown": (lambda x: x.cumprod(0), [ROWS], "aten::cumprod", "the engine has no such operator"),
    "weights that are no constant": (
        F.linear,
        [ROWS, MATRIX],
        "aten::linear",
        "weight is not a constant",
    ),
    "a vector of weights": (
        lambda x: F.linear(x, SIX),
        [ROWS],
        "aten::linear",
        "weight is no matrix",
    ),
    "a bias for all rows": (
        lambda x: F.linear(x, MATRIX, VECTOR[0]),
        [ROWS],
        "aten::linear",
        "bias has not one number for each row of weight",
    ),
    "another dtype": (
        lambda x: F.linear(x, MATRIX.double()),
        [ROWS.double()],
        "aten::linear",
        "weight is float64, not bfloat16 or float32",
    ),
    "fourth powers": (lambda x: x**4, [ROWS], "aten::pow", "exponent is 4"),
    "rounded division": (
        lambda x, y: torch.div(x, y, rounding_mode="floor"),
        [ROWS, POSITIVE],
        "aten::div",
        "self is not an integer",
    ),
    "division by zero": (lambda x: x / 0, [ROWS], "aten::div", "other is 0.0"),
    "division by a tiny number": (lambda x: x / 1e-39, [ROWS], "aten::div", "other is 1e-39"),
    "division by a huge number": (lambda x: x / 3e38, [ROWS], "aten::div", "other is 3e+38"),
    "a tiny factor": (lambda x: x * 1e-40, [ROWS], "aten::mul", "other is 1e-40"),
    "a tiny multiple of a number": (
        lambda x: torch.sub(x, 1e-20, alpha=1e-20),
        [ROWS],
        "aten::sub",
        "other is 1e-20",
    ),
    "a tiny slope": (
        lambda x: F.leaky_relu(x, 1e-46),
        [ROWS],
        "aten::leaky_relu",
        "negative_slope is 1e-46, which float32 does not hold",
    ),
    "a tiny bound": (
        lambda x: x.clamp(max=1e-39),
        [ROWS],
        "aten::clamp",
        "max is 1e-39, which float32 does not hold",
    ),
    "a product with booleans": (
        lambda x, y: x * y.to(torch.bool),
        [ROWS, SIX],
        "aten::mul",
        "other holds integers or booleans",
    ),
    "a view as something of unknown rank": (
        lambda x, y: x.view_as(y),
        [ROWS, ROWS],
        "aten::view_as",
        "how many dimensions other has is not known",
    ),
    "a variance of what may have any sizes": (
        lambda x: x.var(1),
        [ROWS],
        "aten::var",
        "self is not known to have dimensions",
    ),
    "a slice of another dtype": (
        lambda x, y: torch.slice_scatter(x.to(torch.float32), y.to(torch.int64), 1, 0, 3),
        [ROWS, ROWS[:, :3]],
        "aten::slice_scatter",
        "src is int64, and self is float32",
    ),
    "rows that one index may stand for": (
        lambda x, y, z: x.view(4, 6).index_add(0, z, y.view(2, 6)),
        [ROWS, ROWS[:2], FIRST[:2]],
        "aten::index_add",
        "self, index and source are not known to have dimensions",
    ),
    "a scatter into what may hold integers": (
        lambda x, y: x.scatter(1, y, 2),
        [ROWS, IDS],
        "aten::scatter",
        "self is not surely bfloat16 or bool or float32 or int32 or int64",
    ),
    "indices of dimensions apart": (
        lambda x: x[SECOND, :, SECOND],
        [BATCH],
        "aten::index",
        "it indexes dimensions that are apart",
    ),
    "chosen elements": (
        lambda x: x[x.to(torch.bool)],
        [ROWS],
        "aten::index",
        "an index is bool, not int32 or int64",
    ),
    "indices of unknown dtype": (
        lambda x, y: x[y],
        [ROWS, FIRST],
        "aten::index",
        "an index is not surely int32 or int64",
    ),
    "the largest of unknown rank": (
        lambda x: x.topk(2)[0],
        [ROWS],
        "aten::topk",
        "self is not known to have dimensions",
    ),
    "sharper softplus": (lambda x: F.softplus(x, 2), [ROWS], "aten::softplus", "beta is 2"),
    "softmax in float64": (
        lambda x: x.softmax(0, dtype=torch.float64),
        [ROWS],
        "aten::softmax",
        "dtype is not float32 or bfloat16",
    ),
    "to float64": (
        lambda x: x.double(),
        [ROWS],
        "aten::to",
        "dtype is float64, which plans do not return",
    ),
    "reflected edges": (
        lambda x: F.pad(x, (1, 1), mode="reflect"),
        [BATCH],
        "aten::pad",
        "mode is reflect",
    ),
    "a divisor": (
        lambda x: F.avg_pool2d(x, 2, divisor_override=3),
        [IMAGE],
        "aten::avg_pool2d",
        "divisor_override is given",
    ),
    "padded bags": (
        lambda x, y: F.embedding_bag(x, TABLE, y, padding_idx=-1),
        [BAG, OFFSETS],
        "aten::embedding_bag",
        "padding_idx is given",
    ),
    "a number as a tensor": (
        lambda x: x * x.size(0),
        [ROWS],
        "aten::mul",
        "other is not a tensor",
    ),
    "training": (
        lambda x: F.dropout(x, 0.5, True),
        [ROWS],
        "aten::dropout",
        "train is True",
    ),
}

#: Operators of functional graphs only; test_fx.py reaches them.
FUNCTIONAL = {
    *("aten::_native_batch_norm_legit_no_training", "aten::_to_copy", "aten::_unsafe_view"),
    "aten::sym_size.int",
}
