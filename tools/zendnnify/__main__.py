"""The command line; ``python -m tools.zendnnify --help``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from tools.zendnnify import drift, files, generate, in_place, trees
from tools.zendnnify.generate import Summary
from tools.zendnnify.rewrite import explain, rewrite
from tools.zendnnify.rules.model import ZendnnifyError

REPO = Path(__file__).resolve().parents[2]


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m tools.zendnnify",
        description="Writes the ZenDNN variants of files of a PyTorch, oneDNN or ideep tree, or "
        "converts a whole PyTorch tree in place.",
        epilog="Exit status: 0 done; 1 something would change (--check) or a rule is lost "
        "(--drift); 2 an error; 130 interrupted.",
    )
    result.add_argument(
        "paths", nargs="*", metavar="PATH", help="files and folders of the tree (default: all)"
    )
    what = result.add_mutually_exclusive_group(required=True)
    what.add_argument("--project-directory", type=Path, metavar="TREE")
    what.add_argument("--in-place", type=Path, metavar="TREE", help="convert a PyTorch tree itself")
    what.add_argument("--revert", type=Path, metavar="TREE", help="undo --in-place")
    what.add_argument(
        "--lock", type=Path, metavar="TREE", help="note what the rules match in a tree as known"
    )
    what.add_argument(
        "--drift",
        nargs=2,
        metavar=("OLD", "NEW"),
        help="compare what the rules match in two trees, or in releases with a lock",
    )
    result.add_argument("--output-directory", type=Path, metavar="OUT")
    result.add_argument("--json", action="store_true", help="with --drift: all rules, as JSON")
    result.add_argument(
        "--check", action="store_true", help="change nothing; list what would change"
    )
    result.add_argument(
        "--explain", metavar="FILE", help="show each substitution in FILE and its rule"
    )
    result.add_argument(
        "--force",
        action="store_true",
        help="with --in-place or --revert: also where files differ from what is known",
    )
    return result


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = parser().parse_args(arguments)
    try:
        if options.json and options.drift is None:
            raise ZendnnifyError("--json goes with --drift")
        if options.project_directory is None:
            _check_alone(options)
            if options.drift is not None:
                return _drift(options)
            _whole_tree(options)
            return 0
        if options.force:
            raise ZendnnifyError("--force goes with --in-place or --revert")
        if options.explain is not None:
            if options.paths or options.check or options.output_directory is not None:
                raise ZendnnifyError(
                    "--explain FILE writes nothing: give it no PATH, --check or --output-directory"
                )
            with files.in_one_sentence(f"explain {options.explain}"):
                _explain(options.project_directory, options.explain)
            return 0
        if options.output_directory is None:
            raise ZendnnifyError("say where to write: --output-directory OUT")
        summary = generate.run(
            options.project_directory,
            options.output_directory,
            options.paths or None,
            options.check,
        )
    except ZendnnifyError as error:
        print(f"zendnnify: error: {_in_one_line(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("zendnnify: interrupted", file=sys.stderr)
        return 130
    if options.check:
        for path in summary.changes:
            print(path)
        return 1 if summary.changes else 0
    print(table(summary))
    return 0


def _check_alone(options: argparse.Namespace) -> None:
    if options.paths or options.check or options.explain or options.output_directory:
        raise ZendnnifyError(
            "PATH, --check, --explain and --output-directory go with --project-directory"
        )
    if options.force and options.in_place is None and options.revert is None:
        raise ZendnnifyError("--force goes with --in-place or --revert")


def _drift(options: argparse.Namespace) -> int:
    with files.in_one_sentence("compare {} with {}".format(*options.drift)):
        found = drift.compare(*options.drift)
    print(found.json() if options.json else found.table())
    return 1 if found.failed else 0


def _lock(root: Path) -> Path:
    tree = trees.recognise(root)
    with files.in_one_sentence(f"read {root}"):
        return in_place.lock(root) if drift.in_place_edits(tree) else drift.lock(root)


def _whole_tree(options: argparse.Namespace) -> None:
    if options.lock is not None:
        print(_lock(options.lock))
    elif options.revert is not None:
        print(_tree_table(in_place.revert(options.revert, options.force)))
    else:
        print(_tree_table(in_place.convert(options.in_place, REPO, _third_party, options.force)))


def _third_party() -> Mapping[str, Path]:
    from tools.setup_helpers import build, errors

    try:
        return build.third_party()
    except errors.SetupError as error:
        raise ZendnnifyError(str(error)) from error


def _tree_table(done: in_place.Done) -> str:
    return _aligned(
        [
            (f"pytorch {done.release}", ""),
            ("files added", f"{done.added}"),
            ("files edited", f"{done.edited}"),
            ("written now", f"{len(done.written)}"),
        ]
    )


def _in_one_line(text: str) -> str:
    """Escapes unprintable characters, such as a newline in a file name."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _explain(root: Path, path: str) -> None:
    tree = trees.recognise(root)
    for source in tree.sources_below([path]):
        print(f"{source.path} -> {source.output}")
        if source.language == trees.COPY:
            print("  copied byte for byte")
            continue
        text = files.read_text(tree.root / source.path)
        result = rewrite(text, source.path, tree.rules, source.language)
        for line in explain(text, source.path, result):
            print(f"  {line}")


def table(summary: Summary) -> str:
    """The summary as an aligned table."""
    rows = [
        (f"{summary.kind} {summary.release}", ""),
        ("files", f"{summary.outputs}"),
        ("  written", f"{len(summary.written)}"),
        ("  removed", f"{len(summary.removed)}"),
        ("merged names", f"{summary.merged}"),
        ("seconds", f"{summary.seconds:.1f}"),
        ("rules applied", f"{sum(summary.rules.values())}"),
        *((f"  {rule}", f"{count}") for rule, count in sorted(summary.rules.items())),
    ]
    return _aligned(rows)


def _aligned(rows: list[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value:>8}".rstrip() for name, value in rows)


if __name__ == "__main__":
    try:
        status = main()
        sys.stdout.flush()
        sys.exit(status)
    except BrokenPipeError:  # The reader of the output, such as `head`, has closed it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
