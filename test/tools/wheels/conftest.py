"""A torch wheel and a companion for it, both small, and a stand-in for auditwheel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import pytest

from tools.setup_helpers import origins, wheel_file
from tools.setup_helpers import wheel as companions
from tools.setup_helpers.origins import Origin, Place
from tools.setup_helpers.wheel import Wheel
from tools.setup_helpers.wheel_file import content
from tools.wheels import check, drop_in, policy

LICENSE = "BSD-3-Clause AND Apache-2.0"
MADE_FROM = (
    Origin("zendnnify", "1.2.3", "BSD-3-Clause", "0" * 64),
    Origin("onednn", "3.7.2", "Apache-2.0", "1" * 64, places=(Place("pool/x.tar", "2" * 64),)),
)


def companion(folder: Path, *, torch: str = "2.13.0", **changes: object) -> Path:
    """Write a companion of this version of torch; `changes` are fields of the wheel."""
    fields: dict[str, object] = {
        "version": "1.2.3",
        "tag": "cp311-cp311-linux_x86_64",
        "files": {
            companions.LIBRARY_PATH: b"library",
            "torch/backends/zendnn/_C.so": b"bindings",
            "torch/backends/zendnn/_hooks.py": b"def install(): pass\n",
        },
        "metadata": f"Metadata-Version: 2.4\nName: torch-zendnn\nVersion: 1.2.3\n"
        f"License-Expression: {LICENSE}\nRequires-Dist: torch=={torch}\n"
        "License-File: LICENSE\nLicense-File: onednn/LICENSE\n",
        "entry_points": "[torch.backends]\nzendnn = torch.backends.zendnn._hooks:install\n",
        "licenses": {"LICENSE": b"ours", "onednn/LICENSE": b"theirs"},
        "notes": {
            f"sboms/torch-zendnn{origins.SBOM_SUFFIX}": origins.sbom(
                "torch-zendnn", "1.2.3", LICENSE, MADE_FROM
            ),
            origins.PROVENANCE: origins.provenance(MADE_FROM, {"torch": torch}, {"compiler": "c"}),
        },
    }
    return companions.write(Wheel(**{**fields, **changes}), folder)  # type: ignore[arg-type]


def base(
    folder: Path,
    *,
    version: str = "2.13.0+cpu",
    name: str = "torch",
    tag: str = "cp311-cp311-manylinux_2_28_x86_64",
    files: Mapping[str, bytes] = MappingProxyType({}),
    metadata: str = "2.4",
) -> Path:
    """Write a wheel like an official one, with more `files`; return its path."""
    info = f"{name}-{version}.dist-info"
    license = "License-Expression: BSD-3-Clause AND MIT" if metadata == "2.4" else "License: BSD"
    contents = {
        "torch/__init__.py": b"from torch.version import __version__\n",
        "torch/version.py": f"__all__ = ['cuda']\n__version__ = '{version}'\ncuda = 1\n".encode(),
        "torch/lib/libgomp.so.1": b"openmp",
        "torchgen/__init__.py": b"",
        f"{info}/METADATA": f"Metadata-Version: {metadata}\nName: {name}\nVersion: {version}\n"
        f"{license}\nLicense-File: LICENSE\n\nVersion: in the description\n".encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: theirs\nTag: {tag}\n".encode(),
        f"{info}/entry_points.txt": b"[console_scripts]\ntorchRun = torch.run:main\n",
        f"{info}/licenses/LICENSE": b"torch's",
        **files,
    }
    return wheel_file.write(
        folder / f"{name}-{version}-{tag}.whl",
        info,
        {path: content(data, executable=".so" in path) for path, data in contents.items()},
    )


@dataclass
class Auditor:
    """The answers of auditwheel, which is not asked."""

    platform: str = "manylinux_2_34_x86_64"
    outside: tuple[str, ...] = ("libc10.so", "libgomp.so.1", "libtorch_cpu.so")
    asked: list[Path] = field(default_factory=list)

    def audit(self, path: Path) -> policy.Audit:
        """Answer."""
        self.asked.append(path)
        return policy.Audit(self.platform, self.outside)


@pytest.fixture
def auditor(monkeypatch: pytest.MonkeyPatch) -> Auditor:
    """What the commands ask in auditwheel's place."""
    found = Auditor()
    for module in (check, drop_in):
        monkeypatch.setattr(module, "audit", found.audit)
    return found


@pytest.fixture
def make_base(tmp_path: Path) -> Callable[..., Path]:
    """A function that writes a base; see `base`."""
    return lambda **fields: base(tmp_path / "base", **fields)


@pytest.fixture
def make_companion(tmp_path: Path) -> Callable[..., Path]:
    """A function that writes a companion; see `companion`."""
    return lambda **fields: companion(tmp_path / "companion", **fields)
