"""benchmarks/decision.py: which problems are left to torch, what that costs, what it prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from benchmarks import decision as module  # noqa: E402 (torch may be missing)

zendnn = pytest.mark.skipif(
    getattr(torch.backends, "zendnn", None) is None, reason="a torch without ZenDNN"
)


@zendnn
def test_problems_that_zendnn_takes_are_not_counted_as_left_to_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "REPEAT", 1)
    monkeypatch.setattr(module, "BEST_OF", 1)
    threads = torch.get_num_threads()
    try:
        found = module.best_times("")
    finally:
        torch.set_num_threads(threads)
        torch.backends.zendnn.set_flags(True)
    assert set(found) == set(module.operators())
    assert "size" not in found["layer_norm"]
    for name, reasons in found.items():
        assert {"dtype", "switched off"} <= set(reasons), name
        assert all(us > 0 for us in reasons.values())


def test_the_cost_is_the_difference_of_the_best_times() -> None:
    def one(us: float) -> dict[str, dict[str, float]]:
        return {"mm": {"size": us}}

    rounds = [(one(2.0), one(2.5)), (one(1.0), one(3.0))]
    assert module.costs(rounds) == {"mm": {"size": (1.0, 1.5)}}


@pytest.mark.parametrize(("cost", "code"), [(0.5, 0), (1.5, 1)])
def test_check_fails_for_a_cost_above_a_microsecond(
    cost: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(chosen: str, environment: dict[str, str]) -> Any:
        ours = environment == dict(module.OURS)
        return {"mm": {"dtype": 1.0 + cost * ours, "switched off": 1.0}}

    monkeypatch.setattr(module, "ask", ask)
    monkeypatch.setattr(torch.backends, "zendnn", object(), raising=False)
    assert module.main(["--check", "--rounds", "1"]) == code
    captured = capsys.readouterr()
    assert captured.out.splitlines()[1].split() == ["mm", "1.00", "taken", f"+{cost:.2f}", "+0.00"]
    assert (f"mm (dtype) costs {cost:.2f} us" in captured.err) == bool(code)


def test_an_unknown_operator_ends_with_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        module.main(["--only", "no such"])
    assert stopped.value.code == 2
    assert "no operator's name contains 'no such'" in capsys.readouterr().err


def test_a_torch_without_zendnn_ends_with_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.backends, "zendnn", None, raising=False)
    with pytest.raises(SystemExit) as stopped:
        module.main(["--check"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "error: this Python's torch has no ZenDNN\n"


def test_a_worker_that_fails_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "decision.py").write_text("import sys; sys.exit('no memory')")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(torch.backends, "zendnn", object(), raising=False)
    assert module.main([]) == 2
    assert capsys.readouterr().err.endswith(" failed: no memory\n")


def test_an_interruption_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(chosen: str, environment: dict[str, str]) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "ask", ask)
    monkeypatch.setattr(torch.backends, "zendnn", object(), raising=False)
    assert module.main([]) == 130
    assert capsys.readouterr().err.endswith("\ninterrupted\n")
