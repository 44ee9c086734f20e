"""Placement: parts of concatenations in place, constants packed once, results as torch's."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.backends.zendnn.ir.node import Value

from ..common import HAS_WIDE_VECTORS, PRIMITIVE_DTYPES, stock, values
from ..support import samples
from ..support.graphs import Builder
from ..support.plans import check, copies_of, implementations, make_plan, region_of, tensor, then

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


#: Channels per block of an image.
BLOCK = 16 if HAS_WIDE_VECTORS else 8


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses the blocked layout for images."""
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", "blocked")


#: A convolution that keeps the size of images.
convolved = functools.partial(samples.convolved, size=3)


def branches(b: Builder, batch: int, *counts: int) -> list[Value]:
    width = BLOCK // 2
    x = b.input(tensor(batch, width, 6, 5))
    return [then(b, convolved(b, x, width, count), "relu") for count in counts]


@pytest.mark.usefixtures("blocked")
class TestConcatenationsInBlocks:
    @pytest.mark.parametrize("batch", [1, 3])
    def test_of_whole_blocks_are_written_in_place(self, b: Builder, batch: int) -> None:
        parts = branches(b, batch, BLOCK, 2 * BLOCK, BLOCK)
        plan = check(b, convolved(b, b("cat", *parts, dim=1), 4 * BLOCK, BLOCK))
        assert copies_of(plan) == 1, implementations(plan)  # only for the result

    @pytest.mark.parametrize("batch", [1, 3])
    def test_in_each_other_are_written_in_place(self, b: Builder, batch: int) -> None:
        one, two, three = branches(b, batch, BLOCK, 2 * BLOCK, BLOCK)
        inner = b("cat", one, two, dim=1)
        outer = b("cat", three, inner, dim=1)
        results = [convolved(b, inner, 3 * BLOCK, BLOCK), convolved(b, outer, 4 * BLOCK, BLOCK)]
        plan = check(b, *results)
        assert copies_of(plan) == len(results), implementations(plan)

    @pytest.mark.parametrize("batch", [1, 3])
    def test_whose_parts_belong_to_a_later_one_and_are_no_blocks(
        self, b: Builder, batch: int
    ) -> None:
        one, two, three = branches(b, batch, 16, 8, 16)
        early = convolved(b, b("cat", one, two, three, dim=1), 40, 8)
        late = convolved(b, b("cat", two, three, dim=1), 24, 8)
        check(b, early, late)

    @pytest.mark.parametrize("batch", [1, 3])
    def test_with_a_constant_that_is_no_block(self, b: Builder, batch: int) -> None:
        (one,) = branches(b, batch, 16)
        whole = b("cat", one, b.constant(batch, 8, 6, 5), b.constant(batch, 16, 6, 5), dim=1)
        check(b, convolved(b, whole, 40, 8), whole)

    @pytest.mark.parametrize("batch", [1, 3])
    @pytest.mark.parametrize("other", [16, 32])
    def test_of_chunks(self, b: Builder, batch: int, other: int) -> None:
        """Chunks of larger images on both sides, with equal or different batch strides."""
        left, right = b.node(
            "split", b.input(tensor(batch, 64, 6, 5)), results=2, dim=1, chunks=2
        ).outputs
        (one,) = branches(b, batch, other)
        wholes = [b("cat", left, one, dim=1), b("cat", one, right, dim=1)]
        check(b, *(convolved(b, whole, 32 + other, 8) for whole in wholes))


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES)
def test_a_constant_that_is_read_in_two_layouts_is_packed_from_its_own(
    b: Builder, dtype: torch.dtype
) -> None:
    x = b.input(tensor(2, 16, 6, 8, dtype=dtype))
    constant = b.constant(2, 16, 6, 8)
    assert constant.constant is not None
    constant.constant = constant.constant.contiguous(memory_format=torch.channels_last)
    normed = b("layer_norm", x, b.constant(8), b.constant(8), constant, eps=1e-5, dims=1)
    check(b, then(b, convolved(b, normed, 16, 16), ("add", constant)), dtype=dtype)


def test_a_constant_is_laid_out_once(b: Builder) -> None:
    weight = b.graph.constant(torch.randn(8, 5, dtype=torch.float64).t())
    x = b.input(tensor(5, 8))
    plan = check(b, b("layer_norm", x, None, None, weight, eps=1e-5, dims=1))
    assert copies_of(plan) == 0, implementations(plan)


# Results have the strides of torch's own operators, so that views of them still work.


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.second = nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = F.relu(self.first(x))
        y = F.max_pool2d(self.second(x), 2)
        return x + self.second(x), y, torch.cat([x, x], 1), torch.sigmoid(y)


class Rows(nn.Module):
    """A linear layer over channels in the last dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 1)
        self.linear = nn.Linear(16, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = self.conv(x)
        rows = self.linear(y.permute(0, 2, 3, 1))
        return rows, y, F.gelu(rows), rows.permute(0, 3, 1, 2), F.softmax(y, 1)


class Swapped(nn.Module):
    """Features in the first dimension of memory, and functions that keep them there."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = self.linear(x).transpose(2, 3)
        z = F.gelu(y)
        return y, z, z + y, z * 2, F.softmax(z, -1), z.flatten(1), z.transpose(2, 3)


def cl(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("change_input", [torch.clone, cl], ids=["rows", "channels last"])
@pytest.mark.parametrize(
    "change_net",
    [lambda net: net, lambda net: net.to(memory_format=torch.channels_last)],
    ids=["net", "net channels last"],
)
@pytest.mark.parametrize("net", [Images, Rows, Swapped])
def test_results_can_be_viewed_as_those_of_torch(
    net: Callable[[], nn.Module],
    change_net: Callable[[nn.Module], nn.Module],
    change_input: Callable[[Tensor], Tensor],
) -> None:
    model, x = change_net(net().eval()), change_input(values(2, 3, 8, 6))
    with torch.no_grad():
        module = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(model, x)))
        with stock():
            theirs = model(x)
        ours = module(x)
    for mine, want in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, want, rtol=1e-4, atol=1e-5)
        for order in itertools.permutations(range(want.dim())):
            if want.permute(order).is_contiguous():
                assert torch.equal(
                    mine.permute(order).view(2, -1), mine.permute(order).reshape(2, -1)
                )


def test_one_channels_last_input_leaves_other_results_contiguous() -> None:
    b = Builder()
    image = b.input(cl(values(2, 16, 6, 5)))
    rows = b.input(values(2, 4, 6, 8))
    plan = make_plan(region_of(b, convolved(b, image, 16, 8), b.linear(rows, 8, 8)))
    first, second = plan.run(b.examples, [])
    assert first.is_contiguous(memory_format=torch.channels_last)
    assert second.is_contiguous()
