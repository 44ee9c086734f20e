"""The doctor's checks of a machine and a process: real problems, or the files that tell them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.backends.zendnn.doctor import limits, machine
from torch.backends.zendnn.doctor.facts import Facts, Load, gather
from torch.backends.zendnn.doctor.findings import Finding, examine
from torch.backends.zendnn.place.topology import Core, Topology

from ..support.machines import SYNTHETIC, write
from .clean import MACHINE

CPUS = tuple(sorted(os.sched_getaffinity(0)))


def found(facts: Facts) -> dict[str, Finding]:
    """Findings by the names of their checks."""
    return {finding.check: finding for finding in examine(machine.CHECKS, facts)}


def files(root: Path, texts: dict[str, str]) -> Path:
    """Writes files below a root."""
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


def test_nothing_is_found_on_a_clean_machine() -> None:
    assert examine(machine.CHECKS, MACHINE) == ()


# Problems that files tell


@pytest.mark.parametrize(
    "tree",
    [
        {
            "proc/self/cgroup": "0::/box/inner",
            "sys/fs/cgroup/box/cpu.max": "100000 100000",
            "sys/fs/cgroup/box/inner/cpu.max": "max 100000",
        },
        {"proc/self/cgroup": "0::/not/mounted", "sys/fs/cgroup/cpu.max": "50000 50000"},
        {
            "proc/self/cgroup": "4:memory:/\n3:cpu,cpuacct:/box\n0::/",
            "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us": "100000",
            "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
        },
    ],
    ids=["of a parent", "of a container", "version 1"],
)
def test_a_control_group_of_one_core_is_found(tree: dict[str, str], tmp_path: Path) -> None:
    facts = gather(files(tmp_path, tree), cpus=range(8), pause=0, environment={})
    finding = found(replace(facts, threads=8, limits=MACHINE.limits))["quota"]
    assert finding.problem == "8 threads share the time of 1 CPUs"
    assert str(tmp_path / "sys/fs/cgroup") in finding.evidence
    assert finding.fix.startswith("OMP_NUM_THREADS=1 ")
    assert finding.cost == 0.0  # 8 threads were faster where it was measured


@pytest.mark.parametrize(("cpus", "threads"), [(1.5, 2), (0.5, 1), (2.0, 2)])
def test_threads_within_the_quota_are_right(cpus: float, threads: int, tmp_path: Path) -> None:
    facts = replace(MACHINE, quota=cpus, threads=threads)
    assert facts.cores == threads
    assert {"quota", "few_threads", "throttled"}.isdisjoint(found(facts))


def test_a_control_group_that_throttles_is_found(tmp_path: Path) -> None:
    tree = {
        "proc/self/cgroup": "0::/box",
        "sys/fs/cgroup/box/cpu.max": "200000 100000",
        "sys/fs/cgroup/box/cpu.stat": "usage_usec 1\nnr_periods 200\nnr_throttled 190",
    }
    facts = replace(gather(files(tmp_path, tree), cpus=range(8), pause=0), threads=2)
    assert found(facts)["throttled"].evidence.endswith("box/cpu.max: in 95 % of the periods")
    files(tmp_path, {"sys/fs/cgroup/box/cpu.stat": "nonsense"})
    assert gather(tmp_path, cpus=[0], pause=0).throttled == 0.0


def test_a_control_group_without_a_limit_is_none(tmp_path: Path) -> None:
    tree = {"proc/self/cgroup": "0::/box", "sys/fs/cgroup/box/cpu.max": "max 100000"}
    assert gather(files(tmp_path, tree), cpus=[0], pause=0).quota is None


def test_threads_on_smt_siblings_are_found(tmp_path: Path) -> None:
    cpus = write(SYNTHETIC["epyc-7763-1s-nps1-smt"], tmp_path / "sys/devices/system")
    facts = replace(gather(tmp_path, cpus, pause=0, environment={}), tools=MACHINE.tools)
    finding = found(replace(facts, threads=128))["smt_siblings"]
    assert finding.problem == "128 threads run on 64 cores: SMT siblings share one"
    assert finding.evidence == "CPUs 0,64 are one core"
    assert "OMP_NUM_THREADS=64 " in finding.fix
    assert "taskset -c 0-63 python script.py" in finding.fix
    assert "smt_siblings" not in found(replace(facts, threads=64))


def test_a_machine_without_huge_pages_is_found(tmp_path: Path) -> None:
    name = "sys/kernel/mm/transparent_hugepage/enabled"
    facts = gather(files(tmp_path, {name: "always madvise [never]"}), cpus=[0], pause=0)
    assert found(facts)["huge_pages"].fix == f"echo madvise > /{name}"
    for chosen in ("[always] madvise never", "always [madvise] never"):
        files(tmp_path, {name: chosen})
        assert "huge_pages" not in found(gather(tmp_path, cpus=[0], pause=0))


def test_frequencies_are_read(tmp_path: Path) -> None:
    of_cpu = "sys/devices/system/cpu/cpu0/cpufreq"
    tree = {
        f"{of_cpu}/scaling_governor": "powersave",
        f"{of_cpu}/scaling_max_freq": "1500000",
        f"{of_cpu}/cpuinfo_max_freq": "3000000",
        "sys/devices/system/cpu/cpufreq/boost": "0",
    }
    problems = found(gather(files(tmp_path, tree), cpus=[0], pause=0))
    assert {"governor", "boost", "frequency"} <= problems.keys()
    assert problems["frequency"].cost == 50.0
    # A CPU that chooses its frequency itself is told what matters.
    files(tmp_path, {f"{of_cpu}/energy_performance_preference": "balance_performance"})
    assert "governor" not in found(gather(tmp_path, cpus=[0], pause=0))


def test_a_debug_build_of_torch_is_told() -> None:
    assert "BUILD_TYPE=Debug" in found(replace(MACHINE, build="Debug"))["torch_build"].evidence


def test_threads_that_spin_beside_other_load_are_found() -> None:
    busy = replace(MACHINE, load=Load(others=0.5), variables={})
    assert found(busy)["spinning"].fix.startswith("GOMP_SPINCOUNT=10000 python script.py")
    assert "spinning" in found(replace(busy, variables={"OMP_WAIT_POLICY": "active"}))
    for still in (
        replace(busy, load=Load()),
        replace(busy, threads=1),
        replace(busy, variables={"OMP_WAIT_POLICY": "passive"}),
        replace(busy, variables={"GOMP_SPINCOUNT": "10000"}),
        replace(busy, variables={"OMP_PROC_BIND": "close"}),
    ):
        assert "spinning" not in found(still)


CHANGES: dict[str, dict[str, Any]] = {
    "few_threads": {"threads": 4},
    "many_threads": {"threads": 16},
    "torch_build": {"versions": ("2.12.0", "2.13.0", "3.7.2")},
    "instruction_set": {"instructions": frozenset({"avx"})},
    "switched_off": {"enabled": False},
    "memory": {"free": 1 << 28},
    "other_load": {"load": Load(stolen=0.2)},
    "numa": {"topology": Topology((Core((0,), 0, 0, 0), Core((1,), 1, 1, 0)))},
    "l3_groups": {"topology": Topology((Core((0,), 0, 0, 0), Core((1,), 1, 0, 0)))},
}


@pytest.mark.parametrize("check", CHANGES)
def test_a_change_of_a_clean_machine_is_found(check: str) -> None:
    assert check in found(replace(MACHINE, **CHANGES[check]))


def test_idle_cores_cost_what_was_measured() -> None:
    cost = found(replace(MACHINE, threads=4))["few_threads"].cost
    assert cost == pytest.approx(100 * (1 - 400 / 700))


VARIABLES = {
    "ZENDNN_VERBOSE": ("1", "0"),
    "ZENDNN_DEBUG_MODE": ("3", "2"),
    "ZENDNN_LOG_OPTS": ("ALL:0,PROF:2", "ALL:1"),
    "ZENDNN_PROCESS_MODE": ("0", "1"),
    "ONEDNN_MAX_CPU_ISA": ("AVX2", "ALL"),
    "ZENDNN_ALLOCATOR_CACHE": ("0", "1000000"),
    "ZENDNN_TUNING_BUDGET": ("0.0", "0.5"),
    "TORCH_DEVICE_BACKEND_AUTOLOAD": ("0", "1"),
    "OMP_PROC_BIND": ("MASTER", "close"),
    "MALLOC_PERTURB_": ("42", "0"),
    "GLIBC_TUNABLES": ("glibc.malloc.check=3", "glibc.malloc.tcache_count=8"),
}


@pytest.mark.parametrize("name", VARIABLES)
def test_a_variable_with_a_price_is_found(name: str) -> None:
    costly, harmless = VARIABLES[name]
    finding = found(replace(MACHINE, variables={name: costly}))["settings"]
    assert (finding.evidence, finding.fix) == (f"{name}={costly}", f"unset {name}")
    assert "settings" not in found(replace(MACHINE, variables={name: harmless}))


def test_variables_of_another_runtime_are_found() -> None:
    variables = {"KMP_AFFINITY": "compact", "MKL_DEBUG_CPU_TYPE": "5"}
    findings = examine(machine.CHECKS, replace(MACHINE, variables=variables))
    assert [finding.check for finding in findings] == ["ignored_variables"] * 2
    intel = replace(MACHINE, openmp=("/lib/libiomp5.so",), variables={"KMP_BLOCKTIME": "0"})
    assert found(intel) == {}


# Problems that are real


def test_foreign_load_is_found_with_its_process() -> None:
    cpu = CPUS[-1]
    spin = f"import os\nos.sched_setaffinity(0, {{{cpu}}})\nprint(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-S", "-c", spin], stdout=subprocess.PIPE) as busy:
        assert busy.stdout
        busy.stdout.readline()
        try:
            facts = gather(cpus=[cpu], pause=0.5)
        finally:
            busy.kill()
    finding = found(facts)["other_load"]
    assert facts.load.others > 0.5
    assert finding.cost == 100 * facts.load.others
    assert re.search(r"\(\d+\): [01]\.\d\d CPUs", finding.evidence)


def test_this_process_is_described() -> None:
    facts = gather(pause=0)
    assert facts.cpus == len(CPUS)
    assert facts.total > facts.free > 0
    assert any("libgomp" in path or "omp" in path for path in facts.openmp)
    assert facts.huge_pages in ("always", "madvise", "never", "")
    assert facts.debug == ()


# Limits


def test_limits_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.01)
    measured = limits.measure(
        CPUS[:2], "avx512f" in gather(pause=0).instructions, (1, 2, 2), free=1 << 27, cache=0
    )
    assert measured.gflops is None or measured.gflops > 1
    assert measured.read > 0
    assert [threads for threads, rate in measured.products if rate > 0] == [1, 2]
    assert set(os.sched_getaffinity(0)) == set(CPUS), "this thread was bound"


def test_a_roof_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.01)
    limits.roof.cache_clear()
    threads = torch.get_num_threads()
    roof = limits.roof(threads)
    assert limits.roof(threads) is roof
    limits.roof.cache_clear()
    assert roof.memory > 0
    assert all(rate > 1 for rate in roof.gflops.values())
    assert set(os.sched_getaffinity(0)) == set(CPUS), "this thread was bound"


@pytest.mark.parametrize(
    ("dtype", "flops", "size", "ms"),
    [
        (torch.float32, 1e9, 1.0, 2.0),
        (torch.float32, 1e9, 4e7, 4.0),
        (torch.bfloat16, 0.0, 4e7, 4.0),
        (torch.bfloat16, 1e9, 1.0, None),
        (None, 0.0, 1.0, None),
    ],
)
def test_what_bounds_an_operator_is_the_slower_of_computing_and_memory(
    dtype: torch.dtype | None, flops: float, size: float, ms: float | None
) -> None:
    roof = limits.Roof({torch.float32: 500.0}, memory=10.0)
    assert roof.ms(dtype, flops, size) == (None if ms is None else pytest.approx(ms))


@pytest.mark.parametrize(("wide", "pairs"), [(False, False), (True, False), (True, True)])
def test_multiply_adds_are_the_instructions_that_are_meant(
    wide: bool, pairs: bool, tmp_path: Path
) -> None:
    """As the assembler of the compiler has them, where there is one."""
    register = "zmm" if wide else "ymm"
    name = "vdpbf16ps" if pairs else "vfmadd231ps"
    body = "".join(f"{name} %{register}12, %{register}13, %{register}{i}\n" for i in range(12))
    source = f"vzeroall\n1:\n{body}dec %rdi\n.byte 0x0f, 0x85\n.long 1b - . - 4\nvzeroupper\nret\n"
    (tmp_path / "a.s").write_text(source)
    try:
        subprocess.run(["as", "a.s", "-o", "a.o"], cwd=tmp_path, check=True)
        copy = ["objcopy", "-O", "binary", "-j", ".text", "a.o", "a.bin"]
        subprocess.run(copy, cwd=tmp_path, check=True)
    except FileNotFoundError:
        pytest.skip("needs the assembler of a C++ compiler")
    assert (tmp_path / "a.bin").read_bytes() == limits.machine_code(wide, pairs)
