"""Binds threads and memory by system calls, also as a program that starts another one.

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
POLICIES = {"local": 2, "interleave": 3}

#: The numbers of the system calls ``set_mempolicy`` and ``get_mempolicy``.
_CALLS = {"x86_64": (238, 239), "aarch64": (237, 236)}

_NODES = 1024  # the longest mask that Linux takes

#: What to do where the system forbids it.
SYS_NICE = "a container needs the capability SYS_NICE for it"


class PlacingError(ValueError):
    """A placement request that cannot be met, in one sentence: what, where, what to do."""


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
    if _libc().syscall(call, POLICIES[policy], mask, _NODES + 1):
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
        prog="binding.py", description="Run a command with threads and memory bound."
    )
    parser.add_argument("--cores", metavar="CPUS", help="such as 0-3,8")
    for policy in POLICIES:
        parser.add_argument(f"--{policy}", metavar="NODES", help="for memory, such as 0-3")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    try:
        if options.cores is not None:
            bind_cores(parse_list(options.cores))
        for policy in POLICIES:
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
