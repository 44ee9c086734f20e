"""Eager operations on dense CPU tensors: right on ZenDNN; refused calls equal stock torch."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from test.drawing import property_test

from .common import (
    DTYPES,
    PRIMITIVE_DTYPES,
    assert_as_exact,
    assert_same_bits,
    assert_same_outcome,
    check,
    counting,
    dtypes,
    layouts,
    long_strides,
    of_bfloat16,
    of_products,
    rearranged,
    run_python,
    same_error,
    sizes,
    stock,
    values,
)

scalars = st.sampled_from((0, 1, -1, 2, 0.5, -1.75))


def matrices(dtype: torch.dtype, *, m: int = 64, k: int = 96, n: int = 80) -> tuple[Tensor, Tensor]:
    return values(m, k, dtype=dtype, seed=1), values(k, n, dtype=dtype, seed=2)


# Matrix products


@of_products
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (torch.mm, [(64, 96), (96, 80)]),
        (torch.mm, [(257, 515), (515, 129)]),
        (torch.bmm, [(3, 64, 96), (3, 96, 80)]),
        (torch.addmm, [(80,), (64, 96), (96, 80)]),
        (torch.baddbmm, [(3, 64, 80), (3, 64, 96), (3, 96, 80)]),
        (torch.matmul, [(2, 3, 64, 96), (2, 3, 96, 80)]),
        (torch.matmul, [(3, 64, 96), (96, 80)]),
        (F.linear, [(64, 96), (80, 96)]),
        (F.linear, [(64, 96), (80, 96), (80,)]),
        (F.linear, [(2, 32, 96), (80, 96), (80,)]),
    ],
    ids=lambda value: getattr(value, "__name__", None) or str(value),
)
def test_product_is_right_and_runs_on_zendnn(
    function: Callable[..., Tensor], shapes: list[tuple[int, ...]], dtype: torch.dtype
) -> None:
    operands = [values(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)]
    assert check(function, *operands)


@of_products
def test_mm_is_right_for_any_shape_and_layout() -> None:
    total: Counter[str] = Counter()

    @property_test
    @given(m=sizes, k=sizes, n=sizes, left=layouts, right=layouts, dtype=dtypes)
    def holds(m: int, k: int, n: int, left: str, right: str, dtype: torch.dtype) -> None:
        a, b = matrices(dtype, m=m, k=k, n=n)
        total.update(check(torch.mm, rearranged(a, left), rearranged(b, right)))

    holds()
    assert total


@of_products
def test_addmm_is_right_for_any_factors_and_broadcast() -> None:
    total: Counter[str] = Counter()

    @property_test
    @given(
        m=sizes,
        k=sizes,
        n=sizes,
        kept=st.sampled_from(("mn", "1n", "m1", "n", "11", "")),
        layout=layouts,
        dtype=dtypes,
        alpha=scalars,
        beta=scalars,
    )
    def holds(
        m: int,
        k: int,
        n: int,
        kept: str,
        layout: str,
        dtype: torch.dtype,
        alpha: float,
        beta: float,
    ) -> None:
        a, b = matrices(dtype, m=m, k=k, n=n)
        shape = [{"m": m, "n": n, "1": 1}[letter] for letter in kept]
        c = values(*shape, dtype=dtype, seed=3) if shape else torch.tensor(1.5, dtype=dtype)
        c = rearranged(c, layout) if shape else c

        def addmm(c: Tensor, a: Tensor, b: Tensor) -> Tensor:
            return torch.addmm(c, a, b, alpha=alpha, beta=beta)

        # Factors of opposite sign may cancel even with absolute values: bound the sum by hand.
        bound = abs(alpha) * k * a.abs().max() * b.abs().max() + abs(beta) * c.abs().max()
        with counting() as calls:
            ours = addmm(c, a, rearranged(b, layout))
        with stock():
            theirs = addmm(c, a, b)
            exact = addmm(c.double(), a.double(), b.double())
        assert_as_exact(ours, theirs, exact, bound.item())
        total.update(calls)

    holds()
    assert total


@of_products
def test_bmm_is_right_for_any_shape_and_layout() -> None:
    total: Counter[str] = Counter()

    @property_test
    @given(
        batch=st.integers(1, 5),
        m=sizes,
        k=sizes,
        n=sizes,
        left=layouts,
        right=layouts,
        dtype=dtypes,
    )
    def holds(
        batch: int, m: int, k: int, n: int, left: str, right: str, dtype: torch.dtype
    ) -> None:
        a = values(batch, m, k, dtype=dtype, seed=1)
        b = values(batch, k, n, dtype=dtype, seed=2)
        total.update(check(torch.bmm, rearranged(a, left), rearranged(b, right)))

    holds()
    assert total


@pytest.mark.parametrize("dtype", DTYPES)
def test_bmm_of_expanded_operands_is_right(dtype: torch.dtype) -> None:
    a = values(1, 32, 48, dtype=dtype, seed=1).expand(4, 32, 48)
    b = values(4, 1, 40, dtype=dtype, seed=2).expand(4, 48, 40)
    check(torch.bmm, a, b)


def freed_by(function: Callable[[], object]) -> int:
    """The bytes of large blocks that a call takes and gives back."""
    torch.backends.zendnn.empty_cache()
    result = function()
    freed: int = torch.backends.zendnn.memory_cached()
    del result
    return freed


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize(
    "repeated", [(False, True), (True, False), (True, True)], ids=["right", "left", "both"]
)
def test_expanded_matrices_are_not_made_whole(
    repeated: tuple[bool, bool], rows: int, turned: bool, dtype: torch.dtype
) -> None:
    batch, inner, columns = 2 if turned else 64, 512, 256
    left, right = (
        values(1 if same else batch, *size, dtype=dtype, seed=seed)
        for seed, (same, size) in enumerate(
            zip(repeated, [(rows, inner), (inner, columns)], strict=True)
        )
    )
    right = right.mT.contiguous().mT if turned else right
    a, b = (x.expand(batch, -1, -1) for x in (left, right))
    c, row = values(batch, rows, columns, dtype=dtype, seed=5), values(columns, dtype=dtype, seed=6)
    out = torch.empty(batch, columns, rows, dtype=dtype).mT
    functions: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "bmm": torch.bmm,
        "matmul": torch.matmul,
        "einsum": lambda a, b: torch.einsum("bij,bjk->bik", a, b),
        "out": lambda a, b: torch.bmm(a, b, out=out.to(a.dtype)),
        "baddbmm": lambda a, b: torch.baddbmm(c.to(a.dtype), a, b, beta=0.5, alpha=2),
        "row": lambda a, b: torch.baddbmm(row.to(a.dtype), a, b),
    }
    whole = batch * inner * columns * dtype.itemsize
    for name, function in functions.items():
        check(function, a, b, grow=2)
        freed = freed_by(functools.partial(function, a, b))
        # The same row times the same matrix is torch's, which copies both.
        is_torchs = rows == 1 and all(repeated)
        assert freed < whole // 4 or not repeated[1] or is_torchs, name


@of_products
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dims", [3, 4, 5, 6])
def test_one_matrix_for_a_whole_batch_is_one_product(dims: int, dtype: torch.dtype) -> None:
    batch = (16, 2, 2, 2)[: dims - 2]
    a = values(*batch, 1, 256, dtype=dtype, seed=1)
    b = values(256, 192, dtype=dtype, seed=2).expand(*batch, -1, -1)
    assert check(torch.matmul, a, b) == {"matmul": 1}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", [1, 7, 64])
def test_bmm_of_windows_that_overlap_is_right(step: int, dtype: torch.dtype) -> None:
    windows = values(200, 50, dtype=dtype).unfold(0, 64, step)
    check(torch.bmm, windows, values(windows.shape[0], 64, 50, dtype=dtype, seed=1))
    check(torch.bmm, values(windows.shape[0], 64, 50, dtype=dtype, seed=1), windows)


@of_products
@pytest.mark.parametrize("dtype", DTYPES)
def test_bmm_of_attention_heads_split_out_of_one_tensor_is_right(dtype: torch.dtype) -> None:
    packed = values(2, 33, 3, 4, 16, dtype=dtype)
    query, key, value = (part.transpose(1, 2) for part in packed.unbind(2))

    def scores(query: Tensor, key: Tensor) -> Tensor:
        return torch.matmul(query, key.transpose(-1, -2))

    assert check(scores, query, key)
    assert check(torch.matmul, values(2, 4, 33, 33, dtype=dtype, seed=5), value)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("m", "k", "n"), [(0, 5, 7), (5, 0, 7), (5, 7, 0), (0, 0, 0)], ids=lambda size: str(size)
)
def test_empty_products_equal_stock_torch(m: int, k: int, n: int, dtype: torch.dtype) -> None:
    a, b = matrices(dtype, m=m, k=k, n=n)
    c = values(m, n, dtype=dtype, seed=3)
    assert_same_bits(lambda: torch.mm(a, b))
    assert_same_bits(lambda: torch.addmm(c, a, b, beta=0.5))
    assert_same_bits(lambda: torch.bmm(a.expand(3, m, k), b.expand(3, k, n)))
    assert_same_bits(lambda: torch.baddbmm(c.expand(3, m, n), a.expand(3, m, k), b.expand(3, k, n)))
    assert_same_bits(lambda: torch.bmm(a.expand(0, m, k), b.expand(0, k, n)))
    assert_same_bits(lambda: F.linear(a, b.t(), c[0] if m else None))


@pytest.mark.parametrize("factor", [float("inf"), float("nan"), 1e300, 1e-50, 1e-320])
@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_factors_beyond_float_match_stock_torch(name: str, factor: float) -> None:
    a, b = matrices(torch.float32)
    added = torch.full((64, 80), float("nan")) if factor < 1 else values(64, 80)

    def product() -> Tensor:
        return torch.addmm(added, a, b, **{name: factor})

    if factor == factor and factor < 1:  # ZenDNN may take these
        with stock():
            theirs = product()
        torch.testing.assert_close(product(), theirs, rtol=1e-5, atol=1e-4, equal_nan=True)
    else:
        assert_same_bits(product)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_beta_zero_ignores_the_added_tensor(dtype: torch.dtype, bad: float) -> None:
    a, b = matrices(dtype)
    product = torch.mm(a, b)
    full = torch.full_like(product, bad)
    assert torch.equal(torch.addmm(full, a, b, beta=0).isfinite(), torch.ones_like(full).bool())
    batch = torch.baddbmm(full[None], a[None], b[None], beta=0)
    assert batch.isfinite().all()
    out = full.clone()
    out.addmm_(a, b, beta=0)
    assert_as_exact(out, product, a.double() @ b.double(), 100.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_and_infinity_in_operands_propagate_as_in_stock_torch(
    dtype: torch.dtype,
) -> None:
    a, b = matrices(dtype)
    a[3, 5], a[7, 1], b[2, 9] = float("nan"), float("inf"), float("-inf")
    ours = torch.mm(a, b)
    with stock():
        theirs = torch.mm(a, b)
    assert torch.equal(ours.isnan(), theirs.isnan())
    assert torch.equal(ours.isinf(), theirs.isinf())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "strided", "padded"])
def test_out_is_written_in_place_whatever_its_layout(layout: str, dtype: torch.dtype) -> None:
    a, b = matrices(dtype)
    exact = a.double() @ b.double()
    with stock():
        theirs = torch.mm(a, b)
    out = rearranged(torch.full((64, 80), float("nan"), dtype=dtype), layout)
    address, strides = out.data_ptr(), out.stride()
    assert torch.mm(a, b, out=out) is out
    assert (out.data_ptr(), out.stride()) == (address, strides)
    assert_as_exact(out.contiguous(), theirs, exact, 100.0)
    out = rearranged(values(2, 64, 80, dtype=dtype, seed=4), layout)
    before = out.double()
    torch.baddbmm(out, a.expand(2, 64, 96), b.expand(2, 96, 80), beta=-1, out=out)
    error = (out.double() - (exact - before)).abs().max()
    assert error <= 2 * torch.finfo(dtype).eps * 100


@of_products
def test_a_transposed_out_uses_the_same_implementation(
    capfd: pytest.CaptureFixture[str],
) -> None:
    a, b, bias = values(64, 96, seed=1), values(96, 80, seed=2), values(80, seed=3)
    with torch.backends.zendnn.verbose(torch.backends.zendnn.VERBOSE_ON):
        out = torch.empty(80, 64).t()
        torch.mm(a, b, out=out)
        torch.addmm(bias, a, b, out=torch.empty(80, 64).t())
        torch.bmm(a[None], b[None], out=torch.empty(1, 80, 64).mT)
        torch.empty(80, 64).t().addmm_(a, b)
    torch.testing.assert_close(out, a @ b)
    lines = [line for line in capfd.readouterr().out.splitlines() if ",exec,cpu,matmul" in line]
    assert len(lines) == 4
    assert not [line for line in lines if ",ref" in line]


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("repeated", [(True, False), (False, True), (True, True)])
def test_matrices_that_a_batch_shares_are_not_copied(
    repeated: tuple[bool, bool],
    transposed: bool,
    dtype: torch.dtype,
    capfd: pytest.CaptureFixture[str],
) -> None:
    a, b = (
        values(1, *size, dtype=dtype, seed=1).expand(5, *size)
        if same
        else values(5, *size, dtype=dtype, seed=1)
        for size, same in zip(((64, 96), (96, 80)), repeated, strict=True)
    )
    if transposed:
        a, b = b.mT, a.mT
    with torch.backends.zendnn.verbose(torch.backends.zendnn.VERBOSE_ON):
        check(torch.bmm, a, b)
    lines = capfd.readouterr().out.splitlines()
    assert not [line for line in lines if ",exec,cpu,matmul,ref" in line]


@pytest.fixture
def precisions() -> Iterator[None]:
    """Restores torch's float32 precision settings after the test."""
    kept = [(place, place.fp32_precision) for place in PRECISIONS]
    legacy = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(legacy)
    for place, precision in kept:
        place.fp32_precision = precision


PRECISIONS = [
    place
    for name in ("matmul", "conv", "rnn")
    if (place := getattr(torch.backends.mkldnn, name, None)) is not None
]


@of_products
@pytest.mark.usefixtures("precisions")
@pytest.mark.parametrize(("precision", "taken"), [("medium", False), ("highest", True)])
def test_products_that_torch_may_round_are_left_to_it(precision: str, taken: bool) -> None:
    a, b = matrices(torch.float32)
    torch.set_float32_matmul_precision(precision)
    with counting() as calls:
        ours = torch.mm(a, b)
    assert bool(calls["matmul"]) == taken
    with stock():
        assert_as_exact(ours, torch.mm(a, b), a.double() @ b.double(), 100.0)


@pytest.mark.skipif(not PRECISIONS, reason="this torch has one precision for all operators")
@pytest.mark.usefixtures("precisions")
def test_convolutions_that_torch_may_round_are_left_to_it() -> None:
    x, weight = values(2, 16, 9, 9), values(16, 16, 3, 3)
    torch.backends.mkldnn.conv.fp32_precision = "bf16"
    with counting() as calls:
        ours = F.conv2d(x, weight)
    assert not calls["convolution"]
    with stock():
        torch.testing.assert_close(ours, F.conv2d(x, weight), rtol=0, atol=0)


def test_products_of_many_sizes_share_their_buffers() -> None:
    """Packed panels take 200 KB per thread; beyond that a size keeps only code."""
    code = """
import torch
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
weight = torch.ones(768, 768).t()
rows = torch.ones(400, 768)
torch.mm(rows, weight)
before = resident()
for count in range(100, 400):
    torch.mm(rows[:count], weight)
print((resident() - before) >> 20)
"""
    assert int(run_python(code)) < 75


def test_memory_between_the_rows_of_out_is_unchanged() -> None:
    a, b = matrices(torch.float32)
    frame = torch.full((64, 100), 7.0)
    torch.mm(a, b, out=frame[:, 10:90])
    assert (frame[:, :10] == 7).all()
    assert (frame[:, 90:] == 7).all()
    assert not (frame[:, 10:90] == 7).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_in_place_forms_equal_their_functional_forms(dtype: torch.dtype) -> None:
    a, b = matrices(dtype)
    c = values(64, 80, dtype=dtype, seed=3)
    for layout in ("contiguous", "transposed", "padded"):
        mine = rearranged(c, layout).clone(memory_format=torch.preserve_format)
        assert mine.addmm_(a, b, beta=2, alpha=0.5) is mine
        want = torch.addmm(c, a, b, beta=2, alpha=0.5)
        torch.testing.assert_close(mine, want)
        batch = rearranged(c, layout).repeat(2, 1, 1)
        batch.baddbmm_(a.expand(2, 64, 96), b.expand(2, 96, 80), beta=2, alpha=0.5)
        torch.testing.assert_close(batch, want.expand(2, 64, 80))


def test_an_out_that_is_also_the_added_tensor_is_read_before_it_is_written() -> None:
    a, b = matrices(torch.float32)
    c = values(64, 80, seed=3)
    want = torch.addmm(c, a, b)
    torch.addmm(c, a, b, out=c)
    torch.testing.assert_close(c, want)


BF16, F64 = torch.bfloat16, torch.float64


# The sizes are large enough that ZenDNN does not leave them to torch without a check.
@pytest.mark.parametrize(
    "function",
    [
        lambda: torch.mm(values(64, 96), values(95, 80)),
        lambda: torch.mm(values(64, 96), values(96)),
        lambda: torch.mm(values(64, 96), values(96, 80, dtype=BF16)),
        lambda: torch.mm(values(64, 96), values(96, 80), out=torch.empty(64, 80, dtype=F64)),
        lambda: torch.mm(values(64, 96), values(96, 80), out=torch.empty(64, 80, dtype=BF16)),
        lambda: torch.bmm(values(2, 64, 96), values(3, 96, 80)),
        lambda: torch.bmm(values(2, 64, 96), values(2, 95, 80)),
        lambda: torch.addmm(values(7), values(64, 96), values(96, 80)),
        lambda: torch.addmm(values(64, 80, dtype=F64), values(64, 96), values(96, 80)),
        lambda: torch.addmm(values(64, 80, dtype=BF16), values(64, 96), values(96, 80)),
        lambda: torch.addmm(values(80), values(64, 96), values(96, 80), alpha=1j),
        lambda: torch.addmm(values(80), values(64, 96), values(96, 80), beta=1j),
        lambda: torch.baddbmm(values(3, 64, 80), values(2, 64, 96), values(2, 96, 80)),
        lambda: torch.baddbmm(values(64, 80), values(2, 64, 96), values(3, 96, 80)),
        lambda: F.linear(values(64, 96), values(80, 95)),
        lambda: F.linear(values(64, 96), values(80, 96), values(81)),
        lambda: F.conv2d(values(1, 3, 8, 8), values(4, 2, 3, 3)),
        lambda: F.conv2d(values(1, 3, 2, 2), values(4, 3, 5, 5)),
        lambda: F.conv2d(values(1, 3, 8, 8), values(4, 3, 3, 3), values(5)),
        lambda: F.conv2d(values(1, 3, 8, 8), values(4, 3, 3, 3), values(4, dtype=BF16)),
        lambda: F.conv2d(values(1, 3, 8, 8), values(4, 3, 3, 3), stride=0),
        lambda: F.conv2d(values(1, 3, 8, 8), values(4, 3, 3, 3), dilation=0),
        lambda: F.conv2d(values(1, 3, 8, 8), values(4, 3, 3, 3), padding=-1),
        lambda: F.conv2d(values(1, 3, 8, 8), values(4, 3, 3, 3, dtype=BF16)),
        lambda: F.conv2d(values(1, 6, 8, 8), values(8, 2, 3, 3), groups=3),
        lambda: F.conv1d(values(8), values(4, 3, 3)),
        lambda: F.conv_transpose2d(values(1, 6, 8, 8), values(6, 2, 3, 3), groups=4),
        lambda: F.conv_transpose2d(values(1, 3, 2, 2), values(3, 4, 1, 1), padding=3),
        lambda: F.conv_transpose2d(
            values(1, 3, 4, 4), values(3, 4, 3, 3), output_padding=-1, stride=2
        ),
    ],
)
def test_wrong_operands_raise_the_error_of_stock_torch(function: Callable[[], Tensor]) -> None:
    assert same_error(function)


def product_into(place: str) -> Tensor:
    """A product whose result overlaps an operand."""
    a, b, rows = values(64, 64, seed=1), values(64, 64, seed=2), values(65, 64, seed=3)
    if place == "both":
        return a.addmm_(a, b)
    if place == "added":
        return torch.addmm(rows[1:], a, b, out=rows[:-1])
    return torch.mm(a, b, out=a)


@pytest.mark.parametrize("place", ["left", "added", "both"])
def test_products_written_to_an_operand_are_stock_torchs(place: str) -> None:
    assert_same_outcome(lambda: product_into(place))


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
@pytest.mark.parametrize("beta", [0, 1])
def test_alpha_zero_matches_stock_torch(beta: int, bad: float) -> None:
    a, b = matrices(torch.float32)
    assert_same_outcome(lambda: torch.addmm(values(80), a * bad, b, alpha=0, beta=beta))


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("shape", [(0,), (0, 80), (64, 1), (80, 64), (3, 64, 80)], ids=str)
def test_an_out_of_another_size_is_resized(shape: tuple[int, ...]) -> None:
    a, b = matrices(torch.float32)
    assert_same_outcome(lambda: torch.mm(a, b, out=torch.empty(shape)))


@pytest.mark.parametrize(
    "strides", [((1, 1), (80, 1)), ((5, 2), (7, 1)), ((1, 64), (1, 1)), ((7, 3), (1, 7))], ids=str
)
def test_strides_of_single_columns_and_rows_are_ignored(
    strides: tuple[tuple[int, int], tuple[int, int]],
) -> None:
    column = values(4000, seed=1).as_strided((64, 1), strides[0])
    row = values(4000, seed=2).as_strided((1, 80), strides[1])
    assert_same_outcome(lambda: torch.mm(column, row))
    assert_same_outcome(lambda: torch.addmm(values(64, 80), column, row))
    assert_same_outcome(lambda: torch.bmm(column[None], row[None]))


def test_a_column_is_added_to_all_columns() -> None:
    a, b = matrices(torch.float32)
    assert_same_outcome(lambda: torch.addmm(values(64, 1), a, b))
    assert_same_outcome(
        lambda: torch.baddbmm(values(64, 1), a.expand(2, -1, -1), b.expand(2, -1, -1))
    )


# Dtypes that ZenDNN refuses

OTHER_TYPES = (
    torch.float64,
    torch.float16,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.complex64,
    torch.complex128,
)


@pytest.mark.parametrize("dtype", OTHER_TYPES, ids=str)
def test_other_types_give_the_bits_of_stock_torch(dtype: torch.dtype) -> None:
    a, b = matrices(dtype, m=17, k=23, n=19)
    c = values(17, 19, dtype=dtype, seed=3)
    assert_same_bits(lambda: torch.mm(a, b))
    assert_same_bits(lambda: torch.addmm(c, a, b, beta=2, alpha=3))
    assert_same_bits(lambda: torch.bmm(a.expand(2, 17, 23), b.expand(2, 23, 19)))
    assert_same_bits(
        lambda: torch.baddbmm(c.expand(2, 17, 19), a.expand(2, 17, 23), b.expand(2, 23, 19))
    )
    assert_same_bits(lambda: F.linear(a, b.t(), c[0]))
    if dtype == torch.complex64:
        return  # torch computes it as three float32 convolutions; see the next test
    image, weight = values(2, 4, 9, 9, dtype=dtype, seed=4), values(6, 4, 3, 3, dtype=dtype, seed=5)
    assert_same_bits(lambda: F.conv2d(image, weight, padding=1))


def test_complex_convolution_is_right() -> None:
    image = torch.complex(values(2, 4, 9, 9, seed=1), values(2, 4, 9, 9, seed=2))
    weight = torch.complex(values(6, 4, 3, 3, seed=3), values(6, 4, 3, 3, seed=4))
    exact = F.conv2d(image.to(torch.complex128), weight.to(torch.complex128))
    error = (F.conv2d(image, weight).to(torch.complex128) - exact).abs().max()
    assert error <= 1e-6 * 4 * 9 * 8


def test_double_lstm_gives_the_bits_of_stock_torch() -> None:
    lstm = nn.LSTM(12, 16).double()
    x = values(5, 3, 12, dtype=torch.float64)
    assert_same_bits(lambda: lstm(x)[0].detach())


def test_sparse_products_give_the_bits_of_stock_torch() -> None:
    a, b = matrices(torch.float32, m=20, k=20, n=20)
    sparse = (a * (a > 1)).to_sparse()
    assert_same_bits(lambda: torch.mm(sparse, b))
    assert_same_bits(lambda: torch.addmm(b, sparse.to_sparse_csr(), b))


@of_products
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposed", [False, True])
def test_products_with_row_strides_of_kilobytes_are_right(
    transposed: bool, dtype: torch.dtype
) -> None:
    """Such a matrix is copied, whether whole or a slice."""
    a = values(129, 140, dtype=dtype, seed=1)
    a = a.t().contiguous().t() if transposed else a
    b, out = values(140, 512, dtype=dtype, seed=2), torch.empty(129, 512, dtype=dtype)
    assert check(torch.mm, a, b)
    assert check(torch.mm, a, b[:, 3:400])
    with counting() as calls:
        torch.mm(a, b[:, :512], out=out)
        torch.mm(a, b[:, :200], out=out[:, 100:300])
    assert calls["matmul"] == 2
    assert torch.equal(out[:, 100:300], torch.mm(a, b[:, :200]))


def test_switched_off_gives_the_bits_of_stock_torch_again() -> None:
    a, b = matrices(torch.float32)
    with stock():
        first = torch.mm(a, b)
    torch.mm(a, b)
    with stock(), counting() as calls:
        second = torch.mm(a, b)
    assert torch.equal(first, second)
    assert not calls


def test_weights_are_never_cached() -> None:
    """A pack cached by address would return the old weight's result after an in-place change."""
    x, weight = values(64, 96, seed=1), values(80, 96, seed=2)
    with torch.inference_mode():
        first = F.linear(x, weight)
        weight.mul_(2)
        torch.testing.assert_close(F.linear(x, weight), 2 * first)
        kernel = values(16, 16, 3, 3, seed=3)
        image = values(1, 16, 12, 12, seed=4)
        before = F.conv2d(image, kernel)
        kernel.mul_(2)
        torch.testing.assert_close(F.conv2d(image, kernel), 2 * before)


# Convolutions

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize(("dims", "size"), [(1, 40), (2, 20), (3, 9)])
def test_convolution_is_right_and_runs_on_zendnn(dims: int, size: int, dtype: torch.dtype) -> None:
    image = values(2, 16, *[size] * dims, dtype=dtype, seed=1)
    weight = values(24, 16, *[3] * dims, dtype=dtype, seed=2)
    assert check(CONVOLUTIONS[dims], image, weight)
    assert check(CONVOLUTIONS[dims], image, weight, values(24, dtype=dtype, seed=3))


def test_convolution_is_right_for_any_geometry() -> None:
    total: Counter[str] = Counter()

    @property_test
    @given(data=st.data(), dims=st.integers(1, 3), dtype=dtypes, layout=layouts)
    def holds(data: st.DataObject, dims: int, dtype: torch.dtype, layout: str) -> None:
        def each(strategy: st.SearchStrategy[int], name: str) -> list[int]:
            return data.draw(st.lists(strategy, min_size=dims, max_size=dims), label=name)

        groups = data.draw(st.sampled_from((1, 1, 2, 3)), label="groups")
        inner = groups * data.draw(st.sampled_from((1, 2, 5, 8, 16)), label="inner")
        outer = groups * data.draw(st.sampled_from((1, 3, 8, 16)), label="outer")
        kernel, stride = each(st.integers(1, 4), "kernel"), each(st.integers(1, 3), "stride")
        padding, dilation = each(st.integers(0, 2), "padding"), each(st.integers(1, 2), "dilation")
        spare = each(st.integers(0, 6), "spare")
        size = [
            max(1, d * (k - 1) + 1 - 2 * p) + s
            for d, k, p, s in zip(dilation, kernel, padding, spare, strict=True)
        ]
        batch = data.draw(st.integers(1, 3), label="batch")
        image = rearranged(values(batch, inner, *size, dtype=dtype, seed=1), layout)
        weight = values(outer, inner // groups, *kernel, dtype=dtype, seed=2)
        bias = data.draw(st.sampled_from((None, values(outer, dtype=dtype, seed=3))), label="bias")

        def convolve(image: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            return CONVOLUTIONS[dims](
                image,
                weight,
                bias,
                stride=stride,
                padding=padding,
                dilation=dilation,
                groups=groups,
            )

        total.update(check(convolve, image, weight, bias))

    holds()
    assert total


#: Convolutions: the sizes of images and weights, what else is given, and whether torch's kernel
#: runs, since torch multiplies the weights of one small image as they lie.
BLOCKS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, int], bool]] = {
    "one point": ((1, 512, 1, 1), (512, 512, 3, 3), {"padding": 1}, True),
    "few points": ((1, 256, 4, 4), (256, 256, 3, 3), {"padding": 1}, True),
    "few points of two images": ((2, 256, 3, 3), (256, 256, 3, 3), {"padding": 1}, False),
    "few points and a large kernel": ((1, 64, 5, 5), (64, 64, 4, 4), {}, False),
    "few points of groups": ((1, 64, 4, 4), (64, 16, 3, 3), {"padding": 1, "groups": 4}, False),
    "strides that no panel has": ((1, 64, 16, 16), (64, 64, 3, 3), {"stride": 3}, True),
    "the same, many points": ((1, 64, 72, 72), (64, 64, 3, 3), {"stride": 3}, False),
    "a signal": ((1, 64, 2), (64, 64, 3), {"padding": 1, "stride": 2}, True),
    "a volume": ((1, 64, 1, 2, 2), (64, 64, 3, 3, 3), {"padding": 1}, True),
    "a larger volume": ((1, 64, 4, 8, 8), (64, 64, 3, 3, 3), {"padding": 1}, False),
    "little of a volume": ((1, 8, 4, 4, 4), (8, 8, 3, 3, 3), {"padding": 1}, True),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_convolutions_bring_weights_into_blocks_where_that_pays(name: str) -> None:
    image, weight, window, is_torchs = BLOCKS[name]
    x, w = values(*image, seed=1), values(*weight, seed=2)
    convolve = functools.partial(CONVOLUTIONS[len(image) - 2], **window)
    calls = check(convolve, x, w, values(weight[0], seed=3))
    assert (not calls) == is_torchs


@of_products
@pytest.mark.parametrize("channels", [(1, 16), (32, 48)])
@pytest.mark.parametrize("size", [(6, 6), (40,)])
def test_convolutions_of_plain_images_stay_however_little_they_do(
    size: tuple[int, ...], channels: tuple[int, int]
) -> None:
    """They read weights as they lie."""
    inner, outer = channels
    x, w = values(1, inner, *size), values(outer, inner, *[3] * len(size), seed=1)
    assert check(functools.partial(CONVOLUTIONS[len(size)], padding=1), x, w)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", [(1, 1, 16), (3, 3, 48), (1, 32, 48)])
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding", "dilation"),
    [
        ((7, 1), (3, 1), (1, 2), (0, 1), 2),
        ((5, 2), (2, 4), (1, 3), (0, 2), (2, 1)),
        ((5, 4), (3, 4), (1, 3), (1, 0), 1),
        ((1, 7), (2, 2), (3, 1), (1, 2), 2),
        ((1, 3, 7), (2, 2, 2), 1, 1, (2, 1, 2)),
        ((1, 5, 4), (3, 2, 4), (1, 1, 3), 2, (1, 2, 1)),
    ],
)
def test_convolution_that_reaches_over_the_image_is_right(
    size: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: int | tuple[int, ...],
    padding: int | tuple[int, ...],
    dilation: int | tuple[int, ...],
    channels: tuple[int, int, int],
    dtype: torch.dtype,
) -> None:
    groups, inputs, outputs = channels
    image = values(2, inputs, *size, dtype=dtype, seed=1)
    if image.dim() == 4:
        image = image.contiguous(memory_format=torch.channels_last)
    weight = values(outputs, inputs // groups, *kernel, dtype=dtype, seed=2)

    def convolve(image: Tensor, weight: Tensor) -> Tensor:
        return CONVOLUTIONS[len(size)](
            image, weight, stride=stride, padding=padding, dilation=dilation, groups=groups
        )

    # Stock torch is wrong or crashes on some cases, so the reference is the exact result.
    got, exact = convolve(image, weight), convolve(image.double(), weight.double())
    tolerance = 16 * torch.finfo(dtype).eps * exact.abs().max().item()
    torch.testing.assert_close(got.double(), exact, atol=tolerance, rtol=0)


@of_products
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("batch", "size"), [(1, 7), (1, 33), (3, 9), (2, 28), (2, 65)])
def test_convolution_with_a_kernel_of_one_point_is_right(
    batch: int, size: int, layout: torch.memory_format, dtype: torch.dtype
) -> None:
    image = values(batch, 48, size, size, dtype=dtype, seed=1).contiguous(memory_format=layout)
    weight, bias = values(40, 48, 1, 1, dtype=dtype, seed=2), values(40, dtype=dtype, seed=3)
    strides: tuple[int | tuple[int, int], ...] = (1, 2, (1, 3))
    for given_bias, stride in itertools.product((None, bias), strides):
        convolve = functools.partial(F.conv2d, stride=stride)
        assert check(convolve, image, weight, given_bias) or stride != 1, "few points are torch's"
        result = convolve(image, weight, given_bias)
        with stock():
            assert result.stride() == convolve(image, weight, given_bias).stride()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", [1, 3, 16, 33])
def test_depthwise_convolution_is_right(channels: int, dtype: torch.dtype) -> None:
    def depthwise(image: Tensor, weight: Tensor) -> Tensor:
        return F.conv2d(image, weight, padding=1, groups=channels)

    image = values(2, channels, 15, 13, dtype=dtype, seed=1)
    check(depthwise, image, values(channels, 1, 3, 3, dtype=dtype, seed=2))
    check(depthwise, image, values(2 * channels, 1, 3, 3, dtype=dtype, seed=2))


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
@pytest.mark.parametrize("last", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("dims", [2, 3])
def test_channels_last_is_kept(dims: int, last: tuple[bool, bool], dtype: torch.dtype) -> None:
    """``check`` compares the strides with stock torch's, which keep channels last."""
    memory_format = torch.channels_last if dims == 2 else torch.channels_last_3d
    image = values(2, 16, *[10] * dims, dtype=dtype, seed=1)
    weight = values(24, 16, *[3] * dims, dtype=dtype, seed=2)
    image, weight = (
        tensor.contiguous(memory_format=memory_format) if chosen else tensor
        for tensor, chosen in zip((image, weight), last, strict=True)
    )
    assert check(CONVOLUTIONS[dims], image, weight, values(24, dtype=dtype, seed=3))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("dims", "size"), [(1, 14), (2, 9), (3, 5)])
@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolution_is_right(
    dims: int, size: int, groups: int, dtype: torch.dtype
) -> None:
    def convolve(image: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return TRANSPOSED[dims](
            image, weight, bias, stride=2, padding=1, output_padding=1, groups=groups
        )

    image = values(2, 8, *[size] * dims, dtype=dtype, seed=1)
    weight = values(8, 12, *[3] * dims, dtype=dtype, seed=2)
    check(convolve, image, weight, values(12 * groups, dtype=dtype, seed=3))


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_one_value_applies_to_all_dimensions_of_a_window(transposed: bool, dims: int) -> None:
    convolve = (TRANSPOSED if transposed else CONVOLUTIONS)[dims]
    image, weight = values(2, 8, *[7] * dims), values(8, 8, *[3] * dims, seed=1)
    for window in ({"dilation": (2,)}, {"stride": (2,)}, {"padding": (1,)}):
        assert check(lambda x, w, window=window: convolve(x, w, **window), image, weight)


@pytest.mark.parametrize(("stride", "dilation", "extra"), [(1, 2, 1), (2, 3, 2), (1, 3, 2)])
def test_transposed_convolution_with_much_output_padding_is_right(
    stride: int, dilation: int, extra: int
) -> None:
    check(
        lambda x, w: F.conv_transpose2d(
            x, w, stride=stride, dilation=dilation, output_padding=extra
        ),
        values(2, 8, 10, 10),
        values(8, 4, 3, 3, seed=1),
    )


def test_a_small_channels_last_volume_matches_stock_torch() -> None:
    volume = values(1, 3, 6, 7, 8).to(memory_format=torch.channels_last_3d)
    check(F.conv3d, volume, values(4, 3, 2, 2, 2, seed=1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(0, 4, 8, 8), (2, 4, 0, 8), (0, 4, 0, 0)])
def test_empty_images_equal_stock_torch(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    weight = values(6, 4, 3, 3, dtype=dtype)
    assert_same_bits(lambda: F.conv2d(values(*shape, dtype=dtype), weight, padding=2))
    assert_same_bits(lambda: F.conv2d(values(*shape, dtype=dtype), weight))


def test_one_image_without_a_batch_is_right() -> None:
    assert check(F.conv2d, values(8, 20, 20, seed=1), values(8, 8, 3, 3, seed=2))


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_padding_by_name_is_right(padding: str) -> None:
    def convolve(image: Tensor, weight: Tensor) -> Tensor:
        return F.conv2d(image, weight, padding=padding, dilation=2)

    check(convolve, values(1, 8, 14, 15, seed=1), values(8, 8, 4, 3, seed=2))


# LSTM


@of_products
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_first": True},
        {"bidirectional": True},
        {"num_layers": 2, "bias": False},
        {"num_layers": 2, "bidirectional": True, "batch_first": True},
        {"proj_size": 8},
    ],
    ids=lambda options: "-".join(options) or "plain",
)
def test_lstm_is_right(options: dict[str, Any], dtype: torch.dtype) -> None:
    lstm = nn.LSTM(24, 32, **options).to(dtype).eval()
    exact_lstm = nn.LSTM(24, 32, **options).double().eval()
    exact_lstm.load_state_dict({name: v.double() for name, v in lstm.state_dict().items()})
    x = values(4, 7, 24, dtype=dtype)
    with torch.no_grad():
        with counting() as calls:
            ours, (our_h, our_c) = lstm(x)
        with stock():
            theirs, (their_h, their_c) = lstm(x)
            exact, (exact_h, exact_c) = exact_lstm(x.double())
    # Each time step reads the previous state, so rounding errors accumulate over seven steps.
    steps = 8.0
    assert_as_exact(ours, theirs, exact, steps)
    assert_as_exact(our_h, their_h, exact_h, steps)
    assert_as_exact(our_c, their_c, exact_c, steps)
    assert calls


def test_lstm_takes_states_and_packed_sequences() -> None:
    lstm = nn.LSTM(24, 32).eval()
    state = (values(1, 3, 32, seed=1), values(1, 3, 32, seed=2))
    x = values(5, 3, 24, seed=3)
    packed = nn.utils.rnn.pack_padded_sequence(x, [5, 4, 2])
    with torch.no_grad():
        ours = [lstm(x, state)[0], lstm(packed, state)[0].data]
        with stock():
            theirs = [lstm(x, state)[0], lstm(packed, state)[0].data]
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their, rtol=1e-5, atol=1e-6)


# torch's modes


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(4, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 10 * 10, 32)
    ).eval()


def test_inference_mode_is_right_and_runs_on_zendnn() -> None:
    net, x = network(), values(4, 4, 12, 12)
    with torch.inference_mode():
        with counting() as calls:
            ours = net(x)
        with stock():
            theirs = net(x)
    assert ours.is_inference()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert len(calls) >= 2, calls


@of_bfloat16
def test_autocast_is_right_and_runs_on_zendnn() -> None:
    net, x = network(), values(4, 4, 12, 12)
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16), counting() as calls:
            ours = net(x)
        with torch.autocast("cpu", torch.bfloat16), stock():
            theirs = net(x)
        with stock():
            exact = net(x)
    assert ours.dtype == theirs.dtype == torch.bfloat16
    error, stock_error = ((out.float() - exact).abs().max() for out in (ours, theirs))
    assert error <= 4 * stock_error + 0.02 * exact.abs().max()
    assert len(calls) >= 2, calls


def test_vmap_equals_a_loop() -> None:
    weights, xs = values(5, 40, 24, seed=1), values(5, 24, seed=2)
    loop = torch.stack([F.linear(x, w) for x, w in zip(xs, weights, strict=True)])
    torch.testing.assert_close(torch.vmap(F.linear)(xs, weights), loop, rtol=1e-5, atol=1e-5)
    images, kernels = values(3, 2, 4, 9, 9, seed=3), values(3, 6, 4, 3, 3, seed=4)
    loop = torch.stack([F.conv2d(i, k) for i, k in zip(images, kernels, strict=True)])
    torch.testing.assert_close(torch.vmap(F.conv2d)(images, kernels), loop, rtol=1e-5, atol=1e-4)
    a, b = values(4, 3, 20, 30, seed=5), values(30, 10, seed=6)
    batched = torch.vmap(torch.matmul, in_dims=(0, None))(a, b)
    torch.testing.assert_close(batched, a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_fake_and_meta_tensors_get_shapes_and_run_nothing(dtype: torch.dtype) -> None:
    a, b = matrices(dtype)
    image, weight = values(2, 4, 9, 9, dtype=dtype), values(6, 4, 3, 3, dtype=dtype)
    real = [torch.mm(a, b), F.linear(a, b.t()), F.conv2d(image, weight)]
    with counting() as calls:
        with FakeTensorMode() as mode:
            fa, fb, fi, fw = (mode.from_tensor(tensor) for tensor in (a, b, image, weight))
            fake = [torch.mm(fa, fb), F.linear(fa, fb.t()), F.conv2d(fi, fw)]
        ma, mb, mi, mw = (tensor.to("meta") for tensor in (a, b, image, weight))
        meta = [torch.mm(ma, mb), F.linear(ma, mb.t()), F.conv2d(mi, mw)]
    assert not calls
    for want, *shown in zip(real, fake, meta, strict=True):
        for one in shown:
            assert (one.shape, one.dtype) == (want.shape, want.dtype)
            assert long_strides(one) == long_strides(want)


def test_compiled_graphs_reach_the_overrides() -> None:
    torch._dynamo.reset()
    net, x = network(), values(4, 4, 12, 12)
    with torch.no_grad():
        want = net(x)
        compiled = torch.compile(net, backend="aot_eager")
        compiled(x)
        with counting() as calls:
            got = compiled(x)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    assert calls


def test_the_cpu_device_context_and_default_dtype_make_no_difference() -> None:
    a, b = matrices(torch.float32)
    want = torch.mm(a, b)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("cpu"):
            assert torch.equal(torch.mm(a, b), want)
    finally:
        torch.set_default_dtype(torch.float32)


def test_deterministic_mode_gives_the_same_bits_twice() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        a, b = matrices(torch.float32, m=130, k=300, n=70)
        assert torch.equal(torch.mm(a, b), torch.mm(a, b))
        image, weight = values(2, 16, 20, 20), values(16, 16, 3, 3)
        assert torch.equal(F.conv2d(image, weight), F.conv2d(image, weight))
    finally:
        torch.use_deterministic_algorithms(False)
