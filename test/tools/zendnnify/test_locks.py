"""Locks: the releases that the rules were checked with."""

from __future__ import annotations

from pathlib import Path

import pytest

from test.tools.zendnnify.conftest import ONEDNN_FILES, write_tree
from tools.zendnnify import generate, locks
from tools.zendnnify.locks import Lock
from tools.zendnnify.rules import ruleset
from tools.zendnnify.rules import tree as tree_rules
from tools.zendnnify.rules.model import ZendnnifyError

KINDS = ("pytorch", "onednn")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "locks"
    monkeypatch.setattr(locks, "LOCKS", folder)
    return folder


def test_a_lock_is_read_as_it_was_written(folder: Path) -> None:
    lock = Lock({"b": {"src/a.cpp": [1, 20]}, "a": {}}, {"src/a.cpp": "00"})
    assert locks.write("onednn", "3.8", lock).parent == folder
    assert locks.read("onednn", "3.8") == lock
    assert locks.read("onednn", "3.9") is None


def test_releases_are_in_order_of_their_numbers(folder: Path) -> None:
    for release in ("3.12", "3.7.2", "3.9"):
        locks.write("onednn", release, Lock({}))
    locks.write("pytorch", "2.6", Lock({}))
    assert locks.releases("onednn") == ["3.7.2", "3.9", "3.12"]


@pytest.mark.parametrize("text", ["", "[]", '{"other": 1}'])
def test_a_damaged_lock_is_named(folder: Path, text: str) -> None:
    write_tree(folder, {"onednn-3.8.json": text})
    with pytest.raises(ZendnnifyError, match=r"onednn-3\.8\.json is damaged; restore that file"):
        locks.read("onednn", "3.8")


@pytest.mark.parametrize("kind", KINDS)
def test_every_edit_matches_in_each_locked_release(kind: str) -> None:
    for release in locks.releases(kind):
        lock = locks.read(kind, release)
        assert lock is not None
        edits = {edit.name for edit in ruleset(kind, release).edits}
        if kind == "pytorch" and tree_rules.hold_for(release):
            edits |= {edit.name for edit in tree_rules.EDITS}
        known = {name for name, places in lock.rules.items() if sum(map(len, places.values()))}
        assert edits <= known, release


def test_the_pinned_release_has_a_lock() -> None:
    assert locks.releases("onednn")[0] == "3.7.2"


def test_an_unknown_release_is_converted_with_a_warning(
    onednn: Path, out: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for release in ("3.7.2", "3.12.4"):
        locks.write("onednn", release, Lock({}))
    generate.run(onednn, out)
    assert capsys.readouterr().err == ""
    changed = ONEDNN_FILES["CMakeLists.txt"].replace("3.7.2", "3.9.1")
    write_tree(onednn, {"CMakeLists.txt": changed})
    generate.run(onednn, out)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"checked with oneDNN 3.7.2, 3.12.4, but {onednn} is 3.9.1; `python -m" in said
