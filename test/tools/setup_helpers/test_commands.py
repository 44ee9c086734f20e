"""tools/setup_helpers/commands.py: setup.py's commands and pip's hooks make the same wheel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.setup_helpers import build, commands, env, sources, wheel
from tools.setup_helpers.errors import SetupError

TORCH = env.Torch("2.13.0+cpu", Path("/site"), frozenset())


@pytest.fixture(autouse=True)
def _off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("USE_ZENDNN", raising=False)


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build with USE_ZENDNN=1 that is already done."""
    generated = tmp_path / "generated"
    for name in wheel.GENERATED_PYTHON:
        (generated / name).parent.mkdir(parents=True, exist_ok=True)
        (generated / name).write_text(f"# {name}\n")
    library = tmp_path / "libtorch_zendnn.so"
    library.write_bytes(b"binary")
    monkeypatch.setattr(wheel, "GENERATED", generated)
    monkeypatch.setattr(wheel, "LIBRARY", library)
    monkeypatch.setattr(wheel, "BINDINGS", library)
    trees = build.Trees(generated, generated, generated, "prefix", generated, {})
    monkeypatch.setattr(build, "build", lambda: (TORCH, trees))
    monkeypatch.setenv("USE_ZENDNN", "1")


@pytest.mark.usefixtures("built")
def test_setup_py_and_pip_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[tuple[str, bytes]] = []
    monkeypatch.setattr(
        wheel, "install", lambda path: installed.append((path.name, path.read_bytes()))
    )
    assert commands.main(["bdist_wheel", "-d", str(tmp_path / "dist")]) == 0
    assert commands.main(["install"]) == 0
    name = commands.build_wheel(str(tmp_path / "pip"))
    wheels = [
        *((path.name, path.read_bytes()) for path in (tmp_path / "dist").glob("*.whl")),
        *installed,
        (name, (tmp_path / "pip" / name).read_bytes()),
    ]
    assert len(wheels) == 3
    assert len(set(wheels)) == 1


@pytest.mark.usefixtures("built")
def test_develop_and_editable_installs_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed: list[bytes] = []
    monkeypatch.setattr(wheel, "install", lambda path: installed.append(path.read_bytes()))
    assert commands.main(["develop"]) == 0
    name = commands.build_editable(str(tmp_path / "pip"))
    assert installed == [(tmp_path / "pip" / name).read_bytes()]


def test_off_builds_and_fetches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "build", lambda: pytest.fail("must not be built"))
    monkeypatch.setattr(sources, "fetch", lambda _: pytest.fail("must not be fetched"))
    for value in (None, "", "0"):
        if value is not None:
            monkeypatch.setenv("USE_ZENDNN", value)
        assert commands.main(["bdist_wheel", "-d", str(tmp_path)]) == 0
        said = capsys.readouterr().out
        assert "an installation removes ZenDNN: set USE_ZENDNN=1" in said
    assert [path.name for path in tmp_path.iterdir()] == [wheel.empty_wheel().name]


@pytest.mark.parametrize("command", ["install", "develop", "bdist_wheel"])
def test_any_other_value_is_exit_code_2(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("USE_ZENDNN", "ON")
    assert commands.main([command]) == 2
    assert capsys.readouterr().err.startswith("error: USE_ZENDNN is 'ON': it can be 1 ")


@pytest.mark.parametrize(
    "hook",
    [
        commands.build_wheel,
        commands.build_editable,
        commands.prepare_metadata_for_build_wheel,
        commands.prepare_metadata_for_build_editable,
    ],
)
def test_pips_hooks_end_in_one_line(
    hook: object,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("USE_ZENDNN", "yes")
    assert callable(hook)
    with pytest.raises(SystemExit) as raised:
        hook(str(tmp_path))
    assert raised.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_pip_sees_a_missing_tool_before_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("USE_ZENDNN", "1")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit):
        commands.prepare_metadata_for_build_wheel(str(tmp_path))
    assert "CMake is missing: install cmake" in capsys.readouterr().err


def test_there_is_no_sdist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        commands.build_sdist("x")
    assert "clone the repository instead" in capsys.readouterr().err


@pytest.mark.usefixtures("built")
def test_an_unwritable_folder_is_reported_before_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "build", lambda: pytest.fail("must not be built"))
    (tmp_path / "file").touch()
    assert commands.main(["bdist_wheel", "-d", str(tmp_path / "file" / "dist")]) == 2
    assert capsys.readouterr().err.startswith(f"error: cannot write to {tmp_path}/file/dist: ")


@pytest.mark.usefixtures("built")
def test_a_missing_pip_is_reported_before_the_build(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "build", lambda: pytest.fail("must not be built"))
    monkeypatch.setattr("importlib.machinery.PathFinder.find_spec", lambda _: None)
    assert commands.main(["install"]) == 2
    assert "has no pip: install it" in capsys.readouterr().err


def test_setuptools_can_be_imported_after_an_installation() -> None:
    """On Python 3.10 and 3.11 its finder for pip hides distutils until the process ends."""
    lines = (
        "from tools.setup_helpers import build, commands, errors",
        "def fail(): raise errors.SetupError('the compilation failed')",
        "build.build = fail",
        "assert commands.main(['install']) == 2",
        "import setuptools",
    )
    environ = {**os.environ, "USE_ZENDNN": "1"}
    subprocess.run([sys.executable, "-c", "\n".join(lines)], env=environ, check=True)


def test_a_failed_build_installs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise SetupError("the compilation failed")

    monkeypatch.setenv("USE_ZENDNN", "1")
    monkeypatch.setattr(build, "build", fail)
    monkeypatch.setattr(wheel, "install", lambda _: pytest.fail("must not be installed"))
    assert commands.main(["install"]) == 2
