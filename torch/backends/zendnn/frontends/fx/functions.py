"""Which graphs a compiled function runs: those that Dynamo keeps for its backend."""

from __future__ import annotations

import inspect
from typing import Any

from torch._dynamo.convert_frame import input_codes
from torch._dynamo.eval_frame import _debug_get_cache_entry_list
from torch._guards import CompileId


def is_compiled(model: object) -> bool:
    """Return whether a model is a function that ``torch.compile`` returned."""
    return inspect.isfunction(model) and hasattr(model, "get_compiler_config")


def compilations(function: Any) -> set[CompileId]:
    """Return the compilations of a function, and of what it calls behind graph breaks."""
    found = [
        (code, entry)
        for reference in input_codes.seen
        if (code := reference()) is not None
        for entry in _debug_get_cache_entry_list(code)
    ]
    backend = inspect.getclosurevars(function).nonlocals["callback"]
    while hasattr(backend, "_torchdynamo_orig_backend"):
        backend = backend._torchdynamo_orig_backend
    # Where the function was compiled before, in the same way, Dynamo takes what it has.
    own = getattr(function._torchdynamo_orig_callable, "__code__", None)
    backends = [entry.backend for code, entry in found if code is own and entry.backend == backend]
    runs = {id(used) for used in (backend, *backends)}
    return {entry.compile_id for _, entry in found if id(entry.backend) in runs}
