"""The backend ``"zendnn"`` of ``torch.compile``, as torch's registry of backends holds it.

torch loads a backend from its entry point when it is first asked for, and two threads that ask at
once would register it twice. Therefore it is registered as soon as torch imports the registry,
while that module's import lock is held. What compiles is imported at the first compilation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from torch.backends.zendnn import _lstms

#: torch's registry of backends; its import takes longer than that of torch.
REGISTRY = "torch._dynamo.backends.registry"


def zendnn(
    module: Any,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a graph that Dynamo captured; see ``_compile.compile_graph``."""
    from torch.backends.zendnn._compile import compile_graph

    return compile_graph(module, inputs, mode=mode, options=options)


def _reset() -> None:
    """Forget which compilations made graphs: ``torch._dynamo.reset()`` numbers them anew."""
    from torch.backends.zendnn.frontends.fx import forget_compilations

    forget_compilations()


zendnn.reset = _reset  # type: ignore[attr-defined]  # torch calls it


class _AtImport(MetaPathFinder):
    """Finds a module of torch's as Python does, once, and calls a function when it is there."""

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self.name = name
        self.then = then

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        loader: Any = None if spec is None else spec.loader
        if loader is not None:
            execute = loader.exec_module

            def execute_and_then(module: Any) -> None:
                execute(module)
                self.then(module)

            loader.exec_module = execute_and_then
        return spec


def _register(registry: Any) -> None:
    registry.register_backend(zendnn, name="zendnn")


def _prepare(builder: Any) -> None:
    """Prepare Dynamo, of which a module is there now, for what it does before it calls a backend.

    Where torch caches graphs, ``_cache`` has to be there before Dynamo names its globals.
    """
    _lstms.capture(builder, backend=zendnn)
    try:
        from torch._dynamo.callback import callback_handler
    except ImportError:  # an older torch, without such caches
        return
    callback_handler.register_start_callback(_import_cache)


def _import_cache(_: object = None) -> None:
    import torch.backends.zendnn._cache  # noqa: F401 (prepares Dynamo)


def register() -> None:
    """Register the backend when torch imports its registry, and let Dynamo capture LSTMs for it.

    Where the registry is there already, torch loads the backend from its entry point: this may be
    part of just that.
    """
    if REGISTRY not in sys.modules:
        sys.meta_path.insert(0, _AtImport(REGISTRY, _register))
    if (builder := sys.modules.get(_lstms.BUILDER)) is not None:
        _prepare(builder)
    else:
        sys.meta_path.insert(0, _AtImport(_lstms.BUILDER, _prepare))
