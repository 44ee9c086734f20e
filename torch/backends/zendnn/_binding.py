"""Binds threads and memory, in this process or, as a program of its own, before another one starts.

It imports the standard library only, so that it starts at once where ``numactl`` is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import platform
import re
import sys
from collections.abc import Iterable
from pathlib import Path

#: The policies of Linux's ``set_mempolicy``, by our words for them.
_POLICIES = {"local": 2, "interleave": 3}

#: The numbers of the system calls ``set_mempolicy`` and ``get_mempolicy``.
_CALLS = {"x86_64": (238, 239), "aarch64": (237, 236)}

_NODES = 1024  # the longest mask that Linux takes

#: What to do where the system forbids it.
SYS_NICE = "a container needs the capability SYS_NICE for it"


class PlacingError(ValueError):
    """A wish that cannot be met; the message is one sentence: what, where, what to do."""


def parse_list(text: str) -> tuple[int, ...]:
    """Return the sorted numbers of a list as Linux writes it, such as ``0-3,8``.

    Raises:
        ValueError: if the text is no such list.
    """
    numbers: set[int] = set()
    for part in text.strip().split(",") if text.strip() else ():
        if not (found := re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", part)):
            raise PlacingError(f"{text!r} is not a list of numbers such as 0-3,8")
        start, end = int(found[1]), int(found[2] or found[1])
        if end < start:
            raise PlacingError(
                f"{text!r} has the range {part}, which goes down: write {end}-{start}"
            )
        numbers.update(range(start, end + 1))
    return tuple(sorted(numbers))


def format_list(numbers: Iterable[int]) -> str:
    """Return numbers as Linux writes them, in order and with ranges."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in ranges)


def allowed_nodes(status: Path = Path("/proc/self/status")) -> tuple[int, ...]:
    """Return the NUMA nodes with memory that this process may use."""
    allowed = {0}
    for line in status.read_text().splitlines():
        if line.startswith("Mems_allowed_list:"):
            allowed = set(parse_list(line.partition(":")[2]))
    with contextlib.suppress(OSError):  # a kernel without NUMA has no such file
        allowed &= set(parse_list(Path("/sys/devices/system/node/has_memory").read_text()))
    return tuple(sorted(allowed))


def may_bind_memory() -> bool:
    """Return whether the system lets this process bind memory, as few containers do.

    Those that forbid it also forbid to ask for the policy, which changes nothing.
    """
    if platform.machine() not in _CALLS:
        return False
    call = _CALLS[platform.machine()][1]
    return bool(_libc().syscall(call, None, None, 0, None, 0) == 0)


def bind(cores: str | Iterable[int] | None = None, memory: str | None = None) -> None:
    """Bind this process to cores, and its memory to NUMA nodes.

    All threads of the process are bound, and torch gets as many as there are cores. Call it first:
    memory in use stays where it is, and other threads that run already keep their memory policy.

    Args:
        cores: numbers of CPUs, or a list as text, such as ``"0-7,16"``; None leaves them.
        memory: ``"local"`` allocates on the nodes of the cores only; ``"interleave"`` on all nodes
            in turn; None leaves the policy. On a machine of one node nothing needs doing.

    Raises:
        ValueError: for another word, or for CPUs that this process may not use.
        OSError: where the system does not let this process bind memory.
    """
    import torch
    from torch.backends.zendnn import topology  # not above: this file also runs alone

    if memory not in (None, *_POLICIES):
        raise PlacingError(f"memory is 'local' or 'interleave', not {memory!r}")
    if cores is not None:
        numbers = parse_list(cores) if isinstance(cores, str) else tuple(cores)
        bind_cores(numbers)
        torch.set_num_threads(len(set(numbers)))
    machine = topology.read()
    if memory and len(machine.nodes) > 1:
        bind_memory(memory, machine.nodes if memory == "interleave" else machine.memory())


#: What ``bind`` takes for memory, by the words of ``ZENDNN_MEM_BIND``.
_MEMORY = {"1": "local", "interleave": "interleave"}


def bind_by_variables() -> bool:
    """Bind this process as its environment variables say, when torch is imported.

    What cannot be done warns, and is left out.

    Returns:
        whether they set the number of torch's threads.
    """
    import torch
    from torch.backends.zendnn import _C, _settings

    threads = _settings.whole_number("ZENDNN_NUM_THREADS")
    listed = _settings.text("ZENDNN_NUMA_CPUS")
    binds = _settings.word("ZENDNN_CPU_BIND", "0" if listed is None else "1")
    memory = _settings.word("ZENDNN_MEM_BIND")
    chosen = bool(threads)
    if binds == "1":
        from torch.backends.zendnn import topology

        name = "ZENDNN_CPU_BIND" if listed is None else "ZENDNN_NUMA_CPUS"
        try:
            if listed is None:
                cores: tuple[int, ...] = tuple(core.cpus[0] for core in topology.read().cores)
            else:
                cores = parse_list(",".join(listed.replace(",", " ").split()))
            bind(cores[: threads or None])
            chosen = True
        except (OSError, ValueError) as error:
            _C.warn_of(name, f"and cores are not bound: {error}")
    if threads:
        torch.set_num_threads(threads)
    if memory in _MEMORY:
        try:
            bind(memory=_MEMORY[memory])
        except (OSError, ValueError) as error:
            _C.warn_of("ZENDNN_MEM_BIND", f"and memory is not bound: {error}")
    return chosen


def bind_cores(cores: Iterable[int]) -> None:
    """Bind every thread of this process to CPUs.

    Raises:
        ValueError: for no CPU, or for one that this process may not use; nothing has changed then.
    """
    wanted, before = set(cores), os.sched_getaffinity(0)
    if not wanted:
        raise PlacingError("the list of CPUs is empty: name one, such as 0")
    with contextlib.suppress(OSError, ValueError):
        os.sched_setaffinity(0, wanted)
    # Linux leaves out the CPUs that it does not allow, and is content if one is left.
    if unusable := wanted - os.sched_getaffinity(0):
        os.sched_setaffinity(0, before)
        raise PlacingError(
            f"CPU {format_list(unusable)} is not usable here: choose from {format_list(before)}"
        )
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(thread), wanted)


def bind_memory(policy: str, nodes: Iterable[int]) -> None:
    """Allocate the memory of this thread, and of those that it starts, on NUMA nodes.

    Args:
        policy: ``"local"``: only there; ``"interleave"``: page by page in turn.
        nodes: their numbers.

    Raises:
        ValueError: for nodes without memory that this process may use.
        OSError: where the system has no memory policies, or forbids them.
    """
    if platform.machine() not in _CALLS:
        raise OSError(f"memory cannot be bound on {platform.machine()}: leave out the policy")
    wanted = set(nodes)
    if unusable := wanted - set(allowed_nodes()):
        raise PlacingError(
            f"memory of NUMA node {format_list(unusable)} is not usable here: "
            f"choose from {format_list(allowed_nodes())}"
        )
    mask = (ctypes.c_ubyte * (_NODES // 8))()
    for node in wanted:
        mask[node // 8] |= 1 << node % 8
    call = _CALLS[platform.machine()][0]
    if _libc().syscall(call, _POLICIES[policy], mask, _NODES + 1):
        reason = os.strerror(ctypes.get_errno()).lower()
        raise OSError(f"memory cannot be bound ({reason}): {SYS_NICE}")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def main(arguments: list[str]) -> int:
    """Bind this process, and become the command.

    Returns:
        2, if the arguments are wrong; otherwise the command has taken over.
    """
    parser = argparse.ArgumentParser(
        prog="_binding.py", description="Run a command with threads and memory bound."
    )
    parser.add_argument("--cores", metavar="CPUS", help="such as 0-3,8")
    for policy in _POLICIES:
        parser.add_argument(f"--{policy}", metavar="NODES", help="for memory, such as 0-3")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    try:
        if options.cores is not None:
            bind_cores(parse_list(options.cores))
        for policy in _POLICIES:
            if (nodes := getattr(options, policy)) is not None:
                bind_memory(policy, parse_list(nodes))
    except (OSError, ValueError) as error:
        return _told(str(error))
    try:
        os.execvp(options.program, [options.program, *options.arguments])
    except OSError as error:
        return _told(f"{options.program} cannot be run: {os.strerror(error.errno or 0)}")


def _told(sentence: str) -> int:
    print(f"error: {sentence}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
