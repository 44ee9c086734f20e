"""Reads environment variables as their rows in ``table/settings.py`` say.

An invalid value warns once; the default applies.
"""

from __future__ import annotations

import os

from torch.backends.zendnn import _C
from torch.backends.zendnn.table.settings import SETTINGS


def word(name: str, default: str = "") -> str:
    """Return the word that a variable is; ``default`` stands for the row's."""
    words = list(SETTINGS[name].words)
    if default:
        words.insert(0, words.pop(words.index(default)))
    return _C._word(name, words)


def number(name: str) -> float:
    """Return the number that a variable is."""
    otherwise = SETTINGS[name].number
    assert otherwise is not None
    return _C._number(name, float(otherwise))


def whole_number(name: str) -> int:
    """Return the whole number that a variable is."""
    otherwise = SETTINGS[name].number
    assert otherwise is not None
    return _C._whole_number(name, int(otherwise))


def text(name: str) -> str | None:
    """Return a variable's text, or None where it is not set."""
    return os.environ.get(SETTINGS[name].name)
