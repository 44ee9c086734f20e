"""examples/demo.py: output, failures and exit codes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    """The demo as a module."""
    spec = importlib.util.spec_from_file_location("demo_under_test", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses need it there
    spec.loader.exec_module(module)
    return module


def result(demo: ModuleType, **changes: Any) -> Any:
    good = {
        "title": "Net",
        "stock_ms": 20.0,
        "zendnn_ms": 8.0,
        "error": 1e-6,
        "calls": {"mm": 3, "convolution": 2},
        "shown": "",
    }
    return demo.Result(**{**good, **changes})


def test_a_right_result_has_no_failures(demo: ModuleType) -> None:
    assert result(demo).failures == []


@pytest.mark.parametrize("error", [1.1e-4, 1.0, float("inf"), float("nan")])
def test_a_wrong_result_is_a_failure(demo: ModuleType, error: float) -> None:
    assert "differs" in result(demo, error=error).failures[0]


@pytest.mark.parametrize("calls", [{}, {"mm": 0}])
def test_a_model_that_stayed_off_zendnn_is_a_failure(
    demo: ModuleType, calls: dict[str, int]
) -> None:
    assert "no operation" in result(demo, calls=calls).failures[0]


def test_the_table_is_aligned_and_contains_the_ratio(demo: ModuleType) -> None:
    lines = demo.table([result(demo), result(demo, title="A longer name", stock_ms=1234.5)]).split(
        "\n"
    )
    assert len({len(line) for line in lines}) == 1
    assert "2.50x" in lines[1]
    assert lines[1].split()[-1] == "5"


def test_the_cpu_is_named_with_its_widest_vectors(demo: ModuleType, tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor : 0\nmodel name : Some CPU: 9\nflags : fpu avx2 avx512f\n\n")
    assert demo.cpu_name(cpuinfo) == "Some CPU: 9 (avx512f)"
    assert demo.cpu_name(tmp_path / "missing") == "unknown processor"


def test_equal_vectors_are_fully_similar(demo: ModuleType) -> None:
    count = len(demo.SENTENCES)
    lines = demo.similarities(torch.eye(1, 4).expand(count, 4)).split("\n")
    assert len(lines) == count + 2
    for sentence, line in zip(demo.SENTENCES, lines[2:], strict=True):
        assert sentence in line
        assert line.split()[-count:] == ["1.00"] * count


@pytest.mark.parametrize(
    "options",
    [
        *(["--model", "vgg"], ["--seconds", "0"], ["--seconds", "nan"], ["stray"]),
        *(["--threads", "x"], ["--threads", "10000000000"]),
    ],
    ids=" ".join,
)
def test_wrong_options_end_with_code_2_and_one_reason(
    demo: ModuleType, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        demo.main(options)
    assert stopped.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "error:" in captured.err.splitlines()[-1]


def test_without_torch_it_ends_with_code_2_and_one_sentence() -> None:
    done = subprocess.run([sys.executable, "-S", str(DEMO)], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("demo: This Python has no torch to run (No module named 'torch'")
    assert done.stderr.count("\n") == 1


def test_an_interruption_is_one_line(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "measure", interrupted)
    threads = str(torch.get_num_threads())
    assert demo.main(["--threads", threads]) == 130
    assert capsys.readouterr().err == "demo: interrupted\n"


def test_all_models_run_on_zendnn_and_the_encoder_ranks_similar_sentences_higher() -> None:
    done = subprocess.run(
        [sys.executable, str(DEMO), "--seconds", "0.5"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    for number, name in enumerate(("resnet50", "bert", "sentences"), 1):
        assert f"[{number}/3] {name}: timing" in done.stderr
    for title in ("ResNet-50, 1 image", "BERT-base, 128 tokens"):
        assert f"{title}: on ZenDNN in one inference: " in done.stdout
    rows = [line for line in done.stdout.splitlines() if line.startswith((" 1  ", " 2  "))]
    first, second = ([float(cell) for cell in row.split()[-8:]] for row in rows)
    assert first[1] == second[0] > max(first[4:7])
