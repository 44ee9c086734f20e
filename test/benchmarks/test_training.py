"""benchmarks/training.py: steps, measurements and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from benchmarks import training as module  # noqa: E402 (torch may be missing)

zendnn = pytest.mark.skipif(
    getattr(torch.backends, "zendnn", None) is None, reason="a torch without ZenDNN"
)


@zendnn
def test_a_step_learns_and_both_sides_agree() -> None:
    options = module.parse_arguments(["--models", "mlp@8"])
    losses = []
    for enabled in (False, True):
        with torch.backends.zendnn.flags(enabled=enabled):
            step = module.step_of("mlp@8", options)
            losses.append([step() for _ in range(10)])
    stock, ours = losses
    assert stock[-1] < stock[0]
    assert ours == pytest.approx(stock, rel=1e-4)


def test_dropout_is_set_in_layers_and_in_attentions() -> None:
    layer = torch.nn.Sequential(torch.nn.Dropout(0.3), torch.nn.Linear(2, 2))
    layer[1].dropout_prob = 0.1
    module.set_dropout(layer, 0.0)
    assert layer[0].p == 0
    assert layer[1].dropout_prob == 0


@zendnn
def test_each_model_has_a_line_and_a_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.json"
    options = ["--models", "mlp@8", "--rounds", "3", "--profile", "40", "--threads", "1"]
    assert module.main([*options, "--json", str(file)]) == 0
    (found,) = json.loads(file.read_text())["results"]
    assert found["ratio"] > 0
    assert "aten::addmm" in {part["operator"] for part in found["profile"]}
    out = capsys.readouterr().out
    assert f"mlp@8: stock {found['stock_ms']:.0f} ms" in out
    assert len(found["profile"]) <= 40
    assert all(part["operator"] in out for part in found["profile"])


@pytest.mark.parametrize(
    "options",
    [["--models", "mlp"], ["--rounds", "0"], ["--dropout", "1"], ["--json", "/nowhere/a.json"]],
    ids=" ".join,
)
def test_wrong_options_end_with_code_2_and_one_reason(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        module.main(options)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("error: ")
