"""Comparing two releases by what the rules match, with small trees and rules of our own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from test.tools.zendnnify.conftest import ONEDNN_FILES, PYTORCH_FILES, write_tree
from tools.zendnnify import drift, generate, locks
from tools.zendnnify.__main__ import main
from tools.zendnnify.drift import Status
from tools.zendnnify.rules import changes
from tools.zendnnify.rules.model import Action, Edit, Phrase, ZendnnifyError
from tools.zendnnify.rules.names import onednn as table

CODE = "src/cpu/code.cpp"
OLD = "int first;\nint dnnl_second;\nkeep dnnl_api\n"


def edit(name: str, anchor: str, versions: str = "") -> Edit:
    return Edit(name, CODE, anchor, Action.REPLACE, "int x;\n", "only for this test", versions)


@pytest.fixture(autouse=True)
def rules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Three rules, and no lock."""
    keep = Phrase("keep-api", r"dnnl_api\b", "only for this test")
    edits = (
        edit("first", "int first;\n"),
        edit("second", "int dnnl_second;\n", "<3.13"),
        edit("second", "long dnnl_second;\n", ">=3.13"),
    )
    monkeypatch.setattr(table, "PHRASES", (keep,))
    monkeypatch.setattr(table, "EDITS", edits)
    monkeypatch.setattr(changes, "PHRASES", ())
    monkeypatch.setattr(changes, "EDITS", ())
    monkeypatch.setattr(locks, "LOCKS", tmp_path / "locks")


def tree(folder: Path, release: str, code: str) -> str:
    settings = ONEDNN_FILES["CMakeLists.txt"].replace("3.7.2", release)
    files = {**ONEDNN_FILES, "CMakeLists.txt": settings, CODE: code}
    return str(write_tree(folder / release, files))


def statuses(old: str, new: str) -> dict[str, Status]:
    return {row.rule: row.status for row in drift.compare(old, new).rows}


def test_rules_match_the_same_or_moved(tmp_path: Path) -> None:
    old = tree(tmp_path, "3.7.2", OLD)
    new = tree(tmp_path, "3.12.4", "int first;\n\nint dnnl_second;\nkeep dnnl_api\n")
    found = drift.compare(old, new)
    assert not found.failed
    assert {row.rule: (row.status, row.old, row.new) for row in found.rows} == {
        "first": (Status.SAME, (f"{CODE}:1",), (f"{CODE}:1",)),
        "second": (Status.MOVED, (f"{CODE}:2",), (f"{CODE}:3",)),
        "keep-api": (Status.MOVED, (f"{CODE}:3",), (f"{CODE}:4",)),
    }


@pytest.mark.parametrize("code", ["", "int first;\nint first;\n"], ids=["gone", "twice"])
def test_an_anchor_that_does_not_occur_once_is_a_lost_rule(tmp_path: Path, code: str) -> None:
    old = tree(tmp_path, "3.7.2", OLD)
    new = tree(tmp_path, "3.12.4", code)
    assert statuses(old, new) == dict.fromkeys(("first", "second", "keep-api"), Status.LOST)
    with pytest.raises(ZendnnifyError, match="anchor of rule 'first' occurs"):
        generate.run(new, tmp_path / "out")


def test_a_rule_without_its_file_is_lost(tmp_path: Path) -> None:
    new = Path(tree(tmp_path, "3.12.4", OLD))
    (new / CODE).unlink()
    assert statuses(tree(tmp_path, "3.7.2", OLD), str(new))["first"] is Status.LOST


def test_an_edit_that_no_release_has_is_lost(tmp_path: Path) -> None:
    code = "int dnnl_second;\n"
    old, new = tree(tmp_path, "3.7.2", code), tree(tmp_path, "3.12.4", code)
    assert statuses(old, new) == {"first": Status.LOST, "second": Status.SAME}


def test_a_scoped_rule_follows_its_release(tmp_path: Path) -> None:
    old = tree(tmp_path, "3.12.4", OLD)
    new = tree(tmp_path, "3.13.0", "int first;\nlong dnnl_second;\nkeep dnnl_api\n")
    assert statuses(old, new)["second"] is Status.SAME
    assert statuses(old, tree(tmp_path, "3.13.1", OLD))["second"] is Status.LOST


def test_a_rule_whose_scope_ends_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "EDITS", (edit("old-only", "int first;\n", "<3.8"),))
    old, new = tree(tmp_path, "3.7.2", OLD), tree(tmp_path, "3.8", OLD)
    assert statuses(old, new)["old-only"] is Status.ENDED
    assert statuses(new, old)["old-only"] is Status.NEW


def test_a_name_that_no_rule_covers_is_named_with_file_and_line(tmp_path: Path) -> None:
    old = tree(tmp_path, "3.7.2", OLD)
    found = drift.compare(old, tree(tmp_path, "3.12.4", OLD + "int xdnnl;\n"))
    assert found.failed
    assert [row.rule for row in found.rows if row.status is Status.UNCOVERED] == [
        f"{CODE}:4:5: no rule covers 'xdnnl'; add a rule to tools/zendnnify/rules"
    ]


def test_a_lock_stands_for_its_tree(tmp_path: Path) -> None:
    old = tree(tmp_path, "3.7.2", OLD)
    new = tree(tmp_path, "3.12.4", f"\n{OLD}")
    by_trees = drift.compare(old, new).rows
    assert drift.lock(Path(old)).name == "onednn-3.7.2.json"
    assert drift.compare("3.7.2", new).rows == by_trees


def test_only_a_release_with_a_lock_can_be_named(tmp_path: Path) -> None:
    old = tree(tmp_path, "3.7.2", OLD)
    drift.lock(Path(old))
    with pytest.raises(ZendnnifyError, match=r"9\.9 is neither a source .* lock \(oneDNN 3\.7\.2"):
        drift.compare(old, "9.9")


def test_two_projects_have_nothing_to_compare(tmp_path: Path, pytorch: Path) -> None:
    with pytest.raises(ZendnnifyError, match=r"is onednn and .* is pytorch; name two releases of"):
        drift.compare(tree(tmp_path, "3.7.2", OLD), str(pytorch))


def test_of_a_part_of_pytorch_only_its_files_are_compared(
    tmp_path: Path, pytorch: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part = write_tree(tmp_path / "part", PYTORCH_FILES)
    for folder in (pytorch, part):
        (folder / "torchgen").mkdir()
    (part / "torchgen/gen.py").write_text("")
    (pytorch / "CMakeLists.txt").write_text("")
    known = statuses(str(pytorch), str(part))
    assert known["test-gradient"] is Status.UNREAD
    assert known["option"] is Status.UNREAD, "an edit of CMakeLists.txt"
    assert known["generator-option"] is Status.LOST, "its file is there"
    assert main(["--drift", str(pytorch), str(part)]) == 1
    assert not [x for x in capsys.readouterr().out.splitlines()[8:] if x.startswith("unread")]
    assert statuses(str(part), str(pytorch))["option"] is Status.LOST


def test_the_table_is_aligned_and_leaves_out_what_is_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tree(tmp_path, "3.7.2", OLD)
    new = tree(tmp_path, "3.12.4", "int first;\n\n\nint dnnl_second;\n")
    assert main(["--drift", old, new]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "onednn 3.7.2 -> 3.12.4",
        "lost       1",
        "uncovered  0",
        "moved      1",
        "new        0",
        "ended      0",
        "same       1",
        "unread     0",
        f"lost       keep-api  {CODE}:3",
        f"moved      second    {CODE}:2 -> 4",
    ]


def test_json_has_all_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tree(tmp_path, "3.7.2", OLD), tree(tmp_path, "3.12.4", OLD)
    assert main(["--drift", old, new, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {**found, "rules": len(found["rules"])} == {
        "kind": "onednn",
        "old": "3.7.2",
        "new": "3.12.4",
        "rules": 3,
    }
    assert found["rules"][0] == {
        "rule": "first",
        "status": "same",
        "old": [f"{CODE}:1"],
        "new": [f"{CODE}:1"],
    }


@pytest.mark.parametrize(
    "arguments", [["--drift", "a", "b", "--check"], ["--drift", "a", "b", "--force"], ["--json"]]
)
def test_options_of_other_commands_are_refused(
    onednn: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    more = [] if "--drift" in arguments else ["--project-directory", str(onednn)]
    assert main([*arguments, *more]) == 2
    assert "go" in capsys.readouterr().err
