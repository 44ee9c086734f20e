"""tools/setup_helpers/origins.py: the bill of materials and the provenance name what was built."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tools.setup_helpers import origins as module
from tools.setup_helpers import sources
from tools.setup_helpers.errors import SetupError
from tools.setup_helpers.origins import Origin, Place

BUILT = ("pytorch", "onednn", "ideep", "blis")
ORIGIN = Origin("a", "1", "MIT", "0" * 64, "the file", "pkg:github/a/a@1", (Place("u", "1" * 64),))


@pytest.fixture
def trees(tmp_path: Path) -> dict[str, Path]:
    """Small folders in the places of the fetched sources."""
    for name in BUILT:
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    return {name: tmp_path / name for name in BUILT}


def test_every_compiled_source_is_named_with_version_licence_address_and_hashes(
    trees: dict[str, Path],
) -> None:
    found = {origin.name: origin for origin in module.of_trees(trees, {})}
    table = sources.sources()
    assert {name: origin.version for name, origin in found.items()} == {
        name: table[name].version for name in BUILT
    }
    assert {name: origin.license for name, origin in found.items()} == {
        "pytorch": "BSD-3-Clause",
        "onednn": "Apache-2.0",
        "ideep": "MIT",
        "blis": "BSD-3-Clause",
    }
    assert found["onednn"].purl == "pkg:github/uxlfoundation/onednn@v3.7.2"
    assert found["ideep"].purl == "pkg:github/intel/ideep@9873ffc"
    assert found["blis"].purl == "pkg:github/flame/blis@0.9.0"
    line = f"{hashlib.sha256(b'blis').hexdigest()}  file"
    assert found["blis"].sha256 == hashlib.sha256(line.encode()).hexdigest()
    debian = table["blis"].mirrors[0].place
    assert isinstance(debian, sources.Debian)
    assert Place(debian.pool, debian.sha256) in found["blis"].places


def test_the_digest_of_a_fetched_source_is_the_pinned_one() -> None:
    (origin,) = module.of_trees({"ideep": sources.fetch("ideep")}, {})
    assert origin.sha256 == sources.sources()["ideep"].mirrors[0].digest


def test_a_local_copy_claims_no_version_and_no_address(tmp_path: Path) -> None:
    (tmp_path / "ideep.hpp").write_text("mine")
    environ = {"IDEEP_SOURCE_DIR": str(tmp_path)}
    (origin,) = module.of_trees({"ideep": tmp_path}, environ)
    assert (origin.version, origin.purl, origin.places) == ("local", "", ())


def test_the_checkouts_digest_follows_what_is_built_only(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/a.py").write_text("1")
    first, _ = module.of_checkout(tmp_path, "1")
    (tmp_path / "README.md").write_text("2")
    (tmp_path / "torch/__pycache__").mkdir()
    (tmp_path / "torch/__pycache__/a.pyc").write_text("2")
    assert module.of_checkout(tmp_path, "1")[0] == first
    (tmp_path / "torch/a.py").write_text("2")
    assert module.of_checkout(tmp_path, "1")[0].sha256 != first.sha256


@pytest.mark.parametrize("made_from", [(), (ORIGIN,), (ORIGIN, Origin("b", "", "MIT", "f" * 64))])
def test_the_bill_of_materials_is_valid_and_the_same_each_time(
    made_from: tuple[Origin, ...],
) -> None:
    text = module.sbom("torch", "2.13.0+x.1", "MIT AND BSD-3-Clause", made_from)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text.decode()) is None
    assert module.sbom("torch", "2.13.0+x.1", "MIT AND BSD-3-Clause", made_from) == text
    other = module.sbom("torch", "2.13.0+x.2", "MIT AND BSD-3-Clause", made_from)
    assert json.loads(other)["serialNumber"] != json.loads(text)["serialNumber"]


def test_the_bill_of_materials_of_the_built_sources_is_valid(trees: dict[str, Path]) -> None:
    text = module.sbom("torch-zendnn", "1", "MIT", module.of_trees(trees, {}))
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text.decode()) is None


def test_provenance_reads_back(trees: dict[str, Path]) -> None:
    made_from = (*module.of_trees(trees, {}), ORIGIN, replace(ORIGIN, purl="", places=()))
    text = module.provenance(made_from, {"torch": "2.13.0"}, {"compiler": "c++ 12"}).decode()
    assert module.read_provenance(text, "x") == (
        made_from,
        {"torch": "2.13.0"},
        {"compiler": "c++ 12"},
    )


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"buildDefinition": 1}', "null"])
def test_what_is_no_provenance_is_one_sentence(text: str) -> None:
    with pytest.raises(SetupError, match=r"x\.whl has no provenance\.json that names its sources"):
        module.read_provenance(text, "x.whl")


def test_the_statement_is_about_the_file(tmp_path: Path) -> None:
    wheel = tmp_path / "x.whl"
    wheel.write_bytes(b"wheel")
    predicate = module.provenance([ORIGIN], {}, {}).decode()
    found = json.loads(module.statement(wheel, predicate))
    assert found["subject"] == [
        {"name": "x.whl", "digest": {"sha256": hashlib.sha256(b"wheel").hexdigest()}}
    ]
    assert found["predicate"] == json.loads(predicate)
