"""Build companion wheels for several Pythons and torches, each pair in its own environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from platform import machine

from tools.setup_helpers import origins, sources, wheel, wheel_file
from tools.setup_helpers.build import BUILD, BUILD_VARIABLE, REPO, REUSE_VARIABLE
from tools.setup_helpers.errors import SetupError
from tools.setup_helpers.files import write_atomic
from tools.setup_helpers.wheel_file import content
from tools.wheels import check, link_stubs
from tools.wheels.policy import audit, parse_tag, tag_of

FOLDER = BUILD / "wheels"
#: A cell says what it does every so many seconds.
HEARTBEAT_SECONDS = 30.0
_PROBE = "import sys; print('{}.{}'.format(*sys.version_info))"


@dataclass(frozen=True)
class Cell:
    """A pair of versions: '3.11' of Python and '2.13.0' of torch."""

    python: str
    torch: str

    @property
    def name(self) -> str:
        """What --only compares, and the name of the cell's folder."""
        return f"python{self.python}-torch{self.torch}"


@dataclass(frozen=True)
class Settings:
    """What cells share: pip's arguments for torch, the oldest system ('2_28'), a built libzendnn.

    Without `manylinux`, wheels need a system as new as this one. `built` is the CMake tree of a
    cell.
    """

    pip: Sequence[str] = ()
    manylinux: str = ""
    built: Path | None = None

    @property
    def policy(self) -> str:
        """auditwheel's name of the oldest system, or ''."""
        return self.manylinux and f"manylinux_{self.manylinux}"


@dataclass(frozen=True)
class Result:
    """What became of a cell, and why, in how many seconds."""

    cell: Cell
    state: str
    remark: str
    seconds: float = 0.0

    @property
    def made(self) -> bool:
        """Whether there is a wheel."""
        return self.state in ("built", "kept")


def cells(pythons: Iterable[str], torches: Iterable[str], only: str = "") -> Sequence[Cell]:
    """Return all pairs whose names contain `only`. Raises SetupError when there is none."""
    chosen = [Cell(python, torch) for torch in torches for python in pythons]
    chosen = [cell for cell in chosen if only in cell.name]
    if not chosen:
        raise SetupError(f"no cell's name contains '{only}': they are like python3.11-torch2.13.0")
    return chosen


def find_python(version: str) -> Path | None:
    """Return the interpreter of this version that is on PATH, or None."""
    for folder in os.get_exec_path():
        path = Path(folder, f"python{version}")
        if not os.access(path, os.X_OK):
            continue
        said = subprocess.run([path, "-c", _PROBE], capture_output=True, text=True, check=False)
        if said.stdout.strip() == version:
            return path
    return None


class Log:
    """A cell's log file; its last line is printed now and then."""

    def __init__(self, name: str, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.path = path
        self.stream = path.open("w", encoding="utf-8")
        self.next_time = time.monotonic() + HEARTBEAT_SECONDS

    def run(self, command: Sequence[str | Path], environ: Mapping[str, str] = os.environ) -> str:
        """Run a command; return its last line. Raises SetupError when it fails."""
        last = ""
        with subprocess.Popen(
            command,
            cwd=REPO,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                self.stream.write(line)
                self.stream.flush()
                last = line.strip() or last
                if time.monotonic() > self.next_time:
                    self.next_time = time.monotonic() + HEARTBEAT_SECONDS
                    print(f"{self.name}: {last[:99]}", flush=True)
        if process.returncode:
            raise SetupError(f"{last.removeprefix('error: ')} (all of it: {self.path})")
        return last


def retag(path: Path) -> Path:
    """Give a wheel the platform tag that auditwheel finds; return its new path."""
    with wheel_file.opened(path) as file:
        old = tag_of(file)
        new = audit(path).tag(old.python)
        name = f"{file.info}/WHEEL"
        text = file.text("WHEEL").replace(f"Tag: {old}\n", f"Tag: {new}\n")
        files = {**file.files, name: content(text.encode())}
        target = path.with_name(path.name.replace(str(old), str(new)))
        wheel_file.write(target, file.info, files)
    if target != path:
        path.unlink()
    return target


def _serves(path: Path, policy: str) -> bool:
    """Return whether a wheel's tag promises that it runs on the systems of `policy`."""
    with wheel_file.opened(path) as file:
        tag = tag_of(file)
    asked = parse_tag(f"{tag.python}-{policy}_{tag.cpu}", policy)
    return tag.glibc is not None and asked.glibc is not None and tag.glibc <= asked.glibc


def _inputs(cell: Cell, settings: Settings) -> str:
    """Return a text that changes whenever what a cell is built from does, as far as we can see."""
    ours, *_ = origins.of_checkout(REPO, wheel.version())
    overrides = [source.override for source in sources.sources().values() if source.override]
    variables = {name: os.environ.get(name) for name in (*origins.VARIABLES, *overrides)}
    shared = [settings.pip, settings.manylinux]
    return json.dumps([ours.sha256, cell.name, *shared, variables])


def _kept(stamp: Path, inputs: str) -> Path | None:
    """Return the wheel of an earlier run with the same inputs, if it is still there."""
    try:
        noted = json.loads(stamp.read_text(encoding="utf-8"))
        result = Path(noted["wheel"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return result if noted.get("inputs") == inputs and result.is_file() else None


def _folder(cell: Cell, settings: Settings) -> Path:
    """Return where a cell is built; cmake reads the options for the linker only once."""
    return FOLDER / cell.name / (f"build-{settings.manylinux}".rstrip("-"))


def _build(cell: Cell, python: Path, out: Path, settings: Settings, log: Log, jobs: int) -> Path:
    """Build the wheel of a cell; return its path. Raises SetupError when a step fails."""
    folder = FOLDER / cell.name
    venv = folder / "venv/bin/python"
    log.run([python, "-m", "venv", "--clear", venv.parents[1]])
    install = [str(venv), "-m", "pip", "install", "--disable-pip-version-check"]
    # Nothing imports torch: it is compiled against, which needs none of its dependencies.
    log.run([*install, "--no-deps", *settings.pip, f"torch=={cell.torch}"])
    log.run([*install, "pyyaml"])
    tree = _folder(cell, settings)
    environ = {"MAX_JOBS": str(jobs), **os.environ, "USE_ZENDNN": "1", BUILD_VARIABLE: str(tree)}
    if settings.built:
        environ[REUSE_VARIABLE] = str(settings.built)
    if settings.policy:
        options = link_stubs.make(tree / "stubs", settings.policy, machine())
        environ["LDFLAGS"] = " ".join([*options, os.environ.get("LDFLAGS", "")]).strip()
    result = retag(Path(log.run([venv, "setup.py", "bdist_wheel", "-d", folder], environ)))
    if settings.policy and not _serves(result, settings.policy):
        raise SetupError(
            f"{result.name} needs a newer system than {settings.policy}: see {log.path}"
        )
    target = out / f"torch-{cell.torch}" / result.name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(result, target)
    return target


def _cell(
    cell: Cell,
    out: Path,
    settings: Settings,
    resume: bool,
    jobs: int,
    say: Callable[[str], None],
) -> Result:
    started = time.monotonic()
    python = find_python(cell.python)
    if python is None:
        return Result(cell, "no python", f"there is no python{cell.python} on PATH")
    folder = FOLDER / cell.name
    stamp, inputs = folder / "done.json", _inputs(cell, settings)
    try:
        path = _kept(stamp, inputs) if resume else None
        state = "kept" if path else "built"
        if path is None:
            log = Log(cell.name, folder / "log.txt")
            say(f"{cell.name}: building with {python}; its log is {log.path}")
            path = _build(cell, python, out, settings, log, jobs)
            wheel.write_beside(path)
        wrong = [name for name, found in check.check(path).items() if found.wrong]
        if wrong:
            raise SetupError(f"{path} fails the checks {', '.join(wrong)}")
        write_atomic(stamp, json.dumps({"inputs": inputs, "wheel": str(path)}).encode())
        size = f"{path.stat().st_size / 1e6:.1f} MB"
        result = Result(cell, state, f"{path} ({size})")
    except SetupError as error:
        result = Result(cell, "failed", str(error))
    return replace(result, seconds=time.monotonic() - started)


def build(
    chosen: Sequence[Cell], out: Path, settings: Settings, *, resume: bool, jobs: int
) -> Sequence[Result]:
    """Build the wheels of all cells, `jobs` at once, into folders of `out`; return the results.

    With `resume`, a cell that an earlier run built from the same inputs keeps its wheel. A cell
    that fails does not stop the others. libzendnn depends on neither Python nor torch: it is
    compiled for the first cell, which is built alone, and the others take it, unless
    ZENDNN_BUILT_DIR has it already. Raises SetupError for a `manylinux` that auditwheel does not
    know.
    """
    if there := os.environ.get(REUSE_VARIABLE):
        settings = replace(settings, built=Path(there))
    if settings.policy:
        link_stubs.newest_versions(settings.policy, machine())
    cores = len(os.sched_getaffinity(0))
    done = 0
    lock = threading.Lock()

    def say(text: str) -> None:
        with lock:
            print(text, flush=True)

    def run(cell: Cell, settings: Settings, jobs: int) -> Result:
        nonlocal done
        result = _cell(cell, out.absolute(), settings, resume, jobs, say)
        with lock:
            done += 1
            print(f"[{done}/{len(chosen)}] {cell.name}: {result.state}", flush=True)
        return result

    results: list[Result] = []
    while len(results) < len(chosen) and not settings.built:
        results.append(run(chosen[len(results)], settings, cores))
        if results[-1].state == "built":
            settings = replace(settings, built=_folder(results[-1].cell, settings) / "native")
    with ThreadPoolExecutor(jobs) as pool:
        try:
            rest = chosen[len(results) :]
            return [
                *results,
                *pool.map(lambda cell: run(cell, settings, max(1, cores // jobs)), rest),
            ]
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise
