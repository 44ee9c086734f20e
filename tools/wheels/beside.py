"""The files that go with a wheel: its bill of materials, and the statement of its provenance."""

from __future__ import annotations

from pathlib import Path

from tools.setup_helpers import origins, wheel_file
from tools.setup_helpers.files import write_atomic


def write(path: Path) -> tuple[Path, ...]:
    """Write both beside the wheel `path`, which holds them; return their paths.

    The provenance becomes an in-toto statement about the file: it names its sha256.
    """
    with wheel_file.opened(path) as wheel:
        bom = next(
            found for name, found in wheel.files.items() if name.endswith(origins.SBOM_SUFFIX)
        )
        contents = {
            origins.SBOM_SUFFIX: bom.read(),
            f".{origins.PROVENANCE}": origins.statement(path, wheel.text(origins.PROVENANCE)),
        }
    written = {path.with_name(path.name + suffix): data for suffix, data in contents.items()}
    for target, data in written.items():
        write_atomic(target, data)
    return tuple(written)
