"""Converts a whole PyTorch tree in place, and reverts that.

``convert`` adds the variants of upstream's files, this project's own files and the third-party
sources, and edits the files of upstream's build. A journal in the tree names each written file
with its hashes before and after, and keeps the originals, so that an interrupted run can be run
again and ``revert`` restores every byte.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.zendnnify import drift, files, generate, kernels, locks, manifest, trees
from tools.zendnnify.locks import Lock
from tools.zendnnify.rewrite import apply_edits, renamer
from tools.zendnnify.rules import tree as tree_rules
from tools.zendnnify.rules.model import ZendnnifyError
from tools.zendnnify.trees import NATIVE_FUNCTIONS, Tree

STATE = ".zendnnify"
"""The folder in a converted tree: the journal, the originals, and files that are being written."""

OWN_FOLDERS: tuple[str, ...] = (
    "aten/src/ATen/native/zendnn",
    "third_party/zendnn",
    "torch/backends/zendnn",
    "torch/csrc/zendnn",
)
OWN_FILES: tuple[str, ...] = (
    *(f"cmake/{name}.cmake" for name in ("BLIS", "Kernels", "OperatorTables", "Torch", "Unity")),
    *(f"cmake/{name}.cmake" for name in ("WholeTree", "WholeTreeDependencies", "ZenDNN")),
    "cmake/libtorch_zendnn.map",
    *(f"tools/setup_helpers/{name}.py" for name in ("errors", "files", "tables")),
)
"""What this repository adds to a tree, at the same places as here."""


@dataclass(frozen=True)
class Change:
    """One written file.

    Attributes:
        before: the sha256 of its bytes before the conversion; None where there was no file.
        after: the sha256 of its converted bytes. More follow while a later conversion replaces
            earlier ones: those that it may not have reached.
    """

    before: str | None
    after: tuple[str, ...]


@dataclass(frozen=True)
class Done:
    """What a run did.

    Attributes:
        release: of the tree.
        added, edited: number of files that the conversion adds and edits.
        written: paths that this run wrote or removed, relative to the tree.
    """

    release: str
    added: int
    edited: int
    written: list[str]


@dataclass(frozen=True)
class _File:
    """A planned file's bytes and permissions."""

    data: bytes
    mode: int = 0o644


def convert(
    root: Path,
    repository: Path,
    third_party: Callable[[], Mapping[str, Path]],
    force: bool = False,
) -> Done:
    """Converts the PyTorch tree at ``root``; does what is left to do in a converted one.

    Args:
        root: the tree.
        repository: this project's checkout, for its own files.
        third_party: brings the folders to copy, by their place in the tree; called when the tree
            has been found fit.
        force: also convert a tree with changes, or of another release than those known. Changes
            are kept as part of the originals.

    Raises:
        ZendnnifyError: the tree cannot be converted; it is unchanged.
    """
    tree = _recognise(root)
    with _one_run(tree.root), files.in_one_sentence(f"convert {tree.root}"):
        journal = _load(tree.root)
        _check_journal(tree.root, journal, force)
        plan = _upstream(tree, journal)
        if not force:
            _check_clean(tree, journal)
            _check_known(tree, journal)
        additions = _additions(repository, third_party())
        if twice := sorted(plan.keys() & additions.keys()):
            raise ZendnnifyError(
                f"{twice[0]} is both converted and handwritten; remove one of them"
            )
        plan |= additions
        if not force:
            _check_free(tree.root, journal, plan)
        return _write(tree, journal, plan)


def revert(root: Path, force: bool = False) -> Done:
    """Restores the tree as it was before ``convert``.

    Args:
        root: the tree.
        force: also discard changes made to converted files since.

    Raises:
        ZendnnifyError: the tree is not converted, or converted files have changed since.
    """
    root = root.resolve()
    if not (root / STATE / "journal.json").is_file():
        raise ZendnnifyError(f"{root} has not been converted in place; there is nothing to revert")
    with _one_run(root), files.in_one_sentence(f"revert {root}"):
        journal = _load(root)
        _check_journal(root, journal, force)
        written = _restore(root, journal)
        release = trees.recognise(root).release
        (root / STATE / "journal.json").unlink()  # The end of the run removes the rest.
    return _done(release, journal, written)


def lock(root: Path) -> Path:
    """Writes the lock of the unconverted tree at ``root``; returns its path."""
    tree = _recognise(root)
    journal = _load(tree.root)

    def original(path: str) -> Path:
        return _original(tree.root, journal, path)

    hashes = {path: found for path in _sources(tree) if (found := _hash(original(path)))}
    rules = drift.matches(tree, original).rules
    return locks.write(tree.kind.name, tree.release, Lock(rules, hashes))


# --- the journal -------------------------------------------------------------------------------


def _load(root: Path) -> dict[str, Change]:
    path = root / STATE / "journal.json"
    if not path.is_file():
        return {}
    try:
        noted = json.loads(path.read_text())
        journal = {name: Change(x["before"], tuple(x["after"])) for name, x in noted.items()}
        sound = all(manifest.is_inside(name) for name in journal)
    except (ValueError, AttributeError, KeyError, TypeError):
        sound = False
    if not sound:
        raise ZendnnifyError(f"{path} is damaged; take a fresh copy of the tree")
    return journal


@contextlib.contextmanager
def _one_run(root: Path) -> Iterator[None]:
    """Allows one run at a time in a tree; leaves neither scratch files nor an empty state."""
    state = root / STATE
    with files.in_one_sentence(f"write to {root}"):
        state.mkdir(exist_ok=True)
        (state / ".gitignore").write_text("*\n")
        stream = files.lock(state / "lock", root)
    try:
        yield
    finally:
        (state / "new").unlink(missing_ok=True)
        if not (state / "journal.json").is_file():
            shutil.rmtree(state, ignore_errors=True)
        stream.close()


def _original(root: Path, journal: Mapping[str, Change], path: str) -> Path:
    """Where a file of the unconverted tree is now."""
    return root / STATE / "original" / path if path in journal else root / path


def _hash(path: Path) -> str | None:
    """The sha256 of a file's bytes, or None where there is none."""
    if not os.path.lexists(path):
        return None
    return hashlib.sha256(files.read_bytes(path)).hexdigest()


# --- checks ------------------------------------------------------------------------------------


def _recognise(root: Path) -> Tree:
    tree = trees.recognise(root)
    if tree.kind.name != "pytorch":
        raise ZendnnifyError(
            f"{tree.root} is {tree.kind.title}; only a PyTorch tree is converted in place"
        )
    if not tree_rules.hold_for(tree.release):
        raise ZendnnifyError(
            f"{tree.root} is PyTorch {tree.release}, which is too old to be converted in place; "
            "use 2.6 or newer, or convert its files with --project-directory"
        )
    for path in _edited():
        if not (tree.root / path).is_file():
            raise ZendnnifyError(
                f"{tree.root} is only a part of PyTorch, without {path}; name a whole source tree"
            )
    return tree


def _check_journal(root: Path, journal: Mapping[str, Change], force: bool) -> None:
    """Refuses a tree whose converted files were changed since the conversion."""
    changed = [
        path
        for path, change in journal.items()
        if _hash(root / path) not in (change.before, *change.after)
    ]
    if changed and not force:
        raise ZendnnifyError(
            f"{_named(root, changed)} changed since the conversion; save the changes elsewhere and "
            "discard them with --force"
        )


def _check_clean(tree: Tree, journal: Mapping[str, Change]) -> None:
    """Refuses a git checkout with uncommitted changes other than ours."""
    if not (tree.root / ".git").exists():
        return
    command = ["git", "-C", str(tree.root), "status", "--porcelain", "-z", "--no-renames"]
    options = ["--untracked-files=no", "--ignore-submodules=all"]
    try:
        answer = subprocess.run([*command, *options], capture_output=True, check=False)
    except FileNotFoundError:
        raise ZendnnifyError(
            f"git is missing, so changes in {tree.root} cannot be seen; install git or use --force"
        ) from None
    if answer.returncode:
        said = answer.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise ZendnnifyError(f"git cannot tell what changed in {tree.root}: {said[0]}")
    listed = [os.fsdecode(line)[3:] for line in answer.stdout.split(b"\0") if line]
    changed = [path for path in listed if path not in journal]
    if changed:
        raise ZendnnifyError(
            f"{_named(tree.root, changed)} has uncommitted changes; commit or stash them, or keep "
            "them with --force"
        )


def _sources(tree: Tree) -> list[str]:
    """The files of upstream's that the conversion reads."""
    converted = {source.path for source in tree.default_sources()}
    return sorted(converted.union(_edited()))


def _check_known(tree: Tree, journal: Mapping[str, Change]) -> None:
    """Refuses a tree whose files differ from those that the rules were written for."""
    known = locks.read(tree.kind.name, tree.release)
    if known is None:
        releases = ", ".join(locks.releases(tree.kind.name))
        raise ZendnnifyError(
            f"{tree.root} is PyTorch {tree.release}, whose files are not known; use {releases}, or "
            "convert by the rules' anchors alone with --force"
        )
    hashes = known.hashes
    names = sorted({*_sources(tree), *hashes})
    changed = [
        name for name in names if _hash(_original(tree.root, journal, name)) != hashes.get(name)
    ]
    if changed:
        raise ZendnnifyError(
            f"{_named(tree.root, changed)} differs from PyTorch {tree.release}'s; restore it, or "
            "convert by the rules' anchors alone with --force"
        )


def _check_free(root: Path, journal: Mapping[str, Change], plan: Mapping[str, _File]) -> None:
    """Refuses to replace a file of the user's by one that the conversion adds."""
    added = plan.keys() - journal.keys() - set(_edited())
    taken = sorted(path for path in added if os.path.lexists(root / path))
    if taken:
        raise ZendnnifyError(
            f"{_named(root, taken)} is in the way of a converted file; move it away, or replace "
            "it until --revert with --force"
        )


def _named(root: Path, paths: list[str]) -> str:
    more = f" (and {len(paths) - 1} more)" if len(paths) > 1 else ""
    return f"{root / paths[0]}{more}"


# --- planning ----------------------------------------------------------------------------------


def _upstream(tree: Tree, journal: Mapping[str, Change]) -> dict[str, _File]:
    """The variants of upstream's files, and upstream's files as edited.

    Raises:
        ZendnnifyError: a rule does not fit a file; the message names rule, file and line.
    """
    places = {path: _original(tree.root, journal, path) for path in _edited()}
    texts = {
        path: apply_edits(files.read_text(place), path, tree_rules.EDITS)
        for path, place in places.items()
    }
    sources = tree.default_sources()
    names = renamer(tree.rules)
    table = texts[NATIVE_FUNCTIONS]
    operators = generate.defined_operators(tree, table, sources)
    texts[NATIVE_FUNCTIONS] = kernels.with_entries(table, operators, names)
    header = kernels.tree_header(operators, names, NATIVE_FUNCTIONS, tree.rules.declarations)
    return {
        **{path: _File(text.encode(), _mode(places[path])) for path, text in texts.items()},
        **{source.output: _File(generate.convert(tree, source).result) for source in sources},
        kernels.HEADER: _File(header.encode()),
    }


def _edited() -> list[str]:
    """The files of upstream's that a conversion edits."""
    return sorted({edit.file for edit in tree_rules.EDITS} | {NATIVE_FUNCTIONS})


def _additions(repository: Path, third_party: Mapping[str, Path]) -> dict[str, _File]:
    """This project's own files, and the third-party sources."""
    places = {path: repository / path for path in OWN_FILES}
    for folder in OWN_FOLDERS:
        for path in files.walk(repository / folder, trees.NEVER_ENTERED):
            places[f"{folder}/{path}"] = repository / folder / path
    for folder, source in third_party.items():
        for path in files.walk(source, trees.NEVER_ENTERED):
            name = f"{folder}/{path}"
            if name in places:
                raise ZendnnifyError(f"{source / path} and {places[name]} would both become {name}")
            if path not in (manifest.MANIFEST, manifest.STATS):
                places[name] = source / path
    return {path: _read(place) for path, place in places.items()}


def _read(path: Path) -> _File:
    return _File(files.read_bytes(path), _mode(path))


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


# --- writing -----------------------------------------------------------------------------------


def _write(tree: Tree, before: dict[str, Change], plan: Mapping[str, _File]) -> Done:
    """Writes the plan, and restores files of an earlier conversion that it lacks.

    An error or an interruption restores a tree that was not converted before. In a converted one,
    the journal names what is there, and the command can be run again.
    """
    root = tree.root
    journal = {
        path: Change(
            before[path].before if path in before else _hash(root / path),
            (hashlib.sha256(file.data).hexdigest(),),
        )
        for path, file in sorted(plan.items())
    }
    if not before:  # A run that was killed before it wrote a journal changed nothing else.
        shutil.rmtree(root / STATE / "original", ignore_errors=True)
    try:
        for path, change in journal.items():
            if change.before is not None and path not in before:
                _put(root, root / STATE / "original" / path, _read(root / path))
        if journal != before:
            _save(root, before | {path: _over(before, path, journal[path]) for path in journal})
        written = _restore(root, {path: before[path] for path in before if path not in plan})
        for path in files.tell("written", journal, len(journal)):
            if _hash(root / path) not in journal[path].after:
                _put(root, root / path, plan[path])
                written.append(path)
        if journal != before:
            _save(root, journal)
    except BaseException:
        if not before:
            _restore(root, journal)
            (root / STATE / "journal.json").unlink(missing_ok=True)
        raise
    return _done(tree.release, journal, written)


def _over(before: Mapping[str, Change], path: str, change: Change) -> Change:
    """``change``, as long as the file may still have what an earlier conversion wrote."""
    earlier = before[path].after if path in before else ()
    return Change(change.before, (*change.after, *earlier))


def _save(root: Path, journal: Mapping[str, Change]) -> None:
    noted = {path: asdict(change) for path, change in sorted(journal.items())}
    _put(root, root / STATE / "journal.json", _File((json.dumps(noted, indent=1) + "\n").encode()))


def _restore(root: Path, journal: Mapping[str, Change]) -> list[str]:
    """Gives the journal's files their bytes before; returns the paths of those that had others."""
    restored: list[str] = []
    for path in files.tell("restored", journal, len(journal)):
        target, before = root / path, journal[path].before
        if _hash(target) == before:
            continue
        if before is None:
            target.unlink()
            _drop_compiled(target)
            _drop_empty(root, target.parent)
        else:
            _put(root, target, _read(root / STATE / "original" / path))
        restored.append(path)
    return restored


def _done(release: str, journal: Mapping[str, Change], written: list[str]) -> Done:
    edited = sum(change.before is not None for change in journal.values())
    return Done(release, len(journal) - edited, edited, sorted(written))


def _put(root: Path, target: Path, file: _File) -> None:
    """Writes a file in one step: ``target`` has either the old bytes or the new ones."""
    scratch = root / STATE / "new"
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch.write_bytes(file.data)
    scratch.chmod(file.mode)
    os.replace(scratch, target)


def _drop_compiled(module: Path) -> None:
    """Removes what Python compiled from a removed module."""
    folder = module.parent / "__pycache__"
    for compiled in folder.glob(f"{module.stem}.*.pyc"):
        compiled.unlink()
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _drop_empty(root: Path, folder: Path) -> None:
    while folder != root and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
