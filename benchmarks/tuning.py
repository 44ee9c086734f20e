"""Measures what each advice of docs/tuning.md gains on this machine, as ratios, in one run.

    python -m benchmarks.tuning [--document docs/tuning.md] [--only TEXT] [--rounds 1]
        [--seconds 2] [--threads N]

Each measurement runs in its own process. A ratio is the time with the advice divided by the time
without it, so below 1 the advice helps. Progress is printed to stderr. ``--document`` replaces the
table between the marker lines of a document, once everything is measured. The machine must be idle.

Exit code: 0, or 1 if a measurement failed, or 2 for a wrong option.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import models
from benchmarks.compare import (
    ROOT,
    Parser,
    ask_worker,
    cpu_name,
    environment_of,
    output,
    physical_cores,
    progress,
)
from benchmarks.report import Sample, in_document
from tools.setup_helpers.errors import SetupError, exit_code_of
from tools.setup_helpers.files import write_atomic
from tools.setup_helpers.options import positive

#: Threads of a process on a number of cores, by the names for it.
THREADS: Mapping[str, Callable[[int], int]] = {
    "one": lambda cores: 1,
    "cores": lambda cores: cores,
    "twice the cores": lambda cores: 2 * cores,
}
#: In variables: a folder of this run. In options of the launcher: the number of cores.
FOLDER, CORES = "{folder}", "{cores}"


@dataclass(frozen=True)
class Way:
    """A way to run a model.

    Attributes:
        model: FAMILY@BATCH.
        backend: of ``benchmarks.backends``.
        precision: ``"fp32"`` or ``"bf16"``.
        threads: of each process, a key of THREADS.
        launch: options of the launcher; None runs without it.
        variables: environment variables and their values.
        primed: whether a run that does not count goes before, to fill caches.
    """

    model: str
    backend: str = "zendnn"
    precision: str = "fp32"
    threads: str = "cores"
    launch: tuple[str, ...] | None = None
    variables: tuple[tuple[str, str], ...] = ()
    primed: bool = False

    def __str__(self) -> str:
        """Return the words that select it."""
        words = [self.model, self.backend, self.precision, f"threads: {self.threads}"]
        if self.launch is not None:
            words.append(" ".join(["launch", *self.launch]))
        return ", ".join([*words, *map("=".join, self.variables)])


#: A measure of one way: from its batch size, and the samples of its processes, to seconds.
Measure = Callable[[int, Sequence[Sample]], float]


def per_item(batch: int, samples: Sequence[Sample]) -> float:
    """The time per image, sequence or row, of all processes together."""
    return 1e-3 / sum(batch / sample.ms for sample in samples)


def first_call(batch: int, samples: Sequence[Sample]) -> float:
    """The time to optimise a model and call it once."""
    return max(sample.prepare_s for sample in samples)


#: The measures by the words of the table.
MEASURES: Mapping[str, Measure] = {"per item": per_item, "first call": first_call}


@dataclass(frozen=True)
class Advice:
    """A row of the table: two ways to run a model, and the measure that they differ in."""

    topic: str
    text: str
    without: Way
    following: Way
    measure: str = "per item"


_RESNET, _RESNET_16, _MOBILENET = "resnet50@1", "resnet50@16", "mobilenet_v2@1"
_BERT, _BERT_8 = "bert@1", "bert@8"
_EAGER, _COMPILED = "zendnn_eager", "zendnn_compiled"
_UNTUNED = (("ZENDNN_TUNING_BUDGET", "0"),)
_CHOICES = (("ZENDNN_TUNING_CACHE", f"{FOLDER}/choices"),)
_WARM = (
    ("TORCH_CACHING_PRECOMPILE", "1"),
    ("TORCHINDUCTOR_CACHE_DIR", f"{FOLDER}/warm"),
    ("ZENDNN_TUNING_CACHE", f"{FOLDER}/warm-choices"),
)

ADVICE = (
    *(
        Advice(
            "compile", '`torch.compile(model, backend="zendnn")`', Way(m, _EAGER), Way(m, _COMPILED)
        )
        for m in (_RESNET, _MOBILENET, _BERT)
    ),
    Advice("compile", "freeze instead", Way(_MOBILENET, _COMPILED), Way(_MOBILENET)),
    *(
        Advice("bf16", "autocast to bfloat16", Way(m), Way(m, precision="bf16"))
        for m in (_RESNET, _BERT)
    ),
    Advice("threads", "a thread per core, not one", Way(_BERT, threads="one"), Way(_BERT)),
    Advice(
        "threads", "a thread per core, not two", Way(_BERT, threads="twice the cores"), Way(_BERT)
    ),
    Advice("bind", "`launch --instances 1`", Way(_BERT), Way(_BERT, launch=("--instances", "1"))),
    Advice("batch", "batches of 8", Way(_BERT), Way(_BERT_8)),
    *(
        Advice(
            "instances",
            "an instance per core",
            Way(m),
            Way(m, threads="one", launch=("--instances", CORES)),
        )
        for m in (_MOBILENET, _BERT)
    ),
    Advice(
        "huge pages",
        "on, the default",
        Way(_BERT_8, variables=(("ZENDNN_HUGE_PAGES", "0"),)),
        Way(_BERT_8),
    ),
    Advice(
        "allocator",
        "freed memory is kept, the default",
        Way(_RESNET_16, _EAGER, variables=(("ZENDNN_ALLOCATOR_CACHE", "0"),)),
        Way(_RESNET_16, _EAGER),
    ),
    Advice(
        "allocator",
        "`launch --allocator tcmalloc`",
        Way(_BERT, _EAGER, launch=("--instances", "1")),
        Way(_BERT, _EAGER, launch=("--instances", "1", "--allocator", "tcmalloc")),
    ),
    Advice(
        "choices",
        "`ZENDNN_TUNING_CACHE`, filled",
        Way(_RESNET),
        Way(_RESNET, variables=_CHOICES, primed=True),
        "first call",
    ),
    Advice(
        "first call",
        "`ZENDNN_TUNING_BUDGET=0`",
        Way(_RESNET),
        Way(_RESNET, variables=_UNTUNED),
        "first call",
    ),
    Advice(
        "first call",
        "`ZENDNN_TUNING_BUDGET=0`: its price",
        Way(_RESNET),
        Way(_RESNET, variables=_UNTUNED),
    ),
    Advice(
        "first call",
        "a warm start",
        Way(_BERT, _COMPILED),
        Way(_BERT, _COMPILED, variables=_WARM, primed=True),
        "first call",
    ),
)


class Failure(Exception):
    """A way cannot be measured; the message says why."""


@dataclass(frozen=True)
class Runner:
    """Measures ways on a number of cores, for some seconds each."""

    cores: int
    seconds: float
    folder: Path

    def run(self, way: Way) -> list[Sample]:
        """Return the samples of a way's processes.

        Raises:
            Failure: if there is none.
        """
        threads = THREADS[way.threads](self.cores)
        arguments = [way.backend, way.model, way.precision]
        arguments += ["--threads", str(threads), "--seconds", str(self.seconds)]
        variables = {name: text.replace(FOLDER, str(self.folder)) for name, text in way.variables}
        caches = tempfile.mkdtemp(dir=self.folder)
        environment = {**environment_of(way.backend, threads, caches), **variables}
        if way.launch is None:
            answers = [ask_worker(sys.executable, arguments, environment)]
        else:
            options = [word.replace(CORES, str(self.cores)) for word in way.launch]
            answers = self._launch(options, arguments, environment)
        if failures := [answer["failure"] for answer in answers if "failure" in answer]:
            raise Failure(failures[0])
        return [Sample(**answer) for answer in answers]

    def _launch(
        self, options: Sequence[str], arguments: Sequence[str], environment: Mapping[str, str]
    ) -> list[dict[str, Any]]:
        logs = Path(tempfile.mkdtemp(dir=self.folder))
        words = ["-m", "torch.backends.zendnn", "launch", *options, "--logs", str(logs)]
        command = [sys.executable, *words, "-m", "benchmarks.worker", *arguments]
        without = {name: text for name, text in environment.items() if name != "OMP_NUM_THREADS"}
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **without}
        )
        written = sorted(logs.iterdir())
        if not written:
            raise Failure((done.stderr.strip().splitlines() or ["the launcher said nothing"])[-1])
        return [_answer_in(file.read_text(errors="replace")) for file in written]


def _answer_in(log: str) -> dict[str, Any]:
    """Return the worker's answer, which is its last line that is JSON, or why there is none."""
    for line in reversed(log.splitlines()):
        if line.startswith("{"):
            answer: dict[str, Any] = json.loads(line)
            return answer
    return {"failure": (log.strip().splitlines() or ["no message"])[-1]}


def ways(advice: Sequence[Advice]) -> list[Way]:
    """The ways that rows compare, each once."""
    return list(dict.fromkeys(way for row in advice for way in (row.without, row.following)))


def measure(
    advice: Sequence[Advice], runner: Runner, rounds: int
) -> tuple[dict[Way, list[list[Sample]]], dict[Way, str]]:
    """Return the samples of each way by round, and why others have none."""
    samples: dict[Way, list[list[Sample]]] = {way: [] for way in ways(advice)}
    failures: dict[Way, str] = {}
    steps = [way for way in samples if way.primed] + [*samples] * rounds
    start = time.monotonic()
    for number, way in enumerate(steps):
        left = (time.monotonic() - start) / number * (len(steps) - number) if number else 0
        about = f", about {left:.0f} s left" if number else ""
        progress(f"[{number + 1}/{len(steps)}{about}] {way}")
        if way in failures:
            continue
        try:
            found = runner.run(way)
        except Failure as failure:
            failures[way] = str(failure)
            progress(f"  failed: {failure}")
            continue
        if number >= len(steps) - len(samples) * rounds:
            samples[way].append(found)
    return samples, failures


def ratios(row: Advice, samples: Mapping[Way, Sequence[Sequence[Sample]]]) -> list[float]:
    """Return a row's ratio in each round."""
    measured = [
        [MEASURES[row.measure](models.parse(way.model)[1], each) for each in samples[way]]
        for way in (row.without, row.following)
    ]
    return [after / before for before, after in zip(*measured, strict=True)]


def table(
    advice: Sequence[Advice],
    samples: Mapping[Way, Sequence[Sequence[Sample]]],
    failures: Mapping[Way, str],
) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| about | advice | model | time | with / without |"
    yield "| --- | --- | --- | --- | --: |"
    for row in advice:
        failed = [failures[way] for way in (row.without, row.following) if way in failures]
        cell = f"not measured: {failed[0]}" if failed else ""
        if not failed:
            found = ratios(row, samples)
            cell = f"{statistics.median(found):.2f}"
            cell += f" ({min(found):.2f} to {max(found):.2f})" if len(found) > 1 else ""
        yield f"| {row.topic} | {row.text} | {row.following.model} | {row.measure} | {cell} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return the exit code."""
    parser = Parser(description="Measure what each advice of docs/tuning.md gains.")
    add = parser.add_argument
    add("--document", type=output, metavar="FILE", help="replace the table in this document")
    add("--only", default="", metavar="TEXT", help="rows with this text only")
    add("--rounds", type=positive(int), default=1, help="(default: %(default)s)")
    add("--seconds", type=positive(float), default=2.0, help="of each measurement (default: 2)")
    add("--threads", type=positive(int), default=physical_cores(), help="cores (default: all)")
    options = parser.parse_args(arguments)

    def run() -> int:
        chosen = [row for row in ADVICE if options.only in f"{row.topic} {row.text}"]
        if not chosen:
            topics = ", ".join(dict.fromkeys(row.topic for row in ADVICE))
            raise SetupError(f"no advice has the text {options.only!r}: they are about {topics}")
        if options.only and options.document:
            raise SetupError("--document wants all rows: leave out --only")
        with tempfile.TemporaryDirectory(prefix="tuning-") as folder:
            runner = Runner(options.threads, options.seconds, Path(folder))
            samples, failures = measure(chosen, runner, options.rounds)
        where = f"{cpu_name()}, {options.threads} core{'s' * (options.threads > 1)}:"
        lines = [where, "", *table(chosen, samples, failures)]
        print(*lines, sep="\n")
        if options.document is not None:
            result = in_document(options.document.read_text(), "gains", lines)
            write_atomic(options.document, result.encode())
        return 1 if failures else 0

    return exit_code_of(run, resumes=False)


if __name__ == "__main__":
    sys.exit(main())
