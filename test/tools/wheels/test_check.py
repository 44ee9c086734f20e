"""tools/wheels/check.py: what is wrong with a wheel is found and named."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from test.tools.wheels.conftest import LICENSE, MADE_FROM, Auditor
from tools.setup_helpers import origins, wheel_file
from tools.wheels import check as module
from tools.wheels import drop_in

Write = Callable[..., Path]


def wrong(path: Path) -> Mapping[str, str]:
    return {name: found.text for name, found in module.check(path).items() if found.wrong}


def test_nothing_is_wrong_with_what_we_make(
    make_base: Write, make_companion: Write, tmp_path: Path, auditor: Auditor
) -> None:
    companion = make_companion()
    assert wrong(companion) == {}
    assert wrong(drop_in.make(make_base(), companion, tmp_path)) == {}


@pytest.mark.parametrize(
    ("tag", "says", "is_wrong"),
    [
        ("linux_x86_64", "linux_x86_64 promises nothing; it can be manylinux_2_34_x86_64", False),
        ("manylinux_2_34_x86_64", "manylinux_2_34_x86_64, glibc 2.34, not 2.28: build it", False),
        ("manylinux_2_28_x86_64", "_2_28_x86_64, but symbols need manylinux_2_34_x86_64", True),
    ],
)
def test_a_tag_may_not_promise_more_than_the_symbols_allow(
    make_companion: Write, auditor: Auditor, tag: str, says: str, is_wrong: bool
) -> None:
    found = module.check(make_companion(tag=f"cp311-cp311-{tag}"))["platform"]
    assert says in found.text
    assert found.wrong == is_wrong


def test_the_oldest_platform_needs_no_remark(make_companion: Write, auditor: Auditor) -> None:
    auditor.platform = "manylinux_2_27_x86_64"
    found = module.check(make_companion(tag="cp311-cp311-manylinux_2_28_x86_64"))["platform"]
    assert found == module.Finding("manylinux_2_28_x86_64, glibc 2.28")


def test_libraries_of_others_are_wrong(make_companion: Write, auditor: Auditor) -> None:
    files = {"torch/lib/libtorch_zendnn.so": b"", "torch_zendnn.libs/libgomp-1.so.1.0.0": b""}
    found = wrong(make_companion(files=files))
    assert found["libraries"] == "torch_zendnn.libs/libgomp-1.so.1.0.0 is bundled"
    auditor.outside = ("libtorch_cpu.so", "libblis.so.4")
    assert (
        wrong(make_companion())["libraries"] == "libblis.so.4 is neither torch's nor the system's"
    )


def test_a_second_openmp_is_wrong(
    make_base: Write, make_companion: Write, tmp_path: Path, auditor: Auditor
) -> None:
    base = make_base(files={"torch.libs/libgomp-a3.so.1": b""})
    result = drop_in.make(base, make_companion(), tmp_path)
    assert "OpenMP 2" in wrong(result)["libraries"]


@pytest.mark.usefixtures("auditor")
def test_a_large_companion_is_wrong(make_companion: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST", 1000)
    assert "size" in wrong(make_companion())


@pytest.mark.usefixtures("auditor")
def test_another_name_than_the_contents_is_wrong(make_companion: Write) -> None:
    path = make_companion()
    renamed = path.rename(path.with_name("torch_zendnn-9-cp311-cp311-linux_x86_64.whl"))
    assert wrong(renamed) == {
        "name": "by its contents, torch_zendnn-1.2.3-cp311-cp311-linux_x86_64.whl"
    }


@pytest.mark.usefixtures("auditor")
def test_a_file_outside_record_is_wrong(make_companion: Write) -> None:
    path = make_companion()
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("torch/added.py", "")
    assert wrong(path) == {"record": "RECORD does not list torch/added.py"}


@pytest.mark.parametrize(
    ("changes", "name", "says"),
    [
        ({"licenses": {"LICENSE": b""}}, "licences", "onednn/LICENSE is listed but missing (and 1"),
        (
            {"licenses": {"LICENSE": b"", "onednn/LICENSE": b"", "x": b""}},
            "licences",
            "x is not listed",
        ),
        ({"notes": {}}, "sbom", "0 files in sboms/, not one"),
        ({"notes": {}}, "licences", "has no provenance.json that names its sources"),
        ({"notes": {f"sboms/x{origins.SBOM_SUFFIX}": b"{}"}}, "sbom", "is not valid"),
        (
            {
                "notes": {
                    f"sboms/x{origins.SBOM_SUFFIX}": origins.sbom("x", "1", LICENSE, ()),
                    origins.PROVENANCE: origins.provenance(MADE_FROM, {}, {}),
                }
            },
            "sbom",
            "and provenance.json disagree",
        ),
    ],
)
@pytest.mark.usefixtures("auditor")
def test_missing_licences_and_materials_are_wrong(
    make_companion: Write, changes: dict[str, Any], name: str, says: str
) -> None:
    assert says in wrong(make_companion(**changes))[name]


def test_auditwheel_answers_for_a_real_library(tmp_path: Path) -> None:
    import _ctypes

    from tools.wheels.policy import audit

    library = wheel_file.content(Path(_ctypes.__file__).read_bytes(), executable=True)
    info = "x-1.dist-info"
    files = {
        "x.cpython-311-x86_64-linux-gnu.so": library,
        f"{info}/METADATA": wheel_file.content(b"Metadata-Version: 2.1\nName: x\nVersion: 1\n"),
        f"{info}/WHEEL": wheel_file.content(b"Wheel-Version: 1.0\nTag: cp311-cp311-linux_x86_64\n"),
    }
    path = wheel_file.write(tmp_path / "x-1-cp311-cp311-linux_x86_64.whl", info, files)
    assert audit(path).platform.startswith("manylinux_2_")
