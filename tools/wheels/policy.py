"""Platform tags, and what auditwheel finds: the oldest systems that a wheel's libraries run on."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tools.setup_helpers.errors import SetupError
from tools.setup_helpers.wheel_file import WheelFile

#: The glibc of manylinux_2_28, the oldest system that wheels of torch support.
OLDEST = (2, 28)
#: Libraries that come with torch.
TORCHS = re.compile(r"lib(torch|torch_\w+|c10|c10_\w+|shm|gomp)(-[0-9a-f]+)?\.so(\.\d+)*")
#: auditwheel would count what this system's copy of torch's OpenMP needs, which is not used.
_NO_LIBRARIES = ("--ldpaths", "/nonexistent")
_TAG = re.compile(
    r"(?P<python>[^-]+-[^-]+)-(?:linux|manylinux_(?P<major>\d+)_(?P<minor>\d+))_(?P<cpu>[^-.]+)"
)


@dataclass(frozen=True)
class Tag:
    """A wheel's tag: `python` is such as 'cp311-cp311', `glibc` the oldest that it promises.

    `glibc` is None in tags like 'linux_x86_64', which promise nothing.
    """

    python: str
    glibc: tuple[int, int] | None
    cpu: str

    @property
    def platform(self) -> str:
        """The last part of the tag."""
        system = "linux" if self.glibc is None else "manylinux_{}_{}".format(*self.glibc)
        return f"{system}_{self.cpu}"

    def __str__(self) -> str:
        return f"{self.python}-{self.platform}"


def parse_tag(text: str, where: str) -> Tag:
    """Return the tag that `text` states. Raises SetupError when it is not one for Linux."""
    found = _TAG.fullmatch(text)
    if not found:
        raise SetupError(f"{where} has the tag '{text}': give a wheel for Linux")
    glibc = (int(found["major"]), int(found["minor"])) if found["major"] else None
    return Tag(found["python"], glibc, found["cpu"])


def tag_of(wheel: WheelFile) -> Tag:
    """Return the tag of an open wheel. Raises SetupError when it has not one, for Linux."""
    return parse_tag(".".join(wheel.tags), str(wheel.path))


@dataclass(frozen=True)
class Audit:
    """The platform that the versions of symbols allow, and the libraries that are not inside."""

    platform: str
    outside: tuple[str, ...]

    def tag(self, python: str) -> Tag:
        """Return the best tag for the wheel."""
        return parse_tag(f"{python}-{self.platform}", "auditwheel")


@functools.lru_cache(maxsize=8)
def audit(path: Path) -> Audit:
    """Ask auditwheel about a wheel: seconds; for a whole torch, a minute.

    Raises SetupError when auditwheel is not installed, or fails.
    """
    command = [sys.executable, "-m", "auditwheel", "show", "--json", *_NO_LIBRARIES, str(path)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    if said.returncode:
        reason = (said.stderr.splitlines() or ["no message"])[-1]
        raise SetupError(
            f"auditwheel cannot examine {path} ({reason}): install it with "
            f"{sys.executable} -m pip install -r requirements-wheels.txt"
        )
    found = json.loads(said.stdout)
    return Audit(found["sym_tag"], tuple(sorted(found["external_libs"])))
