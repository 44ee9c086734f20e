"""The real trees: PyTorch 2.6.0 and 1.13.1, oneDNN 3.7.2 and ideep."""

from __future__ import annotations

import re
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tools.zendnnify import drift, files, generate, kernels, locks, manifest, rewrite, trees
from tools.zendnnify.rewrite import GENERAL, vocabulary
from tools.zendnnify.rules.changes import instruction_sets, nan
from tools.zendnnify.trees import NATIVE_FUNCTIONS, Tree

Upstream = Callable[[str], Path]
PYTORCH = ("pytorch", "pytorch-1.13.1")
ALL = (*PYTORCH, "onednn", "ideep", "ideep-1.13.1")


@pytest.fixture(scope="module")
def converted(
    upstream: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[Tree, Path]]:
    """The tree and its output folder, converted on first use."""
    base = tmp_path_factory.mktemp("converted")

    def convert(name: str) -> tuple[Tree, Path]:
        if not (base / name).exists():
            generate.run(upstream(name), base / name)
        return trees.recognise(upstream(name)), base / name

    return convert


Converted = Callable[[str], tuple[Tree, Path]]


@pytest.mark.parametrize("name", ALL)
def test_only_kept_names_still_have_the_vocabulary(name: str, upstream: Upstream) -> None:
    tree = trees.recognise(upstream(name))
    checked = 0
    for source in tree.default_sources():
        if source.language == trees.COPY:
            continue
        text = files.read_text(tree.root / source.path)
        result = rewrite.rewrite(text, source.path, tree.rules, source.language)
        # The text that no named rule keeps or inserts.
        done = 0
        rest: list[str] = []
        for item in result.substitutions:
            rest += [text[done : item.start], item.new if item.rule == GENERAL else ""]
            done = item.end
        result_text = "".join((*rest, text[done:]))
        left = [result_text[start - 9 : end + 9] for start, end in vocabulary(result_text)]
        assert left == [], source.path
        checked += 1
    assert checked > 30


@pytest.mark.parametrize("name", ALL)
def test_no_output_path_has_the_vocabulary(name: str, converted: Converted) -> None:
    _, out = converted(name)
    assert not [path for path in files.walk(out) if vocabulary(path)]


@pytest.mark.parametrize("name", PYTORCH)
def test_every_kernel_is_registered(name: str, converted: Converted) -> None:
    tree, out = converted(name)
    table = files.read_text(tree.root / NATIVE_FUNCTIONS)
    # This count avoids our parser: one line per operator.
    expected = len(re.findall(r"^    (?:\w+, )*MkldnnCPU(?:, \w+)*: ", table, re.MULTILINE))
    registered = re.findall(r'm\.impl\("', (out / kernels.REGISTRATION).read_text())
    composite = len(re.findall(r"^    CompositeExplicitAutograd: mkldnn_", table, re.MULTILINE))
    assert len(registered) == expected + composite
    assert expected > 40


@pytest.mark.parametrize("name", PYTORCH)
def test_every_rule_about_the_integration_is_used(name: str, converted: Converted) -> None:
    tree, out = converted(name)
    used: set[str] = set()
    for entry in manifest.load(out).entries.values():
        used |= entry.rules.keys()
    assert {edit.name for edit in tree.rules.edits} <= used


def test_every_rule_about_the_library_is_used(converted: Converted) -> None:
    tree, out = converted("onednn")
    used: set[str] = set()
    for entry in manifest.load(out).entries.values():
        used |= entry.rules.keys()
    assert {edit.name for edit in tree.rules.edits} <= used
    ours = {phrase.name for phrase in (*nan.PHRASES, *instruction_sets.PHRASES)}
    assert {phrase.name for phrase in tree.rules.phrases if phrase.name in ours} <= used


def test_the_lock_of_the_library_counts_what_the_rules_match(converted: Converted) -> None:
    tree, out = converted("onednn")
    counts: Counter[str] = Counter()
    for entry in manifest.load(out).entries.values():
        counts.update(entry.rules)
    lock = locks.read("onednn", tree.release)
    assert lock is not None
    assert {rule: sum(map(len, places.values())) for rule, places in lock.rules.items()} == {
        rule: count for rule, count in counts.items() if rule not in (GENERAL, generate.COPIED)
    }, f"run `python -m tools.zendnnify --lock {tree.root}`"


@pytest.mark.parametrize(
    ("file", "pattern", "count"),
    [
        ("cpu_convolution_list.cpp", r"<(sse41|avx2_vnni(_2)?|\w*_fp16)>", 0),
        ("cpu_eltwise_list.cpp", r"<(sse41|avx|avx2|avx512_core), f32>", 4),
        ("x64/jit_brgemm_conv.cpp", r"template struct brgemm_convolution_fwd_t<\w+>;", 5),
        ("cpu_rnn_list.cpp", r"CPU_INSTANCE\(\w+\)", 4),
    ],
)
def test_code_that_no_zen_runs_is_neither_listed_nor_instantiated(
    file: str, pattern: str, count: int, converted: Converted
) -> None:
    _, out = converted("onednn")
    assert len(re.findall(pattern, files.read_text(out / "src/cpu" / file))) == count


def test_files_that_the_build_needs_exist(converted: Converted) -> None:
    _, out = converted("pytorch")
    for name in (
        "aten/src/ATen/native/zendnn/ZENDNNCommon.h",
        "aten/src/ATen/native/zendnn/Conv.cpp",
        "torch/csrc/jit/passes/frozen_ops_to_zendnn.cpp",
        "torch/csrc/jit/passes/zendnn_rewrite.h",
        "torch/utils/zendnn.py",
        "test/test_zendnn.py",
    ):
        assert (out / name).is_file(), name
    assert not (out / "aten/src/ATen/native/zendnn/xpu").exists()


@pytest.mark.parametrize("name", PYTORCH)
def test_converted_python_compiles(name: str, converted: Converted) -> None:
    _, out = converted(name)
    sources = [path for path in files.walk(out) if path.endswith(".py")]
    assert len(sources) == 2
    for path in sources:
        compile(files.read_text(out / path), path, "exec")


def test_a_compiler_error_can_be_traced_to_its_source(converted: Converted) -> None:
    _, out = converted("onednn")
    for path in files.walk(out):
        if trees.language(path) == "cpp":
            with open(out / path, encoding="utf-8") as file:
                assert rewrite.MARK in file.readline()


def test_everything_converts_in_twenty_seconds_and_again_in_three(
    upstream: Upstream, tmp_path: Path
) -> None:
    for name in ALL:
        upstream(name)

    def convert() -> float:
        started = time.monotonic()
        for name in ALL:
            generate.run(upstream(name), tmp_path / name)
        return time.monotonic() - started

    assert convert() < 20
    assert convert() < 3


def test_no_rule_is_lost_in_what_the_installed_torch_has_of_its_sources(tmp_path: Path) -> None:
    """Releases whose source trees were never read are at least known by their wheels."""
    site = Path(torch.__file__).parents[1]
    copied = {
        "torch/version.py": "version.txt",
        "torchgen/packaged/ATen/native/native_functions.yaml": NATIVE_FUNCTIONS,
        **{name: name for name in ("torchgen/gen.py", "torchgen/model.py")},
        "torch/utils/mkldnn.py": "torch/utils/mkldnn.py",
    }
    (tmp_path / "aten/src/ATen/native/mkldnn").mkdir(parents=True)
    for source, target in copied.items():
        (tmp_path / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(site / source, tmp_path / target)
    found = drift.compare("2.6", str(tmp_path))
    assert found.new.release == ".".join(torch.__version__.split(".")[:2])
    assert not found.failed, found.table()
    assert {row.rule for row in found.rows if row.new} >= {"generator-option"}
