"""``python -m torch.backends.zendnn launch``: runs a script on well placed threads and memory.

One direction: topology and options make instances (``plan``), an instance makes a command
(``command_of``), commands make processes (``run``).
"""

from __future__ import annotations

import argparse
import ctypes.util
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import IO, TypeVar

from torch.backends.zendnn import _binding
from torch.backends.zendnn._binding import format_list, parse_list
from torch.backends.zendnn._table import table
from torch.backends.zendnn.topology import UNITS, Core, Topology, read

Item = TypeVar("Item")

#: Libraries to preload by the name of the allocator, best first, and Debian's package of them.
ALLOCATORS = {
    "jemalloc": (("jemalloc",), "libjemalloc2"),
    "mimalloc": (("mimalloc",), "libmimalloc2.0"),
    "tcmalloc": (("tcmalloc_minimal", "tcmalloc"), "libtcmalloc-minimal4"),
}

#: Seconds that instances get to end by themselves.
PATIENCE = 10.0


class LaunchError(Exception):
    """What the user can mend: one sentence."""


# Plans


@dataclass(frozen=True)
class Instance:
    """A process to be: where it computes and where its memory lies.

    Attributes:
        cpus: in the order of its threads; neighbours stand together.
        nodes: the NUMA nodes of its memory; none leaves memory as it is.
        memory: ``"local"`` or ``"interleave"``.
    """

    cpus: tuple[int, ...]
    nodes: tuple[int, ...] = ()
    memory: str = "local"


def plan(
    topology: Topology,
    *,
    instances: int | None = None,
    per: str | None = None,
    latency: bool = False,
    memory: str = "local",
) -> tuple[Instance, ...]:
    """Place instances on a machine.

    For throughput, all cores work: instances share out the units, or share a unit if there are more
    of them than units. For latency, each instance has a whole unit, and other units stay idle.

    Args:
        topology: the cores to use.
        instances: how many; by default one, for latency, or one per unit, for throughput.
        per: the unit, ``"ccd"``, ``"numa"`` or ``"socket"``; by default ``"numa"`` for latency and
            ``"ccd"`` for throughput.
        latency: whether the time of one request matters rather than the requests per second.
        memory: ``"local"`` or ``"interleave"``.

    Raises:
        LaunchError: for more instances than there is room for.
    """
    unit = per or ("numa" if latency else "ccd")
    units = topology.units(unit)
    count = instances or (1 if latency else len(units))
    if latency and count > len(units):
        raise LaunchError(
            f"--latency gives each of {count} instances a whole unit, and there are {len(units)} "
            f"(--per {unit}): take fewer instances, a smaller unit, or --throughput"
        )
    if count > len(topology.cores):
        raise LaunchError(
            f"{count} instances need as many cores, and {len(topology.cores)} are usable here: "
            "take fewer instances, or more cores"
        )
    if latency:
        parts = list(units[:count])
    elif count <= len(units):
        parts = [sum(share, ()) for share in _split(units, count)]
    else:
        shares = zip(units, _apportion([len(unit) for unit in units], count), strict=True)
        parts = [part for unit, share in shares for part in _split(unit, share)]
    return tuple(_instance(topology, part, memory) for part in parts)


def _instance(topology: Topology, cores: tuple[Core, ...], memory: str) -> Instance:
    """Return the instance on some cores of a machine."""
    part = replace(topology, cores=cores)
    nodes = topology.nodes if memory == "interleave" else part.memory()
    # Siblings come after all cores, so that the first threads have a core each.
    depth = max(len(core.cpus) for core in cores)
    cpus = [core.cpus[i] for i in range(depth) for core in cores if i < len(core.cpus)]
    return Instance(tuple(cpus), nodes if len(topology.nodes) > 1 else (), memory)


def _split(items: tuple[Item, ...], count: int) -> list[tuple[Item, ...]]:
    """Cut a sequence into parts whose lengths differ by one at most."""
    ends = [len(items) * i // count for i in range(count + 1)]
    return [items[a:b] for a, b in pairwise(ends)]


def _apportion(sizes: list[int], count: int) -> list[int]:
    """Share out ``count``, at least one each, so that no unit is much more crowded than another."""
    shares = [1] * len(sizes)
    for _ in range(count - len(sizes)):
        roomiest = max(range(len(sizes)), key=lambda i: sizes[i] / (shares[i] + 1))
        shares[roomiest] += 1
    return shares


# Commands


@dataclass(frozen=True)
class Tools:
    """What binds a process here; without any, a program of ours does."""

    taskset: bool
    numactl: bool

    @classmethod
    def here(cls) -> Tools:
        """Return what is on the PATH."""
        return cls(*(shutil.which(name) is not None for name in ("taskset", "numactl")))


@dataclass(frozen=True)
class Command:
    """A program, its arguments, and the environment variables to set for it."""

    variables: Mapping[str, str]
    words: tuple[str, ...]

    def __str__(self) -> str:
        """Return the command for a POSIX shell."""
        variables = [f"{name}={shlex.quote(text)}" for name, text in self.variables.items()]
        return " ".join([*variables, shlex.join(self.words)])


def command_of(
    instance: Instance,
    program: Sequence[str],
    variables: Mapping[str, str] | None = None,
    *,
    tools: Tools,
    pin: bool = True,
) -> Command:
    """Return the command that runs a program as an instance.

    Args:
        instance: where.
        program: the words of its command.
        variables: more environment variables.
        tools: what binds it.
        pin: whether each OpenMP thread keeps to a CPU of its own; else it may move among them.
    """
    settings = {"OMP_NUM_THREADS": str(len(instance.cpus))}
    if pin:
        places = ",".join(f"{{{cpu}}}" for cpu in instance.cpus)
        if instance.cpus == tuple(sorted(instance.cpus)):
            places = "threads"  # of those that the process is bound to, in order
        settings |= {"OMP_PROC_BIND": "close", "OMP_PLACES": places}
    return Command({**settings, **(variables or {})}, (*_binder(instance, tools), *program))


def _binder(instance: Instance, tools: Tools) -> tuple[str, ...]:
    """Return the words that bind the command after them."""
    cpus, nodes = format_list(instance.cpus), format_list(instance.nodes)
    if tools.numactl and (nodes or not tools.taskset):
        policy = {"local": "--membind", "interleave": "--interleave"}[instance.memory]
        return ("numactl", f"--physcpubind={cpus}", *([f"{policy}={nodes}"] if nodes else []))
    if tools.taskset and not nodes:
        return ("taskset", "-c", cpus)
    memory = ["--memory", instance.memory, "--nodes", nodes] if nodes else []
    return (sys.executable, "-I", _binding.__file__, "--cores", cpus, *memory)


def preload(allocator: str) -> str:
    """Return the value of LD_PRELOAD that puts an allocator in the place of the C library's.

    Raises:
        LaunchError: if it is not installed.
    """
    names, package = ALLOCATORS[allocator]
    for name in names:
        own = sorted(Path(sys.prefix, "lib").glob(f"lib{name}.so*"))  # conda's
        if found := str(own[0]) if own else ctypes.util.find_library(name):
            return ":".join(filter(None, (found, os.environ.get("LD_PRELOAD"))))
    raise LaunchError(
        f"{allocator} is not installed: install it ({package} on Debian and Ubuntu), or leave out "
        "--allocator"
    )


# Processes


@dataclass(frozen=True)
class Outcome:
    """How an instance ended.

    Attributes:
        code: its exit code; 128 and the signal's number after a signal, as in a shell.
        seconds: how long it ran.
    """

    code: int
    seconds: float


def run(commands: Sequence[Command], logs: Path | None = None) -> tuple[int, list[Outcome]]:
    """Run commands at the same time until all have ended.

    If one fails, the others are told to end (SIGTERM); a signal to the launcher is passed on. Who
    does not end in time is killed, and so are all after a second signal. The output of several
    commands has the number of the instance in front of each line.

    Args:
        commands: one per instance.
        logs: a folder for ``instance-0.log`` and so on, which get all output instead.

    Returns:
        The code of the first failure, or 0, and the outcomes in the commands' order.

    Raises:
        LaunchError: if a command or a log cannot be started.
    """
    with ExitStack() as cleanup:
        told = cleanup.enter_context(_signals())
        running: list[_Process] = []
        outcomes: dict[int, Outcome] = {}
        first, give_up, refused = 0, math.inf, None
        try:
            for index, command in enumerate(commands):
                log = cleanup.enter_context(_open(logs, index)) if logs else None
                running.append(_Process(command, f"[{index}] " if len(commands) > 1 else "", log))
        except OSError as error:
            refused = LaunchError(f"instance {len(running)} cannot be started: {error}")
        while len(outcomes) < len(running):
            for index, process in enumerate(running):
                if index not in outcomes and (outcome := process.outcome()):
                    outcomes[index] = outcome
                    first = first or (128 + told[0] if told else outcome.code)
            alive = [process for index, process in enumerate(running) if index not in outcomes]
            if give_up == math.inf and (told or first or refused):
                give_up = time.monotonic() + PATIENCE
                for process in alive:
                    process.send(told[0] if told else signal.SIGTERM)
            elif len(told) > 1 or time.monotonic() > give_up:
                for process in alive:
                    process.send(signal.SIGKILL)
            time.sleep(0.01)
    if refused:
        raise refused
    return first, [outcomes[index] for index in range(len(running))]


class _Process:
    """A process of a session of its own, and the threads that pass on its output."""

    def __init__(self, command: Command, label: str, log: IO[bytes] | None) -> None:
        out = log or (subprocess.PIPE if label else None)
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            command.words,
            # What an instance printed before it was killed shall not be lost in a buffer.
            env={**os.environ, "PYTHONUNBUFFERED": "1", **command.variables},
            stdin=subprocess.DEVNULL if label else None,
            stdout=out,
            stderr=subprocess.STDOUT if log else out,
            start_new_session=True,  # a signal then reaches what it has started, too
        )
        pipes = [(self.process.stdout, sys.stdout), (self.process.stderr, sys.stderr)]
        self.readers = [
            threading.Thread(target=_pass_on, args=(pipe, sink.buffer, label.encode()), daemon=True)
            for pipe, sink in pipes
            if pipe
        ]
        for reader in self.readers:
            reader.start()

    def send(self, number: int) -> None:
        """Send a signal to the process and to what it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def outcome(self) -> Outcome | None:
        """Return how the process ended; None while it runs."""
        code = self.process.poll()
        if code is None:
            return None
        seconds = time.monotonic() - self.started
        for reader in self.readers:
            reader.join(1.0)  # what it has started, and left running, may hold its pipes
        return Outcome(code if code >= 0 else 128 - code, seconds)


def _pass_on(pipe: IO[bytes], sink: IO[bytes], label: bytes) -> None:
    """Copy lines with a label in front of each, to the end even if nobody reads them any more."""
    for line in pipe:
        with suppress(OSError):
            sink.write(label + line.removesuffix(b"\n") + b"\n")
            sink.flush()


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Yield a list that receives the signals to end; those that are ignored stay so."""
    told: list[int] = []
    handlers = {
        number: handler
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if (handler := signal.getsignal(number)) != signal.SIG_IGN
    }
    for number in handlers:
        signal.signal(number, lambda number, _: told.append(number))
    try:
        yield told
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _open(logs: Path, index: int) -> IO[bytes]:
    logs.mkdir(parents=True, exist_ok=True)
    return open(logs / f"instance-{index}.log", "wb")


# The search


def layouts(topology: Topology, latency: bool, memory: str) -> list[tuple[Instance, ...]]:
    """Return the layouts that a search measures.

    For throughput, all cores work: as one instance, an instance per socket, NUMA node and L3 group,
    and as more and smaller ones, to one per core. For latency, one instance has ever more cores, to
    all of them.
    """
    total = len(topology.cores)
    if latency:
        sizes = {len(topology.units(unit)[0]) for unit in UNITS}
        sizes |= {1 << i for i in range(min(sizes).bit_length())} | {total}
        return [(_instance(topology, topology.cores[:size], memory),) for size in sorted(sizes)]
    groups = len(topology.units("ccd"))
    counts = {len(topology.units(unit)) for unit in UNITS} | {1, total}
    counts |= {groups << i for i in range((total // groups).bit_length())}
    return [plan(topology, instances=count, memory=memory) for count in sorted(counts)]


_RATE = re.compile(rb"^samples/s: *([0-9.]+(?:e[-+]?[0-9]+)?)\s*$", re.MULTILINE)


def search(topology: Topology, job: Job, *, latency: bool, memory: str) -> int:
    """Measure layouts, print them as a table, and the command for the best; return the exit code.

    The measure is the script's own, if it prints ``samples/s: X`` (the last such line counts), and
    else the time from the start of all instances to the end of the last.
    """
    tried = layouts(topology, latency, memory)
    found: list[tuple[tuple[Instance, ...], float]] = []
    names: set[str] = set()
    code = 0
    for number, instances in enumerate(tried, 1):
        size = _cores_each(instances)
        told = f"{len(instances)} x {size} CPUs ({number} of {len(tried)})"
        print(f"measuring {told}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            code, outcomes = run(job.commands(instances), Path(folder))
            texts = [log.read_bytes() for log in sorted(Path(folder).iterdir())]
        if code:
            failed = next(i for i, outcome in enumerate(outcomes) if outcome.code)
            sys.stderr.write(texts[failed][-2000:].decode(errors="replace"))
            print(f"error: {told}: a script ended with code {code}", file=sys.stderr)
            break
        name, value = _measured(texts, outcomes, latency)
        names.add(name)
        found.append((instances, value))
    if len(names) > 1:
        raise LaunchError("the script printed samples/s in some of its runs only: print it in all")
    if found:
        print(_curve(found, names.pop(), job, latency))
    return code


def _measured(
    texts: Sequence[bytes], outcomes: Sequence[Outcome], latency: bool
) -> tuple[str, float]:
    """Return what a run says of its layout: a name with a unit, and a value."""
    rates = [float(found[-1]) for text in texts if (found := _RATE.findall(text))]
    seconds = max(outcome.seconds for outcome in outcomes)
    if len(rates) not in (0, len(texts)) or not all(rates):
        raise LaunchError("the script printed samples/s in some of its runs only: print it in all")
    if latency:
        return ("ms/sample", 1e3 / rates[0]) if rates else ("s/run", seconds)
    return ("samples/s", sum(rates)) if rates else ("runs/s", len(outcomes) / seconds)


def _curve(
    found: Sequence[tuple[tuple[Instance, ...], float]], name: str, job: Job, latency: bool
) -> str:
    """Return the layouts as a table with bars, and the commands for the best."""
    largest = max(value for _, value in found)
    best, _ = (min if latency else max)(found, key=lambda pair: pair[1])
    rows = [("instances", "CPUs each", name, "")]
    for instances, value in found:
        bar = "#" * max(1, round(40 * value / largest))
        row = (str(len(instances)), _cores_each(instances), f"{value:.4g}")
        rows.append((*row, bar + " best" * (instances is best)))
    return "\n".join([*table(rows, ">>><"), "", shell(job.commands(best))])


def _cores_each(instances: Sequence[Instance]) -> str:
    sizes = sorted({len(instance.cpus) for instance in instances})
    return "-".join(map(str, sizes[:1] + sizes[1:][-1:]))


# The command line


def main(arguments: Sequence[str] | None = None) -> int:
    """Launch what the command line says; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return _launch(options)
    except (LaunchError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m torch.backends.zendnn launch",
        description="Run instances of a script, each bound to cores and memory of its own.",
    )
    add = parser.add_argument
    add("--instances", type=_count, metavar="N|auto", help="how many; auto (default): see below")
    add("--cores", metavar="LIST", help="exactly these CPUs, such as 0-7,16; default: one per core")
    add("--smt", action="store_true", help="use SMT siblings, too")
    add("--per", choices=UNITS, help="the unit of placing; ccd: cores that share an L3 cache")
    goal = parser.add_mutually_exclusive_group()
    goal.add_argument(
        "--throughput",
        action="store_true",
        help="all cores work: one instance per unit, by default a ccd (default)",
    )
    goal.add_argument(
        "--latency",
        action="store_true",
        help="one instance on one unit, by default a NUMA node",
    )
    add("--memory", choices=("local", "interleave"), default="local", help="default: local")
    add("--allocator", choices=sorted(ALLOCATORS), help="preload this one")
    add("--no-pin", action="store_true", help="let threads move among the cores of their instance")
    add("--logs", type=Path, metavar="DIR", help="write the output of instance N to instance-N.log")
    add("--dry-run", action="store_true", help="print the commands only")
    add("--search", action="store_true", help="measure layouts, and print the best")
    add("-m", "--module", action="store_true", help="the script is a module's name")
    add("script")
    add("arguments", nargs=argparse.REMAINDER, help="of the script")
    return parser


def _count(text: str) -> int | None:
    if text == "auto":
        return None
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number from 1 on nor auto")
    return int(text)


@dataclass(frozen=True)
class Job:
    """What all instances have in common: the program, and how it is bound."""

    program: tuple[str, ...]
    tools: Tools
    variables: Mapping[str, str]
    pin: bool = True

    def commands(self, instances: Sequence[Instance]) -> list[Command]:
        """Return a command per instance."""
        return [
            command_of(
                instance,
                self.program,
                {
                    "ZENDNN_INSTANCE": str(index),
                    "ZENDNN_INSTANCES": str(len(instances)),
                    **self.variables,
                },
                tools=self.tools,
                pin=self.pin,
            )
            for index, instance in enumerate(instances)
        ]


def _launch(options: argparse.Namespace) -> int:
    if not (options.module or Path(options.script).is_file()):
        raise LaunchError(f"there is no script {options.script!r}: name a file, or -m and a module")
    topology = read()
    if options.cores:
        topology = topology.only(parse_list(options.cores))
    elif not options.smt:
        topology = topology.without_siblings()
    if len(topology.nodes) > 1 and not _binding.may_bind_memory():
        if options.memory == "interleave":
            raise LaunchError(
                "the system does not let this process interleave memory: "
                "a container needs the capability SYS_NICE for it"
            )
        print(
            "memory is not bound, the system forbids it; Linux allocates locally", file=sys.stderr
        )
        topology = replace(topology, nodes=topology.nodes[:1])
    job = Job(
        (
            sys.executable,
            *(["-m"] if options.module else []),
            options.script,
            *options.arguments,
        ),
        Tools.here(),
        {"LD_PRELOAD": preload(options.allocator)} if options.allocator else {},
        not options.no_pin,
    )
    if options.search:
        if options.instances or options.per or options.logs:
            raise LaunchError("--search chooses instances: leave out --instances, --per and --logs")
        return search(topology, job, latency=options.latency, memory=options.memory)
    instances = plan(
        topology,
        instances=options.instances,
        per=options.per,
        latency=options.latency,
        memory=options.memory,
    )
    commands = job.commands(instances)
    print(
        f"# {topology.describe()}",
        shell(commands),
        sep="\n",
        file=sys.stdout if options.dry_run else sys.stderr,
        flush=True,
    )
    if options.dry_run:
        return 0
    code, outcomes = run(commands, options.logs)
    if len(outcomes) > 1 or options.logs:
        rows = [("instance", "CPUs", "code", "seconds")]
        for index, (instance, outcome) in enumerate(zip(instances, outcomes, strict=True)):
            row = (str(index), format_list(instance.cpus), str(outcome.code))
            rows.append((*row, f"{outcome.seconds:.1f}"))
        print("\n".join(table(rows, "><>>")), file=sys.stderr)
    return code


def shell(commands: Sequence[Command]) -> str:
    """Return lines for a POSIX shell that run commands at the same time."""
    if len(commands) == 1:
        return str(commands[0])
    return "\n".join([*(f"{command} &" for command in commands), "wait"])
