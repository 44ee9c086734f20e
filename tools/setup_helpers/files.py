"""Atomic file operations."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tools.setup_helpers.errors import SetupError


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a stream whose content replaces `path` in one step, at the end of the block.

    After an error in the block, `path` is unchanged. Raises SetupError when writing fails.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "w+b") as stream:
                yield stream
            os.chmod(scratch, 0o644)
            os.replace(scratch, path)
        except BaseException:
            Path(scratch).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise SetupError(f"cannot write {path}: {error.strerror}") from error


def write_atomic(path: Path, content: bytes) -> None:
    """Write `content` to `path`, which always holds either the old bytes or the new ones.

    Raises SetupError when writing fails; `path` is then unchanged.
    """
    with replacing(path) as stream:
        stream.write(content)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path`, after waiting for any other holder.

    Raises SetupError when the file cannot be created.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("w")
    except OSError as error:
        raise SetupError(f"cannot write {path}: {error.strerror}") from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another build in {path.parent}", file=sys.stderr)
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield
