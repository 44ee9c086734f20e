"""Writing of files: whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomic(file: Path, text: str) -> None:
    """Write a text in UTF-8, so that nobody sees a half of it.

    Raises:
        OSError: if it cannot be written; then the file is as before.
    """
    made = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        made.write_text(text, encoding="utf-8")
        made.replace(file)
    finally:
        made.unlink(missing_ok=True)
