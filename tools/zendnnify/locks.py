"""The releases that the rules were checked with: a lock for each says what they match there.

A lock lists, for each rule except the general one, the lines that it matches, by file. That of
PyTorch also has the hashes of the files that a conversion in place reads.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from tools.zendnnify import files
from tools.zendnnify.rules.model import ZendnnifyError, number

LOCKS = Path(__file__).parent / "rules" / "locks"

Places = dict[str, dict[str, list[int]]]
"""Rule to file to the lines, from 1, at which its matches start, in order."""


@dataclass(frozen=True)
class Lock:
    """What is known of one release.

    Attributes:
        rules: the matches.
        hashes: sha256 of files, by path.
    """

    rules: Places
    hashes: dict[str, str] = field(default_factory=dict)


def releases(kind: str) -> list[str]:
    """The releases of that kind of tree (``trees.Kind.name``) that have a lock, oldest first."""
    names = [path.stem.removeprefix(f"{kind}-") for path in LOCKS.glob(f"{kind}-*.json")]
    return sorted(names, key=number)


def read(kind: str, release: str) -> Lock | None:
    """The lock of a release, or None where there is none.

    Raises:
        ZendnnifyError: the lock is damaged.
    """
    path = _path(kind, release)
    if not path.is_file():
        return None
    try:
        return Lock(**json.loads(files.read_text(path)))
    except (ValueError, TypeError):
        raise ZendnnifyError(f"{path} is damaged; restore that file") from None


def write(kind: str, release: str, lock: Lock) -> Path:
    """Writes the lock of a release and returns its path."""
    target = _path(kind, release)
    parts = [f' "rules": {_table(lock.rules)}']
    if lock.hashes:
        parts.insert(0, f' "hashes": {_table(lock.hashes)}')
    with files.in_one_sentence(f"write {target}"):
        target.parent.mkdir(exist_ok=True)
        scratch = target.with_suffix(".new")
        scratch.write_text("{\n" + ",\n".join(parts) + "\n}\n")
        os.replace(scratch, target)
    return target


def _path(kind: str, release: str) -> Path:
    return LOCKS / f"{kind}-{release}.json"


def _table(items: dict[str, str] | Places) -> str:
    """JSON with a line for each item, so that differences are readable."""
    lines = [f"  {json.dumps(key)}: {json.dumps(items[key])}" for key in sorted(items)]
    return "{\n" + ",\n".join(lines) + "\n }"
