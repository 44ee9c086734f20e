"""Recognising trees and finding their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from test.tools.zendnnify.conftest import write_tree
from tools.zendnnify import trees
from tools.zendnnify.rules.model import ZendnnifyError
from tools.zendnnify.trees import Source


def test_a_tree_is_known_by_its_files(pytorch: Path, onednn: Path) -> None:
    assert (trees.recognise(pytorch).kind.name, trees.recognise(pytorch).release) == (
        "pytorch",
        "2.6",
    )
    assert (trees.recognise(onednn).kind.name, trees.recognise(onednn).release) == (
        "onednn",
        "3.7.2",
    )


@pytest.mark.parametrize("below", ["", "include/"])
def test_ideep_is_known_with_and_without_its_include_folder(tmp_path: Path, below: str) -> None:
    write_tree(tmp_path, {below + "ideep.hpp": "", below + "ideep/tensor.hpp": ""})
    tree = trees.recognise(tmp_path)
    assert tree.kind.name == "ideep"
    assert [source.output for source in tree.default_sources()] == [
        "adeep.hpp",
        "adeep/tensor.hpp",
    ]


def test_a_missing_tree_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZendnnifyError, match=r"no source tree at .*/nowhere; give the folder"):
        trees.recognise(tmp_path / "nowhere")


def test_a_tree_of_something_else_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZendnnifyError, match=r"is not a source tree .*\(PyTorch, ideep, oneDNN\)"):
        trees.recognise(tmp_path)


def test_a_tree_that_is_converted_already_is_an_error(tmp_path: Path) -> None:
    write_tree(tmp_path, {"include/oneapi/zendnn/zendnn.h": "", "CMakeLists.txt": ""})
    with pytest.raises(ZendnnifyError, match="is oneDNN, already converted; use it as it is"):
        trees.recognise(tmp_path)


def test_a_tree_without_a_release_is_an_error(pytorch: Path) -> None:
    (pytorch / "version.txt").write_text("unknown")
    with pytest.raises(ZendnnifyError, match=r"version\.txt does not tell the release of PyTorch"):
        trees.recognise(pytorch)


def test_the_default_set_leaves_out_what_is_listed(pytorch: Path) -> None:
    assert trees.recognise(pytorch).default_sources() == [
        Source("aten/src/ATen/native/mkldnn/Ops.cpp", "aten/src/ATen/native/zendnn/Ops.cpp", "cpp")
    ]


def test_files_and_folders_can_be_named_in_either_way(pytorch: Path) -> None:
    tree = trees.recognise(pytorch)
    for name in ("torch", "torch/other.py", str(pytorch / "torch" / "other.py")):
        assert [source.path for source in tree.sources_below([name])] == ["torch/other.py"]
    assert len(tree.sources_below(["."])) == 4  # All but the one in LEFT_OUT.


@pytest.mark.parametrize("name", ["nothing.py", "/etc/passwd", "../onednn/LICENSE"])
def test_a_path_outside_of_the_tree_is_an_error(pytorch: Path, onednn: Path, name: str) -> None:
    with pytest.raises(ZendnnifyError, match=r"is not a file or folder of .*name it relative"):
        trees.recognise(pytorch).sources_below([name])


def test_licences_and_images_are_copied() -> None:
    assert trees.language("doc/a.png") == trees.language("LICENSE") == trees.COPY
    assert trees.language("a.hpp") == "cpp"
    assert trees.language("a.py") == "python"
    assert trees.language("CMakeLists.txt") == "text"
