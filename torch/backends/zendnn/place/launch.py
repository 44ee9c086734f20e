"""``python -m torch.backends.zendnn launch``: runs a script on well placed threads and memory."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch.backends.zendnn._columns import table
from torch.backends.zendnn.place import container
from torch.backends.zendnn.place.binding import (
    SYS_NICE,
    PlacingError,
    format_list,
    may_bind_memory,
    parse_list,
)
from torch.backends.zendnn.place.commands import ALLOCATORS, Program, Tools, preload, shell
from torch.backends.zendnn.place.placement import plan
from torch.backends.zendnn.place.processes import run
from torch.backends.zendnn.place.search import search
from torch.backends.zendnn.place.topology import UNITS, Topology, read


def main(arguments: Sequence[str] | None = None) -> int:
    """Launch what the command line says; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return _launch(options)
    except PlacingError as error:
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


def _launch(options: argparse.Namespace) -> int:
    if not (options.module or Path(options.script).is_file()):
        raise PlacingError(f"there is no script {options.script!r}: name one, or -m and a module")
    topology, tools = _topology(options), Tools.here()
    program = Program(
        (sys.executable, *["-m"] * options.module, options.script, *options.arguments),
        {"LD_PRELOAD": preload(options.allocator)} if options.allocator else {},
        pin=not options.no_pin,
    )
    goal = {"latency": options.latency, "memory": options.memory}
    if options.search:
        if options.instances or options.per or options.logs or options.dry_run:
            raise PlacingError(
                "--search chooses and runs instances: "
                "leave out --instances, --per, --logs and --dry-run"
            )
        return search(topology, program, tools, **goal)
    instances = plan(topology, instances=options.instances, per=options.per, **goal)
    commands = program.commands(instances, tools)
    out = sys.stdout if options.dry_run else sys.stderr
    print(f"# {topology.describe()}", shell(commands), sep="\n", file=out, flush=True)
    if options.dry_run:
        return 0
    code, outcomes = run(commands, options.logs)
    if len(outcomes) > 1 or options.logs:
        rows = [("instance", "CPUs", "code", "seconds")]
        for index, (instance, outcome) in enumerate(zip(instances, outcomes, strict=True)):
            row = (str(index), format_list(instance.cpus), str(outcome.code))
            rows.append((*row, f"{outcome.seconds:.1f}"))
        print(*table(rows, "><>>"), sep="\n", file=sys.stderr)
    return code


def _topology(options: argparse.Namespace) -> Topology:
    """Return the part of the machine that the options choose."""
    topology = read()
    if options.cores is not None:
        topology = topology.only(parse_list(options.cores))
    elif not options.smt:
        topology = topology.without_siblings()
    cpus, file = container.quota() or (len(topology.cores), "")
    if container.cores(cpus) < len(topology.cores):
        print(
            f"{len(topology.cores)} cores share the time of {cpus:.3g} CPUs, which {file} allows: "
            "choose fewer by --cores",
            file=sys.stderr,
        )
    if len(topology.nodes) == 1 or may_bind_memory():
        return topology
    if options.memory == "interleave":
        raise PlacingError(f"the system does not let this process interleave memory: {SYS_NICE}")
    print(f"memory is not bound, only allocated locally: {SYS_NICE}", file=sys.stderr)
    return replace(topology, nodes=topology.nodes[:1])
