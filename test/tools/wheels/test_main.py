"""tools/wheels/__main__.py: the commands, their tables and exit codes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.setup_helpers import wheel
from tools.wheels import matrix
from tools.wheels.__main__ import main

Write = Callable[..., Path]
DROP_IN = "torch-2.13.0+zendnn.1.2.3-cp311-cp311-manylinux_2_34_x86_64.whl"


@pytest.mark.usefixtures("auditor")
def test_a_drop_in_comes_with_what_it_is_made_from_and_passes_the_checks(
    make_base: Write, make_companion: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheels = ["--base", str(make_base()), "--companion", str(make_companion())]
    out = tmp_path / "dist"
    assert main(["drop-in", *wheels, "--out", str(out)]) == 0
    result = [str(out / (DROP_IN + suffix)) for suffix in ("", ".cdx.json", ".provenance.json")]
    assert capsys.readouterr().out.splitlines() == result
    assert sorted(map(str, out.iterdir())) == result
    assert main(["check", result[0]]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == result[0]
    assert [line.split()[:2] for line in lines[1:]] == [
        [name, "ok"]
        for name in ("name", "platform", "libraries", "size", "record", "licences", "sbom")
    ]


@pytest.mark.usefixtures("auditor")
def test_the_companion_is_the_one_of_the_out_folder(
    make_base: Write,
    make_companion: Write,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wheel, "version", lambda: "1.2.3")
    companion = make_companion()
    command = ["drop-in", "--base", str(make_base()), "--out", str(companion.parent)]
    assert main(command) == 0
    companion.unlink()
    assert main(command) == 2
    assert "holds 0 wheels torch_zendnn-1.2.3-cp311-cp311-*.whl, not one" in capsys.readouterr().err


@pytest.mark.usefixtures("auditor")
def test_a_wrong_wheel_gives_1_and_what_is_no_wheel_2(
    make_companion: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(make_companion(notes={}))]) == 1
    assert "sbom       WRONG  0 files in sboms/, not one" in capsys.readouterr().out
    assert main(["check", str(tmp_path / "none.whl")]) == 2
    assert capsys.readouterr().err.startswith("error: cannot read ")


def test_a_matrix_is_a_table_and_a_missing_wheel_gives_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "find_python", lambda version: None)
    assert main(["build", "--python", "3.98,3.99", "--torch", "2.6.0", "--only", "3.99"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "[1/1] python3.99-torch2.6.0: no python",
        "python  torch  state      time",
        "3.99    2.6.0  no python  0 s   there is no python3.99 on PATH",
    ]
