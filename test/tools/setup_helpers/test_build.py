"""tools/setup_helpers/build.py: checks, conversions, and the arguments of CMake and Ninja."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tools.setup_helpers import build as module
from tools.setup_helpers import env, sources
from tools.setup_helpers.errors import SetupError
from tools.zendnnify import generate
from tools.zendnnify.rules.model import ZendnnifyError

TOOLS = {
    "c_compiler": "/t/gcc",
    "compiler": "/t/g++",
    "cmake": "/t/cmake",
    "ninja": "/t/ninja",
}
TREES = module.Trees(Path("/g"), Path("/z"), Path("/a"), "prefix", Path("/b"), {})
TORCH = env.Torch("2.13.0+cpu", Path("/site"), frozenset())


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Empty folders instead of the fetched sources."""
    folders = {name: tmp_path / name for name in ("pytorch", "onednn", "ideep", "blis")}
    for folder in folders.values():
        folder.mkdir()
    monkeypatch.setattr(sources, "fetch", folders.__getitem__)
    return folders


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, Path]]:
    """The calls of the generator, which is replaced by a stub."""
    calls: list[tuple[Path, Path]] = []
    monkeypatch.setattr(generate, "run", lambda tree, out, **_: calls.append((tree, out)))
    return calls


def test_converts_three_trees_into_separate_folders(
    trees: dict[str, Path], runs: list[tuple[Path, Path]]
) -> None:
    prepared = module.prepare()
    assert runs == [
        (trees["pytorch"], module.GENERATED),
        (trees["onednn"], module.GENERATED / "third_party/zendnn"),
        (trees["ideep"], module.GENERATED / "third_party/adeep"),
    ]
    assert prepared.zendnn == module.GENERATED / "third_party/zendnn"
    assert (prepared.blis_kind, prepared.blis) == ("prefix", trees["blis"])
    assert prepared.sources == trees


@pytest.mark.usefixtures("runs")
def test_a_local_copy_is_not_called_by_the_pinned_version(
    trees: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    header = trees["onednn"] / "include/oneapi/dnnl/dnnl.h"
    header.parent.mkdir(parents=True)
    header.write_bytes(b"")
    monkeypatch.setenv("ZENDNN_SOURCE_DIR", str(trees["onednn"]))
    module.prepare()
    assert f"-- onednn (a local copy): {trees['onednn']}\n" in capsys.readouterr().out


def test_a_renamed_tree_is_used_in_place(
    trees: dict[str, Path], runs: list[tuple[Path, Path]]
) -> None:
    header = trees["onednn"] / module.RENAMED_LANDMARK
    header.parent.mkdir(parents=True)
    header.write_bytes(b"")
    assert module.prepare().zendnn == trees["onednn"]
    assert [tree for tree, _ in runs] == [trees["pytorch"], trees["ideep"]]


def test_a_whole_tree_gets_the_converted_primitives_and_blis(
    trees: dict[str, Path],
    runs: list[tuple[Path, Path]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "BUILD", tmp_path / "build")
    result = module.GENERATED / "third_party"
    assert module.third_party() == {
        "third_party/zendnn": result / "zendnn",
        "third_party/adeep": result / "adeep",
        "third_party/blis": trees["blis"],
    }
    assert [tree for tree, _ in runs] == [trees["onednn"], trees["ideep"]]


@pytest.mark.usefixtures("trees")
def test_a_tree_that_cannot_be_converted_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ZendnnifyError("a.cpp:3: no rule covers 'xDnnl'")

    monkeypatch.setattr(generate, "run", refuse)
    with pytest.raises(SetupError, match=r"^pytorch cannot be converted: .*a\.cpp:3"):
        module.prepare()


@pytest.mark.parametrize(("kind", "root", "sources"), [("prefix", "/b", ""), ("source", "", "/b")])
def test_cmake_gets_every_argument(kind: str, root: str, sources: str) -> None:
    trees = replace(TREES, blis_kind=kind)
    arguments = module.configure_arguments(trees, TORCH, TOOLS, "/t/ccache")
    assert arguments[:2] == ["-G", "Ninja"]
    cache = dict(argument[2:].split("=", 1) for argument in arguments if argument.startswith("-D"))
    assert cache == {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_MAKE_PROGRAM": "/t/ninja",
        "CMAKE_C_COMPILER": "/t/gcc",
        "CMAKE_CXX_COMPILER": "/t/g++",
        "CMAKE_C_COMPILER_LAUNCHER": "/t/ccache",
        "CMAKE_CXX_COMPILER_LAUNCHER": "/t/ccache",
        "Python_EXECUTABLE": sys.executable,
        "TORCH_ROOT": "/site/torch",
        "TORCH_VERSION": TORCH.version,
        "ZENDNN_GENERATED_DIR": "/g",
        "ZENDNN_SOURCE_DIR": "/z",
        "ADEEP_INCLUDE_DIR": "/a",
        "BLIS_ROOT": root,
        "BLIS_SOURCE_DIR": sources,
        "ZENDNN_BUILT_DIR": "",
    }


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_a_sanitizer_has_its_own_tree_and_uses_the_built_libzendnn(sanitizer: str) -> None:
    plain = module.configure_arguments(TREES, TORCH, TOOLS, None)
    arguments = module.configure_arguments(TREES, TORCH, TOOLS, None, sanitizer)
    assert set(arguments) - set(plain) == {
        str(module.BUILD / sanitizer),
        f"-DZENDNN_SANITIZER={sanitizer}",
        f"-DZENDNN_BUILT_DIR={module.NATIVE}",
    }
    assert set(plain) - set(arguments) == {str(module.NATIVE), "-DZENDNN_BUILT_DIR="}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A machine whose cmake and ninja record their calls."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("gcc", "g++", "cmake", "ninja"):
        script = (
            f'#!/bin/sh\necho "{name} $* $NINJA_STATUS$MAKEFLAGS" >> "{tmp_path}/log"\n'
            f"exit ${{FAIL_{name.strip('+')}:-0}}\n"
        )
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    library = tmp_path / "build/native/lib/libtorch_zendnn.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"")
    monkeypatch.delenv("MAKEFLAGS", raising=False)  # set when make runs the tests
    monkeypatch.setattr(module, "LIBRARY", library)
    monkeypatch.setattr(module, "BINDINGS", library)
    monkeypatch.setattr(module, "BUILD", tmp_path / "build")
    monkeypatch.setattr(module, "NATIVE", tmp_path / "build/native")
    monkeypatch.setattr(env, "find_torch", lambda _: TORCH)
    monkeypatch.setattr(module, "prepare", lambda: TREES)
    return SimpleNamespace(environ={"PATH": str(folder)}, log=tmp_path / "log", library=library)


def test_configures_then_compiles(
    machine: SimpleNamespace, capfd: pytest.CaptureFixture[str]
) -> None:
    assert module.build({**machine.environ, "MAX_JOBS": "3"}) == (TORCH, TREES)
    cmake, counted, ninja = machine.log.read_text().splitlines()
    assert cmake.startswith("cmake -G Ninja -S ")
    assert counted == f"ninja -C {module.NATIVE} -j 3 -t targets all "
    assert ninja == f"ninja -C {module.NATIVE} -j 3 [%f/%t] -j3"
    out = capfd.readouterr().out
    assert "-- configuring against torch 2.13.0+cpu in /site" in out
    assert "-- compiling with 3 jobs\n" in out
    assert "is ready after" in out


def test_a_build_for_a_sanitizer_stays_beside_the_other(machine: SimpleNamespace) -> None:
    machine.library.unlink()
    result = module.BUILD / "thread/lib" / machine.library.name
    result.parent.mkdir(parents=True)
    result.write_bytes(b"")
    assert module.build({**machine.environ, "MAX_JOBS": "3"}, "thread") == (TORCH, TREES)
    cmake, _, ninja = machine.log.read_text().splitlines()
    assert f"-B {module.BUILD}/thread " in cmake
    assert "-DZENDNN_SANITIZER=thread" in cmake
    assert ninja == f"ninja -C {module.BUILD}/thread -j 3 [%f/%t] -j3"


@pytest.mark.parametrize(
    ("variable", "sentence", "steps"),
    [
        ("FAIL_cmake", r"cmake cannot configure the build \(exit code 7\)", 1),
        ("FAIL_ninja", r"the compilation failed \(exit code 7\)", 3),
    ],
)
def test_a_failed_step_ends_the_build(
    machine: SimpleNamespace, variable: str, sentence: str, steps: int
) -> None:
    with pytest.raises(SetupError, match=sentence):
        module.build({**machine.environ, variable: "7"})
    assert len(machine.log.read_text().splitlines()) == steps


def test_sources_of_blis_need_make(
    machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "prepare", lambda: replace(TREES, blis_kind="source"))
    with pytest.raises(SetupError, match="make is missing, but BLIS needs it: install make"):
        module.build(machine.environ)
    assert not machine.log.exists()


def test_a_missing_library_is_an_error(machine: SimpleNamespace) -> None:
    machine.library.unlink()
    with pytest.raises(SetupError, match=r"without making .*libtorch_zendnn\.so"):
        module.build(machine.environ)


def test_nothing_is_fetched_on_a_machine_without_a_compiler(
    machine: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "prepare", lambda: pytest.fail("must not be called"))
    with pytest.raises(SetupError, match=r"a C\+\+ compiler is missing"):
        module.build({"PATH": str(tmp_path)})


def test_without_ccache_no_launcher_is_named() -> None:
    arguments = module.configure_arguments(TREES, TORCH, TOOLS, None)
    assert {"-DCMAKE_C_COMPILER_LAUNCHER=", "-DCMAKE_CXX_COMPILER_LAUNCHER="} <= set(arguments)


def test_sources_of_blis_are_built_with_make(
    machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "prepare", lambda: replace(TREES, blis_kind="source"))
    make = Path(machine.environ["PATH"]) / "make"
    make.write_text("#!/bin/sh\n")
    make.chmod(0o755)
    module.build(machine.environ)
    assert len(machine.log.read_text().splitlines()) == 3


@pytest.mark.skipif(shutil.which("ccache") is None, reason="ccache is not installed")
def test_ccache_serves_other_folders_with_precompiled_headers(tmp_path: Path) -> None:
    """As CMake compiles them: a header, and a source that includes others by absolute path."""
    result = [_compile_through_ccache(tmp_path / name, tmp_path / "cache") for name in ("a", "b")]
    assert result[0] == result[1]
    counted = subprocess.run(
        ["ccache", "--print-stats"],
        env={**os.environ, "CCACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=True,
    )
    counts = dict(line.split("\t") for line in counted.stdout.splitlines())
    assert int(counts["direct_cache_hit"]) + int(counts["preprocessed_cache_hit"]) == 2
    assert counts["cache_miss"] == "2"


def _compile_through_ccache(checkout: Path, cache: Path) -> bytes:
    """Compile a header and a source that names its folder; return the object."""
    build = checkout / "build"
    build.mkdir(parents=True)
    (checkout / "h.hpp").write_text("#include <map>\n")
    (checkout / "x.cpp").write_text("const char* f() { return __FILE__; }\n")
    (build / "pch.hxx").write_text("#include <h.hpp>\n")
    (build / "pch.hxx.cxx").write_text("/* empty */\n")
    (build / "unity.cxx").write_text(f'#include "{checkout}/x.cpp"\n')
    common = ["ccache", "g++", f"-I{checkout}", f"-ffile-prefix-map={checkout}=.", "-O1"]
    common += ["-fpch-preprocess", "-include", f"{build}/pch.hxx"]
    environ = {**os.environ, **module.ccache_environment(checkout), "CCACHE_DIR": str(cache)}
    environ.pop("CCACHE_DISABLE", None)
    for options in (
        ["-x", "c++-header", "-o", "pch.hxx.gch", "-c", f"{build}/pch.hxx.cxx"],
        ["-o", "unity.o", "-c", f"{build}/unity.cxx"],
    ):
        subprocess.run([*common, *options], cwd=build, env=environ, check=True)
    return (build / "unity.o").read_bytes()


@pytest.mark.parametrize(("named", "folder"), [("", "build"), ("/x/y", "/x/y")])
def test_the_folder_of_the_build_can_be_named(named: str, folder: str) -> None:
    code = "from tools.setup_helpers import build, sources; print(build.NATIVE, sources.FOLDER)"
    said = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "ZENDNN_BUILD_DIR": named},
        cwd=module.REPO,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.split() == [str(module.REPO / folder / "native"), str(sources.FOLDER)]
