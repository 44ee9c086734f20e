"""The doctor as a command: planted problems in one process, its formats, and wrong inputs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from torch import nn
from torch.backends.zendnn.doctor import command, limits, machine, model, trials
from torch.backends.zendnn.doctor.findings import Finding, examine, ranked
from torch.backends.zendnn.doctor.report import Report, colours

from .clean import LOG, MACHINE, MODEL

#: Two runtimes of OpenMP, subnormal weights, float64, layouts that go to and fro, batches of 1.
PLANTED = """
import ctypes, shutil, sys, tempfile, torch
from pathlib import Path
from torch import nn

print("this is the script's", flush=True)
runtime = next(Path(torch.__file__).parent.glob("lib/libgomp*.so*"))
copied = shutil.copy(runtime, sys.argv[1])
ctypes.CDLL(copied)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(2))
        self.head = nn.Linear(8 * 16 * 16, 64).double()
    def forward(self, x):
        for layer in self.layers:
            x = layer(x.contiguous(memory_format=torch.channels_last)).contiguous()
        return self.head(x.flatten(1).double())

net = Net().eval()
with torch.no_grad():
    net.layers[0].weight.mul_(1e-39)
    for _ in range(10):
        net(torch.rand(1, 8, 16, 16))
"""


def test_problems_of_a_process_and_its_script_are_found(tmp_path: Path) -> None:
    """One thread by OpenMP's variable, and a debug build that is preloaded, are real, too."""
    library, folder = tmp_path / "libslow.so", tmp_path / "copy"
    (tmp_path / "slow.c").write_text("int slow(int x) { return x + 1; }\n")
    compiler = [os.environ.get("CC", "cc"), "-g", "-O0", "-shared", "-fPIC"]
    subprocess.run([*compiler, "slow.c", "-o", library], cwd=tmp_path, check=True)
    (tmp_path / "script.py").write_text(PLANTED)
    folder.mkdir()
    words = ["-m", "torch.backends.zendnn", "doctor", "--json", "--no-measure", "--html", "a.html"]
    done = subprocess.run(
        [sys.executable, *words, "script.py", str(folder)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=True,
    )
    report = json.loads(done.stdout)
    found = {finding["check"]: finding for finding in report["findings"]}
    assert "this is the script's" in done.stderr
    assert found["debug_builds"]["evidence"] == f"{library}: it was compiled without optimisation"
    assert found["debug_builds"]["fix"] == "unset LD_PRELOAD"
    assert str(folder) in found["openmp_runtimes"]["evidence"]
    assert {"double", "ping_pong", "subnormals", "single"} <= found.keys()
    assert found["single"]["problem"] == "10 calls had a batch of 1"
    assert "script.py:" in found["ping_pong"]["evidence"]
    if len(os.sched_getaffinity(0)) > 1:
        assert found["few_threads"]["evidence"] == "OMP_NUM_THREADS=1"
    assert "compiled without optimisation" in (tmp_path / "a.html").read_text()


def test_importing_torch_imports_nothing_of_it() -> None:
    code = "import sys, torch; print([name for name in sys.modules if 'doctor' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A TorchScript model of one input."""
    file = tmp_path / "model.pt"
    torch.jit.save(torch.jit.script(nn.Sequential(nn.Linear(8, 4), nn.ReLU())), file)
    return file


def test_a_torchscript_model_is_examined_and_measured(
    saved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (limits, trials):
        monkeypatch.setattr(module, "SECONDS", 0.001)
    monkeypatch.setattr(limits, "_LARGEST", 1 << 20)
    assert command.main(["--input", "4x8", str(saved)]) == 0
    out, err = capsys.readouterr()
    for title in ("Machine", "Matrix products by threads", "Time of Sequential", "Tried on Seq"):
        assert re.search(f"^{title}", out, re.MULTILINE), title
    assert re.search(r"^  frozen +\d+\.\d+ +([-+]\d+ %|.* x slower)", out, re.MULTILINE)
    assert re.search(r"^  limits .*reading memory [\d.]+ GB/s$", out, re.MULTILINE)
    assert "\x1b" not in out
    assert "doctor: trying frozen" in err


def test_a_log_is_examined_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_text("dnnl_verbose,exec,cpu,matmul,ref:any,undef,,,,2x2:2x2,4\n")
    assert command.main(["--log", str(tmp_path / "a.log")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Time of the log: 4.00 ms",
        "     ms    share  calls  route      primitive  implementation, or why not ZenDNN",
        "  4.000  100.0 %      1  primitive  matmul     ref:any",
        "",
        "1 finding",
        "  1. matmul ran once on reference kernels: costs 100 % of the log's time",
        "     seen  ref:any, 2x2:2x2",
        "     mend  use float32 or bfloat16, dense tensors and common attributes; ZENDNN_VERBOSE=2 "
        "or ONEDNN_VERBOSE=dispatch tells why others refused",
    ]


def test_a_script_without_modules_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.py").write_text("print('hello')\n")
    assert command.main(["--no-measure", str(tmp_path / "a.py")]) == 1
    assert capsys.readouterr().out.endswith("a.py called no torch.nn.Module\n")


WRONG = {
    "there is no file 'nowhere.py': name a saved model or a script": ["nowhere.py"],
    "model.pt takes 1 input: add --input SIZES[:DTYPE] for each": ["model.pt"],
    "model.pt fails on these inputs: give others with --input": ["--input", "3", "model.pt"],
    "weights.pt is no saved model: save one with torch.jit.save": ["weights.pt"],
    "--input is for saved models: a script makes its own": ["--input", "3", "a.log"],
    "a.log has no verbose line: set ZENDNN_VERBOSE=1": ["--log", "a.log"],
    "none.log cannot be read: No such file or directory": ["--log", "none.log"],
    "--log reads what has run already: leave out": ["--log", "a.log", "model.pt"],
    "there is no folder for none/a.html: make it": ["--html", "none/a.html"],
}


@pytest.mark.parametrize("sentence", WRONG)
def test_a_wrong_input_is_refused_in_one_sentence(
    sentence: str,
    saved: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(saved.parent)
    torch.save({"weight": torch.ones(2)}, "weights.pt")
    Path("a.log").write_text("hello\n")
    assert command.main(WRONG[sentence]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert sentence in err
    assert err.count("\n") == 1
    assert sorted(os.listdir()) == ["a.log", "model.pt", "weights.pt"]


@pytest.mark.parametrize("text", ["", "3x", "axb", "3x4:float33", "3:nn", "-1"])
def test_a_wrong_size_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main([f"--input={text}"])
    assert "is no input such as 1x3x224x224" in capsys.readouterr().err


# The report


def report() -> Report:
    """One of everything."""
    facts, seen = replace(MACHINE, threads=4), replace(MODEL, gradients=True)
    found = (*examine(machine.CHECKS, facts), *examine(model.CHECKS, seen))
    return Report(ranked(found), facts, seen, LOG, ("a note <&>",))


def test_findings_are_in_order_of_cost() -> None:
    found = [Finding("a", "", ""), Finding("b", "", "", 5.0), Finding("c", "", "", 50.0)]
    assert [finding.problem for finding in ranked(found)] == ["c", "b", "a"]


def test_colours_are_for_terminals() -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    terminal: Any = Terminal()
    assert colours(terminal, {})
    assert not colours(terminal, {"NO_COLOR": "1"})
    assert not colours(terminal, {"TERM": "dumb"})
    with open(os.devnull) as file:
        assert not colours(file, {})
    coloured = report().text(colours=True)
    assert "\x1b[1;31m" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == report().text()


def test_lines_of_text_are_aligned_and_short() -> None:
    text = report().text()
    findings = text[text.index("2 findings") :].splitlines()
    assert findings[1].startswith("  1. torch uses 4 threads on 8 cores: costs 43 % of a product")
    assert all(line.startswith(("     seen  ", "     mend  ")) for line in findings[2:4])
    assert all(line == line.rstrip() for line in text.splitlines())


def test_json_has_all_that_text_has() -> None:
    read = json.loads(report().json())
    assert read["findings"][0]["cost"] == pytest.approx(100 * (1 - 400 / 700))
    assert read["facts"]["limits"]["read"] == 100.0
    assert read["model"]["operations"][1]["events"][0]["dtypes"][0] == "torch.float32"
    assert read["log"]["executions"][0]["kind"] == "matmul"
    assert read["notes"] == ["a note <&>"]


def test_html_is_well_formed_and_needs_nothing_else() -> None:
    text = report().html()
    opened: list[str] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attributes: Any) -> None:
            if tag not in ("meta", "br", "rect"):
                opened.append(tag)
            assert not {"src", "href"} & {name for name, _ in attributes}

        def handle_endtag(self, tag: str) -> None:
            if tag != "rect":
                assert opened.pop() == tag

    Parser().feed(text)
    assert opened == []
    plots = re.findall("<svg.*?</svg>", text, re.DOTALL)
    assert len(plots) == 4
    bars = ElementTree.fromstring(plots[0]).findall("{http://www.w3.org/2000/svg}rect")
    assert [float(bar.attrib["width"]) for bar in bars] == [60.0, 240.0, 420.0, 210.0]
    assert "a note &lt;&amp;&gt;" in text
