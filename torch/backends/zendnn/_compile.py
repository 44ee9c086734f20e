"""The backend of ``torch.compile(model, backend="zendnn")``.

A graph that Dynamo captured is made functional, with torch's own operators above autograd, and its
regions become calls of plans. Weights are inputs of such a graph. Plans take them for constants,
and are made anew once one has changed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, fx
from torch._functorch.aot_autograd import aot_export_module
from torch.backends.zendnn import _C
from torch.backends.zendnn import passes as engine_passes
from torch.backends.zendnn.frontends import fx as front_end
from torch.backends.zendnn.frontends.fx import autocast

log = logging.getLogger(__name__)

Compiled = Callable[..., Any]


@dataclass(frozen=True)
class Options:
    """What ``torch.compile(model, backend="zendnn", options={...})`` takes.

    Attributes:
        freeze: whether weights stay what they are: nobody looks whether one was written.
        passes: passes to switch on or off, by name (``torch.backends.zendnn.passes``).
    """

    freeze: bool = False
    passes: Mapping[str, bool] | None = None

    @staticmethod
    def of(given: Mapping[str, Any]) -> Options:
        """Return the options, checked.

        Raises:
            ValueError: for an option or a pass that there is not.
            TypeError: for a value of another type.
        """
        known = {spec.name for spec in fields(Options)}
        if unknown := given.keys() - known:
            raise ValueError(
                f"the backend zendnn has no option {min(unknown)!r}; "
                f"its options are {', '.join(sorted(known))}"
            )
        options = Options(**given)
        if not isinstance(options.freeze, bool):
            raise TypeError(f"the option 'freeze' is True or False, not {options.freeze!r}")
        for name, on in (options.passes or {}).items():
            engine_passes.is_enabled(name)
            if not isinstance(on, bool):
                raise TypeError(f"the pass {name!r} is switched by True or False, not {on!r}")
        return options


def zendnn(
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
        mode: torch.compile's; only None is taken.
        options: see ``Options``.

    Raises:
        ValueError: for a mode, and for an option that there is not.
    """
    if mode not in (None, "default"):
        raise ValueError(f"the backend zendnn has no modes: mode={mode!r} is not taken")
    chosen = Options.of(options or {})
    if not _C._get_zendnn_enabled():
        return module.forward
    wants_gradients = torch.is_grad_enabled() and any(
        isinstance(x, Tensor) and x.requires_grad for x in inputs
    )
    if wants_gradients:
        return module.forward
    try:
        return InferenceGraph.of(module, inputs, chosen)
    except Exception as error:
        # Such as an output that shares memory with an input that is written.
        log.info("a graph stays as it is: %s", error)
        return module.forward


class InferenceGraph:
    """A functional graph, optimised for the weights that it was called with last."""

    def __init__(
        self, graph: fx.GraphModule, weights: list[int], written: list[int], options: Options
    ) -> None:
        self.graph = graph
        #: The places of weights among the inputs.
        self.weights = weights
        #: The places of the inputs that take the first results.
        self.written = written
        self.options = options
        self._lock = threading.Lock()
        #: What the weights were, and the graph with their plans: as called last, and by weights.
        #: Dynamo calls one graph for all modules of a class.
        self._current: tuple[Any, fx.GraphModule] | None = None
        self._known: dict[tuple[int, ...], tuple[Any, fx.GraphModule]] = {}

    @staticmethod
    def of(module: fx.GraphModule, inputs: Sequence[Any], options: Options) -> InferenceGraph:
        """Return a graph of Dynamo's for inference.

        Raises:
            Exception: torch's own, where the graph cannot be made functional.
        """
        # torch would leave its stack of transforms as it was when it failed.
        if any("functorch" in str(getattr(n.target, "__module__", "")) for n in module.graph.nodes):
            raise RuntimeError("it transforms functions")
        with torch.no_grad():
            graph, signature = aot_export_module(
                module, list(inputs), trace_joint=False, pre_dispatch=True
            )
            if autocast.is_used(graph):
                autocast.make_explicit(graph)
        names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
        written = [names.index(name) for name in signature.user_inputs_to_mutate.values()]
        _check_aliases(module, written)
        weights = [
            place
            for place, given in enumerate(inputs)
            if place not in written and _is_weight(given)
        ]
        return InferenceGraph(graph, weights, written, options)

    def __call__(self, *given: Any) -> Any:
        current = self._current
        if current is None or not current[0].holds(given):
            current = self._current = self._find(given)
        results = current[1](*given)
        if not self.written:
            return results
        count = len(self.written)
        self._write(given, results[:count])
        return results[count:]

    def _find(self, given: tuple[Any, ...]) -> tuple[Any, fx.GraphModule]:
        """Return the graph for these weights, which is made if there is none."""
        key = tuple(id(given[place]) for place in self.weights)
        with self._lock:
            found = self._known.get(key)
            if found is None or not found[0].holds(given):
                over = [old for old, (snapshot, _) in self._known.items() if snapshot.is_over()]
                for old in over:
                    del self._known[old]
                found = self._known[key] = self._optimize(given)
        return found

    def _optimize(self, given: tuple[Any, ...]) -> tuple[Any, fx.GraphModule]:
        names = [node.name for node in self.graph.graph.nodes if node.op == "placeholder"]
        snapshot = _C._Snapshot(self.weights, given, self.options.freeze)
        constants = {names[place]: given[place].detach() for place in self.weights}
        with engine_passes.switched(self.options.passes or {}):
            return snapshot, front_end.optimize(self.graph, constants)

    def _write(self, given: Sequence[Any], results: Sequence[Tensor]) -> None:
        """Write results to the inputs that the model writes."""
        targets = [given[place] for place in self.written]
        # One may be another one's old value.
        fresh = [
            result.clone() if any(_share(result, other) for other in targets) else result
            for result in results
        ]
        for target, result in zip(targets, fresh, strict=True):
            target.copy_(result)


def _is_weight(given: Any) -> bool:
    """Whether Dynamo found an input in a module: a parameter or a buffer."""
    return isinstance(given, torch.nn.Parameter) or (
        isinstance(given, Tensor) and hasattr(given, "_dynamo_static_input_type")
    )


def _share(a: Tensor, b: Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def _check_aliases(module: fx.GraphModule, written: Sequence[int]) -> None:
    """Raise RuntimeError when an output shares memory with an input that is written.

    A functional graph would return a copy.
    """
    nodes = list(module.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    memory = {_memory(inputs[place]) for place in written}
    outputs: list[fx.Node] = []
    fx.map_arg(nodes[-1].args, outputs.append)
    if any(_memory(node) in memory for node in outputs):
        raise RuntimeError("an output shares memory with an input that is written")


def _memory(node: fx.Node) -> Any:
    made = node.meta.get("example_value")
    return made.untyped_storage()._cdata if isinstance(made, Tensor) else node
