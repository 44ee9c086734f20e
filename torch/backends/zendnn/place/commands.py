"""How an instance starts: from its placement to a command that one may copy into a shell."""

from __future__ import annotations

import ctypes.util
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch.backends.zendnn.place import binding
from torch.backends.zendnn.place.binding import PlacingError, format_list
from torch.backends.zendnn.place.placement import Instance

#: Libraries to preload by the name of the allocator, best first, and Debian's package of them.
ALLOCATORS = {
    "jemalloc": (("jemalloc",), "libjemalloc2"),
    "mimalloc": (("mimalloc",), "libmimalloc2.0"),
    "tcmalloc": (("tcmalloc_minimal", "tcmalloc"), "libtcmalloc-minimal4"),
}

#: How often a waiting thread looks before it sleeps, which takes 0.2 to 0.7 ms. libgomp's default,
#: 30 times as long, outlasts a time slice: of two threads on a CPU, one spins where one computes.
SPINS = "10000"

#: Variables of those who chose themselves how threads wait.
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")

#: numactl's options for our words.
_NUMACTL = {"local": "--membind", "interleave": "--interleave"}


@dataclass(frozen=True)
class Tools:
    """The programs here that bind others; where both are missing, ours does."""

    taskset: bool
    numactl: bool

    @classmethod
    def here(cls) -> Tools:
        """Return what is on the PATH."""
        return cls(*(shutil.which(name) is not None for name in ("taskset", "numactl")))

    def binder(self, instance: Instance) -> tuple[str, ...]:
        """Return the words that bind the command after them."""
        cpus, nodes = format_list(instance.cpus), format_list(instance.nodes)
        if self.taskset and not nodes:
            return ("taskset", "-c", cpus)
        if self.numactl:
            words: tuple[str, ...] = ("numactl", f"--physcpubind={cpus}")
            policy = _NUMACTL[instance.memory]
        else:
            words = (sys.executable, "-I", binding.__file__, f"--cores={cpus}")
            policy = f"--{instance.memory}"
        return (*words, f"{policy}={nodes}") if nodes else words


@dataclass(frozen=True)
class Command:
    """A program, its arguments, and the environment variables to set for it."""

    variables: Mapping[str, str]
    words: tuple[str, ...]

    def __str__(self) -> str:
        """Return the command for a POSIX shell."""
        variables = [f"{name}={shlex.quote(text)}" for name, text in self.variables.items()]
        return " ".join([*variables, shlex.join(self.words)])


@dataclass(frozen=True)
class Program:
    """What every instance runs.

    Attributes:
        words: its command.
        variables: environment variables to set for it.
        pin: whether each OpenMP thread keeps to a CPU of its own; else it may move among those of
            its instance.
    """

    words: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    pin: bool = True

    def commands(self, instances: Sequence[Instance], tools: Tools) -> list[Command]:
        """Return a command per instance."""
        return [
            Command(
                {
                    **self._threads(instance),
                    "ZENDNN_INSTANCE": str(index),
                    "ZENDNN_INSTANCES": str(len(instances)),
                    **self.variables,
                },
                (*tools.binder(instance), *self.words),
            )
            for index, instance in enumerate(instances)
        ]

    def _threads(self, instance: Instance) -> dict[str, str]:
        """Return OpenMP's variables."""
        count = {"OMP_NUM_THREADS": str(len(instance.cpus))}
        if not self.pin:
            chosen = len(instance.cpus) == 1 or any(name in os.environ for name in WAITING)
            return count if chosen else {**count, "GOMP_SPINCOUNT": SPINS}
        ascending = instance.cpus == tuple(sorted(instance.cpus))
        places = ",".join(f"{{{cpu}}}" for cpu in instance.cpus)
        # The word means the CPUs that the process is bound to, in ascending order.
        return {**count, "OMP_PROC_BIND": "close", "OMP_PLACES": "threads" if ascending else places}


def shell(commands: Sequence[Command]) -> str:
    """Return lines for a POSIX shell that run commands at the same time."""
    if len(commands) == 1:
        return str(commands[0])
    return "\n".join([*(f"{command} &" for command in commands), "wait"])


def preload(allocator: str) -> str:
    """Return the value of LD_PRELOAD that puts an allocator in the place of the C library's.

    Raises:
        PlacingError: if it is not installed.
    """
    names, package = ALLOCATORS[allocator]
    for name in names:
        own = sorted(Path(sys.base_prefix, "lib").glob(f"lib{name}.so*"))  # conda's
        if found := str(own[0]) if own else ctypes.util.find_library(name):
            return ":".join(filter(None, (found, os.environ.get("LD_PRELOAD"))))
    raise PlacingError(
        f"{allocator} is not installed: install it ({package} on Debian and Ubuntu), or leave out "
        "--allocator"
    )
