"""The manifest of an output folder: each output's source and the rules applied to it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tools.zendnnify import files
from tools.zendnnify.files import STAGING
from tools.zendnnify.rules.model import ZendnnifyError

MANIFEST = "zendnnify.json"
"""Sources, hashes, applied rules and counts; identical on every machine."""
STATS = ".zendnnify-stats.json"
"""Sizes and timestamps at the last run, so that an up-to-date run reads no source."""


@dataclass(frozen=True)
class Entry:
    """The manifest's record of one output.

    Attributes:
        source: its source, relative to the tree.
        source_sha256: of the source's bytes.
        sha256: of the output's bytes.
        rules: how often each rule was applied.
        merged: new names in it that replace several old ones.
        explicit: requested by name, outside the default set.
    """

    source: str
    source_sha256: str
    sha256: str
    rules: dict[str, int]
    merged: tuple[str, ...] = ()
    explicit: bool = False


@dataclass(frozen=True)
class Record:
    """An output folder as an earlier run left it.

    Attributes:
        kind: of the tree; empty where there is no manifest.
        ours: whether it has a manifest or the staging area of an interrupted run.
        entries: output path to its entry.
        owned: paths that may be overwritten: those of the entries and of an interrupted run.
        stats: ``tree/…`` or ``out/…`` to [size, modification time in ns].
        generator: the digest of the generator that wrote the stats.
    """

    kind: str
    ours: bool
    entries: dict[str, Entry]
    owned: frozenset[str]
    stats: dict[str, list[int]]
    generator: str

    def is_unchanged(self, key: str, path: Path) -> bool:
        """Whether the file is as it was at the last run, by size and time."""
        return key in self.stats and self.stats[key] == files.stat(path)


def load(out: Path) -> Record:
    """Reads the record of ``out``; an empty record when there is none.

    Raises:
        ZendnnifyError: a file of the record is damaged.
    """
    manifest, outputs = _outputs(out / MANIFEST)
    try:
        pending, left_behind = _outputs(out / STAGING / "new" / MANIFEST)
    except ZendnnifyError:  # A run stages the manifest first: killed here, it had moved nothing.
        pending, left_behind = None, {}
    stats = _read(out / STATS) or {}
    files_of_stats = stats.get("files", {})
    if not isinstance(files_of_stats, dict):
        raise _damaged(out / STATS)
    return Record(
        kind=(pending if manifest is None else manifest) or "",
        ours=manifest is not None or (out / STAGING).is_dir(),
        entries=outputs,
        owned=frozenset(outputs) | frozenset(left_behind),
        stats=files_of_stats,
        generator=stats.get("generator", ""),
    )


def _outputs(path: Path) -> tuple[str | None, dict[str, Entry]]:
    """The manifest's kind of tree (None without a manifest) and its entries."""
    manifest = _read(path)
    if manifest is None:
        return None, {}
    kind, outputs = manifest.get("kind", ""), manifest.get("outputs", {})
    if not isinstance(kind, str) or not isinstance(outputs, dict):
        raise _damaged(path)
    try:
        entries = {
            output: Entry(**{**fields, "merged": tuple(fields.get("merged", ()))})
            for output, fields in outputs.items()
        }
    except (AttributeError, TypeError):
        raise _damaged(path) from None
    if not all(is_inside(output) and _is_sound(entry) for output, entry in entries.items()):
        raise _damaged(path)
    return kind, entries


def is_inside(path: str) -> bool:
    """Whether a relative path stays below its folder."""
    pure = PurePosixPath(path)
    return (
        path.isprintable() and not pure.is_absolute() and bool(pure.name) and ".." not in pure.parts
    )


def _is_sound(entry: Entry) -> bool:
    return (
        all(isinstance(x, str) for x in (entry.source, entry.source_sha256, entry.sha256))
        and is_inside(entry.source)
        and isinstance(entry.rules, dict)
        and all(isinstance(count, int) for count in entry.rules.values())
        and all(isinstance(name, str) for name in entry.merged)
        and isinstance(entry.explicit, bool)
    )


def dump(kind: str, release: str, generator: str, entries: dict[str, Entry]) -> bytes:
    """The manifest's bytes; empty fields are left out."""
    outputs = {
        path: {key: value for key, value in asdict(entry).items() if value} | {"rules": entry.rules}
        for path, entry in entries.items()
    }
    data = {"kind": kind, "release": release, "generator": generator, "outputs": outputs}
    return (json.dumps(data, indent=1) + "\n").encode()


def dump_stats(generator: str, stats: dict[str, list[int]]) -> bytes:
    return json.dumps({"generator": generator, "files": stats}).encode()


def _read(path: Path) -> dict[str, Any] | None:
    if not os.path.lexists(path):
        return None
    try:
        data = json.loads(files.read_bytes(path))
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise _damaged(path)
    return data


def _damaged(path: Path) -> ZendnnifyError:
    return ZendnnifyError(f"{path} is damaged; remove the folder {path.parent} and run again")
