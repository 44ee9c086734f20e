"""Checks one model: compiled, compiled for all sizes, exported and frozen, against stock torch.

    python -m tools.zoo.check NAME WAY... [--untimed]
    python -m tools.zoo.check NAME --inductor

prints lines of JSON: what the model is, then what came of each way to run it, or the ratios of the
compiled model's times.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import resource
import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.utils import _pytree as pytree
from transformers import masking_utils

from tools.backend_log import first_line, listening
from tools.zoo.models import build
from tools.zoo.tiny import NotBuilt, Tiny

#: The largest error that counts as rounding, relative to the largest number of a result.
TOLERANCE = 1e-4
#: How much weights are changed to see whether a model magnifies rounding.
NUDGE = 4e-7
#: How many times: two nearly equal scores change places in only some of them.
NUDGES = 8
#: Bytes of data that a process may have.
MEMORY = 8 << 30
#: Calls before timed ones: plans settle on what is a weight, and on implementations, within four.
SETTLING = 5
#: Timed turns, and the seconds that each takes at least.
TURNS, SECONDS = 5, 0.05


@dataclass(frozen=True)
class Way:
    """What came of one way to run a model.

    ``outcome``: right; unstable (wrong, as stock is with other rounding); wrong;
    fails; upstream (stock torch fails or is wrong in this way, too); crash; timeout.
    """

    way: str
    outcome: str
    detail: str = ""
    #: The largest error, relative to the largest number of its result.
    error: float = 0.0
    #: How often Dynamo compiled, and where it broke the graph.
    compilations: int = 0
    breaks: tuple[str, ...] = ()
    regions: int = 0
    #: Steps of plans in one call, and overridden operators that ran outside of plans.
    steps: int = 0
    outside: int = 0
    #: What is not in plans, and why: operators with reasons, and their number.
    left_out: Mapping[str, int] = field(default_factory=dict)
    #: Its time divided by that of stock eager torch, and by that of stock Inductor; 0 if it was not
    #: measured. With the second, both are those of a compiled model without options; else what is
    #: not in plans runs eagerly.
    ratio: float = 0.0
    of_inductor: float = 0.0

    @property
    def is_ours(self) -> bool:
        """Whether it is a fault of ours."""
        return self.outcome in ("wrong", "fails", "crash", "timeout")


WAYS = ("compiled", "dynamic", "exported", "frozen")


def stock() -> contextlib.AbstractContextManager[None]:
    """Return a context in which torch's own kernels run."""
    context: contextlib.AbstractContextManager[None] = torch.backends.zendnn.flags(enabled=False)
    return context


def tensors(result: Any) -> list[Tensor]:
    """Return the tensors of a model's result."""
    return [x for x in pytree.tree_leaves(result) if isinstance(x, Tensor)]


def call(function: Callable[..., Any], inputs: Mapping[str, Any]) -> list[Tensor]:
    """Return what a model makes of copies of its inputs, with the same random numbers each time."""
    torch.manual_seed(0)
    arguments = {k: x.clone() if isinstance(x, Tensor) else x for k, x in inputs.items()}
    return tensors(function(**arguments))


def difference(got: list[Tensor], want: list[Tensor]) -> float:
    """Return the largest error, relative to the largest number of its result; inf in doubt."""
    if [(x.shape, x.dtype) for x in got] != [(x.shape, x.dtype) for x in want]:
        return math.inf
    return max((_difference(a, b) for a, b in zip(got, want, strict=True)), default=0.0)


def dtypes(results: Sequence[list[Tensor]]) -> list[list[torch.dtype]]:
    """Return the dtypes of several results."""
    return [[x.dtype for x in result] for result in results]


def _difference(got: Tensor, want: Tensor) -> float:
    if torch.equal(got, want):
        return 0.0
    if not want.is_floating_point():
        return math.inf
    finite = want.isfinite()
    if not torch.equal(kinds(got), kinds(want)):
        return math.inf
    a, b = got[finite].double(), want[finite].double()
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-30))


def kinds(x: Tensor) -> Tensor:
    """Return 0 for finite numbers, and others for NaN and the infinities."""
    return x.isnan() + 2 * x.isposinf() + 3 * x.isneginf()


def moved(tiny: Tiny, inputs: Mapping[str, Any]) -> float:
    """Return by how much stock's results move in float64, or when rounding moves the weights."""
    with stock(), torch.no_grad():
        want = call(tiny.model, inputs)
        results = [call(nudged(tiny.model, seed), inputs) for seed in range(NUDGES)]
        with contextlib.suppress(Exception):  # some models name their dtypes
            wide = {k: x.double() if is_float(x) else x for k, x in inputs.items()}
            exact = call(copy.deepcopy(tiny.model).double(), wide)
            results.append([x.to(y.dtype) for x, y in zip(exact, want, strict=True)])
    return worst(results, [want] * len(results))


def nudged(model: nn.Module, seed: int) -> nn.Module:
    """Return a copy of a model, whose weights are changed by rounding."""
    result = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    for weight in filter(is_float, result.parameters()):
        weight.mul_(1 + NUDGE * torch.randint(-1, 2, weight.shape, generator=generator))
    return result


def is_float(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


class Positional(nn.Module):  # type: ignore[misc]  # torch is Any here
    """A model that takes its inputs by position, as tracing wants, and returns tensors."""

    def __init__(self, model: nn.Module, inputs: Mapping[str, Any]) -> None:
        super().__init__()
        self.model = model
        self.names = [name for name, x in inputs.items() if isinstance(x, Tensor)]
        self.others = {k: x for k, x in inputs.items() if not isinstance(x, Tensor)}

    def forward(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        result = self.model(**dict(zip(self.names, arguments, strict=True)), **self.others)
        return tuple(tensors(result))


def broadcast(function: Callable[..., Tensor], bh_indices: bool = True) -> Callable[..., Tensor]:
    """Map a function of indices, as transformers does for masks, without vmap."""

    def mask(*indices: Tensor) -> Tensor:
        size = [len(index) for index in indices]
        at = (
            x.view([-1 if i == j else 1 for j in range(len(size))]) for i, x in enumerate(indices)
        )
        return function(*at).expand(size)

    return mask


def exported(tiny: Tiny, backend: str) -> Callable[..., Any]:
    """Return the model's exported program, optimised for inference on ZenDNN or as it is."""
    wrapped = Positional(tiny.model, tiny.inputs).eval()
    torch.manual_seed(0)
    program = torch.export.export(wrapped, tuple(tiny.inputs[name] for name in wrapped.names))
    ours = backend == "zendnn"
    function = torch.backends.zendnn.optimize(program) if ours else program.module()
    return Taking(function, wrapped.names)


def frozen(tiny: Tiny) -> Callable[..., Any]:
    """Return the model, traced, frozen and optimised for inference."""
    wrapped = Positional(tiny.model, tiny.inputs).eval()
    arguments = tuple(tiny.inputs[name] for name in wrapped.names)
    # torch.jit.trace refuses vmap.
    plain = {"_vmap_for_bhqkv": broadcast, "TransformGetItemToIndex": contextlib.nullcontext}
    with stock(), mock.patch.dict(vars(masking_utils), plain):
        torch.manual_seed(0)
        traced = torch.jit.trace(wrapped, arguments, check_trace=False, strict=False)
    fast = torch.jit.optimize_for_inference(torch.jit.freeze(traced.eval()))
    return Taking(fast, wrapped.names)


@dataclass(frozen=True)
class Taking:
    """A function of positional arguments that is called by names; it drops others."""

    function: Callable[..., Any]
    names: list[str]

    def __call__(self, **arguments: Any) -> Any:
        return self.function(*(arguments[name] for name in self.names))


def check(tiny: Tiny, way: str, *, timed: bool = True) -> Way:
    """Return what comes of one way to run a model."""
    runs = [tiny.inputs, *([tiny.second] if way == "dynamic" and tiny.second else [])]
    with stock(), torch.no_grad():
        want = [call(tiny.model, inputs) for inputs in runs]
        again = [call(tiny.model, inputs) for inputs in runs]
    if worst(again, want) > TOLERANCE:
        return Way(way, "upstream", "stock eager torch computes something else each time")
    outcome, detail, error, facts = "right", "", 0.0, {}
    with torch.no_grad(), listening() as notes:
        try:
            fast = prepared(tiny, way, "zendnn")
            got = [call(fast, inputs) for inputs in [*runs, runs[0]]]
            error = worst(got, [*want, want[0]])
            outcome = "right" if error <= TOLERANCE else "wrong"
            facts = plans(fast, tiny.inputs, notes)
            if timed and way != "dynamic":
                (facts["ratio"],) = ratios(tiny, fast, tiny.model)
        except Exception as raised:
            outcome, detail = "fails", first_line(raised)
    if outcome != "right" and (theirs := upstream(tiny, way)):
        outcome, detail = "upstream", f"{detail}; stock: {theirs}".removeprefix("; ")
    elif outcome == "wrong":
        move = max(moved(tiny, inputs) for inputs in runs)
        if move >= error / 10 and dtypes(got) == dtypes([*want, want[0]]):  # both can be inf
            outcome = "unstable"
        detail = f"off by {error:.2g}; stock by {move:.2g} with other rounding"
    return Way(way, outcome, detail, error, **facts)


def prepared(tiny: Tiny, way: str, backend: str) -> Callable[..., Any]:
    """Return a model that runs in a way: on ZenDNN, or on a back end of stock torch."""
    torch._dynamo.reset()
    counters.clear()
    if way == "frozen":
        return frozen(tiny)
    if way == "exported":
        return exported(tiny, backend)
    options = {"rest": "eager"} if backend == "zendnn" else None  # Inductor's part is not ours
    compiled: Callable[..., Any] = torch.compile(
        tiny.model, backend=backend, dynamic=way == "dynamic", options=options
    )
    return compiled


def upstream(tiny: Tiny, way: str) -> str:
    """Return how stock torch fails when it runs a model in a way; empty if it does not."""
    runs = [tiny.inputs, *([tiny.second] if way == "dynamic" and tiny.second else [])]
    with stock(), torch.no_grad():
        try:
            model = prepared(tiny, way, "aot_eager")
            error = worst(*([call(f, inputs) for inputs in runs] for f in (model, tiny.model)))
        except Exception as raised:
            return first_line(raised)
    return f"off by {error:.2g}" if error > TOLERANCE else ""


def worst(got: Sequence[list[Tensor]], want: Sequence[list[Tensor]]) -> float:
    """Return the largest difference of several results."""
    return max(map(difference, got, want))


def plans(fast: Any, inputs: Mapping[str, Any], notes: Sequence[str]) -> dict[str, Any]:
    """Return what Dynamo and the engine made of a model that has run."""
    compilations, breaks = counters["frames"]["ok"], tuple(counters["graph_break"])
    with torch.backends.zendnn.record() as events:
        call(fast, inputs)
    methods = torch.backends.zendnn.explain(getattr(fast, "function", fast)).methods
    left_out = Counter(f"graph: {text}" for text in notes if "stays as it is" in text)
    for method in methods:
        for item in method.left_out or ():
            left_out[f"{item.op}: {item.reason}"] += item.count
        for built in [built for region in method.regions for built in region.built]:
            left_out[f"region: {built.refused}"] += bool(built.refused)
            for left in built.left_to_torch:
                left_out[f"{'+'.join(left.operator)}: {left.reason}"] += 1
    return {
        "compilations": compilations,
        "breaks": breaks,
        "regions": sum(len(method.regions) for method in methods),
        "steps": sum(event.route == "plan" for event in events),
        "outside": sum(event.route != "plan" for event in events),
        "left_out": dict(+left_out),
    }


def ratios(tiny: Tiny, fast: Callable[..., Any], *others: Callable[..., Any]) -> tuple[float, ...]:
    """Return a model's time divided by those of others on stock torch: medians of turns."""
    times: list[list[float]] = [[] for _ in (fast, *others)]
    for _ in range(TURNS):
        times[0].append(seconds(fast, tiny.inputs))
        with stock():
            for other, of_other in zip(others, times[1:], strict=True):
                of_other.append(seconds(other, tiny.inputs))
    ours, *theirs = map(statistics.median, times)
    return tuple(ours / one for one in theirs)


def compared(tiny: Tiny) -> dict[str, float]:
    """Return the compiled model's time divided by eager torch's and Inductor's, all by default.

    0 stands for both where Dynamo compiles anew at each call, which is no time of the model's.
    """
    ours, theirs = torch.compile(tiny.model, backend="zendnn"), torch.compile(tiny.model)
    # Both count as compilations of the same code.
    with torch.no_grad(), torch._dynamo.config.patch(recompile_limit=1000):
        for _ in range(SETTLING):
            call(ours, tiny.inputs)
            with stock():
                call(theirs, tiny.inputs)
        compilations = counters["frames"]["ok"]
        eager, inductor = ratios(tiny, ours, tiny.model, theirs)
    settled = counters["frames"]["ok"] == compilations
    return {"ratio": eager * settled, "of_inductor": inductor * settled}


def seconds(function: Callable[..., Any], inputs: Mapping[str, Any]) -> float:
    """Return how long a call takes, of as many as a turn has time for."""
    start, count = time.perf_counter(), 0
    while (passed := time.perf_counter() - start) < SECONDS or not count:
        function(**inputs)
        count += 1
    return passed / count


def main(name: str, ways: Sequence[str], options: Sequence[str]) -> None:
    """Check a model in some ways, and print what comes of each."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what models print

    def answer(what: Mapping[str, Any]) -> None:
        print(json.dumps(what), file=answers, flush=True)

    warnings.simplefilter("ignore")
    try:
        tiny = build(name)
    except NotBuilt as error:
        answer({"missing": str(error)})
        return
    answer({"model": type(tiny.model).__name__, "inputs": list(tiny.inputs)})
    for way in ways:
        answer(
            {"stock": upstream(tiny, way)}
            if "--stock" in options
            else asdict(check(tiny, way, timed="--untimed" not in options))
        )
    if "--inductor" in options:
        answer(compared(tiny))


if __name__ == "__main__":
    name, *options = sys.argv[1:]
    ways = [option for option in options if option in WAYS]
    main(name, ways, options)
