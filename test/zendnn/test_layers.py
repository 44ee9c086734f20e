"""The allowed imports between layers: data flows one way, from the table to the front ends."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.backends.zendnn

PACKAGE = Path(torch.backends.zendnn.__file__).parent
PREFIX = "torch.backends.zendnn"
ROOT = Path(__file__).parents[2]

#: Each layer, by its files, and the lower layers that it may import; the longest path matches.
LAYERS = {
    "table": {"table"},
    "_settings": {"table", "_C"},
    "ir": {"ir", "table"},
    "passes": {"passes", "ir", "table", "_settings"},
    "frontends/calls": {"frontends/calls", "passes", "ir", "table"},
    "frontends/aten": {"frontends/aten", "frontends/calls", "passes", "ir", "_C", "table"},
    "frontends/constants": {"_C"},
    "frontends/schedule": {"ir"},
    "frontends": {"frontends", "frontends/torchscript", "frontends/fx", "ir"},
    "frontends/fx": {
        *("frontends", "frontends/fx", "frontends/aten", "frontends/calls", "frontends/schedule"),
        *("frontends/constants", "passes", "ir", "table", "_C"),
    },
    "frontends/torchscript": {
        *("frontends", "frontends/torchscript", "frontends/aten", "frontends/calls"),
        *("frontends/schedule", "frontends/constants", "passes", "ir", "table", "_C"),
        "_settings",
    },
}


def layer_of(module: str) -> str:
    """The layer of a module below the package."""
    path = module.replace(".", "/")
    found = [layer for layer in LAYERS if path == layer or path.startswith(layer + "/")]
    return max(found, key=len) if found else path.split("/")[0]


def imported(path: Path) -> Iterator[str]:
    """Our modules that a file imports at run time, without the package's name."""
    tree = ast.parse(path.read_text())
    typing = [n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n)]
    skipped = {id(inner) for node in typing for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in skipped or not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name[len(PREFIX) + 1 :] for name in names if name.startswith(PREFIX + "."))


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_only_those_below(layer: str) -> None:
    files = [
        path
        for path in PACKAGE.rglob("*.py")
        if layer_of(str(path.relative_to(PACKAGE).with_suffix("")).removesuffix("/__init__"))
        == layer
    ]
    assert files
    found = {layer_of(module) for path in files for module in imported(path)}
    assert sorted(found - LAYERS[layer]) == []


#: Tools for users. Compilers know none of them; the package's own files import them at first use.
TOOLS = ("observe", "place", "doctor", "profiler", "kernel_logger")
USES_TOOLS = ("__init__", "__main__", "_hooks", *TOOLS)


def test_no_compiler_imports_a_tool() -> None:
    found = {
        (name, module)
        for path in PACKAGE.rglob("*.py")
        if not (name := str(path.relative_to(PACKAGE).with_suffix(""))).startswith(USES_TOOLS)
        for module in imported(path)
        if module.split(".")[0] in TOOLS
    }
    assert sorted(found) == []


def test_no_test_imports_a_test() -> None:
    """What tests share is in ``support``."""
    files = list((ROOT / "test").rglob("*.py"))
    trees = [(path.name, node) for path in files for node in ast.walk(ast.parse(path.read_text()))]
    assert len(files) > 100
    found = [
        (file, name)
        for file, node in trees
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (getattr(node, "module", None) or "", *(alias.name for alias in node.names))
        if name.split(".")[-1].startswith("test_")
    ]
    assert found == []


#: What C++ leaves to the rows of tables: a pattern, the folder where it must not occur, and why.
STATED_IN_ROWS = {
    "operators are enumerators": (r"\bop [=!]= \"|kind_of\(", "torch/csrc/zendnn"),
    "algorithms are enumerators": (r"(algorithm|dtype)[\w()]* [=!]= \"", "torch/csrc/zendnn"),
    "kernels have no default dtype": (r"^ +DType \w+ = ", "aten/src/ATen/native/zendnn/kernels"),
    "sets of instructions have no order": (r"[<>]=? Isa::|isa [<>]", "aten/src/ATen/native/zendnn"),
}


@pytest.mark.parametrize("rule", STATED_IN_ROWS)
def test_cpp_leaves_to_rows_what_they_state(rule: str) -> None:
    pattern, folder = STATED_IN_ROWS[rule]
    files = [x for x in (ROOT / folder).rglob("*.*") if x.suffix in (".cpp", ".h")]
    assert len(files) > 20
    lines = [(x.name, line) for x in files for line in x.read_text().splitlines()]
    assert [(name, line) for name, line in lines if re.search(pattern, line)] == []


def test_no_file_of_the_engine_is_too_long_to_be_read() -> None:
    """Python and C++, as the repository has them."""
    folders = (ROOT / "torch" / part / "zendnn" for part in ("backends", "csrc"))
    files = [x for folder in folders for x in folder.rglob("*.*")]
    lengths = {
        str(x.relative_to(ROOT)): x.read_text().count("\n")
        for x in files
        if x.suffix in (".py", ".cpp", ".h")
    }
    assert len(lengths) > 100
    assert {name: lines for name, lines in lengths.items() if lines > 600} == {}
