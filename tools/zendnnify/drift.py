"""Compares what the rules match in two releases of upstream's.

Each of the two is a tree, or a release whose lock tells the matches.
"""

from __future__ import annotations

import enum
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tools.zendnnify import files, locks, trees
from tools.zendnnify.locks import Lock, Places
from tools.zendnnify.rewrite import GENERAL, Substitution, line_of, locate_edit, rewrite
from tools.zendnnify.rules import ruleset
from tools.zendnnify.rules import tree as tree_rules
from tools.zendnnify.rules.model import Edit, ZendnnifyError
from tools.zendnnify.trees import Tree


class Status(enum.Enum):
    """How a rule's matches in the new release compare with those in the old one.

    Conversion fails, or does less than it should, where a rule is lost or a name uncovered. A rule
    is unread where the new tree is only a part, such as what a wheel has, without the rule's files.
    """

    LOST = "lost"
    UNCOVERED = "uncovered"
    MOVED = "moved"
    NEW = "new"
    ENDED = "ended"
    SAME = "same"
    UNREAD = "unread"


FAILURES = frozenset({Status.LOST, Status.UNCOVERED})


@dataclass(frozen=True)
class Matches:
    """What the rules match in one release.

    Attributes:
        kind, release: of the tree.
        rules: the places of each rule's matches.
        uncovered: an error for each file with a name that no rule covers.
        part: the files of a tree that is only a part of its release.
    """

    kind: str
    release: str
    rules: Places
    uncovered: tuple[str, ...] = ()
    part: frozenset[str] | None = None

    def has(self, path: str) -> bool:
        """Whether the file was there to be read, or is missing in its release."""
        return self.part is None or path in self.part


@dataclass(frozen=True)
class Row:
    """One rule of the comparison; for an uncovered name, ``rule`` is the error."""

    rule: str
    status: Status
    old: tuple[str, ...] = ()
    new: tuple[str, ...] = ()


@dataclass(frozen=True)
class Drift:
    """The comparison of two releases; rows are in the order of ``Status``."""

    old: Matches
    new: Matches
    rows: tuple[Row, ...]

    @property
    def failed(self) -> bool:
        return any(row.status in FAILURES for row in self.rows)

    def table(self) -> str:
        """The numbers, and all rows but those of rules that match the same or are unread."""
        counts = Counter(row.status for row in self.rows)
        rows = [
            (f"{self.new.kind} {self.old.release} -> {self.new.release}", "", ""),
            *((status.value, f"{counts[status]}", "") for status in Status),
            *(
                (row.status.value, row.rule, _change(row))
                for row in self.rows
                if row.status not in (Status.SAME, Status.UNREAD)
            ),
        ]
        first = max(len(status.value) for status in Status)
        second = max(len(row.rule) for row in self.rows if row.status is not Status.UNCOVERED)
        return "\n".join(f"{a:<{first}}  {b:<{second}}  {c}".rstrip() for a, b, c in rows)

    def json(self) -> str:
        rows = [
            {"rule": row.rule, "status": row.status.value, "old": row.old, "new": row.new}
            for row in self.rows
        ]
        head = {"kind": self.new.kind, "old": self.old.release, "new": self.new.release}
        return json.dumps({**head, "rules": rows}, indent=1)


def compare(old: str, new: str) -> Drift:
    """Compares two releases, each given as a tree or as a release with a lock.

    Raises:
        ZendnnifyError: one is neither, or they are of different kinds.
    """
    before, after = (_matches(name) for name in (old, new))
    if before.kind != after.kind:
        raise ZendnnifyError(
            f"{old} is {before.kind} and {new} is {after.kind}; name two releases of one project"
        )
    rules = ruleset(after.kind, after.release)
    edits = {edit.name: edit.file for edit in (*rules.edits, *in_place_edits(after))}
    active = {phrase.name for phrase in rules.phrases} | edits.keys()
    found = before.rules.keys() | after.rules.keys() | edits.keys()
    rows = [_row(name, before, after, name in active, edits.get(name)) for name in sorted(found)]
    rows += [Row(error, Status.UNCOVERED) for error in after.uncovered]
    order = list(Status)
    return Drift(before, after, tuple(sorted(rows, key=lambda row: order.index(row.status))))


def matches(tree: Tree, place: Callable[[str], Path] | None = None) -> Matches:
    """Returns what the rules match in a tree; reports progress on standard error.

    Args:
        tree: the tree.
        place: where the file of a path is; by default, in the tree.
    """
    place = place or (lambda path: tree.root / path)
    found: Places = {}
    uncovered: list[str] = []

    def note(path: str, text: str, items: tuple[Substitution, ...]) -> None:
        for item in items:
            if item.rule != GENERAL:
                lines = found.setdefault(item.rule, {}).setdefault(path, [])
                lines.append(line_of(text, item.start))

    def fits(edit: Edit) -> bool:
        try:
            locate_edit(files.read_text(place(edit.file)), edit)
        except ZendnnifyError:
            return False
        return True

    rules = replace(tree.rules, edits=tuple(edit for edit in tree.rules.edits if fits(edit)))
    sources = tree.default_sources()
    for source in files.tell("compared", sources, len(sources)):
        if source.language == trees.COPY:
            continue
        text = files.read_text(place(source.path))
        try:
            result = rewrite(text, source.path, rules, source.language)
        except ZendnnifyError as error:
            uncovered.append(str(error))
        else:
            note(source.path, text, result.substitutions)
    for edit in in_place_edits(tree):
        if fits(edit):
            text = files.read_text(place(edit.file))
            note(edit.file, text, (locate_edit(text, edit),))
    part = None if tree.is_whole else frozenset(files.walk(tree.root, trees.NEVER_ENTERED))
    return Matches(tree.kind.name, tree.release, found, tuple(uncovered), part)


def in_place_edits(of: Matches | Tree) -> tuple[Edit, ...]:
    """The edits of a conversion in place; none for a release that is too old, or not PyTorch's."""
    kind = of.kind if isinstance(of, Matches) else of.kind.name
    return tree_rules.EDITS if kind == "pytorch" and tree_rules.hold_for(of.release) else ()


def lock(root: Path) -> Path:
    """Writes what the rules match in a tree as the lock of its release; returns its path."""
    tree = trees.recognise(root)
    return locks.write(tree.kind.name, tree.release, Lock(matches(tree).rules))


def _matches(name: str) -> Matches:
    if Path(name).is_dir():
        return matches(trees.recognise(Path(name)))
    for kind in sorted({kind.name for kind in trees.KINDS}):
        if (known := locks.read(kind, name)) is not None:
            return Matches(kind, name, known.rules)
    known_names = [f"{kind.title} {x}" for kind in trees.KINDS for x in locks.releases(kind.name)]
    raise ZendnnifyError(
        f"{name} is neither a source tree nor a release with a lock "
        f"({', '.join(dict.fromkeys(known_names))})"
    )


def _row(name: str, before: Matches, after: Matches, active: bool, edited: str | None) -> Row:
    places = before.rules.get(name, {})
    read = {path: lines for path, lines in places.items() if after.has(path)}
    old, new = _listed(read), _listed(after.rules.get(name, {}))
    if old and new:
        status = Status.SAME if old == new else Status.MOVED
    elif new:
        status = Status.NEW
    elif (places and not read) or not (edited is None or after.has(edited)):
        status = Status.UNREAD
    else:
        status = Status.LOST if active else Status.ENDED
    return Row(name, status, old, new)


def _listed(places: dict[str, list[int]]) -> tuple[str, ...]:
    return tuple(f"{path}:{line}" for path, lines in sorted(places.items()) for line in lines)


def _change(row: Row) -> str:
    old, new = (_place(places) for places in (row.old, row.new))
    path, _, line = new.rpartition(":")
    if path and old.startswith(f"{path}:"):
        return f"{old} -> {line}"
    return " -> ".join(place for place in (old, new) if place)


def _place(places: tuple[str, ...]) -> str:
    return places[0] if len(places) == 1 else f"{len(places)} places" if places else ""
