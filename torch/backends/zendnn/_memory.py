"""The memory that freed CPU tensors leave to those that come after them."""

from __future__ import annotations

from torch.backends.zendnn import _C


def memory_cached() -> int:
    """Return how many bytes of freed CPU tensors are kept for those to come."""
    return _C._memory_cached()


def empty_cache() -> None:
    """Give the memory that is kept back to the system; tensors that live are not touched."""
    _C._empty_cache()


def memory_cache_limit() -> int:
    """Return how many bytes may be kept.

    ``ZENDNN_ALLOCATOR_CACHE`` says it, in bytes; unless it is set, it is an eighth of the memory
    that the process may use: of the machine's, its control group's or its own limit, the least.
    """
    return _C._memory_cache_limit()


def set_memory_cache_limit(limit: int) -> None:
    """Keep ``limit`` bytes at most from now on, and give back what is above, the oldest first.

    At 0 nothing is kept, and every allocation is stock torch's.

    Raises:
        ValueError: if ``limit`` is negative.
    """
    _C._set_memory_cache_limit(limit)
