"""tools/chroot.py: it follows the steps of a Containerfile, which are scripts of the repository."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tools import chroot as module
from tools.setup_helpers.errors import SetupError

REPO = Path(__file__).resolve().parents[2]
FILES = sorted((REPO / "container").glob("*.Containerfile"))


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """The commands that were run, as root, in place of running them."""
    recorded: list[Sequence[str]] = []

    def run(command: Sequence[str], environ: Mapping[str, str], what: str = "") -> None:
        recorded.append(command)
        if "debootstrap" in command:
            for folder in ("etc/ssl/certs", "proc", "dev"):
                (tmp_path / "root" / folder).mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(module, "_run", run)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(module, "NETWORK", ())
    monkeypatch.setenv("MIRROR", "http://mirror")
    monkeypatch.chdir(tmp_path)
    return recorded


def build(folder: Path, text: str, *arguments: str) -> None:
    (folder / "Containerfile").write_text(text)
    module.build(folder / "Containerfile", folder / "root", arguments)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_repositorys_files_run_its_scripts(file: Path) -> None:
    steps = module.steps(file.read_text(), str(file))
    copied = {
        Path(source).name: REPO / source
        for step in steps
        if step.instruction == "COPY"
        for source in step.text.split()[:-1]
    }
    for step in steps:
        if step.instruction in ("RUN", "ENTRYPOINT") and "python" not in step.text:
            script = re.search(r"\.[\w/]*/([\w-]+)", step.text)
            assert script, step
            path = copied.get(script[1], REPO / script[0])
            assert os.access(path, os.X_OK), path


def test_serving_is_not_done_by_root() -> None:
    steps = module.steps((REPO / "container/serve.Containerfile").read_text(), "serve")
    (user,) = (step.text for step in steps if step.instruction == "USER")
    assert user.split(":")[0] not in ("0", "root")


def test_steps_make_what_later_ones_use(
    calls: list[Sequence[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.whl").write_text("wheel")
    build(
        tmp_path,
        "ARG IMAGE=debian:trixie-slim\nFROM ${IMAGE}\nCOPY *.whl /wheels/\nRUN ./install\n"
        'USER 7:7\nWORKDIR /srv\nENTRYPOINT ["python"]\nCMD ["-m", "x"]\n',
    )
    base, install, entry = calls
    assert base[:3] == ["unshare", "--mount", "debootstrap"]
    assert base[-3:] == ["trixie", str(tmp_path / "root"), "http://mirror"]
    assert (tmp_path / "root/wheels/a.whl").read_text() == "wheel"
    assert install[-6:-1] == ["0:0", "/", install[-4], "sh", "-c"]
    assert entry[-6:] == ["7:7", "/srv", entry[-4], "python", "-m", "x"]
    assert re.search(r"-- \S+/root has \d+ MB", capsys.readouterr().out)


def test_arguments_replace_the_command_and_a_base_is_made_once(
    calls: list[Sequence[str]], tmp_path: Path
) -> None:
    text = 'FROM debian:sid\nENTRYPOINT ["wheel"]\nCMD ["all"]\n'
    build(tmp_path, text, "3.13", "2.6.0")
    build(tmp_path, text, "3.13", "2.6.0")
    assert [command[-3:] for command in calls[1:]] == [["wheel", "3.13", "2.6.0"]] * 2


def test_the_environment_gives_values_to_arguments(
    calls: list[Sequence[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IMAGE", "debian:forky")
    build(tmp_path, "ARG IMAGE=debian:sid\nFROM ${IMAGE}\nRUN true\n")
    assert "forky" in calls[0]


def test_a_folder_with_something_else_stays_as_it_is(
    calls: list[Sequence[str]], tmp_path: Path
) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/mine").touch()
    with pytest.raises(SetupError, match="holds other files: name a new folder"):
        build(tmp_path, "FROM debian:sid\n")
    (tmp_path / "root/.chroot").write_text("trixie")
    with pytest.raises(SetupError, match="holds trixie, not sid: name a new folder"):
        build(tmp_path, "FROM debian:sid\n")
    assert (tmp_path / "root/mine").exists()
    assert not calls


def test_an_unfinished_base_is_made_anew(
    calls: list[Sequence[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = module._run

    def interrupted(command: Sequence[str], environ: Mapping[str, str]) -> None:
        run(command, environ)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path, "FROM debian:sid\n")
    monkeypatch.setattr(module, "_run", run)
    build(tmp_path, "FROM debian:sid\n")
    assert ["debootstrap" in command for command in calls] == [True, True, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FROM fedora:40", "the base is fedora:40: give a release of Debian"),
        ("FROM debian:sid\nVOLUME /x", r"Containerfile:2: 'VOLUME /x' is none of the steps"),
        ("FROM debian:sid\nRUN a && \\\n  b", r"Containerfile:2: .*each on one line"),
        ("FROM debian:sid\nCOPY --from=x a b", r"Containerfile:2: .*without options"),
        (
            "ARG WHEEL\nFROM debian:sid\nCOPY ${WHEEL} /x",
            "nothing is copied to /x: give the file's",
        ),
        ("FROM debian:sid\nCOPY none.whl /x", r"there is no none\.whl in .*: make it first"),
    ],
)
def test_what_cannot_be_followed_is_refused(
    calls: list[Sequence[str]], tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(SetupError, match=message):
        build(tmp_path, text)


def test_other_users_are_told_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SetupError, match="needs root's rights: run this as root"):
        build(tmp_path, "FROM debian:sid\n")


def test_a_missing_file_gives_2(
    calls: list[Sequence[str]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert module.main([str(tmp_path / "none"), str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"error: cannot read {tmp_path}/none: ")


def test_a_failing_command_is_named_whole() -> None:
    with pytest.raises(SetupError, match=r"^'\./install all' failed \(exit code 1\); "):
        module._run(["false"], {"PATH": "/usr/bin:/bin"}, "./install all")
