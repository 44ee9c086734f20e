"""Runs a model, or a script, and sees what its operators do."""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.backends.zendnn.observe.events import Event, Recording, record
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

#: Dtypes that have subnormals which matter.
_FLOATS = (torch.float32, torch.float64, torch.bfloat16)

#: How often a call is watched; the shortest time of each operator counts.
_PASSES = 3

_LAYOUTS = {
    torch.contiguous_format: "contiguous",
    torch.channels_last: "channels_last",
    torch.channels_last_3d: "channels_last",
}


@dataclass(frozen=True)
class Operand:
    """A tensor: dtype, sizes, and its layout: contiguous, channels_last, or other."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    layout: str

    @classmethod
    def of(cls, tensor: Tensor) -> Operand:
        """Describe a tensor."""
        fits = (
            name
            for kind, name in _LAYOUTS.items()
            if tensor.layout == torch.strided
            and (kind == torch.contiguous_format or tensor.dim() == 4 + (name == "3d"))
            and tensor.is_contiguous(memory_format=kind)
        )
        return cls(tensor.dtype, tuple(tensor.shape), next(fits, "other"))


@dataclass(frozen=True)
class Operation:
    """A call of an operator.

    Attributes:
        operator: its name, such as ``"aten::mm"``.
        ms: its time.
        operands, results: its tensors.
        events: what ZenDNN tells of it.
        subnormal: the part of the results' elements that is subnormal.
        place: the line of Python that called it.
    """

    operator: str
    ms: float
    operands: tuple[Operand, ...] = ()
    results: tuple[Operand, ...] = ()
    events: tuple[Event, ...] = ()
    subnormal: float = 0.0
    place: str = ""

    @classmethod
    def of(cls, event: Event) -> Operation:
        """Return what an event alone tells."""
        return cls(event.operator, event.ms, events=(event,))

    @property
    def event(self) -> Event | None:
        """The event of the operator itself, which comes after those that it calls."""
        return self.events[-1] if self.events else None


@dataclass(frozen=True)
class ModelCall:
    """A call of a module that one may repeat.

    Attributes:
        gradients: whether autograd recorded it.
        autocast: the dtype of autocast; None without.
    """

    module: nn.Module
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any] = field(default_factory=dict)
    gradients: bool = False
    autocast: torch.dtype | None = None

    def __call__(self) -> Any:
        """Repeat the call."""
        with self.settings():
            return self.module(*self.arguments, **self.keywords)

    @contextlib.contextmanager
    def settings(self) -> Iterator[None]:
        """Set gradients and autocast as they were."""
        lower = torch.autocast("cpu", self.autocast or torch.bfloat16, bool(self.autocast))
        with torch.set_grad_enabled(self.gradients), lower:
            yield

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors among the arguments."""
        return _tensors((self.arguments, dict(self.keywords)))

    @property
    def batch(self) -> int | None:
        """The first size of all tensors that have several; None if they differ."""
        sizes = {tensor.shape[0] for tensor in self.tensors if tensor.dim() > 1}
        return sizes.pop() if len(sizes) == 1 else None

    def mapped(self, change: Callable[[Tensor], Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with other tensors."""
        return tree_map_only(Tensor, change, (self.arguments, dict(self.keywords)))


def operations(call: ModelCall) -> tuple[Operation, ...]:
    """Run a call again, and return what its operators did, in order."""
    call()  # preparation is not the model's time
    with record() as events:
        call()
    watched = [_watched(call) for _ in range(_PASSES)]
    routes = {event.route for operation in watched[0] for event in operation.events}
    if "plan" not in routes and any(event.route == "plan" for event in events):
        # Dynamo does not run what it has compiled where somebody looks.
        return tuple(map(Operation.of, events))
    if len({tuple(operation.operator for operation in seen) for seen in watched}) > 1:
        return watched[-1]
    return tuple(
        min(same, key=lambda operation: operation.ms) for same in zip(*watched, strict=True)
    )


def _watched(call: ModelCall) -> tuple[Operation, ...]:
    with Watch() as watch:
        call()
    return tuple(watch.seen)


class Watch(TorchDispatchMode):
    """Sees each operator that torch dispatches, with ZenDNN's events of it, and steps of plans."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Operation] = []

    def __enter__(self) -> Watch:
        self._recording = Recording()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.seen += map(Operation.of, self._recording)
        self._recording.stop()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operator, and take down what it did."""
        self.seen += map(Operation.of, self._recording)  # plans run without torch's dispatcher
        operands = tuple(_operands((args, kwargs)))
        self._recording.clear()
        start = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        ms = 1e3 * (time.perf_counter() - start)
        name = str(func.name()).partition(".")[0]
        self.seen.append(
            Operation(
                name,
                ms,
                operands,
                tuple(_operands(result)),
                tuple(self._recording),
                0.0 if "empty" in name else max(map(subnormal, _tensors(result)), default=0.0),
                _place(),
            )
        )
        self._recording.clear()
        return result


def _tensors(items: object) -> list[Tensor]:
    return [x for x in tree_flatten(items)[0] if isinstance(x, Tensor)]


def _operands(items: object) -> Iterator[Operand]:
    return map(Operand.of, _tensors(items))


@torch.no_grad()
def subnormal(tensor: Tensor) -> float:
    """Return the part of a tensor's elements that is subnormal."""
    if tensor.dtype not in _FLOATS or tensor.layout != torch.strided or not tensor.numel():
        return 0.0
    if tensor.device.type != "cpu":
        return 0.0
    small = (tensor.abs() < torch.finfo(tensor.dtype).tiny) & (tensor != 0)
    return float(small.count_nonzero()) / tensor.numel()


@dataclass(frozen=True)
class Loop:
    """How a script called a module.

    Attributes:
        calls: how often.
        inside: seconds in all modules.
        total: seconds from the first call of any module to the end of the last.
    """

    calls: int = 1
    inside: float = 0.0
    total: float = 0.0


_TORCH = str(Path(torch.__file__).parent)
_HERE = str(Path(__file__).parent)


def _place() -> str:
    """Return the innermost line outside torch."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_TORCH, "<")) and f"{os.sep}runpy.py" not in file:
            return f"{Path(file).name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


class Script:
    """A script under observation: its outermost calls of modules.

    Attributes:
        calls: the last call of each module.
        spans: the start and the end of each module's calls, in seconds.
        failure: how the script ended, if it failed.
    """

    def __init__(self) -> None:
        self.calls: dict[nn.Module, ModelCall] = {}
        self.spans: dict[nn.Module, list[tuple[float, float]]] = {}
        self.failure = ""
        self._running = threading.local()

    def run(self, path: Path, arguments: Sequence[str]) -> None:
        """Run a script as Python runs it; an interrupt ends it, and what was seen stays."""
        argv, folders = sys.argv, list(sys.path)
        sys.argv = [str(path), *arguments]
        sys.path.insert(0, str(path.resolve().parent))
        hooks = (
            nn.modules.module.register_module_forward_pre_hook(self._enter),
            nn.modules.module.register_module_forward_hook(self._leave, with_kwargs=True),
        )
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            if end.code not in (None, 0):
                self.failure = f"the script ended with code {end.code}"
        except KeyboardInterrupt:
            pass  # as one ends a server
        except Exception as error:
            traceback.print_exc()
            self.failure = f"the script failed: {type(error).__name__}: {error}"
        finally:
            for hook in hooks:
                hook.remove()
            sys.argv, sys.path[:] = argv, folders

    @property
    def main(self) -> tuple[ModelCall, Loop] | None:
        """The module that took most of the time; None where no module ran."""
        inside = {
            module: sum(end - start for start, end in spans) for module, spans in self.spans.items()
        }
        if not inside:
            return None
        module = max(inside, key=inside.__getitem__)
        every = [span for spans in self.spans.values() for span in spans]
        total = max(end for _, end in every) - min(start for start, _ in every)
        return self.calls[module], Loop(len(self.spans[module]), sum(inside.values()), total)

    @property
    def _stack(self) -> list[tuple[nn.Module, float]]:
        if not hasattr(self._running, "stack"):
            self._running.stack = []
        stack: list[tuple[nn.Module, float]] = self._running.stack
        return stack

    def _enter(self, module: nn.Module, arguments: object) -> None:
        if not torch.compiler.is_compiling():
            self._stack.append((module, time.perf_counter()))

    def _leave(
        self, module: nn.Module, arguments: tuple[Any, ...], keywords: Any, result: object
    ) -> None:
        if torch.compiler.is_compiling():
            return
        stack, end = self._stack, time.perf_counter()
        while stack and stack[-1][0] is not module:  # of calls that failed
            stack.pop()
        if not stack:
            return
        _, start = stack.pop()
        if not stack:
            autocast = torch.is_autocast_enabled("cpu")
            lower = torch.get_autocast_dtype("cpu") if autocast else None
            gradients = torch.is_grad_enabled()
            self.calls[module] = ModelCall(module, arguments, dict(keywords), gradients, lower)
            self.spans.setdefault(module, []).append((start, end))
