"""The problems of the sweep: every overridden operator at the sizes that occur in real models.

To add a problem, add it to ``PROBLEMS`` with the models in which it occurs. For a new operator,
write a function that returns a ``Problem``. A problem that occurs in several models is measured
once.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks import limit

Call = Callable[[], object]

#: With at most this many rows, weights of at least ``LARGE_BYTES`` are read from memory at each
#: call, as in a real model; smaller weights would stay in the caches.
FEW_ROWS = 16
LARGE_BYTES = 4 * limit.MIB


@dataclass(frozen=True)
class Problem:
    """An operator at one size.

    ``make`` returns the calls to time for a dtype: ours and stock torch's. They are the same if
    nothing has to be prepared. One call needs at least ``flop`` floating point operations, and
    must move at least ``values`` numbers of that dtype between memory and registers. ``present``
    returns false if this build does not support the problem. ``dtypes`` are those that torch has it
    in.
    """

    operator: str
    size: str
    models: tuple[str, ...]
    make: Callable[[torch.dtype], tuple[Call, Call]]
    flop: float = 0
    values: float = 0
    present: Callable[[], bool] = lambda: True
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16)

    @property
    def name(self) -> str:
        """The name that the tables show and that ``--only`` is compared with."""
        return f"{self.operator} {self.size}"


def _same(make: Callable[[torch.dtype], Call]) -> Callable[[torch.dtype], tuple[Call, Call]]:
    """Both sides call the same function."""

    def both(dtype: torch.dtype) -> tuple[Call, Call]:
        call = make(dtype)
        return call, call

    return both


@functools.lru_cache(maxsize=1)
def _pool(dtype: torch.dtype) -> Tensor:
    """More random numbers than fit in the caches, shared by all tensors to be read from memory."""
    block = torch.randn(limit.MIB).to(dtype)
    return block.repeat(math.ceil(limit.cold_bytes() / block.nbytes))


def cold(dtype: torch.dtype, *shape: int) -> Iterator[Tensor]:
    """Tensors in turn, so that each one has left the caches before it is used again.

    They are views of shared memory and must not be written to.
    """
    pool, size = _pool(dtype), math.prod(shape)
    count = pool.numel() // size
    return itertools.cycle([pool[i * size : (i + 1) * size].view(shape) for i in range(count)])


def _is_cold(rows: int, dtype: torch.dtype, *shape: int) -> bool:
    return rows <= FEW_ROWS and math.prod(shape) * dtype.itemsize >= LARGE_BYTES


def _weights(rows: int, dtype: torch.dtype, *shape: int) -> Iterator[Tensor]:
    """The weights for each call: not in a cache if ``rows`` is small, otherwise one same tensor."""
    if _is_cold(rows, dtype, *shape):
        return cold(dtype, *shape)
    return itertools.repeat(torch.randn(shape).to(dtype))


def _read(rows: int, numbers: float) -> float:
    """How many numbers count as moved: with many rows none, as the weights stay in the caches."""
    return numbers if rows <= FEW_ROWS else 0


def linear(rows: int, inner: int, columns: int, *models: str) -> Problem:
    """(rows, inner) times (inner, columns), with a bias."""

    def make(dtype: torch.dtype) -> Call:
        x, bias = torch.randn(rows, inner).to(dtype), torch.randn(columns).to(dtype)
        weights = _weights(rows, dtype, columns, inner)
        return lambda: F.linear(x, next(weights), bias)

    return Problem(
        "linear",
        f"{rows}x{inner}x{columns}",
        models,
        _same(make),
        2.0 * rows * inner * columns,
        _read(rows, inner * columns),
    )


def _prepack() -> Any:
    return getattr(getattr(torch.backends, "zendnn", None), "prepack", None)


def packed(rows: int, inner: int, columns: int, *models: str) -> Problem:
    """A linear layer whose weights were packed before; stock torch uses plain weights."""

    def make(dtype: torch.dtype) -> tuple[Call, Call]:
        count = 1
        if _is_cold(rows, dtype, columns, inner):
            count = max(1, limit.cold_bytes() // (inner * columns * dtype.itemsize))
        # Users prepack ordinary parameters, and each layer has its own.
        with torch.inference_mode(False), torch.no_grad():
            x = torch.randn(rows, inner).to(dtype)
            weights = _weights(rows, dtype, columns, inner)
            layers = []
            for _ in range(count):
                layer = nn.utils.skip_init(nn.Linear, inner, columns, dtype=dtype).eval()
                layer.weight.copy_(next(weights))
                layer.bias.copy_(torch.randn(columns))
                layers.append(layer)
            packed = [_prepack()(layer) for layer in layers]
            for layer in packed:
                layer(x)  # the first call may pack weights and choose how to run
        ours, stock = itertools.cycle(packed), itertools.cycle(layers)
        return lambda: next(ours)(x), lambda: next(stock)(x)

    return Problem(
        "linear packed",
        f"{rows}x{inner}x{columns}",
        models,
        make,
        2.0 * rows * inner * columns,
        _read(rows, inner * columns),
        present=lambda: _prepack() is not None,
    )


def _transposed(matrices: Tensor, form: str) -> Tensor:
    return matrices.mT.contiguous().mT if form == "t" else matrices


def mm(rows: int, inner: int, columns: int, form: str, *models: str) -> Problem:
    """A matrix product, as in a layer's gradient; ``form`` says which operands are transposed."""

    def make(dtype: torch.dtype) -> Call:
        a, b = torch.randn(rows, inner).to(dtype), torch.randn(inner, columns).to(dtype)
        left, right = _transposed(a, form[0]), _transposed(b, form[1])
        return lambda: torch.mm(left, right)

    size = f"{rows}x{inner}x{columns} {form}"
    return Problem("mm", size, models, _same(make), 2.0 * rows * inner * columns)


def addmm(rows: int, inner: int, columns: int, *models: str, added: str = "matrix") -> Problem:
    """A product added to a matrix, such as a residual, or to a row, as in GPT-2's layers."""

    def make(dtype: torch.dtype) -> Call:
        x = torch.randn(rows, inner).to(dtype)
        c = torch.randn((rows, columns) if added == "matrix" else columns).to(dtype)
        weights = _weights(rows, dtype, inner, columns)
        return lambda: torch.addmm(c, x, next(weights))

    return Problem(
        "addmm",
        f"{rows}x{inner}x{columns}" + " row" * (added == "row"),
        models,
        _same(make),
        2.0 * rows * inner * columns,
        _read(rows, inner * columns),
    )


def addmv(rows: int, inner: int, *models: str) -> Problem:
    """A matrix times a vector, plus a vector."""

    def make(dtype: torch.dtype) -> Call:
        vector, bias = torch.randn(inner).to(dtype), torch.randn(rows).to(dtype)
        matrices = _weights(1, dtype, rows, inner)
        return lambda: torch.addmv(bias, next(matrices), vector)

    return Problem(
        "addmv", f"{rows}x{inner}", models, _same(make), 2.0 * rows * inner, rows * inner
    )


def bmm(
    batch: int,
    rows: int,
    inner: int,
    columns: int,
    *models: str,
    form: str = "nn",
    repeated: bool = False,
) -> Problem:
    """A batch of matrix products; ``form`` says which operands are transposed.

    With ``repeated``, the right operand is one matrix that is expanded.
    """

    def make(dtype: torch.dtype) -> Call:
        a = torch.randn(batch, rows, inner).to(dtype)
        b = torch.randn(1 if repeated else batch, inner, columns).to(dtype)
        left, right = _transposed(a, form[0]), _transposed(b, form[1]).expand(batch, -1, -1)
        return lambda: torch.bmm(left, right)

    size = f"{batch}x{rows}x{inner}x{columns}" + f" {form}" * (form != "nn")
    size += " repeated" * repeated
    return Problem("bmm", size, models, _same(make), 2.0 * batch * rows * inner * columns)


def baddbmm(batch: int, rows: int, inner: int, columns: int, *models: str) -> Problem:
    """A batch of matrix products plus a mask, as in attention."""

    def make(dtype: torch.dtype) -> Call:
        a = torch.randn(batch, rows, inner).to(dtype)
        b = torch.randn(batch, columns, inner).to(dtype).transpose(1, 2)
        mask = torch.randn(batch, 1, columns).to(dtype)
        return lambda: torch.baddbmm(mask, a, b, alpha=0.125)

    size = f"{batch}x{rows}x{inner}x{columns}"
    return Problem("baddbmm", size, models, _same(make), 2.0 * batch * rows * inner * columns)


_CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)
_TRANSPOSES = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)


def convolution(
    channels: int,
    out: int,
    size: int | tuple[int, ...],
    kernel: int | tuple[int, ...],
    *models: str,
    batch: int = 1,
    stride: int = 1,
    groups: int = 1,
    padding: int | None = None,
    transposed: bool = False,
) -> Problem:
    """A convolution of images, one by default, which are square if ``size`` is a number.

    By default, the padding keeps the image's size if the stride is 1.
    """
    sizes = size if isinstance(size, tuple) else (size, size)
    kernels = kernel if isinstance(kernel, tuple) else (kernel,) * len(sizes)
    pads = tuple(k // 2 if padding is None else padding for k in kernels)
    function: Any = (_TRANSPOSES if transposed else _CONVOLUTIONS)[len(sizes) - 1]
    front, back = (channels, out) if transposed else (out, channels)

    def make(dtype: torch.dtype) -> Call:
        image = torch.randn(batch, channels, *sizes).to(dtype)
        weight = torch.randn(front, back // groups, *kernels).to(dtype)
        return lambda: function(image, weight, None, stride, pads, groups=groups)

    if transposed:
        places = math.prod(sizes)
    else:
        shape = zip(sizes, kernels, pads, strict=True)
        places = math.prod((s + 2 * p - k) // stride + 1 for s, k, p in shape)
    places *= batch

    def text_of(numbers: tuple[int, ...]) -> str:
        return "x".join(map(str, numbers if len(set(numbers)) > 1 else numbers[:1]))

    name = "conv transposed" if transposed else f"conv{len(sizes)}d"
    if not transposed and groups == channels:
        name = "conv depthwise"
    words = f"{channels}->{out} {'x'.join(map(str, sizes))} k{text_of(kernels)}"
    words += f" s{stride}" * (stride > 1) + f" g{groups}" * (1 < groups != channels)
    # One multiply-add for each output place and kernel value; a transposed convolution has one for
    # each input place and kernel value.
    flop = 2.0 * places * math.prod(kernels) * channels * out / groups
    # A depthwise convolution does so little with each value that moving the values takes longest.
    moved = 0 if name != "conv depthwise" else batch * channels * math.prod(sizes) + out * places
    words = f"{batch}x" * (batch > 1) + words
    return Problem(name, words, models, _same(make), flop, moved)


def attention(
    batch: int,
    heads: int,
    rows: int,
    keys: int,
    width: int,
    *models: str,
    causal: bool = False,
    key_heads: int | None = None,
) -> Problem:
    """Scaled dot-product attention on the usual views of (batch, tokens, features).

    ``key_heads`` is the number of heads of keys and values, if there are fewer than for queries.
    """
    key_heads = key_heads or heads
    numbers = 2 * batch * key_heads * keys * width

    def make(dtype: torch.dtype) -> Call:
        query = torch.randn(batch, rows, heads, width).to(dtype).transpose(1, 2)
        pairs = _weights(rows, dtype, 2, batch, keys, key_heads, width)

        def call() -> Tensor:
            key, value = next(pairs).transpose(2, 3).unbind()
            out: Tensor = F.scaled_dot_product_attention(
                query, key, value, is_causal=causal, enable_gqa=key_heads != heads
            )
            return out

        return call

    size = f"{batch}x{heads}x{rows}x{width}" + f" keys {keys}" * (keys != rows)
    size += f" key heads {key_heads}" * (key_heads != heads)
    flop = 4.0 * batch * heads * rows * keys * width / (2 if causal else 1)
    size += " causal" * causal
    return Problem("sdpa", size, models, _same(make), flop, _read(rows, numbers))


def elementwise(
    operator: str, function: Callable[[Tensor], Tensor], *shape_and_models: int | str
) -> Problem:
    """An operator with one input and an output of the same shape; both count as moved."""
    shape = tuple(one for one in shape_and_models if isinstance(one, int))
    models = tuple(one for one in shape_and_models if isinstance(one, str))

    def make(dtype: torch.dtype) -> Call:
        x = torch.randn(shape).to(dtype)
        return lambda: function(x)

    size = "x".join(map(str, shape))
    return Problem(operator, size, models, _same(make), values=2 * math.prod(shape))


def norm(operator: str, rows: int, width: int, *models: str) -> Problem:
    """A layer norm or an RMS norm with weights; its input and output count as moved."""

    def make(dtype: torch.dtype) -> Call:
        x, weight = torch.randn(rows, width).to(dtype), torch.randn(width).to(dtype)
        if operator == "rms_norm":
            return lambda: F.rms_norm(x, (width,), weight, 1e-6)
        bias = torch.randn(width).to(dtype)
        return lambda: F.layer_norm(x, (width,), weight, bias)

    return Problem(operator, f"{rows}x{width}", models, _same(make), values=2 * rows * width)


def batch_norm(
    channels: int, size: int, *models: str, batch: int = 1, training: bool = False
) -> Problem:
    """A batch norm of square images; with ``training``, forward and backward.

    The forward pass counts its input and output as moved. The backward pass counts the incoming
    and outgoing gradients and the input again.
    """

    def make(dtype: torch.dtype) -> Call:
        x, grad = torch.randn(2, batch, channels, size, size).to(dtype)
        weight, bias, mean, variance = torch.rand(4, channels)

        def forward_and_backward() -> Tensor:
            _, *own = torch.native_batch_norm(x, weight, bias, mean, variance, True, 0.1, 1e-5)
            result = torch.ops.aten.native_batch_norm_backward(
                grad, x, weight, mean, variance, *own, True, 1e-5, [True] * 3
            )
            out: Tensor = result[0]
            return out

        if training:
            return forward_and_backward
        return lambda: F.batch_norm(x, mean, variance, weight, bias)

    name = f"{batch}x{channels} {size}x{size}" + (" training" if training else "")
    moved = (5 if training else 2) * batch * channels * size**2
    return Problem("batch_norm", name, models, _same(make), values=moved)


def max_pool(
    channels: int, size: int, kernel: int, *models: str, batch: int = 1, stride: int, padding: int
) -> Problem:
    """A max pooling of square images; input, output and indices count as moved."""

    def make(dtype: torch.dtype) -> Call:
        x = torch.randn(batch, channels, size, size).to(dtype)
        return lambda: F.max_pool2d(x, kernel, stride, padding)

    out = (size + 2 * padding - kernel) // stride + 1
    name = f"{batch}x{channels} {size}x{size} k{kernel} s{stride}"
    # An index has eight bytes, as many as two float32 numbers.
    moved = batch * channels * (size**2 + 3 * out**2)
    return Problem("max_pool2d", name, models, _same(make), values=moved)


def embedding_bag(
    mode: str,
    rows: int,
    width: int,
    bags: int,
    lookups: int,
    *models: str,
    weighted: bool = False,
    padding: int | None = None,
) -> Problem:
    """Bags of random rows of a table; the rows that are looked up and the output count as moved."""

    def make(dtype: torch.dtype) -> Call:
        tables = cold(dtype, rows, width)
        ids = torch.randint(rows, (bags * lookups,))
        if mode == "rows":
            return lambda: F.embedding(ids, next(tables))
        offsets = torch.arange(0, bags * lookups, lookups)
        weights = torch.rand(bags * lookups).to(dtype) if weighted else None
        return lambda: F.embedding_bag(
            ids,
            next(tables),
            offsets,
            mode=mode,
            per_sample_weights=weights,
            padding_idx=padding,
        )

    operator = "embedding" if mode == "rows" else "embedding_bag"
    size = f"{bags}x{lookups} of {rows}x{width}" + f" {mode}" * (mode != "rows")
    size += " weighted" * weighted + f" padding {padding}" * (padding is not None)
    moved = (bags * lookups + bags) * width
    return Problem(operator, size, models, _same(make), values=moved)


def recurrent(
    kind: str, steps: int, batch: int, features: int, hidden: int, *models: str, layers: int = 1
) -> Problem:
    """An LSTM or a GRU on sequences of random numbers."""
    gates = {"LSTM": 4, "GRU": 3}[kind]

    def make(dtype: torch.dtype) -> Call:
        layer = getattr(nn, kind)(features, hidden, layers).to(dtype).eval()
        x = torch.randn(steps, batch, features).to(dtype)
        return lambda: layer(x)

    weights = features + hidden + (layers - 1) * 2 * hidden
    size = f"{steps} steps of {batch}, {features}->{hidden}" + f" {layers} layers" * (layers > 1)
    return Problem(kind, size, models, _same(make), 2.0 * steps * batch * gates * hidden * weights)


BERT, LARGE, VIT, RESNET = "bert-base", "bert-large", "vit", "resnet50"
MOBILE, LLAMA, GPT2, DLRM, OTHER = "mobilenet_v2", "llama-7b", "gpt2", "dlrm", "other"
MODELS = (BERT, LARGE, VIT, RESNET, MOBILE, LLAMA, GPT2, DLRM, OTHER)

#: Rows, inner size, columns, model. A sequence has 128 tokens, a ViT's 197; 1024 rows are eight
#: sequences.
_LINEAR: Sequence[tuple[int, int, int, str]] = (
    (1, 16, 16, OTHER),  # so small that only the overhead of a call is measured
    (2, 64, 64, OTHER),
    (4, 128, 128, OTHER),
    (2, 512, 512, OTHER),
    (4, 2048, 512, OTHER),
    (3, 512, 2048, OTHER),
    (1, 768, 768, BERT),
    (2, 768, 768, BERT),
    (8, 768, 3072, BERT),
    (128, 768, 768, BERT),
    (128, 768, 3072, BERT),
    (128, 3072, 768, BERT),
    (1024, 768, 768, BERT),
    (1024, 768, 3072, BERT),
    (1024, 3072, 768, BERT),
    (128, 1024, 1024, LARGE),
    (128, 1024, 4096, LARGE),
    (128, 4096, 1024, LARGE),
    (197, 768, 768, VIT),
    (197, 768, 3072, VIT),
    (197, 3072, 768, VIT),
    (1, 768, 1000, VIT),
    (1, 2048, 1000, RESNET),
    (16, 2048, 1000, RESNET),
    (1, 1280, 1000, MOBILE),
    (1, 4096, 4096, LLAMA),
    (1, 4096, 11008, LLAMA),
    (1, 11008, 4096, LLAMA),
    (2, 4096, 4096, LLAMA),
    (4, 4096, 11008, LLAMA),
    (8, 4096, 4096, LLAMA),
    (16, 4096, 4096, LLAMA),
    (16, 4096, 11008, LLAMA),
    (16, 11008, 4096, LLAMA),
    (128, 4096, 4096, LLAMA),
    (64, 512, 256, DLRM),
    (64, 479, 1024, DLRM),
    (64, 1024, 1024, DLRM),
    (2048, 13, 512, DLRM),
    (2048, 512, 256, DLRM),
    (2048, 479, 1024, DLRM),
    (2048, 1024, 1024, DLRM),
    (2048, 256, 1, DLRM),
)

#: ResNet-50's convolutions: channels, outputs, size, kernel, stride.
RESNET_CONVOLUTIONS: Sequence[tuple[int, int, int, int, int]] = (
    (3, 64, 224, 7, 2),
    (64, 64, 56, 1, 1),
    (64, 64, 56, 3, 1),
    (64, 256, 56, 1, 1),
    (256, 64, 56, 1, 1),
    (256, 128, 56, 1, 1),
    (128, 128, 56, 3, 2),
    (256, 512, 56, 1, 2),
    (128, 512, 28, 1, 1),
    (512, 128, 28, 1, 1),
    (128, 128, 28, 3, 1),
    (512, 256, 28, 1, 1),
    (256, 256, 28, 3, 2),
    (512, 1024, 28, 1, 2),
    (256, 1024, 14, 1, 1),
    (1024, 256, 14, 1, 1),
    (256, 256, 14, 3, 1),
    (1024, 512, 14, 1, 1),
    (512, 512, 14, 3, 2),
    (1024, 2048, 14, 1, 2),
    (512, 2048, 7, 1, 1),
    (2048, 512, 7, 1, 1),
    (512, 512, 7, 3, 1),
)

#: MobileNetV2's: channels, outputs, size, kernel, stride, groups.
_MOBILE: Sequence[tuple[int, int, int, int, int, int]] = (
    (3, 32, 224, 3, 2, 1),
    (32, 32, 112, 3, 1, 32),
    (96, 96, 112, 3, 2, 96),
    (144, 144, 56, 3, 1, 144),
    (144, 144, 56, 3, 2, 144),
    (192, 192, 28, 3, 1, 192),
    (384, 384, 14, 3, 1, 384),
    (576, 576, 14, 3, 2, 576),
    (960, 960, 7, 3, 1, 960),
    (16, 96, 112, 1, 1, 1),
    (96, 24, 56, 1, 1, 1),
    (384, 64, 14, 1, 1, 1),
    (320, 1280, 7, 1, 1, 1),
)


def _gelu_tanh(x: Tensor) -> Tensor:
    out: Tensor = F.gelu(x, approximate="tanh")
    return out


def _softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def _softmax_of_columns(x: Tensor) -> Tensor:
    return torch.softmax(x, 1)


def _bernoulli(x: Tensor) -> Tensor:
    return x.bernoulli_(0.9)


def _log_softmax(x: Tensor) -> Tensor:
    return torch.log_softmax(x, -1)


#: Convolutions of images with few points, as in the last layers of a network for small images and
#: in speech detectors: batch, channels, outputs, size, kernel, stride.
_FEW_POINTS: Sequence[tuple[int, int, int, int | tuple[int, ...], int, int]] = (
    (1, 64, 64, (2,), 3, 2),
    (1, 128, 64, (1,), 3, 1),
    (1, 129, 128, (4,), 3, 1),
    (1, 128, 64, (4,), 3, 2),
    (1, 64, 64, (8,), 3, 1),
    (1, 1, 258, (640,), 256, 128),
    (1, 16, 32, (100,), 5, 1),
    (1, 256, 256, (16,), 5, 1),
    (8, 64, 64, (2,), 3, 2),
    (1, 512, 512, 1, 3, 1),
    (1, 512, 512, 2, 3, 1),
    (1, 256, 512, 4, 3, 2),
    (1, 256, 256, 2, 3, 1),
    (1, 256, 256, 4, 3, 1),
    (1, 256, 256, 5, 3, 1),
    (1, 128, 128, 4, 3, 1),
    (1, 128, 128, 6, 3, 1),
    (1, 64, 64, 8, 3, 1),
    (1, 64, 128, 8, 3, 2),
    (1, 64, 128, 8, 1, 2),
    (1, 256, 512, 2, 1, 2),
    (1, 512, 512, 1, 1, 1),
    (1, 3, 64, 32, 7, 2),
    (1, 8, 8, 4, 3, 1),
    (1, 3, 16, 16, 3, 1),
    (2, 512, 512, 1, 3, 1),
    (4, 256, 256, 2, 3, 1),
    (8, 256, 256, 4, 3, 1),
    (2, 16, 16, 4, 3, 1),
    (1, 32, 32, (2, 4, 4), 3, 1),
    (1, 64, 64, (1, 2, 2), 3, 1),
)

#: Batches of tiny matrices: batch, rows, inner size, columns.
_TINY_PRODUCTS: Sequence[tuple[int, int, int, int, str]] = (
    (2, 4, 4, 4, OTHER),
    (16, 4, 4, 4, OTHER),
    (64, 3, 3, 3, OTHER),
    (8, 8, 8, 8, OTHER),
    (64, 16, 16, 16, OTHER),
    (1, 16, 64, 64, OTHER),
    (4, 2, 64, 64, OTHER),
)

PROBLEMS: Sequence[Problem] = (
    *itertools.starmap(linear, _LINEAR),
    *(
        packed(*row)
        for row in _LINEAR
        if row[0] >= 64 or row[3] == LLAMA  # sizes at which users pack weights
    ),
    mm(128, 768, 3072, "nn", BERT),
    mm(768, 1024, 3072, "tn", BERT),  # the gradient of a weight, batch 8
    mm(1024, 3072, 768, "nn", BERT),  # the gradient of an input
    mm(1024, 768, 768, "nt", BERT),
    mm(8, 8, 8, "nn", OTHER),
    addmm(128, 768, 768, BERT),
    addmm(1024, 3072, 768, BERT),
    # Each row is a token of a different text; the larger widths are those of gpt2-medium.
    addmm(4, 768, 768, GPT2, added="row"),
    addmm(8, 768, 3072, GPT2, added="row"),
    addmm(16, 3072, 768, GPT2, added="row"),
    addmm(24, 768, 2304, GPT2, added="row"),
    addmm(32, 1024, 1024, GPT2, added="row"),
    addmm(48, 1024, 4096, GPT2, added="row"),
    addmm(256, 768, 3072, GPT2, added="row"),
    addmv(768, 768, BERT),
    addmv(4096, 4096, LLAMA),
    addmv(4096, 11008, LLAMA),
    bmm(12, 128, 64, 128, BERT),
    bmm(12, 128, 64, 128, BERT, form="nt"),  # queries and keys
    bmm(12, 128, 128, 64, BERT),
    bmm(12, 128, 128, 64, BERT, form="tn"),  # their gradients
    bmm(96, 128, 64, 128, BERT),
    bmm(16, 128, 64, 128, LARGE),
    bmm(12, 197, 64, 197, VIT),
    bmm(12, 197, 197, 64, VIT),
    bmm(32, 1, 128, 1024, LLAMA),
    bmm(64, 27, 128, 27, DLRM),
    bmm(2048, 27, 128, 27, DLRM),
    bmm(2048, 27, 128, 27, DLRM, form="nt"),
    *itertools.starmap(bmm, _TINY_PRODUCTS),
    bmm(128, 1, 2048, 2048, OTHER, repeated=True),
    bmm(16, 8, 512, 512, OTHER, repeated=True),
    bmm(4, 64, 256, 64, OTHER, repeated=True),
    baddbmm(12, 128, 64, 128, BERT),
    baddbmm(12, 197, 64, 197, VIT),
    *(convolution(c, o, n, k, RESNET, stride=s) for c, o, n, k, s in RESNET_CONVOLUTIONS),
    *(convolution(c, o, n, k, MOBILE, stride=s, groups=g) for c, o, n, k, s, g in _MOBILE),
    convolution(3, 768, 224, 16, VIT, stride=16, padding=0),
    convolution(80, 384, (3000,), 3, OTHER),  # the first layer of a speech encoder
    convolution(512, 512, (800,), 3, OTHER, stride=2, padding=0),
    convolution(3, 45, (16, 112, 112), (1, 7, 7), OTHER, stride=2),  # first layer, video network
    convolution(64, 64, (8, 28, 28), 3, OTHER),
    *(convolution(c, o, n, k, OTHER, batch=b, stride=s) for b, c, o, n, k, s in _FEW_POINTS),
    convolution(64, 64, 4, 3, OTHER, groups=4),
    convolution(64, 64, 4, 3, OTHER, groups=64),
    convolution(256, 128, 1, 4, OTHER, stride=2, padding=1, transposed=True),
    convolution(256, 128, 4, 4, OTHER, stride=2, padding=1, transposed=True),
    convolution(64, 32, (8,), 4, OTHER, stride=2, padding=1, transposed=True),
    convolution(256, 128, 28, 2, OTHER, stride=2, padding=0, transposed=True),  # a U-Net's
    convolution(128, 64, 32, 4, OTHER, stride=2, padding=1, transposed=True),  # a generator's
    attention(1, 12, 128, 128, 64, BERT),
    attention(8, 12, 128, 128, 64, BERT),
    attention(1, 16, 128, 128, 64, LARGE),
    attention(1, 12, 197, 197, 64, VIT),
    attention(1, 32, 512, 512, 128, LLAMA, causal=True),
    attention(1, 32, 1, 1024, 128, LLAMA),
    attention(1, 32, 512, 512, 128, LLAMA, causal=True, key_heads=8),
    attention(1, 32, 1, 1024, 128, LLAMA, key_heads=8),
    attention(1, 8, 1, 1, 64, OTHER),
    attention(1, 8, 1, 16, 64, OTHER),
    attention(1, 1, 4, 4, 16, OTHER),
    attention(1, 12, 8, 8, 64, OTHER),
    max_pool(64, 112, 3, RESNET, stride=2, padding=1),
    max_pool(64, 112, 3, RESNET, batch=16, stride=2, padding=1),
    max_pool(256, 28, 2, OTHER, stride=2, padding=0),
    max_pool(16, 4, 2, OTHER, stride=2, padding=0),
    max_pool(64, 16, 3, OTHER, stride=2, padding=1),
    batch_norm(64, 112, RESNET),
    batch_norm(256, 56, RESNET),
    batch_norm(2048, 7, RESNET),
    batch_norm(96, 56, MOBILE),
    batch_norm(512, 1, OTHER),
    batch_norm(64, 4, OTHER),
    batch_norm(64, 112, RESNET, batch=16, training=True),
    batch_norm(256, 56, RESNET, batch=16, training=True),
    batch_norm(2048, 7, RESNET, batch=16, training=True),
    norm("layer_norm", 128, 768, BERT),
    norm("layer_norm", 1024, 768, BERT),
    norm("layer_norm", 128, 1024, LARGE),
    norm("layer_norm", 197, 768, VIT),
    norm("layer_norm", 1, 64, OTHER),
    norm("layer_norm", 1, 768, OTHER),
    norm("layer_norm", 4, 256, OTHER),
    norm("rms_norm", 1, 64, OTHER),
    norm("rms_norm", 1, 4096, LLAMA),
    norm("rms_norm", 128, 4096, LLAMA),
    elementwise("gelu", F.gelu, 1, 64, OTHER),
    elementwise("gelu", F.gelu, 128, 3072, BERT),
    elementwise("gelu", F.gelu, 1024, 3072, BERT),
    elementwise("gelu", F.gelu, 128, 4096, LARGE),
    elementwise("gelu", F.gelu, 197, 3072, VIT),
    elementwise("gelu tanh", _gelu_tanh, 128, 3072, OTHER),
    elementwise("gelu tanh", _gelu_tanh, 1, 64, OTHER),
    elementwise("silu", F.silu, 1, 64, OTHER),
    elementwise("sigmoid", torch.sigmoid, 1, 64, OTHER),
    elementwise("tanh", torch.tanh, 1, 64, OTHER),
    elementwise("softmax", _softmax, 1, 10, OTHER),
    elementwise("softmax", _softmax, 4, 64, OTHER),
    elementwise("softmax of columns", _softmax_of_columns, 1, 8, 16, OTHER),
    elementwise("log_softmax", _log_softmax, 1, 10, OTHER),
    elementwise("silu", F.silu, 1, 11008, LLAMA),
    elementwise("silu", F.silu, 128, 11008, LLAMA),
    elementwise("sigmoid", torch.sigmoid, 2048, 1024, OTHER),
    elementwise("tanh", torch.tanh, 8, 768, BERT),
    elementwise("tanh", torch.tanh, 2048, 1024, OTHER),
    elementwise("bernoulli", _bernoulli, 1024, 768, BERT),  # dropout in training
    elementwise("softmax", _softmax, 12, 128, 128, BERT),
    elementwise("softmax", _softmax, 12, 197, 197, VIT),
    elementwise("softmax", _softmax, 1, 1000, RESNET, VIT, MOBILE),
    elementwise("softmax", _softmax, 1, 32000, LLAMA),
    elementwise("softmax", _softmax, 32, 1, 1024, LLAMA),
    elementwise("softmax of columns", _softmax_of_columns, 8, 21, 4096, OTHER),  # segmentation
    elementwise("log_softmax", _log_softmax, 128, 30522, BERT),
    elementwise("log_softmax", _log_softmax, 16, 1000, RESNET),
    embedding_bag("sum", 200_000, 128, 64, 1, DLRM),
    embedding_bag("sum", 200_000, 128, 2048, 1, DLRM),
    embedding_bag("sum", 200_000, 128, 2048, 20, DLRM),
    embedding_bag("sum", 200_000, 128, 2048, 20, DLRM, weighted=True),
    embedding_bag("sum", 200_000, 128, 2048, 20, DLRM, padding=0),
    embedding_bag("mean", 200_000, 128, 2048, 20, DLRM),
    embedding_bag("max", 200_000, 128, 2048, 20, DLRM),
    embedding_bag("rows", 30_522, 768, 128, 1, BERT),
    recurrent("LSTM", 1, 1, 16, 16, OTHER),
    recurrent("LSTM", 1, 1, 128, 128, OTHER),
    recurrent("LSTM", 1, 1, 512, 512, OTHER),
    recurrent("LSTM", 1, 8, 256, 256, OTHER),
    recurrent("GRU", 1, 1, 16, 16, OTHER),
    recurrent("GRU", 1, 1, 128, 128, OTHER),
    recurrent("GRU", 1, 1, 512, 512, OTHER),
    recurrent("LSTM", 32, 1, 128, 256, OTHER),
    recurrent("LSTM", 50, 16, 512, 512, OTHER, layers=2),
    recurrent("GRU", 32, 1, 128, 256, OTHER),
    recurrent("GRU", 50, 16, 512, 512, OTHER, layers=2),
)
