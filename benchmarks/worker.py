"""Measures one model on one backend in its own process; ``compare`` starts it.

    python -m benchmarks.worker BACKEND MODEL PRECISION --threads N --seconds S
    python -m benchmarks.worker --versions PACKAGE,…

The first form prints a JSON object with the fields of ``report.Sample``, or with ``failure``. The
second prints the versions of the packages that are installed, by name. What libraries print goes to
stderr.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import importlib.metadata
import json
import math
import os
import statistics
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from benchmarks import models, quantised
from benchmarks.backends import BACKENDS, Setting
from benchmarks.report import Sample

if TYPE_CHECKING:
    from torch import Tensor

WARM_UP_CALLS = 3


def versions(packages: Sequence[str]) -> dict[str, str]:
    """The versions of those of the packages that this Python has."""
    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def difference(got: Tensor, want: Tensor) -> float:
    """The largest difference divided by the largest wanted value; infinite if it is NaN."""
    if got.shape != want.shape:
        return math.inf
    error: float = ((got.float() - want).abs().max() / want.abs().max()).item()
    return error if math.isfinite(error) else math.inf


def stock_kernels(zendnn: Any) -> AbstractContextManager[Any]:
    """A context without ZenDNN, in which the model is built and the wanted result computed."""
    return nullcontext() if zendnn is None else zendnn.flags(enabled=False)


def reference(module: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, float]:
    """The module's result, and how many billion floating point operations it takes."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    # The counter does not support the CPU's fused attention; this one consists of matrix products.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        want = module(*inputs)
    return want, counter.get_total_flops() / 1e9


def measure(backend_name: str, model: str, setting: Setting, seconds: float) -> Sample:
    """Build the model, prepare it, time it for ``seconds`` and compare what it returns."""
    import torch

    backend = BACKENDS[backend_name]
    torch.set_num_threads(setting.threads)
    zendnn: Any = getattr(torch.backends, "zendnn", None)
    if backend.ours and zendnn is None:
        raise RuntimeError("torch did not load ZenDNN")
    for name in backend.modules:
        importlib.import_module(name)
    lowered = setting.precision == "bf16" and backend.autocast
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=lowered)
    with torch.no_grad():
        with stock_kernels(zendnn):
            module, inputs = models.build(model)
            want, gflop = reference(module, inputs)
            if setting.precision == "int8":
                transformer = models.parse(model)[0].transformer
                batches = models.calibration(model, module)
                calibration = quantised.Calibration(batches, transformer)
                setting = dataclasses.replace(setting, calibration=calibration)
        with autocast:
            if backend.ours:
                zendnn.reset_counters()
            start = time.perf_counter()
            call = backend.prepare(module, inputs, setting)
            got = call(*inputs)
            prepare_s = time.perf_counter() - start
            error = difference(got, want)
            for _ in range(WARM_UP_CALLS):
                call(*inputs)
            times: list[float] = []
            end = time.perf_counter() + seconds
            while not times or time.perf_counter() < end:
                start = time.perf_counter()
                got = call(*inputs)
                times.append(time.perf_counter() - start)
    if os.environ.get("TORCH_CACHING_PRECOMPILE") == "1":
        torch.compiler.save_cache_artifacts()  # for the next process
    note = ""
    if backend.ours and not sum(zendnn.counters().values()):
        note = "nothing ran on ZenDNN"
    # The last result is checked too: some backends switch to other code after a few calls.
    error = max(error, difference(got, want))
    return Sample(statistics.median(times) * 1e3, prepare_s, error, gflop, note)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print, and return the exit code: 1 when the backend failed."""
    parser = argparse.ArgumentParser(description="One measurement; started by benchmarks.compare.")
    parser.add_argument("what", nargs="*", metavar="BACKEND MODEL PRECISION")
    parser.add_argument("--versions")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args(arguments)
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    found: dict[str, Any]
    if options.versions is not None:
        found = versions(options.versions.split(","))
    else:
        backend, model, precision = options.what
        warnings.simplefilter("ignore")  # tracing warns about every Python number
        try:
            setting = Setting(precision, options.threads)
            found = dataclasses.asdict(measure(backend, model, setting, options.seconds))
        except Exception as error:
            lines = str(error).strip().splitlines()
            found = {"failure": ": ".join([type(error).__name__, *lines[:1]])}
    with answer:
        print(json.dumps(found), file=answer)
    return "failure" in found


if __name__ == "__main__":
    sys.exit(main())
