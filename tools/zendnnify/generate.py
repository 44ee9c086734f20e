"""Plans every output in memory, checks and compares it, and only then writes.

``run`` is the Python API; the command line calls it.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tools.zendnnify import files, kernels, locks, manifest, trees
from tools.zendnnify.files import STAGING, Transaction
from tools.zendnnify.manifest import MANIFEST, STATS, Entry, Record
from tools.zendnnify.rewrite import is_generated, renamer, rewrite, with_header
from tools.zendnnify.rules.model import ZendnnifyError
from tools.zendnnify.trees import NATIVE_FUNCTIONS, Source, Tree

COPIED = "copied"
"""The manifest's rule name for a file copied byte for byte."""
KERNEL = "kernel"
"""The manifest's rule name for a declaration or registration made from the operator table."""

_POOL_FROM = 100  # A single process converts fewer files faster.


@dataclass
class Summary:
    """What a run did, or would do with ``check``.

    Attributes:
        kind, release: of the tree.
        outputs: number of files that this run and earlier ones left in the output folder.
        written, removed: output paths relative to the output folder.
        rules: applications of each rule, over all outputs.
        merged: number of new names that replace several old ones, counted per file.
        seconds: wall-clock time.
    """

    kind: str
    release: str
    outputs: int = 0
    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    rules: dict[str, int] = field(default_factory=dict)
    merged: int = 0
    seconds: float = 0.0

    @property
    def changes(self) -> list[str]:
        """All paths written or removed."""
        return sorted(self.written + self.removed)


@dataclass(frozen=True)
class _Made:
    """One output; ``data`` is None when the output folder already holds it."""

    path: str
    entry: Entry
    data: bytes | None


def run(
    tree_root: Path | str,
    out: Path | str,
    paths: list[str] | None = None,
    check: bool = False,
) -> Summary:
    """Writes the ZenDNN variants of a tree's files; reports progress on standard error.

    Args:
        tree_root: a PyTorch, oneDNN or ideep source tree.
        out: the output folder; created when missing.
        paths: files and folders to convert; None for all that the build needs.
        check: change nothing; only report what would change.

    Raises:
        ZendnnifyError: the input is invalid or ``out`` cannot be written; ``out`` is unchanged.
    """
    with files.in_one_sentence(f"convert {tree_root} into {out}"):
        return _run(Path(tree_root), Path(out), paths, check)


def _run(tree_root: Path, out: Path, paths: list[str] | None, check: bool) -> Summary:
    started = time.monotonic()
    tree = trees.recognise(tree_root)
    _warn_of_unknown(tree)
    out = out.resolve()
    _check_apart(tree.root, out)
    before = manifest.load(out)
    plan, explicit = _plan(tree, before, paths)
    _check_outputs(tree, plan, before, out)

    generator = generator_digest()
    conversions: list[_Made] = []
    tasks: list[tuple[Source, bool]] = []
    for source in plan:
        entry = before.entries.get(source.output)
        if (
            entry is not None
            and before.generator == generator
            and entry.source == source.path
            and before.is_unchanged(f"tree/{source.path}", tree.root / source.path)
            and before.is_unchanged(f"out/{source.output}", out / source.output)
        ):
            conversions.append(_Made(source.output, entry, None))
        else:
            tasks.append((source, source.path in explicit))
    conversions += _convert_all(tree, out, tasks)
    if tree.kind.name == "pytorch" and paths is None:
        conversions += _register_kernels(tree, out, plan)

    entries = {item.path: item.entry for item in conversions}
    if paths is not None:
        entries |= _left_alone(tree, before, entries)
    entries = dict(sorted(entries.items()))
    summary = Summary(tree.kind.name, tree.release, outputs=len(entries))
    summary.written = sorted(item.path for item in conversions if item.data is not None)
    summary.removed = sorted(
        path for path in before.owned if path not in entries and os.path.lexists(out / path)
    )
    for entry in entries.values():
        summary.merged += len(entry.merged)
        for rule, count in entry.rules.items():
            summary.rules[rule] = summary.rules.get(rule, 0) + count
    if not check:
        _write(tree, out, before, conversions, entries, summary.removed, generator)
    summary.seconds = time.monotonic() - started
    return summary


def _warn_of_unknown(tree: Tree) -> None:
    """Warns of a release that the rules were not checked with."""
    known = locks.releases(tree.kind.name)
    if known and tree.release not in known:
        print(
            f"zendnnify: warning: the rules were checked with {tree.kind.title} "
            f"{', '.join(known)}, but {tree.root} is {tree.release}; `python -m tools.zendnnify "
            f"--drift {known[0]} {tree.root}` compares",
            file=sys.stderr,
        )


@cache
def generator_digest() -> str:
    """A hash of the generator's code and rules; a change regenerates everything."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


# --- planning ----------------------------------------------------------------------------------


def _plan(
    tree: Tree, before: Record, paths: list[str] | None
) -> tuple[list[Source], frozenset[str]]:
    """The sources to convert, and those of them outside the default set."""
    default = tree.default_sources()
    usual = {source.path for source in default}
    if paths is None:
        # A file once requested by name stays up to date while its source exists.
        asked = [
            tree.source(entry.source)
            for entry in before.entries.values()
            if entry.explicit and (tree.root / entry.source).is_file()
        ]
        by_path = {source.path: source for source in (*default, *asked)}
        plan = [by_path[path] for path in sorted(by_path)]
    else:
        plan = tree.sources_below(paths)
    outputs: dict[str, str] = {}
    for source in plan:
        other = outputs.setdefault(source.output, source.path)
        if other != source.path:
            raise ZendnnifyError(
                f"{other} and {source.path} would both become {source.output}; "
                "convert one of them only"
            )
    return plan, frozenset(source.path for source in plan) - usual


def _left_alone(tree: Tree, before: Record, entries: dict[str, Entry]) -> dict[str, Entry]:
    """Outputs outside this run's paths whose sources still exist."""
    sources = {entry.source for entry in entries.values()}
    return {
        path: entry
        for path, entry in before.entries.items()
        if entry.source not in sources and (tree.root / entry.source).is_file()
    }


def _check_apart(root: Path, out: Path) -> None:
    if out == root or root in out.parents or out in root.parents:
        raise ZendnnifyError(
            f"the output folder {out} and the source tree {root} overlap; "
            "choose an output folder outside of the tree"
        )


def _check_outputs(tree: Tree, plan: list[Source], before: Record, out: Path) -> None:
    """Refuses an output folder, or an existing file, that zendnnify did not write."""
    if not os.path.lexists(out):
        return
    if not out.is_dir():
        raise ZendnnifyError(f"the output folder {out} is not a folder; choose another")
    if not before.ours:
        stranger = _stranger(out)
        if stranger is not None:
            raise ZendnnifyError(
                f"the output folder {out} holds files that zendnnify did not write "
                f"({stranger.relative_to(out)}); choose an empty folder"
            )
        return
    if before.kind not in ("", tree.kind.name):
        raise ZendnnifyError(
            f"the output folder {out} holds files made from {before.kind}, which {tree.kind.name} "
            "would replace; choose another"
        )
    for source in plan:
        if source.output not in before.owned and os.path.lexists(out / source.output):
            raise ZendnnifyError(
                f"{out / source.output} was not written by zendnnify and is in the way of "
                f"{source.path}; move it or choose another output folder"
            )


def _stranger(folder: Path) -> Path | None:
    """The first file below ``folder`` outside other runs' output folders."""
    try:
        with os.scandir(folder) as items:
            found = sorted(items, key=lambda item: item.name)
    except OSError as error:
        raise ZendnnifyError(f"cannot read the folder {folder}: {error.strerror}") from error
    for item in found:
        if not item.is_dir(follow_symlinks=False):
            return Path(item.path)
        if not os.path.lexists(Path(item.path) / MANIFEST):
            stranger = _stranger(Path(item.path))
            if stranger is not None:
                return stranger
    return None


# --- converting --------------------------------------------------------------------------------

_worker: tuple[Tree, Path]
"""The tree and the output folder, in each worker process."""


def _start_worker(tree: Tree, out: Path) -> None:
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent stops the workers.
    _worker = (tree, out)


def _work(task: tuple[Source, bool]) -> _Made:
    return _convert(*_worker, *task)


def _convert_all(tree: Tree, out: Path, tasks: list[tuple[Source, bool]]) -> list[_Made]:
    processes = min(len(os.sched_getaffinity(0)), 8)
    if len(tasks) < _POOL_FROM or processes == 1:
        conversions = (_convert(tree, out, *task) for task in tasks)
        return list(files.tell("converted", conversions, len(tasks)))
    # Forked workers share the compiled rules and import nothing.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(processes, context, _start_worker, (tree, out)) as pool:
        try:
            return list(files.tell("converted", pool.map(_work, tasks, chunksize=32), len(tasks)))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


@dataclass(frozen=True)
class Converted:
    """One source's variant, and what made it: the rules' counts and the merged names."""

    data: bytes
    result: bytes
    rules: dict[str, int]
    merged: tuple[str, ...]


def convert(tree: Tree, source: Source) -> Converted:
    """Converts one file of the tree in memory.

    Raises:
        ZendnnifyError: it cannot be read, or no rule covers something in it.
    """
    path = tree.root / source.path
    data = files.read_bytes(path)
    rules = {COPIED: 1}
    merged: tuple[str, ...] = ()
    result = data
    if source.language != trees.COPY:
        text = files.decode(data, path)
        if not is_generated(text):
            rewritten = rewrite(text, source.path, tree.rules, source.language)
            rules, merged = rewritten.counts(), rewritten.merged
            result = with_header(rewritten.text, source.path, source.language).encode()
    return Converted(data, result, rules, merged)


def _convert(tree: Tree, out: Path, source: Source, explicit: bool) -> _Made:
    converted = convert(tree, source)
    shas = _sha256(converted.data), _sha256(converted.result)
    entry = Entry(source.path, *shas, converted.rules, converted.merged, explicit)
    return _made(out, source.output, converted.result, entry)


def defined_operators(tree: Tree, text: str, plan: list[Source]) -> list[kernels.Operator]:
    """The operators of the table ``text`` that name a kernel to convert.

    Raises:
        ZendnnifyError: the table names a kernel that no converted file defines.
    """
    operators = kernels.parse(text, NATIVE_FUNCTIONS)
    code = "\n".join(
        files.read_text(tree.root / source.path) for source in plan if source.language == "cpp"
    )
    for operator, kernel in kernels.undefined(operators, code):
        raise ZendnnifyError(
            f"{operator.location}: no converted file defines {kernel}, the kernel of "
            f"{operator.name}; add its file to the default set in tools/zendnnify/trees.py"
        )
    return operators


def _register_kernels(tree: Tree, out: Path, plan: list[Source]) -> list[_Made]:
    """Declares and registers the kernels that the operator table names."""
    data = files.read_bytes(tree.root / NATIVE_FUNCTIONS)
    text = files.decode(data, tree.root / NATIVE_FUNCTIONS)
    operators = defined_operators(tree, text, plan)
    names = renamer(tree.rules)
    outputs = {
        kernels.HEADER: kernels.header(operators, names, NATIVE_FUNCTIONS, tree.rules.declarations),
        kernels.REGISTRATION: kernels.registration(operators, names, NATIVE_FUNCTIONS),
    }
    return [
        _made(
            out,
            path,
            result.encode(),
            Entry(
                NATIVE_FUNCTIONS,
                _sha256(data),
                _sha256(result.encode()),
                {KERNEL: result.count(";\n") - 1},
            ),
        )
        for path, result in outputs.items()
    ]


def _made(out: Path, path: str, result: bytes, entry: Entry) -> _Made:
    try:
        same = (out / path).read_bytes() == result
    except OSError:
        same = False
    return _Made(path, entry, None if same else result)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# --- writing -----------------------------------------------------------------------------------


def _write(
    tree: Tree,
    out: Path,
    before: Record,
    made: list[_Made],
    entries: dict[str, Entry],
    removed: list[str],
    generator: str,
) -> None:
    """Writes all outputs and the manifest in one transaction; writes nothing when up to date.

    Raises:
        ZendnnifyError: the folder cannot be written; it is unchanged.
    """
    record = manifest.dump(tree.kind.name, tree.release, generator, entries)
    changed = [item for item in made if item.data is not None]
    stats: dict[str, list[int]] = {}
    for path, entry in entries.items():
        places = {f"tree/{entry.source}": tree.root / entry.source, f"out/{path}": out / path}
        stats |= {key: found for key, place in places.items() if (found := files.stat(place))}
    same_record = (out / MANIFEST).is_file() and files.read_bytes(out / MANIFEST) == record
    leftover = os.path.lexists(out / STAGING)  # An interrupted run left it.
    if not changed and not removed and same_record and not leftover and stats == before.stats:
        return
    with Transaction(out) as transaction:
        if manifest.load(out).entries != before.entries:
            raise ZendnnifyError(f"another run has written into {out} meanwhile; run again")
        if not same_record:
            transaction.stage(MANIFEST, record)
        for item in changed:
            assert item.data is not None
            staged = files.stat(transaction.stage(item.path, item.data))
            assert staged is not None
            stats[f"out/{item.path}"] = staged
        transaction.stage(STATS, manifest.dump_stats(generator, stats))
        transaction.commit(removed)
