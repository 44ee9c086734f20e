"""The cache of memory from freed CPU tensors, and the memory of packed weights."""

from __future__ import annotations

from torch.backends.zendnn import _C


def memory_cached() -> int:
    """Return how many bytes of freed CPU tensors are kept for new ones."""
    return _C._memory_cached()


def empty_cache() -> None:
    """Return the kept memory to the system; live tensors are not touched."""
    _C._empty_cache()


def memory_cache_limit() -> int:
    """Return how many bytes may be kept.

    ``ZENDNN_ALLOCATOR_CACHE`` sets it, in bytes. The default is an eighth of the memory that the
    process may use: the least of the machine's, its control group's and its own limit.
    """
    return _C._memory_cache_limit()


def set_memory_cache_limit(limit: int) -> None:
    """Keep at most ``limit`` bytes from now on, and return more to the system, the oldest first.

    At 0 nothing is kept, and torch's own allocator serves every allocation.

    Raises:
        ValueError: if ``limit`` is negative.
    """
    _C._set_memory_cache_limit(limit)


def packed_memory() -> int:
    """Return how many bytes all packed weights of the process take.

    Plans that share a weight share what it is packed into. ``ZENDNN_PACKED_MEMORY`` bounds it.
    """
    return _C._packed_memory()
