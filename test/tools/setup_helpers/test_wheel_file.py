"""tools/setup_helpers/wheel_file.py: wheels are read and written whole, and equal when equal."""

from __future__ import annotations

import contextlib
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.setup_helpers import wheel_file as module
from tools.setup_helpers.errors import SetupError
from tools.setup_helpers.wheel_file import Content, content

INFO = "x-1.dist-info"
FILES = {
    "x/b.py": content(b"B = 1\n"),
    "x/lib.so": content(b"binary" * 999, executable=True),
    "x/a,b.py": content(b""),
    f"{INFO}/METADATA": content(b"Metadata-Version: 2.1\nName: x\nVersion: 1\n\nText: 2\n"),
    f"{INFO}/WHEEL": content(b"Wheel-Version: 1.0\nTag: py3-none-any\nTag: py2-none-any\n"),
}


def written(folder: Path, files: Mapping[str, Content] = FILES) -> Path:
    return module.write(folder / "x-1-py3-none-any.whl", INFO, files)


def test_reads_what_it_wrote(tmp_path: Path) -> None:
    with module.opened(written(tmp_path)) as wheel:
        files = {name: found for name, found in wheel.files.items() if "RECORD" not in name}
        assert {name: found.read() for name, found in files.items()} == {
            name: found.read() for name, found in FILES.items()
        }
        assert {name for name, found in files.items() if found.executable} == {"x/lib.so"}
        assert (wheel.info, wheel.name, wheel.version) == (INFO, "x", "1")
        assert wheel.tags == ("py3-none-any", "py2-none-any")
        assert module.wrong_records(wheel) == ()


def test_the_order_of_files_does_not_matter_and_dist_info_is_last(tmp_path: Path) -> None:
    one = written(tmp_path / "1")
    backwards = dict(reversed(FILES.items()))
    assert written(tmp_path / "long/name", backwards).read_bytes() == one.read_bytes()
    with zipfile.ZipFile(one) as archive:
        names = archive.namelist()
    assert names[:3] == ["x/a,b.py", "x/b.py", "x/lib.so"]
    assert names[-1] == f"{INFO}/RECORD"


def test_modes_are_those_of_regular_files(tmp_path: Path) -> None:
    with zipfile.ZipFile(written(tmp_path)) as archive:
        modes = {item.filename: item.external_attr >> 16 for item in archive.infolist()}
    assert all(stat.S_ISREG(mode) for mode in modes.values())
    assert (modes["x/lib.so"] & 0o777, modes["x/b.py"] & 0o777) == (0o755, 0o644)


@pytest.mark.parametrize(
    ("epoch", "year"), [("", 1980), ("0", 1980), ("1700000000", 2023), ("9999999999999", 2107)]
)
def test_times_are_fixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epoch: str, year: int
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    with zipfile.ZipFile(written(tmp_path)) as archive:
        assert {item.date_time[0] for item in archive.infolist()} == {year}


def test_a_time_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "today")
    with pytest.raises(SetupError, match=r"SOURCE_DATE_EPOCH is 'today': it has to be a number"):
        written(tmp_path)
    assert not list(tmp_path.iterdir())


def test_shows_how_far_it_is(tmp_path: Path) -> None:
    seen: list[int] = []
    module.write(tmp_path / "x.whl", INFO, FILES, seen.append)
    assert seen == sorted(seen)
    assert sum(found.size for found in FILES.values()) in seen


def changed(path: Path, name: str, data: bytes | None) -> None:
    """Write the wheel again with another content of a file (None: without it), but its RECORD."""
    with zipfile.ZipFile(path) as archive:
        files = {item: archive.read(item) for item in archive.namelist()}
    files[name] = data or b""
    with zipfile.ZipFile(path, "w") as archive:
        for item, found in files.items():
            if item != name or data is not None:
                archive.writestr(item, found)


@pytest.mark.parametrize(
    ("name", "data", "wrong"),
    [
        ("x/b.py", b"B = 2\n", "x/b.py is not what RECORD lists"),
        ("x/b.py", None, "x/b.py, which RECORD lists, is missing"),
        ("x/c.py", b"", "RECORD does not list x/c.py"),
        (f"{INFO}/RECORD", b"broken", "RECORD does not list x/a,b.py"),
    ],
)
def test_a_file_that_record_does_not_describe_is_named(
    tmp_path: Path, name: str, data: bytes | None, wrong: str
) -> None:
    path = written(tmp_path)
    changed(path, name, data)
    with module.opened(path) as wheel:
        assert module.wrong_records(wheel)[0] == wrong


@pytest.mark.parametrize(
    ("data", "says"),
    [(None, "cannot read .*: No such file"), (b"no zip", "is damaged"), (b"", "is damaged")],
)
def test_what_is_no_zip_is_one_sentence(tmp_path: Path, data: bytes | None, says: str) -> None:
    path = tmp_path / "x.whl"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(SetupError, match=says), module.opened(path):
        pass


def test_a_zip_without_metadata_is_no_wheel(tmp_path: Path) -> None:
    path = tmp_path / "x.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/b.py", "")
    with pytest.raises(SetupError, match="is not a wheel"), module.opened(path):
        pass


@given(data=st.data())
def test_a_damaged_wheel_is_at_most_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = written(tmp_path_factory.mktemp("w"))
    sound = path.read_bytes()
    place = data.draw(st.integers(0, len(sound) - 1))
    path.write_bytes(sound[:place] + bytes([sound[place] ^ 0xFF]) + sound[place + 1 :])
    # No other error may come out; a byte of a time, for one, makes no difference.
    with contextlib.suppress(SetupError), module.opened(path) as wheel:
        module.wrong_records(wheel)
