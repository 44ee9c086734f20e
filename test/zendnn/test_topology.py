"""Topologies of machines that are not here, read as Linux tells them and checked against hwloc."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from torch.backends.zendnn.place.binding import PlacingError, format_list, parse_list
from torch.backends.zendnn.place.topology import Topology, read

from .support.machines import SYNTHETIC, write
from .support.topologies import LEVELS, hwloc, machine, needs_hwloc


@needs_hwloc
@pytest.mark.parametrize("name", SYNTHETIC)
def test_units_and_siblings_are_those_of_hwloc(name: str) -> None:
    topology = machine(name)
    cores = [f"core:{index}" for index in range(len(topology.cores))]
    ours = {"core": [core.cpus for core in topology.cores]}
    theirs = {"core": hwloc(name, cores)}
    for unit, level in LEVELS.items():
        units = topology.units(unit)
        locations = [f"{level}:{index}" for index in range(len(units))]
        ours[unit] = [tuple(sorted(cpu for core in part for cpu in core.cpus)) for part in units]
        theirs[unit] = hwloc(name, locations)
        ours[f"{unit}'s nodes"] = [tuple(sorted({core.node for core in part})) for part in units]
        theirs[f"{unit}'s nodes"] = hwloc(name, locations, "-I", "numa")
    assert [level for level in ours if ours[level] != theirs[level]] == []


@pytest.mark.parametrize(
    ("name", "told"),
    {
        "epyc-7763-1s-nps1-smt": "1 socket, 1 NUMA node, 8 L3 groups, 64 cores, 128 CPUs",
        "epyc-9654-2s-nps4-smt": "2 sockets, 8 NUMA nodes, 24 L3 groups, 192 cores, 384 CPUs",
        "epyc-9755-2s-nps1": "2 sockets, 2 NUMA nodes, 32 L3 groups, 256 cores, 256 CPUs",
        "xeon-8480-2s-smt": "2 sockets, 2 NUMA nodes, 2 L3 groups, 112 cores, 224 CPUs",
    }.items(),
)
def test_a_topology_counts_what_the_machine_has(name: str, told: str) -> None:
    assert machine(name).describe() == told


def test_without_siblings_each_core_has_its_first_cpu() -> None:
    cores = machine("epyc-7763-2s-nps1-smt").without_siblings().cores
    assert [core.cpus for core in cores] == [(cpu,) for cpu in range(128)]


def test_cpus_that_the_process_may_not_use_are_left_out(tmp_path: Path) -> None:
    write(SYNTHETIC["epyc-7763-2s-nps1-smt"], tmp_path)
    # The first sibling of core 9 is taken: its second one serves.
    topology = read(tmp_path, [8, 137, 64], (0, 1)).without_siblings()
    assert [[core.cpus for core in unit] for unit in topology.units("ccd")] == [
        [(8,), (137,)],
        [(64,)],
    ]


def test_a_part_has_the_cpus_that_were_asked_for() -> None:
    topology = machine("epyc-7763-1s-nps1-smt")
    assert [core.cpus for core in topology.only([3, 5, 67]).cores] == [(3, 67), (5,)]
    with pytest.raises(PlacingError, match="CPU 128 is not usable here: choose from 0-127"):
        topology.only([0, 128])


def test_a_system_that_tells_nothing_is_one_unit_of_single_cores(tmp_path: Path) -> None:
    topology = read(tmp_path, [0, 1, 2], (0,))
    assert topology.describe() == "1 socket, 1 NUMA node, 1 L3 group, 3 cores, 3 CPUs"


def test_this_machine_has_the_cpus_that_the_process_may_use() -> None:
    cpus = {cpu for core in read().cores for cpu in core.cpus}
    assert cpus == os.sched_getaffinity(0)


def test_the_memory_is_that_of_the_cores_nodes() -> None:
    topology = machine("epyc-7763-2s-nps2-smt")
    assert topology.only([0, 40]).memory() == (0, 1)
    without = Topology(topology.only([0]).cores, nodes=(1, 2))
    assert without.memory() == (1, 2)


@pytest.mark.parametrize("text", ["0", "0-3,8", "1,3,5", "", "0-127,256-383"])
def test_a_list_reads_back_as_it_was_written(text: str) -> None:
    assert format_list(parse_list(text)) == text


@pytest.mark.parametrize("text", ["a", "3-1", "0-", "-1", "0,,1", "0-99999999", "²", "9" * 5000])
def test_a_wrong_list_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(PlacingError, match=r"is not a list of numbers|has the range") as caught:
        parse_list(text)
    assert "\n" not in str(caught.value)
