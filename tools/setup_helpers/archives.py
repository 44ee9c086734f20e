"""Unpack pinned archives safely: tar in any compression, and Debian's .deb.

Unpacking yields the whole folder or nothing, and extracts only regular files.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tools.setup_helpers.download import sha256_of
from tools.setup_helpers.errors import SetupError

_AR_MAGIC = b"!<arch>\n"
_AR_HEADER_SIZE = 60


def glob_pattern(globs: Iterable[str]) -> re.Pattern[str]:
    """Compile globs over '/'-separated paths: '**' crosses folders, '*' and '?' do not."""
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile(
        "|".join(
            "".join(
                parts.get(piece, re.escape(piece))
                for piece in re.split(r"(\*\*/|\*\*|\*|\?)", glob)
            )
            for glob in globs
        )
        or "(?!)"
    )


@dataclass(frozen=True)
class Selection:
    """The wanted files of an archive, and their places in the tree.

    `prefixes` maps folders of the archive to folders of the tree ('.' is the root of either);
    `files` and `omit` are globs over the paths in the tree.
    """

    prefixes: Mapping[str, str]
    files: tuple[str, ...] = ("**",)
    omit: tuple[str, ...] = ()

    def place(self) -> _Placement:
        """Return the compiled form, a function of a member's name."""
        return _Placement(
            tuple(self.prefixes.items()), glob_pattern(self.files), glob_pattern(self.omit)
        )


@dataclass(frozen=True)
class _Placement:
    prefixes: tuple[tuple[str, str], ...]
    files: re.Pattern[str]
    omit: re.Pattern[str]

    def __call__(self, member: str) -> str | None:
        """Return the path of `member` in the tree, or None when it is not wanted."""
        for prefix, folder in self.prefixes:
            if prefix == ".":
                inner = member
            elif member.startswith(prefix + "/"):
                inner = member[len(prefix) + 1 :]
            else:
                continue
            path = posixpath.normpath(posixpath.join(folder, inner))
            if self.files.fullmatch(path) and not self.omit.fullmatch(path):
                return path
        return None


def safe_name(name: str, archive: str) -> str:
    """Return the normalised path of a member; raise SetupError when it would escape its folder."""
    path = posixpath.normpath(name)
    if name.startswith("/") or "\\" in name or "\0" in name or path.split("/")[0] == "..":
        raise SetupError(f"{archive} holds '{name}', which would be written outside its folder")
    return path


def _check_link(member: tarfile.TarInfo, path: str, archive: str) -> None:
    base = posixpath.dirname(path) if member.issym() else ""
    target = posixpath.normpath(posixpath.join(base, member.linkname))
    if member.linkname.startswith("/") or target.split("/")[0] == "..":
        raise SetupError(
            f"{archive} holds the link '{member.name}' to '{member.linkname}', which leads outside "
            "its folder"
        )


def _deb_payload(stream: IO[bytes], archive: str) -> None:
    """Advance `stream`, a .deb, from its start to the first byte of its data.tar member."""
    stream.seek(len(_AR_MAGIC))
    while header := stream.read(_AR_HEADER_SIZE):
        try:
            size = int(header[48:58])
        except ValueError:
            break
        if len(header) < _AR_HEADER_SIZE or header[58:60] != b"`\n":
            break
        if header[:16].startswith(b"data.tar"):
            return
        stream.seek(size + size % 2, os.SEEK_CUR)
    raise SetupError(f"{archive} is not a Debian package: it has no data.tar")


@contextmanager
def _open_tar(archive: Path) -> Iterator[tarfile.TarFile]:
    with archive.open("rb") as stream:
        if stream.read(len(_AR_MAGIC)) == _AR_MAGIC:
            _deb_payload(stream, archive.name)
        else:
            stream.seek(0)
        # Streaming ('|') only reads forward, so whatever follows data.tar in a .deb is ignored.
        with tarfile.open(fileobj=stream, mode="r|*") as tar:
            yield tar


def _extract(archive: Path, selection: Selection, folder: Path) -> None:
    place = selection.place()
    with _open_tar(archive) as tar:
        for member in tar:
            path = safe_name(member.name, archive.name)
            if member.issym() or member.islnk():
                # A link that stays inside is skipped: the build reads no links, as the digest of
                # the tree proves.
                _check_link(member, path, archive.name)
                continue
            if member.isdir():
                continue
            if not member.isreg():
                raise SetupError(f"{archive.name} holds '{member.name}', which is not a plain file")
            wanted = place(path)
            if wanted is None:
                continue
            source = tar.extractfile(member)
            assert source is not None  # a regular file always has content
            target = folder / wanted
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as stream:
                shutil.copyfileobj(source, stream, 1 << 18)
            if member.mode & 0o100:
                target.chmod(0o755)


def tree_digest(tree: Path) -> str:
    """Return the sha256 of the sorted '<sha256>  <path>' lines of all files below `tree`."""
    lines = sorted(
        f"{sha256_of(path)}  {path.relative_to(tree).as_posix()}"
        for folder, _, names in os.walk(tree)
        for path in (Path(folder, name) for name in names)
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def replace_folder(new: Path, target: Path) -> None:
    """Replace the folder `target`, if it exists, by the folder `new`."""
    old = new.with_name(new.name + ".old")
    if target.exists():
        os.replace(target, old)
    os.replace(new, target)
    shutil.rmtree(old, ignore_errors=True)


def unpack(archive: Path, selection: Selection, target: Path, digest: str | None) -> str:
    """Unpack the `selection` of `archive` as the folder `target`; return its tree_digest.

    The files are written beside `target`, and replace it in one step once their digest matches
    `digest` (None accepts any: the archive's own hash is the pin).
    Raises SetupError, and leaves `target` unchanged, when the archive is damaged, would write
    outside its folder, holds anything but files, folders and links, or is not the pinned one.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        scratch.chmod(0o755)
        try:
            _extract(archive, selection, scratch)
        except FileExistsError as error:
            raise SetupError(f"{archive.name} holds '{error.filename}' twice") from error
        except (tarfile.TarError, EOFError, ImportError) as error:
            raise SetupError(f"{archive.name} cannot be unpacked: {error}") from error
        except OSError as error:
            raise SetupError(
                f"{archive.name} cannot be unpacked into {target.parent}: {error.strerror or error}"
            ) from error
        found = tree_digest(scratch)
        if digest is not None and found != digest:
            raise SetupError(
                f"{archive.name} unpacks to files with the digest {found} where {digest} is pinned"
            )
        replace_folder(scratch, target)
        return found
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
