"""The front ends: how stock torch prepares a module for each, and ours on top of it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch.backends.zendnn.passes import partition

from .tensors import Inputs, Results, copies_of

#: The variable that asks for plans of even the lightest operators.
LIGHTEST = "FUZZ_LIGHTEST"


def stock_kernels() -> Any:
    """Return a context in which torch's own kernels run."""
    return torch.backends.zendnn.flags(enabled=False)


def _as_it_is(module: torch.nn.Module, inputs: Inputs) -> Any:
    return module


def _traced(module: torch.nn.Module, inputs: Inputs) -> Any:
    return torch.jit.freeze(torch.jit.trace(module, tuple(copies_of(inputs)), check_trace=False))


def _scripted(module: torch.nn.Module, inputs: Inputs) -> Any:
    return torch.jit.freeze(torch.jit.script(module))


class _Exported:
    """What torch.export makes of a module, for the sizes of the inputs.

    A functional program holds a new tensor for each write, as the one that plans are made of does.
    Like torch's own table of decompositions, it takes ``type_as`` apart, which may return its
    operand. What computes a tensor for its dtype alone is dropped then, with the errors of that.
    """

    def __init__(self, module: torch.nn.Module, inputs: Inputs, functional: bool = False) -> None:
        self.program = torch.export.export(module, tuple(copies_of(inputs)))
        if functional:
            apart = {torch.ops.aten.type_as.default: lambda x, other: x.to(other.dtype)}
            self.program = self.program.run_decompositions(apart)
        self._module = self.program.module()

    def __call__(self, *inputs: torch.Tensor) -> Results:
        results: Results = self._module(*inputs)
        return results


@dataclass(frozen=True)
class FrontEnd:
    """A way to run a module: stock torch's preparation, and ours on top of it."""

    stock: Callable[[torch.nn.Module, Inputs], Any]
    ours: Callable[[Any], Any]
    #: Whether it makes plans, which ``explain`` knows.
    plans: bool = False
    #: Whether weights may change, and results have strides and share memory as in eager mode.
    as_eager: bool = False
    #: Whether torch returns one tensor from all calls where a result depends on no input.
    keeps_constants: bool = False
    #: Stock's graph of a module, whose results may differ from eager mode; ``stock`` by default.
    graph: Callable[[torch.nn.Module, Inputs], Any] | None = None
    #: What surrounds all calls; it tells what was refused.
    around: Callable[[], AbstractContextManager[list[str]]] = lambda: nullcontext([])
    #: Beside other front ends it gets one model in so many, since it is slow.
    one_in: int = 1


def lightest() -> AbstractContextManager[Any]:
    """Make plans of operators with too little work for one, if this process is to."""
    if os.environ.get(LIGHTEST) != "1":
        return nullcontext()
    return mock.patch.multiple(partition, LIGHT=frozenset(), ENOUGH=1)


class _Messages(logging.Handler):
    """Keeps the first lines of messages."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage().partition("\n")[0][:100])


@contextmanager
def _dynamo() -> Iterator[list[str]]:
    """Dynamo without what it keeps of other models; too many compilations are an error.

    What is yielded says why graphs stay as they are.
    """
    import torch._dynamo  # slow

    log, messages = logging.getLogger("torch.backends.zendnn._compile"), _Messages()
    log.addHandler(messages)
    level = log.level
    log.setLevel(logging.INFO)
    torch._dynamo.reset()
    try:
        with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
            yield messages.lines
    finally:
        torch._dynamo.reset()
        log.removeHandler(messages)
        log.setLevel(level)


def _compiler(dynamic: bool) -> FrontEnd:
    """Return torch.compile; with ``dynamic``, one compilation serves several sizes."""

    def compiled(module: torch.nn.Module, backend: str, **options: Any) -> Any:
        return torch.compile(module, backend=backend, dynamic=dynamic, options=options or None)

    def graph(module: torch.nn.Module, inputs: Inputs) -> Any:
        run_graph = compiled(module, "aot_eager")

        def run(*arguments: torch.Tensor) -> Results:
            with torch._dynamo.config.patch(fail_on_recompile_limit_hit=False):
                results: Results = run_graph(*arguments)
                return results

        return run

    return FrontEnd(
        _as_it_is,
        lambda module: compiled(module, "zendnn", rest="eager"),  # Inductor's part is not ours
        plans=True,
        as_eager=True,
        graph=graph,
        around=_dynamo,
        one_in=3,
    )


FRONT_ENDS: Mapping[str, FrontEnd] = {
    "trace": FrontEnd(_traced, torch.jit.optimize_for_inference, plans=True, keeps_constants=True),
    "script": FrontEnd(
        _scripted, torch.jit.optimize_for_inference, plans=True, keeps_constants=True
    ),
    "eager": FrontEnd(_as_it_is, lambda module: module),
    "prepack": FrontEnd(_as_it_is, torch.backends.zendnn.prepack),
    "compile": _compiler(dynamic=False),
    "compile-dynamic": _compiler(dynamic=True),
    "export": FrontEnd(
        _Exported,
        lambda exported: torch.backends.zendnn.optimize(exported.program),
        plans=True,
        graph=partial(_Exported, functional=True),
        one_in=3,
    ),
}
