"""The rules as data: ``ruleset(kind, release)`` returns those for one tree."""

from tools.zendnnify.rules import ideep, onednn, pytorch
from tools.zendnnify.rules.model import RuleSet, holds_for
from tools.zendnnify.rules.vocabulary import GLUED, SPELLINGS

_TABLES = {"pytorch": pytorch, "onednn": onednn, "ideep": ideep}


def ruleset(kind: str, release: str, operators: tuple[str, ...] = ()) -> RuleSet:
    """The rules for a tree.

    Args:
        kind: the name of a ``trees.Kind``.
        release: of the tree, such as ``"3.7.2"``; some rules do not apply to every release.
        operators: names that replace ``{operators}`` in phrases (PyTorch's own operators).
    """
    table = _TABLES[kind]
    return RuleSet(
        spellings=SPELLINGS,
        glued=GLUED,
        phrases=tuple(phrase for phrase in table.PHRASES if holds_for(phrase.versions, release)),
        edits=tuple(edit for edit in table.EDITS if holds_for(edit.versions, release)),
        operators=operators,
        declarations=tuple(
            stub.declaration
            for stub in (pytorch.STUBS if kind == "pytorch" else ())
            if holds_for(stub.versions, release)
        ),
    )
