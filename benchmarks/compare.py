"""Times whole models on ZenDNN and on the other installed backends: a table, JSON and a plot.

    python -m benchmarks.compare [--models bert@1,…] [--precisions fp32,bf16,int8] [--backends a,b]
        [--rounds 3] [--seconds 3] [--threads N] [--python NAME=PATH] [--json FILE] [--plot FILE]

Each measurement runs in its own process. The backends take turns in each round, and ratios are
computed within a round, so that they remain valid on a machine whose speed changes. A ratio is
ZenDNN's time divided by the other backend's time: below 1, ZenDNN is faster. Progress is printed to
stderr.

Exit code: 0 if every installed backend ran and returned correct results, 1 if a result was wrong or
a backend failed, 2 if nothing could be measured (a wrong option, no backend installed).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from benchmarks import limit, models, plot, report
from benchmarks.backends import BACKENDS, PRECISIONS
from benchmarks.report import Case, Sample, Series
from tools.setup_helpers.errors import SetupError, exit_code_of
from tools.setup_helpers.files import write_atomic
from tools.setup_helpers.options import positive

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Options:
    """The command line, checked."""

    models: tuple[str, ...]
    precisions: tuple[str, ...]
    backends: tuple[str, ...]
    rounds: int
    threads: int
    seconds: float
    pythons: Mapping[str, str]
    json: Path | None
    plot: Path | None

    def python(self, backend: str) -> str:
        """The interpreter that the backend runs in."""
        return self.pythons.get(backend, sys.executable)


class Parser(argparse.ArgumentParser):
    """A parser that reports a wrong option in one sentence, without the usage text."""

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with code 2."""
        self.exit(2, f"error: {message}\n")


def physical_cores(
    topology: str = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list",
) -> int:
    """The number of physical cores that this process may use."""
    cpus = os.sched_getaffinity(0)
    try:
        return len({Path(topology.format(cpu)).read_text() for cpu in cpus})
    except OSError:
        return len(cpus)


def names_of(kind: str, known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """An argparse type: a comma-separated list of names, which must all be known."""

    def parse(text: str) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(text.split(",")))
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"there is no {kind} '{name}': choose from {', '.join(known)}"
                )
        return names

    return parse


def model_names(text: str) -> tuple[str, ...]:
    """An argparse type: a comma-separated list of model names."""
    names = tuple(dict.fromkeys(text.split(",")))
    try:
        for name in names:
            models.parse(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return names


def interpreter(text: str) -> tuple[str, str]:
    """An argparse type: NAME=PATH, a backend and the Python in which it is installed."""
    name, _, path = text.partition("=")
    if name not in BACKENDS or not path:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not NAME=PATH with one of the backends {', '.join(BACKENDS)}"
        )
    found = shutil.which(path)
    if found is None:
        raise argparse.ArgumentTypeError(f"there is no program '{path}' to run {name} with")
    # Workers run in another folder, so the path must be absolute. Symbolic links are not resolved,
    # because the Python of a virtual environment is one.
    return name, os.path.abspath(found)  # noqa: PTH100


def output(text: str) -> Path:
    """An argparse type: the path of a file that can be written."""
    path = Path(text)
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"'{text}' cannot be written")
    return path


def parse_arguments(arguments: Sequence[str] | None) -> Options:
    """Parse the command line; exit with code 2 if it is wrong."""
    width = max(map(len, BACKENDS))
    known = "\n".join(f"  {name:{width}}  {backend.what}" for name, backend in BACKENDS.items())
    parser = Parser(
        description="Time whole models on ZenDNN and on the other installed backends.",
        epilog=f"models: FAMILY@BATCH, of {', '.join(models.FAMILIES)}\nbackends:\n{known}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--models", type=model_names, default=models.DEFAULT, metavar="LIST")
    add("--precisions", type=names_of("precision", PRECISIONS), default=("fp32",), metavar="LIST")
    backends = tuple(BACKENDS)
    add("--backends", type=names_of("backend", backends), default=backends, metavar="LIST")
    add("--rounds", type=positive(int), default=3, help="turns for each backend (default: 3)")
    add("--threads", type=positive(int), default=physical_cores(), help="(default: %(default)s)")
    add("--seconds", type=positive(float), default=3.0, help="for each turn (default: 3)")
    add(
        "--python",
        type=interpreter,
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="a Python with this backend, torch and transformers; may be repeated",
    )
    add("--json", type=output, metavar="FILE", help="write all measurements")
    add("--plot", type=output, metavar="FILE", help="draw them, as SVG")
    chosen = vars(parser.parse_args(arguments))
    return Options(pythons=dict(chosen.pop("python")), **chosen)


def progress(text: str) -> None:
    """Print to stderr what is being done."""
    print(text, file=sys.stderr, flush=True)


def ask_worker(python: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Any:
    """The worker's answer, or ``{"failure": reason}`` if it gave none."""
    command = [python, "-m", "benchmarks.worker", *arguments]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            cwd=ROOT,
            env={**os.environ, **environment},
        )
    except OSError as error:
        return {"failure": f"{python} could not be started ({error.strerror})"}
    try:
        return json.loads(done.stdout)
    except ValueError:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        if done.returncode < 0:
            said = f"ended by {signal.Signals(-done.returncode).name}"
        return {"failure": said}


def environment_of(backend: str, threads: int, caches: str) -> dict[str, str]:
    """The variables of a worker, whose compilers keep what they make in the folder ``caches``."""
    return {
        **BACKENDS[backend].environment,
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",  # nothing may be requested from a model hub
        "TRANSFORMERS_VERBOSITY": "error",
        # Code compiled by an earlier run would make the first preparation look too fast.
        "TORCHINDUCTOR_CACHE_DIR": caches,
    }


def needed(backend: str, options: Options) -> list[str]:
    """The packages that a backend's Python must have to run the chosen models."""
    wanted = [package for name in options.models for package in models.parse(name)[0].packages]
    quantiser = BACKENDS[backend].quantiser if "int8" in options.precisions else ""
    own = [*BACKENDS[backend].packages, *filter(None, [quantiser])]
    return list(dict.fromkeys(["torch", *own, *wanted]))


def installed(options: Options) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """The package versions of each available backend, and the reason for each missing one."""
    present: dict[str, dict[str, str]] = {}
    absent: dict[str, str] = {}
    everything = sorted({package for name in options.backends for package in needed(name, options)})
    answers: dict[str, Any] = {}
    for name in options.backends:
        python = options.python(name)
        if python not in answers:
            answers[python] = ask_worker(python, ["--versions", ",".join(everything)], {})
        found = answers[python]
        if "failure" in found:
            raise SetupError(f"{python} cannot run the benchmark: {found['failure']}")
        missing = [package for package in needed(name, options) if package not in found]
        if missing:
            absent[name] = f"{python} has no {' and no '.join(missing)}"
        else:
            present[name] = {package: found[package] for package in needed(name, options)}
    return present, absent


def turn(backend: str, model: str, precision: str, options: Options, caches: str) -> Sample | str:
    """Measure once in a new process; return the sample, or the reason for the failure."""
    arguments = [backend, model, precision]
    arguments += ["--threads", str(options.threads), "--seconds", str(options.seconds)]
    environment = environment_of(backend, options.threads, str(Path(caches, backend)))
    answer = ask_worker(options.python(backend), arguments, environment)
    return answer["failure"] if "failure" in answer else Sample(**answer)


def measure(options: Options, present: Sequence[str]) -> Iterator[Case]:
    """Measure every model in every precision, on the available backends that support it."""
    plan = [
        (model, precision, [b for b in present if precision in BACKENDS[b].precisions])
        for model in options.models
        for precision in options.precisions
    ]
    total = sum(len(backends) for *_, backends in plan) * options.rounds
    done = 0
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as caches:
        for model, precision, backends in plan:
            samples: dict[str, list[Sample]] = {name: [] for name in backends}
            failures: dict[str, str] = {}
            for number in range(1, options.rounds + 1):
                for name in backends:
                    done += 1
                    if name in failures:
                        continue
                    what = f"{model}, {precision}, round {number} of {options.rounds}: {name}"
                    progress(f"[{done}/{total}] {what}")
                    seen = turn(name, model, precision, options, caches)
                    if isinstance(seen, Sample):
                        samples[name].append(seen)
                    else:
                        failures[name] = seen
            yield Case(
                model,
                precision,
                tuple(
                    Series(name, tuple(samples[name]), failures.get(name, "")) for name in backends
                ),
            )


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name, family and model, as Linux reports them."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    facts = {key.strip(): value.strip() for key, _, value in (s.partition(":") for s in lines)}
    family, model = facts.get("cpu family", "?"), facts.get("model", "?")
    return f"{facts.get('model name', 'unknown processor')} (family {family}, model {model})"


def limits_of(options: Options) -> tuple[dict[str, float], str]:
    """The machine's limit by precision, and a line of text that describes it."""
    progress("measuring the machine's limit")
    try:
        limits = limit.measure(options.threads)
    except limit.LimitError as error:
        return {}, f"unknown: {error}"
    reported = [
        f"{name} {rate:.0f} G{'op' if name == 'int8' else 'flop'}/s"
        for name, rate in limits.items()
    ]
    return limits, ", ".join(reported)


def standing(
    name: str, options: Options, present: Mapping[str, Mapping[str, str]], absent: Mapping[str, str]
) -> str:
    """One line that says which versions of a backend are installed, or why it is absent."""
    if name in absent:
        return f"absent: {absent[name]}"
    versions = ", ".join(f"{package} {version}" for package, version in present[name].items())
    lacking = [p for p in options.precisions if p not in BACKENDS[name].precisions]
    return f"{versions} (not in {' or '.join(lacking)})" if lacking else versions


def compare(options: Options) -> int:
    """Measure, print the results, write the files, and return the exit code."""
    present, absent = installed(options)
    if not present:
        raise SetupError(f"nothing to measure: {'; '.join(absent.values())}")
    ours = [name for name in present if BACKENDS[name].ours]
    limits, reported = limits_of(options)
    cpu = f"{cpu_name()}, {options.threads} thread{'s' * (options.threads > 1)}"
    facts = [("CPU", cpu), ("limit", reported)]
    for name in options.backends:
        facts.append((name, standing(name, options, present, absent)))
    width = max(len(name) for name, _ in facts)
    print("\n".join(f"{name:{width}}  {fact}" for name, fact in facts), flush=True)

    cases: list[Case] = []
    for case in measure(options, list(present)):
        cases.append(case)
        print(f"\n{report.table(case, ours, limits)}", flush=True)
        if options.json is not None:
            document = {
                "cpu": cpu_name(),
                "threads": options.threads,
                "seconds": options.seconds,
                "rounds": options.rounds,
                "limit_gflop_s": limits,
                "installed": present,
                "absent": absent,
                "cases": report.as_json(cases, ours, limits),
            }
            text = json.dumps(document, indent=1, allow_nan=False)
            write_atomic(options.json, text.encode() + b"\n")
        if options.plot is not None:
            title = f"Time of a call, shorter is better: {cpu}"
            write_atomic(options.plot, plot.svg(cases, ours, title).encode())
    means = report.summary(cases, ours)
    if means:
        print(f"\n{means}")
    problems = [problem for case in cases for problem in case.problems()]
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problems else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison and return the exit code."""
    options = parse_arguments(arguments)
    return exit_code_of(lambda: compare(options), resumes=False)


if __name__ == "__main__":
    sys.exit(main())
