"""``profiler.route``: sends chosen calls to ZenDNN or to torch's own kernels.

>>> route = torch.backends.zendnn.profiler.route
>>> print(route.measure(model, (x,), "route.json"))
>>> route.set_route_from_json("route.json")
>>> route.clear()
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.backends.zendnn._columns import table
from torch.backends.zendnn._files import write_atomic
from torch.backends.zendnn.observe.chart import operators_of
from torch.backends.zendnn.observe.events import Event, Recording
from torch.backends.zendnn.observe.routing import (
    FORMAT,
    REASON,
    VERSION,
    clear,
    set_route_from_json,
)

__all__ = ["Measured", "Timed", "clear", "measure", "set_route_from_json"]

#: torch's kernel is chosen for a call if it takes less than this part of ZenDNN's time.
_GAIN = 0.97

#: Runs of the module for the times of single calls, and rounds that compare routes, at least.
_RUNS = 5

Shapes = tuple[tuple[int, ...], ...]

#: An operator and the shapes of its input tensors.
Key = tuple[str, Shapes]
Route = dict[str, Any]


@dataclass(frozen=True)
class Timed:
    """The calls of one operator with the same shapes.

    Attributes:
        operator: torch's name; of a step of a plan, the first of those that it performs.
        shapes: of the input tensors.
        calls: in one run of the module.
        zendnn_ms: milliseconds of all of them on ZenDNN, in one run.
        torch_ms: on torch's own kernels; None where a plan cannot leave the operator to torch.
    """

    operator: str
    shapes: Shapes
    calls: int
    zendnn_ms: float
    torch_ms: float | None

    @property
    def is_faster_on_torch(self) -> bool:
        """Whether torch's own kernel gains something."""
        return self.torch_ms is not None and self.torch_ms < _GAIN * self.zendnn_ms


@dataclass(frozen=True)
class Measured:
    """What ``measure`` found.

    Attributes:
        route: the fastest one, for ``set_route_from_json``.
        calls: the longest first.
        ms: medians of a run, by route: ``'all on ZenDNN'``, ``'all on torch'`` and, where some
            calls are faster on torch, ``'by call'``.
    """

    route: Route
    calls: tuple[Timed, ...]
    ms: dict[str, float]

    @property
    def best(self) -> str:
        """The name of the fastest route."""
        return min(self.ms, key=self.ms.__getitem__)

    def __str__(self) -> str:
        """Return a table of the calls, and one of the routes."""
        rows = [("calls", "ZenDNN ms", "torch ms", "on", "operator", "of")]
        for x in self.calls:
            theirs = "" if x.torch_ms is None else f"{x.torch_ms:.3f}"
            on = "torch" if x.is_faster_on_torch else "ZenDNN"
            sizes = " ".join("x".join(map(str, shape)) for shape in x.shapes)
            rows.append((str(x.calls), f"{x.zendnn_ms:.3f}", theirs, on, x.operator, sizes))
        routes = [
            (f"{ms:.3f}", name, "the fastest" if name == self.best else "")
            for name, ms in self.ms.items()
        ]
        return "\n".join(
            [*table(rows, ">>><<<"), "", *table([("ms", "route", ""), *routes], "><<")]
        )


def measure(
    module: Callable[..., object],
    inputs: Sequence[object] | Mapping[str, object],
    file: str | os.PathLike[str] | None = None,
    *,
    seconds: float = 5.0,
) -> Measured:
    """Time each call of a module on ZenDNN and on torch's own kernels, and find the best route.

    The route by single calls is compared with all calls on ZenDNN and with all on torch, in turns:
    the fastest of the three is the result. The route that was set is cleared.

    Args:
        module: a module or function, as it will run: eager, compiled or optimised. It runs without
            gradients.
        inputs: its arguments, or a mapping of its named ones.
        file: where to write the best route.
        seconds: how long to compare routes, beside the times of single calls.
    """

    def run() -> float:
        start = time.perf_counter()
        module(**inputs) if isinstance(inputs, Mapping) else module(*inputs)
        return (time.perf_counter() - start) * 1e3

    clear()
    try:
        with torch.no_grad():
            calls = _time_calls(run)
            routes = {"all on ZenDNN": _route([])}
            routes["all on torch"] = _route([{"operator": "*", "offload": False}])
            if faster := [_rule((x.operator, x.shapes)) for x in calls if x.is_faster_on_torch]:
                routes["by call"] = _route(faster)
            ms = _compare(run, routes, seconds)
    finally:
        clear()
    measured = Measured(routes[min(ms, key=ms.__getitem__)], calls, ms)
    if file is not None:
        write_atomic(Path(file), json.dumps(measured.route, indent=1) + "\n")
    return measured


def _route(rules: list[dict[str, Any]]) -> Route:
    return {"format": FORMAT, "version": VERSION, "rules": rules}


def _rule(key: Key) -> dict[str, Any]:
    operator, shapes = key
    return {"operator": operator, "shapes": list(map(list, shapes)), "offload": False}


def _time_calls(run: Callable[[], object]) -> tuple[Timed, ...]:
    """Return the times of all calls that ZenDNN takes, the longest first."""
    run()
    ours = _by_key(_record(run), lambda event: event.route in ("plan", "eager"))
    eager = [key for key, events in ours.items() if all(x.route == "eager" for x in events)]
    # Eager calls do not depend on one another; a plan leaves a part of its operators at most.
    groups = [group for group in (eager, *([key] for key in ours if key not in eager)) if group]
    theirs: dict[Key, float] = {}
    for number, group in enumerate(groups, 1):
        if sys.stderr.isatty():
            print(f"\r{number} of {len(groups)} ", end="", file=sys.stderr, flush=True)
        set_route_from_json(_route([_rule(key) for key in group]))
        found = _by_key(_record(run), _is_left)
        theirs |= {key: _milliseconds(found[key]) for key in group if key in found}
    clear()
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    calls = [
        Timed(*key, len(x) // _RUNS, _milliseconds(x), theirs.get(key)) for key, x in ours.items()
    ]
    return tuple(sorted(calls, key=lambda call: -call.zendnn_ms))


def _record(run: Callable[[], object]) -> list[Event]:
    """Return the events of some runs; the one before them prepares what the route needs."""
    run()
    recording = Recording()
    for _ in range(_RUNS):
        run()
    recording.stop()
    return list(recording)


def _by_key(events: Iterable[Event], wanted: Callable[[Event], bool]) -> dict[Key, list[Event]]:
    """Return the events of operators; a step of a plan goes by the first that it performs."""
    found: dict[Key, list[Event]] = {}
    for event in filter(wanted, events):
        if _is_operator(name := event.operator.partition("+")[0]):
            found.setdefault((name, event.shapes), []).append(event)
    return found


def _is_left(event: Event) -> bool:
    """Return whether a route, or a plan that follows it, left the call to torch."""
    return event.reason == REASON or event.implementation.startswith("torch ")


@functools.cache
def _is_operator(name: str) -> bool:
    try:
        return bool(list(operators_of(name)))
    except ValueError:  # such as a reorder, which is no operator of the model
        return False


def _milliseconds(events: Sequence[Event]) -> float:
    """Return the time of a run's calls: by their median, since other programs disturb some."""
    return statistics.median(event.ms for event in events) * len(events) / _RUNS


def _compare(
    run: Callable[[], float], routes: Mapping[str, Route], seconds: float
) -> dict[str, float]:
    """Return the median time of a run with each route, in turns."""
    times: dict[str, list[float]] = {name: [] for name in routes}
    end = time.monotonic() + seconds
    while len(times["all on ZenDNN"]) <= _RUNS or time.monotonic() < end:
        for name, route in routes.items():
            set_route_from_json(route) if route["rules"] else clear()
            run()  # caches hold what the other route left
            times[name].append(run())
    return {name: statistics.median(ms[1:]) for name, ms in times.items()}
