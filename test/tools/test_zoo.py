"""tools/zoo: tiny models are built from names, wrong front ends are found, processes may end."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import CONFIG_MAPPING

from tools.zoo import __main__ as command
from tools.zoo import check as check_module
from tools.zoo import vision
from tools.zoo.check import WAYS, Way, check, difference
from tools.zoo.inputs import IMAGE, WIDTH
from tools.zoo.models import build, names, small
from tools.zoo.report import SLOWER, Report, document, reasons, refused_most, summary
from tools.zoo.tiny import NotBuilt, Tiny

INF, NAN = math.inf, math.nan
RIGHT = tuple(Way(way, "right", error=1e-7, steps=3, ratio=0.5) for way in WAYS)
BERT = Report("bert", model="BertModel", inputs=("input_ids",), ways=RIGHT)
MISSING = Report("timm_wrapper", missing="it needs the package timm")


class Layer(nn.Module):
    """A layer, whose result may be rounded so that it has steps."""

    def __init__(self, step: float | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.step = nn.Linear(8, 8), step

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = self.layer(x)
        return {"y": torch.floor(y / self.step) * self.step if self.step else y}


def tiny(model: nn.Module) -> Tiny:
    return Tiny("layer", model.eval(), {"x": torch.ones(2, 8)}, {"x": torch.ones(3, 8)})


def replaced(monkeypatch: pytest.MonkeyPatch, ours: Any, stock: Any = None) -> None:
    """Let functions of a model run in the place of ours, and of what torch makes of it."""

    def prepared(tiny: Tiny, way: str, backend: str) -> Callable[..., Any]:
        function = ours if backend == "zendnn" else stock
        return tiny.model if function is None else lambda **x: function(tiny.model(**x))

    monkeypatch.setattr(check_module, "prepared", prepared)
    monkeypatch.setattr(check_module, "plans", lambda *arguments: {})


def off(by: float) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda made: {"y": made["y"] + by}


def refused(made: Any) -> Any:
    raise RuntimeError("it is refused\nat length")


# Models.


def test_a_configuration_becomes_small_in_all_its_parts() -> None:
    default = CONFIG_MAPPING["clip"]()
    config = small(default, {"text_config.hidden_size": 32})
    assert type(config) is type(default)
    assert (config.text_config.hidden_size, config.vision_config.hidden_size) == (32, WIDTH)
    assert config.vision_config.image_size == IMAGE
    assert config.vision_config.num_hidden_layers == 2
    assert config.text_config.hidden_act == default.text_config.hidden_act


def test_no_number_of_a_configuration_grows() -> None:
    default = CONFIG_MAPPING["bert"](vocab_size=7, num_attention_heads=2)
    config = small(default, {})
    assert (config.vocab_size, config.num_attention_heads) == (7, 2)


def test_a_name_gives_the_same_model_and_inputs_each_time() -> None:
    first, second = build("bert"), build("bert")
    for name, weight in first.model.state_dict().items():
        assert torch.equal(weight, second.model.state_dict()[name])
    assert torch.equal(first.inputs["input_ids"], second.inputs["input_ids"])
    assert first.inputs["input_ids"].shape != first.second["input_ids"].shape


def test_weights_that_are_the_same_everywhere_are_changed() -> None:
    weights = dict(build("bert").model.named_parameters())
    norm = weights["embeddings.LayerNorm.weight"]
    assert norm.unique().numel() > 1


def test_text_gets_the_tokens_of_its_images() -> None:
    result = build("llava")
    token = result.model.config.image_token_id
    assert "pixel_values" in result.inputs
    assert (result.inputs["input_ids"] == token).any(1).all()


def test_what_cannot_be_built_says_why() -> None:
    with pytest.raises(NotBuilt, match=r"^it needs the package timm$"):
        build("timm_backbone")


def test_the_names_are_those_of_transformers_and_torchvision() -> None:
    assert {"bert", "resnet", "whisper", "torchvision/resnet50", "torchvision/raft_small"} <= set(
        names()
    )


def test_a_name_of_torchvision_gives_the_same_model_and_inputs_each_time() -> None:
    first, second = (build("torchvision/squeezenet1_1") for _ in range(2))
    for name, weight in first.model.state_dict().items():
        assert torch.equal(weight, second.model.state_dict()[name])
    assert torch.equal(first.inputs["x"], second.inputs["x"])
    assert first.inputs["x"].shape != first.second["x"].shape


def test_a_model_of_torchvision_that_is_too_large_is_not_built() -> None:
    with pytest.raises(NotBuilt, match="it has 633 million parameters"):
        build("torchvision/vit_h_14")


def test_a_detector_that_finds_nothing_is_not_compared() -> None:
    class Blind(nn.Module):
        def forward(self, x: Tensor) -> list[dict[str, Tensor]]:
            return [{"boxes": x.new_empty(0, 4)}]

    with pytest.raises(NotBuilt, match="it finds nothing"):
        vision._inputs(Blind(), (1, 3, 8, 8))


def test_torchvision_has_no_names_where_it_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> None:
        raise NotBuilt("torchvision cannot be imported")

    monkeypatch.setattr(vision, "_torchvision", missing)
    assert command.main(["--list"]) == 0
    reported = capsys.readouterr()
    assert "bert" in reported.out
    assert "torchvision" not in reported.out
    assert reported.err == "warning: torchvision cannot be imported\n"


def test_detectors_have_operators_for_boxes() -> None:
    """They are torchvision's own, or ours where its library does not load."""
    assert names()
    boxes = torch.tensor([[0.0, 0, 4, 4], [0, 0, 4, 3], [6, 6, 8, 8], [0, 0, 4, 4]])
    scores = torch.tensor([0.5, 0.9, 0.1, 0.6])
    assert torch.ops.torchvision.nms(boxes, scores, 0.5).tolist() == [1, 2]
    assert torch.ops.torchvision.nms(boxes, scores, 0.8).tolist() == [1, 3, 2]
    assert torch.ops.torchvision.nms(boxes[:0], scores[:0], 0.5).tolist() == []
    across = torch.arange(8.0).expand(2, 1, 8, 8)
    rois = torch.tensor([[1.0, 2, 2, 6, 6]])
    found = torch.ops.torchvision.roi_align(across, rois, 1.0, 2, 2, 2, False)
    assert found.flatten().tolist() == [3, 5, 3, 5]
    half = torch.ops.torchvision.roi_align(across.mT, rois, 0.5, 1, 2, 2, True)
    assert half.flatten().tolist() == [1.5, 1.5]


# Differences.


@pytest.mark.parametrize(
    ("got", "want", "error"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.5], [1.0, 2.0], 0.25),
        ([NAN, 2.5], [NAN, 2.0], 0.25),
        ([INF, 2.0], [-INF, 2.0], INF),
        ([NAN, 2.0], [INF, 2.0], INF),
        ([1.0], [1.0, 2.0], INF),
        ([0.0], [0.0], 0.0),
    ],
)
def test_a_difference_is_relative_to_the_largest_number(
    got: list[float], want: list[float], error: float
) -> None:
    assert difference([torch.tensor(got)], [torch.tensor(want)]) == error


def test_other_types_and_other_integers_differ_without_bound() -> None:
    one = torch.tensor([1])
    assert difference([one], [one + 1]) == INF
    assert difference([one.float()], [one]) == INF
    assert difference([one, one], [one]) == INF
    assert difference([one > 0], [one > 0]) == 0


# Checks.


@pytest.mark.parametrize("way", WAYS)
def test_a_right_model_is_right_and_runs_in_plans(way: str) -> None:
    found = check(tiny(Layer()), way)
    assert (found.outcome, found.regions, found.steps) == ("right", 1, 1)
    assert found.error < 1e-6


def test_a_wrong_front_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, off(0.5))
    found = check(tiny(Layer()), "compiled")
    assert (found.outcome, found.is_ours) == ("wrong", True)
    assert found.error > 0.1


def test_an_error_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, refused)
    found = check(tiny(Layer()), "compiled")
    assert (found.outcome, found.detail) == ("fails", "RuntimeError: it is refused")
    assert found.is_ours


@pytest.mark.parametrize("ours", [off(0.5), refused])
@pytest.mark.parametrize("stock", [off(0.5), refused])
def test_what_stock_does_alike_is_not_ours(
    monkeypatch: pytest.MonkeyPatch, ours: Any, stock: Any
) -> None:
    replaced(monkeypatch, ours, stock)
    found = check(tiny(Layer()), "compiled")
    assert (found.outcome, found.is_ours) == ("upstream", False)
    assert "stock: " in found.detail


def test_a_model_that_magnifies_rounding_is_unstable(monkeypatch: pytest.MonkeyPatch) -> None:
    step = 1e-3
    model = Layer(step)
    edge = model.layer(torch.ones(2, 8))[0] / step
    with torch.no_grad():
        model.layer.bias.sub_((edge - edge.round()) * step)
    replaced(monkeypatch, off(step))
    found = check(tiny(model), "compiled")
    assert (found.outcome, found.is_ours) == ("unstable", False)


def test_a_model_with_random_results_is_not_compared() -> None:
    class Random(Layer):
        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"y": x + torch.empty(1).exponential_(generator=self.generator)}

        generator = torch.Generator()

    assert check(tiny(Random()), "compiled").outcome == "upstream"


def test_a_break_of_the_graph_is_counted() -> None:
    class Broken(Layer):
        def forward(self, x: Tensor) -> dict[str, Tensor]:
            y = self.layer(x)
            torch._dynamo.graph_break()
            return {"y": self.layer(y)}

    found = check(tiny(Broken()), "compiled")
    assert (found.outcome, len(found.breaks), found.compilations) == ("right", 1, 2)
    frozen = check(tiny(Layer()), "frozen")
    assert (len(frozen.breaks), frozen.compilations) == (0, 0)


def test_layers_that_share_a_graph_are_in_plans() -> None:
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Inner() for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                torch._dynamo.graph_break()
                x = layer(x)
            return x

    class Inner(Layer):
        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x)

    found = check(tiny(Deep()), "compiled")
    assert (found.outcome, found.regions, found.left_out) == ("right", 2, {})


@pytest.mark.parametrize("timed", [True, False])
def test_times_are_measured_if_asked_for(timed: bool) -> None:
    assert bool(check(tiny(Layer()), "compiled", timed=timed).ratio) is timed


def test_a_compiled_model_is_compared_with_inductors() -> None:
    found = check_module.compared(tiny(Layer()))
    assert found.keys() == {"ratio", "of_inductor"}
    assert all(ratio > 0 for ratio in found.values())


class Alternating(nn.Module):
    """A model that Dynamo compiles anew for its second call."""

    def __init__(self) -> None:
        super().__init__()
        self.flag = False

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        self.flag = not self.flag
        return {"y": x + 1 if self.flag else x * 2}


def test_times_of_compilations_are_none_of_a_models() -> None:
    found = check_module.compared(tiny(Alternating()))
    assert found == {"ratio": 0, "of_inductor": 0}


def test_results_of_another_dtype_are_wrong_even_if_stock_is_unstable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replaced(monkeypatch, lambda made: {"y": made["y"].double()})
    monkeypatch.setattr(check_module, "moved", lambda *arguments: INF)
    assert check(tiny(Layer()), "compiled").outcome == "wrong"


# The command.


def test_a_model_is_examined_in_all_ways() -> None:
    found = command.examine(Report("bert"), "--untimed")
    assert found.model == "BertModel"
    assert [(way.way, way.outcome) for way in found.ways] == [(way, "right") for way in WAYS]
    assert not any(way.ratio for way in found.ways)
    assert all(way.regions and way.steps for way in found.ways)


@pytest.mark.parametrize("fails", [False, True])
def test_inductor_is_asked_for_last_and_may_fail(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    def answers(name: str, *options: str, limit: int) -> tuple[list[dict[str, Any]], str]:
        assert options == ("--inductor",)
        return [{}, *([] if fails else [{"ratio": 0.4, "of_inductor": 0.7}])], "crash" * fails

    monkeypatch.setattr(command, "answers", answers)
    compiled, *others = command.examine(BERT, "--inductor").ways
    assert (compiled.ratio, compiled.of_inductor) == ((0.5, 0.0) if fails else (0.4, 0.7))
    assert tuple(others) == RIGHT[1:]


def test_a_process_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    assert command.answers("bert", limit=1) == ([], "timeout")


@pytest.mark.parametrize(("theirs", "outcome"), [("", "crash"), ("crash", "upstream")])
def test_a_crash_is_ours_unless_stock_crashes(
    monkeypatch: pytest.MonkeyPatch, theirs: str, outcome: str
) -> None:
    def answers(name: str, *options: str, limit: int) -> tuple[list[dict[str, Any]], str]:
        first = {"model": "Model", "inputs": ["x"]}
        if "--stock" in options:
            return [first], theirs
        right = [{"way": way, "outcome": "right"} for way in options]
        return ([first, right[0]], "crash") if options == WAYS else ([first, *right], "")

    monkeypatch.setattr(command, "answers", answers)
    found = command.examine(Report("model"))
    assert [way.outcome for way in found.ways] == ["right", outcome, "right", "right"]


@pytest.mark.parametrize(("needs", "outcome"), [(2, "right"), (9, "timeout")])
def test_a_way_hangs_when_it_has_all_the_time(
    monkeypatch: pytest.MonkeyPatch, needs: int, outcome: str
) -> None:
    """The second way needs so many times what the others need; there is time for three."""
    first = {"model": "Model", "inputs": ["x"]}

    def answers(name: str, *options: str, limit: int) -> tuple[list[dict[str, Any]], str]:
        if "--stock" in options:
            return [first], ""
        got, passed = [first], 0
        for way in options:
            passed += needs if way == WAYS[1] else 1
            if passed > 2:
                return got, "timeout"
            got.append({"way": way, "outcome": "right"})
        return got, ""

    monkeypatch.setattr(command, "answers", answers)
    found = command.examine(Report("model"))
    assert [way.outcome for way in found.ways] == ["right", outcome, "right", "right"]


def test_only_ways_that_are_not_known_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(name: str, *options: str, limit: int) -> tuple[list[dict[str, Any]], str]:
        first = {"model": "Model", "inputs": ["x"]}
        return [first, *({"way": way, "outcome": "wrong"} for way in options)], ""

    monkeypatch.setattr(command, "answers", answers)
    found = command.examine(replace(BERT, ways=RIGHT[:2]))
    assert [way.outcome for way in found.ways] == ["right", "right", "wrong", "wrong"]


def test_a_model_that_ends_its_process_at_once_is_not_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "answers", lambda *arguments, limit: ([], "crash"))
    assert command.examine(Report("model")).missing == "crash while it is built"


def test_a_seed_draws_the_same_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--draw", "4", "--seed", "5", "--list"]) == 0
    first = capsys.readouterr().out
    command.main(["--draw", "4", "--seed", "5", "--list"])
    assert capsys.readouterr().out == first
    assert len(first.splitlines()) == 5


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of the checkout."""
    monkeypatch.setattr(command, "REPO", tmp_path)
    return tmp_path


def test_a_stride_takes_all_architectures_in_another_order(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--list", "--stride", "7"]) == 0
    listed = capsys.readouterr().out.split()
    assert listed[:3] == names()[:15:7]
    assert sorted(listed) == sorted(names())
    command.main(["--list", "--stride", "7", "--first", "5"])
    assert capsys.readouterr().out.split() == listed[:5]


def test_the_command_tells_of_a_fault_and_fails(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = replace(BERT, ways=(Way("compiled", "wrong", "off by 3"), *RIGHT[1:]))
    monkeypatch.setattr(command, "examine", lambda *arguments, limit: wrong)
    assert command.main(["--only", "roberta-prelayernorm"]) == 1
    assert "fault: bert, compiled: wrong (off by 3)" in capsys.readouterr().out


def test_the_command_hands_on_that_times_do_not_matter(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def examine(known: Report, *options: str, limit: int) -> Report:
        asked.append((known.name, *options, limit))
        return replace(BERT, name=known.name)

    monkeypatch.setattr(command, "examine", examine)
    command.main(["--only", "roberta-prelayernorm", "--untimed", "--limit", "60"])
    assert asked == [("roberta-prelayernorm", "--untimed", 60)]


def test_the_command_writes_the_document(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "examine", lambda known, limit: replace(BERT, name=known.name))
    assert command.main(["--only", "roberta", "--write"]) == 0
    text = (folder / "docs" / "models.md").read_text()
    assert "| roberta |" in text
    assert str(folder) not in text


def test_a_run_can_go_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def examine(known: Report, limit: int) -> Report:
        asked.append(known.name)
        return replace(BERT, name=known.name)

    monkeypatch.setattr(command, "examine", examine)
    command.main(["--only", "xlm-roberta-xl"])
    command.main(["--only", "xlm-roberta", "--resume"])
    assert asked == ["xlm-roberta-xl", "xlm-roberta"]


# Reports.


def test_a_summary_counts_and_a_document_lists() -> None:
    unstable = Way("dynamic", "unstable", "off by 1", left_out={"aten::foo: it has no bar": 3})
    broken = replace(RIGHT[0], compilations=3, breaks=("a", "b"))
    reports = [BERT, replace(BERT, name="dpt", ways=(broken, unstable, *RIGHT[2:])), MISSING]
    assert summary(reports).splitlines() == [
        "3 architectures, 2 built",
        "  compiled: 2 right; 0.50 of stock time",
        "  dynamic: 1 right, 1 unstable; 0.50 of stock time",
        "  exported: 2 right; 0.50 of stock time",
        "  frozen: 2 right; 0.50 of stock time",
    ]
    text = document(reports, 400)
    assert "3 of 400 architectures were tried, and 2 could be built" in text
    assert "| dpt | 1e-07 | unstable | 1e-07 | 1e-07 | 0.50 |  | 3 (2) |" in text
    assert "| stock eager torch | 2 | 0.50 | 0.50 |" in text
    assert "| Inductor |" not in text
    assert "- dpt, dynamic: unstable (off by 1)" in text
    assert "| aten::foo: it has no bar | 0 | 1 | 0 | 0 |" in text
    assert "- timm_wrapper: it needs the package timm" in text


def test_a_document_says_why_models_are_slower_than_with_inductor() -> None:
    ways = [(replace(RIGHT[0], of_inductor=ratio), *RIGHT[1:]) for ratio in (1.05, 1.1, 1.2)]
    models = ("bert", "no_such_model", next(iter(reasons(SLOWER))))
    named = zip(models, ways, strict=True)
    text = document([replace(BERT, name=name, ways=ways) for name, ways in named], 400)
    _, _, slower = text.partition("more than 1.05 of Inductor's time")
    rows = slower.partition("## Each model")[0].splitlines()[-3:]
    assert rows[0] == "| no_such_model | 1.10 | not known |"
    assert rows[1].startswith(f"| {models[2]} | 1.20 | ")
    assert "not known" not in rows[1]


def test_reasons_are_of_models_that_there_are() -> None:
    assert reasons(SLOWER).keys() <= set(names())


def test_what_is_refused_most_is_no_consequence() -> None:
    left_out = {
        "aten::view: only operators outside read it": 9,
        "aten::eq: the engine has no such operator": 1,
        "aten::eq: it has no bar": 1,
        "region: an empty tensor": 1,
    }
    assert refused_most(replace(RIGHT[0], left_out=left_out)) == "2 eq"
    assert refused_most(RIGHT[0]) == ""


def test_a_saved_report_is_read() -> None:
    assert Report.read(json.loads(json.dumps(asdict(BERT)))) == BERT


def test_a_line_of_progress_names_what_is_missing() -> None:
    assert str(MISSING) == "timm_wrapper: not built: it needs the package timm"
