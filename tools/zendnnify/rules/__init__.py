"""The rules as data: ``ruleset(kind, release)`` returns those for one tree."""

from collections.abc import Sequence
from typing import Any

from tools.zendnnify.rules import changes
from tools.zendnnify.rules.model import RuleSet, holds_for
from tools.zendnnify.rules.names import ideep, onednn, pytorch
from tools.zendnnify.rules.names.vocabulary import GLUED, SPELLINGS

_TABLES = {"pytorch": [pytorch], "onednn": [onednn, changes], "ideep": [ideep]}


def ruleset(kind: str, release: str, operators: tuple[str, ...] = ()) -> RuleSet:
    """The rules for a tree.

    Args:
        kind: the name of a ``trees.Kind``.
        release: of the tree, such as ``"3.7.2"``; some rules do not apply to every release.
        operators: names that replace ``{operators}`` in phrases (PyTorch's own operators).
    """
    tables: Sequence[Any] = _TABLES[kind]
    phrases = (phrase for table in tables for phrase in table.PHRASES)
    edits = (edit for table in tables for edit in table.EDITS)
    return RuleSet(
        spellings=SPELLINGS,
        glued=GLUED,
        phrases=tuple(phrase for phrase in phrases if holds_for(phrase.versions, release)),
        edits=tuple(edit for edit in edits if holds_for(edit.versions, release)),
        operators=operators,
        declarations=tuple(
            stub.declaration
            for stub in (pytorch.STUBS if kind == "pytorch" else ())
            if holds_for(stub.versions, release)
        ),
    )
