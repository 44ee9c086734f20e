"""tools/setup_helpers/files.py: atomic writes and locks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.setup_helpers.errors import SetupError
from tools.setup_helpers.files import locked, write_atomic


def test_writes_and_overwrites(tmp_path: Path) -> None:
    path = tmp_path / "new/folder/file"
    for content in (b"1", b"22"):
        write_atomic(path, content)
        assert path.read_bytes() == content
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "file"
    write_atomic(path, b"old")
    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(SetupError, match=r"cannot write .*/file: No space left on device"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_lock_keeps_other_processes_out(tmp_path: Path) -> None:
    lock = tmp_path / "x/.lock"
    script = (
        "import sys; from pathlib import Path; from tools.setup_helpers.files import locked\n"
        "with locked(Path(sys.argv[1])): print('in', flush=True)"
    )
    with locked(lock):
        other = subprocess.Popen(
            [sys.executable, "-c", script, str(lock)],
            cwd=Path(__file__).parents[3],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert other.stderr is not None
        assert other.stderr.readline() == f"waiting for another build in {lock.parent}\n"
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.5)
    out, _ = other.communicate(timeout=30)
    assert out == "in\n"


def test_a_lock_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SetupError, match="cannot write"), locked(tmp_path / "file/.lock"):
        pass
