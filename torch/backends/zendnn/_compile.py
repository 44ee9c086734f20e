"""The backend of ``torch.compile(model, backend="zendnn")``.

AOTAutograd makes a functional graph of what Dynamo captured, without taking apart what the engine
has as one operator, and the graph's regions become calls of plans. Weights are inputs of such a
graph. Plans take them for constants, and are made anew once one has changed.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch._dynamo.exc import (
    RestartAnalysis,
    TensorifyScalarRestartAnalysis,
    exceptions_allowed_to_be_fallback,
)
from torch._dynamo.symbolic_convert import TensorifyState
from torch._functorch.aot_autograd import aot_module_simplified, get_aot_graph_name
from torch._guards import GuardSource, TracingContext
from torch.backends.zendnn import _C, _backend, _cache, _options
from torch.backends.zendnn.frontends import fx as front_end
from torch.backends.zendnn.frontends.fx.composites import DECOMPOSITIONS, whole_operators
from torch.backends.zendnn.frontends.fx.logs import Capture
from torch.backends.zendnn.frontends.fx.mutation import written_by
from torch.backends.zendnn.frontends.fx.rest import by_inductor
from torch.backends.zendnn.frontends.fx.writer import function_of
from torch.utils._python_dispatch import _disable_current_modes

log = logging.getLogger(__name__)

#: A buffer that was written or replaced before so many calls in a row is no weight.
MANY_CHANGES = 3

#: What lets a graph run on plans that does not.
_NO_GRAD = ": call it under torch.no_grad() for plans"

Compiled = Callable[..., Any]


class Mode(NamedTuple):
    """What a mode of ``torch.compile`` changes."""

    #: By what the seconds for timing implementations are multiplied.
    tuning: int
    #: The same for people.
    means: str


_AS_EVER = "calls of plans have little overhead in every mode"
_LONGER = "plans time implementations for longer"
#: torch's modes, as its other backends have them.
MODES = {
    "default": Mode(1, _AS_EVER),
    "reduce-overhead": Mode(1, _AS_EVER),
    "max-autotune": Mode(5, _LONGER),
    "max-autotune-no-cudagraphs": Mode(5, _LONGER),
}


@dataclass(frozen=True)
class Options(_options.Options):
    """What ``torch.compile(model, backend="zendnn", options={...})`` takes more than others do.

    Attributes:
        freeze: whether weights stay what they are: nobody looks whether one was written.
        rest: what runs between the regions, and graphs that record gradients: ``"inductor"``, or
            ``"eager"`` for torch's eager kernels. By default Inductor, where its C++ compiler is.
    """

    freeze: bool = False
    rest: str | None = None

    def check(self) -> None:
        """Raise ValueError or TypeError for a value that an option does not take."""
        super().check()
        if not isinstance(self.freeze, bool):
            raise TypeError(f"the option 'freeze' is True or False, not {self.freeze!r}")
        if self.rest not in (None, "inductor", "eager"):
            raise ValueError(f"the option 'rest' is 'inductor' or 'eager', not {self.rest!r}")

    @classmethod
    def of(cls, values: Mapping[str, Any] | None, mode: str | None = None) -> Options:
        """Return the options, checked, in a mode of ``torch.compile``.

        Raises:
            ValueError: for an option, a pass, a word or a mode that there is not.
            TypeError: for a value of another type.
        """
        options = super().of(values)
        known = MODES.get(mode or "default")
        if known is None:
            raise ValueError(
                f"the backend zendnn has no mode {mode!r}: call torch.compile without a mode, or "
                f"with one of {', '.join(map(repr, MODES))}"
            )
        if known.tuning == 1 or options.tune is not True:
            return options
        return replace(options, tune=known.tuning * _C._tuning_budget())

    @property
    def compiles_rest(self) -> bool:
        """Whether Inductor compiles what the engine leaves out."""
        return _has_compiler() if self.rest is None else self.rest == "inductor"


def compile_graph(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Compiled:
    """Compile a graph of Dynamo's; what the engine does not take runs on torch's eager kernels.

    Args:
        module: the graph, whose parameters and buffers are inputs.
        inputs: what it is called with first: tensors and symbolic integers.
        mode: torch.compile's, one of ``MODES``.
        options: see ``Options``.

    Raises:
        ValueError: for a mode or an option that there is not.
    """
    capture, checked = Capture.of(module), Options.of(options, mode)
    if mode is not None:
        log.info("mode=%r: %s", mode, MODES[mode].means)
    compiler: Callable[..., Any] = functools.partial(
        InferenceGraph.of, options=checked, capture=capture
    )
    if _cache.asks_for_graphs():
        compiler = _cache.cached(compiler, module, _cache.Key.of(_backend.zendnn, checked))
    wants_gradients = torch.is_grad_enabled() and any(
        isinstance(x, Tensor) and x.requires_grad for x in inputs
    )
    if wants_gradients and checked.compiles_rest:
        from torch._inductor.compile_fx import compile_fx  # slow

        log.info("Inductor compiles a graph, since it records gradients%s", _NO_GRAD)
        trained: Compiled = compile_fx(module, inputs)
        return trained
    if wants_gradients or not _C._get_zendnn_enabled():
        off = "ZenDNN is switched off: torch.backends.zendnn.flags(enabled=True) switches it on"
        why = f"it records gradients{_NO_GRAD}" if wants_gradients else off
        log.info("a graph stays as it is, since %s", why)
        return module.forward
    hold_numbers(module)
    try:
        with contextlib.nullcontext() if takes_gradients(module) else whole_operators():
            compiled: Compiled = aot_module_simplified(
                module,
                inputs,
                fw_compiler=compiler,
                inference_compiler=compiler,
                decompositions={**DECOMPOSITIONS},
                keep_inference_input_mutations=True,
            )
        return compiled
    except (RestartAnalysis, *exceptions_allowed_to_be_fallback):
        raise  # Dynamo captures the graph anew, or breaks it
    except Exception as error:
        log.warning(
            "a graph stays as it is, on eager operations (TORCH_LOGS=+aot shows where): %s", error
        )
        return module.forward


def hold_numbers(module: fx.GraphModule) -> None:
    """Let Dynamo guard and capture numbers of modules and globals, such as ε and ``math.pi``.

    For all sizes, it makes inputs of them, which no operator of the engine takes for numbers.

    Raises:
        TensorifyScalarRestartAnalysis: when there are any, for Dynamo to begin again.
    """
    found = set()
    for node in module.graph.nodes:
        number = getattr(node.meta.get("example_value"), "item_memo", None)
        source = getattr(node, "_dynamo_source", None)
        if number is None or source is None:
            continue
        place = source.guard_source
        if place.is_unspecialized_nn_module() or place is GuardSource.GLOBAL:
            found.add(str(number.node._expr))
    new = {name for name in found if not TensorifyState.should_specialize(name)}
    for name in new:
        TensorifyState.specialize(name)
    if new:
        raise TensorifyScalarRestartAnalysis


@functools.cache
def _has_compiler() -> bool:
    return shutil.which(os.environ.get("CXX", "g++")) is not None


#: What opens a transform that takes gradients, or asks for them.
_OF_GRADIENTS = frozenset(
    {"_grad_increment_nesting", "_jvp_increment_nesting", "grad", "backward", "requires_grad_"}
)


def takes_gradients(module: fx.GraphModule) -> bool:
    """Whether gradients are taken inside of a graph; operators that are kept whole have none."""
    graphs = (part.graph for part in module.modules() if isinstance(part, fx.GraphModule))
    targets = (node.target for graph in graphs for node in graph.nodes)
    return not _OF_GRADIENTS.isdisjoint(getattr(x, "__name__", x) for x in targets)


class _Made(NamedTuple):
    """A graph with plans, what the weights were that these are for, and what runs it."""

    snapshot: Any
    graph: fx.GraphModule
    run: Compiled


class InferenceGraph:
    """A functional graph, optimised for the weights that it was called with last."""

    #: Takes its inputs in a list, which it may empty.
    _boxed_call = True

    def __init__(
        self, graph: fx.GraphModule, weights: list[int], options: Options, capture: Capture
    ) -> None:
        self.graph = graph
        #: The places of weights among the inputs.
        self.weights = weights
        self.options = options
        self.capture = capture
        self._lock = threading.Lock()
        #: What was made for the weights as called last, and by weights: Dynamo calls one graph for
        #: all modules of a class.
        self._current: _Made | None = None
        self._known: dict[tuple[int, ...], _Made] = {}
        #: How many calls in a row found a change.
        self._changes = 0

    @staticmethod
    def of(
        graph: fx.GraphModule, inputs: Sequence[Any], *, options: Options, capture: Capture
    ) -> InferenceGraph:
        """Return a functional graph, which may end with copies to its inputs."""
        context = TracingContext.try_get()
        metadata = None if context is None else context.fw_metadata
        static = [] if metadata is None else metadata.static_input_indices
        placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        written = written_by(graph.graph)
        weights = [at for at in static if placeholders[at] not in written]
        capture = replace(capture, name=get_aot_graph_name())
        return InferenceGraph(graph, weights, options, capture)

    def __reduce__(self) -> tuple[Any, ...]:
        capture = replace(self.capture, compile_id=None, backend=None)  # of this process
        return InferenceGraph, (self.graph, self.weights, self.options, capture)

    def __call__(self, inputs: list[Any]) -> Any:
        arguments = tuple(inputs)
        inputs.clear()
        current = self._current
        if current is not None and current.snapshot.holds(arguments):
            self._changes = 0
        else:
            current = self._known.get(self._key(arguments))
            if current is None or not current.snapshot.holds(arguments):
                current = self._make(arguments)
            self._current = current
        return current.run(*arguments)

    def _make(self, arguments: tuple[Any, ...]) -> _Made:
        """Return the graph for weights that are new or changed; another thread may have made it."""
        with self._lock:
            found = self._known.get(self._key(arguments))
            if found is not None and found.snapshot.holds(arguments):
                return found
            before = found or self._with_other_buffers(arguments)
            if before is not None:
                self._changes += 1
                if self._changes >= MANY_CHANGES:
                    self._release(before.snapshot.changed(arguments), arguments)
            over = [key for key, old in self._known.items() if old.snapshot.is_over()]
            for old in over:
                del self._known[old]
            result = self._known[self._key(arguments)] = self._optimize(arguments)
        return result

    def _with_other_buffers(self, arguments: tuple[Any, ...]) -> _Made | None:
        """Return what was made for the same parameters, or for what is gone if there are none."""
        key = self._key(arguments)
        fixed = [
            i for i, at in enumerate(self.weights) if isinstance(arguments[at], torch.nn.Parameter)
        ]
        for old, result in self._known.items():
            if all(old[i] == key[i] for i in fixed) and (fixed or result.snapshot.is_over()):
                return result
        return None

    def _key(self, arguments: Sequence[Any]) -> tuple[int, ...]:
        return tuple(id(arguments[at]) for at in self.weights)

    def _release(self, places: Sequence[int], arguments: Sequence[Any]) -> None:
        """Take what changes with every call for no weight: a cache or a state of other graphs."""
        moving = {at for at in places if not isinstance(arguments[at], torch.nn.Parameter)}
        if moving:
            self.weights = [at for at in self.weights if at not in moving]
            log.info("taken for inputs, since every call changes them: %s", self._names(moving))
            self._known.clear()

    def _optimize(self, arguments: tuple[Any, ...]) -> _Made:
        names = [node.name for node in self._inputs()]
        snapshot = _C._Snapshot(self.weights, arguments, self.options.freeze)
        constants = {names[place]: arguments[place].detach() for place in self.weights}
        compile = by_inductor if self.options.compiles_rest else None
        # AOTAutograd makes the first call in a mode, in which each operation takes longer.
        with self.options.applied(), self.capture.inside(), _disable_current_modes():
            self._tell_changes(arguments)
            result = front_end.optimize(
                self.graph, constants, capture=self.capture, compile=compile
            )
        result.graph.owning_module = None  # in no cycle: what is replaced goes at once
        return _Made(snapshot, result, function_of(result))

    def _tell_changes(self, arguments: tuple[Any, ...]) -> None:
        if self._current is not None and log.isEnabledFor(logging.INFO):
            changed = self._names(self._current.snapshot.changed(arguments))
            log.info("%s: plans are made anew for other weights: %s", self.capture.name, changed)

    def _names(self, places: Iterable[int]) -> str:
        inputs = self._inputs()
        return ", ".join(self.capture.name_of(inputs[place]) for place in sorted(places))

    def _inputs(self) -> list[fx.Node]:
        return [node for node in self.graph.graph.nodes if node.op == "placeholder"]
