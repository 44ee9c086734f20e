"""The facts of a machine and of this process, gathered in one place.

Everything that Linux tells is read below a root folder, which tests replace.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.backends.zendnn import _C
from torch.backends.zendnn.doctor.elf import why_debug
from torch.backends.zendnn.doctor.limits import Limits
from torch.backends.zendnn.place import container, topology
from torch.backends.zendnn.place.commands import Tools
from torch.backends.zendnn.place.container import read
from torch.backends.zendnn.place.topology import Topology

#: The first letters of environment variables that may change what runs, or how fast.
_VARIABLES = (
    *("ZENDNN_", "ONEDNN_", "DNNL_", "MKL_", "BLIS_", "OPENBLAS_"),
    *("OMP_", "KMP_", "GOMP_", "TORCH_", "ATEN_", "MALLOC_", "GLIBC_TUNABLES"),
    *("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONMALLOC", "PYTHONDEVMODE"),
)

#: Runtimes of OpenMP by the names of their files, as wheels also spell them.
_OPENMP = re.compile(r"lib(gomp|iomp5|omp5?)(-[0-9a-f]+)?\.so")

_ALLOCATORS = re.compile(r"lib(jemalloc|tcmalloc|mimalloc)")


@dataclass(frozen=True)
class Load:
    """What used the CPUs of this process while it slept.

    Attributes:
        others: the part of the CPUs' time that other processes took, from 0 to 1.
        stolen: the part that the hypervisor took.
        busiest: names of processes and the CPUs that each used.
    """

    others: float = 0.0
    stolen: float = 0.0
    busiest: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Facts:
    """A machine and this process.

    Attributes:
        cpu: the CPU's name.
        isa: the widest instruction set that ZenDNN uses, such as ``"AVX-512 with BF16"``.
        instructions: Linux's names of what the CPU has, such as ``"avx512f"``.
        caches: bytes of L1d, L2 and L3.
        topology: what this process may use.
        quota: the CPUs whose time its control groups allow; None without a limit.
        quota_file: what says so.
        throttled: the part of the periods in which the group used up its quota, from 0 to 1.
        governor: of the frequency, or the preference by which the CPU chooses it; empty where Linux
            does not tell, as in virtual machines.
        boost: whether frequencies above the nominal are allowed; None where nobody tells.
        frequency: the allowed part of the highest frequency, from 0 to 1.
        huge_pages: ``"always"``, ``"madvise"``, ``"never"`` or empty: Linux's policy.
        policy: where Linux places memory, such as ``"default"`` or ``"bind:0"``.
        total, free: bytes of memory, and of those that are available.
        swapped: bytes of this process that were swapped out.
        load: of other processes.
        threads: torch's.
        variables: the environment's, those that change what runs.
        openmp: files of the OpenMP runtimes in the process.
        debug: files in the process that are debug builds, each with the reason.
        allocator: of the C library's functions.
        build: torch's kind of build, such as ``"Release"``.
        has_openmp: whether torch was built with OpenMP.
        versions: of torch, of the torch that ZenDNN was compiled against, of ZenDNN.
        enabled, deterministic: ZenDNN's switches.
        flushes: whether subnormals count as 0.
        tools: the programs that bind others.
        limits: as measured; None where nothing was measured.
    """

    cpu: str
    isa: str
    instructions: frozenset[str]
    caches: tuple[int, int, int]
    topology: Topology
    threads: int
    quota: float | None = None
    quota_file: str = ""
    throttled: float = 0.0
    governor: str = ""
    boost: bool | None = None
    frequency: float = 1.0
    huge_pages: str = "madvise"
    policy: str = "default"
    total: int = 1 << 36
    free: int = 1 << 35
    swapped: int = 0
    load: Load = Load()
    variables: Mapping[str, str] = field(default_factory=dict)
    openmp: tuple[str, ...] = ()
    debug: tuple[tuple[str, str], ...] = ()
    allocator: str = "glibc"
    build: str = "Release"
    has_openmp: bool = True
    versions: tuple[str, str, str] = ("", "", "")
    enabled: bool = True
    deterministic: bool = False
    flushes: bool = False
    tools: Tools = field(default_factory=Tools.here)
    limits: Limits | None = None

    @property
    def cores(self) -> int:
        """How many cores this process may keep busy."""
        usable = len(self.topology.cores)
        return usable if self.quota is None else min(usable, container.cores(self.quota))

    @property
    def cpus(self) -> int:
        """How many CPUs, SMT siblings included."""
        return sum(len(core.cpus) for core in self.topology.cores)

    def loss(self, then: int) -> float | None:
        """Return what products lose against another number of threads, in per cent."""
        return self.limits.loss(self.threads, then) if self.limits else None


def gather(
    root: Path = Path("/"),
    cpus: Collection[int] | None = None,
    pause: float = 0.5,
    environment: Mapping[str, str] = os.environ,
) -> Facts:
    """Return the facts, without limits.

    Args:
        root: the folder that has Linux's ``proc`` and ``sys``.
        cpus: those that the process may use; by default this process's.
        pause: seconds to watch other processes for.
        environment: the variables.
    """
    machine = topology.read(root / "sys/devices/system", cpus)
    used = {cpu for core in machine.cores for cpu in core.cpus}
    quota, quota_file = container.quota(root) or (None, "")
    memory = _table(root / "proc/meminfo")
    libraries = _libraries(root)
    cpu = _C._cpu()
    return Facts(
        cpu=cpu["name"].strip(),
        isa=cpu["isa"],
        instructions=frozenset(_table(root / "proc/cpuinfo").get("flags", "").split()),
        caches=tuple(cpu["caches"]),
        topology=machine,
        threads=torch.get_num_threads(),
        quota=quota,
        quota_file=quota_file,
        throttled=_throttled(Path(quota_file).with_name("cpu.stat")) if quota_file else 0.0,
        huge_pages=_chosen(root / "sys/kernel/mm/transparent_hugepage/enabled"),
        policy=_policy(root / "proc/self/numa_maps"),
        total=_kib(memory, "MemTotal"),
        free=_kib(memory, "MemAvailable"),
        swapped=_kib(_table(root / "proc/self/status"), "VmSwap"),
        load=_load(root / "proc", used, pause),
        variables={k: v for k, v in sorted(environment.items()) if k.startswith(_VARIABLES)},
        openmp=tuple(path for path in libraries if _OPENMP.match(Path(path).name)),
        debug=_debug(libraries),
        allocator=next((m[1] for path in libraries if (m := _ALLOCATORS.search(path))), "glibc"),
        has_openmp=torch.backends.openmp.is_available(),
        versions=_versions(),
        enabled=bool(_C._get_zendnn_enabled()),
        deterministic=bool(_C._get_zendnn_deterministic()),
        flushes=not (torch.tensor([1e-40]) * 1.0).item(),
        **_frequency(root / "sys/devices/system/cpu", min(used)),
        build=_build(),
    )


def _table(file: Path) -> dict[str, str]:
    """Return the first value of each key of lines such as ``key: value``."""
    rows: dict[str, str] = {}
    for line in read(file).splitlines():
        key, _, value = line.partition(":")
        rows.setdefault(key.strip(), value.strip())
    return rows


def _kib(rows: Mapping[str, str], key: str) -> int:
    """Return the bytes that a row such as ``12 kB`` says."""
    return int((rows.get(key, "").split() or ["0"])[0]) << 10


def _chosen(file: Path) -> str:
    """Return the word in brackets."""
    found = re.search(r"\[(\w+)\]", read(file))
    return found[1] if found else ""


def _policy(file: Path) -> str:
    """Return the memory policy, which is the second word of each mapping."""
    words = read(file).split(maxsplit=2)
    return words[1] if len(words) > 1 else "default"


def _throttled(file: Path) -> float:
    """Return the part of a control group's periods whose quota was used up."""
    counts = dict(re.findall(r"^(nr_\w+) (\d+)$", read(file), re.MULTILINE))
    return int(counts.get("nr_throttled", 0)) / max(1, int(counts.get("nr_periods", 0)))


def _frequency(folder: Path, cpu: int) -> dict[str, Any]:
    of_cpu = folder / f"cpu{cpu}/cpufreq"
    allowed, highest = (read(of_cpu / name) for name in ("scaling_max_freq", "cpuinfo_max_freq"))
    boost = read(folder / "cpufreq/boost") or {"0": "1", "1": "0"}.get(
        read(folder / "intel_pstate/no_turbo"), ""
    )
    return {
        # Where the CPU chooses the frequency itself, the governor says little.
        "governor": read(of_cpu / "energy_performance_preference")
        or read(of_cpu / "scaling_governor"),
        "boost": {"0": False, "1": True}.get(boost),
        "frequency": int(allowed) / int(highest) if allowed and highest else 1.0,
    }


def _libraries(root: Path) -> tuple[str, ...]:
    """Return the shared libraries in this process, each file once."""
    paths = re.findall(r" (/\S.*\.so[.\w]*)$", read(root / "proc/self/maps"), re.MULTILINE)
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths))


def _debug(libraries: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    found = [(path, why_debug(Path(path))) for path in libraries]
    if sysconfig.get_config_var("Py_DEBUG"):
        found.append((sys.executable, "Python was configured with --with-pydebug"))
    return tuple((path, why) for path, why in found if why)


def _build() -> str:
    found = re.search(r"BUILD_TYPE=(\w+)", torch.__config__.show())
    return found[1] if found else "Release"


def _versions() -> tuple[str, str, str]:
    against = re.search(r"compiled against (\S+)", _C._build_info())
    return torch.__version__, against[1] if against else "", _C._version()


def _load(proc: Path, cpus: Collection[int], pause: float) -> Load:
    """Watch the CPUs while this process sleeps."""
    before, start = _Times.of(proc, cpus), time.monotonic()
    time.sleep(pause)
    after, seconds = _Times.of(proc, cpus), time.monotonic() - start
    total = after.total - before.total
    if not total:
        return Load()
    own = os.getpid()
    ticks = os.sysconf("SC_CLK_TCK")
    used = {
        pid: (name, (spent - before.processes[pid][1]) / ticks / seconds)
        for pid, (name, spent) in after.processes.items()
        if pid in before.processes
    }
    busy = after.busy - before.busy - used.pop(own, ("", 0.0))[1] * seconds * ticks
    busiest = sorted(used.values(), key=lambda item: -item[1])[:3]
    return Load(
        max(0.0, busy / total),
        (after.stolen - before.stolen) / total,
        tuple((name, part) for name, part in busiest if part > 0.05),
    )


@dataclass(frozen=True)
class _Times:
    """Ticks since the start: of some CPUs, and of all processes by number and with a name."""

    total: int
    busy: int
    stolen: int
    processes: Mapping[int, tuple[str, int]]

    @classmethod
    def of(cls, proc: Path, cpus: Collection[int]) -> _Times:
        rows = [
            list(map(int, words[1:9]))
            for line in read(proc / "stat").splitlines()
            if (words := line.split()) and re.fullmatch(r"cpu\d+", words[0])
            if int(words[0][3:]) in cpus
        ]
        # user, nice, system, idle, iowait, irq, softirq, steal
        total, stolen = sum(map(sum, rows)), sum(row[7] for row in rows)
        busy = total - stolen - sum(row[3] + row[4] for row in rows)
        return cls(total, busy, stolen, dict(_processes(proc)))


def _processes(proc: Path) -> Iterator[tuple[int, tuple[str, int]]]:
    for file in proc.glob("[0-9]*/stat"):
        name, _, rest = read(file).partition("(")[2].rpartition(")")
        words = rest.split()
        if len(words) > 12:
            pid = int(file.parent.name)
            yield pid, (f"{name} ({pid})", sum(map(int, words[11:13])))
