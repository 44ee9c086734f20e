"""Run upstream's tests on stock torch and on our build, and say what passes on stock alone.

Both are the same installed torch: stock is the one that does not load ZenDNN. What stock comes to
is kept in build/upstream/, for each version of torch; what ours comes to is always run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from importlib.metadata import distributions
from pathlib import Path

from tools.setup_helpers import sources
from tools.setup_helpers.errors import SetupError, exit_code_of
from tools.setup_helpers.files import write_atomic
from tools.setup_helpers.options import positive
from tools.upstream import plugin
from tools.upstream.suites import IMPORTED, LEFT_OUT, REWORDED, SUITES, Suite

FOLDER = sources.REPO / "build" / "upstream"
#: A test's outcome is the worst of those of its phases and parts.
RANKS = ("crashed", "passed", "skipped", "failed")
#: Seconds that one process may take before it counts as hanging.
LIMIT = 3600
#: Of each process: two, so that work is split, and waiting threads that do not take a core.
THREADS = {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
#: Exit codes of a process that ran tests and was interrupted.
INTERRUPTED = (2, -signal.SIGINT)
#: Packages on whose version it may depend what a test comes to.
PACKAGES = ("torch", "pytest", "scipy")

Outcomes = Mapping[str, str]


@dataclass(frozen=True)
class Job:
    """A part of a suite that one process runs, on ours or on stock torch."""

    suite: Suite
    shard: int
    ours: bool
    keyword: str
    operators: tuple[str, ...] | None

    @property
    def name(self) -> str:
        """What the job is called in the progress and, with other separators, in its files."""
        side = "ours" if self.ours else "stock"
        return f"{self.suite.file} {self.shard + 1}/{self.suite.shards} {side}"

    def key(self, folder: Path) -> str:
        """Return a text that changes whenever what the job comes to on stock torch might."""
        files = [
            *(folder / file for file in (self.suite.file, *IMPORTED)),
            Path(plugin.__file__),
        ]
        texts = [file.read_text(encoding="utf-8") for file in files]
        part = self.suite.file, self.shard, self.suite.shards, self.keyword, self.operators
        versions = [found.version for name in PACKAGES for found in distributions(name=name)]
        text = repr((part, sys.version, versions, texts))
        return hashlib.sha256(text.encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Row:
    """What a suite came to: how many tests passed on each side, and which on stock alone."""

    file: str
    stock: int
    ours: int
    lost: tuple[str, ...]
    left_out: tuple[str, ...]


def environment(*, ours: bool) -> Mapping[str, str]:
    """Return the environment of a process that runs tests on the CPU, on ours or on stock torch."""
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST")}
    return {
        **inherited,
        **THREADS,
        "PYTHONPATH": str(sources.REPO),
        # Tests that exist for each kind of device: not for the one that we register.
        "PYTORCH_TESTING_DEVICE_ONLY_FOR": "cpu",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "1" if ours else "0",
    }


def outcomes(lines: str) -> Outcomes:
    """Return the outcome of each test from what the plugin wrote; 'crashed' where there is none."""
    found: dict[str, str] = {}
    for line in lines.splitlines():
        word, _, test = line.partition(" ")
        outcome = "crashed" if word == "started" else word
        found[test] = max(outcome, found.get(test, outcome), key=RANKS.index)
    return found


def run(job: Job, folder: Path, logs: Path) -> Outcomes:
    """Run `job` on the tests in `folder`, in as many processes as crash; keep their output in logs.

    Raises SetupError when pytest does not come to run any test, KeyboardInterrupt when it is
    interrupted.
    """
    stem = job.name.replace("/", "-").replace(" ", "_")
    results, log = logs / f"{stem}.results", logs / f"{stem}.log"
    command = [
        *(sys.executable, "-m", "pytest", "-q", "--tb=short", "--durations=20"),
        *("-p", "no:cacheprovider", "-p", plugin.__name__),
        *("-c", os.devnull, "--rootdir", str(folder), job.suite.file),
        *(("-k", job.keyword) if job.keyword else ()),
    ]
    found: dict[str, str] = {}
    while True:
        orders = {
            "results": str(results),
            "shard": job.shard,
            "shards": job.suite.shards,
            "operators": job.operators,
            "done": sorted(found),
        }
        environ = {**environment(ours=job.ours), plugin.ORDERS: json.dumps(orders)}
        results.write_text("", encoding="utf-8")
        with log.open("a" if found else "w", encoding="utf-8") as stream:
            try:
                code = subprocess.run(
                    command,
                    cwd=folder,
                    env=environ,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    timeout=LIMIT,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                code = -1
        new = outcomes(results.read_text(encoding="utf-8"))
        if new and code in INTERRUPTED:
            raise KeyboardInterrupt
        found |= new
        # All pass, none is chosen, some fail; pytest also says 1 when a plugin stops it.
        if code in (0, 5) or (code == 1 and found):
            return found
        if not new:
            raise SetupError(f"pytest cannot run {job.name}: see {log}")


def stock_or_ours(job: Job, folder: Path) -> Outcomes:
    """Return what `job` comes to: on stock torch, what it came to before if that is known."""
    logs = FOLDER / "log"
    logs.mkdir(parents=True, exist_ok=True)
    kept = FOLDER / "stock" / f"{job.key(folder)}.json"
    if not job.ours and kept.exists():
        known: Outcomes = json.loads(kept.read_text(encoding="utf-8"))
        return known
    found = run(job, folder, logs)
    if not job.ours:
        write_atomic(kept, json.dumps(found).encode())
    return found


def operators() -> tuple[str, ...]:
    """Return the names of the OpInfos that reach a kernel of ours.

    Raises SetupError when they cannot be found out.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    file, log = FOLDER / "operators.json", FOLDER / "operators.log"
    command = [sys.executable, "-m", "tools.upstream.operators", str(file)]
    with log.open("w", encoding="utf-8") as stream:
        done = subprocess.run(
            command,
            cwd=sources.REPO,
            env=environment(ours=True),
            stdout=stream,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        raise SetupError(f"the operators of ours cannot be found out: see {log}")
    return tuple(json.loads(file.read_text(encoding="utf-8")))


def copy_tests(source: Path, target: Path, files: Iterable[str]) -> None:
    """Write `files` of `source` below `target`, reworded so that a later torch runs them.

    Raises SetupError when `source` has not all of them.
    """
    for file in files:
        try:
            text = (source / file).read_text(encoding="utf-8")
        except OSError as error:
            raise SetupError(
                f"cannot read {source / file} ({error.strerror}): PYTORCH_SOURCE_DIR, where it is "
                "set, has to name a PyTorch tree with its tests"
            ) from error
        for old, new in REWORDED.items():
            text = text.replace(old, new)
        write_atomic(target / file, text.encode())


def compare(suites: Sequence[Suite], *, quick: bool, processes: int) -> Sequence[Row]:
    """Run `suites`, or their quick parts, in `processes` at a time; print progress, return rows.

    Raises SetupError when tests cannot be run.
    """
    folder = FOLDER / "test"
    copy_tests(
        sources.fetch("pytorch") / "test", folder, [*IMPORTED, *(suite.file for suite in suites)]
    )
    if quick:
        suites = [replace(suite, shards=1) for suite in suites if suite.quick]
    wanted = operators() if any(suite.operators for suite in suites) else ()
    jobs = [
        Job(suite, shard, ours, suite.quick if quick else "", wanted if suite.operators else None)
        for suite in suites
        for shard in range(suite.shards)
        for ours in (False, True)
    ]
    found: dict[tuple[str, bool], dict[str, str]] = {
        (suite.file, ours): {} for suite in suites for ours in (False, True)
    }

    def timed(job: Job) -> tuple[Job, Outcomes, float]:
        started = time.monotonic()
        return job, stock_or_ours(job, folder), time.monotonic() - started

    with ThreadPoolExecutor(processes) as pool:
        done = as_completed([pool.submit(timed, job) for job in jobs])
        try:
            for number, future in enumerate(done, 1):
                job, part, seconds = future.result()
                found[job.suite.file, job.ours] |= part
                counts = Counter(part.values()).items()
                summary = ", ".join(f"{count} {what}" for what, count in counts)
                print(f"[{number}/{len(jobs)}] {job.name}: {summary}, {seconds:.0f} s", flush=True)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [row(suite.file, found[suite.file, False], found[suite.file, True]) for suite in suites]


def row(file: str, stock: Outcomes, ours: Outcomes) -> Row:
    """Compare what the two came to in `file`."""
    passed = [
        {test for test, outcome in side.items() if outcome == "passed"} for side in (stock, ours)
    ]
    lost = sorted(passed[0] - passed[1])
    return Row(
        file,
        len(passed[0]),
        len(passed[1]),
        tuple(test for test in lost if test not in LEFT_OUT),
        tuple(test for test in lost if test in LEFT_OUT),
    )


def table(rows: Sequence[Row]) -> str:
    """Return what the command prints in the end."""
    lines = [f"{'file':34} {'stock':>6} {'ours':>6} {'lost':>5} {'left out':>8}"]
    for entry in rows:
        lines.append(
            f"{entry.file:34} {entry.stock:6} {entry.ours:6} "
            f"{len(entry.lost):5} {len(entry.left_out):8}"
        )
    lines += [f"lost: {test}" for entry in rows for test in entry.lost]
    lines += [f"left out: {test}: {LEFT_OUT[test]}" for entry in rows for test in entry.left_out]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code (1: tests were lost, 2: an error was printed)."""
    files = {suite.file: suite for suite in SUITES}
    parser = argparse.ArgumentParser(prog="python -m tools.upstream", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only the part that CI runs")
    parser.add_argument(
        "--processes",
        type=positive(int),
        default=os.cpu_count(),
        help="how many at a time (default: cores)",
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"of {', '.join(files)}")
    parsed = parser.parse_args(arguments)
    if unknown := [file for file in parsed.files if file not in files]:
        parser.error(f"there is no file '{unknown[0]}'")
    if parsed.quick and (whole := [file for file in parsed.files if not files[file].quick]):
        parser.error(f"{whole[0]} has no quick part")

    def action() -> int:
        chosen = [files[file] for file in parsed.files] or list(SUITES)
        rows = compare(chosen, quick=parsed.quick, processes=parsed.processes)
        print(table(rows))
        return any(entry.lost for entry in rows)

    return exit_code_of(action)
