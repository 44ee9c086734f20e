"""``torch.backends.zendnn.functional``: as spelled out, eagerly and compiled, with gradients."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.backends.zendnn import functional as Z

from .common import DTYPES, gradients, stock, values
from .support import interpreter

pytestmark = pytest.mark.usefixtures("fresh_dynamo")

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2.0**-6}


def assert_near(got: Tensor, want: Tensor) -> None:
    limit = TOLERANCE[got.dtype] * max(1.0, want.abs().max().item())
    assert got.dtype == want.dtype
    torch.testing.assert_close(got, want, rtol=0, atol=limit)


def tables(*sizes: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    angles = values(*sizes)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def repeated(x: Tensor, q: Tensor) -> Tensor:
    return x.repeat_interleave(q.shape[1] // x.shape[1], 1)


#: Each function with inputs of a dtype, and the same spelled out.
CASES: dict[str, tuple[Callable[..., Any], Callable[[torch.dtype], list[Any]], Any]] = {
    "rope": (
        Z.rope,
        lambda t: [values(2, 3, 5, 16, dtype=t).mT.contiguous().mT, *tables(5, 16, dtype=t)],
        lambda *inputs: interpreter.rope({"interleaved": False}, *inputs),
    ),
    "rope of the first elements": (
        Z.rope,
        lambda t: [values(2, 5, 3, 21, dtype=t).transpose(1, 2), *tables(2, 1, 5, 6, dtype=t)],
        lambda *inputs: interpreter.rope({"interleaved": False}, *inputs),
    ),
    "rope of neighbours": (
        lambda x, cos, sin: Z.rope(x, cos, sin, interleaved=True),
        lambda t: [values(5, 3, 22, dtype=t), *tables(3, 22, dtype=t)],
        lambda *inputs: interpreter.rope({"interleaved": True}, *inputs),
    ),
    "rms_norm": (
        Z.rms_norm,
        lambda t: [values(2, 5, 24, dtype=t), values(24, dtype=t, seed=1)],
        lambda x, w: (x.float() * (x.float().square().mean(-1, True) + 1e-6).rsqrt() * w).to(
            x.dtype
        ),
    ),
    "rms_norm of a sum": (
        lambda x, w, y: Z.rms_norm(x, w, 1e-5, residual=y),
        lambda t: [
            values(*sizes, dtype=t, seed=i) for i, sizes in enumerate([(2, 24), (24,), (2, 24)])
        ],
        lambda x, w, y: (F.rms_norm(x + y, (24,), w, 1e-5), x + y),
    ),
    "silu_and_mul": (
        Z.silu_and_mul,
        lambda t: [values(3, 34, dtype=t)],
        lambda x: F.silu(x[:, :17]) * x[:, 17:],
    ),
    "sdpa of groups": (
        lambda q, k, v: Z.sdpa(q, k, v, causal=True),
        lambda t: [values(2, heads, 5, 16, dtype=t, seed=heads) for heads in (6, 2, 2)],
        lambda q, k, v: F.scaled_dot_product_attention(
            q, repeated(k, q), repeated(v, q), is_causal=True
        ),
    ),
    "sdpa with a mask": (
        lambda q, k, v, mask: Z.sdpa(q, k, v, mask=mask, scale=0.5),
        lambda t: [
            *(values(2, heads, 5, 16, dtype=t, seed=heads) for heads in (4, 4, 4)),
            torch.ones(5, 5, dtype=torch.bool).tril(1),
        ],
        lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask, scale=0.5),
    ),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Any:
    return CASES[request.param]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("backend", ["", "zendnn", "aot_eager"])
def test_it_is_what_models_spell_out(case: Any, backend: str, dtype: torch.dtype) -> None:
    function, make, spelled_out = case
    inputs = make(dtype)
    run = torch.compile(function, backend=backend, fullgraph=True) if backend else function
    with torch.no_grad():
        got = run(*inputs)
        with stock():
            want = spelled_out(*inputs)
    both = ([x] if isinstance(x, Tensor) else x for x in (got, want))
    for ours, theirs in zip(*both, strict=True):
        assert_near(ours, theirs)


def test_gradients(case: Any) -> None:
    function, make, spelled_out = case
    inputs = make(torch.float32)
    leaves = [x for x in inputs if x.dtype == torch.float32]
    others = inputs[len(leaves) :]

    def first(f: Callable[..., Any]) -> Callable[..., Tensor]:
        return lambda *xs: (
            f(*xs, *others) if isinstance(f(*xs, *others), Tensor) else sum(f(*xs, *others))
        )

    got, want = (gradients(first(f), *leaves) for f in (function, spelled_out))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_fake_tensors(case: Any) -> None:
    function, make, _ = case
    inputs = make(torch.bfloat16)
    want = function(*inputs)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        got = function(*map(mode.from_tensor, inputs))
    first = [x if isinstance(x, Tensor) else x[0] for x in (got, want)]
    assert first[0].shape == first[1].shape
    assert first[0].dtype == first[1].dtype


def cache_of(*sizes: int) -> tuple[Tensor, Tensor]:
    """A cache whose rows were never written."""
    return torch.full(sizes, 1e3), torch.full(sizes, -1e3)


@pytest.mark.parametrize("backend", ["", "zendnn"])
def test_a_cache_gives_what_all_at_once_gives(backend: str) -> None:
    q, k, v = (values(2, heads, 7, 16, seed=heads) for heads in (4, 2, 2))
    want = Z.sdpa(q, k, v, causal=True)
    cache = cache_of(2, 2, 12, 16)

    def step(q: Tensor, k: Tensor, v: Tensor, position: Tensor) -> Tensor:
        return Z.sdpa(q, k, v, causal=True, cache=cache, position=position)

    run: Any = torch.compile(step, backend=backend, fullgraph=True) if backend else step
    with torch.no_grad():
        for rows in (torch.arange(4), torch.tensor([4]), torch.tensor([5]), torch.tensor([6])):
            part = [x[:, :, rows] for x in (q, k, v)]
            torch.testing.assert_close(run(*part, rows), want[:, :, rows], rtol=1e-4, atol=1e-5)
    assert torch.equal(cache[0][:, :, :7], k)
    assert torch.equal(cache[1][:, :, 7:], cache_of(2, 2, 5, 16)[1])


@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_a_mask_hides_rows_of_a_cache(kind: torch.dtype) -> None:
    q, k, v = (values(1, 2, 3, 8, seed=seed) for seed in range(3))
    shown = torch.tensor([[True, False, True, True, True]])
    mask = shown if kind == torch.bool else torch.where(shown, 0.0, -torch.inf)
    cache = cache_of(1, 2, 5, 8)
    got = Z.sdpa(q, k, v, mask=mask, causal=True, cache=cache, position=torch.arange(3))
    seen = torch.ones(3, 3, dtype=torch.bool).tril() & shown[:, :3]
    torch.testing.assert_close(got, F.scaled_dot_product_attention(q, k, v, seen))


X = values(1, 3, 4, 6)

ERRORS: dict[str, tuple[type[Exception], Callable[[], Any]]] = {
    "even number": (ValueError, lambda: Z.rope(X, X[..., :3], X[..., :3])),
    "at most 6": (ValueError, lambda: Z.rope(X, values(4, 8), values(4, 8))),
    "not 6 and 4": (ValueError, lambda: Z.rope(X, X, X[..., :4])),
    "must match the size": (RuntimeError, lambda: Z.rope(X, values(5, 6), values(5, 6))),
    "even number of columns": (ValueError, lambda: Z.silu_and_mul(X[..., :5])),
    "multiple of 2 heads": (ValueError, lambda: Z.sdpa(X, X[:, :2], X[:, :2])),
    "or neither": (ValueError, lambda: Z.sdpa(X, X, X, cache=(X, X))),
    "no gradient": (
        ValueError,
        lambda: Z.sdpa(
            X, X.clone().requires_grad_(), X, cache=cache_of(1, 3, 9, 6), position=torch.arange(4)
        ),
    ),
    "index out of range|out of bounds": (
        IndexError,
        lambda: Z.sdpa(X, X, X, cache=cache_of(1, 3, 9, 6), position=torch.arange(6, 10)),
    ),
}


@pytest.mark.parametrize("message", ERRORS)
def test_errors(message: str) -> None:
    kind, call = ERRORS[message]
    with pytest.raises(kind, match=message):
        call()


class Block(torch.nn.Module):
    """A layer of a language model, of our functions."""

    keys: Tensor
    values: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.Parameter(torch.rand(64))
        self.qkv, self.out = torch.nn.Linear(64, 128, bias=False), torch.nn.Linear(64, 64)
        self.up, self.down = torch.nn.Linear(64, 192), torch.nn.Linear(96, 64)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, 2, 32, 16))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, position: Tensor) -> Tensor:
        y = self.qkv(Z.rms_norm(x, self.norm)).unflatten(-1, (8, 16)).transpose(1, 2)
        q, k, v = y.split((4, 2, 2), 1)
        cache = self.keys, self.values
        q, k = (Z.rope(part, cos, sin) for part in (q, k))
        y = Z.sdpa(q, k, v, causal=True, cache=cache, position=position)
        y, x = Z.rms_norm(self.out(y.transpose(1, 2).flatten(2)), self.norm, residual=x)
        result: Tensor = x + self.down(Z.silu_and_mul(self.up(y)))
        return result


def in_steps(run: Callable[..., Tensor], model: Block) -> list[tuple[Tensor, list[Any]]]:
    """What a model returns for three positions in a row, and the events of each."""
    result = []
    model.keys.zero_()
    model.values.zero_()
    for place in range(3):
        inputs = values(1, 1, 64, seed=place), *tables(1, 16), torch.tensor([place])
        with torch.no_grad(), torch.backends.zendnn.record() as events:
            result.append((run(*inputs), list(events)))
    return result


@pytest.mark.parametrize("backend", ["zendnn", "inductor"])
def test_a_model_of_them_decodes_in_one_graph(backend: str) -> None:
    model = Block().eval()
    fast = torch.compile(model, backend=backend, fullgraph=True)
    with stock():
        wanted = in_steps(model, model)
    result = in_steps(fast, model)
    for (got, _), (want, _) in zip(result, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    if backend == "zendnn":
        events = result[-1][1]
        assert {event.route for event in events} == {"plan"}
        steps = [event.implementation for event in events]
        assert steps.count("rope") == 2
        assert sum("attention" in step for step in steps) == 1
        assert len([step for step in steps if not step.startswith("compare")]) <= 13  # the mask


def test_gradients_are_recorded_in_compiled_functions() -> None:
    x, *rest = values(2, 3, 5, 16), *tables(5, 16)
    fast = torch.compile(lambda *xs: Z.rope(*xs), backend="zendnn", fullgraph=True)
    got, want = (gradients(f, x, *rest) for f in (fast, Z.rope))
    torch.testing.assert_close(got, want)


# Traces, scripts, exported programs and vmap. Their inputs are those of CASES, and a cache.


def attend(
    q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, position: Tensor
) -> Tensor:
    return Z.sdpa(q, k, v, causal=True, cache=(keys, values), position=position)


def cached(dtype: torch.dtype) -> list[Tensor]:
    q, k, v = (values(2, heads, 5, 16, dtype=dtype, seed=heads) for heads in (6, 2, 2))
    return [q, k, v, *(x.to(dtype) for x in cache_of(2, 2, 9, 16)), torch.arange(5)]


RECORDED: dict[str, tuple[Callable[..., Any], Callable[[torch.dtype], list[Any]]]] = {
    **{name: case[:2] for name, case in CASES.items()},
    "sdpa with a cache": (attend, cached),
}
#: The operators that are recorded of each function, views and constants apart.
OPERATORS = {
    "rope": ["neg", "cat", "mul", "mul", "add"],
    "rope of the first elements": ["neg", "cat", "mul", "mul", "add", "cat"],
    "rope of neighbours": ["neg", "stack", "mul", "mul", "add"],
    "rms_norm": ["rms_norm"],
    "rms_norm of a sum": ["add", "rms_norm"],
    "silu_and_mul": ["silu", "mul"],
    "sdpa of groups": ["scaled_dot_product_attention"],
    "sdpa with a mask": ["scaled_dot_product_attention"],
    "sdpa with a cache": [
        "index_copy_", "index_copy_", "arange", "le", "scaled_dot_product_attention",
    ],
}  # fmt: skip
VIEWS = {"slice", "unsqueeze", "flatten", "chunk", "size", "Int", "ScalarImplicit"}


class Calling(torch.nn.Module):
    """A module that calls a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any) -> Any:
        return self.function(*arguments)


def computing(names: list[str]) -> list[str]:
    plain = [name.removeprefix("aten::").removeprefix("aten.").partition(".")[0] for name in names]
    return [name for name in plain if name not in VIEWS]


def assert_same(run: Callable[..., Any], function: Callable[..., Any], inputs: list[Any]) -> None:
    """Results and writes to a cache."""
    ours, theirs = ([x.clone() for x in inputs] for _ in range(2))
    with torch.no_grad():
        got, want = run(*ours), function(*theirs)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", RECORDED)
def test_traces(name: str) -> None:
    function, make = RECORDED[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error", torch.jit.TracerWarning)
        traced = torch.jit.trace(
            Calling(function).eval(), tuple(make(torch.float32)), check_trace=False
        )
    kinds = [node.kind() for node in traced.inlined_graph.nodes()]
    recorded = computing([kind for kind in kinds if kind.startswith("aten::")])
    assert recorded == OPERATORS[name]
    assert_same(traced, function, make(torch.float32))
    fast = torch.jit.optimize_for_inference(torch.jit.freeze(traced))
    assert_same(fast, function, make(torch.float32))


def test_a_trace_serves_other_sizes() -> None:
    inputs = [values(2, heads, 5, 16, seed=heads) for heads in (6, 2, 2)]
    traced = torch.jit.trace(lambda q, k, v: Z.sdpa(q, k, v, causal=True), tuple(inputs))
    others = [values(3, heads, 7, 16, seed=heads) for heads in (6, 2, 2)]
    assert_same(traced, lambda q, k, v: Z.sdpa(q, k, v, causal=True), others)


def test_scripts() -> None:
    x, (cos, sin), weight = values(2, 6, 5, 16), tables(5, 16), values(16)
    rope, norm = torch.jit.script(Z.rope), torch.jit.script(Z.rms_norm)
    for interleaved in (False, True):
        assert torch.equal(
            rope(x, cos, sin, interleaved=interleaved), Z.rope(x, cos, sin, interleaved=interleaved)
        )
    assert torch.equal(rope(x, cos[:, :6], sin[:, :6]), Z.rope(x, cos[:, :6], sin[:, :6]))
    assert torch.equal(norm(x, weight), Z.rms_norm(x, weight))
    torch.testing.assert_close(norm(x, weight, residual=x), Z.rms_norm(x, weight, residual=x))
    assert torch.equal(torch.jit.script(Z.silu_and_mul)(x), Z.silu_and_mul(x))


@pytest.mark.parametrize(
    "mask", [None, torch.ones(5, 9, dtype=torch.bool).tril(3), values(5, 9)], ids=str
)
def test_scripted_attention(mask: Tensor | None) -> None:
    scripted = torch.jit.script(Z.sdpa)
    q, k, v, *_ = cached(torch.float32)
    caches = [cache_of(2, 2, 9, 16) for _ in range(2)]
    got, want = (
        run(q, k, v, mask=mask, causal=True, cache=cache, position=torch.arange(5))
        for run, cache in zip((scripted, Z.sdpa), caches, strict=True)
    )
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(*caches)
    assert torch.equal(scripted(q, k, v, causal=True), Z.sdpa(q, k, v, causal=True))
    with pytest.raises(torch.jit.Error, match="a multiple of 4 heads, not 6"):
        scripted(q, values(2, 4, 5, 16), v)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", RECORDED)
def test_exported_programs(name: str, strict: bool) -> None:
    function, make = RECORDED[name]
    model = Calling(function).eval()
    program = torch.export.export(model, tuple(make(torch.float32)), strict=strict)
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    recorded = computing([str(x.target) for x in nodes if str(x.target).startswith("aten.")])
    assert recorded == OPERATORS[name]
    assert_same(program.module(), function, make(torch.float32))
    fast = torch.backends.zendnn.optimize(program)
    assert_same(fast, function, make(torch.float32))


def test_programs_of_any_time() -> None:
    time = torch.export.Dim("time")
    model = Calling(lambda q, k, v: Z.sdpa(q, k, v, causal=True)).eval()
    inputs = [values(2, heads, 5, 16, seed=heads) for heads in (6, 2, 2)]
    program = torch.export.export(model, tuple(inputs), dynamic_shapes=(({2: time},) * 3,))
    others = [values(2, heads, 9, 16, seed=heads) for heads in (6, 2, 2)]
    assert_same(program.module(), model, others)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", RECORDED)
def test_vmap_is_a_loop(name: str) -> None:
    function, make = RECORDED[name]
    batch = [[x.clone() for x in make(torch.float32)] for _ in range(3)]
    for seed, inputs in enumerate(batch):
        inputs[0].copy_(values(*inputs[0].shape, seed=seed))
    stacked = [torch.stack(parts) for parts in zip(*batch, strict=True)]
    got = torch.vmap(function)(*stacked)
    result = [function(*inputs) for inputs in batch]
    pairs = zip(*result, strict=True) if isinstance(result[0], tuple) else [result]
    both = zip(got if isinstance(got, tuple) else [got], pairs, strict=True)
    for ours, theirs in both:
        torch.testing.assert_close(ours, torch.stack(list(theirs)), rtol=1e-4, atol=1e-5)
    for ours, one in zip(stacked, zip(*batch, strict=True), strict=True):
        assert torch.equal(ours, torch.stack(one))  # the caches, too
