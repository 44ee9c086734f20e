"""The command line: its output and its exit status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from test.tools.zendnnify.conftest import write_tree
from tools.zendnnify.__main__ import main

ROOT = Path(__file__).resolve().parents[3]


def arguments(tree: Path, out: Path, *more: str) -> list[str]:
    return ["--project-directory", str(tree), "--output-directory", str(out), *more]


def test_a_run_ends_with_a_table(
    onednn: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(onednn, out)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "onednn 3.7.2"
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


def test_an_error_is_one_line_where_a_name_is_two(
    tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(tmp_path / "no\nwhere", out)) == 2
    said = capsys.readouterr().err
    assert "no\\nwhere;" in said
    assert said.count("\n") == 1


def test_without_an_output_folder_it_says_which_option_is_missing(
    onednn: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--project-directory", str(onednn)]) == 2
    assert "--output-directory" in capsys.readouterr().err


@pytest.mark.parametrize("more", [["--check"], ["src"], ["--output-directory", "x"]], ids=str)
def test_explain_refuses_what_it_would_ignore(
    onednn: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    tree = ["--project-directory", str(onednn), "--explain", "src/plain.cpp"]
    assert main([*tree, *more]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("zendnnify: error: --explain FILE writes nothing: ")


def test_a_closed_output_pipe_is_no_error(onednn: Path) -> None:
    tree = ["--project-directory", str(onednn), "--explain", "src"]
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "tools.zendnnify", *tree]
    done = subprocess.run(command, cwd=ROOT, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


#: Converts so slowly that it can be interrupted, by processes that say when they are at work.
SLOW = """
import os, signal, sys, time
from tools.zendnnify import __main__, generate
signal.signal(signal.SIGINT, signal.default_int_handler)
os.sched_getaffinity = lambda _: {0, 1}
def convert(*_):
    os.write(1, b"working\\n")
    time.sleep(0.05)
generate._convert = convert
sys.exit(__main__.main(sys.argv[1:]))
"""


def test_an_interruption_is_one_line_and_leaves_no_process(onednn: Path, out: Path) -> None:
    write_tree(onednn, {f"src/dnnl_{i}.cpp": "" for i in range(1000)})
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, *arguments(onednn, out)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "working\n"
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (130, "zendnnify: interrupted\n")
    assert not out.exists()


def test_it_runs_as_a_module_without_torch(onednn: Path, out: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-m", "tools.zendnnify", *arguments(onednn, out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("onednn 3.7.2\n")
