"""Writes the table of environment variables: what the sources read, with values and defaults.

The sources say what a variable takes (``word_from``, ``number_from``, ``whole_number_from``); this
file adds what it means, and what the sources do not say. ``--document FILE`` replaces the table
between the marker lines of a document.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.setup_helpers.errors import SetupError, exit_code_of
from tools.setup_helpers.files import write_atomic

REPO = Path(__file__).parents[1]


@dataclass(frozen=True)
class Variable:
    """An environment variable; ``values`` and ``default`` are given where sources do not tell.

    ``since`` is the first version of this project that reads it.
    """

    meaning: str
    values: str = ""
    default: str = ""
    since: str = "0.1.0"


VARIABLES = {
    "ZENDNN_ALLOCATOR_CACHE": Variable(
        "bytes of freed memory to keep", default="an eighth of the memory"
    ),
    "ZENDNN_AMD_DIR": Variable(
        "adds [AOCL-DLP](zendnnify.md#amds-own-library) to what linear layers in plans choose from",
        "the folder of an installed AOCL-DLP or ZenDNN, 5.2 or later",
        "none",
    ),
    "ZENDNN_CONTAINER_THREADS": Variable(
        "no more threads than the [CPU quota](placing.md#containers) of a container allows; `0`: "
        "as many as torch chooses"
    ),
    "ZENDNN_CPU_BIND": Variable(
        "`1` [binds](placing.md#by-variables) threads to cores",
        default="`1` with `ZENDNN_NUMA_CPUS`",
    ),
    "ZENDNN_DEBUG_MODE": Variable(
        "how much is [told](profiling.md#logs): `0` nothing, `1` errors, `2` warnings, `3` also "
        "what is done, `4` everything",
        "`0` to `4`",
    ),
    "ZENDNN_EMULATE": Variable(
        "makes choices as on that [CPU](emulation.md)",
        "`zen2`, `zen3`, `zen4`, `zen5`, or a folder with a machine's topology",
        "none",
    ),
    "ZENDNN_EMULATE_PRECISION_CASTS": Variable(
        "`1`: plans [round](plan.md#rounding) to bfloat16 wherever eager mode does"
    ),
    "ZENDNN_HUGE_PAGES": Variable("transparent huge pages for large tensors and arenas"),
    "ZENDNN_LOG_OPTS": Variable(
        "`ZENDNN_DEBUG_MODE` by [module](profiling.md#logs), in zentorch's levels",
        "a list such as `ALL:0,PROF:2`",
        "none",
    ),
    "ZENDNN_MEM_BIND": Variable(
        "memory: `1` on the [cores' own](placing.md#by-variables) NUMA nodes only, `interleave` on "
        "all in turn"
    ),
    "ZENDNN_NUMA_CPUS": Variable(
        "the [cores](placing.md#by-variables) to bind to",
        "a list such as `0-7,16` or `0 1`",
        "none",
    ),
    "ZENDNN_NUM_THREADS": Variable(
        "torch's threads, and how many of the cores are bound; `0`: as many as there are cores"
    ),
    "ZENDNN_PACKED_MEMORY": Variable(
        "how many times its own size a weight may take in [packed forms]"
        "(performance.md#packed-weights); `0` packs none"
    ),
    "ZENDNN_PLAN_CACHE_CAPACITY": Variable("input shapes that a plan keeps executables for"),
    "ZENDNN_PLAN_LAYOUT": Variable("image layout in plans; `any` times both"),
    "ZENDNN_PRIMITIVE_LOG_ENABLE": Variable("`1` is `ZENDNN_VERBOSE=2`"),
    "ZENDNN_PROCESS_MODE": Variable("`0` switches ZenDNN off, as `flags(enabled=False)` does"),
    "ZENDNN_PY_LOG_LEVEL": Variable("level of the logger `torch.backends.zendnn`"),
    "ZENDNN_ROUTE": Variable(
        "sends chosen calls to torch's own kernels ([route](profiling.md#route))", "a file", "none"
    ),
    "ZENDNN_TUNING_BUDGET": Variable("seconds for timing candidates per plan build"),
    "ZENDNN_TUNING_CACHE": Variable(
        "keeps the choices for later processes; several can share it", "a file", "none"
    ),
    "ZENDNN_VERBOSE": Variable(
        "`1`: a line for each plan step, eager primitive or kernel, and timed candidate; `2`: also "
        "creations, primitives in steps, and what went to torch and why",
        "`0`, `1`, `2`, or oneDNN's words",
        "`0`",
    ),
    "ZENDNN_VERIFY": Variable(
        "`1` also checks single candidates, each shape's first result "
        "against torch, and graphs after each pass"
    ),
    "ZENDNN_WINOGRAD": Variable(
        "Winograd convolutions in plans: `0` never, `1` where faster, `2` wherever possible"
    ),
}

#: What libzendnn reads, whose sources are fetched.
FOREIGN = {
    "ZENDNN_JIT_PROFILE": Variable(
        "names assembled kernels for [perf](profiling.md#perf) (`2`) or VTune (`1`)",
        "`0`, `1`, `2`",
        "`1`",
    ),
    "ZENDNN_MAX_CPU_ISA": Variable(
        "widest instruction set", "such as `AVX2`, `AVX512_CORE_BF16`", "the CPU's"
    ),
}

_READ = re.compile(
    r"\b(?P<function>word_from|number_from|whole_number_from|getenv|environ\.get|environ)[(\[]\s*"
    r'"(?P<name>ZENDNN_[A-Z_]+)"(?P<rest>[^;)\]]*)'
)


def read_by(sources: str) -> dict[str, tuple[str, str]]:
    """Return the values and the default of each variable that some sources read.

    Both are empty where the sources do not say them.
    """
    found: dict[str, tuple[str, str]] = {}
    for match in _READ.finditer(sources):
        rest, values, default = match["rest"], "", ""
        if match["function"] == "word_from":
            words = re.findall(r'"(\w+)"', rest.partition("}")[0])
            values, default = ", ".join(f"`{word}`" for word in words), f"`{words[0]}`"
        elif match["function"].endswith("number_from"):
            kind = "a whole number" if match["function"].startswith("whole") else "a number"
            values = f"{kind} from 0 on"
            if number := re.match(r"(?:, 0)?, ([0-9.]+)$", rest):
                default = f"`{number[1]}`"
        found[match["name"]] = max(found.get(match["name"], ("", "")), (values, default))
    return found


def rows(found: dict[str, tuple[str, str]]) -> Iterator[str]:
    """Return the table's lines, by name.

    Raises:
        SetupError: for a variable that the sources read and this file lacks, or the reverse.
    """
    if differing := found.keys() ^ VARIABLES.keys():
        name = min(differing)
        what = "is read but has no meaning" if name in found else "has a meaning but is not read"
        raise SetupError(f"{name} {what}: change VARIABLES in tools/variables.py")
    yield "| variable | values | default | meaning | since |"
    yield "| --- | --- | --- | --- | --- |"
    for name, variable in sorted({**VARIABLES, **FOREIGN}.items()):
        values, default = found.get(name, ("", ""))
        yield (
            f"| `{name}` | {variable.values or values} | {variable.default or default} "
            f"| {variable.meaning} | {variable.since} |"
        )


def document(text: str) -> str:
    """Return a document with its table regenerated."""
    files = [
        file
        for folder in ("aten", "torch", "third_party/zendnn")
        for suffix in ("cpp", "h", "py")
        for file in sorted((REPO / folder).rglob(f"*.{suffix}"))
    ]
    table = "\n".join(rows(read_by("\n".join(file.read_text() for file in files))))
    return re.sub(
        r"<!-- variables -->.*?<!-- end -->",
        lambda _: f"<!-- variables -->\n{table}\n<!-- end -->",
        text,
        flags=re.DOTALL,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--document", type=Path, required=True, help="document to update")
    file = parser.parse_args(arguments).document

    def update() -> None:
        write_atomic(file, document(file.read_text()).encode())

    return exit_code_of(update)


if __name__ == "__main__":
    sys.exit(main())
