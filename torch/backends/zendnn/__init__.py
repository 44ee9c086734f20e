"""ZenDNN for AMD Zen CPUs: what users call, and the switches.

``import torch`` loads this package by its entry point. ``enabled`` and ``deterministic`` are
switches: attributes that can be set, better by ``with flags(...)``.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch.backends.zendnn._C as _C
from torch.backends import ContextProp, PropModule
from torch.backends import __allow_nonbracketed_mutation as _allow_mutation
from torch.backends.zendnn._hooks import install as _install_hooks
from torch.backends.zendnn._info import build_info, counters, report, reset_counters, version
from torch.backends.zendnn._memory import (
    empty_cache,
    memory_cache_limit,
    memory_cached,
    packed_memory,
    set_memory_cache_limit,
)

if TYPE_CHECKING:  # Each is imported at its first use.
    from torch.backends.zendnn import functional, kernel_logger, passes, profiler
    from torch.backends.zendnn._explain import explain
    from torch.backends.zendnn._optimize import export, optimize
    from torch.backends.zendnn._prepack import prepack
    from torch.backends.zendnn.observe.events import Event, record
    from torch.backends.zendnn.place.bind import bind

    enabled: bool
    deterministic: bool

__all__ = [
    "VERBOSE_OFF",
    "VERBOSE_ON",
    "VERBOSE_ON_CREATION",
    "Event",
    "bind",
    "build_info",
    "counters",
    "deterministic",
    "empty_cache",
    "enabled",
    "explain",
    "export",
    "flags",
    "functional",
    "is_available",
    "kernel_logger",
    "memory_cache_limit",
    "memory_cached",
    "optimize",
    "packed_memory",
    "passes",
    "prepack",
    "profiler",
    "record",
    "report",
    "reset_counters",
    "set_flags",
    "set_memory_cache_limit",
    "verbose",
    "version",
]

#: The module below the package that defines an attribute; None: the attribute is that module.
_HOMES = {
    "Event": "observe.events",
    "bind": "place.bind",
    "explain": "_explain",
    "export": "_optimize",
    "functional": None,
    "kernel_logger": None,
    "optimize": "_optimize",
    "passes": None,
    "prepack": "_prepack",
    "profiler": None,
    "record": "observe.events",
}

#: torch's modules import each other in circles, in which two threads get hold of halves.
_importing = threading.RLock()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    with _importing:
        module = importlib.import_module(f"{__name__}.{home or name}")
    return getattr(module, name) if home else module


def is_available() -> bool:
    """Return whether this build of PyTorch has ZenDNN: True, since it has this package."""
    return _C._has_zendnn


VERBOSE_OFF = 0
VERBOSE_ON = 1
VERBOSE_ON_CREATION = 2


class verbose:
    """Print a line for each primitive and kernel that runs inside a ``with`` block.

    The environment variable ``ZENDNN_VERBOSE`` does the same for a whole process.

        with torch.backends.zendnn.verbose(torch.backends.zendnn.VERBOSE_ON):
            model(inputs)

    Args:
        level: ``VERBOSE_OFF`` prints nothing, ``VERBOSE_ON`` what runs, and
            ``VERBOSE_ON_CREATION`` also which primitives are created.
    """

    def __init__(self, level: int) -> None:
        self.level = level

    def __enter__(self) -> verbose:
        if self.level != VERBOSE_OFF and not _C._verbose.zendnn_set_verbose(self.level):
            raise RuntimeError(
                f"ZenDNN has no verbose level {self.level}: choose VERBOSE_ON or "
                "VERBOSE_ON_CREATION"
            )
        return self

    def __exit__(self, *error: object) -> None:
        _C._verbose.zendnn_set_verbose(VERBOSE_OFF)


def set_flags(_enabled: bool, _deterministic: bool | None = None) -> tuple[bool, bool]:
    """Set the switches, and return what they were; None keeps ``deterministic``."""
    before = _C._get_zendnn_enabled(), _C._get_zendnn_deterministic()
    _C._set_zendnn_enabled(_enabled)
    if _deterministic is not None:
        _C._set_zendnn_deterministic(_deterministic)
    return before


@contextmanager
def flags(enabled: bool = False, deterministic: bool = False) -> Iterator[None]:
    """Set the switches for a ``with`` block.

    Args:
        enabled: whether ZenDNN runs what it takes; otherwise torch's own kernels do.
        deterministic: whether results are the same from run to run, for which nothing is chosen
            by time.
    """
    with _allow_mutation():
        before = set_flags(enabled, deterministic)
    try:
        yield
    finally:
        with _allow_mutation():
            set_flags(*before)


class ZendnnModule(PropModule):
    """This package, with switches that can be set as attributes."""

    enabled = ContextProp(_C._get_zendnn_enabled, _C._set_zendnn_enabled)
    deterministic = ContextProp(_C._get_zendnn_deterministic, _C._set_zendnn_deterministic)


_install_hooks()
_module = ZendnnModule(sys.modules[__name__], __name__)
_module.__doc__, _module.__spec__ = __doc__, __spec__  # which help() and `python -m` read
sys.modules[__name__] = _module
