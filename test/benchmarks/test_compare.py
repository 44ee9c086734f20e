"""benchmarks/compare.py: refusals, calculations, output, and a small real run."""

from __future__ import annotations

import json
import math
import os
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import compare, limit, models, plot, report, worker
from benchmarks.backends import BACKENDS
from benchmarks.report import Case, Sample, Series

LIMITS = {"fp32": 200.0}


def series(backend: str, *times: float, error: float = 1e-6, note: str = "") -> Series:
    samples = (Sample(ms, number + 1.0, error, 8.0, note) for number, ms in enumerate(times))
    return Series(backend, tuple(samples))


def case(*found: Series, model: str = "resnet50@1", precision: str = "fp32") -> Case:
    return Case(model, precision, found)


CASE = case(
    series("zendnn", 40.0, 50.0, 90.0),
    series("jit", 50.0, 50.0, 100.0),
    series("openvino", 10.0, 10.0, 10.0, error=1e-3),
    Series("inductor", (), "no C++ compiler"),
)


def said(options: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The message for an invalid command line."""
    with pytest.raises(SystemExit) as stopped:
        compare.main(options)
    assert stopped.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


@pytest.mark.parametrize(
    ("options", "about"),
    [
        ("--models vgg@1", "no model 'vgg@1'"),
        ("--models bert", "no model 'bert'"),
        ("--models bert@1,bert@0", "no model 'bert@0'"),
        ("--backends eager,tvm", "no backend 'tvm'"),
        ("--precisions int4", "no precision 'int4'"),
        ("--rounds 0", "0 is not above zero"),
        ("--seconds nan", "nan is not above zero"),
        ("--threads two", "invalid int value: 'two'"),
        ("--python zentorch", "not NAME=PATH"),
        ("--python tvm=python3", "not NAME=PATH"),
        ("--python zentorch=/nowhere/python", "no program '/nowhere/python'"),
        ("--json /nowhere/found.json", "'/nowhere/found.json' cannot be written"),
        ("--plot /", "'/' cannot be written"),
        ("stray", "unrecognized arguments: stray"),
    ],
)
def test_a_wrong_command_line_ends_with_code_2_and_one_sentence(
    options: str, about: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(options.split(), capsys)
    assert text.startswith("error: ")
    assert about in text
    assert text.count("\n") == 1


def test_an_unknown_model_error_lists_the_known_models(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = said(["--models", "vgg@1"], capsys)
    assert all(family in text for family in models.FAMILIES)


def test_the_command_line_has_the_documented_defaults() -> None:
    options = compare.parse_arguments([])
    assert options.models == models.DEFAULT
    assert options.backends == tuple(BACKENDS)
    assert (options.precisions, options.rounds, options.seconds) == (("fp32",), 3, 3.0)
    assert 1 <= options.threads <= (os.cpu_count() or 1)
    assert options.python("zentorch") == sys.executable


def test_names_are_deduplicated_and_interpreters_absolute() -> None:
    relative = os.path.relpath(sys.executable)
    options = compare.parse_arguments(
        ["--models", "bert@4,mlp@1,bert@4", "--python", f"zentorch={relative}"]
    )
    assert options.models == ("bert@4", "mlp@1")
    assert options.python("zentorch") == sys.executable


def test_hardware_threads_of_one_core_count_once(tmp_path: Path) -> None:
    cpus = os.sched_getaffinity(0)
    for cpu in cpus:
        (tmp_path / f"cpu{cpu}").write_text("0-1000\n")
    assert compare.physical_cores(f"{tmp_path}/cpu{{}}") == 1
    assert compare.physical_cores(f"{tmp_path}/missing{{}}") == len(cpus)


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    assert CASE.ratio("zendnn", "jit") == 0.9  # of 0.8, 1.0 and 0.9; the medians' ratio is 1.0
    assert CASE.ratio("jit", "zendnn") == pytest.approx(1 / 0.9)


@pytest.mark.parametrize("peer", ["zendnn", "openvino", "inductor", "eager"])
def test_there_is_no_ratio_to_itself_or_to_a_wrong_failed_or_absent_peer(peer: str) -> None:
    assert CASE.ratio("zendnn", peer) is None


@pytest.mark.parametrize(
    ("precision", "error", "wrong"),
    [
        ("fp32", 1e-4, False),
        ("fp32", 1.1e-4, True),
        ("bf16", 1e-1, False),
        ("bf16", 0.11, True),
        ("fp32", math.inf, True),
        ("bf16", math.nan, True),
    ],
)
def test_a_result_beyond_the_tolerance_is_wrong(precision: str, error: float, wrong: bool) -> None:
    found = case(series("jit", 1.0, error=error), precision=precision)
    assert found.wrong(found.series[0]) is wrong
    assert len(found.problems()) == wrong


def test_one_wrong_round_makes_a_result_wrong() -> None:
    rounds = (*series("jit", 1.0).samples, *series("jit", 1.0, error=1.0).samples)
    assert case(Series("jit", rounds)).problems() == [
        "resnet50@1 in fp32 on jit is WRONG by 1.0e+00 (allowed 1e-04)"
    ]


def test_the_share_of_the_limit_comes_from_operations_and_time() -> None:
    jit = CASE.series[1]
    assert CASE.share(jit, LIMITS) == pytest.approx(8 / 0.050 / 200)
    assert CASE.share(jit, {}) is None


def test_the_fastest_peer_is_neither_ours_nor_wrong() -> None:
    assert CASE.fastest_peer() == "jit"
    assert case(series("zendnn", 1.0)).fastest_peer() is None


def test_the_table_has_a_line_for_each_backend_the_fastest_first() -> None:
    assert report.table(CASE, ["zendnn"], LIMITS).splitlines() == [
        "resnet50@1, fp32, 8 Gflop",
        "  backend      ms  prepare  zendnn/it  of limit  difference",
        "  openvino  10.00    1.0 s                          1.0e-03  WRONG",
        "  zendnn    50.00    1.0 s                  80%     1.0e-06",
        "  jit       50.00    1.0 s       0.90       80%     1.0e-06",
        "  inductor                                                   failed: no C++ compiler",
    ]


def test_the_table_has_no_column_for_what_did_not_run() -> None:
    text = report.table(CASE, ["zendnn", "zendnn_eager"], LIMITS)
    assert "zendnn_eager/it" not in text


def test_a_note_reaches_the_table() -> None:
    text = report.table(case(series("zendnn", 1.0, note="nothing ran on ZenDNN")), ["zendnn"], {})
    assert text.splitlines()[2].endswith("nothing ran on ZenDNN")


def test_the_summary_averages_over_the_models() -> None:
    second = case(
        series("zendnn", 10.0),
        series("jit", 25.0),
        series("openvino", 20.0),
        model="bert@1",
    )
    lines = report.summary([CASE, second], ["zendnn"]).splitlines()
    assert [line.split() for line in lines[2:]] == [
        ["fp32", "jit", "0.60", "2"],
        ["fp32", "the", "fastest", "of", "them", "0.67", "2"],
    ]
    assert report.summary([CASE], ["zendnn"]) == ""
    assert report.summary([second, second], []) == ""


def test_the_json_holds_every_round_and_no_infinity() -> None:
    broken = case(series("zendnn", 1.0), series("jit", 2.0, error=math.inf))
    found = report.as_json([CASE, broken], ["zendnn"], LIMITS)
    text = json.dumps(found, allow_nan=False)
    first, second = json.loads(text)
    zendnn, jit, openvino, inductor = first["backends"]
    assert [sample["ms"] for sample in zendnn["rounds"]] == [40.0, 50.0, 90.0]
    assert jit["ratios"] == {"zendnn": 0.9}
    assert openvino["wrong"]
    assert inductor["failure"] == "no C++ compiler"
    assert second["backends"][1]["rounds"][0]["error"] is None


def test_the_plot_is_svg_with_a_bar_for_each_time() -> None:
    root = ElementTree.fromstring(plot.svg([CASE], ["zendnn"], "Times on <this> & that"))
    space = "{http://www.w3.org/2000/svg}"
    bars = {
        bar.get("fill"): float(bar.get("width", ""))
        for bar in root.iter(f"{space}rect")
        if bar.get("x")
    }
    assert bars == {plot.OUR_COLOUR: 440.0, plot.PEER_COLOUR: 440.0, plot.BAD_COLOUR: 88.0}
    words = [text.text for text in root.iter(f"{space}text")]
    assert words[0] == "Times on <this> & that"
    assert "50 ms, zendnn/it 0.90" in words
    assert "10 ms, WRONG" in words
    assert "failed: no C++ compiler" in words


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("echo much >&2; echo 'ImportError: no libfast' >&2; exit 1", "ImportError: no libfast"),
        ("kill -SEGV $$", "ended by SIGSEGV"),
        ("exit 0", "no message"),
    ],
)
def test_a_worker_without_a_result_is_a_failure_with_a_reason(
    text: str, failure: str, tmp_path: Path
) -> None:
    python = program(tmp_path / "python", text)
    assert compare.ask_worker(str(python), [], {}) == {"failure": failure}


def test_absent_backends_are_named_with_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bare = str(program(tmp_path / "bare", "echo '{}'"))
    monkeypatch.setattr(
        compare,
        "ask_worker",
        lambda python, *_: {} if python == bare else {"torch": "2", "transformers": "4"},
    )
    options = compare.parse_arguments(
        ["--backends", "eager,openvino,zentorch", "--python", f"zentorch={bare}"]
    )
    present, absent = compare.installed(options)
    assert present == {"eager": {"torch": "2", "transformers": "4"}}
    assert absent == {
        "openvino": f"{sys.executable} has no openvino",
        "zentorch": f"{bare} has no torch and no zentorch and no transformers",
    }


def test_int8_needs_a_quantiser_and_floats_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"torch": "2", "openvino": "2026", "transformers": "4"}
    monkeypatch.setattr(compare, "ask_worker", lambda *_: here)
    chosen = ["--models", "mlp@1", "--backends", "openvino,eager"]
    assert set(compare.installed(compare.parse_arguments(chosen))[0]) == {"openvino", "eager"}
    options = compare.parse_arguments([*chosen, "--precisions", "int8"])
    assert compare.installed(options)[1] == {"openvino": f"{sys.executable} has no nncf"}


def test_a_backend_says_in_which_precisions_it_does_not_run() -> None:
    options = compare.parse_arguments(["--precisions", "fp32,bf16,int8"])
    present = {"eager": {"torch": "2"}, "onnxruntime": {"torch": "2"}}
    assert compare.standing("eager", options, present, {}) == "torch 2 (not in int8)"
    assert compare.standing("onnxruntime", options, present, {}) == "torch 2 (not in bf16)"


def test_an_absent_backend_is_one_line_and_no_error(
    canned: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    canned(eager=2.0, absent=["zentorch"])
    assert compare.main(["--models", "mlp@1", "--backends", "eager,zentorch"]) == 0
    assert "zentorch  absent: no such package" in capsys.readouterr().out


def test_nothing_installed_is_an_error(
    canned: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    canned(absent=["zentorch"])
    assert compare.main(["--models", "mlp@1", "--backends", "zentorch"]) == 2
    assert capsys.readouterr().err == "error: nothing to measure: no such package\n"


@pytest.fixture
def canned(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Replaces processes and the limit by milliseconds, a Sample or a failure per backend."""

    def replace(*, absent: list[str] | None = None, **answers: Any) -> list[str]:
        turns: list[str] = []

        def turn(backend: str, model: str, precision: str, *_: Any) -> Sample | str:
            turns.append(f"{model} {precision} {backend}")
            answer = answers[backend]
            return Sample(answer, 0.1, 0.0, 1.0) if isinstance(answer, float) else answer

        present = {name: {"torch": "2"} for name in answers}
        missing = dict.fromkeys(absent or [], "no such package")
        monkeypatch.setattr(compare, "installed", lambda options: (present, missing))
        monkeypatch.setattr(limit, "measure", lambda threads: {"fp32": 100.0, "bf16": 200.0})
        monkeypatch.setattr(compare, "turn", turn)
        return turns

    return replace


def test_backends_take_turns(canned: Callable[..., list[str]]) -> None:
    turns = canned(zendnn=1.0, onnxruntime=2.0)
    options = ["--models", "mlp@1", "--precisions", "fp32,bf16", "--rounds", "2"]
    assert compare.main([*options, "--backends", "zendnn,onnxruntime"]) == 0
    assert turns == [
        "mlp@1 fp32 zendnn",
        "mlp@1 fp32 onnxruntime",
        "mlp@1 fp32 zendnn",
        "mlp@1 fp32 onnxruntime",
        "mlp@1 bf16 zendnn",
        "mlp@1 bf16 zendnn",
    ]


def test_a_wrong_result_fails_the_run(
    canned: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    canned(zendnn=1.0, jit=Sample(1.0, 0.1, 0.5, 1.0))
    assert compare.main(["--models", "mlp@1", "--backends", "zendnn,jit"]) == 1
    captured = capsys.readouterr()
    assert "WRONG" in captured.out
    assert captured.err.endswith(
        "error: mlp@1 in fp32 on jit is WRONG by 5.0e-01 (allowed 1e-04)\n"
    )


def test_a_failure_is_printed_and_not_retried(
    canned: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    turns = canned(zendnn=1.0, inductor="no C++ compiler")
    assert compare.main(["--models", "mlp@1", "--backends", "zendnn,inductor"]) == 1
    assert turns.count("mlp@1 fp32 inductor") == 1
    assert "failed: no C++ compiler" in capsys.readouterr().out


def test_a_machine_without_a_compiler_has_no_known_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CC", "no-such-cc")
    limits, reported = compare.limits_of(compare.parse_arguments([]))
    assert limits == {}
    assert reported.startswith("unknown: no-such-cc could not be started")


def test_the_limit_is_measured() -> None:
    limits = limit.measure(1, seconds=0.05)
    assert limits["fp32"] > 1
    flags = Path("/proc/cpuinfo").read_text().split()
    assert ("int8" in limits) == ("avx512_vnni" in flags or "avx_vnni" in flags)
    # An instruction that multiplies four bytes does at least as much as one of floats.
    assert limits.get("int8", math.inf) > limits["fp32"]
    assert not list(limit.BUILD.glob(f"peak.{os.getpid()}"))


def test_the_bandwidth_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit, "cold_bytes", lambda: 16 * limit.MIB)
    assert limit.bandwidth(2, seconds=0.05) > 0.1
    assert not list(limit.BUILD.glob(f"bandwidth.{os.getpid()}"))


@pytest.mark.parametrize(
    ("caches", "mebibytes"),
    [(["32K", "1024K"], 256), (["1024K", f"{256 * 1024}K"], 512), (["2097152K"], 1024), ([], 256)],
)
def test_cold_memory_is_larger_than_the_largest_cache_up_to_a_bound(
    caches: list[str], mebibytes: int, tmp_path: Path
) -> None:
    for number, size in enumerate(caches):
        (tmp_path / f"index{number}").mkdir()
        (tmp_path / f"index{number}" / "size").write_text(f"{size}\n")
    assert limit.cold_bytes(str(tmp_path)) == mebibytes * limit.MIB


def test_a_difference_is_relative_and_infinite_for_invalid_results() -> None:
    torch = pytest.importorskip("torch")
    want = torch.tensor([1.0, -4.0])
    assert worker.difference(torch.tensor([1.0, -4.5]), want) == 0.125
    assert worker.difference(torch.tensor([1.0, math.nan]), want) == math.inf
    assert worker.difference(torch.tensor([1.0]), want) == math.inf


def test_attention_is_counted() -> None:
    torch = pytest.importorskip("torch")

    class Attention(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, x: Any) -> Any:
            return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    _, gflop = worker.reference(Attention(), (torch.randn(1, 2, 8, 4),))
    assert gflop * 1e9 == 2 * (2 * 2 * 8 * 8 * 4)


def test_dlrm_multiplies_each_pair_of_vectors_once() -> None:
    torch = pytest.importorskip("torch")
    from benchmarks.networks import Dlrm

    module = Dlrm(features=3, tables=2, rows=5, width=4)
    module.top = torch.nn.Identity()
    features, ids = torch.randn(2, 3), torch.randint(0, 5, (2, 2, 1))
    dense = module.bottom(features).relu()
    one, two = (bag.weight[index[:, 0]] for bag, index in zip(module.bags, ids, strict=True))
    pairs = [(one * dense).sum(1), (two * dense).sum(1), (two * one).sum(1)]
    torch.testing.assert_close(module(features, ids), torch.cat([dense, torch.stack(pairs, 1)], 1))


@pytest.mark.parametrize(("name", "batches"), [("mlp@1", 32), ("mlp@20", 2), ("mlp@64", 1)])
def test_calibration_draws_enough_inputs_the_same_in_each_process(name: str, batches: int) -> None:
    torch = pytest.importorskip("torch")
    module, inputs = models.build(name)
    first, second = models.calibration(name, module), models.calibration(name, module)
    assert len(first) == batches
    assert all(torch.equal(*both) for both in zip(*first[0:1], *second[0:1], strict=True))
    assert all(batch[0].shape == inputs[0].shape for batch in first)
    assert not any(torch.equal(batch[0], inputs[0]) for batch in first)


def test_batch_norm_statistics_are_calibrated() -> None:
    torch = pytest.importorskip("torch")
    from benchmarks.networks import settle

    norm = torch.nn.BatchNorm2d(2, eps=0.0)
    images = torch.randn(2, 2, 8, 8) * 1e-3
    assert settle(norm, images)(images).square().mean().item() == pytest.approx(1)
    assert not norm.training


def test_a_small_real_run_measures_prints_and_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit, "measure", lambda threads: {"fp32": 100.0})
    out, picture = tmp_path / "found.json", tmp_path / "found.svg"
    options = ["--models", "mlp@8", "--backends", "zendnn,eager,zentorch"]
    options += ["--rounds", "1", "--seconds", "0.1", "--threads", "1"]
    options += ["--json", str(out), "--plot", str(picture)]
    assert compare.main(options) == 0
    captured = capsys.readouterr()
    assert "mlp@8, fp32, round 1 of 1: eager" in captured.err
    assert "mlp@8, fp32, 0.000197 Gflop" in captured.out
    found = json.loads(out.read_text())
    (only,) = found["cases"]
    assert only["gflop"] == pytest.approx(3 * 2 * 8 * 64 * 64 / 1e9)
    zendnn, eager, *_ = only["backends"]
    assert zendnn["ms"] > 0
    assert eager["ratios"]["zendnn"] == pytest.approx(zendnn["ms"] / eager["ms"])
    assert eager["rounds"][0]["error"] == 0
    assert "<svg" in picture.read_text()
