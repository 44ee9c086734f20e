"""Run tests on a libtorch_zendnn compiled for a sanitizer.

    python -m tools.sanitize address [pytest's arguments ...]
    python -m tools.sanitize thread  [pytest's arguments ...]

Only our code is instrumented; libzendnn, torch and Python are not. The installed package stays in
place: the loader merely finds the instrumented library first. The thread sanitizer cannot see
OpenMP's barriers, so OpenMP gets one thread there. It checks Python threads that call one plan
concurrently.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.setup_helpers import build, env
from tools.setup_helpers.errors import SetupError, exit_code_of

_LOADED = """
import sys, torch
maps = open("/proc/self/maps").read()
sys.exit(0 if sys.argv[1] in maps and torch.backends.zendnn.is_available() else 1)
"""

#: Options of each sanitizer. Leaks are not detected: Python and torch keep memory until the end.
#: The allocator caches nothing, which would hide accesses out of bounds or after a free. Deadlocks
#: are not detected: a fork takes all the allocator's locks, more than the detector can hold. With
#: the longest history, the stacks are known in which the functions below are looked for.
OPTIONS: Mapping[str, Mapping[str, str]] = {
    "address": {
        "ASAN_OPTIONS": "detect_leaks=0:log_path={folder}/log",
        "ZENDNN_ALLOCATOR_CACHE": "0",
    },
    "thread": {
        "TSAN_OPTIONS": "log_path={folder}/log:suppressions={folder}/suppressions:exitcode=66"
        ":detect_deadlocks=0:history_size=7",
        "OMP_NUM_THREADS": "1",
    },
}
#: Functions with false reports of the thread sanitizer: it sees their accesses, but not the
#: synchronisation, which is in code that is not instrumented.
SUPPRESSIONS: Mapping[str, str] = {
    "gomp_thread_start": "OpenMP's barriers",
    "gomp_team_start": "OpenMP's barriers",
    "zendnn::impl::": "locks and atomics of libzendnn's cache of primitives",
    "zendnn_primitive_attr::": "the same, where the cache compares its keys",
    "_dl_deallocate_tls": "the loader's own order of ending threads",
    "get_cached_stack": "the same, where a new thread gets an ended one's stack",
}
#: Preloaded libraries: the runtime, and the C++ library whose exceptions it wraps.
RUNTIMES: Mapping[str, Sequence[str]] = {
    "address": ("libasan.so", "libstdc++.so.6"),
    "thread": ("libtsan.so", "libstdc++.so.6"),
}
#: The default tests. The address sanitizer skips tests of memory: it keeps freed memory itself. The
#: thread sanitizer skips forks: it ends a fork of several threads that starts another one.
TESTS: Mapping[str, Sequence[str]] = {
    "address": (
        "test/zendnn/plan",
        "test/zendnn/test_frozen.py",
        "-k",
        "not memory and not frees and not given_back",
    ),
    "thread": (
        "test/zendnn/plan",
        "test/zendnn/test_threads.py",
        "-k",
        "(thread or concurrent or ahead) and not fork",
    ),
}


def _runtime(name: str, compiler: str) -> str:
    command = [compiler, f"-print-file-name={name}"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    found = Path(said.stdout.strip())
    if said.returncode or not found.is_absolute():
        raise SetupError(f"{compiler} has no {name}: install the compiler's sanitizer libraries")
    return str(found.resolve())


def _runs(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def run(sanitizer: str, arguments: Sequence[str]) -> int:
    """Build for `sanitizer`, run pytest with `arguments` on it, print the sanitizer's reports.

    Returns 0 when the tests pass without reports. Raises SetupError when the build fails or torch
    loads another library than the instrumented one.
    """
    build.build()
    build.build(sanitizer=sanitizer)
    compiler = env.find_tools(os.environ)["compiler"]
    preloaded = [_runtime(name, compiler) for name in RUNTIMES[sanitizer]]
    folder = build.tree_of(sanitizer) / "lib"
    with tempfile.TemporaryDirectory(prefix="zendnn-sanitizer-") as reported:
        lines = [f"# {why}\nrace:{function}\n" for function, why in SUPPRESSIONS.items()]
        Path(reported, "suppressions").write_text("".join(lines), encoding="utf-8")
        options = OPTIONS[sanitizer].items()
        environ = {
            **os.environ,
            **{name: text.format(folder=reported) for name, text in options},
            "LD_PRELOAD": " ".join(preloaded),
            "LD_LIBRARY_PATH": str(folder),
        }
        # Address space layout randomisation can occupy addresses that a sanitizer needs.
        fixed = ["setarch", os.uname().machine, "--addr-no-randomize"]
        if not _runs([*fixed, "true"]):
            print("setarch is refused: the address space stays randomised", file=sys.stderr)
            fixed = []
        python = [*fixed, sys.executable]
        probe = [*python, "-c", _LOADED, str(folder)]
        if subprocess.run(probe, env=environ, check=False).returncode:
            raise SetupError(f"torch does not load {folder}/libtorch_zendnn.so: install it first")
        code = subprocess.run([*python, "-m", "pytest", *arguments], env=environ, check=False)
        reports = sorted(Path(reported).glob("log*"))
        for report in reports:
            print(report.read_text(encoding="utf-8", errors="replace"), file=sys.stderr)
    print(f"{sanitizer} sanitizer: processes with reports: {len(reports)}")
    return code.returncode or bool(reports)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code (2 after a printed error)."""
    parser = argparse.ArgumentParser(prog="python -m tools.sanitize", description=__doc__)
    parser.add_argument("sanitizer", choices=sorted(OPTIONS))
    parsed, rest = parser.parse_known_args(arguments)
    return exit_code_of(lambda: run(parsed.sanitizer, rest or TESTS[parsed.sanitizer]))


if __name__ == "__main__":
    sys.exit(main())
