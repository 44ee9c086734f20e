"""torch.jit.optimize_for_inference on frozen modules: on ZenDNN, with stock torch's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from test.drawing import property_test

from .common import counting, stock, values
from .support.frozen import assert_right, optimised, scripted, settled, traced

# torch warns that TorchScript is deprecated.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]


class Plain(nn.Module):
    """Convolution, normalisation, activation, pooling, linear."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = settled(nn.BatchNorm2d(16))
        self.last = nn.Linear(16 * 16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        out: Tensor = self.last(F.adaptive_avg_pool2d(x, 4).flatten(1))
        return out


class Residual(nn.Module):
    """A bottleneck with a projected shortcut, and a second block after it."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(8, 4, 1)
        self.middle = nn.Conv2d(4, 4, 3, padding=1)
        self.up = nn.Conv2d(4, 24, 1)
        self.short = nn.Conv2d(8, 24, 1)
        self.again = nn.Conv2d(24, 24, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(F.relu(self.middle(F.relu(self.down(x)))))
        y = F.relu(y + self.short(x))
        return F.relu(self.again(y) + y)


class Branches(nn.Module):
    """Depthwise, grouped, dilated and strided convolutions, concatenated along the channels."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.grouped = nn.Conv2d(8, 12, 3, padding=1, groups=4)
        self.dilated = nn.Conv2d(8, 4, 3, padding=2, dilation=2)
        self.strided = nn.Conv2d(24, 6, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        parts = [F.relu6(self.depthwise(x)), F.hardswish(self.grouped(x)), self.dilated(x).tanh()]
        out: Tensor = self.strided(torch.cat(parts, 1))
        return out


class Activations(nn.Module):
    """Every activation that a region may contain, each after a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(6, 6, 1) for _ in range(8))
        self.prelu = nn.PReLU(6)

    def forward(self, x: Tensor) -> Tensor:
        for i, conv in enumerate(self.convs):
            x = conv(x)
            if i == 0:
                x = F.gelu(x)
            elif i == 1:
                x = torch.sigmoid(x)
            elif i == 2:
                x = F.hardsigmoid(x)
            elif i == 3:
                x = F.hardtanh(x, -0.5, 0.75)
            elif i == 4:
                x = torch.clamp(x, -0.25, 0.5)
            elif i == 5:
                x = self.prelu(x)
            elif i == 6:
                x = x * 0.5
            else:
                x = x * torch.tanh(x)
        return x


class Volume(nn.Module):
    """Three-dimensional convolution and pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(2, 8, 3, padding=1)
        self.norm = settled(nn.BatchNorm3d(8))

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool3d(F.relu(self.norm(self.conv(x))), 2)


class Unknown(nn.Module):
    """A convolution amid other operations: sort, cumsum, a transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.back = nn.ConvTranspose2d(8, 3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cumsum(self.conv(torch.flip(x, [2])), 1).sort(-1).values
        out: Tensor = self.back(y)
        return out - x


class Signal(nn.Module):
    """One-dimensional convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(4, 16, 5, stride=2)
        self.second = nn.Conv1d(16, 8, 3, dilation=2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(F.relu(self.first(x)))
        return out


class Mutating(nn.Module):
    """In-place operations on intermediate results and views of them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.next = nn.Conv2d(8, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        y.relu_()
        z = self.next(y).add_(y)
        z[:, 0].mul_(2.0)
        return z


#: Each net, and the input shapes for its optimised module.
NETS: dict[str, tuple[type[nn.Module], list[tuple[int, ...]]]] = {
    "plain": (Plain, [(2, 3, 16, 16), (1, 3, 16, 16), (3, 3, 17, 25)]),
    "residual": (Residual, [(1, 8, 14, 14), (2, 8, 7, 9)]),
    "branches": (Branches, [(1, 8, 16, 16), (2, 8, 11, 13)]),
    "activations": (Activations, [(2, 6, 9, 9), (1, 6, 5, 12)]),
    "volume": (Volume, [(1, 2, 8, 8, 8), (2, 2, 6, 7, 9)]),
    "unknown": (Unknown, [(1, 3, 12, 12), (2, 3, 9, 10)]),
    "signal": (Signal, [(1, 4, 40), (3, 4, 33)]),
    "mutating": (Mutating, [(1, 3, 10, 10), (2, 3, 8, 9)]),
}


def kinds(block: Any) -> list[str]:
    """The kinds of all nodes of a graph or block, nested blocks included."""
    found = []
    for node in block.nodes():
        found.append(node.kind())
        for inner in node.blocks():
            found.extend(kinds(inner))
    return found


def on_zendnn(module: torch.jit.ScriptModule) -> list[str]:
    """The kinds of the nodes of ZenDNN in the module's graph."""
    return [kind for kind in kinds(module.graph) if "zendnn" in kind.lower()]


@pytest.mark.parametrize("make", [traced, scripted])
@pytest.mark.parametrize("name", NETS)
def test_frozen_net_is_right_for_several_shapes_and_runs_on_zendnn(
    name: str, make: Callable[[nn.Module, Tensor], torch.jit.ScriptModule]
) -> None:
    kind, shapes = NETS[name]
    net = kind().eval()
    module = optimised(make(net, values(*shapes[0])))
    with torch.no_grad():
        for _ in range(3):  # TorchScript's executor specialises during the first runs
            for seed, shape in enumerate(shapes):
                x = values(*shape, seed=seed)
                copy = x.clone()
                with counting() as calls:
                    got = module(x)
                assert_right(got, net, x)
                assert torch.equal(x, copy), "the input was changed"
                assert calls


@pytest.mark.parametrize("name", ["plain", "residual", "branches", "activations", "volume"])
def test_the_graph_calls_plans_instead_of_operators(name: str) -> None:
    kind, shapes = NETS[name]
    module = optimised(traced(kind(), values(*shapes[0])))
    assert "zendnn::run" in on_zendnn(module)
    assert "zendnn::verified" not in on_zendnn(module)
    outermost = [node.kind() for node in module.graph.nodes()]
    assert not [kind for kind in outermost if kind.startswith("aten::")]


@pytest.mark.parametrize("name", NETS)
def test_switched_off_gives_the_graph_and_the_bits_of_stock_torch(name: str) -> None:
    kind, shapes = NETS[name]
    net = kind().eval()
    x = values(*shapes[0])
    with stock():
        module = optimised(traced(net, x))
        assert not on_zendnn(module)
        with torch.no_grad(), counting() as calls:
            module(x)
            got = module(x)
        assert_right(got, net, x)
    assert not calls


def test_a_module_optimised_before_the_switch_keeps_giving_right_results() -> None:
    kind, shapes = NETS["residual"]
    net = kind().eval()
    x = values(*shapes[0])
    module = optimised(traced(net, x))
    with torch.no_grad():
        for enabled in (True, False, True):
            with torch.backends.zendnn.flags(enabled=enabled):
                got = module(x)
            assert_right(got, net, x)


@pytest.mark.parametrize("make", [traced, scripted])
def test_a_module_that_has_already_run_is_optimised(
    make: Callable[[nn.Module, Tensor], torch.jit.ScriptModule],
) -> None:
    """torch's executor caches the first graph; holders of the method must run ours."""
    net, x = Plain().eval(), values(2, 3, 16, 16)
    frozen = torch.jit.freeze(make(net, x))
    forward, schema = frozen.forward, str(frozen.forward.schema)
    with torch.no_grad():
        for _ in range(3):
            frozen(x)
        module = torch.jit.optimize_for_inference(frozen)
        for call in (module, forward):
            assert_right(call(x), net, x)
    (method,) = torch.backends.zendnn.explain(module).methods
    assert [bool(region.built) for region in method.regions] == [True]
    assert str(module.forward.schema) == schema


@pytest.mark.parametrize("layout", ["channels_last", "transposed", "sliced"])
def test_inputs_of_any_layout_are_right(layout: str) -> None:
    kind, _ = NETS["residual"]
    net = kind().eval()
    module = optimised(traced(net, values(2, 8, 12, 12)))
    base = values(2, 8, 12, 12, seed=3)
    x = {
        "channels_last": base.contiguous(memory_format=torch.channels_last),
        "transposed": base.transpose(2, 3),
        "sliced": values(2, 9, 14, 30, seed=4)[:, 1:, 1:13, ::2][..., :12],
    }[layout]
    with torch.no_grad():
        for _ in range(2):
            assert_right(module(x), net, x)


def test_an_optimised_net_is_right_for_any_size() -> None:
    net = Residual().eval()
    module = optimised(traced(net, values(1, 8, 6, 6)))

    @property_test
    @given(batch=st.integers(1, 5), height=st.integers(1, 33), width=st.integers(1, 33))
    def holds(batch: int, height: int, width: int) -> None:
        x = values(batch, 8, height, width, seed=height)
        with torch.no_grad():
            assert_right(module(x), net, x)

    holds()


def test_any_small_chain_of_layers_is_right() -> None:
    layers: dict[str, Callable[[], nn.Module]] = {
        "conv1": lambda: nn.Conv2d(6, 6, 1),
        "conv3": lambda: nn.Conv2d(6, 6, 3, padding=1),
        "depthwise": lambda: nn.Conv2d(6, 6, 3, padding=1, groups=6, bias=False),
        "norm": lambda: settled(nn.BatchNorm2d(6)),
        "relu": nn.ReLU,
        "inplace": lambda: nn.ReLU(inplace=True),
        "gelu": nn.GELU,
        "sigmoid": nn.Sigmoid,
        "softmax": lambda: nn.Softmax(1),
        "average": lambda: nn.AvgPool2d(3, stride=1, padding=1),
        "largest": lambda: nn.MaxPool2d(2, stride=1),
        "dropout": nn.Dropout,
        "linear": lambda: nn.LazyLinear(9),
        "elu": nn.ELU,
    }

    @property_test
    @given(names=st.lists(st.sampled_from(sorted(layers)), min_size=1, max_size=6))
    def holds(names: list[str]) -> None:
        torch.manual_seed(len(names))
        net = nn.Sequential(*(layers[name]() for name in names)).eval()
        x = values(2, 6, 11, 10)
        with torch.no_grad():
            net(x)  # gives the lazy layers their shapes
            module = optimised(traced(net, x))
            for _ in range(2):
                assert_right(module(x), net, x)

    holds()


def test_branches_and_loops_of_a_script_are_right() -> None:
    class Control(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Conv2d(4, 4, 3, padding=1)
            self.two = nn.Conv2d(4, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:  # noqa: SIM108 (a statement with blocks is what this is about)
                x = F.relu(self.one(x))
            else:
                x = self.two(x)
            for _ in range(x.size(0)):
                x = self.one(x) + x
            return x

    net = Control().eval()
    module = optimised(scripted(net, values(1)))
    with torch.no_grad():
        for x in (values(1, 4, 8, 8).abs(), -values(2, 4, 8, 8).abs(), values(3, 4, 5, 6).abs()):
            for _ in range(2):
                assert_right(module(x), net, x)


def test_results_of_several_kinds_come_back() -> None:
    class Several(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, dict[str, Tensor], int]:
            y = self.conv(x)
            return F.relu(y), {"plain": y}, y.size(1)

    net = Several().eval()
    module = optimised(scripted(net, values(1)))
    x = values(2, 3, 5, 5)
    with torch.no_grad():
        for _ in range(2):
            first, named, count = module(x)
        with stock():
            want_first, want_named, want_count = net(x)
    torch.testing.assert_close(first, want_first, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(named["plain"], want_named["plain"], rtol=1e-5, atol=1e-6)
    assert count == want_count


def test_a_second_method_is_optimised_too() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.conv(x)
            return out

        @torch.jit.export
        def doubled(self, x: Tensor) -> Tensor:
            return F.relu(self.conv(x)) * 2

    net = Two().eval()
    frozen = torch.jit.freeze(torch.jit.script(net), preserved_attrs=["doubled"])
    module = torch.jit.optimize_for_inference(frozen, other_methods=["doubled"])
    x = values(2, 3, 5, 5)
    with torch.no_grad():
        torch.testing.assert_close(module(x), net(x), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(module.doubled(x), net.doubled(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_nets_of_other_types_keep_working(dtype: torch.dtype) -> None:
    net = Residual().to(dtype).eval()
    x = values(2, 8, 9, 9, dtype=dtype)
    with torch.no_grad():
        module = optimised(traced(net, x))
        got = module(x)
        with stock():
            want = net(x)
    assert got.dtype == dtype
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-12
    assert (got - want).abs().max() <= tolerance * want.abs().max()


def test_adaptive_pooling_to_a_size_that_does_not_divide_the_image_is_right() -> None:
    """ZenDNN pools only windows of equal size."""
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4)).eval()
    module = optimised(traced(net, values(1, 3, 20, 20)))
    with torch.no_grad():
        for x in (values(1, 3, 20, 20), values(2, 3, 17, 31)):
            assert_right(module(x), net, x)


def test_empty_batches_keep_working() -> None:
    net = Plain().eval()
    module = optimised(traced(net, values(2, 3, 16, 16)))
    with torch.no_grad():
        assert module(values(0, 3, 16, 16)).shape == (0, 10)
        x = values(1, 3, 16, 16)
        assert_right(module(x), net, x)


def test_a_wrong_input_raises_and_the_module_still_works() -> None:
    net = Plain().eval()
    module = optimised(traced(net, values(2, 3, 16, 16)))
    with torch.no_grad():
        with pytest.raises(RuntimeError):
            module(values(2, 4, 16, 16))
        x = values(2, 3, 16, 16)
        assert_right(module(x), net, x)


def test_the_original_module_is_unchanged() -> None:
    """The optimised module does not share its weights with the caller's."""
    net = Plain().eval()
    x = values(2, 3, 16, 16)
    with torch.no_grad():
        before = net(x)
        script = traced(net, x)
        optimised(script)(x)
        assert torch.equal(net(x), before)
        torch.testing.assert_close(script(x), before)


def test_a_module_in_training_mode_is_refused_as_upstream_refuses_it() -> None:
    with pytest.raises(RuntimeError, match="eval"):
        torch.jit.freeze(torch.jit.script(Plain().train()))


def test_two_optimised_modules_do_not_disturb_each_other() -> None:
    nets = [Residual().eval(), Residual().eval()]
    x = values(1, 8, 14, 14)
    modules = [optimised(traced(net, x)) for net in nets]
    with torch.no_grad():
        for _ in range(3):
            for net, module in zip(nets, modules, strict=True):
                assert_right(module(x), net, x)
        del modules[0]
        assert_right(modules[0](x), nets[1], x)


@pytest.mark.parametrize(
    "layer",
    [
        nn.MaxPool2d(2, dilation=2),
        nn.AvgPool2d(2, divisor_override=3),
        nn.GELU(approximate="tanh"),
        nn.BatchNorm2d(6, affine=False),
    ],
    ids=["dilated pooling", "divisor", "approximate gelu", "plain batch norm"],
)
def test_arguments_that_no_kernel_accepts_stay_outside(layer: nn.Module) -> None:
    net = nn.Sequential(nn.Conv2d(3, 6, 3), layer, nn.ReLU()).eval()
    x = values(2, 3, 12, 12)
    module = optimised(traced(net, x))
    with torch.no_grad(), counting() as calls:
        assert_right(module(x), net, x)
    assert calls["convolution"]
