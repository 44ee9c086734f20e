"""Fetch the pinned sources of third_party/sources.yaml into build/sources/.

`fetch(name)` returns the folder of a source: a local copy that the user names, an earlier fetch, or
the first mirror that answers. `python -m tools.setup_helpers.sources` fetches all and prints their
folders.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.setup_helpers import env
from tools.setup_helpers.archives import Selection, tree_digest, unpack
from tools.setup_helpers.download import RemoteFile, download
from tools.setup_helpers.errors import SetupError, exit_code_of
from tools.setup_helpers.files import locked, write_atomic

REPO = Path(__file__).resolve().parents[2]
TABLE = REPO / "third_party" / "sources.yaml"
FOLDER = REPO / "build" / "sources"
MIRROR_VARIABLE = "ZENDNN_SOURCES"
#: Names that variables had before, and that still serve.
_EARLIER_NAMES = {"ZENDNN_BLIS_DIR": "BLIS_ROOT"}


@dataclass(frozen=True)
class Debian:
    """A file in the Debian archive's pool, e.g. 'pool/main/b/blis/x.deb'."""

    pool: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Snapshot:
    """A git host's archive of a tag."""

    archive: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Git:
    """A git repository and a tag (`ref`) or `commit` in it; the commit may be abbreviated."""

    url: str
    ref: str = ""
    commit: str = ""


@dataclass(frozen=True)
class Mirror:
    """One place to fetch a source from. `digest` pins the unpacked tree; with None the archive's
    hash does.

    Invariant: a Git place has a digest, since nothing else pins it.
    """

    kind: str
    place: Debian | Snapshot | Git
    prefixes: Mapping[str, str]
    digest: str | None


@dataclass(frozen=True)
class Source:
    """One entry of sources.yaml, which documents the fields."""

    name: str
    version: str
    used_for: str
    license: str = field(repr=False)
    override: str | None
    landmarks: tuple[str, ...]
    files: tuple[str, ...]
    omit: tuple[str, ...]
    mirrors: tuple[Mirror, ...]

    def selection(self, mirror: Mirror) -> Selection:
        """Return the wanted files of the archive that `mirror` gives."""
        return Selection(mirror.prefixes, self.files, self.omit)

    def pins(self) -> str:
        """Return a text that changes whenever the files do that the entry selects."""
        return repr(self)


@dataclass(frozen=True)
class Blis:
    """The place of BLIS: a 'prefix' with include/ and lib*/, or a 'source' tree with configure."""

    kind: str
    path: Path


_PLACES: Mapping[str, type[Debian] | type[Snapshot] | type[Git]] = {
    "pool": Debian,
    "archive": Snapshot,
    "url": Git,
}
_MIRROR_KINDS = ("debian", "git")


def _mirror(name: str, kind: str, entry: Mapping[str, Any], digest: str | None) -> Mirror:
    fields = dict(entry)
    prefixes = fields.pop("prefixes", {".": "."})
    own_digest = fields.pop("digest", digest)
    try:
        place = next(type_ for key, type_ in _PLACES.items() if key in fields)(**fields)
        mirror = Mirror(kind, place, prefixes, own_digest)
    except (StopIteration, TypeError) as error:
        raise SetupError(f"{TABLE.name}: {name}: the mirror '{kind}' is incomplete") from error
    if isinstance(place, Git) and not own_digest:
        raise SetupError(f"{TABLE.name}: {name}: the mirror '{kind}' needs a digest")
    return mirror


def read_table(path: Path) -> Mapping[str, Source]:
    """Read sources.yaml; raise SetupError naming an invalid entry."""
    env.require_modules()
    import yaml

    sources = {}
    try:
        table = yaml.safe_load(path.read_text(encoding="utf-8"))
        for name, entry in table.items():
            mirrors = tuple(
                _mirror(name, kind, entry["mirrors"][kind], entry.get("digest"))
                for kind in _MIRROR_KINDS
                if kind in entry["mirrors"]
            )
            sources[name] = Source(
                name=name,
                version=str(entry["version"]),
                used_for=entry["used_for"],
                license=entry["license"],
                override=entry.get("override"),
                landmarks=tuple(entry["landmarks"]),
                files=tuple(entry["files"]),
                omit=tuple(entry["omit"]),
                mirrors=mirrors,
            )
    except (OSError, yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
        raise SetupError(f"{path} is not a table of sources: {error!r}") from error
    return sources


@functools.lru_cache(maxsize=1)
def sources() -> Mapping[str, Source]:
    """Return the table of all sources, by name."""
    return read_table(TABLE)


def debian_sites() -> tuple[str, ...]:
    """Return apt's addresses of the Debian archive, the main archive first.

    Empty without apt, or when apt has no http(s) address.
    """
    try:
        answer = subprocess.run(
            ["apt-get", "indextargets", "--format", "$(SITE)"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    sites = [site for site in dict.fromkeys(answer.split()) if re.match(r"https?://", site)]
    return tuple(sorted(sites, key=lambda site: "security" in site))


def pool_url(site: str, pool: str) -> str:
    """Return the address of a pool file; '+' and '~' are escaped, as some mirrors require."""
    return f"{site.rstrip('/')}/" + urllib.parse.quote(pool).replace("~", "%7e")


def _first_of(attempts: Sequence[Callable[[], Path]]) -> Path:
    """Return the result of the first successful attempt; raise the first failure if none is."""
    failures: list[SetupError] = []
    for attempt in attempts:
        try:
            return attempt()
        except SetupError as error:
            failures.append(error)
    raise failures[0]


def _from_debian(place: Debian, archives: Path) -> Path:
    target = archives / posixpath.basename(place.pool)
    remotes = [
        RemoteFile(pool_url(site, place.pool), place.sha256, place.size) for site in debian_sites()
    ]
    if not remotes:
        raise SetupError("apt has no address of a Debian archive")
    return _first_of([functools.partial(download, remote, target) for remote in remotes])


def _from_snapshot(place: Snapshot, archives: Path) -> Path:
    parts = urllib.parse.urlsplit(place.archive).path.strip("/").split("/")
    return download(
        RemoteFile(place.archive, place.sha256, place.size), archives / "-".join(parts[1:])
    )


def _git(folder: Path, *arguments: str) -> None:
    """Run git in `folder`; show its progress on a terminal, and its last line in the error."""
    command = ["git", "-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=30", *arguments]
    environ = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    last = "no message"
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
    except FileNotFoundError as error:
        raise SetupError("git is not installed: install git") from error
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            last = line.strip() or last
            if sys.stderr.isatty():
                print(f"\r{last:<78}", end="", file=sys.stderr)
    if process.returncode:
        raise SetupError(f"git {arguments[0]} failed: {last}")


def _from_git(place: Git, archives: Path) -> Path:
    """Fetch a commit without its submodules and return it as a tar file."""
    revision = place.commit or place.ref
    name = posixpath.basename(place.url)
    target = archives / f"{name}-{revision}.tar"
    if target.exists():
        return target
    # The repository stays until the fetch is complete, so an interrupted fetch can resume.
    repository = archives / f".{target.stem}.git"
    try:
        repository.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(f"cannot write to {repository}: {error.strerror}") from error
    # git cannot fetch an abbreviated commit: the branches' history (without files) resolves it.
    what = ["--filter=blob:none", "origin", "+refs/heads/*:refs/remotes/origin/*"]
    if place.ref:
        what = ["--depth=1", "origin", place.ref]
    print(f"{name}: fetching {revision} from {place.url}", file=sys.stderr)
    _git(repository, "init", "--quiet", "--bare", ".")
    _git(repository, "config", "remote.origin.url", place.url)
    progress = ["--progress"] if sys.stderr.isatty() else []
    _git(repository, "fetch", *progress, "--no-recurse-submodules", *what)
    archive = repository / "tree.tar"
    _git(repository, "archive", "--format=tar", "-o", str(archive), place.commit or "FETCH_HEAD")
    os.replace(archive, target)
    shutil.rmtree(repository, ignore_errors=True)
    return target


def bring(mirror: Mirror, archives: Path) -> Path:
    """Return the archive that `mirror` gives; fetch it into the folder `archives` if needed."""
    place = mirror.place
    if isinstance(place, Debian):
        return _from_debian(place, archives)
    if isinstance(place, Snapshot):
        return _from_snapshot(place, archives)
    return _from_git(place, archives)


def _unpacked(source: Source, mirror: Mirror, archives: Path, tree: Path) -> str:
    """Unpack the archive of `mirror` into `tree` and return its digest."""
    archive = bring(mirror, archives)
    try:
        return unpack(archive, source.selection(mirror), tree, mirror.digest)
    except SetupError:
        if isinstance(mirror.place, Git):  # only the digest shows that the archive is wrong
            archive.unlink(missing_ok=True)
        raise


def mirror_order(source: Source, environ: Mapping[str, str]) -> tuple[Mirror, ...]:
    """Return the mirrors to try, in order: the kind that ZENDNN_SOURCES names, or all.

    Raises SetupError when ZENDNN_SOURCES names no kind of mirror.
    """
    forced = environ.get(MIRROR_VARIABLE, "")
    if forced and forced not in _MIRROR_KINDS:
        raise SetupError(
            f"{MIRROR_VARIABLE} is '{forced}': it can be {' or '.join(_MIRROR_KINDS)}, or unset to "
            "try both"
        )
    return tuple(mirror for mirror in source.mirrors if forced in ("", mirror.kind))


def local_copy(source: Source, environ: Mapping[str, str]) -> Path | None:
    """Return the user's local copy of `source`, or None.

    Raises SetupError when it is not a folder or holds something else.
    """
    names = (source.override or "", _EARLIER_NAMES.get(source.override or "", ""))
    name = next((name for name in names if environ.get(name)), None)
    if name is None:
        return None
    named = environ[name]
    path = Path(named).expanduser().resolve()
    if not path.is_dir():
        raise SetupError(f"{name} is '{named}', which is not a folder")
    if not any((path / landmark).exists() for landmark in source.landmarks):
        raise SetupError(
            f"{name} is '{named}', which does not hold {source.name}: it has no "
            f"{' or '.join(source.landmarks)}"
        )
    return path


def _is_ready(source: Source, tree: Path, stamp: Path) -> bool:
    """Return whether `tree` holds exactly what the table pins."""
    try:
        noted = json.loads(stamp.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    if noted.get("pins") != source.pins() or not tree.is_dir():
        return False
    try:
        if noted.get("digest") == tree_digest(tree):
            return True
    except OSError:  # an added file is unreadable, such as an editor's lock, a dangling link
        pass
    copy = f"; name a copy of it in {source.override} to build changed sources"
    remedy = copy if source.override else ""
    print(f"{tree} was changed; unpacking it again{remedy}", file=sys.stderr)
    return False


def fetch_source(source: Source, folder: Path, environ: Mapping[str, str]) -> Path:
    """Return the folder of `source`; fetch it into `folder`/<name> if needed.

    Raises SetupError with the reason of every mirror when all fail.
    """
    if (local := local_copy(source, environ)) is not None:
        return local
    tree = folder / source.name
    stamp = folder / f".{source.name}.json"
    with locked(folder / f".{source.name}.lock"):
        if _is_ready(source, tree, stamp):
            return tree
        for leftover in folder.glob(f".{source.name}.????????*"):
            if leftover.is_dir():  # of a killed run
                shutil.rmtree(leftover, ignore_errors=True)
        failures = []
        for mirror in mirror_order(source, environ):
            try:
                digest = _unpacked(source, mirror, folder / "archives", tree)
            except SetupError as error:
                failures.append(f"{mirror.kind}: {error}")
                continue
            write_atomic(stamp, json.dumps({"pins": source.pins(), "digest": digest}).encode())
            return tree
    remedy = f"; name a local copy in {source.override}" if source.override else ""
    raise SetupError(
        f"{source.name} {source.version} cannot be fetched ({'; '.join(failures)}){remedy}"
    )


def fetch(name: str) -> Path:
    """Return the folder of the source called `name` in sources.yaml; fetch it if needed.

    Raises SetupError when it cannot be fetched, KeyError when the table has no such source.
    """
    return fetch_source(sources()[name], FOLDER, os.environ)


def blis(path: Path) -> Blis:
    """Return the kind of the folder that `fetch('blis')` returned."""
    return Blis("source" if (path / "configure").exists() else "prefix", path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fetch the named sources (default: those that the build uses) and print a table of them."""
    table = sources()
    parser = argparse.ArgumentParser(
        prog="python -m tools.setup_helpers.sources", description=main.__doc__
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"one of {', '.join(table)}")
    names = parser.parse_args(arguments).names
    if unknown := [name for name in names if name not in table]:
        raise SetupError(f"there is no source '{unknown[0]}': choose from {', '.join(table)}")
    wanted = names or [name for name, source in table.items() if source.override]
    for name in wanted:
        started = time.monotonic()
        path = fetch(name)
        source = table[name]
        print(f"{name:15} {source.version:18} {time.monotonic() - started:6.1f} s  {path}")


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
