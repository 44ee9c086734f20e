"""benchmarks/operations.py: measurements, options, table and files."""

from __future__ import annotations

import json
import random
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from benchmarks import limit  # noqa: E402 (torch may be missing)
from benchmarks import operations as module  # noqa: E402
from benchmarks.problems import Problem, linear  # noqa: E402

zendnn = pytest.mark.skipif(
    getattr(torch.backends, "zendnn", None) is None, reason="a torch without ZenDNN"
)
LIMITS = {"fp32": 100.0, "bf16": 200.0, "read": 10.0}


@zendnn
def test_stock_kernels_and_zendnn_take_turns() -> None:
    states = []

    def call() -> None:
        states.append(torch.backends.zendnn.enabled)
        for _ in range(200):
            torch.ones(64, 64).sum()  # long enough for the clock

    times = module.compare(call, call, seconds=0.001)
    pairs = states[-2 * times.pairs :]
    assert times.pairs >= module.FEWEST_PAIRS
    assert pairs.count(True) == pairs.count(False) == times.pairs
    assert all(one != other for one, other in zip(pairs[::2], pairs[1::2], strict=True))
    assert {True, False} == set(pairs[::2])  # each side goes first in turn
    assert 0 < times.low <= times.ratio <= times.high
    assert min(times.stock_us, times.ours_us) > 0
    assert times.calls == 0


@zendnn
def test_each_side_has_its_own_call() -> None:
    seen: list[str] = []

    def record(name: str) -> Any:
        return lambda: seen.append(f"{name} {torch.backends.zendnn.enabled}")

    module.compare(record("ours"), record("stock"), seconds=0.001)
    assert set(seen) == {"ours True", "stock False"}


@pytest.mark.parametrize("count", [9, 10, 30, 100])
def test_the_interval_contains_the_median_almost_always(count: int) -> None:
    generator = random.Random(0)
    missed = 0
    for _ in range(2000):
        low, high = module.interval([generator.lognormvariate(0, 1) for _ in range(count)])
        missed += not low <= 1 <= high
    assert missed <= 2000 * 0.015


@pytest.mark.parametrize(("low", "slower"), [(1.02, False), (1.04, True)])
def test_slower_means_that_the_whole_interval_is_slower(low: float, slower: bool) -> None:
    assert module.Times(10.0, 12.0, 1.2, low, 1.3, 1, 9).slower == slower


@pytest.mark.parametrize(
    ("flop", "values", "dtype", "share"),
    [
        (1e6, 0, "float32", 0.5),  # 10 us at 100 Gflop/s
        (1e6, 0, "bfloat16", 0.25),
        (0, 25_000, "float32", 0.5),  # 10 us at 10 GB/s
        (0, 25_000, "bfloat16", 0.25),
        (1e5, 25_000, "float32", 0.5),  # whichever takes longer
    ],
)
def test_the_share_is_the_minimum_time_over_our_time(
    flop: float, values: float, dtype: str, share: float
) -> None:
    problem = Problem("linear", "", (), linear(1, 1, 1).make, flop, values)
    assert module.share(problem, dtype, 20.0, LIMITS) == pytest.approx(share)
    assert module.share(problem, dtype, 20.0, {}) is None


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixed limits instead of measured ones."""
    monkeypatch.setattr(limit, "measure", lambda *_: {"fp32": 100.0, "bf16": 200.0})
    monkeypatch.setattr(limit, "bandwidth", lambda *_: 10.0)


def fixed(*ratios: float) -> Any:
    """Replaces ``compare``: returns these ratios in turn, and repeats the last one."""
    left = list(ratios)

    def compare(ours: Any, stock: Any, seconds: float) -> module.Times:
        ratio = left.pop(0) if len(left) > 1 else left[0]
        return module.Times(100.0, 100 * ratio, ratio, ratio - 0.01, ratio + 0.01, 1, 9)

    return compare


ONE = ["--only", "linear 128x768x768", "--threads", "1", "--dtype", "float32"]


@zendnn
def test_each_problem_has_a_row_and_the_files_have_all_rows(
    quick: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ["--json", str(tmp_path / "a.json"), "--plot", str(tmp_path / "a.svg")]
    options = ["--only", "linear 64x512x", "--models", "dlrm,vit", "--seconds", "0.01"]
    assert module.main([*options, "--threads", "1", *files]) == 0
    cpu, limits, _, header, *rows = capsys.readouterr().out.splitlines()
    assert cpu.startswith("CPU ")
    assert "read 10.0 GB/s" in limits
    assert header.split()[:5] == ["problem", "dtype", "stock", "us", "ZenDNN"]
    rows = [row for row in rows if row.startswith("linear 64x512x256 ")]
    last = {row.split()[2]: row for row in rows}  # a busy machine may repeat a measurement
    document = json.loads((tmp_path / "a.json").read_text())
    found = [cell for cell in document["cells"] if cell["operator"] == "linear"]
    assert [cell["dtype"] for cell in found] == list(last) == ["float32", "bfloat16"]
    for cell in found:
        row = last[cell["dtype"]]
        assert cell["size"] in row
        assert f"{cell['ratio']:.2f}" in row
        assert cell["low"] <= cell["ratio"] <= cell["high"]
    drawn = ElementTree.parse(tmp_path / "a.svg").getroot()
    texts = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert "64x512x256" in texts
    for cell in found:
        assert f"{cell['ratio']:.2f}" in texts


@zendnn
@pytest.mark.parametrize(
    ("ratios", "check", "code"),
    [((0.5,), True, 0), ((1.2,), True, 1), ((1.2,), False, 0), ((1.2, 1.0), True, 0)],
    ids=["faster", "slower", "slower but not asked", "not slower again"],
)
def test_check_fails_for_problems_that_are_slower_twice(
    ratios: tuple[float, ...],
    check: bool,
    code: int,
    quick: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(module, "compare", fixed(*ratios))
    assert module.main([*ONE, *["--check"] * check]) == code
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("slower")]
    assert len(said) == (ratios == (1.2,))
    assert all("linear 128x768x768 in float32, 1.20" in line for line in said)


@zendnn
def test_a_problem_runs_in_the_dtypes_that_torch_has_it_in(
    quick: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "compare", fixed(0.5))
    assert module.main(["--only", "avg_pool3d"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("avg_pool3d")]
    assert rows
    assert all("float32" in row for row in rows)


@zendnn
def test_without_a_compiler_shares_are_omitted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "/nowhere/cc")
    monkeypatch.setattr(module, "compare", fixed(0.5))
    assert module.main(ONE) == 0
    out = capsys.readouterr().out
    assert "limit  unknown: /nowhere/cc could not be started" in out
    assert "%" not in out.replace("99 %", "")


@pytest.mark.parametrize(
    "options",
    [
        ["--only", "no such"],
        ["--seconds", "0"],
        ["--threads", "0"],
        ["--dtype", "int8"],
        ["--models", "gpt"],
        ["--plot", "/nowhere/a.svg"],
    ],
    ids=" ".join,
)
def test_wrong_options_end_with_code_2_and_one_reason(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        module.main(options)
    assert stopped.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
