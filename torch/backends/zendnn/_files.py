"""Writing of files: whole or not at all. The build's own is tools/setup_helpers/files.py."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_atomic(file: Path, text: str) -> None:
    """Write UTF-8 text. Readers see the old content or the new, never a part.

    Raises:
        OSError: if it cannot be written; then the file is as before.
    """
    number, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    temporary = Path(name)
    try:
        with os.fdopen(number, "w", encoding="utf-8") as stream:
            stream.write(text)
        temporary.chmod(0o644)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
