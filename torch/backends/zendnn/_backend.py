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
    """Finds the registry as Python does, once, and registers the backend when it is there."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != REGISTRY:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        loader: Any = None if spec is None else spec.loader
        if loader is not None:
            execute = loader.exec_module

            def execute_and_register(registry: Any) -> None:
                execute(registry)
                registry.register_backend(zendnn, name="zendnn")

            loader.exec_module = execute_and_register
        return spec


def register() -> None:
    """Register the backend when torch imports its registry.

    Where that is there already, torch loads the backend from its entry point: this may be part of
    just that.
    """
    if REGISTRY not in sys.modules:
        sys.meta_path.insert(0, _AtImport())
