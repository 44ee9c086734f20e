"""The allowed imports between layers: data flows one way, from the table to the front ends."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.backends.zendnn

PACKAGE = Path(torch.backends.zendnn.__file__).parent
PREFIX = "torch.backends.zendnn"

#: Each layer, by its files, and the lower layers that it may import; the longest path matches.
LAYERS = {
    "table": {"table"},
    "graph": {"graph", "table"},
    "passes": {"passes", "graph", "table"},
    "frontends/calls": {"frontends/calls", "passes", "graph", "_C", "table"},
    "frontends/aten": {"frontends/aten", "frontends/calls", "passes", "graph", "_C", "table"},
    "frontends/constants": {"_C"},
    "frontends/schedule": {"graph"},
    "frontends": {"frontends", "frontends/torchscript", "frontends/fx", "graph"},
    "frontends/fx": {
        *("frontends", "frontends/fx", "frontends/aten", "frontends/calls", "frontends/schedule"),
        *("frontends/constants", "passes", "graph", "_C"),
    },
    "frontends/torchscript": {
        *("frontends", "frontends/torchscript", "frontends/aten", "frontends/calls"),
        *("frontends/schedule", "frontends/constants", "passes", "graph", "_C"),
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


def test_no_file_of_the_engine_is_too_long_to_be_read() -> None:
    """Python and C++, as the repository has them."""
    root = Path(__file__).parents[2] / "torch"
    files = [x for part in ("backends", "csrc") for x in (root / part / "zendnn").rglob("*.*")]
    lengths = {
        x.name: x.read_text().count("\n") for x in files if x.suffix in (".py", ".cpp", ".h")
    }
    assert len(lengths) > 100
    assert {name: lines for name, lines in lengths.items() if lines > 600} == {}
