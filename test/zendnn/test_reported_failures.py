"""Failures that users reported of upstream's own pass, and real architectures, in plans."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .common import DTYPES, PRIMITIVE_DTYPES, stock, values
from .support.frozen import assert_right, optimised, scripted, settled, traced
from .support.models import MODELS, assert_plans_ran, regions

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]

MAKERS = {"traced": traced, "scripted": scripted}


@pytest.fixture(autouse=True)
def quickly_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Implementations are timed only briefly, since the nets are many and small."""
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "0.05")


def check(
    net: nn.Module,
    *inputs: Tensor,
    makers: tuple[str, ...] = ("traced", "scripted"),
    ran: bool = True,
) -> None:
    """Optimise a net for the first input, and check it on all inputs, more than once."""
    net = net.eval()
    for maker in makers:
        module = optimised(MAKERS[maker](net, inputs[0]))
        with torch.no_grad():
            for _ in range(3):
                for x in inputs:
                    assert_right(module(x), net, x)
        if ran:
            assert_plans_ran(module, len(inputs))


# Reports.


@pytest.mark.parametrize("shape", [(4, 16), (1, 16), (4, 16, 9)], ids=str)
def test_batch_norm_over_one_dimension_after_a_layer(shape: tuple[int, ...]) -> None:
    """pytorch#61223: the pass accepted it, but the operator refused it at run time."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 8) if len(shape) == 2 else nn.Conv1d(16, 8, 3)
            self.norm = settled(nn.BatchNorm1d(8))

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.norm(F.relu(self.layer(x)))
            return out

    check(Net(), values(*shape), values(7, *shape[1:]))


@pytest.mark.parametrize("norm", [nn.BatchNorm1d, nn.InstanceNorm1d])
def test_norms_of_inputs_over_one_dimension(norm: Callable[[int], nn.Module]) -> None:
    check(nn.Sequential(norm(16), nn.Conv1d(16, 4, 3), norm(4)), values(2, 16, 9), values(1, 16, 5))


@pytest.mark.parametrize("factor", [2.0, -0.5, 0.0, 1e4])
def test_a_product_with_a_constant_and_a_clip(factor: float) -> None:
    """pytorch#86527: the results were wrong."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 1)
            self.factor = factor

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            return torch.clamp(y * self.factor, -1, 1) + torch.clip(y, max=0.25) * self.factor

    check(Net(), values(2, 3, 8, 8), values(1, 3, 5, 7))


def test_products_and_clips_of_tensors_and_numbers_in_any_order() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(12, 12)
            self.register_buffer("scale", torch.linspace(-2, 2, 12))

        def forward(self, x: Tensor) -> Tensor:
            y = torch.clamp(self.linear(x), min=-0.5) * self.scale
            y = torch.clamp(0.5 * y, min=0.0, max=6.0) - 3.0
            return (1.0 - y).clamp(-2.0, 2.0) / 4.0 * self.scale.abs()

    check(Net(), values(5, 12), values(2, 3, 12))


def test_one_value_times_several_numbers() -> None:
    """The first product must not overwrite the value, which the second still reads."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(8, 8, 1, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x) * 4
            return y * 4 + y * 5.0

    check(Net(), values(1, 8, 8, 8), values(3, 8, 5, 7))


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("ceil", [False, True])
def test_a_convolution_before_an_average_pool(padding: int, ceil: bool) -> None:
    """pytorch#86535: a crash. Pools with ceil_mode may fall back to torch."""
    net = nn.Sequential(
        nn.Conv2d(3, 10, 3),
        nn.AvgPool2d(3, stride=2, padding=padding, ceil_mode=ceil),
        nn.Conv2d(10, 4, 1),
    )
    check(net, values(1, 3, 16, 16), values(3, 3, 9, 13))


@pytest.mark.parametrize("size", [1, 2, 4, 5])
def test_a_convolution_before_an_adaptive_pool(size: int) -> None:
    """Windows of equal size are pooled by ZenDNN, others by torch within the plan."""
    net = nn.Sequential(nn.Conv2d(3, 17, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(size))
    check(net, values(2, 3, 8, 8), values(1, 3, 20, 12))


def test_a_convolution_whose_bias_or_weight_is_a_buffer() -> None:
    class Blur(nn.Module):
        """One kernel expanded to all channels: its elements share memory."""

        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 6, 3, padding=1)
            kernel = torch.tensor([1.0, 2.0, 1.0])
            self.register_buffer("kernel", (kernel[:, None] * kernel / 16).expand(6, 1, 3, 3))

        def forward(self, x: Tensor) -> Tensor:
            return F.conv2d(F.relu(self.conv(x)), self.kernel, stride=2, padding=1, groups=6)

    check(Blur(), values(2, 3, 9, 9), values(1, 3, 6, 7), ran=False)


def test_layers_that_share_weights() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(30, 16)
            self.mix = nn.Linear(16, 16)
            self.out = nn.Linear(16, 30, bias=False)
            self.out.weight = self.table.weight

        def forward(self, ids: Tensor) -> Tensor:
            x = self.table(ids)
            out: Tensor = self.out(F.gelu(self.mix(self.mix(x))))
            return out

    check(Tied(), torch.randint(30, (2, 7)), torch.randint(30, (5, 1)))


def test_squeeze_and_excitation() -> None:
    class Squeeze(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 16, 3, padding=1)
            self.down, self.up = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)

        def forward(self, x: Tensor) -> Tensor:
            y = F.hardswish(self.conv(x))
            gate = F.hardsigmoid(self.up(F.relu(self.down(F.adaptive_avg_pool2d(y, 1)))))
            return y * gate + y

    check(Squeeze(), values(2, 3, 12, 12), values(1, 3, 7, 9))


def test_shuffled_channels() -> None:
    class Shuffle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(16, 16, 1)
            self.second = nn.Conv2d(16, 16, 3, padding=1, groups=16)

        def forward(self, x: Tensor) -> Tensor:
            left, right = x.chunk(2, 1)
            y = torch.cat((left, F.relu(self.first(x)[:, :8] + right)), 1)
            n, c, h, w = y.shape
            y = y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
            return self.second(y) - y

    check(Shuffle(), values(2, 16, 6, 6), values(1, 16, 5, 7))


def test_differences_of_neighbours() -> None:
    class Differences(nn.Module):
        """Several views of one value."""

        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(16, 16), nn.Linear(16, 16)

        def forward(self, x: Tensor) -> Tensor:
            y = F.relu(self.one(x))
            steps = self.two(F.relu(y[1:] - y[:-1]) + y[:-1])
            return F.relu(steps - steps[:1]) * self.two(y[1:] - y[:1])

    check(Differences(), values(9, 16), values(4, 5, 16))


def test_a_class_token_that_is_the_same_for_the_whole_batch() -> None:
    class Token(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Parameter(torch.randn(1, 1, 16))
            self.mix, self.out = nn.Linear(16, 16), nn.Linear(16, 16)

        def forward(self, x: Tensor) -> Tensor:
            token = self.mix(self.token.expand(x.size(0), -1, -1) + 0 * x[:1, :1])
            first = torch.relu(x[:1, :1]).expand(x.size(0), 1, 16)
            return self.out(torch.cat((token, self.mix(first), x), 1))

    check(Token(), values(4, 3, 16), values(2, 5, 16))


# Architectures.


@pytest.mark.parametrize("name", MODELS)
def test_real_architectures_are_right_and_run_in_plans(name: str) -> None:
    """Traced with one batch; run with it and with others; the fallback gives stock's bits."""
    model = MODELS[name]
    net, example = model.build(), model.inputs(2, 12)
    with torch.no_grad():
        module = optimised(torch.jit.trace(net, example, check_trace=False))
        frozen = torch.jit.freeze(torch.jit.trace(net, example, check_trace=False))
        for _ in range(2):
            for x in (example, model.inputs(2, 12)):
                with stock():
                    want = net(x)
                    exact = net.double()(x.double() if x.is_floating_point() else x)
                    net.float()
                got = module(x)
                assert (got.dtype, got.shape) == (want.dtype, want.shape)
                error = (got.double() - exact).abs().max()
                theirs = (want.double() - exact).abs().max()
                assert error <= max(4 * theirs, 1e-5 * exact.abs().max()), (error, theirs)
        assert_plans_ran(module)
        if model.attentions is not None:
            assert len(regions(module)) == 1
            assert operators(module).count("attention") == model.attentions
        with stock():
            torch.testing.assert_close(module(example), frozen(example), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "vit", "resnet"])
def test_other_batches_and_lengths_match_the_stock_trace(name: str) -> None:
    """The results and errors equal those of the same trace on stock torch."""
    model = MODELS[name]
    net, example = model.build(), model.inputs(2, 12)
    with torch.no_grad():
        trace = torch.jit.trace(net, example, check_trace=False)
        frozen = torch.jit.freeze(trace)
        module = optimised(trace)
        for batch, size in ((1, 12), (3, 12), (2, 7)):
            x = model.inputs(batch, size)
            try:
                with stock():
                    want = frozen(x)
            except RuntimeError:
                with pytest.raises(RuntimeError):
                    module(x)
                continue
            got = module(x)
            assert got.shape == want.shape
            assert (got - want).abs().max() <= 2e-5 * want.abs().max()


# Attention as models write it.


def operators(module: torch.jit.ScriptModule) -> list[str]:
    """The engine's operators in the regions of a module."""
    return [operator.name for region in regions(module) for operator in region.operators]


def check_spelled(
    net: nn.Module, *inputs: Tensor, attentions: int = 1, tolerance: float = 1e-5
) -> None:
    """Check that a net runs in one region, with these attentions and no separate products."""
    net = net.eval()
    with torch.no_grad():
        module = optimised(torch.jit.trace(net, inputs, check_trace=False))
        for _ in range(2):
            with stock():
                want = net(*inputs)
            got = module(*inputs)
            assert got.dtype == want.dtype
            torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
    assert_plans_ran(module)
    assert len(regions(module)) == 1
    assert operators(module).count("attention") == attentions
    assert not {"softmax", "matmul"}.intersection(operators(module))


#: bfloat16 is rounded at other places than in torch.
TOLERANCES = {torch.float32: 2e-5, torch.bfloat16: 5e-2}


class Spelled(nn.Module):
    """Attention between linear layers; a function computes its weights from scores."""

    def __init__(self, weigh: Callable[..., Tensor], fold: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.weigh, self.fold = weigh, fold

    def forward(self, x: Tensor, *masks: Tensor) -> Tensor:
        n, length, _ = x.shape
        parts = self.qkv(x).view(n, length, 3, 4, 8).permute(2, 0, 3, 1, 4)
        q, k, v = parts[0], parts[1], parts[2]
        if self.fold:
            q, k, v = (part.reshape(n * 4, length, 8) for part in (q, k, v))
        y = torch.matmul(self.weigh(q, k, *masks), v)
        y = y.view(n, 4, length, 8).transpose(1, 2).reshape(n, length, 32)
        out: Tensor = self.out(y)
        return out


def low(x: Tensor) -> float:
    return torch.finfo(x.dtype).min


def distilbert(q: Tensor, k: Tensor, seen: Tensor) -> Tensor:
    scores = q / 8**0.5 @ k.transpose(2, 3)
    hidden = (seen == 0).expand_as(scores)
    return scores.masked_fill(hidden, torch.tensor(low(q))).softmax(-1)


CAUSAL = torch.ones(1, 1, 16, 16, dtype=torch.bool).tril()

SPELLED: dict[str, Callable[..., Tensor]] = {
    "distilbert": distilbert,
    "gpt2": lambda q, k: torch.where(
        CAUSAL[:, :, : q.size(-2), : k.size(-2)],
        q @ k.transpose(-1, -2) / 8**0.5,
        torch.full([], low(q), dtype=q.dtype),
    ).softmax(-1),
    "gpt2 with a scale that is made of a size": lambda q, k: torch.where(
        CAUSAL[:, :, : q.size(-2), : k.size(-2)],
        q @ k.transpose(-1, -2) / torch.full([], k.size(-1) ** 0.5, dtype=q.dtype),
        low(q),
    ).softmax(-1),
    "gpt2 with padding": lambda q, k, seen: (
        torch.where(
            CAUSAL[:, :, : q.size(-2), : k.size(-2)],
            q @ k.transpose(-1, -2) / 8**0.5,
            low(q),
        )
        + (1.0 - seen.float().to(q.dtype)) * low(q)
    ).softmax(-1),
    "vit": lambda q, k: F.softmax(
        q @ k.transpose(-1, -2) * 8**-0.5, dim=-1, dtype=torch.float32
    ).to(q.dtype),
    "infinite": lambda q, k, seen: (
        (q @ k.transpose(-1, -2)).masked_fill(seen == 0, float("-inf")).softmax(-1)
    ),
    "two masks": lambda q, k, seen: (
        q @ k.transpose(-2, -1)
        + seen.float().to(q.dtype) * 0.25
        + CAUSAL[0, 0, : q.size(-2), : k.size(-2)].float().to(q.dtype) * 0.5
    ).softmax(-1),
}


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("name", SPELLED)
def test_attention_is_one_step_in_any_spelling(name: str, dtype: torch.dtype) -> None:
    seen = torch.ones(3, 1, 1, 7, dtype=torch.int64)
    seen[0, ..., 5:] = 0
    seen[1] = 0  # gives NaN or equal weights
    masks = [seen] if "seen" in inspect.signature(SPELLED[name]).parameters else []
    net = Spelled(SPELLED[name]).to(dtype)
    check_spelled(net, values(3, 7, 32, dtype=dtype), *masks, tolerance=TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
def test_attention_with_heads_folded_into_the_batch(dtype: torch.dtype) -> None:
    bias = values(12, 7, 7, dtype=dtype, seed=3)
    for weigh in (
        lambda q, k: torch.bmm(q, k.transpose(1, 2)).softmax(-1),
        lambda q, k: torch.baddbmm(bias, q, k.transpose(-2, -1)).softmax(2),
    ):
        net = Spelled(weigh, fold=True).to(dtype)
        check_spelled(net, values(3, 7, 32, dtype=dtype), tolerance=TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_that_are_returned_keep_their_products(dtype: torch.dtype) -> None:
    class Weights(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            weights = (x @ x.transpose(-1, -2)).softmax(-1)
            return weights @ x, weights

    x = values(2, 3, 5, 8, dtype=dtype)
    module = optimised(traced(Weights().eval(), x))
    for ours, theirs in zip(module(x), Weights()(x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])
    assert "attention" not in operators(module)


# Layers that torch runs as one operator in inference.


class Alone(nn.Module):
    """A layer's attention; returns no weights."""

    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True, bias=bias)

    def forward(
        self, x: Tensor, padding: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        out: Tensor = self.attention(x, x, x, padding, attn_mask=mask, need_weights=False)[0]
        return out


def shaken(net: nn.Module) -> nn.Module:
    """The net with non-trivial biases and norms."""
    torch.manual_seed(1)
    for parameter in net.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, mean=float(parameter.mean()), std=0.2)
    return net.eval()


PADDING = torch.zeros(3, 7, dtype=torch.bool)
PADDING[0, 4:] = True
PADDING[2] = True  # gives NaN
LATER = torch.ones(7, 7, dtype=torch.bool).triu(1)


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize(
    "masks", [(), (PADDING,), (PADDING, LATER), (PADDING, LATER.expand(12, 7, 7))], ids=len
)
def test_multi_head_attention_is_decomposed(masks: tuple[Tensor, ...], dtype: torch.dtype) -> None:
    net = shaken(Alone()).to(dtype)
    check_spelled(net, values(3, 7, 32, dtype=dtype), *masks, tolerance=TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layers_are_decomposed(
    activation: str, norm_first: bool, dtype: torch.dtype
) -> None:
    layer = nn.TransformerEncoderLayer(
        32, 4, 48, batch_first=True, activation=activation, norm_first=norm_first
    )
    net = shaken(nn.Sequential(layer, layer)).to(dtype)
    check_spelled(net, values(3, 7, 32, dtype=dtype), attentions=2, tolerance=TOLERANCES[dtype])


class Encoder(nn.Module):
    def __init__(self, nested: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 48, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        out: Tensor = self.encoder(x, src_key_padding_mask=padding)
        return out


def test_an_encoder_with_padding_runs_in_one_region() -> None:
    check_spelled(shaken(Encoder(False)), values(3, 7, 32), PADDING, attentions=2)


def test_an_encoder_of_nested_tensors_is_right() -> None:
    net, inputs = shaken(Encoder(True)), (values(3, 7, 32), PADDING)
    with torch.no_grad():
        module = optimised(torch.jit.trace(net, inputs, check_trace=False))
        for _ in range(2):
            torch.testing.assert_close(
                module(*inputs), net(*inputs), rtol=1e-5, atol=1e-5, equal_nan=True
            )


@pytest.mark.parametrize("used", ["weights", "averages"])
def test_multi_head_attention_whose_weights_are_used_is_right(used: str) -> None:
    class Weights(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(32, 4, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            y, weights = self.attention(x, x, x, average_attn_weights=used == "averages")
            return y.sum() + (weights * weights).sum(-1)

    net, x = shaken(Weights()), values(3, 7, 32)
    with torch.no_grad():
        module = optimised(traced(net, x))
        torch.testing.assert_close(module(x), net(x), rtol=1e-4, atol=1e-5)


class VisionTransformer(nn.Module):
    """As in torchvision: patches, a class token, and layers around nn.MultiheadAttention."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 8, stride=8)
        self.token = nn.Parameter(torch.randn(1, 1, 32))
        self.places = nn.Parameter(torch.randn(1, 17, 32))
        self.layers = nn.ModuleList(self._layer() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 10)

    @staticmethod
    def _layer() -> nn.ModuleDict:
        feed = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Dropout(), nn.Linear(64, 32))
        attention = nn.MultiheadAttention(32, 4, batch_first=True)
        return nn.ModuleDict(
            {"one": nn.LayerNorm(32), "mix": attention, "two": nn.LayerNorm(32), "feed": feed}
        )

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        x = self.patches(x).reshape(n, 32, 16).permute(0, 2, 1)
        x = torch.cat([self.token.expand(n, -1, -1), x], dim=1) + self.places
        for layer in self.layers:
            y = layer["one"](x)
            y, _ = layer["mix"](y, y, y, need_weights=False)
            x = x + y
            x = x + layer["feed"](layer["two"](x))
        out: Tensor = self.head(self.norm(x)[:, 0])
        return out


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
def test_a_vision_transformer_with_torchs_attention(dtype: torch.dtype) -> None:
    net = shaken(VisionTransformer()).to(dtype)
    check_spelled(net, values(2, 3, 32, 32, dtype=dtype), attentions=2, tolerance=TOLERANCES[dtype])


# Norms and sizes.


class RmsNorm(nn.Module):
    """RMS norm as several model families write it."""

    def __init__(self, family: str) -> None:
        super().__init__()
        self.weight, self.family = nn.Parameter(torch.linspace(0.5, 1.5, 32)), family

    def forward(self, x: Tensor) -> Tensor:
        if self.family == "torch":
            return F.rms_norm(x, (32,), self.weight)
        wide = x.to(torch.float32)
        root = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        if self.family == "llama":
            return self.weight * (wide * root).to(x.dtype)
        y = x * root
        if self.weight.dtype == torch.bfloat16:
            y = y.to(self.weight.dtype)
        return self.weight * y


class Residuals(nn.Module):
    """Layers before norms that add a residual."""

    def __init__(self, family: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.gate, self.down = nn.Linear(32, 48), nn.Linear(32, 48), nn.Linear(48, 32)
        self.one, self.two = RmsNorm(family), RmsNorm(family)

    def forward(self, x: Tensor) -> Tensor:
        y = self.one(x)
        x = x + self.down(F.silu(self.gate(y)) * self.up(y))
        out: Tensor = self.two(x)
        return out


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("family", ["torch", "llama", "t5"])
def test_rms_norms_are_one_step_each(family: str, dtype: torch.dtype) -> None:
    net = Residuals(family).eval().to(dtype)
    x = values(3, 7, 32, dtype=dtype)
    with torch.no_grad():
        module = optimised(traced(net, x))
        for _ in range(2):
            torch.testing.assert_close(
                module(x), net(x), rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype]
            )
    assert_plans_ran(module)
    assert len(regions(module)) == 1
    assert operators(module).count("rms_norm") == 2
    assert "mean" not in operators(module)
    # The input's dtype is unknown unless the norm converts back to it.
    assert operators(module).count("to") == (dtype == torch.float32 and family != "torch")


class Pyramid(nn.Module):
    """Downsampling, upsampling, concatenation with the input, and group norm."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.down = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, 2, 1)
        self.norms = nn.ModuleList([nn.GroupNorm(4, 16), nn.GroupNorm(8, 32)])
        self.last, self.mode = nn.Conv2d(48, 8, 3, padding=1), mode

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.norms[0](self.first(x)))
        y = F.silu(self.norms[1](self.down(x)))
        if self.mode == "factor":
            y = F.interpolate(y, scale_factor=2)
        elif self.mode == "nearest":
            y = F.interpolate(y, x.shape[2:])
        else:
            y = F.interpolate(
                y, size=x.shape[-2:], mode="bilinear", align_corners=self.mode == "corners"
            )
        out: Tensor = self.last(torch.cat([y, x], 1))
        return out


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("mode", ["factor", "nearest", "bilinear", "corners"])
def test_pyramids_run_in_one_region(mode: str, layout: torch.memory_format) -> None:
    net = Pyramid(mode).eval()
    inputs = [values(2, 3, 16, 12).contiguous(memory_format=layout), values(1, 3, 8, 20)]
    with torch.no_grad():
        module = optimised(traced(net, inputs[0]))
        for x in inputs * 2:
            torch.testing.assert_close(module(x), net(x), rtol=1e-4, atol=1e-5)
    assert_plans_ran(module, 2)
    assert len(regions(module)) == 1
    assert operators(module).count("resample") == 1
    assert operators(module).count("group_norm") == 2


# Recommenders.


class Recommender(nn.Module):
    """Bags with offsets from several tables, rows of others, and dense features."""

    def __init__(self, last: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.bags = nn.ModuleList(
            nn.EmbeddingBag(30 + i, 16, mode="sum", include_last_offset=last) for i in range(3)
        )
        self.rows = nn.ModuleList(nn.Embedding(20 + i, 16) for i in range(2))
        self.bottom, self.top = nn.Linear(5, 16), nn.Linear(96, 1)

    def forward(self, dense: Tensor, rows: Tensor, ids: Tensor, offsets: Tensor) -> Tensor:
        parts = [F.relu(self.bottom(dense))]
        parts += [bag(ids[i], offsets[i]) for i, bag in enumerate(self.bags)]
        parts += [table(rows[:, i]) for i, table in enumerate(self.rows)]
        out: Tensor = torch.sigmoid(self.top(torch.cat(parts, 1)))
        return out


@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
@pytest.mark.parametrize("last", [False, True])
def test_tables_with_offsets_and_tables_of_rows_are_two_steps(
    last: bool, kind: torch.dtype
) -> None:
    net = Recommender(last).eval()
    ids = torch.randint(30, (3, 12), dtype=kind)
    starts = torch.tensor([[0, 3, 3, 7], [0, 0, 5, 12], [0, 1, 2, 3]], dtype=kind)
    if last:
        starts = torch.cat([starts, torch.full((3, 1), 12, dtype=kind)], 1)
    inputs = (values(4, 5), torch.randint(20, (4, 2), dtype=kind), ids, starts)
    with torch.no_grad():
        module = optimised(torch.jit.trace(net, inputs, check_trace=False))
        for _ in range(2):
            torch.testing.assert_close(module(*inputs), net(*inputs), rtol=1e-5, atol=1e-6)
    assert_plans_ran(module)
    assert len(regions(module)) == 1
    assert operators(module).count("embedding_bags") == 2
    assert not {"embedding", "embedding_bag"}.intersection(operators(module))


# Results that were silently wrong.


class Layers(nn.Module):
    """Linear layers of one size, and a function of them."""

    def __init__(self, function: Callable[..., Any], *features: int, size: int = 64) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(size, count) for count in features)
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*self.layers, *inputs)


def scaled_attention(q: nn.Module, k: nn.Module, v: nn.Module, x: Tensor) -> Tensor:
    """Queries scaled before a view, and keys from a later stage."""
    queries = (q(x) * 0.125).unsqueeze(1)
    keys = torch.cumsum(k(x), 1).unsqueeze(1)
    return torch.softmax(queries @ keys.transpose(-1, -2), -1) @ v(x).unsqueeze(1)


def masked_attention(layer: nn.Module, x: Tensor, mask: Tensor) -> Tensor:
    """A boolean mask converted to numbers, which are added."""
    y = layer(x).unflatten(-1, (4, 16)).transpose(1, 2)
    return F.scaled_dot_product_attention(y, y, y, attn_mask=mask * 1.0)


def saturated(guard: Callable[[Tensor], Tensor]) -> Callable[[nn.Module, Tensor], Tensor]:
    """The logarithm of a sigmoid that is 0 in float32; ``guard`` keeps it finite."""
    return lambda layer, x: torch.log(guard(torch.sigmoid(layer(x) * 1e-3 - 120.0)))


ROWS = (2, 7, 64)
QUIET: dict[str, tuple[Layers, tuple[Tensor, ...]]] = {
    "the difference to a single feature": (
        Layers(lambda layer, x: torch.cumsum(x - layer(x), 1), 1),
        (values(*ROWS),),
    ),
    "queries that are scaled before a view": (
        Layers(scaled_attention, 64, 64, 64),
        (values(*ROWS),),
    ),
    "1e-8 more than a sigmoid": (Layers(saturated(lambda y: y + 1e-8), 8), (values(*ROWS),)),
    "1e-7 more than a sigmoid": (Layers(saturated(lambda y: y + 1e-7), 8), (values(*ROWS),)),
    "a sigmoid between bounds": (
        Layers(saturated(lambda y: y.clamp(1e-7, 1 - 1e-7)), 8),
        (values(*ROWS),),
    ),
    "a mask of numbers": (Layers(masked_attention, 64), (values(*ROWS), values(2, 1, 7, 7) > 0)),
    "a mask of products of booleans": (
        Layers(
            lambda layer, x, mask: F.scaled_dot_product_attention(
                torch.cumsum(layer(x), 1), x, x, attn_mask=(mask * mask) * 1.0
            ),
            64,
        ),
        (values(*ROWS), values(2, 7, 7) > 0),
    ),
    "a float32 number beside bfloat16": (
        Layers(lambda layer, x, n: (layer(x) * n, n.to(torch.bfloat16)), 8).to(torch.bfloat16),
        (values(*ROWS, dtype=torch.bfloat16), torch.tensor(2.5)),
    ),
    "a number that integers truncate": (
        Layers(lambda layer, x, n: layer(x) * torch.tensor(2.5).type_as(n), 8),
        (values(*ROWS), torch.tensor([3])),
    ),
    "a vector of weights": (
        Layers(lambda layer, other, x: F.linear(layer(x), other.weight[0]), 64, 64),
        (values(*ROWS),),
    ),
    "one bias for all features": (
        Layers(lambda a, b, x: [F.linear(x, layer.weight, a.bias[0]) for layer in (a, b)], 64, 64),
        (values(*ROWS),),
    ),
}


@pytest.mark.parametrize("name", QUIET)
def test_results_are_those_of_the_model(name: str) -> None:
    net, inputs = QUIET[name]
    with torch.no_grad():
        module = optimised(torch.jit.trace(net.eval(), inputs))
        for _ in range(3):
            tolerance = TOLERANCES[inputs[0].dtype]
            torch.testing.assert_close(
                module(*inputs), net(*inputs), rtol=tolerance, atol=tolerance
            )


class ReadAgain(nn.Module):
    """Reads an attribute again after a write to it."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(6, 6), nn.Linear(6, 6)
        self.register_buffer("kept", torch.zeros(4, 6))

    def forward(self, x: Tensor) -> Tensor:
        self.kept.copy_(self.before(torch.cumsum(x, 1)))
        out: Tensor = self.after(self.kept)
        return out


def test_an_attribute_is_read_again_after_it_is_written_to() -> None:
    check(ReadAgain(), values(4, 6), makers=("scripted",))


class JoinedWithItsInput(nn.Module):
    """A layer with few outputs, concatenated with its input."""

    def __init__(self, inputs: int, outputs: int, first: bool) -> None:
        super().__init__()
        self.layer, self.first = nn.Linear(inputs, outputs), first

    def forward(self, x: Tensor) -> Tensor:
        result = self.layer(x)
        return torch.cat([result, x] if self.first else [x, result], -1)


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("outputs", [1, 2, 3])
@pytest.mark.parametrize(("rows", "inputs"), [((1,), 3), ((2, 3), 17), ((11, 6, 6), 60), ((7,), 1)])
def test_few_columns_are_written_into_a_concatenation(
    rows: tuple[int, ...], inputs: int, outputs: int, first: bool, dtype: torch.dtype
) -> None:
    """The strides of one column with gaps look like those of a transposed matrix."""
    torch.manual_seed(0)
    net = JoinedWithItsInput(inputs, outputs, first).to(dtype).eval()
    x = values(*rows, inputs, dtype=dtype)
    with torch.no_grad():
        module = optimised(torch.jit.trace(net, x))
        result, tolerance = module(x), {torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
        exact = net.double()(x.double())
    torch.testing.assert_close(result.double(), exact, rtol=tolerance, atol=tolerance)


def test_logarithms_near_1_are_as_exact_as_torchs() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16, bias=False)
            nn.init.eye_(self.layer.weight)

        def forward(self, x: Tensor) -> Tensor:
            return torch.log(F.relu(self.layer(x)))

    x = 1 + torch.linspace(1e-3, 5e-2, 160).reshape(10, 16)
    with torch.no_grad():
        frozen = torch.jit.freeze(torch.jit.trace(Model().eval(), x))
        got = torch.jit.optimize_for_inference(frozen)(x)
    exact = x.double().log()
    assert ((got - exact) / exact).abs().max() < 1e-6
