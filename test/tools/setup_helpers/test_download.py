"""tools/setup_helpers/download.py: resumed, verified downloads."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tools.setup_helpers import download as module
from tools.setup_helpers.download import RemoteFile, download, sha256_of
from tools.setup_helpers.errors import SetupError

if TYPE_CHECKING:
    from test.tools.setup_helpers.conftest import Server

CONTENT = random.Random(0).randbytes(700_001)


def test_downloads_the_file_once(server: Server, tmp_path: Path) -> None:
    remote = server.put("x.tar", CONTENT)
    for _ in range(2):
        assert download(remote, tmp_path / "new/x.tar").read_bytes() == CONTENT
    assert server.requests == [("/x.tar", None)]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["x.tar"]


def test_resumes_a_half_download(server: Server, tmp_path: Path) -> None:
    remote = server.put("x.tar", CONTENT)
    (tmp_path / "x.tar.part").write_bytes(CONTENT[:300_000])
    assert download(remote, tmp_path / "x.tar").read_bytes() == CONTENT
    assert server.requests == [("/x.tar", "bytes=300000-")]
    assert not (tmp_path / "x.tar.part").exists()


def test_starts_again_where_ranges_are_ignored(server: Server, tmp_path: Path) -> None:
    remote = server.put("x.tar", CONTENT)
    server.ignore_ranges = True
    (tmp_path / "x.tar.part").write_bytes(b"?" * 1000)
    assert download(remote, tmp_path / "x.tar").read_bytes() == CONTENT


def test_a_complete_part_needs_no_request(server: Server, tmp_path: Path) -> None:
    remote = server.put("x.tar", CONTENT)
    (tmp_path / "x.tar.part").write_bytes(CONTENT)
    assert download(remote, tmp_path / "x.tar").read_bytes() == CONTENT
    assert server.requests == []


def test_a_part_that_is_too_long_is_thrown_away(server: Server, tmp_path: Path) -> None:
    remote = server.put("x.tar", CONTENT)
    (tmp_path / "x.tar.part").write_bytes(CONTENT + b"more")
    assert download(remote, tmp_path / "x.tar").read_bytes() == CONTENT


def test_resumes_after_dropped_connections(server: Server, tmp_path: Path) -> None:
    remote = server.put("x.tar", CONTENT)
    server.drop_after = 300_000
    assert download(remote, tmp_path / "x.tar", wait_seconds=0).read_bytes() == CONTENT
    assert [wanted for _, wanted in server.requests] == [None, "bytes=300000-", "bytes=600000-"]


def test_gives_up_and_keeps_the_partial_file(server: Server, tmp_path: Path) -> None:
    remote = server.put("x.tar", CONTENT)
    server.drop_after = 10_000
    with pytest.raises(SetupError, match=r"x\.tar cannot be read"):
        download(remote, tmp_path / "x.tar", wait_seconds=0)
    assert (tmp_path / "x.tar.part").read_bytes() == CONTENT[: module.ATTEMPTS * 10_000]
    server.drop_after = None
    assert download(remote, tmp_path / "x.tar").read_bytes() == CONTENT
    assert server.requests[-1] == ("/x.tar", f"bytes={module.ATTEMPTS * 10_000}-")


def test_refuses_a_wrong_hash_and_keeps_nothing(server: Server, tmp_path: Path) -> None:
    remote = server.put("x.tar", CONTENT)
    server.files["x.tar"] = CONTENT[::-1]
    with pytest.raises(SetupError, match=f"where {remote.sha256} is pinned"):
        download(remote, tmp_path / "x.tar")
    assert list(tmp_path.iterdir()) == []


def test_replaces_a_target_of_other_content(server: Server, tmp_path: Path) -> None:
    remote = server.put("x.tar", CONTENT)
    (tmp_path / "x.tar").write_bytes(b"something else")
    assert download(remote, tmp_path / "x.tar").read_bytes() == CONTENT


def test_refuses_more_bytes_than_expected(server: Server, tmp_path: Path) -> None:
    remote = server.put("x.tar", CONTENT)
    server.files["x.tar"] = CONTENT * 3
    with pytest.raises(SetupError, match=f"longer than the expected {len(CONTENT)} bytes"):
        download(remote, tmp_path / "x.tar")


def test_names_the_address_that_has_no_such_file(server: Server, tmp_path: Path) -> None:
    remote = RemoteFile(f"{server.address}/gone.tar", "0" * 64, 10)
    with pytest.raises(SetupError, match=r"gone\.tar answered 404"):
        download(remote, tmp_path / "gone.tar")
    assert len(server.requests) == 1


def test_no_network_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(SetupError, match=r"http://127\.0\.0\.1:1/x cannot be read \(.+\)"):
        download(RemoteFile("http://127.0.0.1:1/x", "0" * 64, 10), tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_says_when_the_disk_is_too_small(server: Server, tmp_path: Path) -> None:
    remote = server.put("x.tar", CONTENT)
    huge = RemoteFile(remote.url, remote.sha256, 1 << 60)
    with pytest.raises(SetupError, match=r"MB free and x\.tar needs"):
        download(huge, tmp_path / "x.tar")
    assert server.requests == []


def test_says_when_the_folder_cannot_be_written(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SetupError, match="cannot write to"):
        download(server.put("x.tar", CONTENT), tmp_path / "file/x.tar")


def test_a_file_that_cannot_be_written_is_not_the_networks_fault(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "x.tar.part").mkdir()
    with pytest.raises(SetupError, match=r"cannot write .*/x\.tar\.part: Is a directory"):
        download(server.put("x.tar", CONTENT), tmp_path / "x.tar")
    assert len(server.requests) == 1


def test_shows_progress(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    download(server.put("x.tar", CONTENT), tmp_path / "x.tar")
    assert "x.tar: 0.7 of 0.7 MB, 100 %\n" in capsys.readouterr().err


def test_sha256_of_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    assert sha256_of(tmp_path / "empty").startswith("e3b0c44298fc1c14")
