"""Reading with clear errors, and writing all or nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tools.zendnnify import files
from tools.zendnnify.files import Transaction
from tools.zendnnify.rules.model import ZendnnifyError


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else b"<folder>"
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one file to replace, one to remove and one to keep."""
    for name in ("replaced", "gone/removed", "left"):
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_text(f"old {name}")
    return tmp_path / "out"


def write(folder: Path) -> None:
    with Transaction(folder) as transaction:
        transaction.stage("replaced", b"new")
        transaction.stage("a/b/added", b"new")
        transaction.commit(["gone/removed", "never/there"])


def test_all_files_are_moved_at_once(folder: Path) -> None:
    write(folder)
    assert contents(folder) == {
        "a": b"<folder>",
        "a/b": b"<folder>",
        "a/b/added": b"new",
        "left": b"old left",
        "replaced": b"new",
    }


def test_nothing_is_visible_before_the_commit(folder: Path) -> None:
    with Transaction(folder) as transaction:
        transaction.stage("replaced", b"new")
        assert (folder / "replaced").read_text() == "old replaced"
        transaction.commit()
        assert (folder / "replaced").read_text() == "new"


@pytest.mark.parametrize("failing", range(5))
def test_a_failing_move_undoes_the_others(
    folder: Path, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(folder)
    calls = 0
    real = os.replace

    def replace(source: Path, target: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == failing + 1:
            raise OSError(errno.EIO, "Input/output error")
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    if failing == 4:  # There are only four moves.
        write(folder)
        return
    with pytest.raises(ZendnnifyError, match="Input/output error; nothing in it was changed"):
        write(folder)
    assert contents(folder) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_any_other_interruption_leaves_the_folder_unchanged(
    folder: Path, error: type[BaseException]
) -> None:
    before = contents(folder)

    def interrupted() -> None:
        with Transaction(folder) as transaction:
            transaction.stage("replaced", b"new")
            raise error

    with pytest.raises(error):
        interrupted()
    assert contents(folder) == before


def test_a_folder_that_did_not_exist_is_removed_again(tmp_path: Path) -> None:
    def failing() -> None:
        with Transaction(tmp_path / "a" / "b") as transaction:
            transaction.stage("c/d", b"")
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        failing()
    assert contents(tmp_path) == {}


def test_a_leftover_of_an_interrupted_run_is_cleared(folder: Path) -> None:
    (folder / files.STAGING / "new").mkdir(parents=True)
    (folder / files.STAGING / "new" / "half").write_text("")
    write(folder)
    assert not (folder / files.STAGING).exists()


def test_a_second_transaction_for_the_folder_is_refused_and_the_first_continues(
    folder: Path,
) -> None:
    with Transaction(folder) as first:
        first.stage("replaced", b"first")
        with pytest.raises(ZendnnifyError, match=r"another run is writing into .*; run again"):
            write(folder)
        first.commit()
    assert (folder / "replaced").read_bytes() == b"first"
    write(folder)
    assert (folder / "replaced").read_bytes() == b"new"


def test_undecodable_text_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"ok \xff")
    with pytest.raises(ZendnnifyError, match=r"cannot decode .*/f as UTF-8 \(byte 3\); if it is"):
        files.read_text(tmp_path / "f")


def test_line_ends_and_marks_are_read_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xef\xbb\xbfa\r\nb\rc\n")
    assert files.read_text(tmp_path / "f") == "\ufeffa\r\nb\rc\n"


def test_walking_is_sorted_and_skips_the_given_folders(folder: Path) -> None:
    assert files.walk(folder) == ["gone/removed", "left", "replaced"]
    assert files.walk(folder, frozenset({"gone"})) == ["left", "replaced"]
