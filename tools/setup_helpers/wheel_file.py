"""Read and write wheel files: zip archives with a RECORD of their contents.

Equal contents give equal bytes, at any time and in any folder: the archive is sorted, and its
modes and times are fixed. The compressed bytes are those of this machine's zlib.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import IO

from tools.setup_helpers.errors import SetupError
from tools.setup_helpers.files import replacing

EPOCH_VARIABLE = "SOURCE_DATE_EPOCH"
#: The times that a zip archive can hold.
_OLDEST, _NEWEST = (1980, 1, 1, 0, 0, 0), (2107, 12, 31, 23, 59, 58)
_BLOCK = 1 << 20
#: What zipfile raises for changed bytes: RuntimeError says that they are encrypted or of a version
#: that it does not know.
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, csv.Error)


@dataclass(frozen=True)
class Content:
    """A file in a wheel: how to open it, its size in bytes, and whether it can be executed."""

    open: Callable[[], IO[bytes]]
    size: int
    executable: bool = False

    def read(self) -> bytes:
        """Return all bytes."""
        with self.open() as stream:
            return stream.read()


def content(data: bytes, *, executable: bool = False) -> Content:
    """Return a file that holds `data`."""
    return Content(lambda: io.BytesIO(data), len(data), executable)


@dataclass(frozen=True)
class WheelFile:
    """An open wheel: `files` maps '/'-separated paths to contents; `info` is its .dist-info."""

    path: Path
    info: str
    files: Mapping[str, Content]

    @property
    def payload(self) -> Mapping[str, Content]:
        """The files outside of .dist-info."""
        return {
            name: found
            for name, found in self.files.items()
            if not name.startswith(f"{self.info}/")
        }

    def below(self, folder: str = "") -> Mapping[str, Content]:
        """Return the files of .dist-info, or of a folder in it such as 'licenses/', by their names
        there, without RECORD.
        """
        start = f"{self.info}/{folder}"
        return {
            name.removeprefix(start): found
            for name, found in self.files.items()
            if name.startswith(start) and name != f"{self.info}/RECORD"
        }

    def text(self, name: str) -> str:
        """Return the text of a file of .dist-info; empty when there is none."""
        found = self.files.get(f"{self.info}/{name}")
        return found.read().decode() if found else ""

    def headers(self, name: str) -> Message:
        """Return the headers of METADATA or WHEEL."""
        return Parser().parsestr(self.text(name), headersonly=True)

    @property
    def name(self) -> str:
        """The name of the distribution."""
        return str(self.headers("METADATA")["Name"])

    @property
    def version(self) -> str:
        """The version of the distribution."""
        return str(self.headers("METADATA")["Version"])

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags, such as 'cp311-cp311-linux_x86_64'."""
        return tuple(self.headers("WHEEL").get_all("Tag", ()))


@contextmanager
def opened(path: Path) -> Iterator[WheelFile]:
    """Open a wheel for reading. Raises SetupError when `path` is none, or is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [entry for entry in archive.infolist() if not entry.is_dir()]
            files = {
                entry.filename: Content(
                    lambda entry=entry: archive.open(entry),  # type: ignore[misc]
                    entry.file_size,
                    bool(entry.external_attr >> 16 & 0o100),
                )
                for entry in entries
            }
            infos = {name.split("/")[0] for name in files if ".dist-info/" in name}
            infos = {info for info in infos if f"{info}/METADATA" in files}
            if len(infos) != 1:
                raise SetupError(f"{path} is not a wheel: it has no .dist-info folder")
            if len(files) < len(entries):
                raise SetupError(f"{path} is damaged: it holds a file twice")
            yield WheelFile(path, infos.pop(), files)
    except OSError as error:
        raise SetupError(f"cannot read {path}: {error.strerror}") from error
    except _DAMAGED as error:
        raise SetupError(f"{path} is damaged ({error}): get it again") from error


def _digest(stream: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while block := stream.read(_BLOCK):
        digest.update(block)
    return _encoded(digest.digest())


def _encoded(digest: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def wrong_records(wheel: WheelFile) -> tuple[str, ...]:
    """Compare a wheel with its RECORD; return a clause for each file that differs."""
    record = f"{wheel.info}/RECORD"
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(wheel.text("RECORD"))) if row}
    wrong = [f"RECORD does not list {name}" for name in wheel.files if name not in rows]
    for name, listed in rows.items():
        found = wheel.files.get(name)
        if found is None:
            wrong.append(f"{name}, which RECORD lists, is missing")
        elif name != record:
            with found.open() as stream:
                if listed != [_digest(stream), str(found.size)]:
                    wrong.append(f"{name} is not what RECORD lists")
    return tuple(wrong)


def _times(environ: Mapping[str, str]) -> tuple[int, int, int, int, int, int]:
    """Return the time of all files: SOURCE_DATE_EPOCH, or the oldest that a zip can hold."""
    value = environ.get(EPOCH_VARIABLE, "")
    if not value:
        return _OLDEST
    try:
        year, month, day, hour, minute, second = time.gmtime(int(value))[:6]
    except (ValueError, OverflowError, OSError) as error:
        raise SetupError(
            f"{EPOCH_VARIABLE} is '{value}': it has to be a number of seconds since 1970"
        ) from error
    return min(max((year, month, day, hour, minute, second), _OLDEST), _NEWEST)


def write(
    target: Path,
    info: str,
    files: Mapping[str, Content],
    show: Callable[[int], None] = lambda done: None,
) -> Path:
    """Write `files` and their RECORD as the wheel `target`, atomically; return it.

    The folder `info` comes last. `show` gets the bytes done, of those that `files` have.
    Raises SetupError when writing fails, or SOURCE_DATE_EPOCH is no time.
    """
    record = f"{info}/RECORD"
    when = _times(os.environ)
    order = sorted(files, key=lambda name: (name.startswith(f"{info}/"), name))
    rows: list[tuple[str, str, int | str]] = []
    done = 0
    with replacing(target) as stream, zipfile.ZipFile(stream, "w") as archive:

        def add(name: str, source: Content) -> None:
            nonlocal done
            entry = zipfile.ZipInfo(name, when)
            entry.create_system = 3  # Unix, which the modes are of
            entry.compress_type = zipfile.ZIP_DEFLATED
            # pip sets the mode of regular files only, so the type has to be there too.
            entry.external_attr = (0o100755 if source.executable else 0o100644) << 16
            entry.file_size = source.size
            digest, size = hashlib.sha256(), 0
            with source.open() as read, archive.open(entry, "w") as written:
                while block := read.read(_BLOCK):
                    digest.update(block)
                    written.write(block)
                    size += len(block)
                    if name != record:
                        show(done + size)
            done += size
            rows.append((name, _encoded(digest.digest()), size))

        for name in order:
            if name != record:
                add(name, files[name])
        rows.append((record, "", ""))
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        add(record, content(text.getvalue().encode()))
    return target
