"""The machine's layout: which CPUs are one core, and which cores share a cache and a memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from torch.backends.zendnn.place.binding import PlacingError, allowed_nodes, format_list, parse_list

_SYSFS = Path("/sys/devices/system")


@dataclass(frozen=True)
class Core:
    """A core that this process may use.

    Attributes:
        cpus: its usable CPUs as Linux numbers them; more than one are SMT siblings.
        l3: the first CPU of those that share its L3 cache.
        node: its NUMA node.
        socket: its processor.
    """

    cpus: tuple[int, ...]
    l3: int
    node: int
    socket: int


#: What the cores of a unit have in common, by the unit's name.
UNITS: dict[str, Callable[[Core], tuple[int, ...]]] = {
    "ccd": lambda core: (core.socket, core.node, core.l3),
    "numa": lambda core: (core.node,),
    "socket": lambda core: (core.socket,),
}

_NAMES = {"socket": "socket", "numa": "NUMA node", "ccd": "L3 group"}


@dataclass(frozen=True)
class Topology:
    """The part of a machine that this process may use.

    Attributes:
        cores: neighbours stand together: by socket, NUMA node, L3 cache and CPU number.
        nodes: the NUMA nodes with usable memory.
    """

    cores: tuple[Core, ...]
    nodes: tuple[int, ...] = (0,)

    def units(self, name: str) -> tuple[tuple[Core, ...], ...]:
        """Return the cores by unit: ``"ccd"``, ``"numa"`` or ``"socket"``."""
        units: dict[tuple[int, ...], list[Core]] = {}
        for core in self.cores:
            units.setdefault(UNITS[name](core), []).append(core)
        return tuple(map(tuple, units.values()))

    def only(self, cpus: Collection[int]) -> Topology:
        """Return the part with these CPUs only.

        Raises:
            PlacingError: for no CPU, or one that is not part of this.
        """
        if not cpus:
            raise PlacingError("the list of CPUs is empty: name one, such as 0")
        usable = {cpu for core in self.cores for cpu in core.cpus}
        if unusable := set(cpus) - usable:
            raise PlacingError(
                f"CPU {format_list(unusable)} is not usable here: choose from {format_list(usable)}"
            )
        left = (
            replace(core, cpus=tuple(cpu for cpu in core.cpus if cpu in cpus))
            for core in self.cores
        )
        return replace(self, cores=tuple(core for core in left if core.cpus))

    def memory(self) -> tuple[int, ...]:
        """Return the nodes of the cores' own memory; all nodes if they have none that is usable."""
        own = {core.node for core in self.cores}
        return tuple(node for node in self.nodes if node in own) or self.nodes

    def without_siblings(self) -> Topology:
        """Return the same cores with one CPU each."""
        return replace(self, cores=tuple(replace(c, cpus=c.cpus[:1]) for c in self.cores))

    def describe(self) -> str:
        """Return a line that counts sockets, NUMA nodes, L3 caches, cores and CPUs."""
        counts = [
            *((len(self.units(unit)), name) for unit, name in _NAMES.items()),
            (len(self.cores), "core"),
            (sum(len(core.cpus) for core in self.cores), "CPU"),
        ]
        return ", ".join(f"{count} {name}{'s' * (count != 1)}" for count, name in counts)


def read(
    root: Path = _SYSFS,
    cpus: Collection[int] | None = None,
    nodes: tuple[int, ...] | None = None,
) -> Topology:
    """Read the layout from Linux.

    Args:
        root: the folder that is ``/sys/devices/system`` on a running machine.
        cpus: the CPUs to read; by default those that this process may use, which its affinity and
            the cpusets of its control groups limit.
        nodes: the NUMA nodes with usable memory; by default those of this process.
    """
    node_of = {
        cpu: int(folder.name.removeprefix("node"))
        for folder in root.glob("node/node[0-9]*")
        for cpu in _list(folder / "cpulist")
    }
    usable = set(os.sched_getaffinity(0) if cpus is None else cpus)
    cores = set()
    for cpu in usable:
        folder = root / f"cpu/cpu{cpu}"
        siblings = _list(folder / "topology/thread_siblings_list") or (cpu,)
        socket = _list(folder / "topology/physical_package_id") or (0,)
        sharing = next(
            (
                _list(cache / "shared_cpu_list")
                for cache in folder.glob("cache/index*")
                if _list(cache / "level") == (3,)
            ),
            (),
        )
        cores.add(
            Core(
                cpus=tuple(sibling for sibling in siblings if sibling in usable),
                l3=sharing[0] if sharing else -1,  # no L3: as if the cores of a node shared one
                node=node_of.get(cpu, 0),
                socket=socket[0],
            )
        )
    ordered = sorted(cores, key=lambda core: (core.socket, core.node, core.l3, core.cpus))
    return Topology(tuple(ordered), allowed_nodes() if nodes is None else nodes)


def _list(file: Path) -> tuple[int, ...]:
    """Return the numbers in a file; none where the kernel does not tell them."""
    try:
        return parse_list(file.read_text())
    except (OSError, ValueError):  # a virtual machine without caches, a package of -1
        return ()
