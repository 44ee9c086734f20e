"""Fuzz: random models on our front ends against stock torch.

    python -m tools.fuzz --seed 7 --count 1000         models 0 to 999 of seed 7
    python -m tools.fuzz --seed 7 --index 123          only its model 123

Each find is shrunk and saved in build/fuzz/SEED-INDEX/; `python repeat.py` there repeats it. The
exit code is 1 after a find, and where a front end has run no plan.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from tools.fuzz import check as check_module
from tools.fuzz.check import FINDS, Verdict
from tools.fuzz.check.front_ends import FRONT_ENDS
from tools.fuzz.model import Model, source, tensors
from tools.fuzz.shrink import shrink
from tools.fuzz.worker import Worker, draw_settings

#: Attempts to reproduce a failure with the model alone.
ATTEMPTS = 4
#: Models of which some run plans.
MANY = 25
#: Seconds between lines of progress when stdout is not a terminal.
PACE = 30.0

_REPEAT = '''"""{title}

{detail}
Repeat: python {folder}/repeat.py
"""

import os

os.environ.update({settings})

from pathlib import Path

import torch
from check import check
from check.source import Code

MODEL = """
{source}"""

saved = torch.load(Path(__file__).with_name("tensors.pt"))
verdict = check(Code(MODEL), saved["weights"], saved["runs"], {front_end!r})
print(verdict)
raise SystemExit(verdict.is_find)
'''


@dataclass(frozen=True)
class Find:
    """A model that fails, after shrinking."""

    index: int
    model: Model
    verdict: Verdict
    alone: bool
    folder: Path

    @property
    def group(self) -> tuple[str, str]:
        return self.verdict.outcome, " ".join(self.model.operators())


@dataclass
class Summary:
    """The result of a run."""

    models: int = 0
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    operators: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    #: Models that ran steps of plans, by front end.
    planned: Counter[str] = field(default_factory=Counter)
    none: int = 0
    finds: list[Find] = field(default_factory=list)

    def idle(self) -> list[str]:
        """Return the front ends that make plans and have run none of them."""
        return [
            name
            for name, kind in FRONT_ENDS.items()
            if kind.plans and self.outcomes[name, "same"] >= MANY and not self.planned[name]
        ]


class Fuzzer:
    """Schedules blocks of models to threads, each of which has a worker process."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.front_ends = options.front_end or list(FRONT_ENDS)
        self.summary = Summary()
        self.started = time.monotonic()
        self._lock = threading.Lock()
        self._said = self.started
        self._blocks = self._indices()
        self._failed: list[BaseException] = []

    def run(self) -> Summary:
        """Check all models; re-raise the error of a thread."""
        threads = [threading.Thread(target=self._thread) for _ in range(self.options.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failed:
            raise self._failed[0]
        return self.summary

    def _indices(self) -> Iterator[Sequence[int]]:
        options = self.options
        if options.index is not None:
            yield [options.index]
            return
        last = options.first + options.count
        size = options.block
        for start in range(options.first // size * size, last, size):
            if options.minutes and time.monotonic() - self.started > options.minutes * 60:
                return
            yield range(max(start, options.first), min(start + size, last))

    def _thread(self) -> None:
        maker = Worker({"OMP_NUM_THREADS": "1"})  # NNSmith imports slowly: once per thread
        try:
            while True:
                with self._lock:
                    block = next(self._blocks, None)
                if block is None:
                    return
                worker = Worker(draw_settings(self.options.seed, block[0] // self.options.block))
                for index in block:
                    self._model(maker, worker, index)
                worker.close()
        except BaseException as error:
            self._failed.append(error)
            raise
        finally:
            maker.close()

    def _model(self, maker: Worker, worker: Worker, index: int) -> None:
        options = self.options
        model = maker.generate(options.seed, index, options.nodes, options.bf16)
        verdicts = worker.check(model, self._front_ends(index)) if model else []
        finds = []
        if model is not None:
            for verdict in verdicts:
                if verdict.is_find and verdict.outcome not in options.ignore:
                    finds.append(self._find(worker.settings, index, model, verdict))
                    break  # one find per model: the front ends share an engine
        with self._lock:
            summary = self.summary
            summary.models += 1
            summary.none += model is None
            summary.operators.update(model.operators() if model else ())
            for verdict in verdicts:
                summary.outcomes[verdict.front_end, verdict.outcome] += 1
                summary.planned[verdict.front_end] += verdict.steps > 0
                summary.refusals.update(verdict.refusals)
            summary.finds += finds
            self._progress(finds)

    def _front_ends(self, index: int) -> list[str]:
        """Return the front ends for a model; slow ones get a share, unless they were asked for."""
        asked = self.options.front_end or self.options.index is not None
        draw = random.Random(f"front ends {self.options.seed} {index}").random()
        return [name for name in self.front_ends if asked or draw * FRONT_ENDS[name].one_in < 1]

    def _find(self, settings: dict[str, str], index: int, model: Model, verdict: Verdict) -> Find:
        """Shrink a find in its own process, and save it."""
        worker = Worker(settings)

        def again(candidate: Model) -> bool:
            got = worker.check(candidate, [verdict.front_end])
            return got[-1].outcome == verdict.outcome

        # Choices by timing and reads of uninitialised memory differ between runs.
        alone = any(again(model) for _ in range(ATTEMPTS))
        if alone:
            model = shrink(model, again)
            model = replace(model, outputs=tuple(dict.fromkeys(model.outputs)))
            verdict = worker.check(model, [verdict.front_end])[-1]
        worker.close()
        folder = Path(self.options.out) / f"{self.options.seed}-{index}"
        save(folder, model, verdict, settings)
        return Find(index, model, verdict, alone, folder)

    def _progress(self, finds: Sequence[Find]) -> None:
        now = time.monotonic()
        for find in finds:
            note = "" if find.alone else " (only after other models of its process)"
            outcome, operators = find.group
            print(f"find {find.index}: {outcome} on {find.verdict.front_end}: {operators}{note}")
            print(f"  {find.verdict.detail}\n  python {find.folder}/repeat.py", flush=True)
        terminal = sys.stdout.isatty()
        if now - self._said > (1 if terminal else PACE):
            self._said = now
            rate = self.summary.models / (now - self.started)
            text = f"{self.summary.models} models, {len(self.summary.finds)} finds, {rate:.1f}/s"
            print(text, end="\r" if terminal else "\n", flush=True)


def save(folder: Path, model: Model, verdict: Verdict, settings: dict[str, str]) -> None:
    """Write, or replace, a folder whose ``repeat.py`` repeats a find."""
    temporary = folder.with_name(f".{folder.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    text = _REPEAT.format(
        title=f"{verdict.outcome} on {verdict.front_end}: {' '.join(model.operators())}",
        detail=verdict.detail.replace("\\", "/").replace('"""', "'''"),
        folder=folder,
        settings=settings,
        source=source(model),
        front_end=verdict.front_end,
    )
    (temporary / "repeat.py").write_text(text)
    package = Path(str(check_module.__file__)).parent
    shutil.copytree(package, temporary / "check", ignore=shutil.ignore_patterns("__pycache__"))
    runs = [list(tensors(model, inputs).values()) for inputs in model.inputs]
    weights = tensors(model, list(model.weights().values()))
    torch.save({"weights": weights, "runs": runs}, temporary / "tensors.pt")
    shutil.rmtree(folder, ignore_errors=True)
    temporary.rename(folder)


def describe(summary: Summary, known: Sequence[str]) -> str:
    """Return a readable summary."""
    lines = [f"{summary.models} models, {summary.none} for which NNSmith found no graph"]
    for front_end, kind in FRONT_ENDS.items():
        outcomes = {o: n for (f, o), n in sorted(summary.outcomes.items()) if f == front_end}
        if outcomes:
            counts = "".join(f"  {n} {o}" for o, n in outcomes.items())
            plans = f"; {summary.planned[front_end]} with plans" if kind.plans else ""
            lines.append(f"  {front_end:15}{counts}{plans}")
    never = sorted(set(known) - set(summary.operators))
    lines.append(f"operators: {len(known) - len(never)} of {len(known)} in some model")
    lines += [f"  in none: {' '.join(never)}"] if never else []
    if summary.refusals:
        lines.append("left out by plans, most often:")
        lines += [f"  {count:6} {reason}" for reason, count in summary.refusals.most_common(15)]
    lines += [f"no plan ran on: {name}" for name in summary.idle()]
    groups = Counter(find.group for find in summary.finds)
    lines.append(f"finds: {len(summary.finds)} in {len(groups)} groups")
    for (outcome, operators), count in groups.most_common():
        folders = [str(f.folder) for f in summary.finds if f.group == (outcome, operators)]
        lines.append(f"  {count:4} {outcome:9} {operators}: {' '.join(folders[:3])}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 after a find, and where no plan has run."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.fuzz", description=__doc__.split("\n")[0]
    )
    add = parser.add_argument
    add("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="default: random")
    add("--count", type=int, default=1000, help="models to check")
    add("--first", type=int, default=0, help="index of the first model")
    add("--index", type=int, help="check only this model of the seed")
    add("--block", type=int, default=50, help="models per process; --index needs the same")
    add("--nodes", type=int, default=5, help="maximum operators per model")
    add("--bf16", action="store_true", help="compute in bfloat16")
    add(
        "--front-end",
        choices=list(FRONT_ENDS),
        action="append",
        help="check only these; default: all, of which the slow ones get a share of the models",
    )
    add("--ignore", choices=FINDS, action="append", default=[], help="count these, but save none")
    add("--minutes", type=float, default=0, help="start no models after this time")
    add("--jobs", type=int, default=1, help="models to check in parallel")
    add("--out", default="build/fuzz", help="folder for finds")
    options = parser.parse_args(arguments)
    if options.block < 1:
        parser.error("--block is the number of models per process: at least 1")
    try:
        from tools.fuzz.operators import names
    except ModuleNotFoundError as error:
        missing = f"{error.name} is missing: run `make fuzz`, or pip install --no-deps"
        print(f"error: {missing} -r requirements-fuzz.txt", file=sys.stderr)
        return 2
    print(f"seed {options.seed}", flush=True)
    fuzzer = Fuzzer(options)
    summary = fuzzer.run()
    seconds = time.monotonic() - fuzzer.started
    print(f"{describe(summary, names())}\n{seconds:.0f} s, seed {options.seed}")
    return int(bool(summary.finds or summary.idle()))


if __name__ == "__main__":
    sys.exit(main())
