"""Binds this process, as its caller or its environment variables say."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.backends.zendnn import _C, _settings
from torch.backends.zendnn.place.binding import (
    POLICIES,
    PlacingError,
    bind_cores,
    bind_memory,
    parse_list,
)


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
    if memory not in (None, *POLICIES):
        raise PlacingError(f"memory is 'local' or 'interleave', not {memory!r}")
    if cores is not None:
        numbers = parse_list(cores) if isinstance(cores, str) else tuple(cores)
        bind_cores(numbers)
        torch.set_num_threads(len(set(numbers)))
    from torch.backends.zendnn.place import (
        topology,  # `import torch` imports this file, and seldom binds
    )

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
    threads = _settings.whole_number("ZENDNN_NUM_THREADS")
    listed = _settings.text("ZENDNN_NUMA_CPUS")
    binds = _settings.word("ZENDNN_CPU_BIND", "0" if listed is None else "1")
    memory = _settings.word("ZENDNN_MEM_BIND")
    chosen = bool(threads)
    if binds == "1":
        from torch.backends.zendnn.place import topology

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
