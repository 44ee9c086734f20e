"""What a rule is: frozen dataclasses that check themselves when they are made."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

OPERATORS = "{operators}"
"""In a phrase's pattern: any of the operator names that the tree's own table declares."""


class ZendnnifyError(Exception):
    """A mistake that the user can mend; the message is one sentence saying what, where and how."""


@dataclass(frozen=True, order=True)
class Location:
    """A place in a source file; line and column count from 1."""

    path: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


class Where(enum.Flag):
    """The parts of a source file in which a phrase is looked for."""

    CODE = enum.auto()
    STRING = enum.auto()
    COMMENT = enum.auto()
    ANY = CODE | STRING | COMMENT


class Action(enum.Enum):
    """What an edit does with its text, seen from its anchor."""

    BEFORE = "before"
    AFTER = "after"
    REPLACE = "replace"


@dataclass(frozen=True)
class Spelling:
    """One way to write a word of the source vocabulary, and what it becomes.

    Invariant: ``source`` and ``target`` are single words without underscores.
    """

    source: str
    target: str

    def __post_init__(self) -> None:
        assert self.source.isalpha(), self
        assert self.target.isalpha(), self


@dataclass(frozen=True)
class Glued:
    """An identifier that joins a vocabulary word to another without any mark between them.

    Invariant: no general rule could have found the word, so the whole identifier is spelt out.
    """

    source: str
    target: str
    reason: str

    def __post_init__(self) -> None:
        assert self.reason, self
        assert re.fullmatch(r"\w+", self.source), self


@dataclass(frozen=True)
class Phrase:
    """Names in their context that do not follow the general rule, wherever they stand.

    ``pattern`` is a regular expression over the source text. What it matches is kept
    (``replacement`` is None), replaced (a template as in ``re.Match.expand``, whose groups are
    themselves renamed by the general rule), or refused as an error (``refuse``).

    ``not_in`` are releases, as ``"major.minor"``, for which the rule does not hold.

    Invariants: the pattern compiles and cannot match nothing; there is a reason.
    """

    name: str
    pattern: str
    reason: str
    replacement: str | None = None
    refuse: bool = False
    where: Where = Where.ANY
    files: tuple[str, ...] = ("*",)
    not_in: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.reason, self
        assert self.files, self
        assert self.replacement is None or not self.refuse, self
        assert not self.compile(("operator",)).match(""), self

    @property
    def anywhere(self) -> bool:
        """Whether it is looked for in all parts of a file."""
        return self.where == Where.ANY

    @property
    def keeps(self) -> bool:
        """Whether what the pattern matches stays as it is."""
        return self.replacement is None and not self.refuse

    def holds_for(self, release: str) -> bool:
        return release not in self.not_in

    def compile(self, operators: tuple[str, ...]) -> re.Pattern[str]:
        names = "|".join(sorted(map(re.escape, operators), key=len, reverse=True)) or r"(?!)"
        return re.compile(self.pattern.replace(OPERATORS, f"(?:{names})"))


def in_code(name: str, pattern: str, replacement: str, reason: str, *files: str) -> Phrase:
    """Return a phrase that is replaced in the code of those files, not in strings or comments."""
    return Phrase(name, pattern, reason, replacement, where=Where.CODE, files=files)


@dataclass(frozen=True)
class Edit:
    """Code that we add to, or put in place of, a piece of one upstream file.

    ``anchor`` is upstream's own text and must stand exactly once in ``file`` (its path in the
    source tree). ``text`` goes in as it is. ``not_in`` are releases, as ``"major.minor"``, whose
    tree has no such place.
    """

    name: str
    file: str
    anchor: str
    action: Action
    text: str
    reason: str
    not_in: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.anchor, self
        assert self.reason, self

    def holds_for(self, release: str) -> bool:
        return release not in self.not_in


@dataclass(frozen=True, eq=False)
class RuleSet:
    """All rules for one tree; compared by identity. Names of phrases and edits are unique.

    ``operators`` are what the phrases' ``{operators}`` stands for; ``declarations`` are C++ that
    the edits rely on and that the generated header of kernels carries.
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
