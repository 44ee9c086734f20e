"""Machines to place programs on, and what hwloc says of them."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from torch.backends.zendnn.place.topology import Topology, read

from .machines import SYNTHETIC, cpus_of, write

#: hwloc's names of our units.
LEVELS = {"ccd": "l3", "numa": "numa", "socket": "package"}


needs_hwloc = pytest.mark.skipif(
    not shutil.which("hwloc-calc"), reason="needs hwloc-calc: apt install hwloc-nox"
)


@functools.cache
def machine(name: str) -> Topology:
    """The topology of a machine of topologies.txt, with all of its CPUs."""
    in_memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # disks take long for folders
    with tempfile.TemporaryDirectory(dir=in_memory) as folder:
        cpus = write(SYNTHETIC[name], Path(folder))
        nodes = {cpu.node for cpu in cpus_of(SYNTHETIC[name])}
        return read(Path(folder), cpus, tuple(sorted(nodes)))


def hwloc(name: str, locations: list[str], *options: str) -> list[tuple[int, ...]]:
    """The CPUs, or with options others, that hwloc finds at locations of a machine."""
    done = subprocess.run(
        ["hwloc-calc", "-i", SYNTHETIC[name], "--physical-output", *(options or ["-I", "pu"])],
        input="\n".join(locations) + "\n",
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in done.stdout.splitlines() if line[:1].isdecimal()]  # no greeting
    return [tuple(sorted(map(int, line.split(",")))) for line in lines]
