"""By which backend Dynamo compiles: each ``torch.compile`` makes one of its own."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from torch._dynamo.eval_frame import _debug_get_cache_entry_list
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._guards import CompileId

#: Where Dynamo's wrappers of a backend keep what they wrap: the second in older torches.
_WRAPPED = ("_torchdynamo_orig_backend", "_torchdynamo_orig_callable")


def is_compiled(model: object) -> bool:
    """Return whether a model is a function that ``torch.compile`` returned."""
    return inspect.isfunction(model) and hasattr(model, "get_compiler_config")


def compiling_backend() -> Any:
    """Return the backend that Dynamo calls just now; None where others call it."""
    try:
        translator = InstructionTranslator.current_tx()
    except AttributeError:  # Dynamo compiles nothing in this thread
        return None
    return _innermost(translator.output.compiler_fn)


def backends(function: Any, made: Iterable[tuple[CompileId | None, Any]]) -> set[int]:
    """Return the ids of the backends that a compiled function runs graphs of.

    Args:
        function: what ``torch.compile`` returned.
        made: the compilation and the backend of each graph.
    """
    own = _innermost(inspect.getclosurevars(function).nonlocals["callback"])
    # Where the function was compiled before, in the same way, Dynamo takes what it has.
    code = getattr(function._torchdynamo_orig_callable, "__code__", None)
    entries = () if code is None else _debug_get_cache_entry_list(code)
    kept = {entry.compile_id for entry in entries}
    equal = [backend for number, backend in made if number in kept and backend == own]
    return {id(backend) for backend in (own, *equal)}


def _innermost(backend: Any) -> Any:
    while (name := next((x for x in _WRAPPED if hasattr(backend, x)), None)) is not None:
        backend = getattr(backend, name)
    return backend
