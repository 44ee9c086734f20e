"""Tries on the spot what would make a call faster."""

from __future__ import annotations

import copy
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.backends.zendnn.doctor.limits import best
from torch.backends.zendnn.doctor.observe import ModelCall
from torch.utils._pytree import tree_flatten

#: Seconds to time a variant for.
SECONDS = 0.5

#: How much larger a batch is tried.
LARGER = 8


@dataclass(frozen=True)
class Trial:
    """A variant of a call.

    Attributes:
        name: of the variant.
        code: what to write for it.
        ms: of a call; of a larger batch, of the part that is as large as the original.
        gain: per cent of the time that it saves; negative where it is slower.
        note: how its results differ, or why it could not be tried.
    """

    name: str
    code: str
    ms: float | None = None
    gain: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Variant:
    """A way to call a model.

    Attributes:
        make: returns the call; None where the variant is what the call does already.
        share: the part of a call that is as large as the original.
    """

    name: str
    code: str
    make: Callable[[ModelCall], Callable[[], Any] | None]
    share: float = 1.0


def attempt(call: ModelCall, tell: Callable[[str], None] = lambda text: None) -> tuple[Trial, ...]:
    """Time a call as it is, and in all variants that differ."""
    tell("timing the model as it is")
    expected = call()
    trials = [Trial("as it is", "", 1e3 * best(call, SECONDS), 0.0)]
    for number, variant in enumerate(VARIANTS, 1):
        tell(f"trying {variant.name} ({number} of {len(VARIANTS)})")
        if trial := _attempt(call, variant, expected):
            trials.append(trial)
    return tuple(trials)


def _attempt(call: ModelCall, variant: Variant, expected: object) -> Trial | None:
    """Time a variant between two timings of the call as it is, since other load comes and goes."""
    trial = Trial(variant.name, variant.code)
    threads = torch.get_num_threads()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.no_grad():
                run = variant.make(call)
                if run is None:
                    return None
                note = _difference(expected, run())
                chosen = torch.get_num_threads()
                torch.set_num_threads(threads)
                before = best(call, SECONDS / 2)
                torch.set_num_threads(chosen)
                ms = 1e3 * best(run, SECONDS) * variant.share
            torch.set_num_threads(threads)
            now = 1e3 * min(before, best(call, SECONDS / 2))
    except Exception as error:  # whatever a foreign model raises is no failure of the doctor's
        reason = str(error).strip().partition("\n")[0]
        return replace(trial, note=textwrap.shorten(f"fails: {reason}", 60, placeholder=" …"))
    finally:
        torch.set_num_threads(threads)
    return replace(trial, ms=ms, gain=100 * (1 - ms / now), note=note)


def _difference(expected: object, got: object) -> str:
    """Tell how the largest difference relates to the largest value, where one can see it."""
    pairs = [
        (a.detach().double(), b.detach().double())
        for a, b in zip(tree_flatten(expected)[0], tree_flatten(got)[0], strict=False)
        if isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape and a.numel()
    ]
    largest = max((float(a.abs().max()) for a, _ in pairs), default=0.0)
    difference = max((float((a - b).abs().max()) for a, b in pairs), default=0.0)
    return f"results differ by {100 * difference / largest:.2g} %" if difference and largest else ""


def flush_gain(call: ModelCall) -> float:
    """Return what a call saves on one thread if subnormals count as 0, in per cent.

    torch sets this for the thread that calls; those that OpenMP has started keep theirs.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        before = best(call, SECONDS)
        torch.set_flush_denormal(True)
        return max(0.0, 100 * (1 - best(call, SECONDS) / before))
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)


# The variants. Gradients are not recorded in any.


def _quiet(call: ModelCall) -> ModelCall:
    return replace(call, gradients=False)


def _without_gradients(call: ModelCall) -> Callable[[], Any] | None:
    return _quiet(call) if call.gradients else None


def _is_script(call: ModelCall) -> bool:
    return isinstance(call.module, torch.jit.ScriptModule)


def _frozen(call: ModelCall) -> Callable[[], Any] | None:
    call = _quiet(call)
    with call.settings():
        module = copy.copy(call.module).eval()
        if not _is_script(call):
            module = torch.jit.trace(
                module, call.arguments, example_kwarg_inputs=call.keywords or None, strict=False
            )
        result = torch.jit.optimize_for_inference(torch.jit.freeze(module))
    return replace(call, module=result)


def _compiled(call: ModelCall) -> Callable[[], Any] | None:
    if _is_script(call) or isinstance(call.module, torch._dynamo.OptimizedModule):
        return None
    return replace(_quiet(call), module=torch.compile(call.module, backend="zendnn"))


def _bfloat16(call: ModelCall) -> Callable[[], Any] | None:
    return None if call.autocast else replace(_quiet(call), autocast=torch.bfloat16)


def _compiled_bfloat16(call: ModelCall) -> Callable[[], Any] | None:
    lower = _bfloat16(call)
    return _compiled(lower) if isinstance(lower, ModelCall) else None


def _converted(call: ModelCall, module: nn.Module, change: Callable[[Tensor], Tensor]) -> ModelCall:
    arguments, keywords = call.mapped(change)
    return replace(_quiet(call), module=module, arguments=arguments, keywords=keywords)


def _float32(call: ModelCall) -> Callable[[], Any] | None:
    tensors = [*call.tensors, *call.module.parameters(), *call.module.buffers()]
    if not any(tensor.dtype == torch.float64 for tensor in tensors):
        return None
    module = copy.deepcopy(call.module).float()
    return _converted(call, module, lambda x: x.float() if x.dtype == torch.float64 else x)


def _channels_last(call: ModelCall) -> Callable[[], Any] | None:
    images = [tensor for tensor in call.tensors if tensor.dim() == 4]
    last = {"memory_format": torch.channels_last}
    if not images or all(image.is_contiguous(**last) for image in images) or _is_script(call):
        return None
    module = copy.deepcopy(call.module).to(**last)
    return _converted(call, module, lambda x: x.contiguous(**last) if x.dim() == 4 else x)


def _larger_batch(call: ModelCall) -> Callable[[], Any] | None:
    batch = call.batch
    if not batch:
        return None

    def repeated(x: Tensor) -> Tensor:
        if x.dim() < 2 or x.shape[0] != batch:
            return x
        return x.repeat(LARGER, *[1] * (x.dim() - 1))

    return _converted(call, call.module, repeated)


def _half_of_the_threads(call: ModelCall) -> Callable[[], Any] | None:
    threads = torch.get_num_threads() // 2
    if not threads:
        return None
    torch.set_num_threads(threads)
    return call


VARIANTS = (
    Variant("no gradients", "with torch.no_grad():", _without_gradients),
    Variant(
        "frozen",
        "torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(model, x)))",
        _frozen,
    ),
    Variant("compiled", 'torch.compile(model, backend="zendnn")', _compiled),
    Variant("bfloat16", 'with torch.autocast("cpu", torch.bfloat16):', _bfloat16),
    Variant("compiled, bfloat16", "both", _compiled_bfloat16),
    Variant("float32", "model.float(), x.float()", _float32),
    Variant("channels last", "model.to(memory_format=torch.channels_last)", _channels_last),
    Variant(f"batch x {LARGER}", "x of more rows", _larger_batch, 1 / LARGER),
    Variant("half of the threads", "torch.set_num_threads(…)", _half_of_the_threads),
)
