"""What torch's caches hold of this backend: functional graphs, each with its options.

``TORCH_CACHING_PRECOMPILE=1`` and ``aot_compile`` ask for them. Weights are inputs of such a graph,
and the process that calls it makes its plans, so that nothing in it depends on weights or the CPU.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType, MappingProxyType, ModuleType
from typing import Any, NamedTuple

import torch
from torch import fx, nn
from torch._dynamo import bytecode_transformation
from torch._dynamo.bytecode_transformation import Instruction
from torch._dynamo.codegen import PyCodegen
from torch._dynamo.eval_frame import _TorchDynamoContext
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._inductor.output_code import OutputCode

#: Takes its inputs in a list.
Compiled = Callable[[list[Any]], Any]
Compiler = Callable[[fx.GraphModule, Sequence[Any]], Compiled]

#: What the front end reads of the nodes of a functional graph.
_METADATA = frozenset({"val", "desc", "stack_trace"})
#: torch's own operators: those of others may be missing where a graph is loaded.
_OPERATORS = ("torch.ops.aten.", "torch.ops.prims.")
#: What to do with a graph that cannot be loaded; with a cache, torch does it.
_AGAIN = ": compile the model again"


class Key(NamedTuple):
    """What a graph was compiled by, and is loaded for."""

    backend: Callable[..., Any]
    #: The backend's ``Options``: given or, for the precision, what torch was set to.
    options: Any
    #: Of torch and of this package.
    version: str
    #: The structure of the module whose method Dynamo compiles; empty for other functions.
    structure: str

    @staticmethod
    def of(backend: Callable[..., Any], options: Any) -> Key:
        """Return the key of what a backend compiles with these options."""
        module = _compiled_module()
        return Key(backend, options, version(), "" if module is None else _structure(module, {}))

    def check(self) -> None:
        """Check that a graph can be loaded here.

        Raises:
            RuntimeError: if not, and why.
        """
        if self.version != version():
            raise RuntimeError(
                f"a cached graph is of another version of the backend zendnn{_AGAIN}"
            )
        from torch._dynamo.eval_frame import innermost_backend  # older torches have none

        if (call := _loading_call()) is None:
            return
        asking = innermost_backend(call["self"].callback)
        backend = getattr(asking, "compiler_fn", asking)
        arguments = getattr(asking, "kwargs", {})
        options = type(self.options).of(arguments.get("options"), arguments.get("mode"))
        if backend is not self.backend or options != self.options:
            raise RuntimeError(f"a cached graph is of another backend, mode or options{_AGAIN}")
        model = getattr(call["fn"], "__self__", call["fn"])
        structures: dict[nn.Module, str] = {}
        if isinstance(model, nn.Module):
            _structure(model, structures)
        if self.structure and self.structure not in structures.values():
            raise RuntimeError(
                f"a cached graph is of a model with other modules or functions{_AGAIN}"
            )


def asks_for_graphs() -> bool:
    """Return whether torch caches what backends return; older torches cannot."""
    try:
        from torch._functorch._aot_autograd.autograd_cache import should_bundle_autograd_cache
    except ImportError:
        return False
    asked: bool = should_bundle_autograd_cache()
    return asked


@functools.cache
def _prepare_dynamo() -> None:
    """Let Dynamo make code that another process can load."""
    # Dynamo numbers globals from 0 in each process, so that those of a loaded graph and of a new
    # one clash.
    bytecode_transformation._unique_id_counter = itertools.count(secrets.randbits(48))

    # Dynamo saves no modules that its code loads as globals of its own, such as `collections` for
    # an OrderedDict that it returns: the loaded code would raise NameError.
    load_module = PyCodegen.create_load_python_module

    def load_saved_module(self: PyCodegen, module: ModuleType) -> Instruction:
        load = load_module(self, module)
        package = self.tx.package
        if package is not None and load.argval in self.tx.output.installed_globals:
            package.add_import_source(load.argval, module.__name__)
        return load

    PyCodegen.create_load_python_module = load_saved_module


@functools.cache
def version() -> str:
    """Return a digest of torch's version and of this package's Python files."""
    package = Path(__file__).parent
    digest = hashlib.sha256(torch.__version__.encode())
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def cached(compiler: Compiler, module: fx.GraphModule, key: Key) -> Compiler:
    """Return a compiler of functional graphs whose results torch caches.

    Args:
        compiler: its results can be pickled but for the graphs in them.
        module: what Dynamo captured, which torch looks the results up by.
        key: what they are looked up by as well.
    """
    from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler

    def compile(graph: fx.GraphModule, inputs: Sequence[Any]) -> CachedGraph:
        return CachedGraph(compiler(graph, inputs), key)

    _prepare_dynamo()  # where the cache was switched on after the import of this
    module._zendnn_key = key
    wrapped: Compiler = SerializableAOTDispatchCompiler(CachedGraph, compile)
    return wrapped


class CachedGraph(OutputCode):
    """A compiled graph, which becomes bytes when it is copied or pickled."""

    def __init__(self, compiled: Compiled, key: Key) -> None:
        #: Bytes until ``post_compile``, in copies.
        self._compiled: Any = compiled
        self._key = key
        #: Takes its inputs in a list; torch's wrappers look for this in the instance.
        self._boxed_call = True

    def __call__(self, inputs: Sequence[Any]) -> Any:
        return self._compiled(inputs)

    def __getstate__(self) -> dict[str, Any]:
        from torch.fx._graph_pickler import GraphPickler, Options

        compiled = self._compiled
        if not isinstance(compiled, bytes):
            keep = Options(
                ops_filter=lambda name: name.startswith(_OPERATORS),
                node_metadata_key_filter=_METADATA.__contains__,
            )
            compiled = GraphPickler.dumps(compiled, keep)
        return {**self.__dict__, "_compiled": compiled}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state["_key"].check()
        self.__dict__.update(state)

    def prepare_for_serialization(self) -> None:
        """Do nothing: what torch is about to save is a copy already."""

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        """Make a loaded graph callable."""
        from torch._subclasses import FakeTensorMode
        from torch.fx._graph_pickler import GraphPickler
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        if isinstance(self._compiled, bytes):
            mode = FakeTensorMode(shape_env=ShapeEnv())
            self._compiled = GraphPickler.loads(self._compiled, mode)


def _loading_call() -> Mapping[str, Any] | None:
    """Return the variables of the call of ``torch.compile`` that loads a graph, if there is one.

    Dynamo keys its cache by the name and the line of a function only, and tells nobody for which
    backend it reads it.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is _TorchDynamoContext.__call__.__code__:
            return frame.f_locals
        frame = frame.f_back
    return None


# Functions that modules hold: Dynamo has no guards on them where it caches.


def _compiled_module() -> nn.Module | None:
    """Return the module whose method Dynamo compiles."""
    try:
        output = InstructionTranslator.current_tx().output
    except AttributeError:  # ahead of time
        return None
    code = output.root_tx.f_code
    module = output.local_scope.get(next(iter(code.co_varnames), ""))
    methods = (getattr(type(module), name, None) for name in ("forward", code.co_name))
    is_method = any(getattr(method, "__code__", None) is code for method in methods)
    return module if is_method and isinstance(module, nn.Module) else None


def _structure(module: nn.Module, known: dict[nn.Module, str]) -> str:
    """Return a digest of a module's classes and functions; ``known`` gets those of all in it."""
    if module not in known:
        held = {name: x for name, x in vars(module).items() if name != "_compiled_call_impl"}
        parts = [*_functions(type(module)), *_functions(held)]
        for name, child in module.named_children():
            parts.append(f"{name}: {_structure(child, known)}")
        known[module] = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return known[module]


def _functions(value: Any, depth: int = 3) -> list[str]:
    """Return the names of functions and classes in a value."""
    if isinstance(value, functools.partial):
        return _functions(value.func)
    if callable(value) and not isinstance(value, nn.Module):
        line = getattr(getattr(value, "__code__", None), "co_firstlineno", "")
        named = value if hasattr(value, "__qualname__") else type(value)
        return [f"{named.__module__}.{named.__qualname__}:{line}"]
    # Not Mapping: whether a class is one takes Python long to find out, and modules hold many.
    if depth == 0 or not isinstance(value, dict | MappingProxyType | list | tuple):
        return []
    items = value if isinstance(value, list | tuple) else value.values()
    return [name for item in items for name in _functions(item, depth - 1)]


if asks_for_graphs():
    _prepare_dynamo()  # now: Dynamo names globals before it calls a backend
