"""tools/wheels/matrix.py: each cell has its own environment, and tells what became of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from test.tools.wheels.conftest import Auditor, companion
from tools.setup_helpers import wheel_file
from tools.setup_helpers.errors import SetupError
from tools.wheels import matrix as module
from tools.wheels.matrix import Cell, Log

Run = Callable[..., Sequence[module.Result]]


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, auditor: Auditor) -> list[Cell]:
    """The cells that were built; in place of the build, a small wheel is written."""
    cells: list[Cell] = []

    def build(cell: Cell, python: Path, out: Path, *_: object) -> Path:
        cells.append(cell)
        if cell.torch == "0.0":
            raise SetupError("torch 0.0 is older than 2.6")
        return companion(out / f"torch-{cell.torch}", torch=cell.torch)

    def find(version: str) -> Path | None:
        return None if version == "3.99" else Path(sys.executable)

    monkeypatch.setattr(module, "FOLDER", tmp_path / "cells")
    monkeypatch.setattr(module, "_build", build)
    monkeypatch.setattr(module, "find_python", find)
    return cells


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Builds cells into a folder of the test."""

    def build(
        cells: Sequence[Cell], resume: bool = False, pip: Sequence[str] = (), jobs: int = 1
    ) -> Sequence[module.Result]:
        settings = module.Settings(pip)
        return module.build(cells, tmp_path / "dist", settings, resume=resume, jobs=jobs)

    return build


def test_cells_are_all_pairs_or_those_that_are_asked_for() -> None:
    pythons, torches = ("3.11", "3.12"), ("2.6.0", "2.13.0")
    assert len(module.cells(pythons, torches)) == 4
    assert module.cells(pythons, torches, "3.12-torch2.6") == [Cell("3.12", "2.6.0")]
    assert len(module.cells(pythons, torches, "torch2.13.0")) == 2
    with pytest.raises(SetupError, match=r"no cell's name contains '3\.9': they are like python"):
        module.cells(pythons, torches, "3.9")


def test_an_interpreter_is_found_by_what_it_says_of_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = "{}.{}".format(*sys.version_info)
    for folder, target in (("liar", "/bin/true"), ("right", sys.executable)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"python{version}").symlink_to(target)
    monkeypatch.setenv("PATH", f"{tmp_path}/liar{os.pathsep}{tmp_path}/right")
    assert module.find_python(version) == tmp_path / f"right/python{version}"
    assert module.find_python("3.99") is None


def test_each_cell_says_what_became_of_it(run: Run, built: list[Cell]) -> None:
    cells = [Cell("3.11", "2.13.0"), Cell("3.99", "2.13.0"), Cell("3.11", "0.0")]
    good, missing, failed = run(cells)
    assert (good.state, missing.state, failed.state) == ("built", "no python", "failed")
    assert "torch-2.13.0/torch_zendnn-1.2.3-cp311-cp311-linux_x86_64.whl (0.0 MB)" in good.remark
    assert missing.remark == "there is no python3.99 on PATH"
    assert failed.remark == "torch 0.0 is older than 2.6"
    assert [found.made for found in (good, missing, failed)] == [True, False, False]


@pytest.mark.parametrize("there", ["", "/built"])
def test_the_first_cell_that_is_built_gives_libzendnn_to_the_others_unless_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, auditor: Auditor, there: str
) -> None:
    taken: dict[str, Path | None] = {}

    def build(cell: Cell, python: Path, out: Path, settings: module.Settings, *_: object) -> Path:
        taken[cell.torch] = settings.built
        if cell.torch == "0.0":
            raise SetupError("no such torch")
        return companion(out / f"torch-{cell.torch}", torch=cell.torch)

    monkeypatch.setenv("ZENDNN_BUILT_DIR", there)
    monkeypatch.setattr(module, "FOLDER", tmp_path / "cells")
    monkeypatch.setattr(module, "_build", build)
    monkeypatch.setattr(module, "find_python", lambda version: Path(sys.executable))
    cells = [Cell("3.11", torch) for torch in ("0.0", "2.6.0", "2.12.0", "2.13.0")]
    settings = module.Settings(manylinux="2_28")
    module.build(cells, tmp_path / "dist", settings, resume=False, jobs=2)
    first = Path(there) if there else None
    tree = first or tmp_path / "cells/python3.11-torch2.6.0/build-2_28/native"
    assert taken == {"0.0": first, "2.6.0": first, "2.12.0": tree, "2.13.0": tree}


def test_a_wheel_comes_with_what_it_is_made_from(
    run: Run, built: list[Cell], tmp_path: Path
) -> None:
    run([Cell("3.11", "2.13.0")])
    name = "torch_zendnn-1.2.3-cp311-cp311-linux_x86_64.whl"
    assert {path.name for path in (tmp_path / "dist/torch-2.13.0").iterdir()} == {
        name,
        f"{name}.cdx.json",
        f"{name}.provenance.json",
    }


def test_resuming_keeps_what_was_built_from_the_same(
    run: Run, built: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [Cell("3.11", "2.13.0"), Cell("3.11", "0.0")]
    run(cells)
    assert [found.state for found in run(cells, resume=True)] == ["kept", "failed"]
    assert len(built) == 3
    assert [found.state for found in run(cells[:1], resume=True, pip=["--pre"])] == ["built"]
    monkeypatch.setenv("CXXFLAGS", "-g")
    assert [found.state for found in run(cells[:1], resume=True, pip=["--pre"])] == ["built"]
    assert [found.state for found in run(cells[:1])] == ["built"]


def test_resuming_builds_a_wheel_that_is_gone(run: Run, built: list[Cell], tmp_path: Path) -> None:
    cells = [Cell("3.11", "2.13.0")]
    run(cells)
    for path in (tmp_path / "dist/torch-2.13.0").iterdir():
        path.unlink()
    assert [found.state for found in run(cells, resume=True)] == ["built"]


def test_a_wheel_that_fails_a_check_fails_its_cell(
    run: Run, built: list[Cell], auditor: Auditor
) -> None:
    auditor.outside = ("libblis.so.4",)
    (found,) = run([Cell("3.11", "2.13.0")], jobs=2)
    assert found.state == "failed"
    assert "fails the checks libraries" in found.remark


def test_an_unknown_system_is_refused_before_anything_is_built(
    built: list[Cell], tmp_path: Path
) -> None:
    settings = module.Settings(manylinux="1_1")
    with pytest.raises(SetupError, match="knows no policy manylinux_1_1 for "):
        module.build([Cell("3.11", "2.13.0")], tmp_path, settings, resume=False, jobs=1)
    assert not built


@pytest.mark.parametrize(
    ("platform", "serves"),
    [
        ("manylinux_2_27", True),
        ("manylinux_2_28", True),
        ("manylinux_2_34", False),
        ("linux", False),
    ],
)
def test_a_wheel_serves_systems_that_are_as_new_as_its_tag(
    platform: str, serves: bool, tmp_path: Path
) -> None:
    path = companion(tmp_path, tag=f"cp311-cp311-{platform}_x86_64")
    assert module._serves(path, "manylinux_2_28") is serves


def test_retagging_changes_the_tag_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, auditor: Auditor
) -> None:
    monkeypatch.setattr(module, "audit", auditor.audit)
    path = companion(tmp_path)
    with wheel_file.opened(path) as wheel:
        before = {name: found.read() for name, found in wheel.files.items()}
    result = module.retag(path)
    assert [path.name for path in tmp_path.iterdir()] == [result.name]
    assert result.name.endswith("-cp311-cp311-manylinux_2_34_x86_64.whl")
    with wheel_file.opened(result) as wheel:
        after = {name: found.read() for name, found in wheel.files.items()}
        assert wheel.tags == ("cp311-cp311-manylinux_2_34_x86_64",)
        assert wheel_file.wrong_records(wheel) == ()
    changed = {name.split("/")[1] for name in before if before[name] != after[name]}
    assert changed == {"WHEEL", "RECORD"}
    assert module.retag(result) == result


def test_a_failing_step_tells_its_last_line_and_where_the_rest_is(tmp_path: Path) -> None:
    log = Log("cell", tmp_path / "cell/log.txt")
    assert log.run(["echo", "one\ntwo"]) == "two"
    with pytest.raises(SetupError, match=rf"^four \(all of it: {tmp_path}/cell/log\.txt\)$"):
        log.run(["sh", "-c", "echo three; echo four >&2; exit 3"])
    assert log.path.read_text() == "one\ntwo\nthree\nfour\n"


def test_a_long_step_is_heard_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.0)
    Log("cell", tmp_path / "log.txt").run(["echo", "[1/2] compiling"])
    assert capsys.readouterr().out == "cell: [1/2] compiling\n"
