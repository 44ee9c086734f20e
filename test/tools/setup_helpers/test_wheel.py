"""tools/setup_helpers/wheel.py: the wheel's contents; it replaces no file of torch."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
import subprocess
import sys
import venv
import zipfile
from configparser import ConfigParser
from email.parser import Parser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.setup_helpers import env, sources
from tools.setup_helpers import wheel as module
from tools.setup_helpers.errors import SetupError
from tools.setup_helpers.wheel import Wheel, write

TORCH = env.Torch(
    "2.13.0+cpu", Path("/site"), frozenset({"torch/__init__.py", "torch/lib/libc10.so"})
)


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small checkout after its build."""
    files = {
        "version.txt": "1.2.3\n",
        "LICENSE": "ours",
        "torch/backends/zendnn/__init__.py": "",
        "torch/backends/zendnn/_hooks.py": "def install(): pass\n",
        "torch/backends/zendnn/passes/fold.py": "ANSWER = 42\n",
        "torch/backends/zendnn/__pycache__/x.py": "",
        "torch/csrc/zendnn/plan.cpp": "",
        "build/generated/torch/utils/zendnn.py": "UTILS = True\n",
        "build/generated/test/test_zendnn.py": "",
        "build/native/lib/libtorch_zendnn.so": "binary",
        "build/native/lib/_C.so": "bindings",
        "upstream/LICENSE.txt": "theirs",
        "upstream/THIRD-PARTY-PROGRAMS": "others",
        "ideep/ideep.hpp": "/* Permission is granted. */\n#ifndef IDEEP_HPP\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(module, "REPO", tmp_path)
    monkeypatch.setattr(module, "GENERATED", tmp_path / "build/generated")
    monkeypatch.setattr(module, "LIBRARY", tmp_path / "build/native/lib/libtorch_zendnn.so")
    monkeypatch.setattr(module, "BINDINGS", tmp_path / "build/native/lib/_C.so")
    return tmp_path


def made(repo: Path, *, editable: bool = False) -> Wheel:
    return module.native_wheel(
        TORCH, editable=editable, trees={"onednn": repo / "upstream", "ideep": repo / "ideep"}
    )


def test_holds_our_python_the_converted_python_and_the_library(repo: Path) -> None:
    assert sorted(made(repo).files) == [
        "torch/backends/zendnn/_C.so",
        "torch/backends/zendnn/__init__.py",
        "torch/backends/zendnn/_hooks.py",
        "torch/backends/zendnn/passes/fold.py",
        "torch/lib/libtorch_zendnn.so",
        "torch/utils/zendnn.py",
    ]
    assert made(repo).files["torch/utils/zendnn.py"] == b"UTILS = True\n"


def test_says_which_torch_python_and_machine_it_is_for(repo: Path) -> None:
    wheel = made(repo)
    metadata = Parser().parsestr(wheel.metadata)
    assert metadata["Name"] == "torch-zendnn"
    assert metadata["Version"] == "1.2.3"
    assert metadata.get_all("Requires-Dist") == ["torch==2.13.0"]
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    assert re.fullmatch(rf"torch_zendnn-1\.2\.3-{python}-{python}-linux_\w+\.whl", wheel.name)


def test_registers_the_autoload_entry_point(repo: Path) -> None:
    parser = ConfigParser()
    parser.read_string(made(repo).entry_points)
    assert dict(parser["torch.backends"]) == {"zendnn": "torch.backends.zendnn._hooks:install"}


def test_carries_every_licence(repo: Path) -> None:
    assert made(repo).licenses == {
        "LICENSE": b"ours",
        "ideep/LICENSE": b"/* Permission is granted. */\n",
        "onednn/LICENSE.txt": b"theirs",
        "onednn/THIRD-PARTY-PROGRAMS": b"others",
    }


def test_each_source_that_is_compiled_in_brings_its_licence() -> None:
    trees = {name: sources.fetch(name) for name in ("pytorch", "onednn", "ideep", "blis")}
    found = module.licenses(trees)
    assert {name.partition("/")[0] for name in found} == {"LICENSE", *trees}
    assert b"Permission is hereby granted" in found["ideep/LICENSE"]
    assert b"#" not in found["ideep/LICENSE"]


@pytest.mark.parametrize("taken", ["torch/lib/libtorch_zendnn.so", "torch/utils/zendnn.py"])
def test_refuses_to_replace_a_file_of_torch(repo: Path, taken: str) -> None:
    torch = env.Torch("2.99.0", Path("/site"), frozenset({taken}))
    with pytest.raises(SetupError, match=rf"has a file of its own at /site/{re.escape(taken)}"):
        module.native_wheel(torch, editable=False, trees={})


def test_a_file_that_was_not_built_is_named(repo: Path) -> None:
    (repo / "build/native/lib/libtorch_zendnn.so").unlink()
    with pytest.raises(SetupError, match=r"did not make .*libtorch_zendnn\.so"):
        made(repo)


def test_a_file_that_exists_twice_is_refused(repo: Path) -> None:
    (repo / "torch/utils").mkdir()
    (repo / "torch/utils/zendnn.py").write_text("")
    with pytest.raises(SetupError, match=r"torch/utils/zendnn\.py is both hand-written and"):
        made(repo)


def test_an_editable_module_runs_the_file_of_the_checkout(repo: Path) -> None:
    wheel = made(repo, editable=True)
    source = repo / "torch/backends/zendnn/passes/fold.py"
    for answer in (42, 43):
        source.write_text(f"ANSWER = {answer}\nHERE = __file__\n")
        scope: dict[str, object] = {"__name__": "fold"}
        exec(wheel.files["torch/backends/zendnn/passes/fold.py"], scope)
        assert (scope["ANSWER"], scope["HERE"]) == (answer, str(source))
    assert wheel.files["torch/utils/zendnn.py"] == made(repo).files["torch/utils/zendnn.py"]
    assert wheel.name == made(repo).name


def check_record(path: Path) -> None:
    """Assert that the wheel's RECORD lists every file with its hash and size."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        (record,) = [name for name in names if name.endswith(".dist-info/RECORD")]
        rows = list(csv.reader(io.StringIO(archive.read(record).decode())))
        assert [row[0] for row in rows] == names
        for name, digest, size in rows:
            if name == record:
                assert (digest, size) == ("", "")
                continue
            content = archive.read(name)
            raw = base64.urlsafe_b64decode(digest.removeprefix("sha256=") + "=")
            assert raw == hashlib.sha256(content).digest()
            assert int(size) == len(content)


def test_record_is_right(repo: Path) -> None:
    check_record(write(made(repo), repo / "dist"))


@given(
    files=st.dictionaries(
        st.from_regex(r"torch/[a-z]{1,8}\.py", fullmatch=True), st.binary(max_size=99), max_size=9
    )
)
def test_record_is_right_for_any_content(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]
) -> None:
    folder = tmp_path_factory.mktemp("dist")
    check_record(write(Wheel("1", "py3-none-any", files, "Name: x\n"), folder))


def test_equal_builds_give_equal_bytes(repo: Path) -> None:
    first = write(made(repo), repo / "1").read_bytes()
    assert write(made(repo), repo / "2").read_bytes() == first
    assert write(made(repo), repo / "1").read_bytes() == first


def test_the_metadata_before_the_build_matches_the_wheels(repo: Path) -> None:
    info = repo / "info" / module.write_info(module.native_outline(TORCH), repo / "info")
    with zipfile.ZipFile(write(made(repo), repo / "dist")) as archive:
        for path in info.iterdir():
            text = archive.read(f"{info.name}/{path.name}").decode()
            # The files of licences are known once the sources are fetched.
            assert re.sub(r"License-File: .*\n", "", text) == path.read_text()
    assert {path.name for path in info.iterdir()} == {"METADATA", "WHEEL", "entry_points.txt"}


def test_without_zendnn_there_is_only_metadata(repo: Path) -> None:
    with zipfile.ZipFile(write(module.empty_wheel(), repo / "dist")) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names} == {"torch_zendnn-1.2.3.dist-info"}
    assert not any("entry_points" in name for name in names)


def test_pip_installs_it_beside_torch_and_the_empty_wheel_removes_it(repo: Path) -> None:
    venv.create(repo / "venv", with_pip=False)
    python = repo / "venv/bin/python"
    (site,) = (repo / "venv/lib").glob("python*/site-packages")
    (site / "torch/lib").mkdir(parents=True)
    (site / "torch/__init__.py").write_bytes(b"")
    (site / "torch/lib/libc10.so").write_bytes(b"c10")

    def files() -> dict[str, bytes]:
        folder = site / "torch"
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file() and path.suffix != ".pyc"
        }

    def install(wheel: Wheel) -> None:
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
        path = str(write(wheel, repo / "dist"))
        subprocess.run([*pip, "--no-deps", "--no-index", "--force-reinstall", path], check=True)

    before = files()
    install(made(repo))
    assert {name: text for name, text in files().items() if name in before} == before
    assert {f"torch/{name}" for name in files()} - set(made(repo).files) == {
        "torch/__init__.py",
        "torch/lib/libc10.so",
    }
    assert files()["lib/libtorch_zendnn.so"] == b"binary"
    install(module.empty_wheel())
    assert files() == before


def test_a_pip_that_fails_is_one_sentence(tmp_path: Path) -> None:
    broken = tmp_path / "torch_zendnn-1-py3-none-any.whl"
    broken.write_bytes(b"no zip")
    with pytest.raises(SetupError, match=r"pip cannot install torch_zendnn-1-py3-none-any\.whl"):
        module.install(broken)


def test_metadata_names_the_licences(repo: Path) -> None:
    metadata = Parser().parsestr(made(repo).metadata)
    assert metadata["License-Expression"] == "BSD-3-Clause AND Apache-2.0 AND MIT"
    assert metadata.get_all("License-File") == sorted(made(repo).licenses)


def test_names_its_sources_and_tools(repo: Path) -> None:
    notes = made(repo).notes
    bom = json.loads(notes["sboms/torch-zendnn.cdx.json"])
    assert [part["name"] for part in bom["components"]] == [
        "torch-zendnn-sources",
        "zendnnify",
        "onednn",
        "ideep",
    ]
    predicate = json.loads(notes["provenance.json"])
    parameters = predicate["buildDefinition"]["externalParameters"]
    assert parameters["torch"] == "2.13.0+cpu"
    assert predicate["runDetails"]["builder"]["version"].keys() == set(env.TOOLS)


def test_a_library_of_another_build_is_named_by_its_digest(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "native" / "zendnn/src/libzendnn.a"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"library")
    monkeypatch.setenv("ZENDNN_BUILT_DIR", str(tmp_path / "native"))
    predicate = json.loads(made(repo).notes["provenance.json"])
    parameters = predicate["buildDefinition"]["externalParameters"]
    assert parameters["libzendnn.a"] == f"sha256:{hashlib.sha256(b'library').hexdigest()}"
    assert str(tmp_path) not in json.dumps(predicate)


def test_what_it_is_made_from_is_written_beside_it(repo: Path) -> None:
    path = write(made(repo), repo / "dist")
    bom, provenance = module.write_beside(path)
    assert (bom.name, provenance.name) == (
        f"{path.name}.cdx.json",
        f"{path.name}.provenance.json",
    )
    assert bom.read_bytes() == made(repo).notes["sboms/torch-zendnn.cdx.json"]
    (subject,) = json.loads(provenance.read_text())["subject"]
    assert subject["digest"]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_wheel_without_zendnn_is_made_from_nothing(repo: Path) -> None:
    assert module.write_beside(write(module.empty_wheel(), repo / "dist")) == ()


def test_files_of_the_wheel_have_modes(repo: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(write(made(repo), tmp_path)) as archive:
        modes = {item.filename: item.external_attr >> 16 for item in archive.infolist()}
    assert modes["torch/lib/libtorch_zendnn.so"] == 0o100755
    assert modes["torch/utils/zendnn.py"] == 0o100644


def test_only_the_empty_wheel_is_pure(repo: Path) -> None:
    for wheel, pure in ((made(repo), b"false"), (module.empty_wheel(), b"true")):
        text = module.dist_info(wheel)[f"{wheel.info}/WHEEL"]
        assert b"Root-Is-Purelib: " + pure + b"\n" in text
