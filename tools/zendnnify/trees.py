"""Recognises a source tree, lists its files and names their outputs."""

from __future__ import annotations

import fnmatch
import glob
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tools.zendnnify.files import read_text, walk
from tools.zendnnify.rewrite import renamer
from tools.zendnnify.rules import ruleset
from tools.zendnnify.rules.model import RuleSet, ZendnnifyError

COPY = "copy"
NATIVE_FUNCTIONS = "aten/src/ATen/native/native_functions.yaml"

# Suffix to language; other files are text without comments or strings.
_LANGUAGES: dict[str, str] = {
    **dict.fromkeys((".c", ".cc", ".cpp", ".cxx", ".h", ".hpp", ".hxx"), "cpp"),
    ".py": "python",
}
COPIED: dict[str, str] = {
    "*.png": "an image",
    "*.jpg": "an image",
    "LICENSE": "a licence names the work that it licenses",
    "THIRD-PARTY-PROGRAMS": "licences name the works that they license",
}
"""Files copied byte for byte (under the renamed path), each with its reason."""

LEFT_OUT: dict[str, str] = {
    "aten/src/ATen/native/mkldnn/xpu/*": "for Intel's GPUs",
    "tests/gtests/internals/test_env_vars_onednn.cpp": "it tests a second prefix of environment "
    "variables; both prefixes become one, and its output would be that of test_env_vars_dnnl.cpp",
}
"""Files that a folder's conversion leaves out, each with its reason."""

NEVER_ENTERED = frozenset({".git", "__pycache__"})


@dataclass(frozen=True)
class Kind:
    """A kind of tree: how to recognise it, and which files the build needs.

    Attributes:
        name: selects the rules.
        title: for messages.
        marks: paths that every such tree has.
        renamed_mark: a path that only a converted tree has.
        prefix: a folder stripped from the outputs' paths.
        release: a file and the pattern that finds the release in it, as far as rules or locks
            distinguish releases; or None.
        default: globs of the files that the build needs; ``*`` also matches slashes.
        whole: a file that a part of a tree does not have; empty if there are no parts.
    """

    name: str
    title: str
    marks: tuple[str, ...]
    renamed_mark: str
    prefix: str
    release: tuple[str, str] | None
    default: tuple[str, ...]
    whole: str = ""


KINDS: tuple[Kind, ...] = (
    Kind(
        name="pytorch",
        title="PyTorch",
        marks=(NATIVE_FUNCTIONS, "aten/src/ATen/native/mkldnn"),
        renamed_mark="aten/src/ATen/native/zendnn/ZENDNNCommon.cpp",
        prefix="",
        release=("version.txt", r"(\d+\.\d+)"),
        default=(
            "aten/src/ATen/native/mkldnn/*",
            "torch/csrc/jit/passes/frozen_ops_to_mkldnn.*",
            "torch/csrc/jit/passes/mkldnn_rewrite.*",
            "torch/utils/mkldnn.py",
            "test/test_mkldnn.py",
        ),
        whole="CMakeLists.txt",
    ),
    Kind(
        name="onednn",
        title="oneDNN",
        marks=("include/oneapi/dnnl/dnnl.h", "CMakeLists.txt"),
        renamed_mark="include/oneapi/zendnn/zendnn.h",
        prefix="",
        release=("CMakeLists.txt", r"PROJECT_VERSION \"(\d+(?:\.\d+)+)"),
        default=("*",),
    ),
    Kind(
        name="ideep",
        title="ideep",
        marks=("ideep.hpp", "ideep/tensor.hpp"),
        renamed_mark="adeep.hpp",
        prefix="",
        release=None,
        default=("ideep.hpp", "ideep/*", "ideep_pin_singletons.hpp", "mkldnn_compat.hpp"),
    ),
    Kind(
        name="ideep",
        title="ideep",
        marks=("include/ideep.hpp", "include/ideep/tensor.hpp"),
        renamed_mark="include/adeep.hpp",
        prefix="include/",
        release=None,
        default=("include/*",),
    ),
)


@dataclass(frozen=True)
class Source:
    """One file to convert.

    Attributes:
        path: relative to the tree, with forward slashes.
        output: the variant's path, relative to the output folder.
        language: ``"cpp"``, ``"python"``, ``"text"``, or ``"copy"`` (byte for byte).
    """

    path: str
    output: str
    language: str


@dataclass(frozen=True)
class Tree:
    """A recognised source tree and its rules."""

    root: Path
    kind: Kind
    release: str
    rules: RuleSet

    @property
    def is_whole(self) -> bool:
        """Whether it has all files of its release, and not only those that variants are made of."""
        return not self.kind.whole or (self.root / self.kind.whole).is_file()

    def source(self, path: str) -> Source:
        """The source at ``path`` (relative, with forward slashes).

        Raises:
            ZendnnifyError: its name is not printable, or no rule covers it.
        """
        if not path.isprintable():
            raise ZendnnifyError(f"{path!r} in {self.root} has an unprintable name; rename it")
        output = renamer(self.rules).text(path.removeprefix(self.kind.prefix), path)
        return Source(path, output, language(path))

    def default_sources(self) -> list[Source]:
        """The files that the build needs, sorted by path."""
        return self._matching(self.kind.default)

    def sources_below(self, paths: list[str]) -> list[Source]:
        """The files at and below ``paths``, which are absolute or relative to the tree.

        Raises:
            ZendnnifyError: a path is not in the tree.
        """
        found: dict[str, Source] = {}
        for name in paths:
            path = self._inside(name)
            if (self.root / path).is_dir():
                below = "" if path == "." else glob.escape(path) + "/"
                found |= {source.path: source for source in self._matching((below + "*",))}
            else:
                found[path] = self.source(path)
        return [found[path] for path in sorted(found)]

    def _inside(self, path: str) -> str:
        for candidate in (self.root / path, Path(path).absolute()):
            if candidate.exists():
                try:
                    return candidate.resolve().relative_to(self.root).as_posix()
                except ValueError:
                    continue
        raise ZendnnifyError(
            f"{path} is not a file or folder of {self.root}; name it relative to that folder"
        )

    def _matching(self, globs: tuple[str, ...]) -> list[Source]:
        return [
            self.source(path)
            for path in walk(self.root, NEVER_ENTERED)
            if _matches(path, globs) and not _matches(path, tuple(LEFT_OUT))
        ]


def language(path: str) -> str:
    """The language of a file, by its name."""
    name = PurePosixPath(path).name
    if any(fnmatch.fnmatchcase(name, known) for known in COPIED):
        return COPY
    return _LANGUAGES.get(PurePosixPath(path).suffix.lower(), "text")


def _matches(path: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(path, one) for one in globs)


def recognise(root: Path) -> Tree:
    """The tree at ``root``.

    Raises:
        ZendnnifyError: the folder does not exist, or is not a known kind of tree.
    """
    if not root.is_dir():
        raise ZendnnifyError(
            f"there is no source tree at {root}; give the folder it was unpacked to"
        )
    root = root.resolve()
    for kind in KINDS:
        if all((root / mark).exists() for mark in kind.marks):
            release = _release(root, kind)
            operators = _operators(root) if kind.name == "pytorch" else ()
            return Tree(root, kind, release, ruleset(kind.name, release, operators))
        if (root / kind.renamed_mark).exists():
            raise ZendnnifyError(f"{root} is {kind.title}, already converted; use it as it is")
    names = ", ".join(sorted({kind.title for kind in KINDS}))
    raise ZendnnifyError(f"{root} is not a source tree that can be converted ({names})")


def _release(root: Path, kind: Kind) -> str:
    if kind.release is None:
        return ""
    path, pattern = kind.release
    match = re.search(pattern, read_text(root / path))
    if match is None:
        raise ZendnnifyError(
            f"{root / path} does not tell the release of {kind.title}; restore that file"
        )
    return match[1]


def _operators(root: Path) -> tuple[str, ...]:
    """Names, without overload, of the operators whose name contains the vocabulary."""
    text = read_text(root / NATIVE_FUNCTIONS)
    names = re.findall(r"^- func: (\w*mkldnn\w*)[.(]", text, re.MULTILINE)
    return tuple(sorted(set(names)))
