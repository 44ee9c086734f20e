"""The command line; ``python -m tools.zendnnify --help``."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tools.zendnnify import files, generate, trees
from tools.zendnnify.generate import Summary
from tools.zendnnify.rewrite import explain, rewrite
from tools.zendnnify.rules.model import ZendnnifyError


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m tools.zendnnify",
        description="Writes the ZenDNN variants of files of a PyTorch, oneDNN or ideep tree.",
        epilog="Exit status: 0 done; 1 with --check, something would change; 2 an error; "
        "130 interrupted.",
    )
    made.add_argument(
        "paths", nargs="*", metavar="PATH", help="files and folders of the tree (default: all)"
    )
    made.add_argument("--project-directory", required=True, type=Path, metavar="TREE")
    made.add_argument("--output-directory", type=Path, metavar="OUT")
    made.add_argument("--check", action="store_true", help="change nothing; list what would change")
    made.add_argument(
        "--explain", metavar="FILE", help="show each substitution in FILE and its rule"
    )
    return made


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = parser().parse_args(arguments)
    try:
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
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value:>8}".rstrip() for name, value in rows)


if __name__ == "__main__":
    try:
        status = main()
        sys.stdout.flush()
        sys.exit(status)
    except BrokenPipeError:  # The reader of the output, such as `head`, has closed it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
