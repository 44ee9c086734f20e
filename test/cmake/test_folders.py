"""cmake/Folders.cmake: equal sources compile to equal objects in any folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

CMAKE = Path(__file__).resolve().parents[2] / "cmake"
FOLDERS = {
    "ZENDNN_GENERATED_DIR": "build/generated",
    "ADEEP_INCLUDE_DIR": "build/generated/third_party/adeep",
    "ZENDNN_SOURCE_DIR": "elsewhere/zendnn",
}

pytestmark = pytest.mark.skipif(
    not shutil.which("cmake") or not shutil.which("ninja"), reason="needs CMake and Ninja"
)


def compiled(root: Path, torch: Path, build: str, *, relative: bool) -> bytes:
    """Compile a source that tells where it and headers are; return the object.

    With `relative`, the compiler sees the headers' folders relative to the build tree, as it does
    through ccache.
    """
    tree = root / build
    places = {name: root / folder for name, folder in FOLDERS.items()} | {"TORCH_ROOT": torch}
    headers = [root, tree / "include", *places.values()]
    for number, folder in enumerate(headers):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"header{number}.h").write_text(f"const char* where{number} = __FILE__;\n")
    includes = "".join(f"#include <header{number}.h>\n" for number in range(len(headers)))
    (root / "source.cpp").write_text(f"{includes}const char* where = __FILE__;\n")
    seen = [os.path.relpath(folder, tree) if relative else folder for folder in headers]
    options = " ".join(f"-I{folder}" for folder in seen)
    (root / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.19)\nproject(x LANGUAGES CXX)\n"
        f'include("{CMAKE}/Folders.cmake")\n'
        f"add_library(x OBJECT source.cpp)\ntarget_compile_options(x PRIVATE {options})\n"
    )
    cache = [f"-D{name}={folder}" for name, folder in places.items()]
    configure = ["cmake", "-G", "Ninja", "-S", str(root), "-B", str(tree), *cache]
    subprocess.run(configure, check=True, capture_output=True)
    subprocess.run(["ninja", "-C", str(tree)], check=True, capture_output=True)
    return (tree / "CMakeFiles/x.dir/source.cpp.o").read_bytes()


def test_no_folder_and_no_relative_path_changes_an_object(tmp_path: Path) -> None:
    one, two, three = tmp_path / "one", tmp_path / "a/longer", tmp_path / "three"
    plain = compiled(one, one / "venv/torch", "build/native", relative=False)
    assert str(tmp_path).encode() not in plain
    assert compiled(two, tmp_path / "site/torch", "build/x/native", relative=False) == plain
    assert compiled(three, three / "venv/torch", "build/native", relative=True) == plain
