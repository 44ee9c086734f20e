"""``python -m torch.backends.zendnn replay``: runs the calls of a kernel log again."""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.backends.zendnn._columns import table
from torch.backends.zendnn.kernel_logger import FORMAT, VERSION
from torch.backends.zendnn.table.dtypes import DTYPES

#: How long each side of a call is timed, in seconds, and how often at least.
_SECONDS, _RUNS = 0.05, 3

#: By how much answers may differ, as a part of the largest number: the sum of many roundings.
_TOLERANCES = {getattr(torch, name): row.tolerance for name, row in DTYPES.items() if row.kernel}

_HEAD = ("calls", "ours ms", "stock ms", "ratio", "logged ms", "differ", "", "operator", "of")

Json = Mapping[str, Any]
Function = Callable[[], object]


class ReplayError(Exception):
    """A log that cannot be replayed, said in one sentence."""


class CallError(Exception):
    """A call that cannot be run again, with the reason."""


@dataclass(frozen=True)
class Outcome:
    """How a call did: ZenDNN's time and stock torch's, and by how much their answers differ."""

    ours_ms: float
    stock_ms: float
    difference: float
    agrees: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay the log that the command line names; return 1 where an answer differs, 2 on errors."""
    parser = argparse.ArgumentParser(
        prog="python -m torch.backends.zendnn replay",
        description="Run the calls of a kernel log again, on random data: compare the answers "
        "with stock torch's, and time both.",
    )
    parser.add_argument("log", type=Path, help="what kernel_logger.json() returned")
    parser.add_argument("--seed", type=int, default=0, help="of the random data; default: 0")
    options = parser.parse_args(arguments)
    try:
        log = read(options.log)
    except ReplayError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if log.get("threads") != torch.get_num_threads():
        now = f"{torch.get_num_threads()} threads run"
        print(f"the log is of {log.get('threads')} threads; {now} now", file=sys.stderr)
    rows, right = _replay(log["calls"], options.seed)
    print(*table(rows, ">>>>>><<<"), sep="\n")
    return 0 if right else 1


def read(path: Path) -> dict[str, Any]:
    """Read a log.

    Raises:
        ReplayError: if there is none, or it is of another version.
    """
    try:
        log = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReplayError(f"cannot read {path}: {error}") from error
    if not isinstance(log, dict) or log.get("format") != FORMAT:
        raise ReplayError(f"{path} is no kernel log: save what kernel_logger.json() returns")
    if log.get("version") != VERSION:
        raise ReplayError(
            f"{path} is a log of version {log.get('version')}: record it anew, since this build "
            f"reads version {VERSION}"
        )
    if not isinstance(log.get("calls"), list):
        raise ReplayError(f"{path} has no calls: record it anew")
    return log


def _replay(calls: Sequence[Json], seed: int) -> tuple[list[tuple[str, ...]], bool]:
    """Run all calls, equal ones once; return the table, and whether all answers agree."""
    counts = Counter(_key(call) for call in calls)
    distinct = {_key(call): call for call in calls}
    rows: list[tuple[str, ...]] = [_HEAD]
    right = True
    for number, (key, call) in enumerate(distinct.items(), 1):
        if sys.stderr.isatty():
            print(f"\r{number} of {len(distinct)} ", end="", file=sys.stderr, flush=True)
        row = (str(counts[key]),)
        named = (str(call.get("operator")), _sizes(call))
        logged = f"{call.get('ms', 0.0):.3f}"
        try:
            outcome = replay(call, seed)
        except CallError as error:
            rows.append((*row, "", "", "", logged, "", f"not run: {error}", *named))
            continue
        right &= outcome.agrees
        times = (outcome.ours_ms, outcome.stock_ms)
        ratio = f"{times[0] / times[1]:.2f}" if times[1] else ""
        shown = (*(f"{ms:.3f}" for ms in times), ratio, logged, f"{outcome.difference:.0e}")
        rows.append((*row, *shown, "same" if outcome.agrees else "WRONG", *named))
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    return rows, right


def _key(call: Json) -> str:
    """Return what calls have in common that compute the same on other data."""
    return json.dumps([call.get(name) for name in ("operator", "operands", "attributes")])


def _sizes(call: Json) -> str:
    found = []
    for operand in call.get("operands", ()):
        types = operand.get("list", [operand])
        found += ["x".join(map(str, x["shape"])) or "1" for x in types if x]
    dtypes = [x["dtype"] for x in call.get("operands", ()) if "dtype" in x]
    return " ".join([*dtypes[:1], *found])


def replay(call: Json, seed: int = 0) -> Outcome:
    """Run a call of a log on ZenDNN and on stock torch.

    Raises:
        CallError: where it cannot be run on random data.
    """
    make = _region if "description" in call.get("attributes", {}) else _operator
    try:
        with torch.no_grad():
            # Each side has its own data, since operators may write to it.
            ours, stock = make(call, seed, stock=False), make(call, seed, stock=True)
            answers = _answers(ours, seed)
            with _stock():
                expected = _answers(stock, seed)
            difference, agrees = _compare(answers, expected)
            return Outcome(*_times(ours, stock), difference, agrees)
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise CallError(next(iter(str(error).splitlines()), type(error).__name__)) from error


def _stock() -> contextlib.AbstractContextManager[None]:
    context: contextlib.AbstractContextManager[None] = torch.backends.zendnn.flags(enabled=False)
    return context


def _operator(call: Json, seed: int, *, stock: bool) -> Function:
    """Return a function that calls an operator on random data."""
    del stock  # the switch decides
    name, _, overload = call["operator"].partition(".")
    namespace, _, short = name.partition("::")
    try:
        operator = getattr(getattr(getattr(torch.ops, namespace), short), overload or "default")
    except AttributeError:
        raise CallError("this torch has no such operator") from None
    random = _Random(seed, call["operands"])
    operands = {x["name"]: random.operand(x) for x in call["operands"] if "name" in x}
    arguments: list[Any] = []
    named: dict[str, Any] = {}
    for argument in operator._schema.arguments:
        value = operands.get(argument.name)
        if argument.name not in operands:
            value = _value(call["attributes"].get(argument.name), str(argument.type))
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            arguments.append(value)
    return lambda: operator(*arguments, **named)


def _value(value: Any, kind: str) -> Any:
    """Return an attribute as its type has it: JSON has no infinities."""
    if isinstance(value, str) and ("float" in kind or "number" in kind):
        return float(value)
    return value


def _region(call: Json, seed: int, *, stock: bool) -> Function:
    """Return a function that runs a region: its plan, or its operators on stock torch."""
    attributes = call["attributes"]
    random = _Random(seed, [*call["operands"], *attributes["constants"]])
    inputs = [random.tensor(x) for x in call["operands"]]
    constants = [random.tensor(x) for x in attributes["constants"]]
    name = call["operator"].removeprefix("zendnn::")
    plan = torch.classes.zendnn.Plan(attributes["description"], constants, name)
    numbers = list(attributes["numbers"])
    if stock:
        return lambda: plan.interpret(inputs, numbers)
    if not plan.takes(inputs, numbers):
        raise CallError("the plan does not take it here")
    return lambda: plan.run(inputs, numbers)


class _Random:
    """Random data of given types."""

    def __init__(self, seed: int, operands: Sequence[Json]) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        # Integers may be indices into any dimension of the others.
        types = [x for operand in operands for x in operand.get("list", [operand]) if x]
        others = [size for x in types if "int" not in x["dtype"] for size in x["shape"] if size]
        self._bound = min(others, default=2)

    def operand(self, operand: Json) -> Any:
        if "list" in operand:
            return [x and self.tensor(x) for x in operand["list"]]
        return self.tensor(operand)

    def tensor(self, of: Json) -> Tensor:
        dtype = getattr(torch, of["dtype"])
        shape, strides = of["shape"], of["strides"]
        spread = zip(shape, strides, strict=True)
        count = 1 + sum((size - 1) * stride for size, stride in spread) if all(shape) else 0
        name = of.get("name", "")
        if dtype == torch.bool:
            memory = torch.rand(count, generator=self._generator) < 0.5
        elif not (dtype.is_floating_point or dtype.is_complex):
            memory = torch.randint(self._bound, (count,), generator=self._generator)
            memory = memory.sort().values - memory.min() if name == "offsets" and count else memory
        elif "var" in name:  # of which roots are taken
            memory = torch.rand(count, generator=self._generator)
        else:
            memory = torch.randn(count, generator=self._generator)
        return memory.to(dtype).as_strided(shape, strides)


def _answers(function: Function, seed: int) -> list[Tensor]:
    """Return copies of the tensors that a call returns, since further calls may change them."""
    torch.manual_seed(seed)  # dropout draws the same
    return [x.clone() for x in _tensors(function())]


def _tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for element in value:
            yield from _tensors(element)


def _compare(ours: Sequence[Tensor], stock: Sequence[Tensor]) -> tuple[float, bool]:
    """Return the largest difference as a part of the largest number, and whether it is rounding."""
    if [(x.shape, x.dtype) for x in ours] != [(x.shape, x.dtype) for x in stock]:
        return float("inf"), False
    worst, agrees = 0.0, True
    for a, b in zip(ours, stock, strict=True):
        if not b.numel():
            continue
        if not b.is_floating_point():
            agrees &= torch.equal(a, b)
            continue
        x, y = a.double(), b.double()
        finite = y.isfinite()
        same = torch.equal(x.isnan(), y.isnan()) and torch.equal(x.isinf(), y.isinf())
        largest = y[finite].abs().max().item() if finite.any() else 0.0
        most = (x - y)[finite].abs().max().item() if finite.any() else 0.0
        share = most / largest if largest else most
        agrees &= same and share <= _TOLERANCES.get(b.dtype, 1e-9)
        worst = max(worst, share)
    return worst, agrees


def _times(ours: Function, stock: Function) -> tuple[float, float]:
    """Return the medians of ZenDNN's times and of stock torch's, in milliseconds, in turns."""
    times: tuple[list[float], list[float]] = ([], [])
    while len(times[0]) < _RUNS or sum(times[0]) + sum(times[1]) < 2 * _SECONDS:
        times[0].append(_time(ours))
        with _stock():
            times[1].append(_time(stock))
    return statistics.median(times[0]) * 1e3, statistics.median(times[1]) * 1e3


def _time(function: Function) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
