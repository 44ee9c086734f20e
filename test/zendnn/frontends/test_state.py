"""Modules that write to their buffers or arguments: in plans, with what torch would leave there."""

from __future__ import annotations

import copy
import io
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.backends.zendnn.frontends import torchscript
from torch.backends.zendnn.frontends.torchscript.aliases import UNDECLARED
from torch.utils._pytree import tree_leaves

from test.drawing import property_test

from ..common import stock, values

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]

LENGTH, HEADS, SIZE = 40, 2, 16
WIDTH = HEADS * SIZE


class Decoder(nn.Module):
    """Attention over a cache of keys and values, into which it writes a token at a position."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("keys", torch.zeros(1, HEADS, LENGTH, SIZE))
        self.register_buffer("entries", torch.zeros(1, HEADS, LENGTH, SIZE))

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.qkv(x).chunk(3, -1)
        shape = [x.size(0), x.size(1), 2, 16]
        return (
            q.view(shape).transpose(1, 2),
            k.view(shape).transpose(1, 2),
            v.view(shape).transpose(1, 2),
        )

    def attend(self, q: Tensor, mask: Tensor) -> Tensor:
        y = F.scaled_dot_product_attention(q, self.keys, self.entries, mask)
        return self.out(y.transpose(1, 2).reshape(1, -1, 32))


class SliceDecoder(Decoder):
    def forward(self, x: Tensor, mask: Tensor, position: int) -> Tensor:
        q, k, v = self.heads(x)
        self.keys[:, :, position : position + 1] = k
        self.entries[:, :, position : position + 1] = v
        return self.attend(q, mask)


class PutDecoder(Decoder):
    def forward(self, x: Tensor, mask: Tensor, position: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        self.keys[:, :, position] = k
        self.entries[:, :, position] = v
        return self.attend(q, mask)


class CopyDecoder(Decoder):
    def forward(self, x: Tensor, mask: Tensor, position: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        self.keys.index_copy_(2, position, k)
        self.entries.index_copy_(2, position, v)
        return self.attend(q, mask)


def optimized(module: nn.Module) -> Any:
    """The module, scripted, frozen and in plans, with buffers of its own."""
    scripted = torch.jit.script(copy.deepcopy(module).eval())
    return torch.jit.optimize_for_inference(torch.jit.freeze(scripted))


def plans(module: Any) -> list[Any]:
    return torchscript.plans(torchscript.module_of(module))


def built(module: Any) -> list[int]:
    """How many executables each plan has."""
    found = [plan.explain()["built"] for plan in plans(module)]
    return [sum(not entry["refused"] for entry in entries) for entries in found]


def near(got: Tensor, want: Tensor) -> None:
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


def mask_up_to(position: int) -> Tensor:
    return torch.where(torch.arange(LENGTH) <= position, 0.0, -1e30).reshape(1, 1, 1, LENGTH)


@pytest.mark.parametrize("kind", [SliceDecoder, PutDecoder, CopyDecoder])
def test_a_decoder_writes_its_cache_in_one_plan_that_is_built_once(kind: type[Decoder]) -> None:
    torch.manual_seed(0)
    module = kind().eval()
    ours = optimized(module)
    for position in range(LENGTH):
        x, mask = torch.randn(1, 1, WIDTH), mask_up_to(position)
        where = position if kind is SliceDecoder else torch.tensor([position])
        with torch.no_grad():
            got = ours(x, mask, where)
            with stock():
                want = module(x, mask, where)
        near(got, want)
    assert built(ours) == [1]


def test_a_prompt_is_written_at_once() -> None:
    module = PutDecoder().eval()
    ours = optimized(module)
    x, rows = torch.randn(1, 7, WIDTH), torch.tensor([3, 0, 39, 5, -2, 8, 21])
    with torch.no_grad():
        got = ours(x, mask_up_to(39), rows)
        with stock():
            want = module(x, mask_up_to(39), rows)
    near(got, want)
    near(ours.keys, module.keys)
    assert built(ours) == [1]


def test_plans_that_write_are_not_compared_with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both would write."""

    class Adding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)
            self.register_buffer("sums", torch.zeros(4, 8))

        def forward(self, x: Tensor) -> Tensor:
            self.sums[:2] += x
            return self.layer(self.sums) + 1

    monkeypatch.setenv("ZENDNN_VERIFY", "1")
    module, x = Adding().eval(), torch.randn(2, 8)
    ours = optimized(module)
    with torch.no_grad():
        for _ in range(3):
            near(ours(x), module(x))
    near(ours.sums, module.sums)
    assert sum(built(ours)) == 1


@pytest.mark.parametrize("row", [LENGTH, -LENGTH - 1])
def test_a_row_that_is_not_there_raises_an_error_and_writes_nothing(row: int) -> None:
    ours = optimized(PutDecoder())
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"), torch.no_grad():
        ours(torch.randn(1, 2, WIDTH), mask_up_to(0), torch.tensor([1, row]))
    assert not ours.keys.any()


def test_a_state_is_saved_and_loaded() -> None:
    ours = optimized(SliceDecoder())
    x = torch.randn(1, 1, WIDTH)
    with torch.no_grad():
        ours(x, mask_up_to(0), 0)
        buffer = io.BytesIO()
        torch.jit.save(ours, buffer)
        buffer.seek(0)
        loaded = torch.jit.load(buffer)
        near(loaded.keys, ours.keys)
        near(loaded(x, mask_up_to(1), 1), ours(x, mask_up_to(1), 1))
    near(loaded.keys, ours.keys)


class Argument(nn.Module):
    """Writes to an argument what it makes of another."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)

    def forward(self, x: Tensor, cache: Tensor) -> Tensor:
        cache[1:3] = self.first(x)
        return self.second(x) + cache[2:4]


def both(module: nn.Module, make: Callable[[], tuple[Tensor, ...]], used: bool) -> None:
    """Check results and arguments; ``used``: whether the plan runs."""
    ours = optimized(module)
    arguments, ours_in = make(), make()
    with torch.no_grad():
        got = ours(*ours_in)
        with stock():
            want = module(*arguments)
    near(got, want)
    for left, right in zip(ours_in, arguments, strict=True):
        near(left, right)
    assert (sum(built(ours)) > 0) == used


def test_an_argument_is_written_in_a_plan() -> None:
    x, cache = torch.randn(2, 8), torch.randn(5, 8)
    both(Argument(), lambda: (x.clone(), cache.clone()), used=True)


def test_arguments_that_share_memory_fall_back_to_torch() -> None:
    whole = torch.randn(5, 8)

    def make() -> tuple[Tensor, ...]:
        cache = whole.clone()
        return cache[1:3], cache

    both(Argument(), make, used=False)


def test_arguments_side_by_side_share_no_memory() -> None:
    whole = torch.randn(7, 8)

    def make() -> tuple[Tensor, ...]:
        memory = whole.clone()
        return memory[:2], memory[2:]

    both(Argument(), make, used=True)


def test_autograd_learns_of_a_write() -> None:
    ours = optimized(Argument())
    weight = torch.randn(5, 8, requires_grad=True)
    cache = torch.randn(5, 8)
    product = weight * cache
    with torch.no_grad():
        ours(torch.randn(2, 8), cache)
    assert sum(built(ours)) == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_inference_tensors_are_written_in_inference_mode_only() -> None:
    ours = optimized(Argument())
    with torch.inference_mode():
        cache = torch.randn(5, 8)
        ours(torch.randn(2, 8), cache)
    assert sum(built(ours)) == 1
    with torch.no_grad(), pytest.raises(RuntimeError, match="inference tensor"):
        ours(torch.randn(2, 8), cache)


class Counter(nn.Module):
    """Running sums, and a result that is a view of them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.register_buffer("total", torch.ones(3, 6))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        before = self.layer(self.total)
        part = self.total[1:]
        self.total.add_(self.layer(x))
        after = self.layer(part)
        self.total.mul_(0.5)
        return before, after, self.total[0]


def test_what_is_read_before_and_after_a_write() -> None:
    module = Counter().eval()
    ours = optimized(module)
    for _ in range(3):
        x = torch.randn(3, 6)
        with torch.no_grad():
            got = ours(x)
            with stock():
                want = module(x)
        for left, right in zip(got, want, strict=True):
            near(left, right)
        near(ours.total, module.total)
    assert built(ours) == [1]
    got[2].zero_()
    assert not ours.total[0].any(), "the result is a view of the state"


class Branch(nn.Module):
    """Writes under a condition, which nobody can follow."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.register_buffer("total", torch.ones(3, 6))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        if x.size(0) > 2:
            self.total.copy_(y)
        return self.layer(self.total)


class Reshaped(nn.Module):
    """Reads late what may be a view or a copy."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.register_buffer("total", torch.ones(3, 6))

    def forward(self, x: Tensor) -> Tensor:
        flat = self.total.reshape(6, 3)
        self.total.copy_(self.layer(x))
        return self.layer(flat.reshape(3, 6))


class Shifted(nn.Module):
    """Moves the rows of a buffer by one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.register_buffer("total", torch.randn(4, 6))

    def forward(self, x: Tensor) -> Tensor:
        self.total.copy_(torch.roll(self.total, -1, 0))
        self.total[-1:] = self.layer(x)
        return self.layer(self.total)


class Replaced(nn.Module):
    """Sets its buffer to another tensor between two reads."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.register_buffer("total", torch.ones(3, 6))

    def replace(self, x: Tensor) -> None:
        self.total = self.layer(x)

    def forward(self, x: Tensor) -> Tensor:
        before = self.layer(self.total)
        if x.size(0) > 2:
            self.replace(x)
        return before + self.layer(self.total)


@pytest.mark.parametrize("kind", [Branch, Replaced, Reshaped, Shifted])
def test_other_writes_are_torchs(kind: type[nn.Module]) -> None:
    module = kind().eval()
    ours = optimized(module)
    for rows in (3, 1, 3) if kind is not Shifted else (1, 1, 1):
        x = torch.randn(rows, 6)
        with torch.no_grad():
            got = ours(x if kind is not Reshaped else x.expand(3, 6))
            with stock():
                want = module(x if kind is not Reshaped else x.expand(3, 6))
        near(got, want)
        near(ours.total, module.total)


CASTS = {
    "Byte": torch.uint8,
    "Char": torch.int8,
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Short": torch.int16,
}


def _cast(name: str, x: Tensor) -> Tensor:
    return getattr(torch.ops.aten, f"_cast_{name}")(x)


#: Operators of ``UNDECLARED`` that return what they are given, or a view of it.
HIDDEN_VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "type_as": lambda x: x.type_as(x),
    "dropout": lambda x: torch.dropout(x, 0.5, False),
    "feature_dropout": lambda x: torch.feature_dropout(x, 0.5, False),
    "alpha_dropout": lambda x: torch.alpha_dropout(x, 0.5, False),
    "feature_alpha_dropout": lambda x: torch.feature_alpha_dropout(x, 0.5, False),
    "atleast_1d": torch.atleast_1d,
    "atleast_2d": torch.atleast_2d,
    "atleast_3d": lambda x: torch.atleast_3d(x)[:, :, 0],
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x)[0],
    "meshgrid": lambda x: torch.meshgrid(x[:, 0], x[0], indexing="ij")[0],
    "cartesian_prod": lambda x: torch.cartesian_prod(x[:, 0]).unsqueeze(1).expand(4, 4),
    "einsum": lambda x: torch.einsum("ij->ji", x),
    "sum_to_size": lambda x: x.sum_to_size(4, 4),
    "unsafe_chunk": lambda x: torch.unsafe_chunk(x, 1)[0],
    "unsafe_split": lambda x: torch.unsafe_split(x, 4)[0],
    "unsafe_split_with_sizes": lambda x: torch.unsafe_split_with_sizes(x, [4])[0],
    "to_dense": lambda x: x.to_dense(),
    "conj_physical": torch.conj_physical,
    "_unsafe_view": lambda x: torch.ops.aten._unsafe_view(x, (4, 4)),
    "lift": torch.ops.aten.lift,
    "dequantize": torch.ops.aten.dequantize.self,
    "flatten_dense_tensors": lambda x: torch.ops.aten.flatten_dense_tensors([x.view(16)]).view(
        4, 4
    ),
    "unflatten_dense_tensors": lambda x: torch.ops.aten.unflatten_dense_tensors(x.view(16), [x])[0],
    **{f"_cast_{name}": partial(_cast, name) for name in CASTS},
}


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float32 else x.float()


class Hidden(nn.Module):
    """Writes to what an operator returned as if it were new, or to what it was given."""

    def __init__(self, view: Callable[[Tensor], Tensor], early: bool, new: bool) -> None:
        super().__init__()
        self.view, self.early, self.new = view, early, new
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x * 2 if self.new else x
        seen = self.view(x)
        before = self.layer(_wide(seen))
        (seen if self.early else x).mul_(3)
        return before + self.layer(before.tanh()), self.layer(_wide(seen)) + self.layer(_wide(x))


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("name", HIDDEN_VIEWS)
def test_what_schemas_take_for_new_tensors_is_seen_as_a_view(
    name: str, early: bool, new: bool
) -> None:
    view = HIDDEN_VIEWS[name]
    x = torch.randn(4, 4)
    if dtype := CASTS.get(name.removeprefix("_cast_")):
        x = x.abs().mul(8).to(dtype)
    assert f"aten::{name}" in UNDECLARED
    assert view(x).untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    if early and name in ("broadcast_tensors", "meshgrid", "cartesian_prod"):
        early = False  # nobody can write to elements that share memory
    module = Hidden(view, early, new).eval()
    arguments, ours_in = x.clone(), x.clone()
    with torch.no_grad():
        with stock():
            # torch.jit.freeze itself may join a layer before a write with one after it.
            frozen = torch.jit.freeze(torch.jit.trace(module, x.clone(), check_trace=False))
            want = frozen(arguments)
        got = torch.jit.optimize_for_inference(frozen)(ours_in)
    for left, right in zip((*got, ours_in), (*want, arguments), strict=True):
        near(left, right)


def assert_as_stock(script: Any, *inputs: Any) -> None:
    """Assert that a script gives the same results on plans as where torch freezes and runs it."""
    with torch.no_grad():
        with stock():
            frozen = torch.jit.freeze(script)
            want = frozen(*inputs)
        got = torch.jit.optimize_for_inference(frozen)(*inputs)
    for left, right in zip(tree_leaves(got), tree_leaves(want), strict=True):
        near(left, right)


class Hundreds(nn.Module):
    """A chain of hidden views, some of them written."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        for i in range(300):
            y = y.type_as(x)
            if i % 10 == 0:
                y = y.add_(0.001)
        return self.layer(y).relu()


def test_a_chain_of_hundreds_of_hidden_views() -> None:
    x = torch.randn(4, 8)
    assert_as_stock(torch.jit.trace(Hundreds().eval(), x, check_trace=False), x)


#: Lists of views that schemas take for new tensors.
HIDDEN_LISTS: dict[str, Callable[[Tensor], Any]] = {
    "unsafe_chunk": lambda x: torch.unsafe_chunk(x, 2),
    "unsafe_split": lambda x: torch.unsafe_split(x, 2),
    "unsafe_split_with_sizes": lambda x: torch.unsafe_split_with_sizes(x, [2, 2]),
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x, x),
    "meshgrid": lambda x: torch.meshgrid(x[:, 0], x[:, 0], indexing="ij"),
    "atleast_1d": lambda x: torch.atleast_1d([x, x]),
}
#: What is written to the first element of a list.
LIST_WRITES: dict[str, Callable[[Tensor], Any]] = {
    "itself": lambda part: part.mul_(2),
    "a function": lambda part: part.relu_(),
    "a view": lambda part: part.select(0, 0).fill_(7),
    "in a loop": lambda part: [part[i].add_(1) for i in range(2)],
}


class Parts(nn.Module):
    """Reads a tensor before and after a write to one of its parts."""

    def __init__(self, split: Callable[[Tensor], Any], write: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.split, self.write = split, write
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        whole = self.one(x)
        whole.mul_(2)
        parts = self.split(whole)
        before = self.two(whole)
        self.write(parts[0])
        return self.two(before).relu() + self.two(whole), self.two(whole) + 1


@pytest.mark.parametrize(
    ("split", "write"),
    [
        (split, write)
        for split, write in itertools.product(HIDDEN_LISTS, LIST_WRITES)
        if split != "meshgrid" or write == "a view"  # its elements share memory
    ],
)
def test_what_is_written_to_an_element_of_a_list_of_views_is_seen(split: str, write: str) -> None:
    module, x = Parts(HIDDEN_LISTS[split], LIST_WRITES[write]).eval(), torch.randn(4, 4)
    assert_as_stock(torch.jit.trace(module, x, check_trace=False), x)


class CountedConstant(nn.Module):
    """Counts its calls in what torch.jit.freeze takes for a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.count.type_as(x).add_(1) * x


def test_a_write_to_a_hidden_view_of_a_constant_stays() -> None:
    x = torch.ones(2)
    with torch.no_grad(), stock():
        script = torch.jit.script(CountedConstant().eval())
        ours = torch.jit.freeze(script)
    ours = torch.jit.optimize_for_inference(ours)
    assert [ours(x)[0].item() for _ in range(3)] == [1, 2, 3]


class Again(nn.Module):
    """Writes in each turn of a loop to a hidden view of one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor, count: int) -> Tensor:
        total = torch.zeros(4, 4)
        new = self.layer(x)
        for _ in range(count):
            seen = new.type_as(x).sum_to_size(4, 4)
            seen.add_(1)
            total = total + self.layer(seen)
        return total


def test_a_hidden_view_in_a_loop_is_of_the_same_tensor_in_each_turn() -> None:
    assert_as_stock(torch.jit.script(Again().eval()), torch.randn(4, 4), 3)


def test_every_operator_that_hides_a_view_is_tried() -> None:
    assert {f"aten::{name}" for name in HIDDEN_VIEWS} == UNDECLARED


# Random programs.

VIEWS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "slice": lambda v, n: v[n % v.size(0) :],
    "columns": lambda v, n: v[:, : 1 + n % v.size(1)],
    "steps": lambda v, n: v[:: 1 + n % 2],
    "transpose": lambda v, n: v.transpose(0, 1),
    "select": lambda v, n: v[n % v.size(0)].unsqueeze(0),
    "reshape": lambda v, n: v.reshape(-1, 1),
    "contiguous": lambda v, n: v.contiguous(),
    "type_as": lambda v, n: v.type_as(torch.zeros(1)),
    "sum_to_size": lambda v, n: v.sum_to_size(v.size(0), v.size(1)),
    "atleast_2d": lambda v, n: torch.atleast_2d(v),
}
#: What a program does with a view of the buffer or of what it was given: its number, and another.
Step = tuple[str, int, int]


class Program(nn.Module):
    """Takes views, writes to them and reads them, as the steps say."""

    def __init__(self, steps: list[Step]) -> None:
        super().__init__()
        self.steps = steps
        self.layer = nn.Linear(1, 3)
        self.register_buffer("state", torch.zeros(4, 6))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        views, results = [self.state, x], []
        scale = self.layer(y[:1, :1])
        for kind, which, n in self.steps:
            view = views[which % len(views)]
            if kind in VIEWS:
                views.append(VIEWS[kind](view, n))
            elif kind == "write":
                view.copy_(scale[0, n % 3])
            elif kind == "add":
                view.add_(scale[0, n % 3])
            elif kind == "put":
                view[torch.tensor([n % view.size(0)])] = scale[:, :1]
            elif kind == "opaque":
                results.append(torch.cumsum(view, 0))
            else:
                results.append(self.layer(view.sum().reshape(1, 1)))
        return (*results, self.layer(views[-1].mean().reshape(1, 1)))


STEPS = st.lists(
    st.tuples(
        st.sampled_from([*VIEWS, "write", "write", "add", "put", "opaque", "read", "read"]),
        st.integers(0, 7),
        st.integers(0, 7),
    ),
    min_size=1,
    max_size=10,
)


@property_test
@given(steps=STEPS, shared=st.booleans())
def test_random_programs(steps: list[Step], shared: bool) -> None:
    torch.manual_seed(0)
    module = Program(steps).eval()
    start, given_x, y = torch.randn(4, 6), torch.randn(4, 6), torch.randn(4, 6)
    module.state.copy_(start)
    with stock(), torch.no_grad():
        traced = torch.jit.trace(
            copy.deepcopy(module), (given_x.clone(), y.clone()), check_trace=False
        )
    ours = torch.jit.optimize_for_inference(torch.jit.freeze(traced.eval()))
    if hasattr(ours, "state"):  # else it is a constant
        ours.state.copy_(start)
    x, ours_x = given_x.clone(), given_x.clone()
    with torch.no_grad():
        got = ours(ours_x, ours_x if shared else y)
        with stock():
            want = module(x, x if shared else y)
    for left, right in zip(got, want, strict=True):
        near(left, right)
    near(ours_x, x)
    if hasattr(ours, "state"):
        near(ours.state, module.state)


def test_one_element_of_a_new_tensor_is_written() -> None:
    """Later calls begin with the number that all elements have."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            result = torch.zeros(4, dtype=torch.float32)
            result[1] = x.sum()
            other = torch.full((4,), 2.0, dtype=torch.float32)
            other[3] = x.mean()
            return self.layer(result) + self.layer(other)

    module = Net().eval()
    frozen = torch.jit.freeze(torch.jit.trace(module, values(3, 4)))
    ours = torch.jit.optimize_for_inference(frozen)
    for seed in range(4):
        x = values(3, 4, seed=seed)
        with torch.no_grad(), stock():
            expected = module(x)
        torch.testing.assert_close(ours(x), expected)
