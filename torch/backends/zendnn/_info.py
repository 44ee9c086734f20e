"""Versions, counters, and a report for bug reports."""

from __future__ import annotations

import os
import platform
from importlib.metadata import distributions

import torch
from torch.backends.zendnn import _C
from torch.backends.zendnn._columns import table

#: The first letters of environment variables that may change what runs, or how fast.
_VARIABLES = (
    *("ZENDNN_", "BLIS_", "OMP_", "MKL_", "KMP_"),
    *("LD_PRELOAD", "ATEN_CPU_CAPABILITY", "TORCH_DEVICE_BACKEND_AUTOLOAD"),
)


def version() -> str:
    """Return ZenDNN's version, as in ``'3.7.2'``."""
    return _C._version()


def build_info() -> str:
    """Return what the binary was built from, one ``key: value`` a line."""
    return _C._build_info()


def counters() -> dict[str, int]:
    """Return how many primitives and kernels of ours ran since the start or the last reset.

    The keys are primitive kinds (``'convolution'``, ``'matmul'``, ``'reorder'``, ...), and
    ``'other'`` for kernels without a primitive; kinds that have not run are left out. All threads
    count together.
    """
    return _C._counters()


def reset_counters() -> None:
    """Set every counter back to zero."""
    _C._reset_counters()


def cpu_name() -> str:
    """Return the CPU's name; of an emulated one, also that of the CPU that runs."""
    cpu = _C._cpu()
    name = f"{cpu['name'].strip()} (family {cpu['family']}, model {cpu['model']})"
    real = cpu["emulated_on"].strip()
    return f"{name}, emulated on {real}" if real else name


def report() -> str:
    """Return a short text for a bug report: versions, CPU and what is on."""
    backend, cpu = torch.backends.zendnn, _C._cpu()
    caches = "L1d {} KiB, L2 {} KiB, L3 {} KiB".format(*(size >> 10 for size in cpu["caches"]))
    switches = [f"enabled={backend.enabled}", f"deterministic={backend.deterministic}"]
    variables = {
        name: value for name, value in sorted(os.environ.items()) if name.startswith(_VARIABLES)
    }
    installed = [found.version for found in distributions(name="torch-zendnn")]
    if inside := torch.__version__.partition("+zendnn.")[2]:
        installed.append(f"{inside} in torch's wheel")
    rows = [
        ("torch", torch.__version__),
        ("torch-zendnn", ", ".join(installed) or "unknown"),
        ("python", platform.python_version()),
        *(tuple(line.split(": ", 1)) for line in build_info().splitlines()),
        ("CPU", cpu_name()),
        ("CPUs", f"{os.cpu_count()}, torch uses {torch.get_num_threads()} threads"),
        ("caches", f"{caches} for {cpu['cores_per_l3']} cores"),
        ("ISA", cpu["isa"]),
        ("BLIS kernels", _C._blas_kernels()),
        ("switches", ", ".join(switches)),
        ("environment", ", ".join(f"{k}={v}" for k, v in variables.items()) or "nothing set"),
    ]
    return "\n".join(table(rows, "<<"))
