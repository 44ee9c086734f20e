"""Attributes of ``torch.backends.zendnn`` that are imported at their first use."""

from __future__ import annotations

import importlib
import threading
from typing import Any

_PACKAGE = "torch.backends.zendnn"

#: The module below the package that defines an attribute; None: the attribute is that module.
_HOMES = {
    "Event": "_events",
    "bind": "_binding",
    "explain": "_explain",
    "export": "_optimize",
    "functional": None,
    "kernel_logger": None,
    "optimize": "_optimize",
    "passes": None,
    "prepack": "_prepack",
    "profiler": None,
    "record": "_events",
}

#: torch's modules import each other in circles, in which two threads get hold of halves.
_importing = threading.RLock()


def lazy(name: str) -> Any:
    """Import an attribute of the package at its first use: the package's ``__getattr__``."""
    if name not in _HOMES:
        raise AttributeError(f"module {_PACKAGE!r} has no attribute {name!r}")
    home = _HOMES[name]
    with _importing:
        module = importlib.import_module(f"{_PACKAGE}.{home or name}")
    return getattr(module, name) if home else module
