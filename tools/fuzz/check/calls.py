"""Calls of a model, and what stock's eager mode returns or raises at each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .front_ends import FrontEnd, stock_kernels
from .source import read_weights, turned, write_weights
from .tensors import Inputs, Memory, Results, Weights, are_close, copies_of, memory_of, overlaps


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
                if not overlaps(x) and x.untyped_storage().data_ptr() not in weights:
                    x.fill_(1)
            self._kept = []
        if step.turn:
            write_weights(self._module, turned(read_weights(self._module)))
        # Its own, which may differ from stock's by rounding: results may be views of them.
        copied = self._run is not self._module and isinstance(self._run, torch.nn.Module)
        modules = [self._module, self._run] if copied else [self._module]
        self._before = [(module, read_weights(module)) for module in modules]

    def restore(self) -> None:
        """Give the model the weights from before a call that may have written some of them."""
        for module, weights in self._before:
            write_weights(module, weights)

    def call(self, step: Step) -> Outcome:
        """Call the model; raise what it raises."""
        arguments = copies_of(step.inputs)
        results = self._run(*arguments)
        memory = memory_of(results, (*arguments, *self._module.buffers()))
        moved = frozenset(i for i, (x, copy) in enumerate(self._kept) if not are_close(x, copy))
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


def steps_of(runs: Sequence[Inputs], weights: Weights, way: FrontEnd) -> Iterator[Step]:
    """Yield a call for each set of inputs, then the first again, after what its caller does."""
    for number, inputs in enumerate(runs):
        yield Step(f"inputs {number}", inputs)
    yield Step("inputs 0 again", runs[0], overwrite=not way.keeps_constants)
    if way.as_eager and weights:
        yield Step("other weights", runs[0], turn=True)


def calls_of(steps: Iterator[Step], module: torch.nn.Module) -> Iterator[Call]:
    """Yield what stock returns or raises at each step; an error leaves the weights as they were."""
    session = Session(module, module)
    for step in steps:
        session.prepare(step)
        weights = read_weights(module)
        try:
            with stock_kernels(), torch.no_grad():
                expected: Outcome | Exception = session.call(step)
        except Exception as error:
            expected = error.with_traceback(None)
            session.restore()
        yield Call(step, weights, expected)
