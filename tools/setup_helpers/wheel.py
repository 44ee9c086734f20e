"""Assemble and install the wheel `torch-zendnn`.

The wheel adds our files to the installed torch's folders and replaces none of torch's own.
Without ZenDNN it holds only metadata, so that installing it removes ours.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from email.parser import Parser
from pathlib import Path

from tools.setup_helpers import origins, sources, wheel_file
from tools.setup_helpers.build import (
    ARCHIVE,
    BINDINGS,
    GENERATED,
    LIBRARY,
    REPO,
    REUSE_VARIABLE,
)
from tools.setup_helpers.download import sha256_of
from tools.setup_helpers.env import OLDEST_TORCH, Torch
from tools.setup_helpers.errors import SetupError
from tools.setup_helpers.files import write_atomic

DISTRIBUTION = "torch-zendnn"
LICENSE = "BSD-3-Clause"
SUMMARY = "PyTorch with ZenDNN: faster inference on AMD Zen processors"
ENTRY_POINTS: Mapping[str, Mapping[str, str]] = {
    "torch.backends": {"zendnn": "torch.backends.zendnn._hooks:install"},
    "torch_dynamo_backends": {"zendnn": "torch.backends.zendnn._backend:zendnn"},
}
# Converted Python files to install; the other converted files are compiled or tested.
GENERATED_PYTHON = ("torch/utils/zendnn.py",)
LIBRARY_PATH = "torch/lib/libtorch_zendnn.so"
BINDINGS_FOLDER = "torch/backends/zendnn"
LICENSE_NAMES = ("LICENSE*", "THIRD-PARTY-PROGRAMS", "share/doc/*/copyright")
# ideep's licence is this file's first comment: no mirror has a licence file.
LICENSED_HEADER = "ideep.hpp"

_EDITABLE = '''"""Editable install: runs {path} in this module's place."""

__file__ = {path!r}
with open(__file__, encoding="utf-8") as _stream:
    exec(compile(_stream.read(), __file__, "exec"))
'''


@dataclass(frozen=True)
class Wheel:
    """The contents of a wheel: `files` maps '/'-separated paths in site-packages to bytes.

    `licenses` and `notes` are files of the folders licenses/ and . of its .dist-info.
    """

    version: str
    tag: str
    files: Mapping[str, bytes]
    metadata: str
    entry_points: str = ""
    licenses: Mapping[str, bytes] = field(default_factory=dict)
    notes: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The wheel's file name."""
        return f"{DISTRIBUTION.replace('-', '_')}-{self.version}-{self.tag}.whl"

    @property
    def info(self) -> str:
        """The name of its .dist-info folder."""
        return f"{DISTRIBUTION.replace('-', '_')}-{self.version}.dist-info"

    @property
    def license(self) -> str:
        """The SPDX expression of its licences."""
        return str(Parser().parsestr(self.metadata)["License-Expression"])


def version() -> str:
    """Return this project's version, from version.txt."""
    return (REPO / "version.txt").read_text(encoding="utf-8").strip()


def platform_tag() -> str:
    """Return the tag of a wheel for this interpreter on this machine."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"{python}-{python}-{platform}"


def license_expression(licenses: Iterable[str]) -> str:
    """Return the SPDX expression that all of `licenses`, expressions themselves, apply."""
    terms = dict.fromkeys(term for license in licenses for term in license.split(" AND "))
    return " AND ".join(terms)


def _metadata(requires: str, license: str = LICENSE) -> str:
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {DISTRIBUTION}",
        f"Version: {version()}",
        f"Summary: {SUMMARY}",
        f"License-Expression: {license}",
        "Requires-Python: >=3.10",
        *([f"Requires-Dist: {requires}"] if requires else []),
    ]
    return "\n".join(lines) + "\n"


def _entry_points() -> str:
    return "\n".join(
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
        for group, entries in ENTRY_POINTS.items()
    )


def hand_written() -> Mapping[str, Path]:
    """Return this repository's Python files that go into torch's folders."""
    return {
        path.relative_to(REPO).as_posix(): path
        for path in sorted((REPO / "torch").rglob("*.py"))
        if "__pycache__" not in path.parts
    }


def licenses(trees: Mapping[str, Path]) -> Mapping[str, bytes]:
    """Return the licences of this project and of the compiled sources.

    `trees` maps the sources' names to their folders.
    """
    found = {"": REPO, **{f"{name}/": tree for name, tree in trees.items()}}
    headers = {f"{name}/LICENSE": tree / LICENSED_HEADER for name, tree in trees.items()}
    return {
        name: path.read_bytes().partition(b"*/")[0] + b"*/\n"
        for name, path in headers.items()
        if path.is_file()
    } | {
        f"{folder}{path.name}": path.read_bytes()
        for folder, tree in found.items()
        for glob in (LICENSE_NAMES if folder else LICENSE_NAMES[:1])
        for path in sorted(tree.glob(glob))
        if path.is_file()
    }


def native_outline(torch: Torch) -> Wheel:
    """Return the wheel for `torch` without files, as known before the build."""
    compiled = (source.license for source in sources.sources().values() if source.override)
    metadata = _metadata(f"torch=={torch.public_version}", license_expression([LICENSE, *compiled]))
    return Wheel(version(), platform_tag(), {}, metadata, _entry_points())


def native_wheel(torch: Torch, *, editable: bool, trees: Mapping[str, Path]) -> Wheel:
    """Return the wheel for `torch`, from the build's results in build/.

    In an editable wheel, the hand-written Python files run those of this checkout.
    Raises SetupError when a file would replace one of torch's own, or was not built.
    """
    ours = hand_written()
    files = {
        name: _EDITABLE.format(path=str(path)).encode() if editable else path.read_bytes()
        for name, path in ours.items()
    }
    built = {name: GENERATED / name for name in GENERATED_PYTHON}
    built |= {LIBRARY_PATH: LIBRARY, f"{BINDINGS_FOLDER}/{BINDINGS.name}": BINDINGS}
    for name, path in built.items():
        if name in files:
            raise SetupError(f"{name} is both hand-written and converted: remove {ours[name]}")
        if not path.is_file():
            raise SetupError(f"the build did not make {path}: run the build again")
        files[name] = path.read_bytes()
    refuse_overwriting(files, torch)
    outline = native_outline(torch)
    texts = licenses(trees)
    return replace(
        outline,
        files=files,
        metadata=outline.metadata + "".join(f"License-File: {name}\n" for name in sorted(texts)),
        licenses=texts,
        notes=_notes(torch, trees, outline.license),
    )


def _notes(torch: Torch, trees: Mapping[str, Path], license: str) -> Mapping[str, bytes]:
    """Return the bill of materials and the provenance of the wheel for `torch`."""
    made_from = (
        *origins.of_checkout(REPO, version()),
        *origins.of_trees(trees, os.environ),
    )
    named = {name: os.environ[name] for name in origins.VARIABLES if os.environ.get(name)}
    if built := os.environ.get(REUSE_VARIABLE):
        named["libzendnn.a"] = f"sha256:{sha256_of(Path(built, ARCHIVE))}"
    parameters = {"torch": torch.version, "python": sysconfig.get_python_version(), **named}
    return {
        f"sboms/{DISTRIBUTION}{origins.SBOM_SUFFIX}": origins.sbom(
            DISTRIBUTION, version(), license, made_from
        ),
        origins.PROVENANCE: origins.provenance(
            made_from, parameters, origins.toolchain(os.environ)
        ),
    }


def empty_wheel() -> Wheel:
    """Return the wheel of a build without ZenDNN: only metadata."""
    oldest = ".".join(map(str, OLDEST_TORCH))
    return Wheel(version(), "py3-none-any", {}, _metadata(f"torch>={oldest}"))


def refuse_overwriting(files: Mapping[str, bytes], torch: Torch) -> None:
    """Raise SetupError when one of `files` is a file of the installed torch."""
    taken = sorted(set(files) & torch.files)
    if taken:
        raise SetupError(
            f"torch {torch.version} has a file of its own at {torch.site / taken[0]}, which "
            f"{DISTRIBUTION} would replace: use another version of torch"
        )


def dist_info(wheel: Wheel) -> Mapping[str, bytes]:
    """Return the files of the wheel's .dist-info folder, without RECORD."""
    pure = "true" if wheel.tag.endswith("-any") else "false"
    texts = {
        "METADATA": wheel.metadata,
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: {DISTRIBUTION}\nRoot-Is-Purelib: {pure}\n"
        f"Tag: {wheel.tag}\n",
        **({"entry_points.txt": wheel.entry_points} if wheel.entry_points else {}),
    }
    contents = {name: text.encode() for name, text in texts.items()}
    contents |= {f"licenses/{name}": text for name, text in wheel.licenses.items()}
    contents |= wheel.notes
    return {f"{wheel.info}/{name}": content for name, content in contents.items()}


def write(wheel: Wheel, folder: Path) -> Path:
    """Write the wheel atomically into `folder`; return its path. Equal wheels have equal bytes."""
    contents = {
        name: wheel_file.content(data, executable=name.endswith(".so"))
        for name, data in {**wheel.files, **dist_info(wheel)}.items()
    }
    return wheel_file.write(folder / wheel.name, wheel.info, contents)


def write_beside(path: Path) -> tuple[Path, ...]:
    """Write a wheel's bill of materials and provenance beside it; return their paths.

    The provenance becomes an in-toto statement, which names the sha256 of the wheel. A wheel that
    holds neither, because it is built without ZenDNN, gets none.
    """
    with wheel_file.opened(path) as wheel:
        bills = [found for name, found in wheel.files.items() if name.endswith(origins.SBOM_SUFFIX)]
        written = {path.with_name(path.name + origins.SBOM_SUFFIX): bill.read() for bill in bills}
        if predicate := wheel.text(origins.PROVENANCE):
            target = path.with_name(f"{path.name}.{origins.PROVENANCE}")
            written[target] = origins.statement(path, predicate)
    for target, data in written.items():
        write_atomic(target, data)
    return tuple(written)


def write_info(wheel: Wheel, folder: Path) -> str:
    """Write only the .dist-info folder into `folder`, without RECORD; return its name."""
    for path, content in dist_info(wheel).items():
        write_atomic(folder / path, content)
    return wheel.info


def install(path: Path) -> None:
    """Install the wheel at `path` for this interpreter, replacing any earlier one.

    Raises SetupError when pip is missing or fails.
    """
    options = ["--no-deps", "--force-reinstall", "--no-index", "--quiet"]
    environ = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    command = [sys.executable, "-m", "pip", "install", *options, str(path)]
    if subprocess.run(command, env=environ, check=False).returncode:
        raise SetupError(f"pip cannot install {path.name} for {sys.executable}: see above")
