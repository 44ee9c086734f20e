"""Where instances of a program run: from a topology to the CPUs and the memory of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

from torch.backends.zendnn.place.binding import PlacingError
from torch.backends.zendnn.place.topology import UNITS, Core, Topology

Item = TypeVar("Item")


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


#: Instances that run at the same time.
Layout = tuple[Instance, ...]


def plan(
    topology: Topology,
    *,
    instances: int | None = None,
    per: str | None = None,
    latency: bool = False,
    memory: str = "local",
) -> Layout:
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
        PlacingError: for more instances than there is room for.
    """
    unit = per or ("numa" if latency else "ccd")
    units = topology.units(unit)
    count = instances or (1 if latency else len(units))
    if latency and count > len(units):
        raise PlacingError(
            f"--latency gives each of {count} instances a whole unit, and there are {len(units)} "
            f"(--per {unit}): take fewer instances, a smaller unit, or --throughput"
        )
    if count > len(topology.cores):
        raise PlacingError(
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


def layouts(topology: Topology, latency: bool, memory: str) -> list[Layout]:
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
