"""Bernoulli draws equal stock torch's bit by bit, and so do the draws after them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator, Tensor

from test.drawing import property_test

from ..common import DTYPES, LAYOUTS, counting, dtypes, rearranged, same_error, stock, values

#: Enough numbers for our kernel, and more than one state of the engine yields.
MANY = 1000


def drawn_one_by_one() -> bool:
    """Whether stock torch draws one fraction per number; on some CPUs it calls MKL instead."""
    x, fractions = torch.empty(MANY), torch.empty(MANY, dtype=torch.float64)
    with stock():
        x.bernoulli_(generator=Generator().manual_seed(1))
    fractions.uniform_(generator=Generator().manual_seed(1))
    return torch.equal(x, (fractions < 0.5).float())


TAKEN = drawn_one_by_one()


def both(draw: Callable[[Generator], Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Our and stock torch's draws from one seed, and the states after them."""
    ours, theirs = Generator().manual_seed(7), Generator().manual_seed(7)
    x = draw(ours)
    with stock():
        y = draw(theirs)
    return x, y, ours.get_state(), theirs.get_state()


def check(draw: Callable[[Generator], Tensor]) -> bool:
    """Compares numbers and states; returns whether ours ran."""
    with counting() as calls:
        x, y, state, other = both(draw)
    assert x.dtype == y.dtype
    assert x.stride() == y.stride()
    assert torch.equal(x, y)
    assert torch.equal(state, other)
    return bool(calls)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [0.0, 1.0, 0.5, 0.9, 1e-9, 1 - 2**-53, 0.1 + 2**-52])
def test_numbers_are_stock_torchs_and_drawn_by_us(p: float, dtype: torch.dtype) -> None:
    assert check(lambda g: torch.empty(37, 101, dtype=dtype).bernoulli_(p, generator=g)) == TAKEN


def test_any_sequence_of_draws_is_stock_torchs() -> None:
    """An odd number of earlier words splits a pair between two states."""

    @property_test
    @given(
        counts=st.lists(st.integers(1, 2000), min_size=1, max_size=6),
        words=st.lists(st.integers(0, 3), min_size=6, max_size=6),
        dtype=dtypes, p=st.floats(0, 1),
    )  # fmt: skip
    def holds(counts: list[int], words: list[int], dtype: torch.dtype, p: float) -> None:
        def draw(g: Generator) -> Tensor:
            drawn = []
            for count, more in zip(counts, words, strict=False):
                drawn.append(torch.empty(count, dtype=dtype).bernoulli_(p, generator=g))
                drawn.append(torch.randint(9, (more,), generator=g))
            return torch.cat([x.float() for x in drawn])

        check(draw)

    holds()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(9, 40), (3, 4, 5, 6), (2, 1, 300, 1)])
def test_numbers_in_any_layout_are_stock_torchs(shape: tuple[int, ...], layout: str) -> None:
    check(lambda g: rearranged(values(*shape), layout).bernoulli_(0.3, generator=g))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bool, torch.int32])
def test_other_dtypes_and_few_numbers_are_left_to_torch(dtype: torch.dtype) -> None:
    assert not check(lambda g: torch.empty(MANY, dtype=dtype).bernoulli_(generator=g))
    assert not check(lambda g: torch.empty(4).bernoulli_(generator=g))
    assert not check(lambda g: torch.empty(0).bernoulli_(generator=g))


def test_errors_are_stock_torchs() -> None:
    x = torch.empty(MANY)
    for p in (-0.1, 1.1, float("nan")):
        same_error(partial(x.bernoulli_, p))
    same_error(lambda: torch.empty(1).expand(MANY).bernoulli_())


def test_dropout_of_a_seed_is_stock_torchs() -> None:
    x = values(64, 96).requires_grad_()

    def dropped(g: Generator) -> Tensor:
        torch.manual_seed(3)
        y = F.dropout(x, 0.1)
        (grad,) = torch.autograd.grad(y.square().sum(), x)
        return torch.cat([y, grad, torch.rand(2, 96)])

    assert check(dropped) == TAKEN


def test_numbers_after_a_normal_one_and_of_a_copied_state_are_stock_torchs() -> None:
    def draw(g: Generator) -> Tensor:
        one = torch.randn((), generator=g)  # the generator caches its pair
        many = torch.empty(MANY).bernoulli_(generator=g)
        other = Generator()
        other.set_state(g.get_state())
        again = torch.empty(MANY).bernoulli_(generator=other)
        return torch.cat([one[None], many, torch.randn(1, generator=g), again])

    assert check(draw) == TAKEN


def test_threads_that_share_a_generator_draw_each_number_once() -> None:
    generator = Generator().manual_seed(1)
    with ThreadPoolExecutor(8) as pool:
        drawn = list(
            pool.map(lambda _: torch.empty(MANY).bernoulli_(generator=generator), range(64))
        )
    one = torch.empty(64, MANY).bernoulli_(generator=Generator().manual_seed(1))
    rows = {tuple(row.tolist()) for row in one}
    assert {tuple(row.tolist()) for row in drawn} == rows
    assert len(rows) == 64


def test_draws_write_only_to_their_own_tensor() -> None:
    x = torch.full((3, MANY), 7.0)
    with counting() as calls:
        x[1].bernoulli_()
    assert bool(calls) == TAKEN
    assert x._version == 1
    assert (x[::2] == 7).all()
    copy = torch._lazy_clone(x)
    copy.bernoulli_()
    assert (x[::2] == 7).all()


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_numbers_of_a_mapped_function_are_stock_torchs(randomness: str) -> None:
    x = values(3, MANY)

    def draw(g: Generator) -> Tensor:
        torch.manual_seed(5)
        return torch.vmap(lambda x: F.dropout(x, 0.3), randomness=randomness)(x)

    check(draw)


def test_an_invalid_engine_state_draws_as_in_stock_torch() -> None:
    generator = Generator().manual_seed(1)
    torch.rand(100, generator=generator)
    state = generator.get_state()
    left = state.view(torch.int32)[2:3]  # after the seed, of 64 bits
    assert left.item() == 525
    left.fill_(9)

    def draw(g: Generator) -> Tensor:
        g.set_state(state)
        return torch.empty(MANY).bernoulli_(generator=g)

    assert not check(draw)
