"""tools/wheels/drop_in.py: an official torch wheel with our files, and no other difference."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest

from tools.setup_helpers import wheel_file
from tools.setup_helpers.errors import SetupError
from tools.wheels import drop_in
from tools.wheels.policy import Audit

INFO = "torch-2.13.0+zendnn.1.2.3.dist-info"
Write = Callable[..., Path]
pytestmark = pytest.mark.usefixtures("auditor")


@pytest.fixture
def made(make_base: Write, make_companion: Write, tmp_path: Path) -> Path:
    return drop_in.make(make_base(), make_companion(), tmp_path / "dist")


def contents(path: Path) -> dict[str, bytes]:
    with wheel_file.opened(path) as wheel:
        return {name: found.read() for name, found in wheel.files.items()}


def test_holds_the_files_of_both_and_the_bases_are_unchanged(
    made: Path, make_base: Write, make_companion: Write
) -> None:
    found, theirs, ours = contents(made), contents(make_base()), contents(make_companion())
    theirs = {name: data for name, data in theirs.items() if ".dist-info/" not in name}
    ours = {name: data for name, data in ours.items() if ".dist-info/" not in name}
    found = {name: data for name, data in found.items() if ".dist-info/" not in name}
    assert found.keys() == theirs.keys() | ours.keys()
    differing = [name for name, data in {**theirs, **ours}.items() if found[name] != data]
    assert differing == ["torch/version.py"]


def test_is_named_and_says_that_it_is_torch_with_zendnn(made: Path) -> None:
    assert made.name == "torch-2.13.0+zendnn.1.2.3-cp311-cp311-manylinux_2_34_x86_64.whl"
    with wheel_file.opened(made) as wheel:
        assert (wheel.name, wheel.version) == ("torch", "2.13.0+zendnn.1.2.3")
        assert wheel.tags == ("cp311-cp311-manylinux_2_34_x86_64",)
        assert wheel_file.wrong_records(wheel) == ()
        version = wheel.files["torch/version.py"].read().decode()
    assert "__version__ = '2.13.0+zendnn.1.2.3'\ncuda = 1\n" in version


def test_metadata_differs_in_the_version_and_the_licences(made: Path) -> None:
    with wheel_file.opened(made) as wheel:
        text = wheel.text("METADATA")
    headers, _, description = text.partition("\n\n")
    assert headers.split("\n") == [
        "Metadata-Version: 2.4",
        "Name: torch",
        "Version: 2.13.0+zendnn.1.2.3",
        "License-Expression: BSD-3-Clause AND MIT AND Apache-2.0",
        "License-File: LICENSE",
        "License-File: torch-zendnn/LICENSE",
        "License-File: torch-zendnn/onednn/LICENSE",
    ]
    assert description == "Version: in the description\n"
    found = contents(made)
    assert found[f"{INFO}/licenses/LICENSE"] == b"torch's"
    assert found[f"{INFO}/licenses/torch-zendnn/onednn/LICENSE"] == b"theirs"


def test_metadata_of_before_licences_had_headers_gets_none(
    make_base: Write, make_companion: Write, tmp_path: Path
) -> None:
    made = drop_in.make(make_base(metadata="2.1"), make_companion(), tmp_path)
    with wheel_file.opened(made) as wheel:
        assert wheel.headers("METADATA").get_all("License-File") == ["LICENSE"]
        assert f"{INFO}/licenses/torch-zendnn/LICENSE" in wheel.files


def test_entry_points_are_those_of_both(made: Path) -> None:
    parser = ConfigParser()
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(contents(made)[f"{INFO}/entry_points.txt"].decode())
    assert {group: dict(parser[group]) for group in parser.sections()} == {
        "console_scripts": {"torchRun": "torch.run:main"},
        "torch.backends": {"zendnn": "torch.backends.zendnn._hooks:install"},
    }


def test_names_the_base_among_what_it_is_made_from(made: Path, make_base: Write) -> None:
    found = contents(made)
    bom: Any = json.loads(found[f"{INFO}/sboms/torch.cdx.json"])
    assert [part["name"] for part in bom["components"]] == ["torch", "zendnnify", "onednn"]
    assert bom["metadata"]["component"]["version"] == "2.13.0+zendnn.1.2.3"
    (theirs, *_) = json.loads(found[f"{INFO}/provenance.json"])["buildDefinition"][
        "resolvedDependencies"
    ]
    assert theirs["digest"]["sha256"] == hashlib.sha256(make_base().read_bytes()).hexdigest()
    assert theirs["uri"] == "pkg:pypi/torch@2.13.0%2Bcpu"


def test_equal_inputs_give_equal_bytes(
    make_base: Write, make_companion: Write, tmp_path: Path
) -> None:
    one, two = (
        drop_in.make(make_base(), make_companion(), tmp_path / name).read_bytes()
        for name in ("1", "long/name")
    )
    assert one == two


@pytest.mark.parametrize(
    ("base", "platform", "tag"),
    [
        ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_28_x86_64"),
        ("manylinux_2_28_x86_64", "manylinux_2_35_x86_64", "manylinux_2_35_x86_64"),
        ("linux_x86_64", "manylinux_2_28_x86_64", "linux_x86_64"),
        ("manylinux_2_28_x86_64", "linux_x86_64", "linux_x86_64"),
    ],
)
def test_promises_no_older_system_than_either(
    make_base: Write,
    make_companion: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    base: str,
    platform: str,
    tag: str,
) -> None:
    monkeypatch.setattr(drop_in, "audit", lambda path: Audit(platform, ()))
    theirs = make_base(tag=f"cp311-cp311-{base}")
    assert drop_in.make(theirs, make_companion(), tmp_path).name.endswith(f"-cp311-{tag}.whl")


@pytest.mark.parametrize(
    ("theirs", "ours", "says"),
    [
        ({"name": "numpy"}, {}, "is a wheel of numpy: give a wheel of torch"),
        ({"version": "2.13.0+zendnn.1.2.3"}, {}, "which has ZenDNN already: give the official"),
        ({"version": "2.14.0"}, {}, "was built against torch 2.13.0 and .* is torch 2.14.0: give"),
        ({"version": "2.13.0.post1"}, {}, "was built against torch 2.13.0 and"),
        (
            {"tag": "cp312-cp312-manylinux_2_28_x86_64"},
            {},
            "is for cp311-cp311-linux_x86_64 and .* for cp312-cp312-manylinux_2_28_x86_64: give",
        ),
        ({"tag": "cp311-cp311-manylinux_2_28_aarch64"}, {}, "give two wheels for the same Python"),
        ({"tag": "cp311-cp311-win_amd64"}, {}, "has the tag '.*win_amd64': give a wheel for Linux"),
        ({}, {"files": {}}, "is not a wheel of torch-zendnn with ZenDNN: build one"),
        ({}, {"notes": {}}, "has no provenance.json that names its sources: build it again"),
        ({"files": {"torch/lib/libtorch_zendnn.so": b""}}, {}, "has a .* which ours would replace"),
        ({"files": {"torch/version.py": b"x = 1\n"}}, {}, "does not state its version in torch/"),
    ],
)
def test_wheels_that_do_not_belong_together_are_refused_in_one_sentence(
    make_base: Write,
    make_companion: Write,
    tmp_path: Path,
    theirs: dict[str, Any],
    ours: dict[str, Any],
    says: str,
) -> None:
    with pytest.raises(SetupError, match=says) as refused:
        drop_in.make(make_base(**theirs), make_companion(**ours), tmp_path / "dist")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "dist").exists()


def test_a_truncated_base_is_refused(
    make_base: Write, make_companion: Write, tmp_path: Path
) -> None:
    path = make_base()
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(SetupError, match=r"is damaged .*: get it again"):
        drop_in.make(path, make_companion(), tmp_path / "dist")


def test_a_base_that_is_not_what_its_record_says_is_refused(
    make_base: Write, make_companion: Write, tmp_path: Path
) -> None:
    path = make_base()
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("torch/added.py", "")
    with pytest.raises(SetupError, match=r"is damaged \(RECORD does not list torch/added\.py\)"):
        drop_in.make(path, make_companion(), tmp_path / "dist")


def test_pip_goes_from_the_official_wheel_to_it_and_back_and_leaves_nothing(
    made: Path, make_base: Write, tmp_path: Path
) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv/bin/python"
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]

    def files() -> dict[str, bytes]:
        installed = ("INSTALLER", "RECORD", "REQUESTED", "direct_url.json")
        return {
            path.relative_to(tmp_path).as_posix(): path.read_bytes()
            for path in (tmp_path / "venv").rglob("*")
            if path.is_file() and path.suffix != ".pyc" and path.name not in installed
        }

    def run(*arguments: str) -> None:
        subprocess.run([*pip, *arguments, "--quiet"], check=True)

    def install(path: Path) -> str:
        # pip takes wheels for its own Python only.
        local = path.with_name(path.name.replace("cp311", tag))
        if local != path:
            local.write_bytes(path.read_bytes())
        run("install", "--no-deps", "--no-index", "--no-compile", str(local))
        command = [str(python), "-c", "import torch; print(torch.__version__)"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    official = make_base(tag="cp311-cp311-manylinux_2_5_x86_64")
    empty = files()
    assert install(made) == "2.13.0+zendnn.1.2.3"
    (site,) = (tmp_path / "venv/lib").glob("python*/site-packages")
    assert (site / "torch/lib/libtorch_zendnn.so").stat().st_mode & 0o111
    assert install(official) == "2.13.0+cpu"
    theirs = {str(site.relative_to(tmp_path) / name) for name in contents(official)}
    assert {name for name in files().keys() - empty.keys() if "/bin/" not in name} == {
        name for name in theirs if not name.endswith("/RECORD")
    }
    install(made)
    run("uninstall", "--yes", "torch")
    assert files() == empty
