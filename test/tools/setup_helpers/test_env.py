"""tools/setup_helpers/env.py: USE_ZENDNN, MAX_JOBS, tools and the installed torch."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.setup_helpers import env
from tools.setup_helpers.errors import SetupError


def install_torch(site: Path, version: str, files: tuple[str, ...] = ("torch/x.py",)) -> None:
    """Write the metadata of an installed torch into `site`, without its contents."""
    info = site / f"torch-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in files))
    (site / "torch").mkdir()
    (site / "torch/__init__.py").write_text("raise RuntimeError('must not be imported')")


@pytest.mark.parametrize(("value", "meaning"), [("1", True), ("0", False), ("", False)])
def test_use_zendnn_is_1_or_0(value: str, meaning: bool) -> None:
    assert env.use_zendnn({"USE_ZENDNN": value}) is meaning


def test_use_zendnn_unset_is_off() -> None:
    assert env.use_zendnn({}) is False


@given(value=st.text(min_size=1).filter(lambda value: value not in "01"))
def test_use_zendnn_refuses_every_other_value(value: str) -> None:
    with pytest.raises(SetupError) as raised:
        env.use_zendnn({"USE_ZENDNN": value})
    assert str(raised.value).startswith(f"USE_ZENDNN is '{value}': it can be 1 ")
    assert "0 or unset" in str(raised.value)


@given(count=st.integers(1, 10_000))
def test_max_jobs_counts(count: int) -> None:
    assert env.jobs({"MAX_JOBS": str(count)}) == count


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5", "²", " "])
def test_max_jobs_refuses_other_values(value: str) -> None:
    with pytest.raises(SetupError, match="MAX_JOBS is"):
        env.jobs({"MAX_JOBS": value})


def test_jobs_default_to_the_usable_cores() -> None:
    assert env.jobs({}) == len(os.sched_getaffinity(0))


def test_a_missing_pyyaml_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(SetupError, match="has no PyYAML: install it"):
        env.require_modules()


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A PATH folder with every tool."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("gcc", "g++", "cmake", "ninja"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return folder


def test_finds_all_tools(tools: Path) -> None:
    assert env.find_tools({"PATH": str(tools)}) == {
        "c_compiler": f"{tools}/gcc",
        "compiler": f"{tools}/g++",
        "cmake": f"{tools}/cmake",
        "ninja": f"{tools}/ninja",
    }


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        ("gcc", "a C compiler is missing: install gcc"),
        ("g++", r"a C\+\+ compiler is missing: install g\+\+"),
        ("cmake", "CMake is missing: install cmake"),
        ("ninja", "Ninja is missing: install ninja"),
    ],
)
def test_says_what_is_missing_and_what_to_install(tools: Path, program: str, sentence: str) -> None:
    (tools / program).unlink()
    with pytest.raises(SetupError, match=sentence):
        env.find_tools({"PATH": str(tools)})


def test_names_all_that_is_missing_at_once(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"compiler .*; CMake .*; Ninja .*"):
        env.find_tools({"PATH": str(tmp_path)})


def test_cxx_names_the_compiler(tools: Path) -> None:
    (tools / "g++").rename(tools / "my++")
    environ = {"PATH": str(tools), "CXX": "ccache my++"}
    assert env.find_tools(environ)["compiler"] == f"{tools}/my++"
    with pytest.raises(SetupError, match=r"missing \(CXX names 'gone\+\+'\)"):
        env.find_tools({"PATH": str(tools), "CXX": "gone++"})


def test_a_variable_for_a_compiler_takes_no_options(tools: Path) -> None:
    with pytest.raises(SetupError, match=r"CXX is 'g\+\+ -m64'.* give -m64 in CFLAGS or CXXFLAGS"):
        env.find_tools({"PATH": str(tools), "CXX": "g++ -m64"})


def test_pythons_headers_are_needed_too(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    with pytest.raises(SetupError, match=r"Python\.h is missing in .*: install python3-dev"):
        env.find_tools({"PATH": str(tools)})


def test_finds_torch_without_importing_it(tmp_path: Path) -> None:
    install_torch(tmp_path / "site", "2.13.0+cpu", ("torch/a.py", "torch/lib/b.so"))
    torch = env.find_torch([tmp_path / "empty", tmp_path / "site"])
    assert torch.version == "2.13.0+cpu"
    assert torch.public_version == "2.13.0"
    assert torch.site == tmp_path / "site"
    assert torch.files == {"torch/a.py", "torch/lib/b.so"}
    assert torch.root == tmp_path / "site/torch"


@pytest.mark.parametrize("version", ["1.13.1", "2.0.0", "2.5.1+cu121"])
def test_refuses_an_old_torch(tmp_path: Path, version: str) -> None:
    install_torch(tmp_path, version)
    with pytest.raises(SetupError, match=r"is older than 2\.6: install it .*pip install torch=="):
        env.find_torch([tmp_path])


@pytest.mark.parametrize("version", ["2.6.0", "2.10.1", "3.0.0a0+git1234"])
def test_takes_every_newer_torch(tmp_path: Path, version: str) -> None:
    install_torch(tmp_path, version)
    assert env.find_torch([tmp_path]).version == version


def test_says_when_there_is_no_torch(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"has no torch in .*: install it .*pip install torch=="):
        env.find_torch([tmp_path])


def test_a_leftover_dist_info_is_no_torch(tmp_path: Path) -> None:
    install_torch(tmp_path, "2.13.0")
    (tmp_path / "torch/__init__.py").unlink()
    with pytest.raises(SetupError, match="has no torch in"):
        env.find_torch([tmp_path])


def test_site_folders_are_this_interpreters() -> None:
    assert Path(sysconfig.get_path("purelib")) in env.site_folders()
    assert env.find_torch(env.site_folders()).files
