"""Checks of the machine and the process: from facts to findings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from torch.backends.zendnn.doctor.facts import Facts
from torch.backends.zendnn.doctor.findings import Check, Finding
from torch.backends.zendnn.place.binding import format_list
from torch.backends.zendnn.place.commands import SPINS, WAITING, Program, shell
from torch.backends.zendnn.place.container import THREADS, cores
from torch.backends.zendnn.place.placement import plan

Findings = Iterator[Finding]

#: What a command runs.
_SCRIPT = ("python", "script.py")

#: Variables that pin threads.
_BINDERS = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")

#: The cost of threads.
_PRODUCTS = "a product's speed"


def placed(facts: Facts) -> str:
    """Return the launcher's command for one instance on all cores that the process may use."""
    topology = facts.topology.without_siblings()
    topology = replace(topology, cores=topology.cores[: facts.cores])
    return shell(Program(_SCRIPT).commands(plan(topology, instances=1), facts.tools))


def few_threads(facts: Facts) -> Findings:
    """Cores that stay idle."""
    if facts.threads < facts.cores:
        names = (*THREADS, "OMP_THREAD_LIMIT", "MKL_DOMAIN_NUM_THREADS")
        stated = [f"{name}={facts.variables[name]}" for name in names if name in facts.variables]
        yield Finding(
            f"torch uses {_counted(facts.threads, 'thread')} on {facts.cores} cores",
            ", ".join(stated) or "torch.get_num_threads()",
            placed(facts),
            facts.loss(facts.cores),
            _PRODUCTS,
        )


def quota(facts: Facts) -> Findings:
    """More threads than the control group has time for."""
    if facts.quota is not None and facts.threads > cores(facts.quota):
        yield Finding(
            f"{facts.threads} threads share the time of {facts.quota:.3g} CPUs",
            f"{facts.quota_file} allows {facts.quota:.3g} CPUs",
            placed(facts),
            facts.loss(facts.cores),
            _PRODUCTS,
        )


def throttled(facts: Facts) -> Findings:
    """A control group whose processes stand still, though torch has few threads."""
    if facts.quota is not None and facts.throttled > 0.05 and facts.threads <= cores(facts.quota):
        yield Finding(
            "the control group's time is used up, and all of its processes stand still",
            f"cpu.stat beside {facts.quota_file}: in {100 * facts.throttled:.0f} % of the periods",
            "docker update --cpus N CONTAINER  # Kubernetes: resources.limits.cpu; or end others",
        )


def smt_siblings(facts: Facts) -> Findings:
    """Two threads on a core."""
    cores = len(facts.topology.cores)
    if cores < facts.cpus and cores < facts.threads <= facts.cpus:
        pair = next(core.cpus for core in facts.topology.cores if len(core.cpus) > 1)
        yield Finding(
            f"{facts.threads} threads run on {_counted(cores, 'core')}: SMT siblings share one",
            f"CPUs {format_list(pair)} are one core",
            placed(facts),
            facts.loss(facts.cores),
            _PRODUCTS,
        )


def many_threads(facts: Facts) -> Findings:
    """More threads than CPUs."""
    if facts.threads > facts.cpus:
        cpus = format_list(cpu for core in facts.topology.cores for cpu in core.cpus)
        yield Finding(
            f"{facts.threads} threads share {_counted(facts.cpus, 'CPU')}",
            f"the process may use CPU {cpus}",
            placed(facts),
            facts.loss(facts.cores),
            _PRODUCTS,
        )


def openmp_runtimes(facts: Facts) -> Findings:
    """Two runtimes have a pool of threads each, which get into each other's way."""
    if len(facts.openmp) > 1:
        yield Finding(
            f"{len(facts.openmp)} OpenMP runtimes are in one process, each with threads of its own",
            ", ".join(facts.openmp),
            f"OMP_WAIT_POLICY=passive KMP_BLOCKTIME=0 {' '.join(_SCRIPT)}"
            "  # or leave out what loads the second",
        )


def debug_builds(facts: Facts) -> Findings:
    """Libraries without optimisation, or with a sanitizer."""
    for path, why in facts.debug:
        preloaded = Path(path).name in facts.variables.get("LD_PRELOAD", "")
        yield Finding(
            f"{Path(path).name} is a debug build",
            f"{path}: {why}",
            "unset LD_PRELOAD" if preloaded else f"install a release build in place of {path}",
        )


def torch_build(facts: Facts) -> Findings:
    """A torch that cannot be fast, or is not the one that ZenDNN was made for."""
    if facts.build not in ("Release", "RelWithDebInfo", "MinSizeRel"):
        yield Finding(
            f"torch is a {facts.build} build",
            f"BUILD_TYPE={facts.build} in torch.__config__.show()",
            f"pip install --force-reinstall torch=={facts.versions[0].partition('+')[0]}",
        )
    if not facts.has_openmp:
        yield Finding(
            "torch was built without OpenMP: it has one thread",
            "torch.backends.openmp.is_available() is False",
            f"pip install --force-reinstall torch=={facts.versions[0].partition('+')[0]}",
        )
    have, made_for = (version.partition("+")[0] for version in facts.versions[:2])
    if made_for and have != made_for:
        yield Finding(
            "ZenDNN was compiled against another torch",
            f"torch {have}, ZenDNN compiled against {made_for}",
            f"pip install torch=={made_for}",
        )


def instruction_set(facts: Facts) -> Findings:
    """No AVX2."""
    if facts.instructions and "avx2" not in facts.instructions:
        yield Finding(
            "the CPU, or the virtual machine, has no AVX2, which ZenDNN needs",
            "no avx2 in /proc/cpuinfo",
            "choose the CPU model 'host' for the virtual machine (QEMU: -cpu host)",
        )


def switched_off(facts: Facts) -> Findings:
    """ZenDNN does not run, or not its fastest code."""
    if not facts.enabled:
        yield Finding(
            "ZenDNN is switched off",
            "torch.backends.zendnn.enabled is False",
            "torch.backends.zendnn.enabled = True  # or leave out flags(enabled=False)",
        )
    if facts.deterministic:
        yield Finding(
            "results are to be the same from run to run, which torch's kernels compute",
            "torch.backends.zendnn.deterministic is True",
            "torch.backends.zendnn.deterministic = False",
        )


def governor(facts: Facts) -> Findings:
    """A CPU that saves power."""
    if facts.governor in ("powersave", "conservative", "ondemand", "power", "balance_power"):
        yield Finding(
            f"the CPU's frequency is slow to rise: {facts.governor}",
            "scaling_governor or energy_performance_preference below "
            "/sys/devices/system/cpu/cpu0/cpufreq",
            "cpupower frequency-set -g performance",
        )


def boost(facts: Facts) -> Findings:
    """Boost is off."""
    if facts.boost is False:
        yield Finding(
            "the CPU may not boost",
            "/sys/devices/system/cpu/cpufreq/boost is 0, or intel_pstate/no_turbo is 1",
            "echo 1 > /sys/devices/system/cpu/cpufreq/boost"
            "  # Intel: echo 0 > /sys/devices/system/cpu/intel_pstate/no_turbo",
        )


def frequency(facts: Facts) -> Findings:
    """A limit below the CPU's."""
    if facts.frequency < 0.99:
        yield Finding(
            f"the frequency is limited to {100 * facts.frequency:.0f} % of the CPU's",
            "scaling_max_freq is below cpuinfo_max_freq",
            "cpupower frequency-set -u 10GHz",
            100 * (1 - facts.frequency),
            "the frequency",
        )


def numa(facts: Facts) -> Findings:
    """Threads read memory of other nodes."""
    nodes = {core.node for core in facts.topology.cores}
    if len(nodes) > 1 and facts.policy == "default":
        yield Finding(
            f"one process spans {len(nodes)} NUMA nodes, and its memory is not bound",
            f"{facts.topology.describe()}; memory policy {facts.policy}",
            "python -m torch.backends.zendnn launch --per numa script.py",
        )


def l3_groups(facts: Facts) -> Findings:
    """Threads move away from what their L3 cache holds."""
    groups = len(facts.topology.units("ccd"))
    if groups > 1 and not any(name in facts.variables for name in _BINDERS):
        yield Finding(
            f"threads may move among {groups} L3 caches",
            f"none of {', '.join(_BINDERS)} is set",
            "python -m torch.backends.zendnn launch script.py",
        )


def huge_pages(facts: Facts) -> Findings:
    """Linux has no transparent huge pages to give."""
    if facts.huge_pages == "never":
        yield Finding(
            "large tensors get small pages, since huge pages are off",
            "/sys/kernel/mm/transparent_hugepage/enabled is never",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        )


def memory(facts: Facts) -> Findings:
    """Too little of it."""
    if facts.swapped:
        yield Finding(
            "a part of the process is swapped out",
            f"VmSwap is {facts.swapped >> 20} MiB",
            "swapoff -a  # once enough memory is free",
        )
    if facts.total and facts.free < facts.total / 20:
        yield Finding(
            f"{100 * facts.free / facts.total:.0f} % of the memory is free",
            f"MemAvailable is {facts.free >> 20} MiB of {facts.total >> 20} MiB",
            "ps -eo pid,rss,comm --sort=-rss | head",
        )


def other_load(facts: Facts) -> Findings:
    """Other processes, and other virtual machines."""
    load = facts.load
    if load.others > 0.1:
        names = ", ".join(f"{name}: {part:.2f} CPUs" for name, part in load.busiest)
        yield Finding(
            "other processes use the CPUs of this one",
            names or "processes that this one cannot see",
            "top -o %CPU  # end them, or bind this process beside them: launch --cores LIST",
            100 * load.others,
            "the CPUs' time",
        )
    if load.stolen > 0.02:
        yield Finding(
            "the hypervisor gives the CPUs to other virtual machines",
            "steal in /proc/stat",
            "move to dedicated CPUs",
            100 * load.stolen,
            "the CPUs' time",
        )


def spinning(facts: Facts) -> Findings:
    """Threads that wait in the time of those that they wait for."""
    pinned = any(name in facts.variables for name in _BINDERS)
    waits = [f"{name}={facts.variables[name]}" for name in WAITING if name in facts.variables]
    is_long = not pinned and waits in ([], ["OMP_WAIT_POLICY=active"])
    if facts.threads > 1 and facts.load.others > 0.1 and is_long:
        yield Finding(
            "threads that wait spin for longer than a time slice, while others use the CPUs",
            ", ".join(waits) or f"none of {', '.join(WAITING)} is set",
            f"GOMP_SPINCOUNT={SPINS} {' '.join(_SCRIPT)}  # or pin threads: launch",
        )


@dataclass(frozen=True)
class Setting:
    """Values of environment variables that cost time.

    Attributes:
        names: as a regular expression.
        values: as a regular expression, without regard to case.
        problem: what the value does.
    """

    names: str
    values: str
    problem: str


_ON = r"(?!(0|none|off|false|no)?$).+"

#: What variables do that somebody set and forgot.
SETTINGS = (
    Setting("(ZENDNN|ONEDNN|DNNL|MKL)_VERBOSE", _ON, "each call prints a line"),
    Setting("ZENDNN_DEBUG_MODE", "[34]", "each call prints a line"),
    Setting("ZENDNN_PRIMITIVE_LOG_ENABLE", "1", "each call prints a line"),
    Setting("ZENDNN_LOG_OPTS", ".*:[2-9].*", "each call prints a line"),
    Setting("ZENDNN_PROCESS_MODE", "0", "ZenDNN is switched off"),
    Setting("ZENDNN_VERIFY", "1", "results are also computed by torch"),
    Setting(
        "(ZENDNN|ONEDNN|DNNL)_MAX_CPU_ISA|ATEN_CPU_CAPABILITY|MKL_ENABLE_INSTRUCTIONS|MKL_CBWR",
        r"(?!(auto|default|all|off)$).+",
        "the instruction set is limited",
    ),
    Setting("ZENDNN_ALLOCATOR_CACHE", "0", "freed memory goes back to the system at once"),
    Setting("ZENDNN_HUGE_PAGES", "0", "large tensors get small pages"),
    Setting("ZENDNN_TUNING_BUDGET", r"0(\.0*)?", "plans time no candidates"),
    Setting("ZENDNN_PLAN_CACHE_CAPACITY", "0", "a plan forgets what it built"),
    Setting("TORCH_DEVICE_BACKEND_AUTOLOAD", "0", "`import torch` does not load ZenDNN"),
    Setting("OMP_PROC_BIND", "(master|primary).*", "all threads of OpenMP share a place"),
    Setting("OMP_DYNAMIC", "true|1", "OpenMP takes fewer threads when the machine is busy"),
    Setting("MALLOC_(PERTURB|CHECK)_", _ON, "the C library checks or fills all memory"),
    Setting("PYTHONMALLOC", ".*debug", "Python checks all memory"),
    Setting("PYTHONDEVMODE", ".+", "Python checks memory, and more"),
    Setting("GLIBC_TUNABLES", r".*glibc\.malloc\.(check|perturb)=[^0].*", "glibc checks memory"),
)


def settings(facts: Facts) -> Findings:
    """Variables with a price."""
    for name, value in facts.variables.items():
        for setting in SETTINGS:
            if re.fullmatch(setting.names, name) and re.fullmatch(setting.values, value, re.I):
                yield Finding(setting.problem, f"{name}={value}", f"unset {name}")


def ignored_variables(facts: Facts) -> Findings:
    """Variables of a runtime that is not here."""
    runtimes = " ".join(Path(path).name for path in facts.openmp)
    readers = {"KMP_": r"libi?omp", "GOMP_": r"libgomp"}
    for name, value in facts.variables.items():
        for prefix, library in readers.items():
            if runtimes and name.startswith(prefix) and not re.search(library, runtimes):
                yield Finding(
                    f"nothing reads {name}: the OpenMP runtime is another one",
                    f"{name}={value}; {facts.openmp[0]}",
                    f"unset {name}; {placed(facts)}",
                )
        if name == "MKL_DEBUG_CPU_TYPE":
            yield Finding(
                "nothing reads MKL_DEBUG_CPU_TYPE since MKL 2020.1",
                f"{name}={value}",
                f"unset {name}",
            )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


CHECKS: tuple[Check[Facts], ...] = (
    *(few_threads, quota, throttled, smt_siblings, many_threads, openmp_runtimes, debug_builds),
    *(torch_build, instruction_set, switched_off, governor, boost, frequency, numa, l3_groups),
    *(huge_pages, memory, other_load, spinning, settings, ignored_variables),
)
