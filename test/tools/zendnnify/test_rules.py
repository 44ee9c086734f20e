"""The rules check their invariants."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.zendnnify.rules import ruleset
from tools.zendnnify.rules.model import Action, Edit, Glued, Phrase, RuleSet, Spelling, holds_for
from tools.zendnnify.rules.names.vocabulary import SPELLINGS, WORDS

REPO = Path(__file__).parents[3]


@pytest.mark.parametrize("kind", ["pytorch", "onednn", "ideep"])
@pytest.mark.parametrize("release", ["2.6", "1.13", "3.7.2", "3.12.4", "3.13.1", "3.14.0", ""])
def test_every_rule_has_a_reason(kind: str, release: str) -> None:
    rules = ruleset(kind, release, ("mkldnn_linear",))
    reasons = [phrase.reason for phrase in rules.phrases]
    reasons += [edit.reason for edit in rules.edits]
    reasons += [glued.reason for glued in rules.glued]
    assert [reason for reason in reasons if len(reason.split()) < 3] == []


@pytest.mark.parametrize("module", ["additions", "faults", "instruction_sets", "nan"])
def test_every_module_of_changes_names_the_tests_that_show_them(module: str) -> None:
    named = importlib.import_module(f"tools.zendnnify.rules.changes.{module}")
    tests = re.findall(r"``(test/[\w/]+\.py)``", named.__doc__ or "")
    assert tests
    assert [test for test in tests if not (REPO / test).is_file()] == []


@pytest.mark.parametrize(
    ("versions", "releases"),
    [
        ("", ["3.7.2", "3.8", "3.12.4", "3.13", ""]),
        (">=3.8", ["3.8", "3.12.4", "3.13"]),
        ("<3.8.0", ["3.7.2", ""]),
        (">=3.8,<3.13", ["3.8", "3.12.4"]),
        (">=3.12.4", ["3.12.4", "3.13"]),
    ],
)
def test_a_scope_compares_numbers(versions: str, releases: list[str]) -> None:
    every = ["3.7.2", "3.8", "3.12.4", "3.13", ""]
    assert [release for release in every if holds_for(versions, release)] == releases


def test_rules_of_one_name_exclude_each_other() -> None:
    def edit(versions: str) -> Edit:
        return Edit("e", "f", "x", Action.AFTER, "y", "for this test", versions)

    edits = (edit("<3.8"), edit(">=3.8"))
    for release in ("3.7.2", "3.8"):
        RuleSet((), (), (), tuple(rule for rule in edits if holds_for(rule.versions, release)))
    with pytest.raises(AssertionError):
        RuleSet((), (), (), edits)


def test_every_word_has_three_cases() -> None:
    sources = {spelling.source for spelling in SPELLINGS}
    for word in WORDS:
        assert {word, word.upper(), word.capitalize()} <= sources
    assert {source.lower() for source in sources} == set(WORDS)


def test_a_general_rule_keeps_the_case_of_a_name() -> None:
    for spelling in SPELLINGS:
        if spelling.source.isupper() or spelling.source.islower() or spelling.source.istitle():
            assert spelling.target.isupper() == spelling.source.isupper()
            assert spelling.target.islower() == spelling.source.islower()


def test_no_target_has_the_vocabulary_in_it() -> None:
    assert not [s for s in SPELLINGS for word in WORDS if word in s.target.lower()]


def test_only_a_handful_of_rules_is_about_a_single_release() -> None:
    def scoped(rules: RuleSet) -> set[str]:
        phrases = {phrase.name for phrase in rules.phrases if phrase.versions}
        return phrases | {edit.name for edit in rules.edits if edit.versions}

    assert scoped(ruleset("pytorch", "1.13")) == set()
    assert 0 < len(scoped(ruleset("pytorch", "2.6"))) <= 5
    assert scoped(ruleset("pytorch", "2.13")) == scoped(ruleset("pytorch", "2.6"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Spelling("a_b", "c"),
        lambda: Glued("libx", "liby", ""),
        lambda: Phrase("p", "x", ""),
        lambda: Phrase("p", "x*", "matches nothing, too"),
        lambda: Phrase("p", "x", "why", replacement="y", refuse=True),
        lambda: Edit("e", "f", "", Action.AFTER, "text", "why"),
        lambda: Edit("e", "f", "x", Action.AFTER, "text", "why", "==3.8"),
        lambda: RuleSet((), (), (Phrase("p", "x", "why"), Phrase("p", "y", "why")), ()),
    ],
)
def test_an_invalid_rule_cannot_be_constructed(make: Callable[[], object]) -> None:
    with pytest.raises(AssertionError):
        make()
