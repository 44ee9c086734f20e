"""The command line: its output and its exit status."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.zendnnify.__main__ import main

ROOT = Path(__file__).resolve().parents[3]


def arguments(tree: Path, out: Path, *more: str) -> list[str]:
    return ["--project-directory", str(tree), "--output-directory", str(out), *more]


def test_a_run_ends_with_a_table(
    onednn: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(onednn, out)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "onednn 3.7"
    assert dict(line.rsplit(maxsplit=1) for line in lines[1:]).items() >= {
        ("files", "5"),
        ("  written", "5"),
        ("  removed", "0"),
        ("  general", "7"),
    }
    assert len({len(line) for line in lines[1:]}) == 1


def test_check_exits_with_one_and_lists_what_would_change(
    onednn: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(arguments(onednn, out))
    capsys.readouterr()
    assert main(arguments(onednn, out, "--check")) == 0
    assert capsys.readouterr().out == ""
    (onednn / "src/plain.cpp").write_text("int dnnl;\n")
    assert main(arguments(onednn, out, "--check")) == 1
    assert capsys.readouterr().out == "src/plain.cpp\n"


def test_explain_shows_each_substitution(pytorch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "aten/src/ATen/native/mkldnn/Ops.cpp"
    assert main(["--project-directory", str(pytorch), "--explain", name]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{name} -> aten/src/ATen/native/zendnn/Ops.cpp",
        "  1:10: '<ATen/ops/mkldnn_linear_native.h>' kept  [keep-operator-header]",
        "  2:8: 'mkldnn_relu' -> 'zendnn_relu'  [general]",
        "  3:15: 'is_mkldnn' -> 'is_privateuseone'  [is-backend-tensor]",
        "  5:8: 'mkldnn_linear' -> 'zendnn_linear'  [general]",
        "  6:10: 'at::mkldnn_linear' kept  [keep-operator-call]",
    ]


def test_errors_are_one_line_and_exit_with_two(
    tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(tmp_path / "nowhere", out)) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("zendnnify: error: there is no source tree at ")
    assert shown.err.count("\n") == 1


def test_without_an_output_folder_it_says_which_option_is_missing(
    onednn: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--project-directory", str(onednn)]) == 2
    assert "--output-directory" in capsys.readouterr().err


def test_it_runs_as_a_module_without_torch(onednn: Path, out: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-m", "tools.zendnnify", *arguments(onednn, out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("onednn 3.7\n")
