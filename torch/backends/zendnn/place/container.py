"""How much CPU time control groups allow this process, and as many threads for torch.

``import torch`` runs this, so it imports nothing but torch and reads a few small files.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

import torch
from torch.backends.zendnn import _C, _settings

#: Whoever sets one of these chooses torch's threads: users, and launchers such as torchrun.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def read(file: str | os.PathLike[str]) -> str:
    """Return what a file of Linux's says; nothing where it cannot be read."""
    try:
        with open(file, errors="replace") as stream:
            return stream.read().strip()
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return ""


def quota(root: str | os.PathLike[str] = "/") -> tuple[float, str] | None:
    """Return the CPUs whose time the strictest control group of this process allows, and its file.

    Args:
        root: the folder that has Linux's ``proc`` and ``sys``.
    """
    return min(_quotas(os.fspath(root).rstrip("/")), default=None)


def cores(cpus: float) -> int:
    """Return how many cores a quota keeps busy: a part of one counts as one."""
    return math.ceil(cpus)


def limit_threads(root: str | os.PathLike[str] = "/") -> str:
    """Give torch no more threads than the control groups have time for, unless somebody chose.

    torch counts the CPUs of its affinity, which cpusets limit, and knows of no quota: its threads
    use up a period's time early, and all stand still until the next. The threads that run whole
    operators side by side stay as they are, since torch takes their number only once, from users.

    Returns:
        what changed, as a sentence; nothing where nothing did.
    """
    if (
        _settings.word("ZENDNN_CONTAINER_THREADS") == "0"
        or any(os.environ.get(name) for name in THREADS)
        or (found := quota(root)) is None
    ):
        return ""
    cpus, file = found
    before, allowed = torch.get_num_threads(), cores(cpus)
    if before <= allowed or _C._cpu()["emulated_on"]:  # plans are to be those of that machine
        return ""
    torch.set_num_threads(allowed)
    return (
        f"torch uses {allowed} of {before} threads, since {file} allows the time of "
        f"{cpus:.3g} CPUs; ZENDNN_CONTAINER_THREADS=0 leaves torch's number"
    )


def _quotas(root: str) -> Iterator[tuple[float, str]]:
    """Return the quota of each control group that has one, from this process's to the root."""
    for line in read(f"{root}/proc/self/cgroup").splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        if not path.startswith("/"):  # an unknown form
            continue
        files: tuple[str, ...]
        if not controllers:  # version 2, alone or beside version 1
            mounts, files = ("", "/unified"), ("cpu.max",)
        elif "cpu" in controllers.split(","):
            mounts, files = (f"/{controllers}", "/cpu"), ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        else:
            continue
        # A parent's limit applies, too. In a container the path may be the host's, and only the
        # root may exist.
        path = path.rstrip("/")
        while True:
            for mount in dict.fromkeys(mounts):
                folder = f"{root}/sys/fs/cgroup{mount}{path}"
                if cpus := _divided(" ".join(read(f"{folder}/{name}") for name in files)):
                    yield cpus, f"{folder}/{files[0]}"
            if not path:
                break
            path = path.rpartition("/")[0]


def _divided(words: str) -> float:
    """Return a quota by its period, such as ``150000 100000``; 0 where they are no limit."""
    try:
        quota_us, period_us = map(int, words.split())
        return max(0.0, quota_us / period_us)
    except (ValueError, ArithmeticError):  # "max", a file that is missing, or an unknown form
        return 0.0
