"""Writes a new function of each element for plans, such as ``tan --like sigmoid``.

It adds the row to the table of functions, a kernel, the tests' reference and a line of
docs/plan.md, which build and pass as they are: tests against stock torch and a benchmark come from
the row. docs/new-kernel.md says how to go on. What the new function has in common with an existing
one, such as the domain that tests map to, is taken over from that. Either all files change or none.
"""

from __future__ import annotations

import argparse
import keyword
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.setup_helpers.errors import SetupError, exit_code_of
from tools.setup_helpers.files import write_atomic

REPO = Path(__file__).parents[1]
TABLE = "torch/backends/zendnn/table/functions.py"
_KERNELS = "aten/src/ATen/native/zendnn/kernels"
_FUNCTIONS = f"{_KERNELS}/vecmath.h"

#: Functions of C that GCC knows as ``__builtin_NAMEf`` and torch as ``torch.NAME``.
IN_C = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "exp2", "expm1", "log10", "log1p"),
    *("sinh", "tan", "trunc"),
)


@dataclass(frozen=True)
class Kernel:
    """What is written.

    Attributes:
        name: as in the table of operators, in torch and in the kernels.
        scalar: the function of a ``float x``, in C++.
        traits: more arguments of its row, as Python source.
        domain: what tests compute before it, as Python source; empty for nothing.
        once: whether tests apply it only once in a row.
    """

    name: str
    scalar: str
    traits: str = ""
    domain: str = ""
    once: bool = False


@dataclass(frozen=True)
class Insertion:
    """Text for a file, next to a line that occurs once there; no text leaves the file as it is."""

    file: str
    anchor: str
    text: Callable[[Kernel], str]
    before: bool = False

    def apply(self, source: str, kernel: Kernel) -> str:
        """Return the file's new text.

        Raises:
            SetupError: if the anchor is not there exactly once.
        """
        if (count := source.count(self.anchor)) != 1:
            line = self.anchor.strip().splitlines()[0]
            raise SetupError(
                f"{self.file} has {count} times '{line}', beside which a new function goes: "
                "restore that line, or change ANCHORS in tools/new_kernel.py"
            )
        text = self.text(kernel)
        return source.replace(
            self.anchor, text + self.anchor if self.before else self.anchor + text
        )


def _kernel(kernel: Kernel) -> str:
    name = kernel.name
    return f"""
// Portable: one lane after the other.
inline Vec {name}_of_lanes(Vec x) {{
  return of_lanes(x, [](float x) {{ return {kernel.scalar}; }});
}}

#ifdef __AVX512F__
// A stub, to be written in vectors.
inline Vec {name}(Vec x) {{
  return {name}_of_lanes(x);
}}
#else
inline Vec {name}(Vec x) {{
  return {name}_of_lanes(x);
}}
#endif
"""


ANCHORS = (
    Insertion(
        TABLE,
        '        _plain("erf", "", foreign=True),\n',
        lambda k: f'        _plain("{k.name}", ""{k.traits}),\n',
        before=True,
    ),
    Insertion(
        _FUNCTIONS,
        "\n} // namespace\n} // namespace at::native::zendnn::kernels::ZENDNN_KERNEL_ISA\n",
        _kernel,
        before=True,
    ),
    Insertion(
        "test/zendnn/support/interpreter.py",
        '    "erf": lambda x, alpha, beta: torch.erf(x),\n',
        lambda k: f'    "{k.name}": lambda x, alpha, beta: torch.{k.name}(x),\n',
        before=True,
    ),
    Insertion(
        "test/zendnn/support/samples.py",
        "BEFORE: dict[str, list[tuple[str, float, float]]] = {\n",
        lambda k: f'    "{k.name}": {k.domain},\n' if k.domain else "",
    ),
    Insertion(
        "test/zendnn/support/samples.py",
        "ONCE = [\n",
        lambda k: f'    "{k.name}",\n' if k.once else "",
    ),
    Insertion(
        "docs/plan.md",
        "| `erf` | | none: passes match it |\n",
        lambda k: f"| `{k.name}` | | `eltwise` only |\n",
        before=True,
    ),
)


def kernel_like(
    name: str, like: str, functions: Mapping[str, Any], samples: str, scalar: str = ""
) -> Kernel:
    """Return what is to be written for ``name``.

    Args:
        name: a function that torch has as ``aten::NAME(self)``.
        like: an existing function of the table.
        functions: the table's functions of each element, by name.
        samples: the source of the tests' samples.
        scalar: C++ for a ``float x``; by default, C's function of that name.

    Raises:
        SetupError: if no function can be made so, and why.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*[a-z0-9]", name) or keyword.iskeyword(name):
        raise SetupError(f"'{name}' is no name of a function: use lower-case letters and digits")
    row = functions.get(like)
    if row is None or row.has_parameters or row.foreign:
        usable = [x.name for x in functions.values() if not (x.has_parameters or x.foreign)]
        raise SetupError(
            f"--like {like} is no function of each element without parameters: choose one of "
            f"{', '.join(usable)}; CONTRIBUTING.md says how other operators are added"
        )
    if name in functions:
        raise SetupError(f"{name} exists already, in {TABLE}: choose another name")
    if not (scalar or name in IN_C):
        raise SetupError(
            f"C has no function {name}: give --scalar an expression in x, such as '1 / x'"
        )
    traits = ", keeps_integers=True" if row.keeps_integers else ""
    traits += ", **_UNBOUNDED" if row.magnifies == float("inf") else ""
    domain = re.search(rf'^    "{like}": (\[\(.*\]),$', samples, re.MULTILINE)
    once = re.search(rf'^    "{like}",$', samples, re.MULTILINE)
    return Kernel(
        name,
        scalar or f"__builtin_{name}f(x)",
        traits,
        domain[1] if domain else "",
        once=bool(once),
    )


def edits(kernel: Kernel, repo: Path) -> dict[Path, str]:
    """Return the new text of each file that changes.

    Raises:
        SetupError: if the name is in use among the kernels, or a file is not as expected.
    """
    texts: dict[Path, str] = {}
    for insertion in ANCHORS:
        path = repo / insertion.file
        if path not in texts:
            texts[path] = _read(path)
        texts[path] = insertion.apply(texts[path], kernel)
    for path in (repo / _KERNELS).glob("vec*.h"):
        if re.search(rf"\b{kernel.name}\(Vec\b", _read(path)):
            raise SetupError(
                f"{path.relative_to(repo)} has a function {kernel.name} already: "
                "only its row is missing, see docs/new-kernel.md"
            )
    return {path: text for path, text in texts.items() if text != _read(path)}


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise SetupError(f"cannot read {path}: {error.strerror}") from error


def write_all(texts: Mapping[Path, str]) -> None:
    """Write all files; after an error or an interruption, all have their old text."""
    old = {path: path.read_bytes() for path in texts}
    try:
        for path, text in texts.items():
            write_atomic(path, text.encode())
    except BaseException:
        for path, content in old.items():
            if path.read_bytes() != content:
                write_atomic(path, content)
        raise


def check_torch(name: str) -> None:
    """Check that torch has this function of each element.

    Raises:
        SetupError: if not.
    """
    import torch

    function, x = getattr(torch, name, None), torch.rand(2, 3)
    try:
        schema = torch._C._get_schema(f"aten::{name}", "")
        taken = [argument.name for argument in schema.arguments] == ["self"]
        y = function(x) if taken and function is not None else None
    except RuntimeError:
        y = None
    if not (isinstance(y, torch.Tensor) and (y.shape, y.dtype) == (x.shape, x.dtype)):
        raise SetupError(
            f"torch has no function {name} of each element, aten::{name}(Tensor self): "
            "choose one that it has"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.new_kernel", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("name", help="torch's name of the function, such as tan")
    parser.add_argument("--like", default="sigmoid", help="an existing function; default: sigmoid")
    parser.add_argument("--scalar", default="", help="the function of a float x, in C++")
    options = parser.parse_args(arguments)

    def run() -> None:
        from torch.backends.zendnn.table.functions import FUNCTIONS

        samples = _read(REPO / "test/zendnn/support/samples.py")
        kernel = kernel_like(options.name, options.like, FUNCTIONS, samples, options.scalar)
        check_torch(kernel.name)
        texts = edits(kernel, REPO)
        write_all(texts)
        print(*(f"changed {path.relative_to(REPO)}" for path in texts), sep="\n")
        print(
            "build: make build",
            f"test:  .venv/bin/python -m pytest test/zendnn -k {kernel.name}",
            f"time:  .venv/bin/python -m benchmarks.operations --only '{kernel.name} frozen'",
            "go on: docs/new-kernel.md",
            sep="\n",
        )

    return exit_code_of(run)


if __name__ == "__main__":
    sys.exit(main())
