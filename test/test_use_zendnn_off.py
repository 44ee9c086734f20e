"""USE_ZENDNN unset or 0: torch's files stay identical, and nothing native is built."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]


def torch_hashes() -> dict[str, str]:
    """Return the sha256 of every file of the installed torch, by path."""
    files = distribution("torch").files or []
    paths = {file.as_posix(): Path(str(file.locate())) for file in files}
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in paths.items()
        if path.suffix != ".pyc" and path.is_file()
    }


def tree(folder: Path) -> set[str]:
    """Return the paths of all files below `folder`, without compiled Python."""
    return {str(path) for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}


def run(*arguments: str, value: str | None) -> subprocess.CompletedProcess[str]:
    """Run Python with USE_ZENDNN set to `value` (None: unset)."""
    environ = {name: text for name, text in os.environ.items() if name != "USE_ZENDNN"}
    if value is not None:
        environ["USE_ZENDNN"] = value
    return subprocess.run(
        [sys.executable, *arguments], cwd=REPO, env=environ, capture_output=True, text=True
    )


@pytest.mark.parametrize("value", [None, "0"])
def test_torch_keeps_every_byte(value: str | None, tmp_path: Path) -> None:
    """Install next to torch, into a separate folder: torch's files must not change."""
    torch_folder = Path(sysconfig.get_path("purelib")) / "torch"
    hashes, files = torch_hashes(), tree(torch_folder)
    assert len(hashes) > 1000
    assert any(name.endswith("libtorch_cpu.so") for name in hashes)

    built = run("setup.py", "bdist_wheel", "-d", str(tmp_path), value=value)
    assert built.returncode == 0, built.stderr
    assert "set USE_ZENDNN=1 to build" in built.stdout
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    installed = run(
        *("-m", "pip", "install", "--no-deps", "--no-index", "--no-build-isolation"),
        *("--target", str(site), str(REPO)),
        value=value,
    )
    assert installed.returncode == 0, installed.stderr

    assert torch_hashes() == hashes
    assert tree(torch_folder) == files
    for names in ([path.name for path in site.iterdir()], zipfile.ZipFile(wheel).namelist()):
        assert names
        assert all(name.startswith("torch_zendnn-") for name in names)
    assert not any("entry_points" in path for path in tree(site))


def test_another_value_is_an_error(tmp_path: Path) -> None:
    done = run("setup.py", "bdist_wheel", "-d", str(tmp_path), value="TRUE")
    assert done.returncode == 2
    assert done.stderr.startswith("error: USE_ZENDNN is 'TRUE': it can be 1 ")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
