"""What a wheel is made from, in two standard forms: a CycloneDX bill of materials, SLSA provenance.

Neither holds a time or a folder of the build, so equal inputs give equal bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.setup_helpers import env, sources
from tools.setup_helpers.archives import tree_digest
from tools.setup_helpers.download import sha256_of
from tools.setup_helpers.errors import SetupError

SBOM_SUFFIX = ".cdx.json"
PROVENANCE = "provenance.json"
#: Everything of this repository that the build reads.
INPUTS = (
    *("CMakeLists.txt", "setup.py", "version.txt"),
    *("aten", "cmake", "third_party", "tools", "torch"),
)
#: Variables that change what is compiled.
VARIABLES = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "SOURCE_DATE_EPOCH")
OF_FILES = "the sorted lines '<sha256>  <path>' of its files"
OF_ARCHIVE = "the file"
_BUILD_TYPE = "urn:torch-zendnn:wheel:1"
_GITHUB = re.compile(r"https://github\.com/([^/]+/[^/]+)")


@dataclass(frozen=True)
class Place:
    """An address, which may be relative to a mirror, and the sha256 of the archive there, if any.

    Without a `sha256` it is a repository.
    """

    url: str
    sha256: str = ""


@dataclass(frozen=True)
class Origin:
    """Something that a wheel is made from, which `places` have.

    `license` is an SPDX expression, `sha256` lower-case hex, `digest_of` what was hashed, `purl` a
    package URL or empty.
    """

    name: str
    version: str
    license: str
    sha256: str
    digest_of: str = OF_FILES
    purl: str = ""
    places: tuple[Place, ...] = ()


def _place(mirror: sources.Mirror) -> Place:
    place = mirror.place
    if isinstance(place, sources.Debian):
        return Place(place.pool, place.sha256)
    if isinstance(place, sources.Snapshot):
        return Place(place.archive, place.sha256)
    return Place(place.url)


def _purl(source: sources.Source) -> str:
    for mirror in source.mirrors:
        if found := _GITHUB.match(_place(mirror).url):
            place = mirror.place
            revision = (place.commit or place.ref) if isinstance(place, sources.Git) else ""
            return f"pkg:github/{found[1].lower()}@{revision or source.version}"
    return ""


def of_trees(trees: Mapping[str, Path], environ: Mapping[str, str]) -> tuple[Origin, ...]:
    """Return the origins that are compiled sources; `trees` maps their names to folders.

    A local copy has the version 'local' and no address.
    """
    found = []
    for name, tree in trees.items():
        source = sources.sources()[name]
        digest = tree_digest(tree)
        if sources.local_copy(source, environ) is not None:
            found.append(Origin(name, "local", source.license, digest))
            continue
        places = tuple(map(_place, source.mirrors))
        found.append(
            Origin(name, source.version, source.license, digest, OF_FILES, _purl(source), places)
        )
    return tuple(found)


def of_checkout(repo: Path, version: str) -> tuple[Origin, ...]:
    """Return the origins that are parts of this repository: all that is built, the generator."""

    def origin(name: str, folders: Iterable[str]) -> Origin:
        lines = sorted(
            f"{sha256_of(path)}  {path.relative_to(repo).as_posix()}"
            for folder in folders
            for path in (repo / folder, *(repo / folder).rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts
        )
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        return Origin(name, version, "BSD-3-Clause", digest)

    return origin("torch-zendnn-sources", INPUTS), origin("zendnnify", ["tools/zendnnify"])


def toolchain(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return what the build's tools say their versions are. Raises SetupError if one is missing."""
    said = {}
    for name, path in env.find_tools(environ).items():
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
        said[name] = (answer.stdout.splitlines() or ["unknown"])[0]
    return said


def _json(document: object) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()


def _reference(place: Place) -> Mapping[str, Any]:
    if not place.sha256:
        return {"type": "vcs", "url": place.url}
    hashes = [{"alg": "SHA-256", "content": place.sha256}]
    return {"type": "source-distribution", "url": place.url, "hashes": hashes}


def sbom(name: str, version: str, license: str, origins: Sequence[Origin]) -> bytes:
    """Return the CycloneDX document of a distribution that is made from `origins`."""
    root = f"{name}@{version}"
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": root,
                "name": name,
                "version": version,
                "licenses": [{"expression": license}],
                "purl": f"pkg:pypi/{root.replace('+', '%2B')}",
            }
        },
        "components": [
            {
                "type": "library",
                "bom-ref": origin.name,
                "name": origin.name,
                "version": origin.version,
                "hashes": [{"alg": "SHA-256", "content": origin.sha256}],
                "licenses": [{"expression": origin.license}],
                **({"purl": origin.purl} if origin.purl else {}),
                "externalReferences": [_reference(place) for place in origin.places],
                "properties": [{"name": "torch-zendnn:sha256-of", "value": origin.digest_of}],
            }
            for origin in origins
        ],
        "dependencies": [
            {"ref": root, "dependsOn": [origin.name for origin in origins]},
            *({"ref": origin.name} for origin in origins),
        ],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(document))
    return _json({**document, "serialNumber": serial.urn})


def provenance(
    origins: Sequence[Origin], parameters: Mapping[str, str], tools: Mapping[str, str]
) -> bytes:
    """Return SLSA's provenance: the origins, the parameters of the build, versions of its tools."""
    return _json(
        {
            "buildDefinition": {
                "buildType": _BUILD_TYPE,
                "externalParameters": parameters,
                "resolvedDependencies": [
                    {
                        "name": origin.name,
                        **({"uri": origin.purl} if origin.purl else {}),
                        "digest": {"sha256": origin.sha256},
                        "annotations": {
                            "version": origin.version,
                            "license": origin.license,
                            "sha256 of": origin.digest_of,
                            "places": [asdict(place) for place in origin.places],
                        },
                    }
                    for origin in origins
                ],
            },
            "runDetails": {"builder": {"id": "urn:torch-zendnn:setup.py", "version": tools}},
        }
    )


def read_provenance(
    text: str, where: str
) -> tuple[tuple[Origin, ...], Mapping[str, str], Mapping[str, str]]:
    """Return what `provenance` was given. Raises SetupError when `text`, of `where`, is no such."""
    try:
        document = json.loads(text)
        definition = document["buildDefinition"]
        origins = tuple(
            Origin(
                name=entry["name"],
                version=entry["annotations"]["version"],
                license=entry["annotations"]["license"],
                sha256=entry["digest"]["sha256"],
                digest_of=entry["annotations"]["sha256 of"],
                purl=entry.get("uri", ""),
                places=tuple(Place(**place) for place in entry["annotations"]["places"]),
            )
            for entry in definition["resolvedDependencies"]
        )
        return (
            origins,
            definition["externalParameters"],
            document["runDetails"]["builder"]["version"],
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SetupError(
            f"{where} has no {PROVENANCE} that names its sources: build it again"
        ) from error


def statement(wheel: Path, predicate: str) -> bytes:
    """Return the in-toto statement that says of the file `wheel` what `predicate` does."""
    content: Mapping[str, Any] = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": wheel.name, "digest": {"sha256": sha256_of(wheel)}}],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": json.loads(predicate),
    }
    return _json(content)
