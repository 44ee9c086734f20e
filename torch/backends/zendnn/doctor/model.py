"""Checks of a model: from what was observed to findings."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import nn
from torch.backends.zendnn._explain import explain
from torch.backends.zendnn.doctor.findings import HARMLESS, WORTH, Check, Finding
from torch.backends.zendnn.doctor.observe import (
    Loop,
    ModelCall,
    Operand,
    Operation,
    operations,
    subnormal,
)
from torch.backends.zendnn.doctor.trials import LARGER, Trial, attempt, flush_gain

Findings = Iterator[Finding]

#: The least part of a tensor that counts as full of subnormals.
_MANY = 0.01

#: Calls that are a loop.
_LOOP = 8

_COPIES = ("aten::clone", "aten::_to_copy", "aten::copy_", "aten::contiguous")

_TIME = "the model's time"


@dataclass(frozen=True)
class Observation:
    """What was seen of a model.

    Attributes:
        name: of its class.
        operations: of one call.
        batch: the first size of its inputs; None where they differ.
        loop: how the script called it.
        gradients: whether autograd recorded the call.
        training: whether the module is in training mode.
        weights: names of weights that are full of subnormals, with their part.
        left_out: what plans do not run: how often, the operator, why, and where.
        flush_gain: per cent that counting subnormals as 0 saves; None where it was not tried.
        trials: variants that were timed.
    """

    name: str
    operations: tuple[Operation, ...]
    batch: int | None = None
    loop: Loop = field(default_factory=Loop)
    gradients: bool = False
    training: bool = False
    weights: tuple[tuple[str, float], ...] = ()
    left_out: tuple[tuple[str, str, str, str], ...] = ()
    flush_gain: float | None = None
    trials: tuple[Trial, ...] = ()

    @property
    def ms(self) -> float:
        """The time of all operators."""
        return sum(operation.ms for operation in self.operations)

    def share(self, some: Iterable[Operation]) -> float:
        """Return the part of the time that some operators take, in per cent."""
        return 100 * sum(operation.ms for operation in some) / (self.ms or 1.0)

    def gain(self, name: str) -> float | None:
        """Return what a variant gains; None where it loses, or was not tried."""
        found = next((trial.gain for trial in self.trials if trial.name == name), None)
        return found if found and found > 0 else None


def observe(
    call: ModelCall, loop: Loop, measure: bool, tell: Callable[[str], None] = lambda text: None
) -> Observation:
    """Repeat a call, and return what can be seen.

    Args:
        call: the call, whose module keeps its weights.
        loop: how often it came.
        measure: whether to time variants.
        tell: is told what goes on.
    """
    tell("watching one call of the model")
    seen = operations(call)
    named = [*call.module.named_parameters(), *call.module.named_buffers()]
    weights = tuple((name, part) for name, x in named if (part := subnormal(x)) > _MANY)
    full = weights or any(operation.subnormal > _MANY for operation in seen)
    return Observation(
        name=_name(call.module),
        operations=seen,
        batch=call.batch,
        loop=loop,
        gradients=call.gradients,
        training=call.module.training,
        weights=weights,
        left_out=tuple(_left_out(call.module)),
        flush_gain=flush_gain(call) if measure and full else None,
        trials=attempt(call, tell) if measure else (),
    )


def _left_out(module: nn.Module) -> Iterator[tuple[str, str, str, str]]:
    """Yield what an optimised module does not run on plans."""
    try:
        methods = explain(module).methods
    except TypeError:  # another kind of module
        return
    for method in methods:
        for item in method.left_out or ():
            yield str(item.count), item.op, item.reason, ", ".join(item.lines[:2])
        for region in method.regions:
            for built in region.built:
                if built.refused:
                    yield "1", region.name, built.refused, str(built.inputs[0])
                for left in built.left_to_torch:
                    yield "1", "+".join(left.operator), left.reason, ""


def _name(module: nn.Module) -> str:
    return str(getattr(module, "original_name", type(module).__name__))


#: What mends a reason, by words of it.
_MENDS = {
    "gradient": "with torch.no_grad():",
    "dtype": "model.float()  # or .bfloat16(), with its inputs",
    "deterministic": "torch.backends.zendnn.deterministic = False",
    "inference mode": "with torch.no_grad():  # in place of torch.inference_mode()",
}


def fallbacks(seen: Observation) -> Findings:
    """Operators that ZenDNN leaves to torch."""
    by_reason: defaultdict[str, list[Operation]] = defaultdict(list)
    for operation in seen.operations:
        event = operation.event
        if event and event.route == "torch" and not HARMLESS.search(event.reason):
            by_reason[event.reason].append(operation)
    for reason, some in by_reason.items():
        if seen.share(some) >= WORTH and not any(map(_is_double, some)):
            yield Finding(
                f"{_names(some)} ran on torch's kernels: {reason}",
                _places(some),
                next(
                    (fix for word, fix in _MENDS.items() if word in reason),
                    "python -m torch.backends.zendnn  # for a report of what is missing",
                ),
                seen.share(some),
                _TIME,
            )


def double(seen: Observation) -> Findings:
    """Operators on float64."""
    some = [operation for operation in seen.operations if _is_double(operation)]
    if some:
        gain = seen.gain("float32")
        yield Finding(
            f"{_names(some)} compute in float64",
            _places(some),
            "model.float(), x.float()  # numpy's arrays are float64 by default",
            seen.share(some) if gain is None else gain,
            _TIME,
        )


def conversions(seen: Observation) -> Findings:
    """Copies to another dtype."""
    some = [
        operation
        for operation in _copies(seen)
        if operation.operands[-1].dtype != operation.results[0].dtype
    ]
    if seen.share(some) >= WORTH:
        pairs = Counter(f"{x.operands[-1].dtype} to {x.results[0].dtype}" for x in some)
        yield Finding(
            "tensors go from one dtype to another",
            f"{', '.join(pairs)}; {_places(some)}",
            "keep weights and inputs in one dtype",
            seen.share(some),
            _TIME,
        )


def ping_pong(seen: Observation) -> Findings:
    """Images that change between contiguous and channels-last more than once."""
    some = [operation for operation in _copies(seen) if _changes_layout(operation)]
    layouts = [operation.results[0].layout for operation in some]
    if sum(a != b for a, b in pairwise(layouts)) > 1:
        yield Finding(
            f"images change their layout {len(some)} times",
            f"to {', '.join(layouts[:4])}{' …' if layouts[4:] else ''}; {_places(some)}",
            "model.to(memory_format=torch.channels_last)  # and leave out .contiguous()",
            seen.share(some),
            _TIME,
        )


def copies(seen: Observation) -> Findings:
    """Copies that make tensors contiguous."""
    some = [
        operation
        for operation in _copies(seen)
        if operation.operands[-1].dtype == operation.results[0].dtype
        and operation.operands[-1].layout != operation.results[0].layout
        and not _changes_layout(operation)
    ]
    if seen.share(some) >= WORTH:
        yield Finding(
            "tensors are copied to be contiguous",
            _places(some),
            'torch.compile(model, backend="zendnn")  # or leave out .contiguous() and .clone()',
            seen.share(some),
            _TIME,
        )


def subnormals(seen: Observation) -> Findings:
    """Numbers so small that the CPU takes a detour."""
    some = [operation for operation in seen.operations if operation.subnormal > _MANY]
    if seen.weights or some:
        evidence = [f"{100 * part:.0f} % of {name}" for name, part in seen.weights[:3]]
        most = max(some, key=lambda operation: operation.subnormal, default=None)
        if most:
            evidence.append(f"{100 * most.subnormal:.0f} % of a result of {_names([most])}")
        yield Finding(
            "weights or results are subnormal",
            "; ".join(evidence),
            "torch.set_flush_denormal(True)  # before the first operator of each thread",
            seen.flush_gain,
            f"{_TIME} on one thread",
        )


def single(seen: Observation) -> Findings:
    """Batches of 1 in a loop."""
    if seen.batch == 1 and seen.loop.calls >= _LOOP:
        yield Finding(
            f"{seen.loop.calls} calls had a batch of 1",
            f"the inputs of {seen.name} have 1 row",
            "torch.utils.data.DataLoader(data, batch_size=8)  # or torch.cat(inputs)",
            seen.gain(f"batch x {LARGER}"),
            f"{_TIME}, with {LARGER} rows",
        )


def gradients(seen: Observation) -> Findings:
    """Gradients that nobody is going to ask for."""
    if seen.gradients and not seen.training:
        yield Finding(
            "gradients are recorded in eval mode",
            f"{seen.name} was called with torch.is_grad_enabled()",
            "with torch.no_grad():",
            seen.gain("no gradients"),
            _TIME,
        )


def training(seen: Observation) -> Findings:
    """Inference in training mode."""
    if seen.training and not seen.gradients:
        yield Finding(
            "the module is in training mode, and no gradients are recorded",
            f"{seen.name}.training is True: dropout and batch norm do as in training",
            "model.eval()",
        )


def waiting(seen: Observation) -> Findings:
    """Time between the calls."""
    loop = seen.loop
    if loop.calls >= _LOOP and not seen.training and loop.inside < 0.7 * loop.total:
        yield Finding(
            "the script spends time between the calls of its modules",
            f"{loop.inside:.2f} s of {loop.total:.2f} s were inside",
            "torch.utils.data.DataLoader(data, num_workers=2)  # or prepare data in a thread",
            100 * (1 - loop.inside / loop.total),
            "the loop's time",
        )


def _copies(seen: Observation) -> list[Operation]:
    return [
        operation
        for operation in seen.operations
        if operation.operator in _COPIES and operation.operands and operation.results
    ]


def _changes_layout(operation: Operation) -> bool:
    layouts = {operation.operands[-1].layout, operation.results[0].layout}
    return layouts == {"contiguous", "channels_last"}


def _is_double(operation: Operation) -> bool:
    event = operation.event
    return any(
        operand.dtype == torch.float64 and _elements(operand) > 1
        for operand in (*operation.operands, *operation.results)
    ) or (not operation.operands and event is not None and event.dtype == torch.float64)


def _elements(operand: Operand) -> int:
    return torch.Size(operand.sizes).numel()


def _names(some: Sequence[Operation]) -> str:
    names = Counter(operation.operator.removeprefix("aten::") for operation in some)
    counts = [f"{count} x {name}" if count > 1 else name for name, count in names.most_common(3)]
    return ", ".join(counts) + (" and others" if len(names) > 3 else "")


def _places(some: Sequence[Operation]) -> str:
    """Return the lines that called operators; without them, the sizes of the slowest."""
    places = Counter(operation.place for operation in some if operation.place)
    if places:
        few = places.most_common(3)
        return ", ".join(f"{place} ({count} x)" if count > 1 else place for place, count in few)
    slowest = max(some, key=lambda operation: operation.ms)
    shapes = slowest.event.shapes if slowest.event else [x.sizes for x in slowest.operands]
    return f"{_names([slowest])} of {', '.join('x'.join(map(str, shape)) for shape in shapes)}"


CHECKS: tuple[Check[Observation], ...] = (
    *(fallbacks, double, conversions, ping_pong, copies, subnormals, single, gradients),
    *(training, waiting),
)
