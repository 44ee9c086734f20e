"""Run upstream's tests on stock torch and on our build, and list those that pass only on stock.

Both use the same installed torch; stock does not load ZenDNN. Stock's outcomes are cached in
build/upstream/ for each version of torch; ours always runs.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import re
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
from tools.upstream.suites import IMPORTED, INDUCTORS, LEFT_OUT, REWORDED, SUITES, Suite

FOLDER = sources.REPO / "build" / "upstream"
#: A test's outcome is the last in this order among those of its phases and parts.
RANKS = ("crashed", "passed", "skipped", "failed")
#: Seconds after which a process counts as hanging.
LIMIT = 3600
#: Each process has two threads, so that work is split; waiting threads do not spin.
THREADS = {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
#: Exit codes of an interrupted process.
INTERRUPTED = (2, -signal.SIGINT)
#: Packages whose version may change a test's outcome.
PACKAGES = ("torch", "pytest", "scipy")

Outcomes = Mapping[str, str]


@dataclass(frozen=True)
class Job:
    """A part of a suite that one process runs, on ours or on stock torch, there with Inductor."""

    suite: Suite
    shard: int
    ours: bool
    keyword: str
    operators: tuple[str, ...] | None
    inductor: bool = False
    #: The only tests to run; None for all of the part.
    only: tuple[str, ...] | None = None

    @property
    def backend(self) -> str | None:
        """What compiles in the place of other backends; None for these themselves."""
        if not self.suite.compiled:
            return None
        return "zendnn" if self.ours else None if self.inductor else "aot_eager"

    @property
    def name(self) -> str:
        """The job's name in the progress and, with other separators, in file names."""
        side = "ours" if self.ours else "stock"
        return f"{self.suite.file} {self.shard + 1}/{self.suite.shards} {side}"

    def key(self, folder: Path) -> str:
        """Return a hash of everything that may change the job's outcomes on stock torch."""
        files = [
            *(folder / file for file in (self.suite.file, *IMPORTED)),
            Path(plugin.__file__),
        ]
        texts = [file.read_text(encoding="utf-8") for file in files]
        suite = self.suite
        selected = suite.file, self.shard, suite.shards, self.keyword, self.operators, self.only
        versions = [found.version for name in PACKAGES for found in distributions(name=name)]
        text = repr((selected, self.backend, sys.version, versions, texts))
        return hashlib.sha256(text.encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Row:
    """A suite's result: how many tests passed on each side, and which only on stock.

    `left_out` are those of them that are no fault of ours, with reasons.
    """

    file: str
    stock: int
    ours: int
    lost: tuple[str, ...]
    left_out: Mapping[str, str]


def environment(*, ours: bool) -> Mapping[str, str]:
    """Return the environment of a process that runs tests on the CPU, on ours or on stock torch."""
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST")}
    return {
        **inherited,
        **THREADS,
        "PYTHONPATH": str(sources.REPO),
        # Device-generic tests run on the CPU only, not on the device that we register.
        "PYTORCH_TESTING_DEVICE_ONLY_FOR": "cpu",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "1" if ours else "0",
    }


def outcomes(lines: str) -> Outcomes:
    """Return each test's outcome from the plugin's lines; a test without one has 'crashed'."""
    found: dict[str, str] = {}
    for line in lines.splitlines():
        word, _, test = line.partition(" ")
        outcome = "crashed" if word == "started" else word
        found[test] = max(outcome, found.get(test, outcome), key=RANKS.index)
    return found


def run(job: Job, folder: Path, logs: Path) -> Outcomes:
    """Run `job` on the tests in `folder`, in a new process after each crash; keep output in logs.

    Raises SetupError when pytest runs no test, KeyboardInterrupt when it is interrupted.
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
            "backend": job.backend,
            "done": sorted(found),
            "only": job.only,
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
        # 0: all passed; 5: none selected; 1: some failed, or a plugin stopped pytest.
        if code in (0, 5) or (code == 1 and found):
            return found
        if not new:
            raise SetupError(f"pytest cannot run {job.name}: see {log}")


def stock_or_ours(job: Job, folder: Path) -> Outcomes:
    """Return the outcomes of `job`; those on stock torch may come from the cache."""
    if job.only == ():
        return {}
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

    Raises SetupError when listing them fails.
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
        raise SetupError(f"cannot list the overridden operators: see {log}")
    return tuple(json.loads(file.read_text(encoding="utf-8")))


def copy_tests(source: Path, target: Path, files: Iterable[str]) -> None:
    """Write `files` of `source` below `target`, adapted to later versions of torch.

    Raises SetupError when `source` lacks one of them.
    """
    for file in files:
        try:
            text = (source / file).read_text(encoding="utf-8")
        except OSError as error:
            raise SetupError(
                f"cannot read {source / file} ({error.strerror}): PYTORCH_SOURCE_DIR, if set, has "
                "to name a PyTorch tree with its tests"
            ) from error
        for old, new in REWORDED.items():
            text = re.sub(old, new, text, flags=re.MULTILINE)
        write_atomic(target / file, text.encode())


def compare(
    suites: Sequence[Suite], *, quick: bool, processes: int, inductor: bool = False
) -> Sequence[Row]:
    """Run `suites`, or their quick parts, in parallel `processes`; print progress, return rows.

    With `inductor`, stock compiles with Inductor, not with AOTAutograd alone, and only what does
    not pass on ours.

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
        Job(suite, shard, True, suite.quick if quick else "", wanted if suite.operators else None)
        for suite in suites
        for shard in range(suite.shards)
    ]
    if inductor:
        ours = execute(jobs, folder, processes)
        stock = execute([with_inductor(job, ours[job]) for job in jobs], folder, processes)
    else:
        of_stock = [replace(job, ours=False) for job in jobs]
        found = execute(
            [job for pair in zip(of_stock, jobs, strict=True) for job in pair], folder, processes
        )
        stock, ours = ({job: found[job] for job in side} for side in (of_stock, jobs))
    reasons = {**LEFT_OUT, **INDUCTORS} if inductor else LEFT_OUT
    return [row(suite.file, merged(suite, stock), merged(suite, ours), reasons) for suite in suites]


def with_inductor(job: Job, ours: Outcomes) -> Job:
    """Return the job that runs with Inductor what ours does not pass: nothing else can be lost."""
    failed = sorted(test for test, outcome in ours.items() if outcome != "passed")
    return replace(job, ours=False, inductor=True, only=tuple(failed))


def merged(suite: Suite, found: Mapping[Job, Outcomes]) -> Outcomes:
    """Return the outcomes of all parts of a suite."""
    parts = (part.items() for job, part in found.items() if job.suite == suite)
    return dict(itertools.chain.from_iterable(parts))


def execute(jobs: Sequence[Job], folder: Path, processes: int) -> dict[Job, Outcomes]:
    """Run jobs in parallel processes and print each as it is done; return their outcomes."""

    def timed(job: Job) -> tuple[Job, Outcomes, float]:
        started = time.monotonic()
        return job, stock_or_ours(job, folder), time.monotonic() - started

    found = {}
    with ThreadPoolExecutor(processes) as pool:
        done = as_completed([pool.submit(timed, job) for job in jobs])
        try:
            for number, future in enumerate(done, 1):
                job, part, seconds = future.result()
                found[job] = part
                counts = Counter(part.values()).items()
                summary = ", ".join(f"{count} {what}" for what, count in counts)
                print(f"[{number}/{len(jobs)}] {job.name}: {summary}, {seconds:.0f} s", flush=True)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return found


def row(file: str, stock: Outcomes, ours: Outcomes, reasons: Mapping[str, str]) -> Row:
    """Compare the outcomes of `file` on both sides; tests with reasons are left out."""
    passed = [
        {test for test, outcome in side.items() if outcome == "passed"} for side in (stock, ours)
    ]
    lost = sorted(passed[0] - passed[1])
    return Row(
        file,
        len(passed[0]),
        len(passed[1]),
        tuple(test for test in lost if test not in reasons),
        {test: reasons[test] for test in lost if test in reasons},
    )


def table(rows: Sequence[Row]) -> str:
    """Return the final report."""
    lines = [f"{'file':46} {'stock':>6} {'ours':>6} {'lost':>5} {'left out':>8}"]
    for entry in rows:
        lines.append(
            f"{entry.file:46} {entry.stock:6} {entry.ours:6} "
            f"{len(entry.lost):5} {len(entry.left_out):8}"
        )
    lines += [f"lost: {test}" for entry in rows for test in entry.lost]
    lines += [
        f"left out: {test}: {reason}" for entry in rows for test, reason in entry.left_out.items()
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code (1 for lost tests, 2 after a printed error)."""
    files = {suite.file: suite for suite in SUITES}
    parser = argparse.ArgumentParser(prog="python -m tools.upstream", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="run only CI's part")
    parser.add_argument(
        "--processes",
        type=positive(int),
        default=os.cpu_count(),
        help="number of parallel processes (default: cores)",
    )
    parser.add_argument(
        "--inductor",
        action="store_true",
        help="run files about compilers, and compare with Inductor, not with aot_eager, what ours "
        "does not pass",
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"of {', '.join(files)}")
    parsed = parser.parse_args(arguments)
    if unknown := [file for file in parsed.files if file not in files]:
        parser.error(f"there is no file '{unknown[0]}'")
    if parsed.quick and (whole := [file for file in parsed.files if not files[file].quick]):
        parser.error(f"{whole[0]} has no quick part")
    if parsed.inductor and (eager := [file for file in parsed.files if not files[file].compiled]):
        parser.error(f"{eager[0]} compiles nothing")

    def action() -> int:
        whole = [suite for suite in SUITES if suite.compiled or not parsed.inductor]
        chosen = [files[file] for file in parsed.files] or whole
        rows = compare(
            chosen, quick=parsed.quick, processes=parsed.processes, inductor=parsed.inductor
        )
        print(table(rows))
        return any(entry.lost for entry in rows)

    return exit_code_of(action)
