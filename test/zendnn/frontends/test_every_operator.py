"""Every row of the table of operators is reached by the importer's tests, or by a model here.

Each model is optimised and compared with torch. Operators that are not expected to be left out must
have run in a plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.backends.zendnn.frontends import torchscript
from torch.backends.zendnn.frontends.torchscript.calls import OPERATORS, operator_name

from ..common import stock, values
from ..support.calls import FUNCTIONAL, IMPORTED, REFUSED, traced
from ..support.models import assert_plans_ran

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
LOGIC = ("and", "or", "xor")
BITS = [form.format(name) for name in LOGIC for form in ("__{}__", "bitwise_{}")]
LINE, IMAGE, VOLUME = (values(2, 4, *sizes) for sizes in ((12,), (8, 6), (4, 6, 8)))


class Traced(nn.Module):
    """A convolution, which makes a region, and a function after it."""

    def __init__(self, function: Callable[[Tensor], Any] | None, spatial: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[spatial](4, 6, 1)
        self.prelu = nn.PReLU(6)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        y = self.conv(x)
        return self.prelu(y) + y if self.function is None else self.function(y)


class Convolutions(nn.Module):
    """Convolutions as in scripts; all keep the sizes of a tensor with 4 channels."""

    def __init__(self, spatial: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        plain = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[spatial]
        transposed = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}[spatial]
        self.layers = nn.Sequential(
            plain(4, 4, 3, padding=1),
            nn.ReLU(),
            plain(4, 4, 3, padding="same"),
            transposed(4, 4, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


class Arithmetic(nn.Module):
    """Arithmetic on numbers and sizes, as in scripts."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = (2.0 - (self.linear(x) + 1.0)) * 0.5 / 4.0 - 1.0
        rows, count = y.size()[0], y.size()[1]
        y = y[: count - 4 - count % 4] + y[-count:]
        return F.softmax(y.view((rows + 4) * 2 // 4, -1, 8), -1), y


class Autocast(nn.Module):
    """A script that enables autocast itself."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.softmax(self.linear(x), -1)


class Parts(nn.Module):
    """Parts of a tensor, as in scripts."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.linear(x)
        left, right = y.chunk(2, -1)
        one, two = torch.split(y, [2, 6], -1)
        three, four = y.split([2, 6], -1)
        return F.softmax(left * right, -1), torch.cat((one, two * four, three), -1)


class Swapped(nn.Module):
    """Aliases of transpose, which traces of submodules keep."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.swapdims(x.swapaxes(0, 1).softmax(-1), 0, -1).softmax(-1)


class Bags(nn.Module):
    """The oldest form of bags and convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", values(9, 8))
        self.register_buffer("kernel", values(3, 8, 1, seed=1))

    def forward(self, ids: Tensor) -> Tensor:
        offsets = torch.arange(ids.size(0)) * 2
        bags, _, _, _ = torch.embedding_bag(self.table, ids.view(-1), offsets)
        return torch._convolution(
            bags.unsqueeze(-1), self.kernel, None, [1], [0], [1], False, [0], 1, False, False, False
        )


class Tensors(nn.Module):
    """Tensors instead of numbers, and numbers instead of tensors."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        count = torch.full((), x.size(0), dtype=torch.int64)
        places = torch.arange(1, int(count.item()) + 1)
        return x.view(count, -1), torch.floor_divide(x, 2), torch.remainder(x, 2), places


class SelfAttention(nn.Module):
    """torch's own module, which calls a single operator in inference."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return out


def masked(x: Tensor) -> Tensor:
    """A mask out of positions."""
    size = x.size(-1)
    places = torch.arange(size) * 2 - 3
    rows = torch.ones(1, size, dtype=torch.int64).cumsum(-1)
    inner = places.le(5) & (rows > 1) & ((rows & 1) == 0)
    outer = places.lt(0) | places.ge(4) | ((rows | 1) == 3)
    odd = (places == rows) ^ (rows != 2) ^ ((rows ^ 1) == 2)
    bits = torch.bitwise_xor(torch.bitwise_or(torch.bitwise_and(rows, 6), 8), 2)
    bits = torch.bitwise_xor(torch.bitwise_or(torch.bitwise_and(bits, rows), places), rows)
    near = (bits > 3) ^ places.eq(rows).ne(rows.lt(places)) | (rows.gt(places) == rows.ge(places))
    every = torch.logical_xor(torch.logical_or(inner, ~outer), torch.logical_and(odd, near))
    none = torch.zeros(1, size, dtype=torch.bool) & torch.full((size,), 1, dtype=torch.bool)
    return x.masked_fill(torch.logical_not(every) | none | rows.le(places), 7.0)


def deviations(x: Tensor) -> Tensor:
    """Deviations and variances, in each of torch's ways to ask for them."""
    y = x.view(2, 6, 8, 6)
    of_all = y.std(unbiased=True) + y.var(unbiased=False)
    of_all = of_all * torch.std(y.relu()) + torch.var(y.tanh())
    of_one = y.std(1, unbiased=False, keepdim=True) * y.var([1], unbiased=True, keepdim=True)
    of_two = y.std((-1, 2), correction=3) + y.var((2, 3), correction=0)
    return (y - of_all) * of_one + of_two[..., None, None]


@dataclass(frozen=True)
class Model:
    net: nn.Module
    x: Tensor
    reaches: tuple[str, ...]
    script: bool = False
    #: Whether all of it must run in plans.
    whole: bool = True


def function(of: Callable[[Tensor], Any] | None, x: Tensor, *reaches: str) -> Model:
    return Model(Traced(of, x.dim() - 2), x, reaches)


MODELS = {
    "max": function(lambda x: torch.max(x, x.tanh()), IMAGE, "aten::max.other"),
    "min": function(lambda x: torch.min(x, x.tanh()), IMAGE, "aten::min.other"),
    "minimum": function(lambda x: torch.minimum(x, x.tanh()), IMAGE, "aten::minimum"),
    "neg": function(lambda x: -x, IMAGE, "aten::neg"),
    "deviations": function(
        deviations,
        IMAGE,
        *(f"aten::{name}{of}" for name in ("std", "var") for of in ("", ".dim", ".correction")),
    ),
    "prelu": function(None, IMAGE, "aten::prelu"),
    "max_pool3d": function(lambda x: F.max_pool3d(x, 2), VOLUME, "aten::max_pool3d"),
    "avg_pool1d": function(lambda x: F.avg_pool1d(x, 2), LINE, "aten::avg_pool1d"),
    "adaptive_avg_pool1d": function(
        lambda x: F.adaptive_avg_pool1d(x, 3), LINE, "aten::adaptive_avg_pool1d"
    ),
    "adaptive_avg_pool3d": function(
        lambda x: F.adaptive_avg_pool3d(x, (2, 3, 2)), VOLUME, "aten::adaptive_avg_pool3d"
    ),
    "bicubic": function(
        lambda x: torch.ops.aten.upsample_bicubic2d(x, [5, 7], True),
        IMAGE,
        "aten::upsample_bicubic2d",
    ),
    "linear with factors": function(
        lambda x: torch.ops.aten.upsample_linear1d.vec(x, None, True, [1.5]),
        LINE,
        "aten::upsample_linear1d.vec",
    ),
    "linear": function(
        lambda x: torch.ops.aten.upsample_linear1d(x, [7], False),
        LINE,
        "aten::upsample_linear1d",
    ),
    "bilinear": function(
        lambda x: torch.ops.aten.upsample_bilinear2d(x, [5, 7], False),
        IMAGE,
        "aten::upsample_bilinear2d",
    ),
    "self-attention": Model(
        SelfAttention(), values(2, 5, 16), ("aten::_native_multi_head_attention",)
    ),
    "encoder layer": Model(
        nn.TransformerEncoderLayer(16, 2, 32, batch_first=True),
        values(2, 5, 16),
        ("aten::_transformer_encoder_layer_fwd",),
    ),
    "dropouts": function(
        lambda x: F.feature_alpha_dropout(F.alpha_dropout(F.dropout2d(x, 0.5, False))).relu(),
        IMAGE,
        *("aten::feature_dropout", "aten::alpha_dropout", "aten::feature_alpha_dropout"),
    ),
    "masks": function(
        masked,
        IMAGE,
        *(f"aten::{name}.{of}" for name in COMPARISONS for of in ("Scalar", "Tensor")),
        *(f"aten::{name}.{of}" for name in BITS for of in ("Scalar", "Tensor")),
        *(f"aten::logical_{name}" for name in (*LOGIC, "not")),
        *("aten::bitwise_not", "aten::cumsum", "aten::zeros", "aten::ones"),
    ),
    "floor_divide": function(
        lambda x: x.view(x.shape[0], x.shape[1] // 2, -1).softmax(-1), IMAGE, "aten::floor_divide"
    ),
    "swapped": Model(
        nn.Sequential(nn.Linear(8, 8), Swapped()),
        values(4, 8),
        ("aten::swapaxes", "aten::swapdims"),
    ),
    "to.device": function(lambda x: x.to("cpu", torch.bfloat16).float(), IMAGE, "aten::to.device"),
    **{
        f"conv{n}d, scripted": Model(
            Convolutions(n),
            x,
            (f"aten::conv{n}d", f"aten::conv{n}d.padding", f"aten::conv_transpose{n}d{suffix}"),
            script=True,
        )
        for n, x, suffix in ((1, LINE, ""), (2, IMAGE, ".input"), (3, VOLUME, ".input"))
    },
    "arithmetic": Model(
        Arithmetic(),
        values(4, 8),
        (
            *("aten::add.Scalar", "aten::sub.Scalar", "aten::mul.Scalar", "aten::div.Scalar"),
            *("aten::add.int", "aten::sub.int", "aten::mul.int", "aten::floordiv.int"),
            *("aten::neg.int", "aten::size", "aten::__getitem__.t", "prim::TupleConstruct"),
            "aten::remainder.int",
        ),
        script=True,
    ),
    "autocast": Model(
        Autocast(),
        values(4, 8),
        ("aten::_autocast_to_reduced_precision",),
        script=True,
        whole=False,
    ),
    "parts": Model(
        Parts(),
        values(4, 8),
        ("aten::split.sizes", "aten::chunk"),
        script=True,
    ),
    "bags": Model(
        Bags(),
        torch.arange(8).view(4, 2),
        ("aten::embedding_bag", "aten::_convolution.deprecated", "aten::arange"),
        script=True,
        whole=False,
    ),
    "tensors": Model(
        Tensors(),
        values(4, 8),
        (
            *("aten::IntImplicit", "aten::Int.Scalar", "aten::floor_divide.Scalar"),
            *("aten::arange.start", "aten::remainder.Scalar"),
        ),
        script=True,
        whole=False,
    ),
}

#: Operators that this version of torch creates only while it runs a graph, or never.
NOT_MADE = {
    *("aten::_autocast_to_full_precision", "aten::split", "aten::rsub.Tensor"),
}


def names(graph: Any) -> set[str]:
    """The operators in a graph and in its blocks."""
    blocks = torchscript.blocks_below(torchscript.outer_block(graph))
    return {operator_name(node) for block in blocks for node in block.nodes()}


def test_every_row_is_reached() -> None:
    reached = {name for model in MODELS.values() for name in model.reaches} | NOT_MADE | FUNCTIONAL
    for table in (IMPORTED, REFUSED):
        for entry in table.values():
            reached |= names(traced(entry[0], *entry[1]))
    assert sorted(set(OPERATORS) - reached) == []


@pytest.mark.parametrize("name", MODELS)
def test_models_that_reach_a_row_are_right(name: str) -> None:
    model = MODELS[name]
    net, x = model.net.eval(), model.x
    with torch.no_grad():
        result = torch.jit.script(net) if model.script else torch.jit.trace(net, x)
        frozen = torch.jit.freeze(result, optimize_numerics=False)
        # Freezing removes some dropouts.
        assert set(model.reaches) <= names(frozen.graph) | names(result.inlined_graph)
        module = torch.jit.optimize_for_inference(frozen)
        for _ in range(3):
            got = module(x)
            with stock():
                want = net(x)
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    if model.whole:
        assert_plans_ran(module)
        (method,) = torch.backends.zendnn.explain(module).methods
        assert not method.left_out
