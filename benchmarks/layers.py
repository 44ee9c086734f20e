"""The problems of the sweep that run in frozen models: layers, and what stands between layers.

Ours has made a plan in advance; stock torch runs the same module eagerly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.backends.zendnn.table import functions, notation

from benchmarks.problems import OTHER, RESNET, RESNET_CONVOLUTIONS, Call, Problem, convolution

Function = Callable[[Tensor], Tensor]

#: How many numbers of a result the layer behind it reads, so that both are in one plan.
READ = 32


def calls(module: nn.Module, inputs: Sequence[Tensor]) -> tuple[Call, Call]:
    """A module as a plan, built, and as it is."""
    module.eval()
    with torch.inference_mode(False), torch.no_grad():
        traced = torch.jit.freeze(torch.jit.trace(module, tuple(inputs), check_trace=False))
        optimised = torch.jit.optimize_for_inference(traced)
        for _ in range(3):  # torch's executor optimises the graph, and ours builds a plan
            optimised(*inputs)
    return lambda: optimised(*inputs), lambda: module(*inputs)


class _Block(nn.Module):
    """A convolution and the operations that follow it in a residual network."""

    def __init__(self, convolution: nn.Module) -> None:
        super().__init__()
        self.convolution = convolution

    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        y: Tensor = self.convolution(x)
        for other in others:
            y = y + other
        return F.relu(y)


def frozen(
    channels: int,
    out: int,
    size: int,
    kernel: int,
    *models: str,
    stride: int = 1,
    residual: bool = False,
) -> Problem:
    """A channels-last convolution, followed by an optional residual and a ReLU."""

    def make(dtype: torch.dtype) -> tuple[Call, Call]:
        with torch.inference_mode(False), torch.no_grad():
            layer = nn.Conv2d(channels, out, kernel, stride, kernel // 2, dtype=dtype)
            block = _Block(layer).to(memory_format=torch.channels_last)
            image = torch.randn(1, channels, size, size).to(dtype)
            inputs = [image.to(memory_format=torch.channels_last)]
            inputs += [torch.randn_like(block(*inputs)) for _ in range(residual)]
            return calls(block, inputs)

    alone = convolution(channels, out, size, kernel, stride=stride)
    return replace(
        alone,
        operator="conv2d frozen",
        size=alone.size + " + residual" * residual,
        models=models,
        make=make,
    )


class _Function(nn.Module):
    """A function of each element of products with single numbers, which take little time."""

    def __init__(self, function: Function, width: int) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(1, width), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.linear(x))


def frozen_function(
    operator: str, function: Function, rows: int, width: int, *models: str
) -> Problem:
    """A function of a matrix; its input and output count as moved."""

    def make(dtype: torch.dtype) -> tuple[Call, Call]:
        with torch.inference_mode(False), torch.no_grad():
            x = torch.randn(rows, 1).to(dtype)
            return calls(_Function(function, width).to(dtype), [x])

    numbers = rows * width
    return Problem(
        f"{operator} frozen", f"{rows}x{width}", models, make, 2.0 * numbers, 2 * numbers
    )


class _Between(nn.Module):
    """A module between a multiplication and a small layer, whose times are included."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module, self.layer = module, nn.Linear(READ, READ)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.module(x * 1.25)
        y = y[0] if isinstance(y, tuple) else y
        return y, self.layer(y.reshape(-1)[:READ])


class _Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class _Gather(nn.Module):
    """Rows in a random order, by an index of each element."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.register_buffer("order", torch.rand(1, rows, 1).argsort(1))

    def forward(self, x: Tensor) -> Tensor:
        return x.gather(1, self.order.expand_as(x))


#: Layers that torch does not compute in bfloat16.
_FLOAT32_ONLY = frozenset({"avg_pool3d", "lrn"})


def layer(operator: str, make_module: Callable[[], nn.Module | Function], *shape: int) -> Problem:
    """A module, or a function, whose input counts as moved, with what stands around it in models.

    A convolution or a linear layer has a ReLU behind it; others stand between a multiplication
    and a small layer.
    """

    def make(dtype: torch.dtype) -> tuple[Call, Call]:
        with torch.inference_mode(False), torch.no_grad():
            result = make_module()
            module = result if isinstance(result, nn.Module) else _Of(result)
            products = isinstance(module, nn.Linear | nn.modules.conv._ConvNd)
            block = nn.Sequential(module, nn.ReLU()) if products else _Between(module)
            return calls(block.to(dtype), [torch.randn(shape).to(dtype)])

    size, moved = "x".join(map(str, shape)), torch.Size(shape).numel()
    result = Problem(f"{operator} frozen", size, (OTHER,), make, values=moved)
    return replace(result, dtypes=(torch.float32,)) if operator in _FLOAT32_ONLY else result


def _depthwise(
    kind: type[nn.Module], channels: int, *arguments: int, filters: int = 1
) -> nn.Module:
    return kind(channels, filters * channels, *arguments, groups=channels)


IMAGE, SIGNAL, TOKENS, VOLUME = (2, 64, 56, 56), (2, 256, 1000), (2, 128, 768), (1, 32, 8, 28, 28)
HEADS = (2, 12, 128, 64)


def _highway(x: Tensor) -> Tensor:
    """A gate between a value and a function of it: a chain of functions of each element."""
    gate = torch.sigmoid(x + 0.5)
    return gate * torch.tanh(x) + (1 - gate) * x


#: Names, what makes the module or the function, and the sizes of its input.
_LAYERS: Sequence[tuple[str, Callable[[], nn.Module | Function], tuple[int, ...]]] = (
    # Mamba's, a Conformer's, a ConvNeXt's, a MobileNet's.
    ("conv1d depthwise k4", lambda: _depthwise(nn.Conv1d, 1536, 4, 1, 3), (1, 1536, 128)),
    ("conv1d depthwise k31", lambda: _depthwise(nn.Conv1d, 256, 31, 1, 15), (1, 256, 400)),
    ("conv2d depthwise k7", lambda: _depthwise(nn.Conv2d, 96, 7, 1, 3), (1, 96, 56, 56)),
    ("conv2d depthwise s2", lambda: _depthwise(nn.Conv2d, 32, 3, 2, 1), (1, 32, 112, 112)),
    (
        "conv2d depthwise two filters",
        lambda: _depthwise(nn.Conv2d, 30, 3, 1, 1, filters=2),
        (1, 30, 56, 56),
    ),
    ("conv3d depthwise", lambda: _depthwise(nn.Conv3d, 96, 3, 1, 1), (1, 96, 8, 28, 28)),
    (
        "conv transposed depthwise",
        lambda: nn.ConvTranspose2d(64, 64, 4, 2, 1, groups=64),
        (1, 64, 32, 32),
    ),
    ("conv1d k10 s5", lambda: nn.Conv1d(1, 512, 10, 5), (1, 1, 16000)),
    ("conv1d g16 k128", lambda: nn.Conv1d(768, 768, 128, 1, 64, groups=16), (1, 768, 100)),
    ("conv2d g32", lambda: nn.Conv2d(128, 128, 3, 1, 1, groups=32), (1, 128, 56, 56)),
    ("conv2d dilated", lambda: nn.Conv2d(64, 64, 3, 1, 2, dilation=2), (1, 64, 56, 56)),
    ("conv transposed 1d", lambda: nn.ConvTranspose1d(256, 128, 16, 8, 4), (1, 256, 100)),
    ("linear to one", lambda: nn.Linear(768, 1), TOKENS),
    ("linear from one", lambda: nn.Linear(1, 512), (64, 1)),
    ("linear odd", lambda: nn.Linear(767, 1000, bias=False), (33, 767)),
    ("max_pool1d", lambda: nn.MaxPool1d(3, 2, 1), SIGNAL),
    ("max_pool2d", lambda: nn.MaxPool2d(3, 2, 1), IMAGE),
    ("max_pool2d k5 s1", lambda: nn.MaxPool2d(5, 1, 2), IMAGE),
    ("max_pool3d", lambda: nn.MaxPool3d(2), VOLUME),
    ("avg_pool1d", lambda: nn.AvgPool1d(4), SIGNAL),
    ("avg_pool2d", lambda: nn.AvgPool2d(3, 2, 1), IMAGE),
    ("avg_pool3d", lambda: nn.AvgPool3d(2), VOLUME),
    ("adaptive_avg_pool2d 1", lambda: nn.AdaptiveAvgPool2d(1), IMAGE),
    ("adaptive_avg_pool2d 7", lambda: nn.AdaptiveAvgPool2d(7), IMAGE),
    ("upsample nearest", lambda: nn.Upsample(scale_factor=2), IMAGE),
    ("upsample bilinear", lambda: nn.Upsample(scale_factor=2, mode="bilinear"), IMAGE),
    ("upsample bicubic", lambda: nn.Upsample(scale_factor=2, mode="bicubic"), IMAGE),
    ("upsample linear", lambda: nn.Upsample(scale_factor=2, mode="linear"), SIGNAL),
    ("group_norm", lambda: nn.GroupNorm(32, 64), IMAGE),
    ("instance_norm", lambda: nn.InstanceNorm2d(64, affine=True), IMAGE),
    ("rms_norm", lambda: nn.RMSNorm(768), TOKENS),
    ("layer_norm two dims", lambda: nn.LayerNorm((128, 768)), TOKENS),
    ("prelu", lambda: nn.PReLU(64), IMAGE),
    ("glu", lambda: nn.GLU(), TOKENS),
    ("tanh", lambda: nn.Tanh(), TOKENS),
    ("gelu", lambda: nn.GELU(), TOKENS),
    ("mish", lambda: nn.Mish(), TOKENS),
    ("highway", lambda: _highway, TOKENS),
    ("highway large", lambda: _highway, (32, 512, 1024)),
    ("softmax of rows", lambda: nn.Softmax(-1), HEADS),
    ("softmax of heads", lambda: nn.Softmax(1), HEADS),
    ("squeeze and excite", lambda: lambda x: x * x.mean((2, 3), True).sigmoid(), IMAGE),
    ("add transposed", lambda: lambda x: x + x.transpose(2, 3), (2, 12, 128, 128)),
    ("mean of rows", lambda: lambda x: x.mean(-1), TOKENS),
    ("mean of columns", lambda: lambda x: x.mean(1), TOKENS),
    ("amax of rows", lambda: lambda x: x.amax(-1), TOKENS),
    ("amax of columns", lambda: lambda x: x.amax(1), TOKENS),
    ("variance", lambda: lambda x: x.var(-1), TOKENS),
    ("normalize", lambda: lambda x: F.normalize(x, dim=-1), TOKENS),
    ("cumsum", lambda: lambda x: x.cumsum(-1), TOKENS),
    ("topk", lambda: lambda x: x.topk(5)[0], TOKENS),
    ("cat of channels", lambda: lambda x: torch.cat([x, x * 2], 1), IMAGE),
    ("cat of columns", lambda: lambda x: torch.cat([x, x * 2], -1), TOKENS),
    ("pad", lambda: lambda x: F.pad(x, (1, 1, 1, 1)), IMAGE),
    ("pad reflect", lambda: lambda x: F.pad(x, (1, 1, 1, 1), "reflect"), IMAGE),
    ("roll", lambda: lambda x: torch.roll(x, (3, 3), (2, 3)), IMAGE),
    ("pixel_shuffle", lambda: nn.PixelShuffle(2), IMAGE),
    ("channel shuffle", lambda: nn.ChannelShuffle(2), IMAGE),
    ("to channels last", lambda: lambda x: x.permute(0, 2, 3, 1).contiguous(), IMAGE),
    ("unfold", lambda: nn.Unfold(3, padding=1), (1, 16, 56, 56)),
    ("tril", lambda: lambda x: x.tril(), (2, 12, 128, 128)),
    ("where", lambda: lambda x: torch.where(x > 0, x, x * 0.1), TOKENS),
    ("index_select", lambda: lambda x: x.index_select(1, torch.arange(63, -1, -1)), TOKENS),
    ("gather", lambda: _Gather(128), TOKENS),
    ("bmm of heads", lambda: lambda x: x @ x.transpose(-1, -2), HEADS),
    ("bmm small", lambda: lambda x: x @ x.transpose(-1, -2), (64, 4, 16)),
    ("bmm tiny", lambda: lambda x: x @ x.transpose(-1, -2), (4096, 3, 3)),
    ("cdist", lambda: lambda x: torch.cdist(x, 1 - x), TOKENS),
    ("lrn", lambda: nn.LocalResponseNorm(5), IMAGE),
    ("LSTM", lambda: nn.LSTM(128, 128, batch_first=True), (4, 50, 128)),
    ("RNN", lambda: nn.RNN(128, 128, batch_first=True), (4, 50, 128)),
    ("encoder", lambda: nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True), TOKENS),
)


def _logsumexp(x: Tensor) -> Tensor:
    return torch.logsumexp(x, -1)


def _logsumexp_of_columns(x: Tensor) -> Tensor:
    return torch.logsumexp(x, 0)


def _index(x: Tensor) -> Tensor:
    return x[torch.arange(x.size(0) - 1, -1, -1)]


def _in_torch(row: notation.Function) -> Function:
    name = row.mappings[0].name.removeprefix("aten::")
    function: Function = getattr(torch.ops.aten, name)
    return function


#: Those that only our kernels compute.
_OURS = [row for row in functions.FUNCTIONS.values() if not (row.primitive or row.foreign)]
_FUNCTIONS: Sequence[tuple[str, Function]] = (
    *((row.name, _in_torch(row)) for row in _OURS),
    ("logsumexp", _logsumexp),
    ("logsumexp of columns", _logsumexp_of_columns),
    ("index", _index),
)

LAYERS: Sequence[Problem] = (
    *(frozen(c, o, n, k, RESNET, stride=s) for c, o, n, k, s in RESNET_CONVOLUTIONS if k == 1),
    *(
        frozen(c, o, n, k, RESNET, residual=True)
        for c, o, n, k, s in RESNET_CONVOLUTIONS
        if (o, k, s) == (4 * c, 1, 1)  # a bottleneck's last layer
    ),
    *(frozen_function(name, function, 2048, 1024, OTHER) for name, function in _FUNCTIONS),
    *(layer(name, make, *shape) for name, make, shape in _LAYERS),
)
