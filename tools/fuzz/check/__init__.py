"""Check a model on each front end against stock torch; float64 decides where the two differ.

This package imports only torch, since each find's folder has a copy of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch

from .calls import Call, Outcome, Session, calls_of, steps_of
from .compare import branches_by_rounding, compare
from .front_ends import FRONT_ENDS, FrontEnd, lightest, stock_kernels
from .source import Code, model_of, write_weights
from .tensors import Inputs, Weights, are_close, copies_of, have_same_sizes, lower_of, strides_of


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


def check(code: Code, weights: Weights, runs: Sequence[Inputs], front_end: str) -> Verdict:
    """Run a model on a front end with each set of inputs, and with the first one again.

    The model computes in the dtype of its weights or inputs: float32 or bfloat16. Before the last
    calls, the caller writes to the results, and some front ends get other weights.
    """
    lower, way = lower_of(weights.values(), runs), FRONT_ENDS[front_end]
    calls = list(calls_of(steps_of(runs, weights, way), model_of(code, weights, lower)))
    with lightest(), torch.no_grad(), warnings.catch_warnings(), way.around() as refusals:
        warnings.simplefilter("ignore")
        return _Check(code, calls, lower, front_end).verdict(refusals)


def run_alone(
    code: Code, weights: Weights, runs: Sequence[Inputs], front_end: str, *, stock: bool
) -> None:
    """Run stock's graph of a model, or ours, with each set of inputs, and compare nothing.

    Its caller sees how long that takes, and whether it ends the process.
    """
    lower, way = lower_of(weights.values(), runs), FRONT_ENDS[front_end]
    module = model_of(code, weights, lower)
    off = stock_kernels() if stock else nullcontext()
    with off, torch.no_grad(), warnings.catch_warnings(), way.around():
        warnings.simplefilter("ignore")
        try:
            if stock:
                result = (way.graph or way.stock)(module, runs[0])
            else:
                result = way.ours(way.stock(module, runs[0]))
            for inputs in runs:
                result(*copies_of(inputs))
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
            with stock_kernels():
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
        module = model_of(self.code, self._first.weights, self.lower)
        graph = prepare(module, self._first.step.inputs)
        write_weights(module, self._first.weights)
        return graph, module

    def _tried(self, module: torch.nn.Module, inputs: Inputs) -> Any:
        """Return stock's graph after a call: freezing makes constants of tensors that it writes."""
        graph = self.way.stock(module, inputs)
        if isinstance(self._first.expected, Outcome):
            graph(*copies_of(inputs))
        return graph

    def _outcomes(self) -> Iterator[Outcome | Exception]:
        """Yield what stock's graph of the model returns or raises at each call."""
        try:
            with stock_kernels():
                session = Session(*self._prepared(self.way.graph or self._tried))
        except Exception as error:
            failed = error.with_traceback(None)
            yield from (failed for _ in self.calls)
            return
        for call in self.calls:
            session.prepare(call.step)
            try:
                with stock_kernels():
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
            if outcome == "raises" or is_first:
                return self._says("refused", _line(theirs)) if is_first else None
            raises = f"{call.step.name}: stock's graph raises {_line(theirs)}"
            return self._settled(self._says("accepts", raises), call)
        if outcome == "memory" and self._is_torchs_memory(call, call.expected, theirs):
            return None
        pairs = zip(theirs.results, call.expected.results, strict=True)
        if not all(are_close(one, other, self.lower) for one, other in pairs):
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
        if not have_same_sizes(call.step.inputs, self._first.step.inputs):
            return True
        # Where several operators raise, compiled ones may run in another order.
        with stock_kernels():
            errors = self.code.errors(self.lower, call.weights, call.step.inputs)
        return any(detail.startswith(_name(error)) for error in (theirs, *errors))

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
        if branched and branches_by_rounding(self.code, call, self.lower):
            return replace(find, outcome="unstable")
        return find

    def _planned(self, graph: Any, refusals: list[str]) -> Verdict:
        """Return the verdict on a model that does as stock: which plans it ran, and how."""
        if not self.way.plans or isinstance(self._first.expected, Exception):
            return self._says("same")
        # With the weights of the last call, it may raise as stock does.
        with torch.backends.zendnn.record() as events, suppress(Exception):
            graph(*copies_of(self._first.step.inputs))
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
    if different := compare(code, call, expected, got.results, lower):
        return different
    if way.as_eager and got.memory != expected.memory:
        return "memory", f"results have {got.memory}, of stock {expected.memory}"
    if changed := got.moved - expected.moved:
        return "memory", f"it changes result {min(changed)} of the earlier calls"
    return None


def _foretold(code: Code, call: Call, lower: torch.dtype) -> list[tuple[int, ...]] | None:
    """Return the strides of results that torch's fake tensors foretell.

    None where torch itself notices that they are unlike the real ones.
    """
    import torch._functorch.config as config  # these are slow
    from torch._subclasses.fake_tensor import FakeTensorMode, MetadataMismatchError
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    module, arguments = model_of(code, call.weights, lower), copies_of(call.step.inputs)
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
        return [strides_of(x) for x in results]


def _alike(error: Exception, other: Exception) -> bool:
    """Return whether whoever expects one of two errors may get the other."""
    return isinstance(error, type(other)) or isinstance(other, type(error))


def _name(of: object) -> str:
    return f"{type(of).__name__}: "


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{_name(error)}{lines[-1] if lines else ''}"[:300]
