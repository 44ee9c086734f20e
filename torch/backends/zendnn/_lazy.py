"""What ``torch.backends.zendnn`` offers and ``import torch`` need not wait for."""

from __future__ import annotations

import importlib
from typing import Any


def lazy(name: str) -> Any:
    """Import an attribute of the package when somebody asks for it: its ``__getattr__``."""
    package = "torch.backends.zendnn"
    if name == "explain":
        return importlib.import_module(f"{package}._explain").explain
    if name == "prepack":
        return importlib.import_module(f"{package}._prepack").prepack
    if name == "passes":
        return importlib.import_module(f"{package}.passes")
    raise AttributeError(f"module {package!r} has no attribute {name!r}")
