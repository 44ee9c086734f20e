"""Where graphs come from: each module here imports one kind of model and emits calls of plans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node


@dataclass(frozen=True)
class LeftOut:
    """Operators that stayed as they were, for one reason."""

    op: str
    reason: str
    count: int
    #: The lines of the model that they come from, as far as they are known: ``file:number: code``.
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class CallReport:
    """What runs as one in an optimised graph: a plan, or operators that were left out."""

    #: For each input of a plan, or each value that operators read, the call that makes it and the
    #: number of the result, both counted from 0; None for what the graph is given.
    reads: tuple[tuple[int, int] | None, ...]
    #: Which of the graph's plans it is; None for operators.
    plan: int | None = None
    #: The operators, of which there are several where Inductor compiles them.
    operators: tuple[str, ...] = ()


@dataclass(frozen=True)
class Optimized:
    """What a front end left in one method or graph of a model."""

    name: str
    #: The plans that it calls, those of submodules too, in the order of the calls.
    plans: tuple[Any, ...]
    #: None when nobody noted it: a method that has plans of a submodule, and none of its own.
    left_out: tuple[LeftOut, ...] | None
    #: Why and where Dynamo ended the graph; empty where it did not have to.
    graph_break: str = ""
    #: The order in which plans and what was left out run, where that is known.
    calls: tuple[CallReport, ...] = ()


def count_left_out(noted: Iterable[tuple[str, ...]]) -> tuple[LeftOut, ...]:
    """Return operators with their reasons, the most frequent first.

    Args:
        noted: of each operator its name, the reason, and its line if it is known.
    """
    found: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for op, why, *line in noted:
        found[op, why].append("".join(line))
    return tuple(
        LeftOut(op, why, len(lines), tuple(dict.fromkeys(filter(None, lines))))
        for (op, why), lines in sorted(found.items(), key=lambda item: -len(item[1]))
    )


def left_out(
    graphs: Iterable[Graph], hidden: Container[str] = ()
) -> Iterator[tuple[str, str, Node]]:
    """Yield each operator that stays outside of plans and says why, but those to be hidden."""
    return (
        (op, node.reason, node)
        for graph in graphs
        for node in graph.nodes
        for op in node.origin
        if node.reason and op not in hidden
    )


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
    raise TypeError(f"explain takes {kinds}, not an object of type {type(model).__name__}")
