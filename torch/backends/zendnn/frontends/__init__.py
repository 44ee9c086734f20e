"""Where graphs come from: each module here imports one kind of model and emits calls of plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch.backends.zendnn.graph import Graph


@dataclass(frozen=True)
class LeftOut:
    """Operators that stayed as they were, for one reason."""

    op: str
    reason: str
    count: int


@dataclass(frozen=True)
class Optimized:
    """What a front end left in one method or graph of a model."""

    name: str
    #: The plans that it calls, those of submodules too, in the order of the calls.
    plans: tuple[Any, ...]
    #: None when nobody noted it: a method that has plans of a submodule, and none of its own.
    left_out: tuple[LeftOut, ...] | None


def count_left_out(pairs: Iterable[tuple[str, str]]) -> tuple[LeftOut, ...]:
    """Return operators with their reasons, the most frequent first."""
    return tuple(LeftOut(op, why, count) for (op, why), count in Counter(pairs).most_common())


def left_out(graphs: Iterable[Graph], hidden: Container[str] = ()) -> list[tuple[str, str]]:
    """Return each operator that stays outside of plans and says why, but those to be hidden."""
    return [
        (op, node.reason)
        for graph in graphs
        for node in graph.nodes
        for op in node.origin
        if node.reason and op not in hidden
    ]


class FrontEnd(Protocol):
    """What the module of a front end offers to the rest."""

    #: The kind of model, for people.
    TAKES: str
    #: For those who ask a model that has no plan.
    HOW_TO_OPTIMIZE: str

    def takes(self, model: object) -> bool:
        """Return whether the model is of this front end's kind."""

    def optimized(self, model: Any) -> list[Optimized]:
        """Return the methods that ``optimize`` has seen, or that call plans of submodules."""


def optimize_frozen(module: Any, method_names: Sequence[str]) -> None:
    """Move what the engine takes of these methods of a frozen module into plans, in place."""
    # Not needed before somebody optimises a model.
    from torch.backends.zendnn.frontends import torchscript

    torchscript.optimize(module, method_names)


def front_end_of(model: object) -> FrontEnd:
    """Return the front end of a model's kind.

    Raises:
        TypeError: when there is none.
    """
    # Not needed before somebody optimises a model.
    from torch.backends.zendnn.frontends import fx, torchscript

    front_ends: tuple[FrontEnd, ...] = (torchscript, fx)
    for front_end in front_ends:
        if front_end.takes(model):
            return front_end
    kinds = " or ".join(front_end.TAKES for front_end in front_ends)
    raise TypeError(f"this takes {kinds}, and was given an object of type {type(model).__name__}")
