"""tools/setup_helpers/sources.py: the table, the mirrors, local copies, and caching."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tools.setup_helpers import sources as module
from tools.setup_helpers.errors import SetupError
from tools.setup_helpers.sources import Debian, Git, Mirror, Snapshot, Source, fetch_source

if TYPE_CHECKING:
    from test.tools.setup_helpers.conftest import Server

FILES = {"VERSION": b"1\n", "src/a.c": b"int a;\n"}
GIT = (
    "git",
    "-c",
    "user.name=t",
    "-c",
    "user.email=t@example.invalid",
    "-c",
    "init.defaultBranch=main",
)
TarOf = Callable[..., bytes]


def digest_of(files: Mapping[str, bytes]) -> str:
    lines = sorted(f"{hashlib.sha256(text).hexdigest()}  {name}" for name, text in files.items())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def source_of(*mirrors: Mirror) -> Source:
    return Source(
        name="thing",
        version="1.0",
        used_for="tests",
        license="MIT",
        override="THING_DIR",
        landmarks=("VERSION", "VERSION.txt"),
        files=("VERSION", "src/**"),
        omit=(),
        mirrors=mirrors,
    )


@pytest.fixture
def debian(server: Server, tar_of: TarOf, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """A stand-in for apt's archive, with one source."""
    content = tar_of({f"thing-1.0/{name}": text for name, text in FILES.items()})
    remote = server.put("debian/pool/main/t/thing_1.0%2Bds.tar.xz", content)
    monkeypatch.setattr(module, "debian_sites", lambda: (f"{server.address}/debian",))
    place = Debian("pool/main/t/thing_1.0+ds.tar.xz", remote.sha256, remote.size)
    return Mirror("debian", place, {"thing-1.0": "."}, digest_of(FILES))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with the same files, a tag, and a later commit."""
    folder = tmp_path / "upstream"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text)
    for command in (
        ("init", "--quiet"),
        ("config", "uploadpack.allowFilter", "true"),
        ("add", "."),
        ("commit", "--quiet", "-m", "one"),
        ("tag", "v1.0"),
        ("commit", "--quiet", "--allow-empty", "-m", "two"),
    ):
        subprocess.run([*GIT, *command], cwd=folder, check=True)
    return folder


def git_mirror(repository: Path, **where: str) -> Mirror:
    place = Git(f"file://{repository}", **where)
    return Mirror("git", place, {".": "."}, digest_of(FILES))


def contents(tree: Path) -> dict[str, bytes]:
    return {
        path.relative_to(tree).as_posix(): path.read_bytes()
        for path in tree.rglob("*")
        if path.is_file()
    }


def test_the_table_is_complete() -> None:
    table = module.sources()
    built, tested = ["pytorch", "onednn", "ideep", "blis"], ["pytorch-1.13.1", "ideep-1.13.1"]
    assert list(table) == [*built, "pytorch-tree", *tested]
    assert [source.override for source in table.values() if source.override] == [
        "PYTORCH_SOURCE_DIR",
        "ZENDNN_SOURCE_DIR",
        "IDEEP_SOURCE_DIR",
        "ZENDNN_BLIS_DIR",
    ]
    for source in table.values():
        assert [mirror.kind for mirror in source.mirrors] == ["debian", "git"]
        for mirror in source.mirrors:
            pin = str(mirror.digest or getattr(mirror.place, "sha256", ""))
            assert len(pin) == 64, source.name
            assert set(pin) <= set("0123456789abcdef"), source.name


def test_the_table_leaves_the_debian_mirror_to_apt() -> None:
    places = [mirror.place for source in module.sources().values() for mirror in source.mirrors]
    pools = [place.pool for place in places if isinstance(place, Debian)]
    assert len(pools) == len(module.sources())
    assert all(pool.startswith("pool/main/") for pool in pools)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- a",
        "x: {version: 1}",
        "x: [",
        "x: {version: 1, used_for: y, license: z, landmarks: [], files: [], omit: [],"
        " mirrors: {git: {}}}",
        "x: {version: 1, used_for: y, license: z, landmarks: [], files: [], omit: [],"
        " mirrors: {git: {url: u, ref: v}}}",
        "x: {version: 1, used_for: y, license: z, landmarks: [], files: [], omit: [],"
        " mirrors: {debian: {pool: p, sha256: s}}}",
    ],
)
def test_a_bad_table_is_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "sources.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SetupError, match=r"sources\.yaml"):
        module.read_table(path)


def test_fetches_from_debian_and_only_once(server: Server, debian: Mirror, tmp_path: Path) -> None:
    source = source_of(debian)
    for _ in range(2):
        tree = fetch_source(source, tmp_path / "sources", {})
        assert contents(tree) == FILES
    assert [path for path, _ in server.requests] == ["/debian/pool/main/t/thing_1.0%2Bds.tar.xz"]


def test_both_mirrors_give_the_same_bytes(debian: Mirror, repository: Path, tmp_path: Path) -> None:
    mirrors = [debian, git_mirror(repository, ref="v1.0")]
    trees = [
        contents(fetch_source(source_of(mirror), tmp_path / mirror.kind, {})) for mirror in mirrors
    ]
    assert trees[0] == trees[1] == FILES


def test_git_takes_a_shortened_commit(repository: Path, tmp_path: Path) -> None:
    commit = subprocess.run(
        [*GIT, "rev-parse", "--short", "v1.0"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    source = source_of(git_mirror(repository, commit=commit))
    assert contents(fetch_source(source, tmp_path / "sources", {})) == FILES


def test_git_names_what_it_cannot_find(repository: Path, tmp_path: Path) -> None:
    source = source_of(git_mirror(repository, ref="v9"))
    with pytest.raises(SetupError, match=r"git: git fetch failed: .*v9"):
        fetch_source(source, tmp_path / "sources", {})


def test_a_moved_tag_is_refused(repository: Path, tmp_path: Path) -> None:
    (repository / "src/a.c").write_bytes(b"int b;\n")
    for command in (("commit", "--quiet", "-am", "other"), ("tag", "-f", "v1.0")):
        subprocess.run([*GIT, *command], cwd=repository, check=True, capture_output=True)
    source = source_of(git_mirror(repository, ref="v1.0"))
    with pytest.raises(SetupError, match=f"where {digest_of(FILES)} is pinned"):
        fetch_source(source, tmp_path / "sources", {})
    assert not (tmp_path / "sources/thing").exists()


def test_a_snapshot_is_pinned_by_its_archive(server: Server, tar_of: TarOf, tmp_path: Path) -> None:
    remote = server.put("o/thing/archive/1.0.tar.gz", tar_of({"t/VERSION": b"1"}, mode="w:gz"))
    place = Snapshot(remote.url, remote.sha256, remote.size)
    source = source_of(Mirror("git", place, {"t": "."}, None))
    for _ in range(2):
        assert contents(fetch_source(source, tmp_path / "s", {})) == {"VERSION": b"1"}
    assert len(server.requests) == 1


def test_the_next_mirror_is_tried(
    server: Server, debian: Mirror, repository: Path, tmp_path: Path
) -> None:
    server.files.clear()
    source = source_of(debian, git_mirror(repository, ref="v1.0"))
    assert contents(fetch_source(source, tmp_path / "sources", {})) == FILES
    assert len(server.requests) == 1


def test_when_all_fail_each_reason_and_the_remedy_are_named(
    server: Server, debian: Mirror, tmp_path: Path
) -> None:
    server.files.clear()
    gone = git_mirror(tmp_path / "nowhere", ref="v1.0")
    with pytest.raises(SetupError) as raised:
        fetch_source(source_of(debian, gone), tmp_path / "sources", {})
    text = str(raised.value)
    assert text.startswith("thing 1.0 cannot be fetched (debian: ")
    assert "answered 404" in text
    assert "git: git fetch failed" in text
    assert text.endswith("name a local copy in THING_DIR")
    assert "\n" not in text
    assert not (tmp_path / "sources/thing").exists()


def test_no_apt_is_a_reason_too(
    debian: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "debian_sites", lambda: ())
    with pytest.raises(SetupError, match="debian: apt has no address"):
        fetch_source(source_of(debian), tmp_path / "sources", {})


@pytest.mark.parametrize("kind", ["debian", "git"])
def test_zendnn_sources_forces_one_kind(debian: Mirror, repository: Path, kind: str) -> None:
    source = source_of(debian, git_mirror(repository, ref="v1.0"))
    chosen = module.mirror_order(source, {"ZENDNN_SOURCES": kind})
    assert [mirror.kind for mirror in chosen] == [kind]
    assert len(module.mirror_order(source, {})) == 2


def test_zendnn_sources_refuses_other_values(debian: Mirror) -> None:
    with pytest.raises(SetupError, match="ZENDNN_SOURCES is 'ftp': it can be debian or git"):
        module.mirror_order(source_of(debian), {"ZENDNN_SOURCES": "ftp"})


def test_a_wrong_hash_is_refused_and_nothing_is_unpacked(
    server: Server, debian: Mirror, tmp_path: Path
) -> None:
    for name in server.files:
        server.files[name] = bytes(len(server.files[name]))
    with pytest.raises(SetupError, match="is pinned; it was deleted"):
        fetch_source(source_of(debian), tmp_path / "sources", {})
    kept = [path.name for path in (tmp_path / "sources").rglob("*") if path.is_file()]
    assert kept == [".thing.lock"]


def test_a_changed_tree_is_unpacked_again_without_the_network(
    server: Server, debian: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = source_of(debian)
    tree = fetch_source(source, tmp_path / "sources", {})
    (tree / "src/a.c").write_bytes(b"changed")
    (tree / "src/more.c").write_bytes(b"")
    assert contents(fetch_source(source, tmp_path / "sources", {})) == FILES
    assert len(server.requests) == 1
    assert "was changed; unpacking it again; name a copy of it in THING_DIR" in (
        capsys.readouterr().err
    )


def test_a_tree_with_a_dangling_link_was_changed(
    debian: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = replace(source_of(debian), override=None)
    tree = fetch_source(source, tmp_path / "sources", {})
    (tree / "src/.#a.c").symlink_to("nowhere")
    assert contents(fetch_source(source, tmp_path / "sources", {})) == FILES
    assert not (tree / "src/.#a.c").is_symlink()
    assert capsys.readouterr().err.endswith(f"\n{tree} was changed; unpacking it again\n")


def test_a_file_in_the_way_of_git_is_one_sentence(repository: Path, tmp_path: Path) -> None:
    taken = tmp_path / "sources/archives/.upstream-v1.0.git"
    taken.parent.mkdir(parents=True)
    taken.touch()
    source = source_of(git_mirror(repository, ref="v1.0"))
    with pytest.raises(SetupError, match=r"git: cannot write to .*v1\.0\.git: File exists"):
        fetch_source(source, tmp_path / "sources", {})


def test_a_new_pin_is_fetched(
    server: Server, tar_of: TarOf, debian: Mirror, tmp_path: Path
) -> None:
    fetch_source(source_of(debian), tmp_path / "sources", {})
    files = {"VERSION": b"2\n"}
    remote = server.put("debian/pool/main/t/thing_2.tar.xz", tar_of({"t/VERSION": b"2\n"}))
    place = Debian("pool/main/t/thing_2.tar.xz", remote.sha256, remote.size)
    newer = replace(source_of(Mirror("debian", place, {"t": "."}, digest_of(files))), version="2")
    assert contents(fetch_source(newer, tmp_path / "sources", {})) == files


def test_leftovers_of_a_killed_run_are_removed(debian: Mirror, tmp_path: Path) -> None:
    leftover = tmp_path / "sources/.thing.abcdefgh"
    leftover.mkdir(parents=True)
    fetch_source(source_of(debian), tmp_path / "sources", {})
    assert not leftover.exists()


def test_a_local_copy_is_used_as_it_is(server: Server, debian: Mirror, tmp_path: Path) -> None:
    local = tmp_path / "mine"
    local.mkdir()
    (local / "VERSION.txt").write_bytes(b"mine")
    found = fetch_source(source_of(debian), tmp_path / "sources", {"THING_DIR": str(local)})
    assert found == local
    assert server.requests == []
    assert not (tmp_path / "sources").exists()


def test_a_local_copy_has_to_be_that_source(debian: Mirror, tmp_path: Path) -> None:
    source = source_of(debian)
    with pytest.raises(SetupError, match="THING_DIR is '/no/such', which is not a folder"):
        module.local_copy(source, {"THING_DIR": "/no/such"})
    with pytest.raises(SetupError, match=r"does not hold thing: it has no VERSION or VERSION\.txt"):
        module.local_copy(source, {"THING_DIR": str(tmp_path)})
    assert module.local_copy(source, {"THING_DIR": ""}) is None


@pytest.mark.parametrize("landmark", ["dnnl/dnnl.h", "zendnn/zendnn.h"])
def test_zendnn_source_dir_takes_a_onednn_tree_or_a_renamed_one(
    tmp_path: Path, landmark: str
) -> None:
    header = tmp_path / "include/oneapi" / landmark
    header.parent.mkdir(parents=True)
    header.write_bytes(b"")
    environ = {"ZENDNN_SOURCE_DIR": str(tmp_path)}
    assert module.local_copy(module.sources()["onednn"], environ) == tmp_path


@pytest.mark.parametrize("variable", ["ZENDNN_BLIS_DIR", "BLIS_ROOT"])
@pytest.mark.parametrize("header", ["blis/blis.h", "blis.h"])
def test_zendnn_blis_dir_takes_a_blis_or_an_aocl_blas(
    tmp_path: Path, variable: str, header: str
) -> None:
    blis = module.sources()["blis"]
    with pytest.raises(SetupError, match=f"{variable} is '.*', which does not hold blis"):
        module.local_copy(blis, {variable: str(tmp_path)})
    (tmp_path / "include" / header).parent.mkdir(parents=True)
    (tmp_path / "include" / header).write_bytes(b"")
    assert module.local_copy(blis, {variable: str(tmp_path)}) == tmp_path


def test_blis_is_a_prefix_or_a_source_tree(tmp_path: Path) -> None:
    assert module.blis(tmp_path).kind == "prefix"
    (tmp_path / "configure").write_bytes(b"")
    assert module.blis(tmp_path).kind == "source"


def test_pool_addresses_are_escaped() -> None:
    assert (
        module.pool_url("http://mirror/debian/", "pool/a_1.0~git+ds.deb")
        == "http://mirror/debian/pool/a_1.0%7egit%2Bds.deb"
    )


def test_apt_is_asked_for_its_addresses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text(
        "#!/bin/sh\n"
        "printf 'http://m/debian-security\\nhttp://m/debian\\ncdrom:x\\nhttp://m/debian\\n'\n"
    )
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert module.debian_sites() == ("http://m/debian", "http://m/debian-security")
    apt.unlink()
    assert module.debian_sites() == ()


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(SetupError, match="there is no source 'mkl': choose from pytorch, onednn"):
        module.main(["mkl"])


def test_the_stamp_is_checked_in_little_time(debian: Mirror, tmp_path: Path) -> None:
    source = source_of(debian)
    fetch_source(source, tmp_path / "sources", {})
    started = time.monotonic()
    fetch_source(source, tmp_path / "sources", {})
    assert time.monotonic() - started < 1
    stamp = json.loads((tmp_path / "sources/.thing.json").read_text(encoding="utf-8"))
    assert stamp == {"pins": source.pins(), "digest": digest_of(FILES)}


def test_a_wrong_archive_of_git_is_not_kept(repository: Path, tmp_path: Path) -> None:
    wrong = replace(git_mirror(repository, ref="v1.0"), digest="0" * 64)
    with pytest.raises(SetupError, match="is pinned"):
        fetch_source(source_of(wrong), tmp_path / "sources", {})
    assert not list((tmp_path / "sources/archives").iterdir())


def test_archives_are_named_by_their_commit(repository: Path, tmp_path: Path) -> None:
    command = ["git", "rev-parse", "v1.0"]
    said = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True)
    commit = said.stdout[:12]
    fetch_source(source_of(git_mirror(repository, commit=commit)), tmp_path / "sources", {})
    names = [path.name for path in (tmp_path / "sources/archives").iterdir()]
    assert names == [f"upstream-{commit}.tar"]


def test_a_source_may_have_no_override(debian: Mirror, tmp_path: Path) -> None:
    source = replace(source_of(debian), override=None)
    assert contents(fetch_source(source, tmp_path / "sources", os.environ)) == FILES


def test_the_command_fetches_named_sources_or_those_of_the_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []

    def fetch(name: str) -> Path:
        asked.append(name)
        return tmp_path

    monkeypatch.setattr(module, "fetch", fetch)
    module.main(["blis"])
    assert asked == ["blis"]
    module.main([])
    assert asked[1:] == [name for name, source in module.sources().items() if source.override]
