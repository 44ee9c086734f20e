"""Lookups by indices and offsets that are out of bounds or order: eager mode's results and errors
in each front end.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.backends.zendnn.frontends.fx import rest
from torch.backends.zendnn.passes import partition

from .common import (
    DTYPES,
    counting,
    nightly_but,
    outcome,
    run_python,
    same_error,
    stock,
    values,
)
from .support.front_ends import FRONT_ENDS, OFTEN, frozen

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore::torch.jit.TracerWarning", "ignore:.*LeafSpec:FutureWarning", "ignore:.*in beta"
    ),
    pytest.mark.usefixtures("fresh_dynamo"),
]

Inputs = tuple[Tensor, ...]


def assert_as_eager(front_end: str, model: nn.Module, first: Inputs, *others: Inputs) -> None:
    """Assert that a model has eager mode's outcomes, one after the other, on ZenDNN at first."""
    with torch.no_grad():
        fast = FRONT_ENDS[front_end](model.eval(), *first)
        with counting() as calls:
            for _ in range(3):  # TorchScript profiles the first runs
                fast(*first)
        assert calls
        for inputs in (*others, first):
            kind, got = outcome(partial(fast, *inputs))
            with stock():
                wanted, want = outcome(partial(model, *inputs))
            assert (kind == "value") == (wanted == "value"), (inputs, got, want)
            if kind == "value":
                tolerance = 1e-5 if got.dtype == torch.float32 else 2e-2
                torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)
            else:  # torch's front ends may add to the text; TorchScript has a type of its own
                assert want in got
                assert kind == wanted or front_end == "frozen"


class Bags(nn.Module):
    """Bags of two tables side by side, which a plan reads at once, and those of a third one."""

    def __init__(self, mode: str, *, last: bool, padding: int | None = None) -> None:
        super().__init__()
        self.tables = nn.ParameterList([values(10, 24, seed=seed) for seed in range(3)])
        self.layer = nn.Linear(24, 24)
        self.given: dict[str, Any] = {
            "mode": mode,
            "include_last_offset": last,
            "padding_idx": padding,
        }

    def forward(self, ids: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        a, b, c = (
            F.embedding_bag(ids, table, offsets, per_sample_weights=weights, **self.given)
            for table in self.tables
        )
        return torch.cat([a, b, self.layer(c)], 1)


#: Offsets of nine ids: some end early, fall, do not begin with 0, or are out of range.
OFFSETS = [
    *([0, 3, 5], [0, 0, 0], [0, 5, 3], [0, 9, 9], [1, 3, 9], [0, 5, 13], [-1, 3, 9]),
    *([9, 9, 9], [0, 3, 8]),
]


@pytest.mark.parametrize("front_end", nightly_but(OFTEN, FRONT_ENDS))
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("mode", ["sum", "weighted", "mean", "max"])
def test_bags_with_any_offsets_are_those_of_eager_mode(
    mode: str, last: bool, front_end: str
) -> None:
    model = Bags(mode.replace("weighted", "sum"), last=last)
    weights = (values(9),) if mode == "weighted" else ()
    # torch leaves memory as it finds it in sums and means of bags whose offsets fall.
    known = [ends for ends in OFFSETS if last or mode == "max" or ends != [0, 5, 3]]
    ids = torch.arange(9)
    calls = [(ids, torch.tensor(offsets), *weights) for offsets in ([0, 3, 9], *known)]
    assert_as_eager(front_end, model, *calls)


@pytest.mark.parametrize("front_end", nightly_but(OFTEN, FRONT_ENDS))
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_bfloat16_with_padding_and_other_integers(mode: str, front_end: str) -> None:
    kinds = (torch.int64, torch.int32)
    offsets = [[0, 3, 9], [0, 3, 5], [0, 0, 0], [0, 5, 3], [1, 3, 9]]
    for padding, of_ids, of_offsets in itertools.product((None, 3), kinds, kinds):
        model = Bags(mode, last=True, padding=padding).to(torch.bfloat16)
        ids = torch.arange(9, dtype=of_ids)
        calls = [(ids, torch.tensor(ends, dtype=of_offsets)) for ends in offsets]
        assert_as_eager(front_end, model, *calls)


@pytest.mark.parametrize("front_end", ["frozen", "dynamic"])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_other_counts_are_those_of_eager_mode(mode: str, front_end: str) -> None:
    """Among them bags of few ids, of no ids, no bags, and offsets and weights too few or many."""
    model = Bags(mode, last=True)
    calls: list[Inputs] = [
        (torch.arange(many), torch.tensor(offsets, dtype=torch.int64))
        for many, offsets in (
            *((9, [0, 3, 9]), (9, [0, 2]), (9, [3]), (9, []), (0, [0]), (0, [0, 0, 0])),
            *((0, [0, 1]), (0, []), (1, [0, 0, 1]), (1, [0, 1, 0])),
        )
    ]
    if front_end == "dynamic":  # of no offsets, Dynamo's fake tensors raise in their own words
        calls = [(ids, offsets) for ids, offsets in calls if len(offsets)]
    if mode == "sum" and front_end == "dynamic":
        calls += [(torch.arange(9), torch.tensor([0, 3, 9]), values(many)) for many in (9, 8, 10)]
    assert_as_eager(front_end, model, *calls)


@pytest.mark.parametrize("front_end", nightly_but(OFTEN, FRONT_ENDS))
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_ids_out_of_range_raise_the_error_of_eager_mode(mode: str, front_end: str) -> None:
    good = torch.arange(9)
    wrong = [good.where(good != 4, torch.tensor(id)) for id in (-1, 10, 2**40, -(2**62))]
    offsets = torch.tensor([0, 3, 9])
    assert_as_eager(front_end, Bags(mode, last=True), *((ids, offsets) for ids in (good, *wrong)))


@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_offsets_of_no_bag_and_of_no_id_are_errors(mode: str, kind: torch.dtype) -> None:
    """For which torch writes or reads memory that is not there."""
    ids = torch.arange(9, dtype=kind)
    for last, dtype in itertools.product((False, True), DTYPES):
        model = Bags(mode, last=last).to(dtype).eval()
        fast = frozen(model, ids, torch.tensor([0, 3, 9], dtype=kind))
        wrong = ([0] if last else [], [0, -1, 9], [0, 13, 9], [0, 2**30, -(2**30), 9])
        for offsets, run in itertools.product(wrong, (model, fast)):
            with (
                pytest.raises((RuntimeError, IndexError), match=r"no bag for 9 ids|out of range"),
                torch.no_grad(),
            ):
                run(ids, torch.tensor(offsets, dtype=kind))


#: Lookups in 8 rows of 16 elements by three indices.
LOOKUPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "index": lambda x, i: x[i],
    "index of columns": lambda x, i: x[:, i],
    "index of both": lambda x, i: x[i, i],
    "index_select": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(0, i[:, None].expand(-1, 16)),
    "take": lambda x, i: x.take(i * 16),
    "take_along_dim": lambda x, i: x.take_along_dim(i[:, None], 0),
    "embedding": lambda x, i: F.embedding(i, x),
    "embedding_bag": lambda x, i: F.embedding_bag(i, x, i.new_zeros(1), mode="sum"),
    "bags of one size": lambda x, i: F.embedding_bag(i[None], x, mode="mean"),
    "maximum of a bag": lambda x, i: F.embedding_bag(i, x, i.new_zeros(1), mode="max"),
    "scatter": lambda x, i: x.scatter(0, i[:, None].expand(-1, 16), x + 1),
    "scatter a number": lambda x, i: x.scatter(0, i[:, None].expand(-1, 16), 1.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None].expand(-1, 16), x),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[:, None].expand(-1, 16), x, "amax"),
    "index_add": lambda x, i: x.index_add(0, i, x[:3]),
    "index_add of columns": lambda x, i: x.index_add(1, i, x[:, :3]),
    "index_add of numbers": lambda x, i: x[:, 0].index_add(0, i, x[0, :3]),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:3]),
    "index_fill": lambda x, i: x.index_fill(0, i, 2.0),
    "index_put": lambda x, i: x.index_put((i,), x[:3]),
    "index_put of sums": lambda x, i: x.index_put((i,), x[:3], accumulate=True),
    "index_reduce": lambda x, i: x.index_reduce(0, i, x[:3], "prod"),
    "put": lambda x, i: x.put(i * 16, x[0, :3]),
    "one_hot": lambda x, i: F.one_hot(i, 8) + x[:3, :8],
    "nll_loss": lambda x, i: F.nll_loss(x[:3, :8], i),
}


class Between(nn.Module):
    """A lookup, and functions that torch's compiler joins with it, between layers of plans."""

    def __init__(self, lookup: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.lookup = lookup
        self.layer = nn.Linear(24, 16)

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        y: Tensor = self.lookup(self.layer(x).atan().sinh(), index)
        return y.float().atan().sinh()


class Inside(Between):
    """The same between functions that plans compute."""

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        y: Tensor = self.lookup(self.layer(x).abs() + 1, index)
        return y.float().abs() + 1


INDICES = [[0, 3, 5], [0, 3, 8], [0, -1, 2], [0, -9, 2], [2**40, 0, 1], [-(2**62), 0, 1]]


@pytest.mark.parametrize("front_end", nightly_but(OFTEN, FRONT_ENDS))
@pytest.mark.parametrize("name", LOOKUPS)
def test_a_lookup_between_plans_is_that_of_eager_mode(
    name: str, front_end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "MANY", 2)
    calls = [(values(8, 24), torch.tensor(index)) for index in INDICES]
    assert_as_eager(front_end, Between(LOOKUPS[name]), *calls)


@pytest.mark.parametrize("front_end", nightly_but(OFTEN, FRONT_ENDS))
@pytest.mark.parametrize("name", LOOKUPS)
def test_a_lookup_in_a_plan_is_that_of_eager_mode(name: str, front_end: str) -> None:
    calls = [(values(8, 24), torch.tensor(index)) for index in INDICES]
    with mock.patch.multiple(partition, LIGHT=frozenset(), ENOUGH=1):  # plans of all they can hold
        assert_as_eager(front_end, Inside(LOOKUPS[name]), *calls)


@pytest.mark.parametrize("front_end", ["frozen", "compiled"])
@pytest.mark.parametrize("name", LOOKUPS)
def test_a_lookup_by_int32_is_that_of_eager_mode(name: str, front_end: str) -> None:
    x = values(8, 24)
    indices = [torch.tensor(index) for index in ([0, 3, 5], [0, 3, 8], [0, -1, 2])]
    model = Between(LOOKUPS[name])
    with stock(), torch.no_grad():
        kind, _ = outcome(lambda: model(x, indices[0].int()))
    if kind == "value":
        assert_as_eager(front_end, model, *((x, index.int()) for index in indices))
    elif front_end == "frozen":
        calls = [(x, index) for index in indices]
        assert_as_eager(front_end, model, *calls, *((x, index.int()) for index in indices))


def test_large_lookups_out_of_bounds_do_not_end_the_process() -> None:
    """Where threads share the loops of torch's compiler, from which no error returns."""
    printed = run_python(
        "import torch\n"
        "torch.set_num_threads(2)\n"
        "def f(x, i): return (x.sin().floor()[i].cos().ceil().erfinv() + 1,)\n"
        "x, i, options = torch.rand(4096, 512), torch.arange(4096), {'rest': 'inductor'}\n"
        "for dynamic in (False, True):\n"
        "    fast = torch.compile(f, backend='zendnn', dynamic=dynamic, options=options)\n"
        "    with torch.no_grad():\n"
        "        torch.testing.assert_close(fast(x, i - 5), f(x, i - 5), equal_nan=True)\n"
        "        for wrong in (i + 1, i - 4097):\n"
        "            try: fast(x, wrong)\n"
        "            except IndexError as error: print(error)\n"
    )
    errors = [f"index {i} is out of bounds for dimension 0 with size 4096" for i in (4096, -4097)]
    assert printed.splitlines() == errors * 2


def test_eager_bags_raise_the_errors_of_torch() -> None:
    table, ids = values(10, 24), torch.arange(9)
    for mode, wrong in itertools.product(("sum", "mean", "max"), ([1, 3], [0, 10])):
        same_error(partial(F.embedding_bag, ids, table, torch.tensor(wrong), mode=mode))


class Like(nn.Module):
    """A layer with the dtype of a lookup, from which it reads nothing else."""

    def __init__(self, lookup: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.table = nn.Parameter(values(8, 16))
        self.lookup = lookup

    def forward(self, x: Tensor, i: Tensor) -> Tensor:
        return self.layer(x).type_as(self.lookup(self.table, i))


@pytest.mark.parametrize("lookup", LOOKUPS)
def test_a_lookup_of_which_a_frozen_model_reads_only_the_dtype_raises_as_in_eager_mode(
    lookup: str,
) -> None:
    """torch's other front ends drop the lookup themselves."""
    first, other = (torch.tensor([0, 1, row]) for row in (2, 8))
    model = Like(LOOKUPS[lookup])
    assert_as_eager("frozen", model, (values(8, 16), first), (values(8, 16), other))
