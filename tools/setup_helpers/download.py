"""Download one file of known size and sha256; resume an interrupted download."""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tools.setup_helpers.errors import SetupError

TIMEOUT_SECONDS = 30.0
ATTEMPTS = 4
TERMINAL_SECONDS = 0.1
LOG_SECONDS = 5.0
_BLOCK = 1 << 18
_NETWORK_ERRORS = (OSError, http.client.HTTPException)


@dataclass(frozen=True)
class RemoteFile:
    """A remote file. `sha256` is lower-case hex, `size` is in bytes."""

    url: str
    sha256: str
    size: int


class Progress:
    """One line on stderr: rewritten in place on a terminal, every few seconds in a log."""

    def __init__(self, label: str, total: int) -> None:
        self.label = label
        self.total = total
        self.terminal = sys.stderr.isatty()
        self.next_time = time.monotonic() + (0 if self.terminal else LOG_SECONDS)

    def show(self, done: int) -> None:
        """Report that `done` of `total` bytes have arrived."""
        if done < self.total and time.monotonic() < self.next_time:
            return
        self.next_time = time.monotonic() + (TERMINAL_SECONDS if self.terminal else LOG_SECONDS)
        percent = 100 * done // max(self.total, 1)
        text = f"{self.label}: {done / 1e6:.1f} of {self.total / 1e6:.1f} MB, {percent} %"
        if self.terminal:
            end = "\n" if done >= self.total else ""
            print(f"\r{text}\x1b[K", end=end, file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file as lower-case hex."""
    with path.open("rb") as stream:
        digest = hashlib.sha256()
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _blocks(response: IO[bytes]) -> Iterator[bytes]:
    """Yield the blocks. A dropped connection raises HTTPException: an OSError is the disk's."""
    try:
        while block := response.read(_BLOCK):
            yield block
    except OSError as error:
        raise http.client.HTTPException(error) from error


def _append(remote: RemoteFile, part: Path, progress: Progress) -> None:
    """Download the rest of `remote` into `part`.

    Raises a network error when the connection drops, SetupError when `part` cannot be written.
    """
    have = part.stat().st_size if part.exists() else 0
    if have > remote.size:
        part.unlink()
        have = 0
    if have == remote.size:
        return
    headers = {"User-Agent": "torch-zendnn-build", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(remote.url, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
        # A server that ignores the range answers 200 and restarts at the first byte.
        resumed = have > 0 and response.status == 206
        have = have if resumed else 0
        try:
            with part.open("ab" if resumed else "wb") as stream:
                for block in _blocks(response):
                    stream.write(block)
                    have += len(block)
                    if have > remote.size:
                        raise SetupError(
                            f"{remote.url} is longer than the expected {remote.size} bytes"
                        )
                    progress.show(have)
        except OSError as error:
            raise SetupError(f"cannot write {part}: {error.strerror}") from error
    if have < remote.size:
        raise ConnectionError(f"the connection closed after {have} of {remote.size} bytes")


def download(remote: RemoteFile, target: Path, *, wait_seconds: float = 1.0) -> Path:
    """Download `remote` to `target` and return it.

    A `target` with the right sha256 is kept. A partial download stays in `<target>.part`, from
    which a later call resumes; `target` appears only once its sha256 is right. A dropped connection
    is retried after `wait_seconds`, doubled each time.
    Raises SetupError when the file cannot be fetched, does not fit on the disk, or has the wrong
    content.
    """
    if target.exists() and sha256_of(target) == remote.sha256:
        return target
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        have = part.stat().st_size if part.exists() else 0
        free = shutil.disk_usage(target.parent).free
    except OSError as error:
        raise SetupError(f"cannot write to {target.parent}: {error.strerror}") from error
    if free < remote.size - have:
        raise SetupError(
            f"{target.parent} has {free / 1e6:.0f} MB free and {target.name} needs "
            f"{remote.size / 1e6:.0f} MB: make room and run again"
        )
    progress = Progress(target.name, remote.size)
    for attempt in range(ATTEMPTS):
        try:
            _append(remote, part, progress)
            break
        except urllib.error.HTTPError as error:
            if error.code == 416:  # the .part is not from this file
                part.unlink(missing_ok=True)
                continue
            raise SetupError(f"{remote.url} answered {error.code} {error.reason}") from error
        except _NETWORK_ERRORS as error:
            reason = getattr(error, "reason", None) or error
            if attempt == ATTEMPTS - 1 or isinstance(error, urllib.error.URLError):
                raise SetupError(f"{remote.url} cannot be read ({reason})") from error
            print(f"{target.name}: {reason}; trying again", file=sys.stderr)
            time.sleep(wait_seconds * 2**attempt)
    else:
        raise SetupError(f"{remote.url} refuses every byte range of {target.name}")
    found = sha256_of(part)
    if found != remote.sha256:
        part.unlink()
        raise SetupError(
            f"{remote.url} has the sha256 {found} where {remote.sha256} is pinned; it was deleted"
        )
    os.replace(part, target)
    return target
