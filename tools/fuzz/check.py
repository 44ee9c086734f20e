"""Check a model on each front end against stock torch; float64 decides where the two differ.

This file imports only torch, since each find's folder has a copy of it.
"""

from __future__ import annotations

import linecache
import logging
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from types import SimpleNamespace
from typing import Any, Dict, Tuple  # noqa: UP035 - what TorchScript reads
from unittest import mock

import torch
import torch.nn.functional as F
from torch.backends.zendnn.passes import partition
from torch.nn.attention import SDPBackend, sdpa_kernel

Results = tuple[torch.Tensor, ...]
Inputs = Sequence[torch.Tensor]
Weights = Mapping[str, torch.Tensor]
#: For each result: which of the inputs and results has the same memory, and the strides.
Memory = list[tuple[int, tuple[int, ...]]]

#: Largest error, relative to a result's largest number, that counts as rounding.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2}
#: The variable that asks for plans of even the lightest operators.
LIGHTEST = "FUZZ_LIGHTEST"
#: Relative perturbation of each result that tests a model's numerical stability.
NUDGE = {torch.float32: 4e-7, torch.bfloat16: 4e-3}
TRIALS = 6


@dataclass(frozen=True)
class Verdict:
    """The outcome of one model on one front end.

    ``outcome``: same, differs (wrong numbers), nonfinite (NaN or infinities in other places), shape
    (wrong shape or dtype), memory (results share memory or have strides unlike in eager mode),
    raises (where stock does not, or another error), accepts (returns where stock raises), struck
    (right, but a plan tried a wrong implementation), unstable (stock itself is unreliable), refused
    (torch.jit or torch.compile refuses the model), upstream (one of them changes its results or
    takes too long itself, or only stock crashes), crash, timeout.
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
FINDS = (
    "differs", "nonfinite", "shape", "memory", "raises", "accepts", "struck", "crash", "timeout",
)  # fmt: skip


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
        if dtype == torch.float64:
            names["F"] = SimpleNamespace(**vars(F) | {"gelu": _exact_gelu})
        names["__name__"] = "fuzzed"
        exec(compile(text, name, "exec"), names)
        return names


def _exact_gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """Return GELU of large negative numbers, too, where torch's 1 + erf and 1 + tanh are 0."""
    if approximate == "tanh":
        return x * torch.sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3))
    return x * torch.special.erfc(-x / math.sqrt(2)) / 2


def _stock() -> Any:
    return torch.backends.zendnn.flags(enabled=False)


def _as_it_is(module: torch.nn.Module, inputs: Inputs) -> Any:
    return module


def _traced(module: torch.nn.Module, inputs: Inputs) -> Any:
    return torch.jit.freeze(torch.jit.trace(module, tuple(_copies(inputs)), check_trace=False))


def _scripted(module: torch.nn.Module, inputs: Inputs) -> Any:
    return torch.jit.freeze(torch.jit.script(module))


class _Exported:
    """What torch.export makes of a module, for the sizes of the inputs.

    A functional program holds a new tensor for each write, as the one that plans are made of does.
    Like torch's own table of decompositions, it takes ``type_as`` apart, which may return its
    operand. What computes a tensor for its dtype alone is dropped then, with the errors of that.
    """

    def __init__(self, module: torch.nn.Module, inputs: Inputs, functional: bool = False) -> None:
        self.program = torch.export.export(module, tuple(_copies(inputs)))
        if functional:
            apart = {torch.ops.aten.type_as.default: lambda x, other: x.to(other.dtype)}
            self.program = self.program.run_decompositions(apart)
        self._module = self.program.module()

    def __call__(self, *inputs: torch.Tensor) -> Results:
        results: Results = self._module(*inputs)
        return results


@dataclass(frozen=True)
class FrontEnd:
    """A way to run a module: stock torch's preparation, and ours on top of it."""

    stock: Callable[[torch.nn.Module, Inputs], Any]
    ours: Callable[[Any], Any]
    #: Whether it makes plans, which ``explain`` knows.
    plans: bool = False
    #: Whether weights may change, and results have strides and share memory as in eager mode.
    as_eager: bool = False
    #: Whether torch returns one tensor from all calls where a result depends on no input.
    keeps_constants: bool = False
    #: Stock's graph of a module, whose results may differ from eager mode; ``stock`` by default.
    graph: Callable[[torch.nn.Module, Inputs], Any] | None = None
    #: What surrounds all calls; it tells what was refused.
    around: Callable[[], AbstractContextManager[list[str]]] = lambda: nullcontext([])
    #: Beside other front ends it gets one model in so many, since it is slow.
    one_in: int = 1


def _lightest() -> AbstractContextManager[Any]:
    """Make plans of operators with too little work for one, if this process is to."""
    if os.environ.get(LIGHTEST) != "1":
        return nullcontext()
    return mock.patch.multiple(partition, LIGHT=frozenset(), ENOUGH=1)


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

    def graph(module: torch.nn.Module, inputs: Inputs) -> Any:
        run_graph = compiled(module, "aot_eager")

        def run(*arguments: torch.Tensor) -> Results:
            with torch._dynamo.config.patch(fail_on_recompile_limit_hit=False):
                results: Results = run_graph(*arguments)
                return results

        return run

    return FrontEnd(
        _as_it_is,
        lambda module: compiled(module, "zendnn", rest="eager"),  # Inductor's part is not ours
        plans=True,
        as_eager=True,
        graph=graph,
        around=_dynamo,
        one_in=3,
    )


FRONT_ENDS: Mapping[str, FrontEnd] = {
    "trace": FrontEnd(_traced, torch.jit.optimize_for_inference, plans=True, keeps_constants=True),
    "script": FrontEnd(
        _scripted, torch.jit.optimize_for_inference, plans=True, keeps_constants=True
    ),
    "eager": FrontEnd(_as_it_is, lambda module: module),
    "prepack": FrontEnd(_as_it_is, torch.backends.zendnn.prepack),
    "compile": _compiler(dynamic=False),
    "compile-dynamic": _compiler(dynamic=True),
    "export": FrontEnd(
        _Exported,
        lambda exported: torch.backends.zendnn.optimize(exported.program),
        plans=True,
        graph=partial(_Exported, functional=True),
        one_in=3,
    ),
}


@dataclass(frozen=True)
class Step:
    """A call of a model, and what its caller does before it."""

    name: str
    inputs: Inputs
    #: Write to the results of earlier calls.
    overwrite: bool = False
    #: Give the model other weights.
    turn: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a call has left behind.

    ``results`` ends with the inputs after the call, ``memory`` is that of the results alone, and
    ``moved`` numbers the results of earlier calls that have changed since, by more than rounding:
    a call that writes the same numbers again may round them otherwise.
    """

    results: Results
    memory: Memory
    moved: frozenset[int]


class Session:
    """A model in use: calls that may depend on earlier ones, and results that a caller keeps."""

    def __init__(self, run: Any, module: torch.nn.Module) -> None:
        """Call ``run``, whose weights are the buffers of ``module``."""
        self._run, self._module = run, module
        self._kept: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._before: list[tuple[torch.nn.Module, Weights]] = []

    def prepare(self, step: Step) -> None:
        """Do what the caller does before a call."""
        if step.overwrite:
            modules = [x for x in (self._module, self._run) if isinstance(x, torch.nn.Module)]
            weights = {x.untyped_storage().data_ptr() for m in modules for x in m.buffers()}
            for x, _ in self._kept:
                # Exported programs return copies of the weights and inputs that they write.
                if not _overlaps(x) and x.untyped_storage().data_ptr() not in weights:
                    x.fill_(1)
            self._kept = []
        if step.turn:
            _write(self._module, _turned(_read(self._module)))
        # Its own, which may differ from stock's by rounding: results may be views of them.
        copied = self._run is not self._module and isinstance(self._run, torch.nn.Module)
        modules = [self._module, self._run] if copied else [self._module]
        self._before = [(module, _read(module)) for module in modules]

    def restore(self) -> None:
        """Give the model the weights from before a call that may have written some of them."""
        for module, weights in self._before:
            _write(module, weights)

    def call(self, step: Step) -> Outcome:
        """Call the model; raise what it raises."""
        arguments = _copies(step.inputs)
        results = self._run(*arguments)
        memory = _memory(results, (*arguments, *self._module.buffers()))
        moved = frozenset(i for i, (x, copy) in enumerate(self._kept) if not _close(x, copy))
        copies = tuple(x.clone() for x in (*results, *arguments))
        self._kept += zip(results, copies, strict=False)
        return Outcome(copies, memory, moved)

    def take_back(self, outcome: Outcome) -> None:
        """Undo a call that eager mode refuses: restore the weights, and forget its results."""
        self.restore()
        del self._kept[len(self._kept) - len(outcome.memory) :]


@dataclass(frozen=True)
class Call:
    """A step, the model's weights before it, and what stock's eager mode returns or raises."""

    step: Step
    weights: Weights
    expected: Outcome | Exception


def _steps(runs: Sequence[Inputs], weights: Weights, way: FrontEnd) -> Iterator[Step]:
    for number, inputs in enumerate(runs):
        yield Step(f"inputs {number}", inputs)
    yield Step("inputs 0 again", runs[0], overwrite=not way.keeps_constants)
    if way.as_eager and weights:
        yield Step("other weights", runs[0], turn=True)


def _calls(steps: Iterator[Step], module: torch.nn.Module) -> Iterator[Call]:
    """Yield what stock returns or raises at each step; an error leaves the weights as they were."""
    session = Session(module, module)
    for step in steps:
        session.prepare(step)
        weights = _read(module)
        try:
            with _stock(), torch.no_grad():
                expected: Outcome | Exception = session.call(step)
        except Exception as error:
            expected = error.with_traceback(None)
            session.restore()
        yield Call(step, weights, expected)


def check(code: Code, weights: Weights, runs: Sequence[Inputs], front_end: str) -> Verdict:
    """Run a model on a front end with each set of inputs, and with the first one again.

    The model computes in the dtype of its weights or inputs: float32 or bfloat16. Before the last
    calls, the caller writes to the results, and some front ends get other weights.
    """
    lower, way = _floating(weights.values(), runs), FRONT_ENDS[front_end]
    calls = list(_calls(_steps(runs, weights, way), _module(code, weights, lower)))
    with _lightest(), torch.no_grad(), warnings.catch_warnings(), way.around() as refusals:
        warnings.simplefilter("ignore")
        return _Check(code, calls, lower, front_end).verdict(refusals)


def run_alone(
    code: Code, weights: Weights, runs: Sequence[Inputs], front_end: str, *, stock: bool
) -> None:
    """Run stock's graph of a model, or ours, with each set of inputs, and compare nothing.

    Its caller sees how long that takes, and whether it ends the process.
    """
    lower, way = _floating(weights.values(), runs), FRONT_ENDS[front_end]
    module = _module(code, weights, lower)
    off = _stock() if stock else nullcontext()
    with off, torch.no_grad(), warnings.catch_warnings(), way.around():
        warnings.simplefilter("ignore")
        try:
            if stock:
                result = (way.graph or way.stock)(module, runs[0])
            else:
                result = way.ours(way.stock(module, runs[0]))
            for inputs in runs:
                result(*_copies(inputs))
        except Exception:  # it need not take the model
            return


class _Check:
    """A model on a front end, beside stock's graph of it, which is only run where ours differs."""

    def __init__(
        self, code: Code, calls: Sequence[Call], lower: torch.dtype, front_end: str
    ) -> None:
        self.code, self.calls, self.lower = code, calls, lower
        self.front_end, self.way = front_end, FRONT_ENDS[front_end]
        self._first = calls[0]
        self._stocks = self._outcomes()
        #: Of stock's graph, for the calls up to the last one that differed.
        self._captured: list[Outcome | Exception] = []

    def verdict(self, refusals: list[str]) -> Verdict:
        """Return the verdict on the first call unlike both eager mode's and that of stock's graph.

        Where there is none, it is on the model as a whole.
        """
        try:
            with _stock():
                stock, module = self._prepared(self._tried)
        except Exception as error:
            return self._says("refused", _line(error))
        try:
            graph = self.way.ours(stock)
        except Exception as error:
            return self._says("raises", _line(error))
        session = Session(graph, module)
        for number, call in enumerate(self.calls):
            session.prepare(call.step)
            different = _verdict(self.code, session, call, self.lower, self.way)
            verdict = self._judged(number, *different) if different else None
            if verdict:
                return verdict
        return self._planned(graph, refusals)

    def _says(self, outcome: str, detail: str = "") -> Verdict:
        return Verdict(outcome, self.front_end, detail)

    def _prepared(
        self, prepare: Callable[[torch.nn.Module, Inputs], Any]
    ) -> tuple[Any, torch.nn.Module]:
        """Return the prepared model and the module with its weights, which a run may have written.

        Frozen and exported models share those that they write.
        """
        module = _module(self.code, self._first.weights, self.lower)
        graph = prepare(module, self._first.step.inputs)
        _write(module, self._first.weights)
        return graph, module

    def _tried(self, module: torch.nn.Module, inputs: Inputs) -> Any:
        """Return stock's graph after a call: freezing makes constants of tensors that it writes."""
        graph = self.way.stock(module, inputs)
        if isinstance(self._first.expected, Outcome):
            graph(*_copies(inputs))
        return graph

    def _outcomes(self) -> Iterator[Outcome | Exception]:
        """Yield what stock's graph of the model returns or raises at each call."""
        try:
            with _stock():
                session = Session(*self._prepared(self.way.graph or self._tried))
        except Exception as error:
            failed = error.with_traceback(None)
            yield from (failed for _ in self.calls)
            return
        for call in self.calls:
            session.prepare(call.step)
            try:
                with _stock():
                    got = session.call(call.step)
            except Exception as error:
                session.restore()
                yield error.with_traceback(None)
                continue
            if isinstance(call.expected, Exception):
                session.take_back(got)
            yield got

    def _judged(self, number: int, outcome: str, detail: str) -> Verdict | None:
        """Return the verdict on a call unlike eager mode's; None where stock's graph does as ours.

        A trace only takes the sizes of the first run, and later ones say nothing of the model.
        """
        self._captured += islice(self._stocks, number + 1 - len(self._captured))
        call, theirs = self.calls[number], self._captured[number]
        is_first = call.step.inputs is self._first.step.inputs
        find = self._says(outcome, f"{call.step.name}: {detail}")
        if isinstance(call.expected, Exception):
            excused = self._is_excused(call, theirs, outcome, detail)
            return None if excused else self._settled(find, call)
        if isinstance(theirs, Exception):
            return self._says("refused", _line(theirs)) if is_first else None
        if outcome == "memory" and self._is_torchs_memory(call, call.expected, theirs):
            return None
        pairs = zip(theirs.results, call.expected.results, strict=True)
        if not all(_close(one, other, self.lower) for one, other in pairs):
            differs = "stock's graph differs from its eager mode"
            return self._says("upstream", differs) if is_first else None
        return self._settled(find, call)

    def _is_excused(
        self, call: Call, theirs: Outcome | Exception, outcome: str, detail: str
    ) -> bool:
        """Return whether stock's graph takes what eager mode refuses, or words the error anew."""
        if isinstance(theirs, Outcome):
            return outcome == "accepts"
        # Programs say in their own words which sizes they take.
        other_sizes = not _same_sizes(call.step.inputs, self._first.step.inputs)
        return detail.startswith(_name(theirs)) or other_sizes

    def _is_torchs_memory(self, call: Call, expected: Outcome, theirs: Outcome) -> bool:
        """Return whether torch's own front end places results otherwise than eager mode, too."""
        if (theirs.memory, theirs.moved) != (expected.memory, expected.moved):
            return True  # a dropout may copy
        # Compilers go by fake tensors, and log_sigmoid's have other strides.
        foretold = _foretold(self.code, call, self.lower)
        return foretold != [strides for _, strides in expected.memory]

    def _settled(self, find: Verdict, call: Call) -> Verdict:
        """Return the find, or that stock is unreliable, where rounding may decide on a branch."""
        branched = find.outcome in ("raises", "accepts", "shape")
        if branched and _branches_by_rounding(self.code, call, self.lower):
            return replace(find, outcome="unstable")
        return find

    def _planned(self, graph: Any, refusals: list[str]) -> Verdict:
        """Return the verdict on a model that does as stock: which plans it ran, and how."""
        if not self.way.plans or isinstance(self._first.expected, Exception):
            return self._says("same")
        # With the weights of the last call, it may raise as stock does.
        with torch.backends.zendnn.record() as events, suppress(Exception):
            graph(*_copies(self._first.step.inputs))
        steps = sum(event.route == "plan" for event in events)
        methods = torch.backends.zendnn.explain(graph).as_dict()["methods"]
        regions = [region for method in methods for region in method["regions"]]
        builds = [built for region in regions for built in region["built"]]
        wrong = [name for built in builds for name in built["wrong"]]
        if wrong:
            return self._says("struck", "; ".join(wrong))
        refused = [*refusals, *(built["refused"] for built in builds if built["refused"])]
        refused += [
            f"{x['op']}: {x['reason']}" for method in methods for x in method["left_out"] or ()
        ]
        return Verdict("same", self.front_end, "", tuple(refused), steps)


def _verdict(
    code: Code, session: Session, call: Call, lower: torch.dtype, way: FrontEnd
) -> tuple[str, str] | None:
    """Return the outcome of a call that is not the expected one, and the details."""
    expected = call.expected
    try:
        got = session.call(call.step)
    except Exception as error:
        session.restore()
        if isinstance(expected, Exception) and _alike(error, expected):
            return None
        return "raises", _line(error)
    if isinstance(expected, Exception):
        session.take_back(got)
        return "accepts", f"stock raises {_line(expected)}"
    if different := _compare(code, call, expected, got.results, lower):
        return different
    if way.as_eager and got.memory != expected.memory:
        return "memory", f"results have {got.memory}, of stock {expected.memory}"
    if changed := got.moved - expected.moved:
        return "memory", f"it changes result {min(changed)} of the earlier calls"
    return None


def _module(code: Code, weights: Weights, lower: torch.dtype) -> torch.nn.Module:
    """Return a model whose weights may be written."""
    copied = {name: x.clone() for name, x in weights.items()}
    result: torch.nn.Module = code.classes(lower)["Model"](copied)
    return result.eval()


def _read(module: torch.nn.Module) -> Weights:
    """Return copies of a model's weights."""
    return {name: x.clone() for name, x in module.named_buffers()}


def _write(module: torch.nn.Module, weights: Weights) -> None:
    for name, x in module.named_buffers():
        if name in weights:
            x.copy_(weights[name])


def _turned(weights: Weights) -> dict[str, torch.Tensor]:
    """Return other weights of the same distributions; integers stay valid indices."""
    return {
        name: x.flip(tuple(range(x.dim()))) if x.is_floating_point() else x
        for name, x in weights.items()
    }


def _foretold(code: Code, call: Call, lower: torch.dtype) -> list[tuple[int, ...]] | None:
    """Return the strides of results that torch's fake tensors foretell.

    None where torch itself notices that they are unlike the real ones.
    """
    import torch._functorch.config as config  # these are slow
    from torch._subclasses.fake_tensor import FakeTensorMode, MetadataMismatchError
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    module, arguments = _module(code, call.weights, lower), _copies(call.step.inputs)
    # Blocks ask fake tensors for numbers, which they have beside them.
    with (
        config.patch(fake_tensor_propagate_real_tensors=True),
        FakeTensorMode(shape_env=ShapeEnv()) as mode,
    ):
        for name, x in module.named_buffers():
            setattr(module, name, mode.from_tensor(x, static_shapes=True))
        try:
            results = module(*(mode.from_tensor(x, static_shapes=True) for x in arguments))
        except MetadataMismatchError:
            return None
        return [_strides(x) for x in results]


def _memory(results: Results, others: Inputs) -> Memory:
    """Return the first tensor with each result's memory, and the strides that matter."""
    places = [x.untyped_storage().data_ptr() for x in (*others, *results)]
    return [
        (places.index(place) if x.numel() else -1, _strides(x))
        for x, place in zip(results, places[len(others) :], strict=True)
    ]


def _strides(x: torch.Tensor) -> tuple[int, ...]:
    """Return the strides that matter: those of dimensions with several elements."""
    return tuple(stride for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1)


def _compare(
    code: Code, call: Call, outcome: Outcome, got: Results, lower: torch.dtype
) -> tuple[str, str] | None:
    """Compare results with an outcome of stock's eager mode."""
    weights, inputs, expected = call.weights, call.step.inputs, outcome.results
    names = [f"result {i}" for i in range(len(got) - len(inputs))]
    names += [f"input {i} afterwards" for i in range(len(inputs))]
    suspects = []
    for number, (ours, stock) in enumerate(zip(got, expected, strict=True)):
        if ours.shape != stock.shape or ours.dtype != stock.dtype:
            return "shape", f"{names[number]} is {_type(ours)}, of stock {_type(stock)}"
        if not _close(ours, stock, lower):
            suspects.append(number)
    if not suspects:
        return None
    if code.has_causal_attention and not all(x.isfinite().all() for x in inputs):
        return "unstable", "torch's own kernels treat NaN in masked keys differently"
    try:
        exact = _run(code, weights, inputs, torch.float64)
    except Exception:
        return "unstable", "float64 takes another branch, which raises"
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
            return "unstable", names[number]
        if lost.any():
            place = tuple(int(i) for i in lost.nonzero()[0])
            return "nonfinite", (
                f"{names[number]} at {place} is {ours[place].item()}, of stock "
                f"{stock[place].item()}; {int(lost.sum())} of {lost.numel()} so"
            )
        return "differs", (
            f"{names[number]} is off by {mine:.2g}, stock by {theirs:.2g}, of at most {scale:.2g}"
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
        for move in [_in_place(_flushed), *moves] if lower == torch.bfloat16 else moves:
            try:
                moved = _run(code, weights, inputs, dtype, move)[number].double()
            except Exception:  # in a branch that rounding takes
                return False
            base = base.double()
            if not torch.equal(_kind(moved), _kind(base)):
                return False
            finite = torch.isfinite(base)
            if _largest((moved - base).abs()[finite]) > TOLERANCE[lower] * _scale(base):
                return False
    return True


def _branches_by_rounding(code: Code, call: Call, lower: torch.dtype) -> bool:
    """Return whether rounding decides if stock raises, or which dtypes and shapes it returns.

    A branch, or how often a loop runs, may depend on it.
    """

    def kinds(nudge: Callable[[torch.Tensor], torch.Tensor]) -> list[str] | None:
        try:
            results = _run(code, call.weights, call.step.inputs, lower, nudge)
        except Exception:
            return None
        return [_type(x) for x in results]

    expected = call.expected
    kind = None if isinstance(expected, Exception) else [_type(x) for x in expected.results]
    return any(kinds(_nudge(lower, seed)) != kind for seed in range(TRIALS))


def _nudge(lower: torch.dtype, seed: int) -> Callable[[torch.Tensor], torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def moved(x: torch.Tensor) -> torch.Tensor:
        sign = torch.randint(-1, 2, x.shape, generator=generator).to(torch.float64)
        return (x.double() * (1 + NUDGE[lower] * sign)).to(x.dtype)

    return _in_place(moved)


def _flushed(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.abs() < torch.finfo(torch.bfloat16).tiny, x * 0, x)


def _in_place(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return what changes a tensor in its own memory, which others may read and write."""

    def changed(x: torch.Tensor) -> torch.Tensor:
        if not x.is_floating_point():
            return x
        return change(x) if _overlaps(x) else x.copy_(change(x))

    return changed


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
            {name: prepared(x.clone()) for name, x in weights.items()}
        ).eval()
        arguments = [prepared(x) for x in _copies(inputs)]
        return (*module(*arguments), *arguments)


def _close(ours: torch.Tensor, stock: torch.Tensor, lower: torch.dtype | None = None) -> bool:
    """Return whether two results differ by no more than rounding to ``lower``, or their dtype."""
    lower = lower or _floating([stock], ())
    if ours.shape != stock.shape or ours.dtype != stock.dtype:
        return False  # stock's own graphs promote where its eager kernels do not
    if not stock.is_floating_point():
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
        if _overlaps(x):
            copies.append(x)
            continue
        room = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) + 1
        flat = torch.zeros(max(room, 0), dtype=x.dtype) if x.numel() else x
        copy = flat.as_strided(x.shape, x.stride()) if x.numel() else x.clone()
        copies.append(copy.copy_(x))
    return copies


def _overlaps(x: torch.Tensor) -> bool:
    """Return whether elements share memory, as those of expanded tensors do."""
    return x.numel() > 0 and 0 in _strides(x)


def _same_sizes(some: Inputs, others: Inputs) -> bool:
    return all(x.shape == y.shape for x, y in zip(some, others, strict=True))


def _alike(error: Exception, other: Exception) -> bool:
    """Return whether whoever expects one of two errors may get the other."""
    return isinstance(error, type(other)) or isinstance(other, type(error))


def _type(x: torch.Tensor) -> str:
    return f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)}"


def _name(of: object) -> str:
    return f"{type(of).__name__}: "


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{_name(error)}{lines[-1] if lines else ''}"[:300]
