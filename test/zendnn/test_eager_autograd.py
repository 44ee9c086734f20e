"""Training through the eager overrides: gradients, higher derivatives and losses match stock."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from test.drawing import property_test

from .common import (
    HAS_WIDE_VECTORS,
    PRIMITIVE_DTYPES,
    check_gradients,
    counting,
    gradients,
    layouts,
    of_products,
    rearranged,
    sizes,
    stock,
    values,
)

OPERATIONS: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "mm": (torch.mm, [(32, 48), (48, 40)]),
    "bmm": (torch.bmm, [(3, 32, 48), (3, 48, 40)]),
    "bmm of one matrix": (lambda a, b: torch.bmm(a, b.expand(6, 48, 40)), [(6, 8, 48), (48, 40)]),
    "bmm by one matrix": (lambda a, b: torch.bmm(a.expand(6, 8, 48), b), [(8, 48), (6, 48, 40)]),
    "bmm of one matrix each": (
        lambda a, b: torch.bmm(a.expand(6, 8, 48), b.expand(6, 48, 40)),
        [(8, 48), (48, 40)],
    ),
    "addmm": (torch.addmm, [(40,), (32, 48), (48, 40)]),
    "baddbmm": (torch.baddbmm, [(3, 32, 40), (3, 32, 48), (3, 48, 40)]),
    "linear": (F.linear, [(2, 16, 48), (40, 48), (40,)]),
    "conv1d": (F.conv1d, [(2, 8, 30), (12, 8, 3), (12,)]),
    "conv2d": (F.conv2d, [(2, 8, 14, 13), (12, 8, 3, 3), (12,)]),
    "conv3d": (F.conv3d, [(2, 4, 7, 8, 6), (8, 4, 3, 3, 3), (8,)]),
    "depthwise": (
        lambda x, w, b: F.conv2d(x, w, b, padding=1, groups=8),
        [(2, 8, 14, 13), (8, 1, 3, 3), (8,)],
    ),
    "conv_transpose2d": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2),
        [(2, 8, 7, 6), (8, 12, 3, 3), (12,)],
    ),
}

#: Operators that may fall back to torch, on any CPU or on this one.
LEFT_TO_TORCH = {
    "conv_transpose2d",
    *(name for name in OPERATIONS if not HAS_WIDE_VECTORS and ("mm" in name or name == "linear")),
}


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_gradients_are_right(name: str, dtype: torch.dtype) -> None:
    function, shapes = OPERATIONS[name]
    leaves = [values(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)]
    calls = check_gradients(function, *leaves)
    assert calls or name in LEFT_TO_TORCH


@of_products
def test_gradients_of_linear_are_right_for_any_shape_and_layout() -> None:
    total: Counter[str] = Counter()

    @property_test
    @given(m=sizes, k=sizes, n=sizes, left=layouts, right=layouts)
    def holds(m: int, k: int, n: int, left: str, right: str) -> None:
        def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
            return F.linear(rearranged(x, left), rearranged(weight, right), bias)

        leaves = values(m, k, seed=1), values(n, k, seed=2), values(n, seed=3)
        total.update(check_gradients(linear, *leaves))

    holds()
    assert total


def test_gradients_of_convolution_are_right_for_any_geometry() -> None:
    total: Counter[str] = Counter()

    @property_test
    @given(
        groups=st.sampled_from((1, 2, 4)),
        inner=st.integers(1, 9),
        outer=st.integers(1, 9),
        kernel=st.integers(1, 3),
        stride=st.integers(1, 2),
        padding=st.integers(0, 2),
        dilation=st.integers(1, 2),
        channels_last=st.booleans(),
    )
    def holds(
        groups: int,
        inner: int,
        outer: int,
        kernel: int,
        stride: int,
        padding: int,
        dilation: int,
        channels_last: bool,
    ) -> None:
        def convolve(image: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
            if channels_last:
                image = image.contiguous(memory_format=torch.channels_last)
            return F.conv2d(image, weight, bias, stride, padding, dilation, groups)

        leaves = (
            values(2, groups * inner, 9, 8, seed=1),
            values(groups * outer, inner, kernel, kernel, seed=2),
            values(groups * outer, seed=3),
        )
        total.update(check_gradients(convolve, *leaves))

    holds()
    assert total


@pytest.mark.parametrize(
    "frozen", [{0}, {1}, {2}, {0, 1}, {1, 2}], ids=lambda f: "-".join(map(str, sorted(f)))
)
@pytest.mark.parametrize("name", ["linear", "conv2d"])
def test_leaves_without_requires_grad_get_no_gradient(name: str, frozen: set[int]) -> None:
    function, shapes = OPERATIONS[name]
    leaves = [values(*shape, seed=i) for i, shape in enumerate(shapes)]
    want = gradients(function, *leaves)[1:]
    chosen = [leaf.requires_grad_(i not in frozen) for i, leaf in enumerate(leaves)]
    function(*chosen).sum().backward()
    for i, leaf in enumerate(chosen):
        if i in frozen:
            assert leaf.grad is None
        else:
            assert leaf.grad is not None
            torch.testing.assert_close(leaf.grad, want[i], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["mm", "bmm", "linear", "conv2d"])
def test_second_derivatives_are_right(name: str) -> None:
    function, shapes = OPERATIONS[name]

    def second(x: Tensor, weight: Tensor, *bias: Tensor) -> Tensor:
        first = torch.autograd.grad(
            function(x, weight, *bias).square().sum(), [x, weight], create_graph=True
        )
        return first[0].square().sum() * 1e-3 + first[1].square().sum() * 1e-3

    leaves = [values(*shape, seed=i) * 0.1 for i, shape in enumerate(shapes)]
    ours = gradients(second, *leaves)
    with stock():
        exact = gradients(second, *(leaf.double() for leaf in leaves))
    for our, true in zip(ours, exact, strict=True):
        scale = max(true.abs().max().item(), 1e-6)
        assert (our.double() - true).abs().max() <= 1e-5 * scale


@pytest.mark.parametrize("name", ["mm", "bmm", "addmm", "linear", "conv2d"])
def test_forward_mode_and_per_sample_gradients_equal_reverse_mode(name: str) -> None:
    function, shapes = OPERATIONS[name]
    leaves = tuple(values(*shape, seed=i) for i, shape in enumerate(shapes))
    tangents = tuple(values(*shape, seed=10 + i) for i, shape in enumerate(shapes))
    _out, slope = torch.func.jvp(function, leaves, tangents)
    reverse = gradients(function, *leaves)[1:]
    want = sum((g.double() * t.double()).sum() for g, t in zip(reverse, tangents, strict=True))
    scale = slope.double().norm() * slope.numel() ** 0.5
    assert abs(slope.double().sum() - want) <= 1e-5 * scale


def test_per_sample_gradients_equal_a_loop() -> None:
    weight, bias = values(12, 20, seed=1), values(12, seed=2)
    xs = values(6, 20, seed=3)

    def loss(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
        return F.linear(x, weight, bias).square().sum()

    together = torch.vmap(torch.func.grad(loss), in_dims=(None, None, 0))(weight, bias, xs)
    one_by_one = torch.stack([torch.func.grad(loss)(weight, bias, x) for x in xs])
    torch.testing.assert_close(together, one_by_one, rtol=1e-5, atol=1e-4)


def test_recomputed_activations_give_the_same_gradients() -> None:
    function, shapes = OPERATIONS["conv2d"]
    leaves = [values(*shape, seed=i) for i, shape in enumerate(shapes)]
    plain = gradients(function, *leaves)

    def recomputed(*operands: Tensor) -> Tensor:
        out: Tensor = checkpoint(function, *operands, use_reentrant=False)
        return out

    for one, two in zip(plain, gradients(recomputed, *leaves), strict=True):
        assert torch.equal(one, two)


def test_out_refuses_operands_that_require_gradients() -> None:
    a = values(8, 8).requires_grad_()
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        torch.mm(a, a, out=torch.empty(8, 8))


class Classifier(nn.Module):
    """Convolutions of several kinds, normalisation, a residual and two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.pointwise = nn.Conv2d(16, 16, 1)
        self.hidden = nn.Linear(16 * 16, 32)
        self.last = nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.stem(x)))
        x = x + self.pointwise(F.relu(self.depthwise(x)))
        x = F.adaptive_avg_pool2d(x, 4).flatten(1)
        out: Tensor = self.last(F.gelu(self.hidden(x)))
        return out


class Tagger(nn.Module):
    """An LSTM with attention over its states."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(12, 24, batch_first=True)
        self.last = nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(x)
        scores = torch.softmax(torch.bmm(states, states.transpose(1, 2)), -1)
        out: Tensor = self.last(torch.bmm(scores, states).mean(1))
        return out


class Encoder(nn.Module):
    """A transformer layer: attention, layer norms, residuals and a GELU between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(
            32, 4, 96, dropout=0.0, activation="gelu", batch_first=True
        )
        self.last = nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.layer(x).mean(1))
        return out


def losses(
    net: nn.Module, x: Tensor, labels: Tensor, rate: float, steps: int = 20, *, bf16: bool = False
) -> list[float]:
    """Trains ``net`` in place on one batch; returns the loss of each step."""
    optimiser = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
    seen = []
    for _ in range(steps):
        optimiser.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = F.cross_entropy(net(x).float(), labels)
        loss.backward()
        optimiser.step()
        seen.append(loss.item())
    return seen


@pytest.mark.parametrize(("bf16", "tolerance"), [(False, 2e-4), (True, 5e-2)])
@pytest.mark.parametrize(
    ("kind", "shape", "rate"),
    [
        (Classifier, (8, 3, 17, 15), 0.05),
        (Tagger, (8, 6, 12), 0.5),
        (Encoder, (8, 16, 32), 0.05),
    ],
)
def test_training_gives_the_losses_of_stock_torch(
    kind: type[nn.Module], shape: tuple[int, ...], rate: float, bf16: bool, tolerance: float
) -> None:
    if kind is Tagger and bf16 and not HAS_WIDE_VECTORS:
        pytest.skip("stock torch itself has no such LSTM without AVX-512")
    net = kind()
    x, labels = values(*shape), torch.arange(8) % 5
    twin = copy.deepcopy(net)
    with counting() as calls:
        ours = losses(net, x, labels, rate, bf16=bf16)
    with stock():
        theirs = losses(twin, x, labels, rate, bf16=bf16)
    assert calls or (kind is Tagger and not HAS_WIDE_VECTORS)  # consists of products only
    assert theirs[-1] < 0.7 * theirs[0], "the stock net did not learn; the comparison says nothing"
    assert ours == pytest.approx(theirs, rel=tolerance, abs=tolerance)


def test_switching_between_forward_and_backward_is_harmless() -> None:
    function, shapes = OPERATIONS["conv2d"]
    leaves = [values(*shape, seed=i) for i, shape in enumerate(shapes)]
    want = gradients(function, *leaves)[1:]
    fresh = [leaf.requires_grad_() for leaf in leaves]
    out = function(*fresh).sum()
    with stock():
        mixed = torch.autograd.grad(out, fresh)
    for one, two in zip(mixed, want, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)
