"""NaN and infinities are where stock torch has them: in plans, in eager mode and on the device.

Vector instructions for maxima and minima return a fixed operand if either is NaN. A kernel with the
wrong operand order drops the NaN.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.backends.zendnn.ir.graph import Region
from torch.utils import zendnn as zendnn_utils

from .common import DTYPES, HAS_WIDE_VECTORS, PRIMITIVE_DTYPES, primitive_dtypes, stock, values
from .support.computations import COMPUTATIONS
from .support.frozen import optimised, settled
from .support.graphs import Builder
from .support.models import assert_plans_ran, regions
from .support.plans import (
    ARRANGEMENTS,
    interpret,
    layout_of,
    left_of,
    make_plan,
    refusal,
    region_of,
    then,
)
from .support.post_ops import PRODUCERS, producer
from .support.samples import LAYOUTS as ANY_LAYOUT
from .support.samples import POST_OPS as ALGORITHMS
from .support.samples import is_round
from .support.subprocesses import passes

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "error:ZenDNN"),
]

NAN, INF = math.nan, math.inf
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 5e-2}
CHANNELS = (1, 3, 8, 16, 17, 40)
#: Layouts of images inside a plan.
LAYOUTS = ("blocked", "channels_last")


@pytest.fixture(autouse=True)
def quick(clean_state: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses the first implementation, without timing, on one thread."""
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "0")
    torch.set_num_threads(1)


# Inputs and comparisons.


def strewn(
    *shape: int,
    dtype: torch.dtype = torch.float32,
    share: float = 0.2,
    seed: int = 0,
    kinds: Sequence[float] = (NAN, INF, -INF),
) -> Tensor:
    """Normal random numbers with a share of ``kinds`` at random places."""
    x = values(*shape, dtype=dtype, seed=seed)
    generator = torch.Generator().manual_seed(seed + 1)
    which = torch.randint(len(kinds), shape, generator=generator)
    chosen = torch.tensor(kinds, dtype=dtype)[which]
    return torch.where(torch.rand(shape, generator=generator) < share, chosen, x)


def rows(*shape: int, dtype: torch.dtype = torch.float32, along: int = -1) -> Tensor:
    """Vectors with at most one NaN, ∞ or -∞ each, so that no sum has two infinities."""
    x = values(*shape, dtype=dtype).movedim(along, -1).contiguous()
    flat = x.view(-1, x.shape[-1])
    for i in range(0, len(flat), 2):
        flat[i, i // 2 % flat.shape[1]] = (NAN, INF, -INF)[i // 2 % 3]
    return x.movedim(-1, along).contiguous()


def images(channels: int, *sides: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """One image per place of a NaN, and some with infinities.

    The NaN of each channel is one place after that of the channel before.
    """
    count = math.prod(sides)
    x = values(count + 4, channels, *sides, dtype=dtype)
    flat = x.view(count + 4, channels, count)
    every = torch.arange(channels)
    for i in range(count):
        flat[i, every, (i + every) % count] = NAN
    flat[count:-2] = -INF
    flat[count, every, every % count] = NAN
    flat[-2] = strewn(channels, count, dtype=dtype, kinds=(INF,))
    flat[-1] = strewn(channels, count, dtype=dtype)
    return x


def kinds_of(x: Tensor) -> Tensor:
    """0 for finite numbers, 1 for NaN, 2 and 3 for the infinities."""
    return x.isnan() + 2 * x.isposinf() + 3 * x.isneginf()


def assert_as_stock(got: Tensor, want: Tensor, exact: Tensor) -> None:
    """Assert that NaN, infinities and numbers match stock torch.

    Where stock's float64 result has another kind, rounding or the order of sums decides the kind,
    and any kind is right.
    """
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    settled_places = kinds_of(want) == kinds_of(exact)
    assert settled_places.double().mean() > 0.5
    tolerance = TOLERANCE[got.dtype]
    torch.testing.assert_close(
        torch.where(settled_places, got, want), want, rtol=tolerance, atol=tolerance, equal_nan=True
    )


def listed(results: Any) -> list[Tensor]:
    return [results] if isinstance(results, Tensor) else list(results)


def wide(inputs: Sequence[Tensor]) -> list[Tensor]:
    return [x.double() for x in inputs]


def check_call(function: Callable[..., Any], *inputs: Tensor) -> None:
    """Check an eager call."""
    got = listed(function(*inputs))
    with stock():
        pairs = zip(got, listed(function(*inputs)), listed(function(*wide(inputs))), strict=True)
    for ours, theirs, exact in pairs:
        assert_as_stock(ours, theirs, exact)


def check_plan(net: nn.Module, *inputs: Tensor, layout: str = "any") -> None:
    """Check an optimised trace, which must have run entirely in a plan."""
    net = net.eval()
    with torch.no_grad():
        module = optimised(torch.jit.trace(net, inputs, check_trace=False))
        results = [listed(module(*inputs)) for _ in range(2)]
        with stock():
            wanted = listed(net(*inputs))
            exact = listed(copy.deepcopy(net).double()(*wide(inputs)))
    assert_plans_ran(module)
    for built in (built for region in regions(module) for built in region.built):
        # Some bfloat16 primitives need AVX-512.
        assert not built.left_to_torch or inputs[0].dtype == torch.bfloat16
        assert layout in ("any", built.layout.replace(" ", "_"))
    for result in results:
        for ours, theirs, true in zip(result, wanted, exact, strict=True):
            assert_as_stock(ours, theirs, true)


def operands_of(b: Builder, region: Region) -> list[Tensor]:
    """The example tensors that a region reads, in its order."""
    examples = dict(zip(b.graph.inputs, b.examples, strict=True))
    return [examples[value] for value in region.inputs]


# Elementwise functions, as steps and as post-ops.

Function = Callable[..., Tensor]

FUNCTIONS: dict[str, Function] = {
    "nothing": lambda x: x,
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": lambda x: F.hardtanh(x, -0.5, 0.75),
    "clamp": lambda x: x.clamp(-0.25, 0.5),
    "clamp from below": lambda x: x.clamp(min=-0.25),
    "clamp from above": lambda x: x.clamp(max=0.5),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "elu": F.elu,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": F.silu,
    "mish": F.mish,
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "exp": torch.exp,
    "log": lambda x: torch.log(x.abs() + 0.5),
    "sqrt": lambda x: torch.sqrt(x.abs() + 0.5),
    "square": torch.square,
    "abs": torch.abs,
    "affine": lambda x: x * -1.5 + 0.25,
    "prelu": nn.PReLU(17),
}

#: Functions of a value and another input.
OF_TWO: dict[str, Function] = {
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "maximum, swapped": lambda x, y: torch.maximum(y, x),
    "minimum, swapped": lambda x, y: torch.minimum(y, x),
    "sum": torch.add,
    "product": torch.mul,
}


class Pair(nn.Module):
    """A function of two inputs as a layer."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.function(x, y)


class Sum(nn.Module):
    """The input plus a convolution of another one, so that it has the convolution's layout.

    Channels can have NaN at different places here, but not after a convolution of the input.
    """

    def __init__(self, channels: int, spatial: int) -> None:
        super().__init__()
        self.conv = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[spatial](channels, channels, 1)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.conv(y) + x


class Net(nn.Module):
    """A function after a layer, next to normalisations that make a plan worthwhile.

    ``kept`` also returns the layer's result, so that the function cannot be its post-op.
    """

    def __init__(self, layer: nn.Module, function: Function, kept: bool = False) -> None:
        super().__init__()
        self.layer, self.function, self.kept = layer, copy.deepcopy(function), kept

    def forward(self, x: Tensor, y: Tensor, *z: Tensor) -> list[Tensor]:
        result = self.layer(x, y) if isinstance(self.layer, (Pair, Sum)) else self.layer(x)
        results = [self.function(result, *z), F.softmax(y, -1), F.log_softmax(y, -1)]
        return [*results, result] if self.kept else results


@dataclass(frozen=True)
class Place:
    """What precedes a function: a layer of one or two inputs, and the layout of images.

    The result has 17 channels.
    """

    layer: Callable[[], nn.Module]
    input: tuple[int, ...]
    other: tuple[int, ...] = (1, 16)
    layout: str = "any"
    kept: bool = False
    #: The dimension along which the layer sums.
    along: int = 1
    dtypes: tuple[torch.dtype, ...] = PRIMITIVE_DTYPES


IMAGE = (2, 17, 6, 5)
PLACES = {
    "alone": Place(nn.Identity, IMAGE, dtypes=DTYPES),
    "alone in one dimension": Place(nn.Identity, (2, 17), dtypes=DTYPES),
    "after a product": Place(lambda: Pair(torch.mul), IMAGE, IMAGE, dtypes=DTYPES),
    "after batch norm": Place(lambda: settled(nn.BatchNorm2d(17)), IMAGE, dtypes=(torch.float32,)),
    "after a depthwise convolution": Place(
        lambda: nn.Conv2d(17, 17, 3, padding=1, groups=17), IMAGE
    ),
    # ZenDNN computes this as a matrix product, and its post-ops in loops.
    "after a convolution with more padding than image": Place(
        lambda: nn.Conv1d(17, 17, 1, padding=1, groups=17), (2, 17, 1), layout="channels_last"
    ),
    "after a linear layer": Place(lambda: nn.Linear(8, 16), (2, 17, 8), along=-1),
    "after a product of matrices": Place(
        lambda: Pair(torch.matmul), (2, 17, 8), (2, 8, 16), along=-1
    ),
    **{
        f"after a convolution, {layout}": Place(
            lambda: nn.Conv2d(8, 17, 1), (2, 8, 6, 5), layout=layout
        )
        for layout in LAYOUTS
    },
    **{
        f"on images, {layout}": Place(lambda: Sum(17, 2), IMAGE, IMAGE, layout=layout, kept=True)
        for layout in LAYOUTS
    },
}


def check_function(
    place: Place, function: Function, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, two: bool
) -> None:
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", place.layout)
    torch.manual_seed(0)
    net = Net(place.layer(), function, place.kept).to(dtype)
    x, y = rows(*place.input, dtype=dtype, along=place.along), values(*place.other, dtype=dtype)
    if two:
        with torch.no_grad(), stock():
            shape = Net(net.layer, F.relu)(x, y)[0].shape
        check_plan(net, x, y, strewn(*shape, dtype=dtype, seed=3), layout=place.layout)
    else:
        check_plan(net, x, y, layout=place.layout)


PLACES_AND_TYPES = [(name, dtype) for name, place in PLACES.items() for dtype in place.dtypes]


@pytest.mark.parametrize(("place", "dtype"), PLACES_AND_TYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_in_plans_keep_nan(
    name: str, place: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_function(PLACES[place], FUNCTIONS[name], dtype, monkeypatch, two=False)


@pytest.mark.parametrize(("place", "dtype"), PLACES_AND_TYPES)
@pytest.mark.parametrize("name", OF_TWO)
def test_functions_of_two_tensors_in_plans_keep_nan(
    name: str, place: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_function(PLACES[place], OF_TWO[name], dtype, monkeypatch, two=True)


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("op", PRODUCERS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_as_a_post_op_keeps_nan(name: str, op: str, dtype: torch.dtype) -> None:
    """NaN is in one of three images and must not reach the others."""
    if is_round(name, dtype):
        pytest.skip("an error of half a unit in the last place may round to a whole unit")
    b = Builder()
    region = region_of(b, then(b, producer(b, op, dtype), (name, *ALGORITHMS[name])))
    operands = operands_of(b, region)
    operands[0][1] = NAN
    (got,) = make_plan(region, dtype).run(operands, [])
    assert got[1].isnan().all()
    if name not in ("sqrt", "log"):  # these are NaN for negative numbers
        assert not got[::2].isnan().any()


# Windows.

#: Pools, with the number of spatial dimensions, whose sizes ``SIDES`` gives.
POOLS: dict[str, tuple[int, Function]] = {
    "max of two by two": (2, lambda x: F.max_pool2d(x, 2)),
    "max of three by three": (2, lambda x: F.max_pool2d(x, 3, stride=2, padding=1)),
    "max of all": (2, lambda x: F.max_pool2d(x, 6)),
    "max of one": (2, lambda x: F.max_pool2d(x, 1)),
    "max of a row": (2, lambda x: F.max_pool2d(x, (1, 4), stride=1)),
    "max with a ceiling": (2, lambda x: F.max_pool2d(x, 3, stride=2, ceil_mode=True)),
    "max with gaps": (2, lambda x: F.max_pool2d(x, 3, stride=1, padding=1, dilation=2)),
    "max of a line": (1, lambda x: F.max_pool1d(x, 3, stride=2, padding=1)),
    "max of a line with a ceiling": (1, lambda x: F.max_pool1d(x, 4, stride=3, ceil_mode=True)),
    "max of a line with gaps": (1, lambda x: F.max_pool1d(x, 3, stride=1, dilation=2)),
    "max of a cube": (3, lambda x: F.max_pool3d(x, 2)),
    "max of a padded cube": (3, lambda x: F.max_pool3d(x, 3, stride=2, padding=1)),
    "average of two by two": (2, lambda x: F.avg_pool2d(x, 2)),
    "average of three by three": (2, lambda x: F.avg_pool2d(x, 3, stride=2, padding=1)),
    "average without the padding": (
        2,
        lambda x: F.avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False),
    ),
    "average with a ceiling": (2, lambda x: F.avg_pool2d(x, 3, stride=2, ceil_mode=True)),
    "average of a line": (1, lambda x: F.avg_pool1d(x, 3, stride=2, padding=1)),
    "average of a cube": (3, lambda x: F.avg_pool3d(x, 2)),
    "average to a point": (2, lambda x: F.adaptive_avg_pool2d(x, 1)),
    "average to two by three": (2, lambda x: F.adaptive_avg_pool2d(x, (2, 3))),
    "average of a line to four": (1, lambda x: F.adaptive_avg_pool1d(x, 4)),
    "average of a cube to a point": (3, lambda x: F.adaptive_avg_pool3d(x, 1)),
}
SIDES = {1: (12,), 2: (6, 6), 3: (4, 4, 4)}
OF_EVERY_CHANNELS = ("max of two by two", "max of three by three", "max of all")
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=LAST[x.dim()]) if x.dim() in LAST else x


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("how", ["plain", "channels last", *LAYOUTS])
@pytest.mark.parametrize(
    ("name", "channels"),
    [
        (name, channels)
        for name in POOLS
        for channels in (CHANNELS if name in OF_EVERY_CHANNELS else (3, 17))
    ],
)
def test_pools_in_plans_keep_nan_at_every_place(
    name: str, channels: int, how: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both of inputs, and of a convolution's result in the plan's own layout."""
    if name == "average of a cube" and dtype == torch.bfloat16:
        pytest.skip("torch has no bfloat16 kernel to compare with")
    spatial, pool = POOLS[name]
    x = images(channels, *SIDES[spatial], dtype=dtype)
    torch.manual_seed(0)
    if how in LAYOUTS:
        monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", how)
        net = Net(Sum(channels, spatial), pool).to(dtype)
        check_plan(net, x, values(*x.shape, dtype=dtype), layout=how if spatial == 2 else "any")
    else:
        x = x if how == "plain" else channels_last(x)
        check_plan(Net(nn.Identity(), pool), x, values(2, 16, dtype=dtype))


@pytest.mark.parametrize("how", ["plain", "channels last", *LAYOUTS])
def test_the_maximum_of_only_negative_infinity_is_negative_infinity(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", how if how in LAYOUTS else "any")
    inner = Sum(17, 2) if how in LAYOUTS else nn.Identity()
    net = Net(inner, lambda x: F.max_pool2d(x, 3, stride=2, padding=1)).eval()
    x, y = torch.full((2, 17, 6, 6), -INF), values(2, 17, 6, 6)
    x = channels_last(x) if how == "channels last" else x
    with torch.no_grad():
        got = optimised(torch.jit.trace(net, (x, y), check_trace=False))(x, y)[0]
    assert got.isneginf().all()


@st.composite
def pools(draw: st.DrawFn) -> tuple[str, tuple[int, ...], dict[str, Any]]:
    """A pooling operator, image sizes and windows that a plan accepts."""

    def each(strategy: st.SearchStrategy[int]) -> tuple[int, ...]:
        return tuple(draw(strategy) for _ in range(spatial))

    spatial = draw(st.integers(1, 3))
    op = draw(st.sampled_from(("max_pool", "avg_pool")))
    kernel = each(st.integers(1, 4 if spatial < 3 else 3))
    dilation = each(st.integers(1, 2 if op == "max_pool" else 1))
    reach = [(size - 1) * gap + 1 for size, gap in zip(kernel, dilation, strict=True)]
    attributes: dict[str, Any] = {
        "kernel": kernel,
        "stride": each(st.integers(1, 3)),
        "padding": tuple(draw(st.integers(0, size // 2)) for size in kernel),
        "ceil": draw(st.booleans()),
    }
    if op == "max_pool":
        attributes["dilation"] = dilation
    else:  # Averages that count elements beyond the padding fall back to torch.
        attributes["include_pad"] = not attributes["ceil"] and draw(st.booleans())
    return op, tuple(size + draw(st.integers(0, 5)) for size in reach), attributes


@given(
    made=pools(),
    channels=st.sampled_from(CHANNELS),
    layout=st.sampled_from(ANY_LAYOUT),
    arranged=st.sampled_from(("contiguous", "channels_last", "transposed", "strided")),
    convolved=st.booleans(),
    kinds=st.sampled_from([(NAN,), (-INF,), (NAN, INF, -INF), (NAN, -INF)]),
    share=st.sampled_from([0.02, 0.2, 0.9]),
    seed=st.integers(0, 1000),
    dtype=primitive_dtypes,
)
def test_random_pools_have_nan_and_infinities_where_stock_torch_has(
    made: tuple[str, tuple[int, ...], dict[str, Any]],
    channels: int,
    layout: str,
    arranged: str,
    convolved: bool,
    kinds: tuple[float, ...],
    share: float,
    seed: int,
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", layout)
    torch.manual_seed(seed)
    op, sides, attributes = made
    if op == "avg_pool" and len(sides) == 3:
        dtype = torch.float32  # torch averages volumes in no dtype that is less exact
    shape, b = (2, channels, *sides), Builder()
    x = strewn(*shape, dtype=dtype, share=share, seed=seed, kinds=kinds)
    value = b.input(ARRANGEMENTS[arranged](x))
    if convolved:
        other = b.input(values(*shape, dtype=dtype, seed=seed + 2))
        weight = b.constant(channels, channels, *(1 for _ in sides))
        value = then(b, b.convolution(other, weight), ("add", value))
    region = region_of(b, b(op, value, **attributes))
    operands, plan = operands_of(b, region), make_plan(region, dtype)
    assert plan.takes(operands, []), refusal(plan)
    (got,) = plan.run(operands, [])
    assert not left_of(plan)
    assert layout_of(plan) in ("", layout) or layout == "any"
    with stock():
        (want,) = interpret(region, operands, dtype, dtype)
        (exact,) = interpret(region, operands, torch.float64, dtype)
    assert_as_stock(got, want, exact)


# Products, which multiply bfloat16 in pairs.

#: The sizes of the images, and a layer for a given number of channels.
PRODUCTS: dict[str, tuple[tuple[int, ...], Callable[[int], nn.Module]]] = {
    "linear": ((), lambda c: nn.Linear(c, 9)),
    "linear to one": ((), lambda c: nn.Linear(c, 1)),
    "a line": ((11,), lambda c: nn.Conv1d(c, 9, 3, padding=2)),
    "a line with strides": ((49,), lambda c: nn.Conv1d(c, 1, 3, stride=3, padding=2)),
    "points": ((6, 7), lambda c: nn.Conv2d(c, 9, 1)),
    "three by three": ((6, 7), lambda c: nn.Conv2d(c, 9, 3, padding=1)),
    "three by three, many": ((6, 7), lambda c: nn.Conv2d(c, 70, 3, padding=1)),
    "five by five": ((3, 31), lambda c: nn.Conv2d(c, 1, 5, padding=2)),
    "seven by seven": ((15, 16), lambda c: nn.Conv2d(c, 16, 7, stride=2, padding=3)),
    "with gaps": ((9, 8), lambda c: nn.Conv2d(c, 9, 3, padding=2, dilation=2)),
    "groups": ((6, 7), lambda c: nn.Conv2d(2 * c, 18, 3, padding=1, groups=2)),
    "transposed": ((6, 7), lambda c: nn.ConvTranspose2d(c, 9, 3, stride=2)),
    "a cube": ((3, 4, 5), lambda c: nn.Conv3d(c, 9, 2, padding=1)),
}


def check_product(
    name: str, channels: int, dtype: torch.dtype, run: Callable[[nn.Module, Tensor], Tensor]
) -> None:
    """Check products of rows or images with one infinity each, so that no sum is NaN.

    torch's own kernels, to which some are left on AMX tiles, do make NaN of them.
    """
    torch.manual_seed(channels)
    sides, make = PRODUCTS[name]
    net = make(channels).eval().to(dtype)
    x = values(8, 2 * channels if name == "groups" else channels, *sides, dtype=dtype)
    flat = x.view(8, -1)
    places = torch.randint(flat.shape[1], (8,))
    flat[torch.arange(8), places] = torch.tensor([INF, -INF] * 4, dtype=dtype)
    with torch.no_grad():
        with torch.backends.zendnn.record() as events:
            got = run(net, x)
        with stock():
            theirs = net(x)
            exact = net.double()(x.double())
    if [event.route for event in events] == ["torch"]:
        assert torch.equal(got.nan_to_num(), theirs.nan_to_num())
        assert torch.equal(kinds_of(got), kinds_of(theirs))
        return
    assert not exact.isnan().any()
    assert torch.equal(kinds_of(got), kinds_of(exact))
    finite = exact.isfinite()
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(got[finite].double(), exact[finite], rtol=tolerance, atol=tolerance)


#: That do not fill whole pairs or, of the even ones, rows of AMX's tiles.
UNEVEN_CHANNELS = (1, 3, 5, 12, 17, 34, 36, 67)


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channels", UNEVEN_CHANNELS)
@pytest.mark.parametrize("name", PRODUCTS)
def test_infinities_in_plans_reach_only_their_own_products(
    name: str, channels: int, layout: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", layout)

    def run(net: nn.Module, x: Tensor) -> Tensor:
        module = optimised(torch.jit.trace(net, x, check_trace=False))
        result: Tensor = module(x)
        assert_plans_ran(module)
        return result

    check_product(name, channels, dtype, run)


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("arranged", ["contiguous", "channels_last"])
@pytest.mark.parametrize("channels", UNEVEN_CHANNELS)
@pytest.mark.parametrize("name", PRODUCTS)
def test_infinities_in_eager_mode_reach_only_their_own_products(
    name: str, channels: int, arranged: str, dtype: torch.dtype
) -> None:
    arrange = channels_last if arranged == "channels_last" else Tensor.contiguous
    check_product(name, channels, dtype, lambda net, x: net(arrange(x)))


@pytest.mark.parametrize("how", ["in a plan", "in eager mode"])
def test_an_infinite_weight_reaches_no_other_row_of_a_kernel(how: str) -> None:
    """The channels are summed in blocks, and the last block is not a whole vector."""
    torch.manual_seed(0)
    net = nn.Conv2d(1300, 64, (3, 1), padding=(1, 0)).eval().to(memory_format=torch.channels_last)
    x = channels_last(values(2, 1300, 9, 1))
    with torch.no_grad():
        net.weight[:, 0, 1] = INF
        run = optimised(torch.jit.trace(net, x, check_trace=False)) if how == "in a plan" else net
        got = run(x)
        with stock():
            exact = copy.deepcopy(net).double()(x.double())
    assert exact.isinf().all()
    assert torch.equal(kinds_of(got), kinds_of(exact))


# The sign of zero, which division makes an infinity's.

ARITHMETIC: dict[str, Function] = {
    "divided": lambda x: x / 3.0,
    "multiplied": lambda x: x * 0.5,
    "multiplied by a negative number": lambda x: x * -2.0,
    "multiplied twice": lambda x: x * 2.0 * -0.25,
    "negated": torch.neg,
    "negated twice": lambda x: -(x * -1.0),
    "plus 0": lambda x: x + 0.0,
    "plus 0, multiplied by a negative number": lambda x: (x + 0.0) * -2.0,
    "minus 0": lambda x: x - 0.0,
    "from 0": lambda x: 0.0 - x,
    "multiplied, plus 0": lambda x: x * -2.0 + 0.0,
    "added with a factor": lambda x: torch.add(x, x, alpha=-1.0),
    "subtracted with a factor": lambda x: torch.sub(-x, x, alpha=-1.0),
    "scaled silu": lambda x: x * torch.sigmoid(1.7 * x),
}


class Arithmetic(nn.Module):
    """Divides by what arithmetic makes of the input, and of an activation behind a layer."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Conv2d(16, 32, 1)
        self.function = function

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return 1 / self.function(x), 1 / self.function(F.relu(self.layer(x)))


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_with_numbers_keeps_the_sign_of_zero(
    name: str, layout: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", layout)
    net = Arithmetic(ARITHMETIC[name]).eval().to(dtype)
    x = strewn(2, 16, 5, 5, dtype=dtype, share=0.5, kinds=(0.0, -0.0, 1e-45, -1e-45))
    with torch.no_grad():
        module = optimised(torch.jit.trace(net, x, check_trace=False))
        got = module(x)
        with stock():
            want = net(x)
    assert_plans_ran(module)
    for ours, theirs in zip(got, want, strict=True):
        assert theirs.isinf().any()
        assert torch.equal(kinds_of(ours), kinds_of(theirs))


# Other operators of plans, which are also eager overrides.

OPERATORS: dict[str, Function] = {
    "softmax of rows": lambda x: F.softmax(x, -1),
    "softmax of channels": lambda x: F.softmax(x, 1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "layer norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "layer norm of images": lambda x: F.layer_norm(x, x.shape[1:]),
    "rms norm": lambda x: F.rms_norm(x, x.shape[-1:], eps=1e-5),
    "group norm": lambda x: F.group_norm(x, 4),
    "mean of images": lambda x: x.mean((2, 3)),
    "mean of channels": lambda x: x.mean(1, keepdim=True),
    "nearest": lambda x: F.interpolate(x, scale_factor=2.0),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
    "bilinear, same size": lambda x: F.interpolate(x, scale_factor=1.0, mode="bilinear"),
    "bilinear, same width": lambda x: F.interpolate(x, (9, 8), mode="bilinear"),
    "bilinear, same height": lambda x: F.interpolate(x, (6, 13), mode="bilinear"),
    "bilinear, less": lambda x: F.interpolate(x, (3, 4), mode="bilinear", align_corners=True),
    "concatenation": lambda x: torch.cat([x, x * 2], 1),
}


def operand(arranged: str, dtype: torch.dtype) -> Tensor:
    """Images, some of them without NaN and infinities."""
    x = strewn(3, 16, 6, 8, dtype=dtype, share=0.02)
    x[1] = values(16, 6, 8, dtype=dtype, seed=1)
    return ARRANGEMENTS[arranged](x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("arranged", ["contiguous", "channels_last"])
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_in_plans_keep_nan(name: str, arranged: str, dtype: torch.dtype) -> None:
    net = Net(nn.Identity(), OPERATORS[name])
    check_plan(net, operand(arranged, dtype), values(2, 16, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("arranged", ["contiguous", "channels_last"])
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_in_eager_mode_keep_nan(name: str, arranged: str, dtype: torch.dtype) -> None:
    check_call(OPERATORS[name], operand(arranged, dtype))


class Attention(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        out: Tensor = F.scaled_dot_product_attention(q, k, v, mask)
        return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [NAN, INF])
@pytest.mark.parametrize("where", ["q", "k", "v", "mask"])
@pytest.mark.parametrize("how", ["in a plan", "in eager mode"])
def test_attention_keeps_nan(how: str, where: str, bad: float, dtype: torch.dtype) -> None:
    operands = {name: values(2, 2, 40, 16, dtype=dtype, seed=i) for i, name in enumerate("qkv")}
    operands["mask"] = values(2, 2, 40, 40, dtype=dtype, seed=3)
    operands["mask"][..., 30:] = -INF
    operands[where][0, 0, 3, 2] = bad
    if how == "in a plan":
        check_plan(Attention(), *operands.values())
    else:
        check_call(Attention(), *operands.values())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("queries", [3, 40])
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("where", ["q", "k", "v"])
@pytest.mark.parametrize("how", ["in a plan", "in eager mode"])
def test_attention_keeps_nan_of_keys_that_a_mask_hides(
    how: str, where: str, bad: float, queries: int, dtype: torch.dtype
) -> None:
    operands = {
        name: values(2, 2, count, 16, dtype=dtype, seed=i)
        for i, (name, count) in enumerate([("q", queries), ("k", 40), ("v", 40)])
    }
    mask = values(queries, 40) > 0
    mask[:, 1::5] = False
    for place in (1, 2):
        operands[where][0, place % 2, place, 2] = bad
    if how == "in a plan":
        check_plan(Attention(), *operands.values(), mask)
    else:
        check_call(Attention(), *operands.values(), mask)


class Residual(nn.Module):
    """A convolution of one image that is added to another."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.relu(self.conv(x) + y)


@pytest.mark.parametrize("where", ["x", "y", "weight", "bias"])
@pytest.mark.parametrize("kinds", [(NAN,), (INF,), (-INF,), (NAN, INF, -INF)], ids=str)
@pytest.mark.parametrize(("channels", "side"), [((16, 16), 9), ((5, 41), 6)])
def test_winograds_method_has_nan_and_infinities_where_stock_torch_has(
    monkeypatch: pytest.MonkeyPatch,
    channels: tuple[int, int],
    side: int,
    kinds: Sequence[float],
    where: str,
) -> None:
    """Its transforms alone would spread them over a tile, and turn infinity into NaN."""
    monkeypatch.setenv("ZENDNN_WINOGRAD", "2")
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", "channels_last")
    net = Residual(*channels).eval()
    operands = {
        "x": values(3, channels[0], side, side),
        "y": values(3, channels[1], side, side, seed=1),
        "weight": net.conv.weight,
        "bias": net.conv.bias,
    }
    chosen = operands[where]
    with torch.no_grad():
        if where in ("weight", "bias"):
            chosen[1::3] = strewn(*chosen[1::3].shape, share=0.03, kinds=kinds)
        else:
            chosen[:2] = strewn(*chosen[:2].shape, share=0.003, kinds=kinds)
        module = optimised(torch.jit.trace(net, (operands["x"], operands["y"]), check_trace=False))
        module(operands["x"], operands["y"])
    assert "winograd" in str(torch.backends.zendnn.explain(module))
    check_plan(net, operands["x"], operands["y"], layout="channels_last")


@pytest.mark.parametrize("outputs", [16, 41])
def test_winograds_method_does_not_overflow_where_a_sum_does_not(
    monkeypatch: pytest.MonkeyPatch, outputs: int
) -> None:
    """Its transforms multiply by up to 3.6 and sum."""
    monkeypatch.setenv("ZENDNN_WINOGRAD", "2")
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", "channels_last")
    net = Residual(16, outputs).eval()
    x = strewn(2, 16, 9, 9, share=0.01, kinds=(3e38, -3e38))
    y = values(2, outputs, 9, 9, seed=1)
    with torch.no_grad():
        module = optimised(torch.jit.trace(net, (x, y), check_trace=False))
        got = module(x, y)
        with stock():
            want = net(x, y)
    assert "winograd" in str(torch.backends.zendnn.explain(module))
    assert want.isfinite().all()
    assert got.isfinite().all()
    torch.testing.assert_close(got, want, rtol=0, atol=1e-5 * float(want.max()))


# Eager mode.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "prelu"])
def test_functions_in_eager_mode_keep_nan(name: str, dtype: torch.dtype) -> None:
    x = strewn(2, 17, 33, 31, dtype=dtype)
    for arranged in (x, channels_last(x), x.mT):
        check_call(FUNCTIONS[name], arranged)


@pytest.mark.parametrize("name", POOLS)
def test_pools_in_eager_mode_keep_nan_at_every_place(name: str) -> None:
    spatial, pool = POOLS[name]
    x = images(17, *SIDES[spatial])
    for arranged in (x, channels_last(x)):
        check_call(pool, arranged)


@pytest.mark.parametrize("dtype", DTYPES)
def test_batch_norm_in_eager_mode_keeps_nan(dtype: torch.dtype) -> None:
    mean, variance = values(17), values(17, seed=1).abs() + 0.5
    check_call(
        lambda x: F.batch_norm(x, mean.to(x.dtype), variance.to(x.dtype)),
        strewn(2, 17, 33, 31, dtype=dtype),
    )


# Tensors on the device.

ON_DEVICE: dict[str, tuple[Function, tuple[int, ...]]] = {
    **{name: (function, (6, 6)) for name, function in COMPUTATIONS.items()},
    "max of two by two": (lambda x: F.max_pool2d(x, 2), (6, 6)),
    "max of all": (lambda x: F.max_pool2d(x, 6), (6, 6)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2), (4, 4, 4)),
    "max of a padded cube": (lambda x: F.max_pool3d(x, 3, stride=2, padding=1), (4, 4, 4)),
    "average to a point": (lambda x: F.adaptive_avg_pool2d(x, 1), (6, 6)),
}


def check_on_device(ours: Function, theirs: Function, x: Tensor) -> None:
    got = ours(x.to_zendnn())
    assert got.is_zendnn
    with stock():
        assert_as_stock(got.to_dense(), theirs(x), theirs(x.double()))


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("name", ON_DEVICE)
def test_operators_on_the_device_keep_nan(name: str, channels: int, dtype: torch.dtype) -> None:
    function, sides = ON_DEVICE[name]
    check_on_device(function, function, images(channels, *sides, dtype=dtype))


@pytest.mark.parametrize("channels", CHANNELS)
def test_batch_norm_on_the_device_keeps_nan(channels: int) -> None:
    norm = settled(nn.BatchNorm2d(channels)).eval()
    with torch.no_grad():
        converted = zendnn_utils.to_zendnn(copy.deepcopy(norm))
        x = images(channels, 6, 6)
        got = converted(x.to_zendnn()).to_dense()
        with stock():
            assert_as_stock(got, norm(x), copy.deepcopy(norm).double()(x.double()))


@pytest.mark.nightly
@pytest.mark.skipif(not HAS_WIDE_VECTORS, reason="this CPU itself has only AVX2")
@pytest.mark.parametrize("isa", ["AVX2", "AVX512_CORE"])
def test_nan_is_kept_on_fewer_instructions(isa: str) -> None:
    passes("-k", "not fewer_instructions", __file__, ZENDNN_MAX_CPU_ISA=isa)
