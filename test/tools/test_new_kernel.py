"""tools/new_kernel.py: what it adds fits, and it changes all files or none."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from torch.backends.zendnn.table.functions import FUNCTIONS

from tools import new_kernel as module
from tools.setup_helpers.errors import SetupError
from tools.setup_helpers.files import write_atomic

KERNELS = "aten/src/ATen/native/zendnn/kernels"
SAMPLES = module.REPO / "test/zendnn/support/samples.py"
#: Functions that nobody has added yet: these tests also pass in a tree where some were.
NEW, OTHER = [name for name in module.IN_C if name not in FUNCTIONS][-2:]
#: One that C has not.
FOREIGN = next(name for name in ("frac", "lgamma", "digamma") if name not in FUNCTIONS)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the files that it reads, and of what the checks below need."""
    for file in {insertion.file for insertion in module.ANCHORS}:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(module.REPO / file, tmp_path / file)
    for folder in ("torch/backends/zendnn", KERNELS):
        shutil.copytree(module.REPO / folder, tmp_path / folder, dirs_exist_ok=True)
    monkeypatch.setattr(module, "REPO", tmp_path)
    return tmp_path


def contents(tree: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in tree.rglob("*") if path.is_file()}


def run(tree: Path, *arguments: str) -> set[str]:
    """The files that a successful run changes."""
    before = contents(tree)
    assert module.main(arguments) == 0
    after = contents(tree)
    assert after.keys() == before.keys()
    return {str(Path(x).relative_to(tree)) for x in after if after[x] != before[x]}


def made(name: str, like: str, scalar: str = "") -> module.Kernel:
    return module.kernel_like(name, like, FUNCTIONS, SAMPLES.read_text(), scalar)


def test_a_new_function_is_in_the_table_and_in_its_document_and_compiles(tree: Path) -> None:
    changed = run(tree, NEW, "--like", "sigmoid")
    assert changed == {x.file for x in module.ANCHORS} - {"test/zendnn/support/samples.py"}
    # The document is what its own generator writes; the kernels compile with the generated header.
    code = (
        "import sys\nfrom pathlib import Path\nfrom tools.setup_helpers import tables\n"
        "root = Path(sys.argv[1])\ntable = tables.load(root)\n"
        "text = (root / 'docs/plan.md').read_text()\n"
        "assert tables.document(table, text) == text\n"
        "tables.write(table, root / 'generated')\n"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(tree)], check=True, cwd=Path(__file__).parents[2]
    )
    if compiler := shutil.which("g++"):
        flags = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-fopenmp"]
        folders = [f"-I{tree}/aten/src", f"-I{tree}/generated/aten/src"]
        isa = ["-DZENDNN_KERNEL_ISA=avx512", "-mavx2", "-mfma", "-mavx512f", "-mavx512bw"]
        isa += ["-mavx512dq", "-mavx512vl"]
        source = f"{tree}/{KERNELS}/Elementwise.cpp"
        subprocess.run([compiler, *flags, *isa, *folders, source], check=True)


def test_several_functions_can_be_added(tree: Path) -> None:
    assert "test/zendnn/support/samples.py" in run(tree, OTHER, "--like", "log")
    run(tree, FOREIGN, "--like", "sigmoid", "--scalar", "x - __builtin_truncf(x)")
    text = (tree / KERNELS / "vecmath.h").read_text()
    assert f"__builtin_{OTHER}f(x)" in text
    assert "return x - __builtin_truncf(x);" in text


def test_the_new_function_has_traits_and_domain_of_the_other() -> None:
    assert made(OTHER, "log").domain == '[("abs", 0.0, 0.0), ("affine", 1.0, 0.5)]'
    assert made(OTHER, "log").once
    assert made(OTHER, "round").traits == ", keeps_integers=True, **_UNBOUNDED"
    assert made(NEW, "sigmoid") == module.Kernel(NEW, f"__builtin_{NEW}f(x)")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("sin",), "sin exists already, in torch/backends/zendnn/table/functions.py"),
        (("erf",), "erf exists already"),
        (("exp2",), "vecmath.h has a function exp2 already"),
        (("Tan",), "'Tan' is no name of a function"),
        ((NEW, "--like", "softmax"), "--like softmax is no function of each element"),
        ((NEW, "--like", "clip"), "--like clip is no function of each element"),
        ((FOREIGN,), f"C has no function {FOREIGN}: give --scalar"),
        (("nothing", "--scalar", "x"), "torch has no function nothing of each element"),
        (("isnan", "--scalar", "x"), "torch has no function isnan of each element"),
        (("softmax", "--scalar", "x"), "torch has no function softmax of each element"),
    ],
    ids=lambda x: "-".join(x) if isinstance(x, tuple) else "",
)
def test_what_cannot_be_made_is_one_sentence_and_changes_nothing(
    tree: Path, arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(tree)
    assert module.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert said in error
    assert error.count("\n") == 1
    assert contents(tree) == before


def test_a_line_that_is_gone_is_named_and_nothing_changes(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = tree / "docs/plan.md"
    document.write_text(document.read_text().replace("passes match it", "-"))
    before = contents(tree)
    assert module.main([NEW]) == 2
    assert "docs/plan.md has 0 times '| `erf` |" in capsys.readouterr().err
    assert contents(tree) == before


@pytest.mark.parametrize("error", [SetupError("cannot write"), KeyboardInterrupt()], ids=repr)
def test_a_run_that_stops_leaves_all_files_as_they_were(
    tree: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    before, calls = contents(tree), iter(range(100))

    def failing(path: Path, content: bytes) -> None:
        if next(calls) == 2:
            raise error
        write_atomic(path, content)

    monkeypatch.setattr(module, "write_atomic", failing)
    assert module.main([NEW]) in (2, 130)
    assert contents(tree) == before
