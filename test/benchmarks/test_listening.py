"""benchmarks/listening.py: what the profiler and events cost, what it prints, when it fails."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from benchmarks import listening as module  # noqa: E402 (torch may be missing)

zendnn = pytest.mark.skipif(
    getattr(torch.backends, "zendnn", None) is None, reason="a torch without ZenDNN"
)


@zendnn
def test_each_model_has_a_line_for_each_way_to_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OPERATORS", 1000)
    threads = torch.get_num_threads()
    try:
        assert module.main(["--models", "mlp@4", "--rounds", "2"]) == 0
    finally:
        torch.set_num_threads(threads)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:3]] == [["mlp@4", "eager"], ["mlp@4", "frozen"]]
    assert all(float(number) > 0 for line in lines[1:3] for number in line.split()[2:])
    assert lines[-1].startswith("an operator spends ")


@zendnn
@pytest.mark.parametrize(("on", "ns", "code"), [(1.02, 4.9, 0), (1.04, 1.0, 1), (1.0, 5.1, 1)])
def test_check_fails_over_the_bounds(
    on: float, ns: float, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "modes", lambda name: {"eager": lambda: None})
    monkeypatch.setattr(module, "pairs", lambda run, rounds: [(1.0, on), (2.0, 2 * on)])
    monkeypatch.setattr(module, "nanoseconds", lambda: ns)
    assert module.measure(["mlp@4"], 2, check=True) == code
    assert module.measure(["mlp@4"], 2, check=False) == 0


@pytest.mark.parametrize(
    "options", [["--models", "mlp"], ["--rounds", "0"], ["--threads", "x"]], ids=" ".join
)
def test_a_wrong_option_is_refused_in_a_sentence(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        module.main(options)
    assert exit_.value.code == 2
    assert capsys.readouterr().err.startswith("error: ")
