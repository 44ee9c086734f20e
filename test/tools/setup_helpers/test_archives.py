"""tools/setup_helpers/archives.py: safe unpacking, selections and digests."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.setup_helpers import archives
from tools.setup_helpers.archives import Selection, glob_pattern, safe_name, tree_digest, unpack
from tools.setup_helpers.errors import SetupError

EVERYTHING = Selection({".": "."})
MakeTar = Callable[..., Path]

names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8)
paths = st.lists(names, min_size=1, max_size=4).map("/".join)


def contents(tree: Path) -> dict[str, bytes]:
    return {
        path.relative_to(tree).as_posix(): path.read_bytes()
        for path in tree.rglob("*")
        if path.is_file()
    }


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    member.linkname = target
    return member


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_unpacks_every_compression(make_tar: MakeTar, tmp_path: Path, mode: str) -> None:
    files = {"a.txt": b"one", "deep/er/b.bin": bytes(range(256)) * 999}
    unpack(make_tar(files, mode=mode), EVERYTHING, tmp_path / "out", None)
    assert contents(tmp_path / "out") == files


def test_unpacks_debian_packages(
    make_deb: Callable[[Mapping[str, bytes]], Path], tmp_path: Path
) -> None:
    selection = Selection({"usr/include": "include", "usr/lib/arch": "lib"}, omit=("**/*.so",))
    deb = make_deb(
        {"./usr/include/x/x.h": b"h", "./usr/lib/arch/x.a": b"a", "./usr/lib/arch/x.so": b"s"}
    )
    unpack(deb, selection, tmp_path / "out", None)
    assert contents(tmp_path / "out") == {"include/x/x.h": b"h", "lib/x.a": b"a"}


def test_takes_only_what_is_selected(make_tar: MakeTar, tmp_path: Path) -> None:
    selection = Selection({"top-1.0": "."}, ("src/**", "*.txt"), ("src/big/**",))
    kept = {"src/a.c": b"a", "src/x/b.c": b"b", "v.txt": b"1"}
    left = {"src/big/c.c": b"", "doc/d": b"", "doc/e.txt": b""}
    archive = make_tar({f"top-1.0/{name}": text for name, text in {**kept, **left}.items()})
    unpack(archive, selection, tmp_path / "out", None)
    assert contents(tmp_path / "out") == kept


def test_keeps_the_executable_bit(make_tar: MakeTar, tmp_path: Path) -> None:
    script = tarfile.TarInfo("run")
    script.mode = 0o755
    unpack(make_tar({"data": b""}, script), EVERYTHING, tmp_path / "out", None)
    assert (tmp_path / "out/run").stat().st_mode & 0o777 == 0o755
    assert not (tmp_path / "out/data").stat().st_mode & 0o111


@pytest.mark.parametrize(
    "name", ["/etc/x", "../x", "a/../../x", "a/b/../../../x", "..", "a\\..\\x"]
)
def test_refuses_names_that_escape(make_tar: MakeTar, tmp_path: Path, name: str) -> None:
    archive = make_tar({"good": b"", name: b"bad"})
    before = sorted(tmp_path.parent.rglob("*"))
    with pytest.raises(SetupError, match=r"archive\.tar holds .* outside its folder"):
        unpack(archive, EVERYTHING, tmp_path / "out", None)
    assert sorted(tmp_path.parent.rglob("*")) == before


def test_refuses_escaping_names_that_are_not_selected(make_tar: MakeTar, tmp_path: Path) -> None:
    archive = make_tar({"src/a": b"", "../../x": b"bad"})
    with pytest.raises(SetupError, match="outside its folder"):
        unpack(archive, Selection({"src": "."}), tmp_path / "out", None)


@pytest.mark.parametrize(
    "member",
    [
        link("a/l", "../../x"),
        link("l", "/etc/passwd"),
        link("l", "../x", tarfile.LNKTYPE),
        link("a/b/l", "../../.."),
    ],
)
def test_refuses_links_that_lead_outside(
    make_tar: MakeTar, tmp_path: Path, member: tarfile.TarInfo
) -> None:
    with pytest.raises(SetupError, match="leads outside its folder"):
        unpack(make_tar({"good": b""}, member), EVERYTHING, tmp_path / "out", None)
    assert not (tmp_path / "out").exists()


def test_never_writes_through_a_link(make_tar: MakeTar, tmp_path: Path) -> None:
    archive = make_tar({}, link("d", "."), link("e", "d"), tarfile.TarInfo("d/e/f"))
    unpack(archive, EVERYTHING, tmp_path / "out", None)
    assert not (tmp_path / "out/d").is_symlink()
    assert contents(tmp_path / "out") == {"d/e/f": b""}


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_refuses_devices(make_tar: MakeTar, tmp_path: Path, kind: bytes) -> None:
    with pytest.raises(SetupError, match="'dev', which is not a plain file"):
        unpack(make_tar({}, link("dev", "", kind)), EVERYTHING, tmp_path / "out", None)


def test_refuses_a_file_given_twice(make_tar: MakeTar, tmp_path: Path) -> None:
    archive = make_tar({"a/./b": b"1", "a/b": b"2"})
    with pytest.raises(SetupError, match="twice"):
        unpack(archive, EVERYTHING, tmp_path / "out", None)


def test_a_damaged_archive_leaves_the_old_folder(make_tar: MakeTar, tmp_path: Path) -> None:
    archive = make_tar({"a": bytes(100_000), "b": bytes(range(256)) * 4000})
    archive.write_bytes(archive.read_bytes()[:-200])
    (tmp_path / "out").mkdir()
    (tmp_path / "out/old").write_bytes(b"old")
    with pytest.raises(SetupError, match=r"archive\.tar cannot be unpacked"):
        unpack(archive, EVERYTHING, tmp_path / "out", None)
    assert contents(tmp_path / "out") == {"old": b"old"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive.tar", "out"]


def test_refuses_a_file_that_is_no_archive(tmp_path: Path) -> None:
    archive = tmp_path / "page.html"
    for content in (b"<html>not found</html>" * 50, b"", b"!<arch>\nnonsense", b"!<arch>\n"):
        archive.write_bytes(content)
        with pytest.raises(SetupError, match=r"page\.html"):
            unpack(archive, EVERYTHING, tmp_path / "out", None)
    assert not (tmp_path / "out").exists()


def test_a_wrong_digest_leaves_nothing(make_tar: MakeTar, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"digest .* where 0000 is pinned"):
        unpack(make_tar({"a": b""}), EVERYTHING, tmp_path / "out", "0000")
    assert [path.name for path in tmp_path.iterdir()] == ["archive.tar"]


def test_a_full_disk_leaves_nothing(
    make_tar: MakeTar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    archive = make_tar({"a": b"1"})
    monkeypatch.setattr("shutil.copyfileobj", full)
    with pytest.raises(SetupError, match="No space left on device"):
        unpack(archive, EVERYTHING, tmp_path / "out", None)
    assert [path.name for path in tmp_path.iterdir()] == ["archive.tar"]


def test_an_interruption_shows_nothing_half_unpacked(
    make_tar: MakeTar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    archive = make_tar({"a": b"1"})
    monkeypatch.setattr(archives, "tree_digest", interrupt)
    with pytest.raises(KeyboardInterrupt):
        unpack(archive, EVERYTHING, tmp_path / "out", None)
    assert [path.name for path in tmp_path.iterdir()] == ["archive.tar"]


def test_replaces_an_older_tree_as_a_whole(make_tar: MakeTar, tmp_path: Path) -> None:
    unpack(make_tar({"old": b"1"}), EVERYTHING, tmp_path / "out", None)
    unpack(make_tar({"new": b"2"}), EVERYTHING, tmp_path / "out", None)
    assert contents(tmp_path / "out") == {"new": b"2"}


def test_digest_is_over_sorted_hashes_and_paths(tmp_path: Path) -> None:
    (tmp_path / "t/b").mkdir(parents=True)
    (tmp_path / "t/b/c").write_bytes(b"2")
    (tmp_path / "t/a").write_bytes(b"1")
    lines = sorted(
        f"{hashlib.sha256(text).hexdigest()}  {name}" for name, text in [("a", b"1"), ("b/c", b"2")]
    )
    assert tree_digest(tmp_path / "t") == hashlib.sha256("\n".join(lines).encode()).hexdigest()


@given(before=st.dictionaries(names, st.binary(max_size=9), min_size=1), data=st.data())
def test_every_change_changes_the_digest(
    tmp_path_factory: pytest.TempPathFactory, before: dict[str, bytes], data: st.DataObject
) -> None:
    tree = tmp_path_factory.mktemp("tree")
    for name, content in before.items():
        (tree / name.lower()).write_bytes(content)
    digest = tree_digest(tree)
    changed = tree / data.draw(st.sampled_from(sorted(before))).lower()
    changed.write_bytes(changed.read_bytes() + b"!")
    assert tree_digest(tree) != digest
    changed.write_bytes(changed.read_bytes()[:-1])
    assert tree_digest(tree) == digest
    changed.rename(changed.with_name(changed.name + "_moved"))
    assert tree_digest(tree) != digest


@given(path=paths)
def test_plain_names_stay_as_they_are(path: str) -> None:
    assert safe_name(path, "x") == path
    assert safe_name(f"./{path}/", "x") == path


@given(inner=paths, ups=st.integers(1, 9))
def test_names_that_escape_upwards_are_always_refused(inner: str, ups: int) -> None:
    climbing = inner + "/.." * (inner.count("/") + 1 + ups) + "/x"
    with pytest.raises(SetupError, match="outside its folder"):
        safe_name(climbing, "x")


@given(path=paths)
def test_globs(path: str) -> None:
    first, _, rest = path.partition("/")
    assert glob_pattern(["**"]).fullmatch(path)
    assert glob_pattern([path]).fullmatch(path)
    assert glob_pattern([f"**/{path}"]).fullmatch(path)
    assert bool(glob_pattern(["*"]).fullmatch(path)) == (not rest)
    assert bool(glob_pattern([f"{first}/**"]).fullmatch(path)) == bool(rest)
    assert not glob_pattern([]).fullmatch(path)


def test_links_inside_are_left_out(make_tar: MakeTar, tmp_path: Path) -> None:
    unpack(make_tar({"b": b"1"}, link("a/l", "../b")), EVERYTHING, tmp_path / "out", None)
    assert contents(tmp_path / "out") == {"b": b"1"}


def test_hard_links_start_at_the_root(make_tar: MakeTar, tmp_path: Path) -> None:
    archive = make_tar({}, link("a/l", "../x", tarfile.LNKTYPE))
    with pytest.raises(SetupError, match="leads outside"):
        unpack(archive, EVERYTHING, tmp_path / "out", None)
