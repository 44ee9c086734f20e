"""Check a model on each front end against stock torch; float64 decides where the two differ.

This file imports only torch, since each find's folder has a copy of it.
"""

from __future__ import annotations

import linecache
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

#: Largest error, relative to a result's largest number, that counts as rounding.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2}
#: Relative perturbation of each result that tests a model's numerical stability.
NUDGE = {torch.float32: 4e-7, torch.bfloat16: 4e-3}
TRIALS = 6


@dataclass(frozen=True)
class Verdict:
    """The outcome of one model on one front end.

    ``outcome``: same, differs (wrong numbers), nonfinite (NaN or infinities in other places), shape
    (wrong shape or dtype), raises, struck (right, but a plan tried a wrong implementation),
    unstable (stock itself is unreliable), refused (torch.jit or torch.compile refuses the model),
    upstream (one of them changes its results), invalid (stock cannot run it), crash, timeout.
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
FINDS = ("differs", "nonfinite", "shape", "raises", "struck", "crash", "timeout")


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
    #: Stock's graph of a module, whose results may differ from eager mode; ``stock`` by default.
    graph: Callable[[torch.nn.Module, Inputs], Any] | None = None
    #: What surrounds all calls.
    around: Callable[[], AbstractContextManager[None]] = nullcontext
    #: Next to other front ends it gets one model in so many, since it is slow.
    one_in: int = 1


@contextmanager
def _dynamo() -> Iterator[None]:
    """Dynamo without what it keeps of other models; too many compilations are an error."""
    import torch._dynamo  # slow

    torch._dynamo.reset()
    try:
        with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
            yield
    finally:
        torch._dynamo.reset()


def _compiler(dynamic: bool) -> FrontEnd:
    """Return torch.compile; with ``dynamic``, one compilation serves several sizes."""

    def compiled(module: torch.nn.Module, backend: str) -> Any:
        return torch.compile(module, backend=backend, dynamic=dynamic)

    return FrontEnd(
        _as_it_is,
        lambda module: compiled(module, "zendnn"),
        plans=True,
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


def check(
    code: Code, weights: Mapping[str, torch.Tensor], runs: Sequence[Inputs], front_end: str
) -> Verdict:
    """Run a model on a front end with each set of inputs, and with the first one again.

    The model computes in the dtype of its weights or inputs: float32 or bfloat16.
    """
    lower = _floating(weights.values(), runs)
    expected = []
    with _stock(), torch.no_grad():
        module = code.classes(lower)["Model"](dict(weights)).eval()
        taken = []
        for number, inputs in enumerate(runs):
            try:
                expected.append(module(*_copies(inputs)))
                taken.append(inputs)
            except Exception as error:
                if not number:
                    return Verdict("invalid", front_end, _line(error))
    runs = taken  # many models only take the first run's sizes
    way = FRONT_ENDS[front_end]
    with torch.no_grad(), warnings.catch_warnings(), way.around():
        warnings.simplefilter("ignore")
        return _checked(code, weights, runs, expected, lower, front_end)


def _checked(
    code: Code,
    weights: Mapping[str, torch.Tensor],
    runs: Sequence[Inputs],
    expected: Sequence[Results],
    lower: torch.dtype,
    front_end: str,
) -> Verdict:
    way = FRONT_ENDS[front_end]
    module = code.classes(lower)["Model"](dict(weights)).eval()
    try:
        with _stock():
            stock = way.stock(module, runs[0])
            stock(*_copies(runs[0]))
    except Exception as error:
        return Verdict("refused", front_end, _line(error))
    try:
        made = way.ours(stock)
    except Exception as error:
        return Verdict("raises", front_end, _line(error))
    for number in [*range(len(runs)), 0]:
        verdict = None
        try:
            got = made(*_copies(runs[number]))
        except Exception as error:
            verdict = ("raises", _line(error))
        verdict = verdict or _compare(code, weights, runs[number], got, expected[number], lower)
        if verdict is None:
            continue
        with _stock():
            again = (way.graph or way.stock)(
                code.classes(lower)["Model"](dict(weights)).eval(), runs[0]
            )
            try:
                theirs = again(*_copies(runs[number]))
            except Exception as error:
                if number:
                    continue  # the trace only takes the first run's sizes
                return Verdict("refused", front_end, _line(error))
        if not all(map(_close, theirs, expected[number], [lower] * len(theirs))):
            if number:
                continue
            return Verdict("upstream", front_end, "stock's graph differs from its eager mode")
        return Verdict(verdict[0], front_end, f"inputs {number}: {verdict[1]}")
    if not way.plans:
        return Verdict("same", front_end)
    with torch.backends.zendnn.record() as events:
        made(*_copies(runs[0]))
    steps = sum(event.route == "plan" for event in events)
    try:
        methods = torch.backends.zendnn.explain(made).as_dict()["methods"]
    except TypeError:
        methods = []
    regions = [region for method in methods for region in method["regions"]]
    builds = [built for region in regions for built in region["built"]]
    wrong = [name for built in builds for name in built["wrong"]]
    if wrong:
        return Verdict("struck", front_end, "; ".join(wrong))
    refusals = [built["refused"] for built in builds if built["refused"]]
    refusals += [
        f"{x['op']}: {x['reason']}" for method in methods for x in method["left_out"] or ()
    ]
    return Verdict("same", front_end, "", tuple(refusals), steps)


def _compare(
    code: Code,
    weights: Mapping[str, torch.Tensor],
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
    weights: Mapping[str, torch.Tensor],
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
    weights: Mapping[str, torch.Tensor],
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
