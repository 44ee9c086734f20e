"""benchmarks/tuning.py: ways, ratios, the document, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import models
from benchmarks import tuning as module
from benchmarks.backends import BACKENDS
from benchmarks.report import Sample, in_document
from benchmarks.tuning import Advice, Runner, Way

REPO = Path(__file__).parents[2]


def sample(ms: float, prepare_s: float = 1.0) -> Sample:
    return Sample(ms, prepare_s, 0.0, 1.0)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Way]:
    """The ways that were run, which take 8 ms a call, or fail with eager kernels."""
    seen: list[Way] = []

    def run(runner: Runner, way: Way) -> list[Sample]:
        seen.append(way)
        if way.backend == "zendnn_eager":
            raise module.Failure("no such thing")
        return [sample(8, 5 if way.primed else 20)] * (runner.cores if way.launch else 1)

    monkeypatch.setattr(Runner, "run", run)
    return seen


def test_every_way_is_one_of_a_known_model_backend_and_number_of_threads() -> None:
    for way in module.ways(module.ADVICE):
        assert models.parse(way.model)[1] > 0
        assert way.precision in BACKENDS[way.backend].precisions
        assert way.threads in module.THREADS
    assert {row.measure for row in module.ADVICE} <= module.MEASURES.keys()


def test_what_is_measured_is_an_advice_of_the_document() -> None:
    text = REPO.joinpath("docs/tuning.md").read_text()
    assert [row.topic for row in module.ADVICE if f"**{row.topic}**" not in text] == []


def test_processes_add_up_and_batches_share_the_time() -> None:
    assert module.per_item(8, [sample(16)]) == pytest.approx(2e-3)
    assert module.per_item(1, [sample(4), sample(4)]) == pytest.approx(2e-3)
    assert module.first_call(1, [sample(4, 7), sample(4, 9)]) == 9


def test_a_way_that_rows_share_runs_once_a_round_and_caches_are_filled_before(
    answers: list[Way], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row for row in module.ADVICE if row.measure == "first call"]
    samples, failures = module.measure(rows, Runner(2, 1.0, Path()), rounds=2)
    assert not failures
    frozen, *_ = module.ways(rows)
    primed = [way for way in answers if way.primed]
    assert answers[:2] == primed[:2], "before all others"
    assert (answers.count(frozen), answers.count(primed[0])) == (2, 3)
    assert [len(found) for found in samples.values()] == [2] * len(samples)
    assert module.ratios(rows[0], samples) == [0.25, 0.25]
    assert "[1/" in capsys.readouterr().err


def test_the_table_has_ratios_and_what_failed(
    answers: list[Way], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tuning.md"
    file.write_text("before\n<!-- gains -->\nold\n<!-- end -->\nafter\n")
    assert module.main(["--document", str(file), "--threads", "4"]) == 1
    text = file.read_text()
    assert text.startswith("before\n<!-- gains -->\n")
    assert text.endswith("<!-- end -->\nafter\n")
    assert "| instances | an instance per core | bert@1 | per item | 0.25 |" in text
    assert "| compile | freeze instead | mobilenet_v2@1 | per item | 1.00 |" in text
    assert "not measured: no such thing |" in text
    assert "old" not in text
    assert "failed: no such thing" in capsys.readouterr().err


def test_instances_are_launched_for_real(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if getattr(torch.backends, "zendnn", None) is None:
        pytest.skip("a torch without ZenDNN")
    runner = Runner(1, 0.01, tmp_path)
    way = Way("mlp@1", threads="one", launch=("--instances", module.CORES))
    (found,) = runner.run(way)
    assert found.ms > 0
    with pytest.raises(module.Failure, match="error: --latency gives each of 99 instances"):
        runner.run(Way("mlp@1", launch=("--latency", "--instances", "99")))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--only", "nothing"], "no advice has the text 'nothing': they are about compile, bf16"),
        (["--only", "bf16", "--document", "a.md"], "--document wants all rows: leave out --only"),
        (["--rounds", "0"], "0 is not above zero"),
        (["--document", "/nowhere/a.md"], "'/nowhere/a.md' cannot be written"),
    ],
)
def test_a_wrong_option_is_refused_in_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: Any = module.main(arguments)
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_the_committed_document_has_the_markers() -> None:
    text = REPO.joinpath("docs/tuning.md").read_text()
    row = Advice("a", "b", Way("mlp@1"), Way("mlp@1"))
    lines = list(module.table([row], {Way("mlp@1"): [[sample(1)]]}, {}))
    assert "| a | b | mlp@1 | per item | 1.00 |" in in_document(text, "gains", lines)
