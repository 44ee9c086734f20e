"""The kinds of rule: frozen dataclasses that check their invariants on construction."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

OPERATORS = "{operators}"
"""In a phrase's pattern: any operator name that the tree's own table declares."""


class ZendnnifyError(Exception):
    """An error that the user can fix; the message is one sentence: what, where, how to fix it."""


@dataclass(frozen=True, order=True)
class Location:
    """A place in a source file; line and column count from 1."""

    path: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


def holds_for(versions: str, release: str) -> bool:
    """Whether a rule with this scope applies to a tree of that release.

    Args:
        versions: bounds that must all hold, such as ``">=3.8"`` or ``">=3.8,<3.13"``; empty for
            all releases. A bound of ``3.8`` stands for ``3.8.0``.
        release: such as ``"3.7.2"`` or ``"2.6"``.
    """
    return not versions or all(_within(release, bound) for bound in versions.split(","))


def _within(release: str, bound: str) -> bool:
    match = re.fullmatch(r"(>=|<)(\d+(?:\.\d+)*)", bound)
    assert match, bound
    return (number(release) >= number(match[2])) == (match[1] == ">=")


def number(release: str) -> tuple[int, ...]:
    """A release as numbers to compare; trailing zeros are left out, so that 3.8 equals 3.8.0."""
    parts = [int(part) for part in re.findall(r"\d+", release)]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


class Where(enum.Flag):
    """The parts of a source file in which a phrase applies."""

    CODE = enum.auto()
    STRING = enum.auto()
    COMMENT = enum.auto()
    ANY = CODE | STRING | COMMENT


class Action(enum.Enum):
    """Where an edit's text goes, relative to its anchor."""

    BEFORE = "before"
    AFTER = "after"
    REPLACE = "replace"


@dataclass(frozen=True)
class Spelling:
    """One spelling of a vocabulary word, and its replacement.

    Invariant: ``source`` and ``target`` are single words without underscores.
    """

    source: str
    target: str

    def __post_init__(self) -> None:
        assert self.source.isalpha(), self
        assert self.target.isalpha(), self


@dataclass(frozen=True)
class Glued:
    """An identifier that joins a vocabulary word to another without a word boundary.

    The general rule cannot find such a word, so the whole identifier is listed.
    """

    source: str
    target: str
    reason: str

    def __post_init__(self) -> None:
        assert self.reason, self
        assert re.fullmatch(r"\w+", self.source), self


@dataclass(frozen=True)
class Phrase:
    """Names in their context that are exceptions to the general rule.

    ``pattern`` is a regular expression over the source text. A match is kept (``replacement`` is
    None), replaced (by a template as in ``re.Match.expand``, whose groups the general rule
    renames), or refused as an error (``refuse``).

    ``versions`` is the scope of the rule, as in ``holds_for``.

    Invariants: the pattern compiles and does not match the empty string; there is a reason.
    """

    name: str
    pattern: str
    reason: str
    replacement: str | None = None
    refuse: bool = False
    where: Where = Where.ANY
    files: tuple[str, ...] = ("*",)
    versions: str = ""

    def __post_init__(self) -> None:
        assert self.reason, self
        assert self.files, self
        assert self.replacement is None or not self.refuse, self
        assert not self.compile(("operator",)).match(""), self
        holds_for(self.versions, "0")

    @property
    def anywhere(self) -> bool:
        """Whether it applies in all parts of a file."""
        return self.where == Where.ANY

    @property
    def keeps(self) -> bool:
        """Whether a match stays unchanged."""
        return self.replacement is None and not self.refuse

    def compile(self, operators: tuple[str, ...]) -> re.Pattern[str]:
        names = "|".join(sorted(map(re.escape, operators), key=len, reverse=True)) or r"(?!)"
        return re.compile(self.pattern.replace(OPERATORS, f"(?:{names})"))


def in_code(
    name: str, pattern: str, replacement: str, reason: str, *files: str, versions: str = ""
) -> Phrase:
    """Return a phrase that applies to the code of those files, not to strings or comments."""
    where = Where.CODE
    return Phrase(name, pattern, reason, replacement, where=where, files=files, versions=versions)


@dataclass(frozen=True)
class Edit:
    """Code that we insert into one upstream file, or that replaces a piece of it.

    ``anchor`` is upstream's own text and must occur exactly once in ``file`` (its path in the
    source tree). ``text`` is inserted verbatim. ``versions`` is the scope of the rule, as in
    ``holds_for``; edits whose scopes exclude each other may share a name.
    """

    name: str
    file: str
    anchor: str
    action: Action
    text: str
    reason: str
    versions: str = ""

    def __post_init__(self) -> None:
        assert self.anchor, self
        assert self.reason, self
        holds_for(self.versions, "0")


@dataclass(frozen=True, eq=False)
class RuleSet:
    """All rules for one tree; compared by identity. Names of phrases and edits are unique.

    ``operators`` replace ``{operators}`` in phrases. ``declarations`` are C++ declarations that
    the edits need; the generated header of kernels carries them.
    """

    spellings: tuple[Spelling, ...]
    glued: tuple[Glued, ...]
    phrases: tuple[Phrase, ...]
    edits: tuple[Edit, ...]
    operators: tuple[str, ...] = ()
    declarations: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [phrase.name for phrase in self.phrases] + [edit.name for edit in self.edits]
        assert len(set(names)) == len(names), names
