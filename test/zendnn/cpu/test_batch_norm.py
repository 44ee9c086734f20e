"""Batch norm, with running or batch statistics, and backward: as precise as stock torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from test.drawing import property_test

from ..common import (
    DTYPES,
    HAS_WIDE_VECTORS,
    LAYOUTS,
    assert_as_exact,
    assert_same_bits,
    assert_same_outcome,
    counting,
    dtypes,
    gradients,
    outcome,
    rearranged,
    same_error,
    sizes,
    stock,
    values,
)

EPS, MOMENTUM = 1e-5, 0.1
#: Dtypes of input and of parameters.
TYPES = (*((dtype, dtype) for dtype in DTYPES), (torch.bfloat16, torch.float32))
of_types = pytest.mark.parametrize(("dtype", "parameters"), TYPES, ids=str)
in_training = pytest.mark.parametrize("training", [False, True], ids=["known", "own"])

#: Memory layouts.
FORMATS: dict[str, Callable[[Tensor], Tensor]] = {
    "planes": Tensor.contiguous,
    "channels last": lambda x: x.to(
        memory_format={4: torch.channels_last, 5: torch.channels_last_3d}.get(
            x.dim(), torch.contiguous_format
        )
    ),
}
of_formats = pytest.mark.parametrize("where", FORMATS.values(), ids=FORMATS)
SHAPES = (
    (2, 3, 4, 4), (1, 64, 9, 9), (3, 5, 7), (40, 7), (2, 17, 1, 1), (2, 16, 3, 5, 2), (2, 1, 4, 4),
    (9, 31, 7, 7), (2, 3, 1, 4), (3000, 3, 2), (5, 600, 3, 3), (70, 520), (4, 48, 64, 64),
)  # fmt: skip


def parameters_of(channels: int, dtype: torch.dtype) -> list[Tensor]:
    """Weight, bias, running mean and running variance: (channels,), positive except the bias."""
    result = [values(channels, dtype=dtype, seed=seed) for seed in range(1, 5)]
    return [result[0].abs(), result[1], result[2].abs(), result[3].abs() + 0.1]


def takes(dtype: torch.dtype) -> bool:
    """Whether ours is faster on this CPU."""
    return dtype == torch.float32 or HAS_WIDE_VECTORS


def norm(
    x: Tensor, parameters: Sequence[Tensor | None], training: bool, eps: float = EPS
) -> list[Tensor]:
    """The result, the statistics saved for the gradient, and the new running statistics."""
    weight, bias, *running = parameters
    mean, variance = [p if p is None else p.clone() for p in running]
    result = torch.native_batch_norm(x, weight, bias, mean, variance, training, MOMENTUM, eps)
    return [*result, *(p for p in (mean, variance) if p is not None)]


def check(
    x: Tensor,
    parameters: Sequence[Tensor | None],
    training: bool,
    *,
    runs: bool = True,
    eps: float = EPS,
) -> None:
    """Compares all results with stock torch's and float64's; ``runs``: whether ZenDNN runs."""
    with counting() as calls:
        ours = norm(x, parameters, training, eps)
    assert bool(calls) == (runs and takes(x.dtype))
    with stock():
        theirs = norm(x, parameters, training, eps)
        exact = norm(
            x.double(), [p if p is None else p.double() for p in parameters], training, eps
        )
    # The following steps magnify the rounding error of the mean.
    rstd = exact[1 + training].max().item() if training else 1.0
    magnified = x.double().abs().max().item() * max(rstd, 1.0) if x.numel() else 0.0
    for our, their, true in zip(ours, theirs, exact, strict=True):
        assert our.stride() == their.stride()
        assert not our.requires_grad
        magnitude = max(true.abs().max().item(), magnified) if true.numel() else 0.0
        assert_as_exact(our, their, true, magnitude)


@of_types
@of_formats
@in_training
def test_results_and_statistics_are_right_and_run_on_zendnn(
    training: bool,
    where: Callable[[Tensor], Tensor],
    dtype: torch.dtype,
    parameters: torch.dtype,
) -> None:
    # Statistics in bfloat16 fall back to stock torch.
    runs = not training or parameters == torch.float32
    for shape in SHAPES:
        x = where(3 * values(*shape, dtype=dtype) + 1)
        check(x, parameters_of(shape[1], parameters), training, runs=runs)


@in_training
def test_parameters_may_be_left_out(training: bool) -> None:
    x = values(3, 5, 4, 4)
    weight, bias, mean, variance = parameters_of(5, torch.float32)
    running = [(mean, variance)] if not training else [(mean, variance), (None, None)]
    for kept in running:
        for affine in ((weight, bias), (weight, None), (None, bias), (None, None)):
            check(x, [*affine, *kept], training)


def test_results_are_right_for_any_shape() -> None:
    @property_test
    @given(
        shape=st.lists(sizes, min_size=2, max_size=4), dtype=dtypes, training=st.booleans(),
        where=st.sampled_from(sorted(FORMATS)), offset=st.sampled_from((0.0, 1.0, -100.0)),
    )  # fmt: skip
    def holds(
        shape: list[int], dtype: torch.dtype, training: bool, where: str, offset: float
    ) -> None:
        x = FORMATS[where](values(*shape, dtype=dtype) + offset)
        more_than_one = x.numel() > shape[1]
        check(
            x,
            parameters_of(shape[1], torch.float32),
            training,
            runs=not training or more_than_one,
            eps=1e-3,
        )

    holds()


@of_formats
def test_statistics_of_many_numbers_far_from_zero_are_precise(
    where: Callable[[Tensor], Tensor],
) -> None:
    x = torch.rand(3, 8, 300, 301, generator=torch.Generator().manual_seed(0)) + 1000
    x[0, :, 0, 0] = 0  # an outlier at the start of the sums
    _, mean, rstd = norm(where(x), [None] * 4, True)
    exact = x.double().transpose(0, 1).flatten(1)
    true = 1 / (exact.var(1, correction=0) + EPS).sqrt()
    assert torch.allclose(mean.double(), exact.mean(1), rtol=2e-7, atol=0)
    assert torch.allclose(rstd.double(), true, rtol=2e-6, atol=0)


@of_formats
def test_channels_of_equal_numbers_become_their_bias(
    where: Callable[[Tensor], Tensor],
) -> None:
    bias = values(3)
    for number in (0.1, 1000.1, -3e7):
        x = where(torch.full((5, 3, 17, 19), number))
        out, mean, rstd = norm(x, [None, bias, None, None], True)
        assert torch.equal(out, bias.view(3, 1, 1).expand_as(out))
        assert torch.equal(mean, torch.full((3,), number))
        assert torch.allclose(rstd, torch.full((3,), EPS**-0.5))
        assert not norm(x, [None] * 4, True, eps=0)[2].any()  # as in stock torch


@of_formats
@in_training
def test_a_nan_or_infinity_affects_only_its_channel(
    training: bool, where: Callable[[Tensor], Tensor]
) -> None:
    for bad in (float("nan"), float("inf"), float("-inf")):
        for place in ((0, 1, 0, 0), (1, 1, 2, 3), (2, 1, 5, 5)):
            x = values(3, 4, 6, 6)
            x[place] = bad
            ours = norm(where(x), parameters_of(4, torch.float32), training)
            with stock():
                theirs = norm(where(x), parameters_of(4, torch.float32), training)
            for our, their in zip(ours, theirs, strict=True):
                assert torch.equal(our.isfinite(), their.isfinite())
                assert torch.equal(our.isnan(), their.isnan())


@of_types
@in_training
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_is_stock_torchs_or_as_exact(
    layout: str, training: bool, dtype: torch.dtype, parameters: torch.dtype
) -> None:
    plain = values(3, 5, 4, 6, dtype=dtype)
    factors = parameters_of(5, parameters)
    takes = not training or parameters == torch.float32
    dense = layout not in ("transposed", "strided", "padded")
    check(rearranged(plain, layout), factors, training, runs=takes and dense)
    runs = takes and layout != "strided"  # the other layouts of one dimension are contiguous
    for i in range(2):
        moved = [rearranged(p, layout) if i == j else p for j, p in enumerate(factors)]
        check(plain, moved, training, runs=runs)


def test_refused_calls_match_stock_torch() -> None:
    x, low = values(4, 6, 3), values(4, 6, 3, dtype=torch.bfloat16)
    full = parameters_of(6, torch.float32)
    half = [p.bfloat16() for p in full]
    wide = [p.double() for p in full]

    def run(x: Tensor, parameters: Sequence[Tensor], training: bool = False) -> Tensor:
        return norm(x, parameters, training)[0]

    cases: list[Callable[[], Tensor]] = [
        lambda: run(x.double(), wide),
        lambda: run(x.half(), [p.half() for p in full]),
        lambda: run(x[:0], full),
        lambda: run(x[:, :, :0], full),
        lambda: run(x, half),
        lambda: run(low, [full[0], *half[1:]]),
        lambda: run(low, half, training=True),
        lambda: run(x[:1, :, :1], full, training=True),
        lambda: F.batch_norm(x, full[2], full[3][:5], full[0], full[1]),
        lambda: F.batch_norm(x[:1, :, :1], full[2], full[3], full[0], full[1], training=True),
        lambda: F.batch_norm(x, full[2], full[3], full[0].view(1, 6), full[1]),
        lambda: F.batch_norm(x.long(), full[2], full[3], full[0], full[1]),
    ]
    for case in cases:
        assert_same_bits(case)
    factors = full[0], full[1]
    native = torch.native_batch_norm
    unusual: list[Callable[[], Any]] = [
        lambda: native(x[:1, :, 0], *factors, full[2], full[3], True, 0.1, EPS),
        lambda: native(x[..., 0], *factors, None, full[3], False, 0.1, EPS),
        lambda: native(x[0, :, 0], *factors, full[2], full[3], False, 0.1, EPS),
    ]
    for call in unusual:
        assert_same_outcome(call)


# Gradients


def backward(
    grad: Tensor,
    x: Tensor,
    parameters: Sequence[Tensor | None],
    training: bool,
    wanted: tuple[bool, bool, bool] = (True, True, True),
) -> list[Tensor | None]:
    weight, _, mean, variance = parameters
    _, own_mean, own_rstd, *_ = norm(x, parameters, training)
    result = torch.ops.aten.native_batch_norm_backward(
        grad, x, weight, mean, variance, own_mean, own_rstd, training, EPS, wanted
    )
    return list(result)


@of_types
@of_formats
@in_training
def test_gradients_are_right_and_run_on_zendnn(
    training: bool,
    where: Callable[[Tensor], Tensor],
    dtype: torch.dtype,
    parameters: torch.dtype,
) -> None:
    for shape in SHAPES:
        x = where(3 * values(*shape, dtype=dtype) + 1)
        grad = where(values(*shape, dtype=dtype, seed=9))
        factors = parameters_of(shape[1], parameters)
        with counting() as calls:
            ours = backward(grad, x, factors, training)
        if parameters == torch.float32 and takes(dtype):
            assert calls["batch_normalization"] == 2, calls
        with stock():
            theirs = backward(grad, x, factors, training)
            exact = backward(grad.double(), x.double(), [p.double() for p in factors], training)
            bound = backward(grad.double().abs(), x.double(), [p.double() for p in factors], False)
        for our, their, true, most in zip(ours, theirs, exact, bound, strict=True):
            assert our is not None
            assert their is not None
            assert true is not None
            assert most is not None
            assert our.stride() == their.stride()
            magnitude = max(true.abs().max().item(), most.abs().max().item()) * 4
            assert_as_exact(our, their, true, magnitude)


@of_formats
def test_gradients_with_running_statistics_do_not_depend_on_the_input(
    where: Callable[[Tensor], Tensor],
) -> None:
    x, grad = where(values(3, 5, 4, 4)), where(values(3, 5, 4, 4, seed=9))
    factors = parameters_of(5, torch.float32)
    want = backward(grad, x, factors, False, (True, False, False))[0]
    x[0, 1, 2, 3] = float("inf")
    ours = backward(grad, x, factors, False, (True, False, False))[0]
    assert ours is not None
    assert want is not None
    assert torch.equal(ours, want)


@in_training
@of_formats
def test_only_requested_gradients_are_computed(
    where: Callable[[Tensor], Tensor], training: bool
) -> None:
    x, grad = where(values(3, 5, 4, 4)), where(values(3, 5, 4, 4, seed=9))
    for has_weight in (True, False):
        factors: list[Any] = parameters_of(5, torch.float32)
        if not has_weight:
            factors[0] = None
        whole = backward(grad, x, factors, training)
        for wanted in (
            (True, False, False), (False, True, False), (False, False, True), (True, True, False),
        ):  # fmt: skip
            some = backward(grad, x, factors, training, wanted)
            with stock():
                theirs = backward(grad, x, factors, training, wanted)
            for one, their, every, is_wanted in zip(some, theirs, whole, wanted, strict=True):
                assert (one is not None) == (their is not None)
                assert one is None or (is_wanted and every is not None and torch.equal(one, every))


@pytest.mark.parametrize("layout", ["expanded", "other format", "strided", "other type"])
def test_gradients_of_other_layouts_and_types_are_stock_torchs(layout: str) -> None:
    x = values(3, 5, 4, 6)
    grad = values(3, 5, 4, 6, seed=9)
    moved = {
        "expanded": lambda: grad[:1, :1].expand(3, 5, 4, 6),
        "other format": lambda: grad.to(memory_format=torch.channels_last),
        "strided": lambda: rearranged(grad, "strided"),
        "other type": lambda: grad.bfloat16(),
    }[layout]()
    factors = parameters_of(5, torch.float32)
    with stock():
        kept = norm(x, factors, True)[1:3]

    def case() -> Tensor:
        result = torch.ops.aten.native_batch_norm_backward(
            moved, x, factors[0], *factors[2:], *kept, True, EPS, [True] * 3
        )
        return torch.cat([one.flatten() for one in result])

    assert_same_bits(case)


@of_formats
def test_training_gives_stock_torchs_statistics_and_gradients(
    where: Callable[[Tensor], Tensor],
) -> None:
    def train() -> list[Tensor]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 24, 3), nn.BatchNorm2d(24), nn.ReLU(), nn.BatchNorm2d(24))
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for step in range(3):
            optimizer.zero_grad()
            out = net(where(values(4, 3, 9, 9, seed=step)))
            out.backward(where(values(*out.shape, seed=9)) / out.numel())
            optimizer.step()
        return [p.detach() for p in net.state_dict().values()]

    with counting() as calls:
        ours = train()
    assert calls["batch_normalization"] == 12
    with stock():
        theirs = train()
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their, rtol=1e-4, atol=1e-5)


def test_gradients_of_gradients_and_of_transforms_are_stock_torchs() -> None:
    x = values(3, 4, 5)
    weight, bias, mean, variance = parameters_of(4, torch.float32)

    def run(x: Tensor, weight: Tensor) -> Tensor:
        return F.batch_norm(x, None, None, weight, bias, training=True)

    def known(x: Tensor) -> Tensor:
        return F.batch_norm(x, mean, variance, weight, bias)

    def twice() -> Tensor:
        leaf = x.clone().requires_grad_()
        (grad,) = torch.autograd.grad(run(leaf, weight).pow(3).sum(), leaf, create_graph=True)
        return torch.autograd.grad(grad.pow(2).sum(), leaf)[0]

    cases: list[Callable[[], Tensor]] = [
        twice,
        lambda: torch.func.jvp(run, (x, weight), (x.flip(0), weight))[1],
        lambda: torch.func.grad(lambda w: run(x, w).pow(3).sum())(weight),
        lambda: torch.vmap(run, (0, None))(torch.stack([x, x.flip(0)]), weight),
        lambda: torch.vmap(known)(torch.stack([x, x.flip(0)])),
        lambda: torch.func.functionalize(run)(x, weight),
    ]
    for case in cases:
        kind, ours = outcome(case)
        with stock():
            stock_kind, theirs = outcome(case)
        assert kind == stock_kind == "value", (ours, theirs)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_autocast_trains_on_zendnn_as_on_stock_torch() -> None:
    x = values(4, 3, 9, 9)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 24, 3), nn.BatchNorm2d(24))
    state = {name: value.clone() for name, value in net.state_dict().items()}

    def run(x: Tensor) -> Tensor:
        net.load_state_dict(state)
        with torch.autocast("cpu", torch.bfloat16):
            out: Tensor = net(x)
        assert out.dtype == torch.bfloat16
        return out.square()

    with counting() as calls:
        ours = gradients(run, x)
    assert calls["batch_normalization"] == (2 if takes(torch.bfloat16) else 0)
    with stock():
        theirs = gradients(run, x)
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their, rtol=0.05, atol=0.05)


@of_formats
def test_results_do_not_depend_on_the_number_of_threads(where: Callable[[Tensor], Tensor]) -> None:
    x, grad = where(values(8, 40, 31, 33)), where(values(8, 40, 31, 33, seed=9))
    factors = parameters_of(40, torch.float32)
    before = torch.get_num_threads()
    try:
        result = []
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            result.append([*norm(x, factors, True), *backward(grad, x, factors, True)])
    finally:
        torch.set_num_threads(before)
    for other in result[1:]:
        for one, same in zip(result[0], other, strict=True):
            assert one is not None
            assert same is not None
            assert torch.equal(one, same)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("given", ["running_mean", "running_var"])
def test_one_statistic_without_the_other_raises_torchs_error(given: str, training: bool) -> None:
    statistics = {"running_mean": None, "running_var": None, given: torch.ones(8)}
    same_error(lambda: F.batch_norm(values(4, 8, 5, 5), **statistics, training=training))
