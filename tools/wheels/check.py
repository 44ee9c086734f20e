"""Check a wheel before it ships: platform, libraries, size, RECORD, licences, SBOM."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tools.setup_helpers import origins, wheel_file
from tools.setup_helpers.errors import SetupError
from tools.setup_helpers.wheel import BINDINGS_FOLDER, DISTRIBUTION, LIBRARY_PATH
from tools.setup_helpers.wheel_file import WheelFile
from tools.wheels.policy import OLDEST, TORCHS, audit, tag_of

#: The most bytes of a companion wheel. A drop-in holds a whole torch and has no limit.
LARGEST = 40_000_000


@dataclass(frozen=True)
class Finding:
    """What a check found, and whether it is wrong."""

    text: str
    wrong: bool = False


def _finding(good: str, problems: Sequence[str]) -> Finding:
    """Return the first of `problems` and how many follow, or `good` when there is none."""
    if not problems:
        return Finding(good)
    more = len(problems) - 1
    return Finding(problems[0] + (f" (and {more} more)" if more else ""), wrong=True)


def _is_companion(wheel: WheelFile) -> bool:
    return wheel.name == DISTRIBUTION


def check_name(wheel: WheelFile) -> Finding:
    """The file's name states the distribution, the version and the tag of the contents."""
    name = f"{wheel.name.replace('-', '_')}-{wheel.version}-{tag_of(wheel)}.whl"
    return Finding(f"by its contents, {name}", wrong=wheel.path.name != name)


def check_platform(wheel: WheelFile) -> Finding:
    """The tag promises no older system than the versions of symbols allow."""
    stated = tag_of(wheel)
    needed = audit(wheel.path).tag(stated.python)
    if stated.glibc is None:
        return Finding(f"{stated.platform} promises nothing; it can be {needed.platform}")
    if needed.glibc is None or stated.glibc < needed.glibc:
        return Finding(f"{stated.platform}, but symbols need {needed.platform}", wrong=True)
    remark = ", not {}.{}: build it on an older system".format(*OLDEST)
    newer = stated.glibc > OLDEST
    return Finding(f"{stated.platform}, glibc {'.'.join(map(str, stated.glibc))}" + remark * newer)


def check_libraries(wheel: WheelFile) -> Finding:
    """Nothing is bundled but ours, and nothing is needed but the system's and torch's."""
    paths = [PurePosixPath(name) for name in wheel.files]
    bundled = [path for path in paths if ".so" in path.suffixes]
    if not _is_companion(wheel):
        openmp = sum(path.name.startswith("libgomp") for path in bundled)
        return Finding(f"{len(bundled)}, of which OpenMP {openmp}", wrong=openmp != 1)
    places = {str(PurePosixPath(LIBRARY_PATH).parent), BINDINGS_FOLDER}
    problems = [f"{path} is bundled" for path in bundled if str(path.parent) not in places]
    outside = audit(wheel.path).outside
    problems += [
        f"{name} is neither torch's nor the system's"
        for name in outside
        if not TORCHS.fullmatch(name)
    ]
    inside = ", ".join(path.name for path in bundled)
    return _finding(f"{inside}; torch brings {', '.join(outside)}", problems)


def check_size(wheel: WheelFile) -> Finding:
    """A companion has at most LARGEST bytes."""
    size = wheel.path.stat().st_size
    limit = f" of {LARGEST / 1e6:.0f}" if _is_companion(wheel) else ""
    return Finding(f"{size / 1e6:.1f}{limit} MB", wrong=bool(limit) and size > LARGEST)


def check_record(wheel: WheelFile) -> Finding:
    """RECORD lists every file, with its hash and size."""
    return _finding(f"{len(wheel.files)} files", wheel_file.wrong_records(wheel))


def check_licences(wheel: WheelFile) -> Finding:
    """Each source brings its licence, and METADATA lists the licences."""
    there = set(wheel.below("licenses/"))
    listed = set(wheel.headers("METADATA").get_all("License-File", ()))
    made_from, *_ = origins.read_provenance(wheel.text(origins.PROVENANCE), str(wheel.path))
    problems = [f"{name} is listed but missing" for name in sorted(listed - there)]
    problems += [f"{name} is not listed" for name in sorted(there - listed)]
    problems += [
        f"{origin.name} has no licence"
        for origin in made_from
        if origin.places and not any(f"{origin.name}/" in name for name in there)
    ]
    return _finding(f"{len(there)} files", problems)


def check_sbom(wheel: WheelFile) -> Finding:
    """The bill of materials is valid CycloneDX, and names what the provenance names."""
    try:
        from cyclonedx.schema import SchemaVersion
        from cyclonedx.validation.json import JsonStrictValidator
    except ImportError as error:
        raise SetupError(
            f"{error.name} is missing: install it (pip install -r requirements-wheels.txt)"
        ) from error
    names = [name for name in wheel.files if name.endswith(origins.SBOM_SUFFIX)]
    if len(names) != 1:
        return Finding(f"{len(names)} files in sboms/, not one", wrong=True)
    text = wheel.files[names[0]].read().decode()
    if invalid := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        return Finding(f"{names[0]} is not valid: {invalid!r}", wrong=True)
    made_from, *_ = origins.read_provenance(wheel.text(origins.PROVENANCE), str(wheel.path))
    stated = [(part["name"], part["version"]) for part in json.loads(text)["components"]]
    if stated != [(origin.name, origin.version) for origin in made_from]:
        return Finding(f"{names[0]} and {origins.PROVENANCE} disagree", wrong=True)
    return Finding(", ".join(f"{name} {version}" for name, version in stated))


CHECKS: Mapping[str, Callable[[WheelFile], Finding]] = {
    "name": check_name,
    "platform": check_platform,
    "libraries": check_libraries,
    "size": check_size,
    "record": check_record,
    "licences": check_licences,
    "sbom": check_sbom,
}


def check(path: Path) -> Mapping[str, Finding]:
    """Run all checks on a wheel; return what each found. Raises SetupError if it is no wheel."""
    with wheel_file.opened(path) as wheel:
        return {name: _run(check, wheel) for name, check in CHECKS.items()}


def _run(check: Callable[[WheelFile], Finding], wheel: WheelFile) -> Finding:
    try:
        return check(wheel)
    except SetupError as error:
        return Finding(str(error), wrong=True)
