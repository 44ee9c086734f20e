"""Optimised modules match eager ones where a plan could differ: strides, errors, dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.backends.zendnn import _C

from .common import long_strides, outcome, stock, values
from .support.frozen import optimised, scripted

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]

Function = Callable[..., Tensor]


class Net(nn.Module):
    """A function next to a layer, so that it belongs to a region."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function
        self.layer = nn.Linear(8, 8)

    def forward(self, beside: Tensor, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        return self.layer(beside), self.function(*inputs)


def both(
    function: Function, *inputs: Tensor, seen: tuple[Tensor, ...] | None = None
) -> list[Tensor]:
    """The results of the optimised and of the eager function; traced with ``seen`` if given."""
    with torch.no_grad(), stock():
        theirs = function(*inputs)
    return [ours(function, *inputs, seen=seen), theirs]


def ours(function: Function, *inputs: Tensor, seen: tuple[Tensor, ...] | None = None) -> Tensor:
    """The result of the optimised function; traced with ``seen`` if given."""
    net, beside = Net(function).eval(), values(2, 8)
    example = (beside, *(inputs if seen is None else seen))
    module = optimised(torch.jit.trace(net, example, check_trace=False))
    with torch.no_grad():
        result: Tensor = module(beside, *inputs)[1]
    return result


# Strides.

INPUTS: dict[str, Callable[[], Tensor]] = {
    "contiguous": lambda: values(2, 8, 4, 6),
    "channels last": lambda: values(2, 8, 4, 6).to(memory_format=torch.channels_last),
    "permuted": lambda: values(4, 2, 6, 8).permute(1, 3, 0, 2),
    "transposed": lambda: values(2, 8, 6, 4).transpose(2, 3),
}
CONDITION = values(2, 8, 4, 6, seed=5) > 0

FUNCTIONS: dict[str, Function] = {
    "relu": F.relu,
    "to bfloat16": lambda x: x.bfloat16(),
    "add": lambda x: x + x[:1],
    "add to a part": lambda x: x[:1] + x,
    "product of parts": lambda x: x[:, :1] * x[:1],
    "product of rows and columns": lambda x: x[:, :, :1] * x[:, :, :, :1],
    "where": lambda x: torch.where(x > 0, x, 2.0),
    "where a condition": lambda x: torch.where(CONDITION, x, x * 2),
    "masked_fill": lambda x: x.masked_fill(x[:, :1] > 0, 2.0),
    "batch_norm": lambda x: F.batch_norm(x, torch.zeros(8), torch.ones(8)),
    "group_norm": lambda x: F.group_norm(x, 2),
    "layer_norm": lambda x: F.layer_norm(x, (6,)),
    "rms_norm": lambda x: F.rms_norm(x, (6,), eps=1e-5),
    "softmax": lambda x: torch.softmax(x, 1),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "nearest": lambda x: F.interpolate(x, scale_factor=2.0),
    "bilinear": lambda x: F.interpolate(x, size=(5, 7), mode="bilinear"),
    "roll": lambda x: torch.roll(x, (1, 2), (2, 3)),
    "cat": lambda x: torch.cat([x, x], 1),
    "cat of one": lambda x: torch.cat([x], 1),
    "cat of one and nothing": lambda x: torch.cat([x, x[:, :0]], 1),
    "cat of one and an empty vector": lambda x: torch.cat([F.relu(x), torch.empty(0)], 1),
    "cat of two and nothing": lambda x: torch.cat([F.relu(x), x[:, :0], x], 1),
    "repeat once": lambda x: F.relu(x).repeat(1, 1, 1, 1),
    "repeat_interleave once": lambda x: F.relu(x).repeat_interleave(1, 1),
    "flip nothing": lambda x: F.relu(x).flip([]),
    "flip one": lambda x: F.relu(x)[:, :1].flip([1]),
    "roll by nothing": lambda x: torch.roll(F.relu(x), (0,), (1,)),
    "roll by a whole": lambda x: torch.roll(F.relu(x), (1, -8), (2, 1)),
    "pad by nothing": lambda x: F.pad(F.relu(x), (0, 0)),
    "nearest of the same size": lambda x: F.interpolate(F.relu(x), scale_factor=1.0),
    "einsum of one": lambda x: torch.einsum("nchw->nchw", F.relu(x)),
    "stack of one": lambda x: torch.stack([F.relu(x)[0]]),
    "sum of one": lambda x: F.relu(x)[:, :1].sum(1, keepdim=True),
    "maximum of one": lambda x: F.relu(x)[:, :1].amax(1, keepdim=True),
    "matmul": lambda x: x @ x.transpose(2, 3),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    "attention and mask": lambda x: F.scaled_dot_product_attention(
        x, x, x, attn_mask=torch.ones(4, 4, dtype=torch.bool)
    ),
    "causal attention": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "contiguous and relu": lambda x: F.relu(x.contiguous()) * 2,
    "contiguous between": lambda x: F.relu((x + 1).contiguous()),
    "contiguous and layer_norm": lambda x: F.layer_norm((x + 1).contiguous(), (6,)),
    "channels last and add": lambda x: x.contiguous(memory_format=torch.channels_last) + 1,
    "to channels last": lambda x: F.relu(x).to(memory_format=torch.channels_last) + 1,
}


@pytest.mark.parametrize("made", INPUTS.values(), ids=INPUTS)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_results_have_the_strides_that_torch_gives_them(
    function: Function, made: Callable[[], Tensor]
) -> None:
    if function is FUNCTIONS["rms_norm"] and not _C._has_one_default_eps():
        pytest.skip("this older torch builds it from elementwise operators, which keep strides")
    ours, theirs = both(function, made())
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert long_strides(ours) == long_strides(theirs)


@pytest.mark.parametrize("made", INPUTS.values(), ids=INPUTS)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_compiled_results_have_the_strides_that_torch_gives_them(
    function: Function, made: Callable[[], Tensor], fresh_dynamo: None
) -> None:
    x = made()
    is_ordered = x.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last)
    if function is FUNCTIONS["batch_norm"] and not is_ordered:
        pytest.skip("torch's fake tensors foretell other strides, which Inductor gives, too")
    net, beside = Net(function).eval(), values(2, 8)
    fast = torch.compile(net, backend="zendnn", dynamic=False, options={"rest": "eager"})
    with torch.no_grad():
        ours = fast(beside, x)[1]
        with stock():
            theirs = net(beside, x)[1]
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert long_strides(ours) == long_strides(theirs)


def test_a_view_after_contiguous_finds_contiguous_memory() -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x).transpose(1, 2).contiguous().relu().view(-1)

    net, x = Flat().eval(), values(2, 4, 8)
    with torch.no_grad():
        torch.testing.assert_close(optimised(scripted(net, x))(x), net(x), rtol=1e-4, atol=1e-5)


# Errors.

QUERY, KEY = values(2, 4, 5, 8), values(2, 2, 5, 8, seed=1)

ERRORS: dict[str, tuple[Function, tuple[Tensor, ...], tuple[Tensor, ...]]] = {
    "layer_norm of another size": (
        lambda x: F.layer_norm(x, (8,)), (values(2, 8),), (values(2, 9),),
    ),
    "rms_norm of another size": (
        lambda x: F.rms_norm(x, (8,), eps=1e-5), (values(2, 8),), (values(2, 9),),
    ),
    "attention of groups": (F.scaled_dot_product_attention, (QUERY,) * 3, (QUERY, KEY, KEY)),
    "bags that begin later": (
        lambda offsets: F.embedding_bag(torch.arange(4), values(9, 3), offsets),
        (torch.tensor([0, 2]),), (torch.tensor([1, 2]),),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("function", "seen", "given"), ERRORS.values(), ids=ERRORS)
def test_inputs_that_eager_refuses_are_refused(
    function: Function, seen: tuple[Tensor, ...], given: tuple[Tensor, ...]
) -> None:
    kind, _ = outcome(lambda: function(*given))
    assert kind != "value"
    assert outcome(lambda: ours(function, *given, seen=seen))[0] == kind


class OfLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)


class TwoSlices(OfLayer):
    def forward(self, x: Tensor) -> Tensor:
        a, b = self.layer(x).unbind(0)
        return a * 2 + b


class ThreeSizes(OfLayer):
    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        rows, width, _depth = y.size()
        return y.view(rows, -1) * width


class ThreeParts(OfLayer):
    def forward(self, x: Tensor) -> Tensor:
        a, _, b = self.layer(x).split([2, 0, 2], 0)
        return a * 2 + b


class OneMore(OfLayer):
    def forward(self, x: Tensor) -> Tensor:
        a, _ = self.layer(x).split([x.size(0) - 3, 3], 0)
        return a * 2


class TwoHalves(OfLayer):
    def forward(self, x: Tensor) -> Tensor:
        half = x.size(-2) // 2
        a, b = self.layer(x).split([half, half], -2)
        return a * 2 + b


LISTS = {
    "more slices than names": (TwoSlices, (2, 3, 8), (3, 3, 8)),
    "fewer slices than names": (TwoSlices, (2, 3, 8), (1, 3, 8)),
    "more sizes than names": (ThreeSizes, (2, 3, 8), (2, 3, 2, 8)),
    "fewer sizes than names": (ThreeSizes, (2, 3, 8), (3, 8)),
    "more rows than parts": (ThreeParts, (4, 8), (5, 8)),
    "fewer rows than parts": (ThreeParts, (4, 8), (3, 8)),
    "a part of less than nothing": (OneMore, (4, 8), (2, 8)),
    "more rows than computed parts": (TwoHalves, (4, 8), (5, 8)),
}


@pytest.mark.parametrize(("kind", "seen", "given"), LISTS.values(), ids=LISTS)
def test_lists_of_another_length_than_a_script_unpacks_are_refused(
    kind: Callable[[], nn.Module], seen: tuple[int, ...], given: tuple[int, ...]
) -> None:
    script, right, wrong = torch.jit.script(kind().eval()), values(*seen), values(*given)
    torch.testing.assert_close(*both(script, right), rtol=1e-4, atol=1e-5)
    error, _ = outcome(lambda: script(wrong))
    assert error != "value"
    assert outcome(lambda: ours(script, wrong, seen=(right,)))[0] == error


class MaxPool(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool2d(self.layer(x), 2, 2, 2)


class Overflow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).masked_fill(x > 0, -1e39)


@pytest.mark.parametrize(
    ("net", "x"), [(MaxPool(), values(1, 3, 8, 8)), (Overflow(), values(2, 8))], ids=str
)
def test_inputs_of_a_script_that_eager_refuses_are_refused(net: nn.Module, x: Tensor) -> None:
    kind, _ = outcome(lambda: net.eval()(x))
    assert kind != "value"
    module = optimised(scripted(net.eval(), x))
    assert outcome(lambda: module(x))[0] == kind


def test_grouped_attention_on_request_is_right() -> None:
    def grouped(q: Tensor, k: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, k, enable_gqa=True)

    ours, theirs = both(grouped, QUERY, KEY)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert long_strides(ours) == long_strides(theirs)


# Numbers.


@pytest.mark.parametrize("number", [1.5 * 2**23, -1.5 * 2**23])
def test_large_numbers_that_cancel_out_still_round_the_value_between(number: float) -> None:
    for function in (
        lambda x: (x + number) - number,
        lambda x: (number + x) - (number - 2),
        lambda x: number - (number - x),
    ):
        ours, theirs = both(function, values(3, 4) * 5)
        assert torch.equal(ours, theirs)


def test_large_numbers_are_not_folded_into_biases() -> None:
    class Round(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            with torch.no_grad():
                self.layer.weight.copy_(torch.eye(4))
                self.layer.bias.fill_(0.4)

        def forward(self, x: Tensor) -> Tensor:
            return (self.layer(x) + 12582912.0) - 12582912.0

    net, x = Round().eval(), torch.tensor([[0.3, 1.5, 2.7, -0.6]])
    with torch.no_grad():
        assert torch.equal(optimised(scripted(net, x))(x), net(x))


def test_float64_numbers_widen_tensors_without_dimensions() -> None:
    def chosen(condition: Tensor, x: Tensor) -> Tensor:
        return torch.where(condition, x.mean(), torch.tensor(2.0, dtype=torch.float64))

    ours, theirs = both(chosen, torch.tensor([True, False]), values(3, 4))
    assert ours.dtype == theirs.dtype == torch.float64
    torch.testing.assert_close(ours, theirs)

    def wide(condition: Tensor, x: Tensor) -> Tensor:
        return torch.where(condition, x, torch.tensor(-math.inf, dtype=torch.float64))

    ours, theirs = both(wide, values(3, 4) > 0, values(3, 4))
    assert ours.dtype == theirs.dtype
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("dtype", "wide"), [(torch.float32, torch.float64), (torch.bfloat16, torch.float32)]
)
@pytest.mark.parametrize("way", ["compiled", "exported", "traced"])
def test_a_constant_without_dimensions_decides_the_dtype_beside_another(
    dtype: torch.dtype, wide: torch.dtype, way: str, fresh_dynamo: None
) -> None:
    third = torch.tensor(1 / 3, dtype=wide)

    def function(x: Tensor) -> Tensor:
        y = x.sum()
        same = y * 0 + 1 / 3 == third
        more = (y * third, third - y, torch.add(y, third, alpha=2), y / third) if widens else ()
        return torch.stack([same.to(wide), torch.where(y > 1e9, y, third), *more])

    # TorchScript's executor makes numbers of the other constants, also without us.
    widens = way != "traced"
    net, x, beside = Net(function).eval(), values(4, 8).to(dtype), values(2, 8)
    model = net if widens else torch.jit.trace(net, (beside, x), check_trace=False)
    with torch.no_grad():
        with stock():
            theirs = model(beside, x)[1]
        if way == "compiled":
            ours = torch.compile(net, backend="zendnn")(beside, x)[1]
        elif way == "exported":
            ours = torch.backends.zendnn.optimize(net, (beside, x))(beside, x)[1]
        else:
            ours = both(function, x)[0]
    assert ours.dtype == theirs.dtype == wide
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


# Constants.


def test_lists_of_constants_beside_values_that_are_written_to() -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.recurrent = nn.LSTM(16, 8)

        def forward(self, x: Tensor) -> Tensor:
            x[0] = 0.0
            out: Tensor = self.recurrent(x)[0]
            return out

    class Attends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
            self.recurrent = nn.LSTM(16, 8)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.attention(x, x, x)[0], self.recurrent(x)[0]

    for net in (Writes().eval(), Attends().eval()):
        x = values(3, 2, 16)
        module = optimised(scripted(net, x.clone()))
        with torch.no_grad():
            torch.testing.assert_close(module(x.clone()), net(x.clone()), rtol=1e-4, atol=1e-5)
