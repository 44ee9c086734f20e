"""third_party/zendnn/panel_*: products with plain and packed weights, and convolutions.

Eager products have plain weights, and plans have packed ones. Without timing, a plan uses the first
implementation of each layout: ours, if it accepts the problem.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from test.drawing import property_test

from .common import (
    CPU,
    DTYPES,
    assembled_by,
    assert_as_exact,
    check,
    dtypes,
    layouts,
    rearranged,
    stock,
    values,
)

ZENDNN = torch.backends.zendnn

#: Depths of one and of several blocks, with and without a remainder.
depths = st.sampled_from((1, 2, 3, 16, 63, 64, 130, 1023, 1024, 1026, 2051))
#: Heights of a part of a tile, of one or two tiles, and of more than a thread's chunk.
heights = st.sampled_from((2, 3, 6, 7, 13, 24, 25, 47, 48, 49, 63, 100, 257))
#: Widths on both sides of a vector, of a panel and of two panels.
widths = st.sampled_from((2, 15, 16, 17, 47, 48, 49, 64, 65, 97, 130))

ISA = CPU["isa"]
#: Whether our kernels multiply bfloat16 here; on AMX they leave it to tiles.
PAIRS = "bfloat16" in ISA

pytestmark = pytest.mark.skipif(
    not ISA.startswith("AVX-512"), reason="panels are written for AVX-512"
)


def ran(capfd: pytest.CaptureFixture[str], implementation: str) -> bool:
    """Whether the verbose lines so far show that ``implementation`` ran."""
    lines = capfd.readouterr().out.splitlines()
    alone_or_as_a_step = re.compile(f",(exec|plan),.*[, ]{implementation}:")
    return any(map(alone_or_as_a_step.search, lines))


@property_test
@given(m=heights, k=depths, n=widths, left=layouts, right=layouts, dtype=dtypes)
def test_plain_weights(m: int, k: int, n: int, left: str, right: str, dtype: torch.dtype) -> None:
    a, b = values(m, k, dtype=dtype, seed=1), values(k, n, dtype=dtype, seed=2)
    check(torch.mm, rearranged(a, left), rearranged(b, right))


@pytest.mark.parametrize("k", [768, 1024, 1536, 3072])
def test_rounding_errors_do_not_grow_with_the_depth(
    k: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """Sums of positive products grow, and with them the rounding of what is added."""
    a, b = (values(*sizes, seed=1).abs() for sizes in ((192, k), (k, 196)))
    with ZENDNN.verbose(ZENDNN.VERBOSE_ON):
        got = torch.mm(a, b)
    assert ran(capfd, "zen:panel")
    exact = a.double() @ b.double()
    assert ((got.double() - exact).abs() / exact).max() < 6e-7


def laid_out(matrices: Tensor, transposed: bool, gap: int) -> Tensor:
    """Copies matrices into rows or columns with ``gap`` NaNs between them."""
    source = matrices.mT if transposed else matrices
    wide = source.new_full((*source.shape[:-1], source.shape[-1] + gap), math.nan)
    inner = wide[..., : source.shape[-1]].copy_(source)
    return inner.mT if transposed else inner


@property_test
@given(
    batch=st.sampled_from((1, 2, 3, 40)),
    m=st.sampled_from((2, 5, 6, 13, 14, 18, 27, 64, 130)),
    k=st.sampled_from((1, 15, 16, 27, 64, 100, 300, 1100)),
    n=st.sampled_from((2, 16, 27, 32, 33, 64, 100, 300)),
    left=st.tuples(st.booleans(), st.sampled_from((0, 3))),
    right=st.tuples(st.booleans(), st.sampled_from((0, 3))),
    added=st.sampled_from(("nothing", "row", "matrix")),
    dtype=dtypes,
)
def test_batches(
    batch: int,
    m: int,
    k: int,
    n: int,
    left: tuple[bool, int],
    right: tuple[bool, int],
    added: str,
    dtype: torch.dtype,
) -> None:
    a = laid_out(values(batch, m, k, dtype=dtype, seed=1), *left)
    b = laid_out(values(batch, k, n, dtype=dtype, seed=2), *right)
    if added == "nothing":
        check(torch.bmm, a, b)
        return
    to = values(n, dtype=dtype, seed=3) if added == "row" else values(batch, m, n, dtype=dtype)
    check(torch.baddbmm, to, a, b)
    check(lambda *operands: torch.baddbmm(*operands, beta=0.5, alpha=2), to, a, b)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize(
    ("batch", "m", "k", "n"),
    [(12, 128, 64, 128), (64, 27, 128, 27), (16, 8, 128, 512), (3, 200, 300, 300)],
)
def test_batches_of_plain_matrices_run_in_panels(
    batch: int,
    m: int,
    k: int,
    n: int,
    left: bool,
    right: bool,
    capfd: pytest.CaptureFixture[str],
) -> None:
    a = laid_out(values(batch, m, k, seed=1), left, 0)
    b = laid_out(values(batch, k, n, seed=2), right, 0)
    with ZENDNN.verbose(ZENDNN.VERBOSE_ON):
        check(torch.bmm, a, b)
    assert ran(capfd, "zen:panel")


@pytest.mark.parametrize("repeated", [0, 1])
def test_a_matrix_that_a_batch_shares(repeated: int) -> None:
    a, b = values(9, 20, 70, seed=1), values(9, 70, 40, seed=2)
    operands = [a, b]
    operands[repeated] = operands[repeated][:1].expand_as(operands[repeated])
    check(torch.bmm, *operands)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [64, 100, 1000])
@pytest.mark.parametrize("k", [256, 770, 4100])
@pytest.mark.parametrize("m", [2, 3, 5, 8, 13, 24])
def test_layers_of_few_rows(
    m: int, k: int, n: int, dtype: torch.dtype, capfd: pytest.CaptureFixture[str]
) -> None:
    x, weight = values(m, k, dtype=dtype, seed=1), values(n, k, dtype=dtype, seed=2)
    with ZENDNN.verbose(ZENDNN.VERBOSE_ON):
        check(F.linear, x, weight, values(n, dtype=dtype, seed=3))
    assert ran(capfd, "zen:panel") == (dtype == torch.float32 or PAIRS)


@pytest.mark.parametrize(("n", "gap"), [(64, 960), (100, 3), (1024, 0)])
@pytest.mark.parametrize("k", [256, 770, 1100])
@pytest.mark.parametrize("m", [2, 6, 9, 15, 47, 95])
def test_few_rows_and_weights_in_rows(
    m: int, k: int, n: int, gap: int, capfd: pytest.CaptureFixture[str]
) -> None:
    x, weight = values(m, k, seed=1), laid_out(values(k, n, seed=2), False, gap)
    with ZENDNN.verbose(ZENDNN.VERBOSE_ON):
        check(torch.addmm, values(n, seed=3), x, weight)
    assert ran(capfd, "zen:panel")


@pytest.mark.parametrize("batch", [0, 3])
def test_rows_of_weights_with_more_columns_than_buffered_sums(batch: int) -> None:
    shape = (batch,) if batch else ()
    x, weight = values(*shape, 95, 130, seed=1), values(*shape, 130, 5000, seed=2)
    check(torch.bmm if batch else torch.mm, x, weight)


@pytest.mark.parametrize("apart", [40_000_000, 50_000_000])
def test_rows_of_weights_that_lie_far_apart(apart: int) -> None:
    weight = torch.empty(6, apart)[:, :70]  # mostly untouched memory
    check(torch.mm, values(70, 6, seed=1), weight.copy_(values(6, 70, seed=2)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", [2, 7, 24])
def test_a_nan_reaches_only_its_row_and_column(m: int, dtype: torch.dtype) -> None:
    x, weight = values(m, 500, dtype=dtype, seed=1), values(70, 500, dtype=dtype, seed=2)
    x[1, 499], weight[69, 498] = math.nan, math.inf
    got, exact = F.linear(x, weight), F.linear(x.double(), weight.double())
    assert torch.equal(got.isnan(), exact.isnan())
    assert torch.equal(got.isinf(), exact.isinf())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposed", [False, True])
def test_plain_weights_in_more_rows_than_a_chunk_has(
    transposed: bool, dtype: torch.dtype, capfd: pytest.CaptureFixture[str]
) -> None:
    a, b = values(2500, 1200, dtype=dtype, seed=1), values(1200, 200, dtype=dtype, seed=2)
    with ZENDNN.verbose(ZENDNN.VERBOSE_ON):
        check(
            torch.addmm, values(200, dtype=dtype, seed=3), a, b.t().clone().t() if transposed else b
        )
    assert ran(capfd, "zen:panel") or (dtype == torch.bfloat16 and not PAIRS)


@pytest.mark.parametrize(("depth", "taken"), [(9000, True), (40_000, False)])
def test_transposed_rows_are_kept_up_to_a_limit(
    depth: int, taken: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    a, b = values(depth, 300, seed=1), values(depth, 70, seed=2)
    with ZENDNN.verbose(ZENDNN.VERBOSE_ON):
        check(torch.mm, a.t(), b)
    assert ran(capfd, "zen:panel") == taken


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("depth", [96, 99, 100])
@pytest.mark.parametrize("row", range(0, 60, 7))
def test_nan_and_infinity_stay_in_their_row(row: int, depth: int, dtype: torch.dtype) -> None:
    a, b = values(60, depth, dtype=dtype, seed=1), values(depth, 70, dtype=dtype, seed=2)
    a[row, 0], a[(row + 9) % 60, 3] = math.nan, math.inf
    got, exact = a @ b, a.double() @ b.double()
    assert torch.equal(got.isnan(), exact.isnan())
    assert torch.equal(got.isinf(), exact.isinf())


def optimised(module: nn.Module, *inputs: Tensor) -> Any:
    with torch.no_grad():
        traced = torch.jit.trace(module.eval(), inputs, check_trace=False)
        return torch.jit.optimize_for_inference(torch.jit.freeze(traced))


def agrees(module: nn.Module, x: Tensor, optimised_module: Any) -> None:
    """Asserts that the optimised module is as exact as the module on stock kernels."""
    with torch.no_grad():
        with stock():
            expected = module(x)
        for _ in range(2):
            got = optimised_module(x)
        exact = module.double()(x.double())
        module.to(x.dtype)
    assert_as_exact(got, expected, exact, 8 * exact.abs().max().item())


class Layer(nn.Module):
    """A linear layer, a function and an addition."""

    def __init__(self, inputs: int, outputs: int, bias: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias)
        self.other = nn.Linear(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.linear(x) + self.other(x))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"),
    [(1, 33, 70), (5, 2050, 47), (64, 768, 769), (300, 1100, 100), (700, 64, 16)],
)
def test_packed_weights(
    rows: int,
    inputs: int,
    outputs: int,
    bias: bool,
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "0")
    torch.manual_seed(0)
    module, x = Layer(inputs, outputs, bias).to(dtype), torch.randn(rows, inputs).to(dtype)
    with ZENDNN.verbose(ZENDNN.VERBOSE_ON):
        agrees(module, x, optimised(module, x))
    taken = dtype == torch.float32 or (PAIRS and inputs % 2 == 0)
    assert ran(capfd, "zen:panel") == taken


class Bottleneck(nn.Module):
    """Convolutions with kernels of size 1, one of them with a residual."""

    def __init__(self, channels: int, filters: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels, filters, 1)
        self.expand = nn.Conv2d(filters, channels, 1, bias=False)
        self.aside = nn.Conv2d(channels, filters, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(x + self.expand(F.relu(self.reduce(x))))
        return torch.cat([self.aside(y), self.reduce(y)], 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("batch", "channels", "filters", "size"),
    [(1, 64, 32, 9), (2, 48, 66, 7), (3, 1030, 130, 5), (1, 16, 256, 30), (2, 7, 9, 4)],
)
def test_convolutions_of_single_points(
    batch: int,
    channels: int,
    filters: int,
    size: int,
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "0")
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", "channels_last")
    torch.manual_seed(0)
    module = Bottleneck(channels, filters).to(dtype)
    x = torch.randn(batch, channels, size, size + 1).to(dtype)
    with ZENDNN.verbose(ZENDNN.VERBOSE_ON):
        agrees(module, x, optimised(module, x))
    even = channels % 2 == 0 or filters % 2 == 0
    assert ran(capfd, "zen:panel_1x1") == (dtype == torch.float32 or (PAIRS and even))


#: Image sizes with points for a part of a panel, for one, and for several.
sides = st.sampled_from((5, 6, 7, 8, 13, 16, 21, 33))


@property_test
@given(
    data=st.data(),
    batch=st.integers(1, 3),
    channels=st.sampled_from((1, 2, 3, 8, 17, 130)),
    filters=st.sampled_from((1, 2, 6, 16, 37)),
    height=sides,
    width=sides,
    bias=st.booleans(),
    layout=layouts,
    dtype=dtypes,
)
def test_convolutions_of_plain_images(
    data: st.DataObject,
    batch: int,
    channels: int,
    filters: int,
    height: int,
    width: int,
    bias: bool,
    layout: str,
    dtype: torch.dtype,
) -> None:
    kernel = data.draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    geometry = {
        "stride": data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        "padding": data.draw(st.tuples(st.integers(0, 6), st.integers(0, 6))),
        "dilation": data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
    }
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, geometry["dilation"], strict=True)]
    image = values(
        batch, channels, max(height, reach[0]), max(width, reach[1]), dtype=dtype, seed=1
    )
    check(
        lambda *operands: F.conv2d(*operands, **geometry),
        rearranged(image, layout),
        values(filters, channels, *kernel, dtype=dtype, seed=2),
        values(filters, dtype=dtype, seed=3) if bias else None,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("image", "weight", "geometry"),
    [
        ((1, 64, 56, 56), (64, 64, 3, 3), {"padding": 1}),
        ((1, 3, 224, 224), (64, 3, 7, 7), {"padding": 3, "stride": 2}),
        ((1, 130, 14, 14), (1100, 130, 3, 3), {"padding": 1}),
        ((3, 16, 30, 29), (40, 16, 3, 2), {"dilation": 2}),
        ((5, 24, 28, 28), (96, 24, 1, 1), {}),
        ((2, 64, 28, 28), (70, 64, 1, 1), {"stride": 2}),
        ((2, 6, 5, 90), (8, 6, 1, 9), {"stride": (3, 2)}),
    ],
)
def test_plain_images_stay_as_they_are(
    image: tuple[int, ...],
    weight: tuple[int, ...],
    geometry: dict[str, Any],
    dtype: torch.dtype,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with ZENDNN.verbose(ZENDNN.VERBOSE_ON):
        check(
            lambda *operands: F.conv2d(*operands, **geometry),
            values(*image, dtype=dtype, seed=1),
            values(*weight, dtype=dtype, seed=2),
            values(weight[0], dtype=dtype, seed=3),
        )
    even = math.prod(weight[1:]) % 2 == 0
    assert ran(capfd, "zen:panel_plain") == (dtype == torch.float32 or (PAIRS and even))


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_lies_around_an_image_is_not_read(dtype: torch.dtype) -> None:
    around = torch.full((3, 8, 12, 12), math.nan, dtype=dtype)
    around[1] = values(8, 12, 12, dtype=dtype, seed=1)
    weight = values(5, 8, 3, 3, dtype=dtype, seed=2)
    for stride in (1, 2):
        assert F.conv2d(around[1:2], weight, stride=stride, padding=2).isfinite().all()


def test_threads_of_all_sizes_at_once() -> None:
    """Each caller gets its own product, on as many threads as it requests."""
    torch.manual_seed(0)
    module = Layer(96, 200, True)
    x = torch.randn(130, 96)
    fast = optimised(module, x)
    with torch.no_grad():
        expected = module(x)

    def run(index: int) -> bool:
        torch.set_num_threads(1 + index % 3)
        with torch.no_grad():
            return all(torch.allclose(fast(x), expected, atol=1e-4) for _ in range(20))

    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(run, range(8)))
    finally:
        torch.set_num_threads(before)


def assembled(*rows: int) -> int:
    """The number of panel kernels that a process assembles for products of so many rows."""
    code = (
        "import torch\n"
        f"for rows in {rows}:\n"
        "    torch.nn.functional.linear(torch.rand(rows, 64), torch.rand(96, 64))"
    )
    return sum("panel_kernel" in line for line in assembled_by(code, OMP_NUM_THREADS="1"))


def test_products_of_other_rows_share_kernels() -> None:
    first = assembled(108)
    assert 0 < first == assembled(108, 216, 432)


class Followed(nn.Module):
    """A linear layer and what follows it, which may become the layer's post-op."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(64, 96)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.linear(x), x)


FOLLOWING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "nothing": lambda y, x: y,
    "relu": lambda y, x: y.relu(),
    "leaky relu 0.1": lambda y, x: F.leaky_relu(y, 0.1),
    "leaky relu 0.2": lambda y, x: F.leaky_relu(y, 0.2),
    "clamped": lambda y, x: y.clamp(-0.5, 0.5),
    "clamped elsewhere": lambda y, x: y.clamp(-0.25, 0.75),
    "gelu": lambda y, x: F.gelu(y),
    "gelu by tanh": lambda y, x: F.gelu(y, approximate="tanh"),
    "row by row": lambda y, x: y + torch.cat((x, x[:, :32]), 1),
    "added twice": lambda y, x: y + torch.cat((x, x[:, :32]), 1) * 2,
    "times columns": lambda y, x: y * x[0].repeat(2)[:96],
    "times columns, relu": lambda y, x: (y * x[0].repeat(2)[:96]).relu(),
    "times a number": lambda y, x: (y * 0.3).relu(),
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_kernels_are_shared_only_by_equal_post_ops(dtype: torch.dtype) -> None:
    """All are alive at once, with equal rows, and with others of equal tiles."""
    alive = []
    for rows in (108, 216, 109):
        for function in FOLLOWING.values():
            module, x = Followed(function).to(dtype), values(rows, 64, dtype=dtype, seed=1)
            alive.append(optimised(module, x))
            agrees(module, x, alive[-1])
