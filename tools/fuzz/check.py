"""Check a model on each front end against stock torch; float64 decides where the two differ.

This file imports only torch, since each find's folder has a copy of it.
"""

from __future__ import annotations

import linecache
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Dict, Tuple  # noqa: UP035 - what TorchScript reads

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

Results = tuple[torch.Tensor, ...]
Inputs = Sequence[torch.Tensor]
Weights = Mapping[str, torch.Tensor]
#: For each result: which of the inputs and results has the same memory, and the strides.
Memory = list[tuple[int, tuple[int, ...]]]

#: Largest error, relative to a result's largest number, that counts as rounding.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2}
#: Relative perturbation of each result that tests a model's numerical stability.
NUDGE = {torch.float32: 4e-7, torch.bfloat16: 4e-3}
TRIALS = 6


@dataclass(frozen=True)
class Verdict:
    """The outcome of one model on one front end.

    ``outcome``: same, differs (wrong numbers), nonfinite (NaN or infinities in other places), shape
    (wrong shape or dtype), memory (results share memory or have strides unlike in eager mode),
    raises, struck (right, but a plan tried a wrong implementation), unstable (stock itself is
    unreliable), refused (torch.jit or torch.compile refuses the model), upstream (one of them
    changes its results), invalid (stock cannot run it), crash, timeout.
    """

    outcome: str
    front_end: str = ""
    detail: str = ""
    refusals: tuple[str, ...] = ()
    #: Steps of plans that ran in the last call.
    steps: int = 0

    @property
    def is_find(self) -> bool:
        return self.outcome in FINDS


#: Outcomes that are our faults.
FINDS = ("differs", "nonfinite", "shape", "memory", "raises", "struck", "crash", "timeout")


def part_written(x: torch.Tensor, dim: int, size: int) -> torch.Tensor:
    """Read a tensor, write a part of it, and read it again."""
    y = x.clone()
    before = torch.tanh(y)
    part = y.narrow(dim, 0, size)
    part.mul_(0.5)
    part.add_(before.narrow(dim, 0, size))
    return before * torch.sigmoid(y)


def turned_written(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Write a tensor through views of views."""
    y = x.clone()
    turned = y.transpose(dim, 0)
    turned.relu_()
    turned.select(0, 0).add_(1.0)
    return y.unsqueeze(0).sub_(x).squeeze(0) + y


class Code:
    """A model's source: the classes Model and Nudged, with the dtype left open as FLOAT."""

    def __init__(self, text: str) -> None:
        self._text = text

    @property
    def has_causal_attention(self) -> bool:
        """Whether NaN in masked keys may reach a query.

        A kernel that works in blocks multiplies masked keys by a weight of 0, which keeps NaN.
        torch's blocks differ from ours, and its other kernels have none. Later operators may turn
        that NaN into numbers.
        """
        return ", None, 0.0, True)" in self._text

    def classes(
        self, dtype: torch.dtype, nudge: Callable[[torch.Tensor], torch.Tensor] | None = None
    ) -> dict[str, Any]:
        """Execute the source with ``nudge``; return its namespace."""
        text = self._text.replace("FLOAT", str(dtype))
        name = f"<model {hash(text)}>"
        # torch.jit.script reads the source again, by file and line.
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        names = {"torch": torch, "F": F, "Dict": Dict, "Tuple": Tuple, "nudge": nudge}  # noqa: UP006
        names |= {"part_written": part_written, "turned_written": turned_written}
        names["__name__"] = "fuzzed"
        exec(compile(text, name, "exec"), names)
        return names


def _stock() -> Any:
    return torch.backends.zendnn.flags(enabled=False)


def _as_it_is(module: torch.nn.Module, inputs: Inputs) -> Any:
    return module


def _traced(module: torch.nn.Module, inputs: Inputs) -> Any:
    return torch.jit.freeze(torch.jit.trace(module, tuple(_copies(inputs)), check_trace=False))


def _scripted(module: torch.nn.Module, inputs: Inputs) -> Any:
    return torch.jit.freeze(torch.jit.script(module))


@dataclass(frozen=True)
class FrontEnd:
    """A way to run a module: stock torch's preparation, and ours on top of it."""

    stock: Callable[[torch.nn.Module, Inputs], Any]
    ours: Callable[[Any], Any]
    #: Whether it makes plans, which ``explain`` knows.
    plans: bool = False
    #: Whether weights may change, and results have strides and share memory as in eager mode.
    as_eager: bool = False
    #: Stock's graph of a module, whose results may differ from eager mode; ``stock`` by default.
    graph: Callable[[torch.nn.Module, Inputs], Any] | None = None
    #: What surrounds all calls; it tells what was refused.
    around: Callable[[], AbstractContextManager[list[str]]] = lambda: nullcontext([])
    #: Beside other front ends it gets one model in so many, since it is slow.
    one_in: int = 1


class _Messages(logging.Handler):
    """Keeps the first lines of messages."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage().partition("\n")[0][:100])


@contextmanager
def _dynamo() -> Iterator[list[str]]:
    """Dynamo without what it keeps of other models; too many compilations are an error.

    What is yielded says why graphs stay as they are.
    """
    import torch._dynamo  # slow

    log, messages = logging.getLogger("torch.backends.zendnn._compile"), _Messages()
    log.addHandler(messages)
    level = log.level
    log.setLevel(logging.INFO)
    torch._dynamo.reset()
    try:
        with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
            yield messages.lines
    finally:
        torch._dynamo.reset()
        log.removeHandler(messages)
        log.setLevel(level)


def _compiler(dynamic: bool) -> FrontEnd:
    """Return torch.compile; with ``dynamic``, one compilation serves several sizes."""

    def compiled(module: torch.nn.Module, backend: str, **options: Any) -> Any:
        return torch.compile(module, backend=backend, dynamic=dynamic, options=options or None)

    return FrontEnd(
        _as_it_is,
        lambda module: compiled(module, "zendnn", rest="eager"),  # Inductor's part is not ours
        plans=True,
        as_eager=True,
        graph=lambda module, inputs: compiled(module, "aot_eager"),
        around=_dynamo,
        one_in=10,
    )


FRONT_ENDS: Mapping[str, FrontEnd] = {
    "trace": FrontEnd(_traced, torch.jit.optimize_for_inference, plans=True),
    "script": FrontEnd(_scripted, torch.jit.optimize_for_inference, plans=True),
    "eager": FrontEnd(_as_it_is, lambda module: module),
    "prepack": FrontEnd(_as_it_is, torch.backends.zendnn.prepack),
    "compile": _compiler(dynamic=False),
    "compile-dynamic": _compiler(dynamic=True),
}


@dataclass(frozen=True)
class Call:
    """A model's weights and inputs, and what stock's eager mode makes of them."""

    name: str
    weights: Weights
    inputs: Inputs
    expected: Results
    memory: Memory

    @staticmethod
    def of(name: str, code: Code, weights: Weights, inputs: Inputs, lower: torch.dtype) -> Call:
        """Run a model; raise what it raises."""
        with _stock(), torch.no_grad():
            given = _copies(inputs)
            results = _module(code, weights, lower)(*given)
            return Call(name, weights, inputs, results, _memory(results, given))


def check(code: Code, weights: Weights, runs: Sequence[Inputs], front_end: str) -> Verdict:
    """Run a model on a front end with each set of inputs, and with the first one again.

    The model computes in the dtype of its weights or inputs: float32 or bfloat16. At the end, some
    front ends get other weights.
    """
    lower, way = _floating(weights.values(), runs), FRONT_ENDS[front_end]
    calls: list[Call] = []
    for number, inputs in enumerate(runs):
        try:
            calls.append(Call.of(f"inputs {number}", code, weights, inputs, lower))
        except Exception as error:
            if not number:
                return Verdict("invalid", front_end, _line(error))
            # Many models only take the first run's sizes.
    calls.append(calls[0])
    if way.as_eager and weights:
        calls.append(Call.of("other weights", code, _turned(weights), runs[0], lower))
    with torch.no_grad(), warnings.catch_warnings(), way.around() as refusals:
        warnings.simplefilter("ignore")
        return _checked(code, calls, lower, front_end, refusals)


def _checked(
    code: Code,
    calls: Sequence[Call],
    lower: torch.dtype,
    front_end: str,
    refusals: list[str],
) -> Verdict:
    way, first = FRONT_ENDS[front_end], calls[0]
    module = _module(code, first.weights, lower)
    try:
        with _stock():
            stock = way.stock(module, first.inputs)
            stock(*_copies(first.inputs))
    except Exception as error:
        return Verdict("refused", front_end, _line(error))
    try:
        made = way.ours(stock)
    except Exception as error:
        return Verdict("raises", front_end, _line(error))
    for call in calls:
        if call.weights is not first.weights:
            for name, buffer in module.named_buffers():
                buffer.copy_(call.weights[name])
        verdict = _verdict(code, made, call, lower, way)
        if verdict is None:
            continue
        with _stock():
            again = (way.graph or way.stock)(_module(code, call.weights, lower), first.inputs)
            given = _copies(call.inputs)
            try:
                theirs = again(*given)
            except Exception as error:
                if call.inputs is first.inputs:
                    return Verdict("refused", front_end, _line(error))
                continue  # the trace only takes the first run's sizes
        if verdict[0] == "memory":
            if _memory(theirs, given) != call.memory:
                continue  # as torch does it, a dropout may copy
            if _foretold(module, call.inputs) != [strides for _, strides in call.memory]:
                continue  # compilers go by fake tensors, and log_sigmoid's have other strides
        if not all(map(_close, theirs, call.expected, [lower] * len(theirs))):
            if call.inputs is first.inputs:
                return Verdict("upstream", front_end, "stock's graph differs from its eager mode")
            continue
        return Verdict(verdict[0], front_end, f"{call.name}: {verdict[1]}")
    if not way.plans:
        return Verdict("same", front_end)
    with torch.backends.zendnn.record() as events:
        made(*_copies(first.inputs))
    steps = sum(event.route == "plan" for event in events)
    methods = torch.backends.zendnn.explain(made).as_dict()["methods"]
    regions = [region for method in methods for region in method["regions"]]
    builds = [built for region in regions for built in region["built"]]
    wrong = [name for built in builds for name in built["wrong"]]
    if wrong:
        return Verdict("struck", front_end, "; ".join(wrong))
    refused = [*refusals, *(built["refused"] for built in builds if built["refused"])]
    refused += [f"{x['op']}: {x['reason']}" for method in methods for x in method["left_out"] or ()]
    return Verdict("same", front_end, "", tuple(refused), steps)


def _verdict(
    code: Code, made: Any, call: Call, lower: torch.dtype, way: FrontEnd
) -> tuple[str, str] | None:
    """Return the outcome of a call that is not the expected one, and the details."""
    given = _copies(call.inputs)
    try:
        got = made(*given)
    except Exception as error:
        return "raises", _line(error)
    if different := _compare(code, call.weights, call.inputs, got, call.expected, lower):
        return different
    memory = _memory(got, given)
    if way.as_eager and memory != call.memory:
        return "memory", f"results have {memory}, of stock {call.memory}"
    return None


def _module(code: Code, weights: Weights, lower: torch.dtype) -> torch.nn.Module:
    """Return a model whose weights may be written."""
    copied = {name: x.clone() for name, x in weights.items()}
    made: torch.nn.Module = code.classes(lower)["Model"](copied)
    return made.eval()


def _turned(weights: Weights) -> dict[str, torch.Tensor]:
    """Return other weights of the same distributions; integers stay valid indices."""
    return {
        name: x.flip(tuple(range(x.dim()))) if x.is_floating_point() else x
        for name, x in weights.items()
    }


def _foretold(module: torch.nn.Module, inputs: Inputs) -> list[tuple[int, ...]]:
    """Return the strides of results that torch's fake tensors foretell."""
    from torch._subclasses.fake_tensor import FakeTensorMode  # slow

    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        return [_strides(x) for x in module(*map(mode.from_tensor, inputs))]


def _memory(results: Results, inputs: Inputs) -> Memory:
    """Return the first tensor with each result's memory, and the strides that matter."""
    places = [x.untyped_storage().data_ptr() for x in (*inputs, *results)]
    return [
        (places.index(place) if x.numel() else -1, _strides(x))
        for x, place in zip(results, places[len(inputs) :], strict=True)
    ]


def _strides(x: torch.Tensor) -> tuple[int, ...]:
    """Return the strides that matter: those of dimensions with several elements."""
    return tuple(stride for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1)


def _compare(
    code: Code,
    weights: Weights,
    inputs: Inputs,
    got: Results,
    expected: Results,
    lower: torch.dtype,
) -> tuple[str, str] | None:
    suspects = []
    for number, (ours, stock) in enumerate(zip(got, expected, strict=True)):
        if ours.shape != stock.shape or ours.dtype != stock.dtype:
            return "shape", f"result {number} is {_type(ours)}, of stock {_type(stock)}"
        if not _close(ours, stock, lower):
            suspects.append(number)
    if not suspects:
        return None
    if code.has_causal_attention and not all(x.isfinite().all() for x in inputs):
        return "unstable", "torch's own kernels treat NaN in masked keys differently"
    exact = _run(code, weights, inputs, torch.float64)
    for number in suspects:
        ours, stock, right = (x[number].double() for x in (got, expected, exact))
        if exact[number].shape != ours.shape:
            return None
        nonfinite = _kind(ours) != _kind(stock)
        rounded = _kind(right.to(lower).double())
        lost = nonfinite & (_kind(stock) == rounded) & (not code.has_causal_attention)
        finite = torch.isfinite(ours) & torch.isfinite(stock) & torch.isfinite(right)
        scale = _scale(right)
        mine = _largest((ours - right).abs()[finite])
        theirs = _largest((stock - right).abs()[finite])
        limit = max(TOLERANCE[lower] * scale, 4 * theirs)
        if not lost.any() and mine <= limit:
            continue
        if not _stable(code, weights, inputs, number, expected[number], exact[number], lower):
            return "unstable", f"result {number}"
        if lost.any():
            place = tuple(int(i) for i in lost.nonzero()[0])
            return "nonfinite", (
                f"result {number} at {place} is {ours[place].item()}, of stock "
                f"{stock[place].item()}; {int(lost.sum())} of {lost.numel()} so"
            )
        return "differs", (
            f"result {number} is off by {mine:.2g}, stock by {theirs:.2g}, of at most {scale:.2g}"
        )
    return None


def _stable(
    code: Code,
    weights: Weights,
    inputs: Inputs,
    number: int,
    stock: torch.Tensor,
    exact: torch.Tensor,
    lower: torch.dtype,
) -> bool:
    """Return whether no result moves when rounding moves every input, weight and intermediate.

    In bfloat16, one trial also flushes subnormals to 0, as the instruction VDPBF16PS does: it turns
    their product with infinity into NaN.
    """
    for dtype, base in ((lower, stock), (torch.float64, exact)):
        moves = [_nudge(lower, seed) for seed in range(TRIALS)]
        for move in [_flush, *moves] if lower == torch.bfloat16 else moves:
            moved = _run(code, weights, inputs, dtype, move)[number].double()
            base = base.double()
            if not torch.equal(_kind(moved), _kind(base)):
                return False
            finite = torch.isfinite(base)
            if _largest((moved - base).abs()[finite]) > TOLERANCE[lower] * _scale(base):
                return False
    return True


def _nudge(lower: torch.dtype, seed: int) -> Callable[[torch.Tensor], torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def nudge(x: torch.Tensor) -> torch.Tensor:
        if not x.is_floating_point():
            return x
        sign = torch.randint(-1, 2, x.shape, generator=generator).to(torch.float64)
        return (x.double() * (1 + NUDGE[lower] * sign)).to(x.dtype)

    return nudge


def _flush(x: torch.Tensor) -> torch.Tensor:
    if not x.is_floating_point():
        return x
    return torch.where(x.abs() < torch.finfo(torch.bfloat16).tiny, x * 0, x)


def _run(
    code: Code,
    weights: Weights,
    inputs: Inputs,
    dtype: torch.dtype,
    nudge: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> Results:
    def prepared(x: torch.Tensor) -> torch.Tensor:
        x = x.to(dtype) if x.is_floating_point() else x
        return nudge(x) if nudge else x

    classes = code.classes(dtype, nudge)
    # The reference follows attention's definition: torch's fused kernel returns 0 for NaN scores.
    exact = sdpa_kernel(SDPBackend.MATH) if dtype == torch.float64 else nullcontext()
    with _stock(), torch.no_grad(), exact:
        module = classes["Nudged" if nudge else "Model"](
            {name: prepared(x) for name, x in weights.items()}
        ).eval()
        return tuple(module(*[prepared(x) for x in _copies(inputs)]))


def _close(ours: torch.Tensor, stock: torch.Tensor, lower: torch.dtype) -> bool:
    if ours.shape != stock.shape or not stock.is_floating_point():
        return bool(torch.equal(ours, stock))
    a, b = ours.double(), stock.double()
    if not torch.equal(_kind(a), _kind(b)):
        return False
    finite = torch.isfinite(b)
    return _largest((a - b).abs()[finite]) <= TOLERANCE[lower] * _scale(b)


def _kind(x: torch.Tensor) -> torch.Tensor:
    """Return 0 for finite numbers, 1 for NaN, 2 and 3 for the infinities."""
    return torch.isnan(x) + 2 * torch.isposinf(x) + 3 * torch.isneginf(x)


def _scale(x: torch.Tensor) -> float:
    return _largest(x.abs()[torch.isfinite(x)]) + 1e-30


def _largest(x: torch.Tensor) -> float:
    return float(x.max()) if x.numel() else 0.0


def _floating(weights: Any, runs: Sequence[Inputs]) -> torch.dtype:
    every = [*weights, *(x for inputs in runs for x in inputs)]
    return torch.bfloat16 if any(x.dtype == torch.bfloat16 for x in every) else torch.float32


def _copies(inputs: Inputs) -> list[torch.Tensor]:
    """Return copies that a model may write to, with the same strides."""
    copies = []
    for x in inputs:
        if x.numel() and 0 in [s for s, n in zip(x.stride(), x.shape, strict=True) if n > 1]:
            copies.append(x)
            continue
        room = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) + 1
        flat = torch.zeros(max(room, 0), dtype=x.dtype) if x.numel() else x
        copy = flat.as_strided(x.shape, x.stride()) if x.numel() else x.clone()
        copies.append(copy.copy_(x))
    return copies


def _type(x: torch.Tensor) -> str:
    return f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)}"


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"[:300]
