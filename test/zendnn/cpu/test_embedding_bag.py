"""Embedding bags: the results, and everything that the backward pass reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from test.drawing import property_test

from ..common import (
    DTYPES,
    assert_same_outcome,
    counting,
    dtypes,
    gradients,
    run_python,
    same_error,
    stock,
    values,
)

MODES = ("sum", "mean", "max")
Bags = tuple[Tensor, Tensor, Tensor, Tensor]


def ids_of(count: int, rows: int, dtype: torch.dtype = torch.int64, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(rows, (count,), generator=generator).to(dtype)


def bags(
    table: Tensor, ids: Tensor, offsets: Tensor, mode: str, *, grad: bool, **options: Any
) -> Bags:
    operator = torch._embedding_bag if grad else torch._embedding_bag_forward_only
    result: Bags = operator(
        table,
        ids,
        offsets,
        False,
        MODES.index(mode),
        False,
        options.get("weights"),
        options.get("last", False),
        options.get("padding", -1),
    )
    return result


def check(table: Tensor, ids: Tensor, offsets: Tensor, mode: str, **options: Any) -> None:
    """Compares all four results of both operators with stock torch's."""
    for grad in (False, True):
        ours = bags(table, ids, offsets, mode, grad=grad, **options)
        with stock():
            theirs = bags(table, ids, offsets, mode, grad=grad, **options)
        names = ("output", "bag of", "sizes", "maxima")
        for name, our, their in zip(names, ours, theirs, strict=True):
            assert (our.dtype, our.shape) == (their.dtype, their.shape), name
            assert our.stride() == their.stride(), name
            if mode == "max" or name != "output":
                torch.testing.assert_close(our, their, rtol=0, atol=0, equal_nan=True)
            else:  # stock torch rounds bfloat16 sums before it divides them
                low = our.dtype == torch.bfloat16
                tolerance = 0.02 if low else 1e-5
                torch.testing.assert_close(
                    our, their, rtol=tolerance, atol=tolerance, equal_nan=True
                )


def test_bags_are_right_for_any_sizes() -> None:
    @property_test
    @given(
        dim=st.sampled_from((1, 3, 8, 16, 17, 64, 100, 128, 131, 300)),
        sizes=st.lists(st.integers(0, 20), min_size=1, max_size=30).filter(any),
        mode=st.sampled_from(MODES),
        padding=st.sampled_from((-1, 0, 3)),
        last=st.booleans(),
        id_type=st.sampled_from((torch.int64, torch.int32)),
        dtype=dtypes,
        padded=st.booleans(),
    )
    def holds(
        dim: int,
        sizes: list[int],
        mode: str,
        padding: int,
        last: bool,
        id_type: torch.dtype,
        dtype: torch.dtype,
        padded: bool,
    ) -> None:
        ends = torch.tensor([0, *sizes]).cumsum(0).to(id_type)
        table = values(7, dim + 5 * padded, dtype=dtype)[:, :dim]
        ids = ids_of(sum(sizes), 7, id_type)
        check(table, ids, ends if last else ends[:-1], mode, padding=padding, last=last)

    holds()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", MODES)
def test_many_bags_on_many_threads_are_right(mode: str, dtype: torch.dtype) -> None:
    table, ids = values(1000, 64, dtype=dtype), ids_of(20_000, 1000)
    check(table, ids, torch.arange(0, 20_000, 10), mode, padding=4)


@pytest.mark.parametrize("mode", MODES)
def test_nan_and_infinity_come_out_as_in_stock_torch(mode: str) -> None:
    table = values(20, 40)
    table[::3, ::5] = float("nan")
    table[1::3, ::7] = float("-inf")
    table[2::3, ::7] = float("inf")
    check(table, ids_of(200, 20), torch.arange(0, 200, 5), mode, padding=2)


def test_the_first_of_equal_maxima_gets_the_index() -> None:
    table = torch.ones(5, 33)
    check(table, torch.tensor([3, 1, 4, 2, 2, 0]), torch.tensor([0, 3]), "max")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", [None, 3])
def test_gradients_are_stock_torchs(mode: str, padding: int | None) -> None:
    ids, offsets = ids_of(60, 12), torch.tensor([0, 10, 10, 25])

    def function(table: Tensor) -> Tensor:
        return F.embedding_bag(ids, table, offsets, mode=mode, padding_idx=padding).square()

    ours = gradients(function, values(12, 24))
    with stock():
        theirs = gradients(function, values(12, 24))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


#: Layouts of weights: contiguous, with gaps, and expanded.
WEIGHTS: dict[str, Callable[[Tensor], Tensor]] = {
    "dense": lambda x: x,
    "strided": lambda x: x.repeat_interleave(3)[::3],
    "expanded": lambda x: x[:1].expand_as(x),
}


def test_sums_are_weighted_for_any_sizes() -> None:
    @property_test
    @given(
        dim=st.sampled_from((1, 3, 16, 17, 64, 100, 131, 300)),
        sizes=st.lists(st.integers(0, 20), min_size=1, max_size=30).filter(any),
        padding=st.sampled_from((-1, 0, 3)),
        last=st.booleans(),
        id_type=st.sampled_from((torch.int64, torch.int32)),
        dtype=dtypes,
        layout=st.sampled_from(sorted(WEIGHTS)),
    )
    def holds(
        dim: int,
        sizes: list[int],
        padding: int,
        last: bool,
        id_type: torch.dtype,
        dtype: torch.dtype,
        layout: str,
    ) -> None:
        ends = torch.tensor([0, *sizes]).cumsum(0).to(id_type)
        table, ids = values(7, dim, dtype=dtype), ids_of(sum(sizes), 7, id_type)
        weights = WEIGHTS[layout](values(sum(sizes), dtype=dtype, seed=1))
        starts = ends if last else ends[:-1]
        with counting() as calls:
            check(table, ids, starts, "sum", padding=padding, last=last, weights=weights)
        left = padding < 0 and weights.stride(0) == 1  # torch's kernel is fast on these
        assert calls == ({} if left else {"reduction": 2})

    holds()


@pytest.mark.parametrize("dtype", DTYPES)
def test_many_weighted_bags_on_many_threads_are_right(dtype: torch.dtype) -> None:
    table, ids = values(1000, 64, dtype=dtype), ids_of(20_000, 1000)
    weights = WEIGHTS["strided"](values(20_000, dtype=dtype, seed=1))
    check(table, ids, torch.arange(0, 20_000, 10), "sum", weights=weights)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["dense", "transposed", "expanded"])
def test_a_matrix_of_ids_takes_a_matrix_of_weights(layout: str, dtype: torch.dtype) -> None:
    table, ids = values(12, 19, dtype=dtype), ids_of(60, 12).view(6, 10)
    weights = {
        "dense": values(6, 10, dtype=dtype, seed=1),
        "transposed": values(10, 6, dtype=dtype, seed=1).t(),
        "expanded": values(6, 1, dtype=dtype, seed=1).expand(6, 10),
    }[layout]
    ours = F.embedding_bag(ids, table, mode="sum", per_sample_weights=weights)
    exact = (table.double()[ids] * weights.double().unsqueeze(-1)).sum(1)
    tolerance = 1e-2 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(ours.double(), exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("layout", sorted(WEIGHTS))
def test_gradients_of_weights_are_stock_torchs(layout: str, padding: int | None) -> None:
    ids, offsets = ids_of(60, 12), torch.tensor([0, 10, 10, 25])

    def function(table: Tensor, weights: Tensor) -> Tensor:
        return F.embedding_bag(
            ids,
            table,
            offsets,
            mode="sum",
            padding_idx=padding,
            per_sample_weights=WEIGHTS[layout](weights),
        ).square()

    ours = gradients(function, values(12, 24), values(60, seed=1))
    with stock():
        theirs = gradients(function, values(12, 24), values(60, seed=1))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_other_weights_give_stock_torchs_errors() -> None:
    ids, offsets, table = ids_of(60, 12), torch.tensor([0, 10, 10, 25]), values(12, 24)
    same_error(lambda: bags(table, ids, offsets, "sum", grad=True, weights=values(59)))
    same_error(lambda: bags(table, ids, offsets, "sum", grad=True, weights=values(60, 1)))
    same_error(lambda: bags(table, ids, offsets, "sum", grad=True, weights=values(60).bfloat16()))
    same_error(lambda: bags(table, ids, offsets, "mean", grad=True, weights=values(60)))
    ids[7] = 12
    same_error(lambda: bags(table, ids, offsets, "sum", grad=True, weights=values(60)))


def test_a_new_python_thread_keeps_to_torchs_number_of_threads() -> None:
    """OpenMP would use the environment's number in a thread that torch has not initialised."""
    code = """
import threading, time, torch, torch.nn.functional as F
torch.set_num_threads(1)
table, ids = torch.ones(1000, 256), torch.randint(1000, (20_000,))
offsets, weights = torch.arange(0, 20_000, 10), torch.ones(1).expand(20_000)
calls = {
    "weighted": lambda: F.embedding_bag(
        ids, table, offsets, mode="sum", per_sample_weights=weights
    ),
    "max": lambda: F.embedding_bag(ids, table, offsets, mode="max"),
}
def threads():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("Threads"))
def work():
    for name, call in calls.items():
        before = threads()
        call()
        print(name, threads() - before)
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(torch.backends.zendnn.counters()["reduction"])
"""
    assert run_python(code, OMP_NUM_THREADS="4").split() == ["weighted", "0", "max", "0", "2"]


def test_other_dtypes_and_layouts_are_stock_torchs() -> None:
    ids, offsets = ids_of(60, 12), torch.tensor([0, 10, 10, 25])
    for dtype in (torch.float64, torch.float16):
        check(values(12, 24, dtype=dtype), ids, offsets, "max")
        check(values(12, 24, dtype=dtype), ids, offsets, "sum", weights=values(60, dtype=dtype))
    check(values(24, 12).t(), ids, offsets, "max")
    check(values(12, 24), ids, offsets.int(), "mean")


def test_no_ids_give_empty_bags() -> None:
    none = torch.empty(0, dtype=torch.int64)
    for mode in MODES:
        check(values(12, 24), none, torch.tensor([0, 0]), mode)


@pytest.mark.parametrize(
    ("offsets", "last"), [((0, 2, 4), True), ((0, 2, 5), True), ((0, 2, 5), False)]
)
@pytest.mark.parametrize("mode", [1, 2])
def test_the_last_offset_ends_a_bag_or_begins_one(
    mode: int, offsets: tuple[int, ...], last: bool
) -> None:
    """ZenDNN runs without a closing offset, or with one that equals the number of ids."""
    arguments = (values(5, 4), torch.tensor([1, 2, 3, 4, 0]), torch.tensor(offsets))

    def reduced() -> Any:
        result = torch._embedding_bag(*arguments, False, mode, False, None, last)
        return result[0][: len(offsets) - last]  # torch leaves later rows undefined

    assert_same_outcome(reduced)


@pytest.mark.parametrize("weights", [values(6)[::2], values(8)[::2], values(3, 2)[:, :1]])
def test_strided_weights_match_stock_torch(weights: Tensor) -> None:
    ids, offsets = torch.tensor([1, 2, 3]), torch.tensor([0, 1])
    assert_same_outcome(
        lambda: torch._embedding_bag(values(5, 4), ids, offsets, False, 0, False, weights)
    )


def test_a_maximum_of_zeros_keeps_its_sign() -> None:
    table = torch.full((3, 20), -0.0)
    assert F.embedding_bag(torch.zeros(2, 4, dtype=torch.long), table, mode="max").signbit().all()


@pytest.mark.parametrize("mode", ["mean", "max"])
@pytest.mark.parametrize(
    ("ids", "offsets"),
    [((1, 12, 3), (0, 2)), ((1, -1, 3), (0, 2)), ((1, 2, 3), (1, 2)), ((1, 2, 3), (0, 4))],
)
def test_ids_and_offsets_out_of_range_give_stock_torchs_errors(
    ids: tuple[int, ...], offsets: tuple[int, ...], mode: str
) -> None:
    table = values(12, 24)
    same_error(lambda: F.embedding_bag(torch.tensor(ids), table, torch.tensor(offsets), mode=mode))


def test_modes_of_torch_are_right() -> None:
    table, ids = values(12, 24), ids_of(60, 12).view(6, 10)
    want = F.embedding_bag(ids, table, mode="max")
    with torch.inference_mode():
        assert torch.equal(F.embedding_bag(ids, table, mode="max"), want)
    assert torch.equal(F.embedding_bag(ids.t().contiguous().t(), table, mode="max"), want)
    torch._dynamo.reset()
    compiled = torch.compile(lambda i, t: F.embedding_bag(i, t, mode="max"), backend="aot_eager")
    assert torch.equal(compiled(ids, table), want)
    meta = F.embedding_bag(ids.to("meta"), table.to("meta"), mode="max")
    assert meta.shape == want.shape
