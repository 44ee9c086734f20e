"""What pytest loads to run a file of upstream's: mends its imports, selects, writes outcomes down.

It is told what to do by the variable ORDERS: a JSON object with `results` (the file to write to),
`shard` and `shards` (which part of the tests to run), `done` (tests of it that were run already),
and `operators` (the only ones whose OpInfo tests are made, or null for all).
"""

from __future__ import annotations

import importlib
import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

ORDERS = "ZENDNN_UPSTREAM_TESTS"

#: Names that PyTorch 2.6.0's tests import from torch.testing._internal and later versions have
#: elsewhere or otherwise: the module of each, and a function that makes it of what there is now.
CHANGED: Sequence[tuple[str, str, Callable[[], Any]]] = (
    ("common_cuda", "tf32_is_not_fp32", lambda: lambda: False),  # what CUDA's devices do
    (
        "common_mkldnn",
        "bf32_on_and_off",
        lambda: _module("common_mkldnn").reduced_f32_on_and_off,
    ),
    ("common_nn", "new_module_tests", lambda: _module("common_nn").get_new_module_tests()),
    ("common_methods_invocations", "skip", lambda: _module("common_device_type").skip),
    ("common_methods_invocations", "xfail", lambda: _module("common_device_type").xfail),
    # It finds the name of the class and of the test by itself now.
    (
        "common_methods_invocations",
        "skipOps",
        lambda: lambda suite, test, which: _module("common_device_type").skipOps(which),
    ),
)


def _module(name: str) -> Any:
    return importlib.import_module(f"torch.testing._internal.{name}")


def _mend_imports() -> None:
    for module, name, make in CHANGED:
        if not hasattr(_module(module), name):
            setattr(_module(module), name, make())


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
    ops = _module("common_device_type").ops
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
            parts[mine and item.nodeid not in self.done].append(item)
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
    config.pluginmanager.register(Recorder(orders))
