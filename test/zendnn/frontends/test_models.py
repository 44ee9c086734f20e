"""The importer's decisions, seen from modules: results, and regions whose plans run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..common import PRIMITIVE_DTYPES, of_bfloat16, stock, values
from ..support.frozen import optimised, settled
from ..support.models import MODELS, assert_plans_ran

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]

Function = Callable[["Layers", Tensor], Any]


class Layers(nn.Module):
    """A convolution, a normalisation and a linear layer, and a function of them."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 8, 1)
        self.norm = settled(nn.BatchNorm2d(3))
        self.linear = nn.Linear(9, 8)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def check(function: Function, dtype: torch.dtype = torch.float32, ran: bool = True) -> Any:
    """Optimise a function of layers, compare it with torch's, and return the module."""
    net, x = Layers(function).to(dtype).eval(), values(2, 3, 8, 9, dtype=dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    with torch.no_grad():
        module = optimised(torch.jit.trace(net, x, check_trace=False))
        for y in (x, values(3, 3, 8, 9, seed=1, dtype=dtype)):
            with stock():
                want = net(y)
            got = module(y)
            for ours, theirs in zip(flat(got), flat(want), strict=True):
                assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
                if theirs.isfinite().all():
                    assert (ours - theirs).abs().max() <= tolerance * theirs.abs().max()
                else:
                    torch.testing.assert_close(ours, theirs)
    if ran:
        assert_plans_ran(module)
    return module


def flat(result: Any) -> list[Tensor]:
    """The tensors of a result."""
    return [result] if isinstance(result, Tensor) else [t for part in result for t in flat(part)]


def left_out(module: Any) -> set[str]:
    """The operators of a module outside regions."""
    (method,) = torch.backends.zendnn.explain(module).methods
    return {item.op for item in method.left_out or ()}


NUMBERS: dict[str, tuple[Function, str]] = {
    "a tiny slope": (lambda net, x: F.leaky_relu(net.conv(x), 1e-46), "aten::leaky_relu"),
    "division by a tiny number": (lambda net, x: net.conv(x).sigmoid() / 1e-39, "aten::div"),
    "zeros by a tiny number": (lambda net, x: net.conv(x).relu() * 0.0 / 1e-39, "aten::div"),
    "multiplication by a tiny number": (lambda net, x: net.conv(x).tanh() * 1e-40, "aten::mul"),
    "a tiny bound": (lambda net, x: net.conv(x).clamp(1e-40, 0.5), "aten::clamp"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_float32_cannot_represent_stay_outside(name: str) -> None:
    function, op = NUMBERS[name]
    assert op in left_out(check(function))


def test_a_number_with_a_wider_dtype_promotes_as_in_torch() -> None:
    """torch's executor turns it into a number, so the other operand keeps its dtype."""
    two = torch.tensor(2.0, dtype=torch.float64)
    net, x = Layers(lambda net, x: net.linear(x).flatten().mean(0) * two).eval(), values(2, 3, 8, 9)
    frozen, module = (torch.jit.freeze(torch.jit.trace(net, x)) for _ in range(2))
    module = torch.jit.optimize_for_inference(module)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(module(x), frozen(x))


def test_an_undone_transposition_that_is_read_in_between() -> None:
    def function(net: Layers, x: Tensor) -> tuple[Tensor, Tensor]:
        inner = net.conv(x).transpose(2, 3)
        return inner.transpose(2, 3), inner.relu()

    check(function)


def viewed_as_another(net: Layers, x: Tensor) -> Tensor:
    """The sizes come from another region's result."""
    y = net.conv(x)
    z = net.linear(torch.cumsum(y, 1)).flatten(1)
    return z.view_as(y[..., :8]).softmax(-1)


REGIONS: dict[str, Function] = {
    "a view as something of another region": viewed_as_another,
    "a product with booleans": lambda net, x: net.conv(x) * (x[:, :1] * 3).to(torch.bool),
    "negative padding": lambda net, x: net.linear(F.pad(net.conv(x), (1, -1))),
    "a mean over dimensions that are apart": lambda net, x: net.conv(x).mean((0, 2)),
    "a mean over everything": lambda net, x: net.conv(x).mean([]),
    "a split into unequal parts": lambda net, x: [
        part.relu() for part in torch.split(net.conv(x), 3, 1)
    ],
    "indices of four dimensions": lambda net, x: net.conv(x)[
        :, :, torch.tensor([0, 1]), torch.tensor([2, 3])
    ],
    "channels last": lambda net, x: net.linear(
        net.conv(x.to(memory_format=torch.channels_last)).contiguous()
    ),
}


@pytest.mark.parametrize("name", REGIONS)
def test_one_operator_does_not_cost_the_region(name: str) -> None:
    check(REGIONS[name])


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
def test_a_batch_norm_before_the_first_layer(dtype: torch.dtype) -> None:
    module = check(lambda net, x: net.conv(net.norm(x)), dtype)
    assert not left_out(module)


def test_a_size_does_not_prevent_a_fused_activation() -> None:
    def function(net: Layers, x: Tensor) -> Tensor:
        y = net.conv(x)
        return F.relu(y).view(y.shape[0], -1) * 2.0

    (method,) = torch.backends.zendnn.explain(check(function)).methods
    (region,) = method.regions
    assert region.operators[0].post_ops == ("relu:0:0",)


class Residual(nn.Module):
    """A layer's result plus its input."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = torch.tanh(self.layer(x)) + x
        return out


class Block(nn.Module):
    """A residual block, pooled and classified."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convs = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(settled(nn.BatchNorm2d(16)) for _ in range(2))
        self.last = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norms[0](self.convs[0](x)))
        y = F.relu(self.norms[1](self.convs[1](y)) + x)
        out: Tensor = self.last(F.adaptive_avg_pool2d(y, 1).flatten(1))
        return out


def bert() -> tuple[nn.Module, Tensor]:
    model = MODELS["bert"]
    return model.build(), model.inputs(2, 12)


@of_bfloat16
@pytest.mark.parametrize("make", [lambda: (Block(), values(2, 16, 8, 8)), bert])
def test_modules_traced_under_autocast_run_in_plans(
    make: Callable[[], tuple[nn.Module, Tensor]],
) -> None:
    """Layers are bfloat16 and residuals float32: torch promotes sums without a conversion."""
    net, x = make()
    net = net.eval().requires_grad_(False)
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            trace = torch.jit.trace(net, x, check_trace=False)
            with stock():
                want = net(x)
        module = optimised(trace)
        for _ in range(3):
            got = module(x)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    assert (got - want).abs().max() <= 2e-2 * want.abs().max()
    assert_plans_ran(module)


def test_a_residual_of_another_dtype_than_the_trace_had_keeps_its_dtype() -> None:
    net, x = Block().eval().requires_grad_(False), values(2, 16, 8, 8)
    block = Residual(net.convs[1]).eval()
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            trace = torch.jit.trace(block, x, check_trace=False)
        frozen, module = torch.jit.freeze(trace), optimised(trace)
        for y in (x, x.bfloat16(), x.double()):
            with stock():
                want = frozen(y)
            got = module(y)
            assert got.dtype == want.dtype
            assert (got - want).abs().max() <= 2e-2 * want.abs().max()


def test_light_operators_that_end_in_a_tuple_are_in_the_region() -> None:
    def function(net: Layers, x: Tensor) -> tuple[Tensor, Tensor]:
        y = net.conv(x)
        return torch.sigmoid(torch.cat((y, x), 1)), y * y

    assert not left_out(check(function))


def test_quick_gelu_is_fused() -> None:
    def function(net: Layers, x: Tensor) -> Tensor:
        y = net.linear(x)
        return y * torch.sigmoid(1.702 * y)

    (method,) = torch.backends.zendnn.explain(check(function)).methods
    (region,) = method.regions
    assert [operator.title for operator in region.operators] == ["linear, then silu, affine"]


def test_a_difference_is_fused_into_the_layer() -> None:
    def function(net: Layers, x: Tensor) -> Tensor:
        y = torch.tanh(net.linear(x))
        return y[:, :1] - F.linear(y, torch.eye(8) * 2.0)

    check(function)
