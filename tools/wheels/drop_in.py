"""Make a torch wheel with ZenDNN inside, from an official torch wheel and our companion wheel."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from configparser import ConfigParser
from dataclasses import replace
from io import StringIO
from pathlib import Path

from tools.setup_helpers import origins, wheel_file
from tools.setup_helpers.download import Progress, sha256_of
from tools.setup_helpers.env import public_version
from tools.setup_helpers.errors import SetupError
from tools.setup_helpers.origins import Origin
from tools.setup_helpers.wheel import DISTRIBUTION, LIBRARY_PATH, license_expression
from tools.setup_helpers.wheel_file import WheelFile, content
from tools.wheels.policy import Tag, audit, tag_of

LABEL = "zendnn"
_VERSION_FILE = "torch/version.py"
_VERSION = re.compile(r"(?m)^(__version__ = )'([^']*)'$")


def _refuse(base: WheelFile, companion: WheelFile) -> None:
    """Raise SetupError when the two wheels do not belong together."""
    if base.name != "torch":
        raise SetupError(
            f"{base.path} is a wheel of {base.name}: give a wheel of torch as the base"
        )
    if LABEL in base.version:
        raise SetupError(
            f"{base.path} is torch {base.version}, which has ZenDNN already: give the official "
            "wheel as the base"
        )
    if companion.name != DISTRIBUTION or LIBRARY_PATH not in companion.files:
        raise SetupError(
            f"{companion.path} is not a wheel of {DISTRIBUTION} with ZenDNN: build one with "
            "USE_ZENDNN=1 python setup.py bdist_wheel"
        )
    required = (companion.headers("METADATA")["Requires-Dist"] or "").removeprefix("torch==")
    if required != public_version(base.version):
        raise SetupError(
            f"{companion.path} was built against torch {required} and {base.path.name} is torch "
            f"{base.version}: give a base of that version, or build the companion against this one"
        )
    ours, theirs = tag_of(companion), tag_of(base)
    if (ours.python, ours.cpu) != (theirs.python, theirs.cpu):
        raise SetupError(
            f"{companion.path} is for {ours} and {base.path.name} for {theirs}: give two wheels "
            "for the same Python and machine"
        )
    for wheel in (base, companion):
        if wrong := wheel_file.wrong_records(wheel):
            raise SetupError(f"{wheel.path} is damaged ({wrong[0]}): get it again")
    if taken := sorted(companion.payload.keys() & base.files.keys()):
        raise SetupError(f"{base.path} has a {taken[0]} of its own, which ours would replace")


def _platform(base: WheelFile, companion: WheelFile) -> Tag:
    """Return the tag for the files of both: what the newer of the two needs."""
    theirs = tag_of(base)
    ours = audit(companion.path).tag(theirs.python)
    if ours.glibc is None or theirs.glibc is None:
        return replace(theirs, glibc=None)
    return replace(theirs, glibc=max(ours.glibc, theirs.glibc))


def _entry_points(base: WheelFile, companion: WheelFile) -> str:
    merged = ConfigParser(delimiters=("=",), interpolation=None)
    merged.optionxform = str  # type: ignore[assignment,method-assign]
    for wheel in (base, companion):
        merged.read_string(wheel.text("entry_points.txt"))
    text = StringIO()
    merged.write(text)
    return text.getvalue()


def _metadata(base: WheelFile, version: str, companion: WheelFile, licenses: Iterable[str]) -> str:
    """Return the METADATA of `base` with another version, and with the companion's licences.

    Before Metadata-Version 2.4 there are no headers for licences.
    """
    headers, blank, description = base.text("METADATA").partition("\n\n")
    changed = {"Version": version}
    lines = headers.split("\n")
    if theirs := base.headers("METADATA")["License-Expression"]:
        changed["License-Expression"] = license_expression([theirs, _license(companion)])
        lines += [f"License-File: {name}" for name in sorted(licenses)]
    names = [line.partition(":")[0] for line in lines]
    lines = [
        f"{name}: {changed[name]}" if name in changed else line
        for name, line in zip(names, lines, strict=True)
    ]
    return "\n".join(lines) + blank + description


def _license(wheel: WheelFile) -> str:
    headers = wheel.headers("METADATA")
    return str(headers["License-Expression"] or headers["License"] or "BSD-3-Clause")


def _version_file(base: WheelFile, version: str) -> bytes:
    text = base.files[_VERSION_FILE].read().decode() if _VERSION_FILE in base.files else ""
    changed, count = _VERSION.subn(rf"\g<1>'{version}'", text)
    if count != 1:
        raise SetupError(f"{base.path} does not state its version in {_VERSION_FILE}")
    return changed.encode()


def _notes(base: WheelFile, companion: WheelFile, version: str) -> Mapping[str, bytes]:
    """Return the bill of materials and the provenance: the companion's, and the base."""
    text = companion.text(origins.PROVENANCE)
    made_from, parameters, tools = origins.read_provenance(text, str(companion.path))
    theirs = Origin(
        name="torch",
        version=base.version,
        license=_license(base),
        sha256=sha256_of(base.path),
        digest_of=origins.OF_ARCHIVE,
        purl=f"pkg:pypi/torch@{base.version.replace('+', '%2B')}",
    )
    made_from = (theirs, *made_from)
    license = license_expression([theirs.license, _license(companion)])
    return {
        f"sboms/torch{origins.SBOM_SUFFIX}": origins.sbom("torch", version, license, made_from),
        origins.PROVENANCE: origins.provenance(made_from, parameters, tools),
    }


def make(base_path: Path, companion_path: Path, folder: Path) -> Path:
    """Write the drop-in wheel into `folder`; return its path.

    Its version is that of the base with the label 'zendnn' and the companion's version. Raises
    SetupError when the base is of another version, Python or machine than the companion was built
    for, is a drop-in itself, or one of the two is damaged.
    """
    with wheel_file.opened(base_path) as base, wheel_file.opened(companion_path) as companion:
        _refuse(base, companion)
        version = f"{public_version(base.version)}+{LABEL}.{companion.version}"
        tag = _platform(base, companion)
        info = f"torch-{version}.dist-info"
        licenses = {
            f"{DISTRIBUTION}/{name}": found for name, found in companion.below("licenses/").items()
        }
        texts = {
            "METADATA": _metadata(base, version, companion, licenses),
            "WHEEL": f"Wheel-Version: 1.0\nGenerator: {DISTRIBUTION}\nRoot-Is-Purelib: false\n"
            f"Tag: {tag}\n",
            "entry_points.txt": _entry_points(base, companion),
        }
        described = {
            **base.below(),
            **{f"licenses/{name}": found for name, found in licenses.items()},
            **{name: content(text.encode()) for name, text in texts.items()},
            **{name: content(data) for name, data in _notes(base, companion, version).items()},
        }
        files = {
            **base.payload,
            **companion.payload,
            _VERSION_FILE: content(_version_file(base, version)),
            **{f"{info}/{name}": found for name, found in described.items()},
        }
        target = folder / f"torch-{version}-{tag}.whl"
        progress = Progress(target.name, sum(found.size for found in files.values()))
        return wheel_file.write(target, info, files, progress.show)
