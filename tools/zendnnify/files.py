"""Reads sources with clear errors, and writes many files as one transaction."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, TypeVar

from tools.zendnnify.rules.model import ZendnnifyError

STAGING = ".zendnnify-staging"
"""Holds a run's new files until all are complete; a leftover means an interrupted run."""


_QUIET_SECONDS = 2.0

Item = TypeVar("Item")


@contextlib.contextmanager
def in_one_sentence(what: str) -> Iterator[None]:
    """Turns system errors inside into a ZendnnifyError, "cannot ``what``": unreadable folders,
    circular links, names that are not UTF-8."""
    try:
        yield
    except BrokenPipeError:  # The reader of the output has closed it.
        raise
    except (OSError, RuntimeError, UnicodeError) as error:
        raise ZendnnifyError(f"cannot {what}: {error}") from error


def tell(what: str, items: Iterable[Item], total: int) -> Iterator[Item]:
    """Yields the items, one a file; reports progress on standard error when that takes long."""
    reported_at = time.monotonic()
    for done, item in enumerate(items, 1):
        now = time.monotonic()
        if now - reported_at > _QUIET_SECONDS:
            reported_at = now
            print(f"zendnnify: {done} of {total} files {what}", file=sys.stderr, flush=True)
        yield item


def read_bytes(path: Path) -> bytes:
    """Raises ZendnnifyError when the file cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ZendnnifyError(f"cannot read {path}: {error.strerror}") from error


def decode(data: bytes, path: Path) -> str:
    """The text of a UTF-8 file, line ends unchanged; raises ZendnnifyError for other encodings."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ZendnnifyError(
            f"cannot decode {path} as UTF-8 (byte {error.start}); if it is not text, "
            "list it in COPIED of tools/zendnnify/trees.py"
        ) from error


def read_text(path: Path) -> str:
    """``decode(read_bytes(path), path)``."""
    return decode(read_bytes(path), path)


def walk(root: Path, leave_out: frozenset[str] = frozenset()) -> list[str]:
    """Paths of all files below ``root``, relative to it, with forward slashes, sorted.

    Links to folders are not followed; folders named in ``leave_out`` are not entered.

    Raises:
        ZendnnifyError: a folder cannot be read.
    """

    def fail(error: OSError) -> None:
        raise ZendnnifyError(f"cannot read the folder {error.filename}: {error.strerror}")

    found: list[str] = []
    base = len(str(root)) + 1
    for folder, folders, names in os.walk(root, onerror=fail):
        folders[:] = [name for name in folders if name not in leave_out]
        below = folder[base:].replace(os.sep, "/")
        below += "/" if below else ""
        found += [below + name for name in names]
    return sorted(found)


def stat(path: Path) -> list[int] | None:
    """[size, modification time in ns], or None for a missing file."""
    try:
        result = path.stat()
    except OSError:
        return None
    return [result.st_size, result.st_mtime_ns]


def lock(path: Path, folder: Path) -> IO[str]:
    """Locks the file ``path`` for a run that writes into ``folder``; closing it unlocks it.

    Raises:
        ZendnnifyError: another run holds the lock.
    """
    stream = path.open("w")
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        stream.close()
        raise ZendnnifyError(
            f"another run is writing into {folder}; run again when it has ended"
        ) from None
    return stream


class Transaction:
    """Writes all files into a folder, or leaves the folder unchanged.

    Use as a context manager: ``stage`` every file, then ``commit``. An exit without a commit, or
    an error, rolls everything back. Each folder allows one transaction at a time and refuses
    another.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self._new = out / STAGING / "new"
        self._old = out / STAGING / "old"
        self._staged: list[str] = []
        self._undo: list[Callable[[], object]] = []

    def __enter__(self) -> Transaction:
        try:
            self._make_folder(self.out / STAGING)
            self._guard(self._take_lock)
            for leftover in (self._new, self._old):
                shutil.rmtree(leftover, ignore_errors=True)
            self._guard(self._new.mkdir)
        except BaseException:
            self._roll_back()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._roll_back()
        shutil.rmtree(self.out / STAGING, ignore_errors=True)
        self._locked.close()
        if kind is not None:
            self._undo_folders()

    def _take_lock(self) -> None:
        self._locked = lock(self.out / STAGING / "lock", self.out)

    def stage(self, path: str, data: bytes) -> Path:
        """Writes a file to the staging area; ``path`` is relative to the folder. Returns its
        staged path."""
        target = self._new / path

        def write() -> None:
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(target, "wb") as file:
                file.write(data)

        self._guard(write)
        self._staged.append(path)
        return target

    def commit(self, remove: Iterable[str] = ()) -> None:
        """Moves the staged files into place, and deletes those of ``remove`` that exist."""
        for path in remove:
            self._set_aside(path)
        for path in self._staged:
            self._set_aside(path)
            self._make_folder((self.out / path).parent)
            self._move(self._new / path, self.out / path)
        for path in remove:
            self._drop_empty((self.out / path).parent)
        self._undo.clear()

    def _set_aside(self, path: str) -> None:
        if os.path.lexists(self.out / path):
            self._guard(lambda: (self._old / path).parent.mkdir(parents=True, exist_ok=True))
            self._move(self.out / path, self._old / path)

    def _move(self, source: Path, target: Path) -> None:
        self._guard(lambda: os.replace(source, target))
        self._undo.append(lambda: os.replace(target, source))

    def _make_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            self._make_folder(folder.parent)
            self._guard(folder.mkdir)
            self._undo.append(lambda: folder.rmdir())

    def _drop_empty(self, folder: Path) -> None:
        while folder != self.out and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent

    def _roll_back(self) -> None:
        """Undoes the moves; folders that still hold the staging area are removed later."""
        later: list[Callable[[], object]] = []
        for undo in reversed(self._undo):
            try:
                undo()
            except OSError:
                later.append(undo)
        self._undo = later[::-1]

    def _undo_folders(self) -> None:
        for undo in reversed(self._undo):
            try:
                undo()
            except OSError:
                continue
        self._undo.clear()

    def _guard(self, action: Callable[[], object]) -> None:
        try:
            action()
        except OSError as error:
            raise ZendnnifyError(
                f"cannot write to {self.out}: {error.strerror}; nothing in it was changed"
            ) from error
