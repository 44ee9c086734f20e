"""The one table of environment variables. It imports no torch.

From it come C++'s readers (``Variables.h``, which the build generates), Python's
(``torch/backends/zendnn/_settings.py``) and docs/variables.md.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """A row of the table.

    Attributes:
        name: of the variable.
        meaning: a clause for docs/variables.md.
        kind: 'words', 'number', 'whole' (a whole number) or 'text'; numbers are 0 or more.
        words: those that it may be, the default first.
        number: the default; None where it depends on the machine.
        values, default: what docs/variables.md says of them, where that does not follow.
        is_foreign: whether libzendnn reads it, and we do not.
        since: the first version of this project that reads it.
    """

    name: str
    meaning: str
    kind: str
    words: tuple[str, ...] = ()
    number: float | None = None
    values: str = ""
    default: str = ""
    is_foreign: bool = False
    since: str = "0.1.0"


def _words(name: str, words: str, meaning: str, values: str = "", default: str = "") -> Setting:
    return Setting(name, meaning, "words", tuple(words.split()), values=values, default=default)


def _text(name: str, values: str, meaning: str, default: str = "none") -> Setting:
    return Setting(name, meaning, "text", values=values, default=default)


_SETTINGS = (
    Setting(
        "ZENDNN_ALLOCATOR_CACHE",
        "bytes of freed memory to keep",
        "whole",
        default="an eighth of the memory",
    ),
    _text(
        "ZENDNN_AMD_DIR",
        "the folder of an installed AOCL-DLP or ZenDNN, 5.2 or later",
        "adds [AOCL-DLP](zendnnify.md#amds-own-library) to what linear layers in plans choose from",
    ),
    _words(
        "ZENDNN_CONTAINER_THREADS",
        "1 0",
        "no more threads than the [CPU quota](placing.md#containers) of a container allows; `0`: "
        "as many as torch chooses",
    ),
    _words(
        "ZENDNN_CPU_BIND",
        "0 1",
        "`1` [binds](placing.md#by-variables) threads to cores",
        default="`1` with `ZENDNN_NUMA_CPUS`",
    ),
    _words(
        "ZENDNN_DEBUG_MODE",
        "2 0 1 3 4",
        "how much is [told](profiling.md#logs): `0` nothing, `1` errors, `2` warnings, `3` also "
        "what is done, `4` everything",
        values="`0` to `4`",
    ),
    _text(
        "ZENDNN_EMULATE",
        "`zen2`, `zen3`, `zen4`, `zen5`, or a folder with a machine's topology",
        "makes choices as on that [CPU](emulation.md)",
    ),
    _words(
        "ZENDNN_EMULATE_PRECISION_CASTS",
        "0 1",
        "`1`: plans [round](plan.md#rounding) to bfloat16 wherever eager mode does",
    ),
    _words("ZENDNN_HUGE_PAGES", "1 0", "transparent huge pages for large tensors and arenas"),
    Setting(
        "ZENDNN_JIT_PROFILE",
        "names assembled kernels for [perf](profiling.md#perf) (`2`) or VTune (`1`)",
        "words",
        ("1", "0", "2"),
        values="`0`, `1`, `2`",
        is_foreign=True,
    ),
    _text(
        "ZENDNN_LOG_OPTS",
        "a list such as `ALL:0,PROF:2`",
        "`ZENDNN_DEBUG_MODE` by [module](profiling.md#logs), in zentorch's levels",
    ),
    Setting(
        "ZENDNN_MAX_CPU_ISA",
        "widest instruction set",
        "text",
        values="such as `AVX2`, `AVX512_CORE_BF16`",
        default="the CPU's",
        is_foreign=True,
    ),
    _words(
        "ZENDNN_MEM_BIND",
        "0 1 interleave",
        "memory: `1` on the [cores' own](placing.md#by-variables) NUMA nodes only, `interleave` on "
        "all in turn",
    ),
    _text(
        "ZENDNN_NUMA_CPUS",
        "a list such as `0-7,16` or `0 1`",
        "the [cores](placing.md#by-variables) to bind to",
    ),
    Setting(
        "ZENDNN_NUM_THREADS",
        "torch's threads, and how many of the cores are bound; `0`: as many as there are cores",
        "whole",
        number=0,
    ),
    Setting(
        "ZENDNN_PACKED_MEMORY",
        "how many times its own size a weight may take in [packed forms]"
        "(performance.md#packed-weights); `0` packs none",
        "number",
        number=1,
    ),
    Setting(
        "ZENDNN_PLAN_CACHE_CAPACITY",
        "input shapes that a plan keeps executables for",
        "whole",
        number=32,
    ),
    _words(
        "ZENDNN_PLAN_LAYOUT",
        "any channels_last blocked",
        "image layout in plans; `any` times both",
    ),
    _words("ZENDNN_PRIMITIVE_LOG_ENABLE", "0 1", "`1` is `ZENDNN_VERBOSE=2`"),
    _words(
        "ZENDNN_PROCESS_MODE",
        "1 0",
        "`0` switches ZenDNN off, as `flags(enabled=False)` does",
    ),
    _words(
        "ZENDNN_PY_LOG_LEVEL",
        "WARNING CRITICAL ERROR INFO DEBUG",
        "level of the logger `torch.backends.zendnn`",
    ),
    _text(
        "ZENDNN_ROUTE",
        "a file",
        "sends chosen calls to torch's own kernels ([route](profiling.md#route))",
    ),
    Setting(
        "ZENDNN_TUNING_BUDGET",
        "seconds for timing candidates per plan build",
        "number",
        number=2,
    ),
    _text(
        "ZENDNN_TUNING_CACHE",
        "a file",
        "keeps the choices for later processes; several can share it",
    ),
    _text(
        "ZENDNN_VERBOSE",
        "`0`, `1`, `2`, or oneDNN's words",
        "`1`: a line for each plan step, eager primitive or kernel, and timed candidate; `2`: also "
        "creations, primitives in steps, and what went to torch and why",
        default="`0`",
    ),
    _words(
        "ZENDNN_VERIFY",
        "0 1",
        "`1` also checks single candidates, and graphs after each pass; in frozen modules and in "
        "programs that `export` made, it compares each shape's first result with torch's",
    ),
    _words(
        "ZENDNN_WINOGRAD",
        "1 0 2",
        "Winograd convolutions in plans: `0` never, `1` where faster, `2` wherever possible",
    ),
)

#: Every variable, by name.
SETTINGS = {row.name: row for row in _SETTINGS}
