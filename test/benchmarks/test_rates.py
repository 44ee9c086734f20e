"""benchmarks/rates.py: the table, the document, and each dtype measured once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import limit, rates, report
from tools.setup_helpers.errors import SetupError

FOUND = [(100.0 * (1 + at % 3), f"kernel{at}") for at in range(3 * len(rates.PROBLEMS))]


def test_a_row_has_each_dtype_and_its_share_of_the_limit() -> None:
    head, first, *_ = rates.table(FOUND, {"fp32": 200.0, "bf16": 400.0})
    assert head[1:3] == ["fp32", "fp32 of limit"]
    assert first[1:] == ["100", "0.50", "200", "0.50", "300", "", "kernel2"]


def test_a_document_gets_the_table_between_its_marks() -> None:
    lines = rates.markdown([["a", "b", "c"], ["1", "2", "3"]])
    assert lines == ["| a | b | c |", "| --- | --: | --- |", "| 1 | 2 | 3 |"]
    text = "before\n<!-- rates -->\nold\n<!-- end -->\nafter\n<!-- end -->\n"
    done = report.in_document(text, "rates", ["new"])
    assert done == text.replace("old", "new")
    with pytest.raises(SetupError, match="has no part between"):
        report.in_document("nothing", "rates", lines)


def test_without_a_build_there_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rates, "NATIVE", tmp_path / "native")
    assert rates.main(["--seconds", "0.01"]) == 2
    assert re.search(
        r"error: .*libzendnn.a is missing: run `make build` first\n$", capsys.readouterr().err
    )


def test_each_operation_is_measured_in_each_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    if not (rates.NATIVE / "zendnn/src/libzendnn.a").exists():
        pytest.skip("this checkout has no build of the library")
    small = {"product": "product 3 8 16", "convolution": "convolution 2 8 5 16 3 1 2"}
    monkeypatch.setattr(rates, "PROBLEMS", small)
    found = rates.rates(0.001, 1)
    assert len(found) == 2 * len(rates.DTYPES)
    assert all(rate > 0 and implementation for rate, implementation in found)
    monkeypatch.setattr(rates, "PROBLEMS", {"wrong": "product 3 8"})
    with pytest.raises(limit.LimitError, match="'product 3 8' is not a problem"):
        rates.rates(0.001, 1)
    assert not list(limit.BUILD.glob("rates.*"))
