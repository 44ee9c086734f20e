"""Makes ``import torch`` know ZenDNN: the entry point ``torch.backends`` calls ``autoload``."""

from __future__ import annotations

import importlib


def autoload() -> None:
    """Load the library, whose kernels register themselves, and hook the Python side in."""
    importlib.import_module("torch.backends.zendnn")
