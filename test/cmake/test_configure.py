"""cmake/*.cmake: each configuration finds its libraries again, or reports a missing one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CMAKE = Path(__file__).resolve().parents[2] / "cmake"

pytestmark = pytest.mark.skipif(not shutil.which("cmake"), reason="needs CMake")


def configure(folder: Path, module: str, **cache: Path | str) -> str:
    """Configure a project that only includes `module`; return CMake's output."""
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.19)\nproject(x LANGUAGES NONE)\n"
        f'include("{CMAKE / module}")\n'
        'message(STATUS "found ${BLIS_LIBRARY} ${BLIS_INCLUDE_DIR}")\n'
    )
    options = [f"-D{name}={value}" for name, value in cache.items()]
    command = ["cmake", "-S", str(folder), "-B", str(folder / "build"), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + " ".join(done.stderr.split())


def test_reconfiguring_finds_a_changed_blis(tmp_path: Path) -> None:
    for name in ("one", "two"):
        root = tmp_path / name
        for file in ("lib/libblis.a", "include/blis/blis.h"):
            (root / file).parent.mkdir(parents=True)
            (root / file).touch()
        said = configure(tmp_path, "BLIS.cmake", BLIS_ROOT=root, BLIS_SOURCE_DIR="")
        assert f"found {root}/lib/libblis.a {root}/include" in said
    said = configure(tmp_path, "BLIS.cmake", BLIS_ROOT=tmp_path / "none", BLIS_SOURCE_DIR="")
    assert f"No BLIS in '{tmp_path}/none'" in said


def test_an_installed_aocl_blas_is_found_with_its_threads(tmp_path: Path) -> None:
    for file in ("lib/libblis.a", "lib/libblis-mt.a", "include/blis.h"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    said = configure(tmp_path, "BLIS.cmake", BLIS_ROOT=tmp_path, BLIS_SOURCE_DIR="")
    assert f"found {tmp_path}/lib/libblis-mt.a {tmp_path}/include" in said


def test_a_torch_without_openmp_is_refused_and_reconfiguring_finds_a_changed_one(
    tmp_path: Path,
) -> None:
    for name in ("one", "two"):
        library = tmp_path / name / "lib"
        library.mkdir(parents=True)
        for part in ("torch_cpu", "c10", "torch_python"):
            (library / f"lib{part}.so").touch()
        said = configure(tmp_path, "InstalledTorch.cmake", TORCH_ROOT=tmp_path / name)
        assert f"No libgomp*.so* comes with the torch in '{tmp_path / name}'" in said
        cache = (tmp_path / "build" / "CMakeCache.txt").read_text()
        assert f"={library}/libtorch_cpu.so" in cache


def test_a_whole_tree_without_the_fetched_sources_is_refused(tmp_path: Path) -> None:
    said = configure(tmp_path, "WholeTreeDependencies.cmake")
    missing = tmp_path / "third_party" / "zendnn" / "CMakeLists.txt"
    assert f"USE_ZENDNN is on, but {missing} does not exist: convert this tree again" in said
