"""Machines that are not here: as text, and as the files in which Linux tells their topologies."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from pathlib import Path

from torch.backends.zendnn.place.binding import format_list

#: Topologies in hwloc's synthetic notation, by name.
SYNTHETIC = {
    line.split()[0]: line.split(maxsplit=1)[1].strip()
    for line in Path(__file__).with_name("topologies.txt").read_text().splitlines()
    if line.strip() and not line.startswith("#")
}


@dataclass(frozen=True)
class Cpu:
    """A CPU: its number, and what it belongs to, each counted over the whole machine."""

    number: int
    socket: int
    node: int
    l3: int
    core: int


def cpus_of(synthetic: str) -> list[Cpu]:
    """The CPUs of a topology: sockets, NUMA nodes, L3 caches, cores, CPUs; in this order."""
    counts = [int(re.split(r"[:(]", level)[1]) for level in synthetic.split()]
    loops = re.search(r"indexes=([\d*:]+)", synthetic)
    total = 1
    for count in counts:
        total *= count
    # Each loop is a step in the tree's order and how often it is taken; the first turns fastest.
    steps = [tuple(map(int, loop.split("*"))) for loop in loops[1].split(":")] if loops else []
    order = [
        sum(position)
        for position in itertools.product(
            *(range(0, step * times, step) for step, times in reversed(steps or [(1, total)]))
        )
    ]
    numbers = {position: number for number, position in enumerate(order)}
    cpus = []
    for position in range(total):
        belongs, rest = [], total
        for count in counts:
            rest //= count
            belongs.append(position // rest)
        cpus.append(Cpu(numbers[position], *belongs[:4]))
    return cpus


def write(synthetic: str, root: Path) -> list[int]:
    """Writes what Linux has below ``/sys/devices/system``; returns the numbers of the CPUs."""
    cpus = cpus_of(synthetic)

    def sharing(level: str) -> dict[int, str]:
        groups: dict[int, list[int]] = {}
        for cpu in cpus:
            groups.setdefault(getattr(cpu, level), []).append(cpu.number)
        return {key: format_list(numbers) for key, numbers in groups.items()}

    l3, cores, nodes = sharing("l3"), sharing("core"), sharing("node")
    for cpu in cpus:
        folder = root / f"cpu/cpu{cpu.number}"
        for path, text in {
            "topology/physical_package_id": str(cpu.socket),
            "topology/thread_siblings_list": cores[cpu.core],
            "cache/index0/level": "1",
            "cache/index0/shared_cpu_list": cores[cpu.core],
            "cache/index3/level": "3",
            "cache/index3/shared_cpu_list": l3[cpu.l3],
        }.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(f"{text}\n")
    for node, numbers in nodes.items():
        (root / f"node/node{node}").mkdir(parents=True)
        (root / f"node/node{node}/cpulist").write_text(f"{numbers}\n")
    return [cpu.number for cpu in cpus]
