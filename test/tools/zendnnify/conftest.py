"""Small source trees with text of our own, and the real ones."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.setup_helpers import sources

Files = dict[str, tuple[bytes, int]]

ONEDNN_FILES = {
    "CMakeLists.txt": 'set(PROJECT_VERSION "3.7.2")\nproject(oneDNN)\nadd_subdirectory(src)\n',
    "LICENSE": "Permission to use oneDNN is granted.\n",
    "include/oneapi/dnnl/dnnl.h": "#define DNNL_API\nint DNNL_API dnnl_answer(void);\n",
    "src/cpu/dnnl_answer.cpp": '#include "oneapi/dnnl/dnnl.h"\nint dnnl_answer() { return 42; }\n',
    "src/plain.cpp": "int unrelated;\n",
}
PYTORCH_FILES = {
    "version.txt": "2.6.0a0\n",
    "aten/src/ATen/native/native_functions.yaml": (
        "- func: relu(Tensor self) -> Tensor\n"
        "  variants: function, method\n"
        "  dispatch:\n"
        "    CPU: relu\n"
        "    MkldnnCPU: mkldnn_relu\n"
        "\n"
        "- func: mkldnn_linear(Tensor self, Tensor weight, Tensor? bias=None) -> Tensor\n"
        "  dispatch:\n"
        "    MkldnnCPU: mkldnn_linear\n"
    ),
    "aten/src/ATen/native/mkldnn/Ops.cpp": (
        "#include <ATen/ops/mkldnn_linear_native.h>\n"
        "Tensor mkldnn_relu(const Tensor& self) {\n"
        "  return self.is_mkldnn() ? self : Tensor();\n"
        "}\n"
        "Tensor mkldnn_linear(const Tensor& a, const Tensor& b, const Bias& c) {\n"
        "  return at::mkldnn_linear(a, b, c);\n"
        "}\n"
    ),
    "aten/src/ATen/native/mkldnn/xpu/Gpu.cpp": "int mkldnn_on_gpu;\n",
    "torch/other.py": "import torch.backends.mkldnn\n",
}


def write_tree(root: Path, contents: dict[str, str]) -> Path:
    for name, text in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return root


def snapshot(folder: Path) -> Files:
    """Path to contents and timestamp of all files below a folder; empty for a missing folder."""
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def onednn(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "onednn", ONEDNN_FILES)


@pytest.fixture
def pytorch(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "pytorch", PYTORCH_FILES)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture(scope="session")
def upstream() -> Callable[[str], Path]:
    """Returns the real tree of that name in third_party/sources.yaml; fetches it if needed."""
    return functools.cache(sources.fetch)
