"""benchmarks/thresholds.py: each threshold decides its problem alone; what is printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch.backends.zendnn", reason="a torch without ZenDNN")

from torch.backends.zendnn import _C  # noqa: E402
from torch.backends.zendnn.table.thresholds import THRESHOLDS, Threshold  # noqa: E402

from benchmarks import thresholds as module  # noqa: E402 (torch may be missing)
from benchmarks.operations import Times  # noqa: E402
from test.zendnn.common import HAS_BFLOAT16, HAS_TILES  # noqa: E402

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2}


def test_the_library_has_the_table_and_each_row_has_a_problem() -> None:
    assert _C._thresholds() == {name: row.value for name, row in THRESHOLDS.items()}
    assert set(module.CASES) == set(THRESHOLDS)


def run(name: str, size: int) -> tuple[Any, Any]:
    """Return the result of a threshold's problem, and what ran for it."""
    with module.ready():
        compute = module.CASES[name](size)
        return compute().clone(), module.ran(compute)


@pytest.mark.skipif(not HAS_BFLOAT16, reason="some decide only with AVX-512 for bfloat16")
@pytest.mark.parametrize("row", THRESHOLDS.values(), ids=list(THRESHOLDS))
def test_a_threshold_decides_and_both_sides_agree(row: Threshold) -> None:
    if row.needs == "amx" and not HAS_TILES:
        pytest.skip("it is about AMX")
    if row.name == "plain_bf16_work" and HAS_TILES:
        pytest.skip("with AMX, no product of ours computes in bfloat16")
    for factor in module.FACTORS:
        size = int(row.value * factor)
        sides = {}
        for larger in (False, True):
            with module.counted_as(row.name, larger):
                sides[larger] = run(row.name, size)
        if row.name == "bernoulli_numbers" and sides[False][1] == sides[True][1]:
            pytest.skip("torch draws from MKL on this CPU")
        assert sides[False][1] != sides[True][1]
        if factor != 1:
            assert run(row.name, size)[1] == sides[factor > 1][1]
        ours, theirs = (sides[larger][0] for larger in (True, False))
        tolerance = TOLERANCE[ours.dtype]
        largest = float(theirs.abs().max())
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance * largest)


def test_a_threshold_comes_back_after_a_failure() -> None:
    seen = []

    def fail() -> None:
        with module.counted_as("product", larger=True):
            seen.append(_C._thresholds()["product"])
            raise RuntimeError

    before = _C._thresholds()
    with pytest.raises(RuntimeError):
        fail()
    assert seen == [0]
    assert _C._thresholds() == before


def test_an_unknown_threshold_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no threshold 'size'"):
        _C._set_threshold("size", 1)


def times(ratio: float) -> Times:
    return Times(10.0, 10 * ratio, ratio, ratio - 0.01, ratio + 0.01, 1, 9)


def test_the_wrong_side_is_bold_where_it_is_faster_beyond_noise() -> None:
    found = [times(ratio) for ratio in (0.9, 0.95, 2.0, 1.05, 1.07)]
    assert module.cells(found) == ["**0.90**", "0.95", "2.00", "1.05", "**1.07**"]
    assert list(module.table({"product": found}))[2:] == [
        "| `product` | 8192 | multiply-adds of a product of two matrices in float32 |"
        " torch → ZenDNN | **0.90** | 0.95 | 2.00 | 1.05 | **1.07** |"
    ]


def test_a_document_keeps_the_parts_of_other_cpus() -> None:
    one = module.document("# Thresholds\n", "CPU 1", ["a", "b"])
    both = module.document(one, "CPU 2", ["c"])
    assert both == "# Thresholds\n\n## CPU 1\n\na\nb\n\n## CPU 2\n\nc\n"
    assert module.document(both, "CPU 2", ["c"]) == both
    assert module.document(both, "CPU 1", ["d"]) == both.replace("a\nb\n", "d\n")


def test_a_run_prints_ratios_and_says_what_is_misplaced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert module.main(["--only", "bernoulli", "--seconds", "0.001"]) == 0
    head, row = capsys.readouterr().out.splitlines()[2:4]
    assert head.split()[:2] == ["threshold", "value"]
    assert row.split()[:2] == ["bernoulli_numbers", str(THRESHOLDS["bernoulli_numbers"].value)]
    assert len(row.split()) == 2 + len(module.FACTORS)

    def measure(name: str, seconds: float) -> list[Times] | None:
        return [times(0.5)] * 5 if name == "product" else None

    monkeypatch.setattr(module, "measure", measure)
    document = tmp_path / "thresholds.md"
    document.write_text("# Thresholds\n")
    assert module.main(["--check", "--document", str(document)]) == 1
    assert "misplaced: product at 0.25 times 8192, 0.50" in capsys.readouterr().err
    assert "| `product` | 8192 |" in document.read_text()


def test_wrong_options_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        module.main(["--only", "nothing like it"])
    document = tmp_path / "thresholds.md"
    document.write_text("")
    with pytest.raises(SystemExit, match="2"):
        module.main(["--only", "gru", "--document", str(document)])
    assert "leave out --only" in capsys.readouterr().err
