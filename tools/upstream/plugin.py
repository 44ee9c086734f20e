"""What pytest loads to run a file of upstream's: mends its imports, selects, writes outcomes down.

It is told what to do by the variable ORDERS: a JSON object with `results` (the file to write to),
`shard` and `shards` (which part of the tests to run), `done` (tests of it that were run already),
`only` (the only tests of it to run, or null for all),
`operators` (the only ones whose OpInfo tests are made, or null for all), and `backend` (what
torch.compile takes in place of Inductor and of "aot_eager", or null for these themselves).
"""

from __future__ import annotations

import copy
import importlib
import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    import pytest

ORDERS = "ZENDNN_UPSTREAM_TESTS"

_INTERNAL = "torch.testing._internal."
#: Names that PyTorch 2.6.0's tests import and later versions have elsewhere or otherwise: the
#: module of each, and a function that makes it of what there is now.
CHANGED: Sequence[tuple[str, str, Callable[[], Any]]] = (
    (_INTERNAL + "common_cuda", "tf32_is_not_fp32", lambda: lambda: False),  # what CUDA does
    (
        _INTERNAL + "common_mkldnn",
        "bf32_on_and_off",
        lambda: _internal("common_mkldnn").reduced_f32_on_and_off,
    ),
    (
        _INTERNAL + "common_nn",
        "new_module_tests",
        lambda: _internal("common_nn").get_new_module_tests(),
    ),
    (
        _INTERNAL + "common_methods_invocations",
        "skip",
        lambda: _internal("common_device_type").skip,
    ),
    (
        _INTERNAL + "common_methods_invocations",
        "xfail",
        lambda: _internal("common_device_type").xfail,
    ),
    # It finds the name of the class and of the test by itself now.
    (
        _INTERNAL + "common_methods_invocations",
        "skipOps",
        lambda: lambda suite, test, which: _internal("common_device_type").skipOps(which),
    ),
    (_INTERNAL + "inductor_utils", "HAS_CUDA", lambda: False),
    ("torch._dynamo.backends.onnxrt", "has_onnxruntime", lambda: lambda: False),
    ("torch._inductor.compile_fx", "complex_memory_overlap", lambda: _overlaps),
    ("torch.export", "export_for_training", lambda: _module("torch.export").export),
)


def _module(name: str) -> Any:
    return importlib.import_module(name)


def _internal(name: str) -> Any:
    return _module(_INTERNAL + name)


def _overlaps(tensor: Any) -> bool:
    """Whether several elements of a tensor may be at one address."""
    return bool(_module("torch")._debug_has_internal_overlap(tensor))


def _mend_imports() -> None:
    for module, name, make in CHANGED:
        if not hasattr(_module(module), name):
            setattr(_module(module), name, make())


def _replace_backends(name: str) -> None:
    """Compile with a backend wherever torch would with Inductor or with AOTAutograd alone.

    Where the backend is ours, it makes plans of even the lightest operators, and exported programs
    that run are also optimised, and both compared.
    """
    registry: Any = _module("torch._dynamo.backends.registry")
    compile_fx: Any = _module("torch._inductor.compile_fx")
    backend = registry.lookup_backend(name)
    # Inductor, for what plans do not hold, would be our backend again.
    options = {"options": {"rest": "eager"}} if name == "zendnn" else {}

    def compiled(module: Any, inputs: Any, **_: Any) -> Any:
        return backend(module, inputs, **options)

    # torch.compile and the backend "inductor" look it up at each call.
    compile_fx.compile_fx = compiled
    compiled._tags = registry.lookup_backend("aot_eager")._tags  # type: ignore[attr-defined]
    registry._COMPILER_FNS["aot_eager"] = compiled
    if name == "zendnn":
        partition: Any = _module("torch.backends.zendnn.passes.partition")
        partition.LIGHT, partition.ENOUGH = frozenset(), 1  # plans of all, however light
        _optimize_exported()


def _optimize_exported() -> None:
    """Let the modules of exported programs fail where what we make of these gives other results."""
    torch: Any = _module("torch")
    from tools.fuzz.check.tensors import (
        TOLERANCE,  # Winograd's method has more rounding than others
    )

    program: Any = torch.export.ExportedProgram
    original = program.module

    def keep(module: Any, args: Any, kwargs: Any) -> None:
        module.zendnn_given = copy.deepcopy((args, kwargs)), torch.get_rng_state()

    def check(module: Any, args: Any, kwargs: Any, expected: Any) -> None:
        (args, kwargs), random = module.zendnn_given
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(random)
            got = module.zendnn_optimized[0](*args, **kwargs)
        for ours, theirs in zip(
            *map(torch.utils._pytree.tree_leaves, (got, expected)), strict=True
        ):
            near = {}
            if isinstance(theirs, torch.Tensor) and theirs.numel() and theirs.dtype in TOLERANCE:
                atol = TOLERANCE[theirs.dtype] * float(theirs.abs().nan_to_num(0, 0, 0).max())
                near = {"rtol": 0.0, "atol": atol}
            torch.testing.assert_close(ours, theirs, equal_nan=True, check_stride=False, **near)

    def module(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        with mock.patch.object(program, "module", original):
            optimized = torch.backends.zendnn.optimize(self)
        # It has buffers of its own; in a list, it is no part of the module.
        result.zendnn_optimized = [copy.deepcopy(optimized)]
        result.register_forward_pre_hook(keep, with_kwargs=True)
        result.register_forward_hook(check, with_kwargs=True)
        return result

    program.module = module


def _keep_builtins() -> None:
    """Keep alive what torch knows builtins by: it forgets none, and takes a later object at the
    address of one that is gone for that builtin, so that some test or other cannot be scripted."""
    builtins: Any = importlib.import_module("torch.jit._builtins")
    original = builtins._register_builtin
    alive = []

    def register(function: Any, operator: str) -> None:
        alive.append(function)
        original(function, operator)

    builtins._register_builtin = register


def _keep_operators(wanted: set[str]) -> None:
    """Make tests of the OpInfos named alone, and of the references that stand for them."""
    ops = _internal("common_device_type").ops
    original = ops._parametrize_test

    def parametrize(self: Any, *arguments: Any) -> Iterator[Any]:
        self.op_list = [
            info
            for info in self.op_list
            if (getattr(info, "torch_opinfo", None) or info).formatted_name in wanted
        ]
        if self.op_list:
            yield from original(self, *arguments)

    ops._parametrize_test = parametrize


class Recorder:
    """Selects a shard of the tests and appends each outcome, at once, so that a crash shows."""

    def __init__(self, orders: Mapping[str, Any]) -> None:
        self.shard, self.shards = orders["shard"], orders["shards"]
        self.done = set(orders["done"])
        self.only = None if orders["only"] is None else set(orders["only"])
        self.results = Path(orders["results"])
        self.results.write_text("", encoding="utf-8")

    def _write(self, outcome: str, test: str) -> None:
        with self.results.open("a", encoding="utf-8") as stream:
            stream.write(f"{outcome} {test}\n")

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        parts: tuple[list[pytest.Item], list[pytest.Item]] = ([], [])
        for item in items:
            mine = zlib.crc32(item.nodeid.encode()) % self.shards == self.shard
            chosen = self.only is None or item.nodeid in self.only
            parts[mine and chosen and item.nodeid not in self.done].append(item)
        config.hook.pytest_deselected(items=parts[False])
        items[:] = parts[True]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write("started", nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # Setting up and tearing down says nothing unless it goes wrong.
        if report.when == "call" or not report.passed:
            self._write(report.outcome, report.nodeid)


def pytest_configure(config: pytest.Config) -> None:
    """Get torch and pytest ready for the file that is about to be imported."""
    orders = json.loads(os.environ[ORDERS])
    _mend_imports()
    _keep_builtins()
    if orders["operators"] is not None:
        _keep_operators(set(orders["operators"]))
    if orders["backend"] is not None:
        _replace_backends(orders["backend"])
    config.pluginmanager.register(Recorder(orders))
