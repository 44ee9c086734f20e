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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

ORDERS = "ZENDNN_UPSTREAM_TESTS"

#: Names that PyTorch 2.6.0's tests import from torch.testing._internal and later versions have
#: under another name or in another module: where each was, and a function that makes it.
MOVED: Mapping[tuple[str, str], Callable[[Callable[[str], Any]], Any]] = {
    ("common_cuda", "tf32_is_not_fp32"): lambda module: lambda: False,  # asked of CUDA's devices
    ("common_mkldnn", "bf32_on_and_off"): lambda module: (
        module("common_mkldnn").reduced_f32_on_and_off
    ),
    ("common_nn", "new_module_tests"): lambda module: module("common_nn").get_new_module_tests(),
    ("common_methods_invocations", "skip"): lambda module: module("common_device_type").skip,
    ("common_methods_invocations", "skipOps"): lambda module: module("common_device_type").skipOps,
    ("common_methods_invocations", "xfail"): lambda module: module("common_device_type").xfail,
}


def _module(name: str) -> Any:
    return importlib.import_module(f"torch.testing._internal.{name}")


def _mend_imports() -> None:
    for (module, name), make in MOVED.items():
        if not hasattr(_module(module), name):
            setattr(_module(module), name, make(_module))


def _keep_operators(wanted: set[str]) -> None:
    """Leave only the OpInfos named, before a test file makes tests of them."""
    database = _module("common_methods_invocations")
    for name in ("op_db", "ops_and_refs", "python_ref_db"):
        infos = getattr(database, name)
        infos[:] = [
            info
            for info in infos
            if (getattr(info, "torch_opinfo", None) or info).formatted_name in wanted
        ]


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
    if orders["operators"] is not None:
        _keep_operators(set(orders["operators"]))
    config.pluginmanager.register(Recorder(orders))
