"""Measures what the machine can do: multiply-adds, reading memory, and products by threads."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.backends.zendnn import _C
from torch.backends.zendnn.place import topology

#: Seconds for one figure.
SECONDS = 0.6

#: The most bytes to read.
_LARGEST = 1 << 30

#: Independent sums, which keep two units of a latency of five cycles busy.
_SUMS = 12


@dataclass(frozen=True)
class Limits:
    """What was measured.

    Attributes:
        gflops: float32 multiply-adds of registers, on all cores; None where the system forbids to
            run code that was just written.
        read: GB/s of reading memory.
        products: Gflop/s of float32 matrix products, by torch's number of threads.
    """

    gflops: float | None
    read: float
    products: tuple[tuple[int, float], ...]

    def loss(self, now: int, then: int) -> float | None:
        """Return what products lose at ``now`` threads against ``then``, in per cent."""
        rates = dict(self.products)
        if now not in rates or not rates.get(then):
            return None
        return max(0.0, 100 * (1 - rates[now] / rates[then]))


def measure(
    cpus: Sequence[int], wide: bool, threads: Iterable[int], free: int, cache: int
) -> Limits:
    """Measure the limits, in about five seconds.

    Args:
        cpus: one per core.
        wide: whether vectors have 512 bits instead of 256.
        threads: the numbers of threads to time products with.
        free: bytes of memory that are free; an eighth of them is used at most.
        cache: bytes of the L3 cache.
    """
    counts = sorted({count for count in threads if count > 0})
    before = torch.get_num_threads()
    try:
        products = tuple((count, _products(count)) for count in counts)
        torch.set_num_threads(len(cpus))
        read = _read(min(max(2 * cache, 1 << 28), _LARGEST, free // 8))
    finally:
        torch.set_num_threads(before)
    return Limits(_multiply_adds(cpus, wide), read, products)


@dataclass(frozen=True)
class Roof:
    """What bounds an operator: it multiplies, and reads and writes memory.

    Attributes:
        gflops: Gflop/s of multiply-adds of registers, by dtype, where it could be measured.
        memory: GB/s of reading memory.
    """

    gflops: Mapping[torch.dtype, float]
    memory: float

    def ms(self, dtype: torch.dtype | None, flops: float, size: float) -> float | None:
        """Return how long an operator takes at least, in milliseconds.

        Args:
            dtype: of its operands.
            flops: floating-point operations.
            size: bytes of operands and results.
        """
        if dtype is None or (flops and dtype not in self.gflops):
            return None
        computing = flops / self.gflops[dtype] if flops else 0.0
        return max(computing, size / self.memory) / 1e6


@functools.cache
def roof(threads: int) -> Roof:
    """Measure what bounds operators on as many cores as threads, in two seconds, once."""
    cpu = _C._cpu()
    cpus = [core.cpus[0] for core in topology.read().cores][:threads]
    wide = cpu["isa"].startswith("AVX-512")
    kinds = {torch.float32: False}
    # Tiles do more than the instruction that is timed here.
    if _C._multiplies_bfloat16() and "AMX" not in cpu["isa"]:
        kinds[torch.bfloat16] = True
    rates = {dtype: _multiply_adds(cpus, wide, pairs) for dtype, pairs in kinds.items()}
    memory = _read(min(max(2 * max(cpu["caches"], default=0), 1 << 28), _LARGEST))
    return Roof({dtype: rate for dtype, rate in rates.items() if rate}, memory)


def best(function: Callable[[], object], seconds: float) -> float:
    """Return the shortest of at least three runs, in seconds."""
    function()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
        if sum(times) > 4 * seconds:  # a machine that is busy, or a model that is slow
            break
    return min(times)


def _products(threads: int, size: int = 1024) -> float:
    torch.set_num_threads(threads)
    with torch.no_grad():
        a, b = torch.ones(size, size), torch.ones(size, size)
        out = torch.empty(size, size)
        return 2e-9 * size**3 / best(lambda: torch.mm(a, b, out=out), SECONDS)


def _read(size: int) -> float:
    data = torch.ones(max(1, size // 4))
    return 4e-9 * data.numel() / best(data.sum, SECONDS)


def machine_code(wide: bool, pairs: bool = False) -> bytes:
    """Return a function of a count: a loop of multiply-adds on registers, 0 + 0 * 0.

    Registers are zero since subnormals and NaN could be slower.

    Args:
        wide: vectors have 512 bits instead of 256.
        pairs: of pairs of bfloat16 instead of float32; these are wide.
    """
    # EVEX or VEX: for sums 0 to 7, and from 8 on
    prefix, opcode = ("16", 0x52) if pairs else ("15", 0xB8)
    words = (f"62 d2 {prefix} 48", f"62 52 {prefix} 48") if wide else ("c4 c2 15", "c4 42 15")
    loop = b"".join(
        bytes.fromhex(words[number // 8]) + bytes((opcode, 0xC4 + 8 * (number % 8)))
        for number in range(_SUMS)
    )
    loop += b"\x48\xff\xcf\x0f\x85"  # dec rdi; jnz
    back = -(len(loop) + 4)
    clear, leave = b"\xc5\xfc\x77", b"\xc5\xf8\x77\xc3"  # vzeroall; vzeroupper, ret
    return clear + loop + back.to_bytes(4, "little", signed=True) + leave


def _multiply_adds(cpus: Sequence[int], wide: bool, pairs: bool = False) -> float | None:
    """Return the Gflop/s of a thread on each of some CPUs; their sum's best."""
    code = machine_code(wide, pairs)
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:
        return None
    page.write(code)
    buffer = ctypes.c_char.from_buffer(page)
    run = ctypes.CFUNCTYPE(None, ctypes.c_long)(ctypes.addressof(buffer))
    rounds = 1 << 22

    def work(cpu: int) -> None:
        os.sched_setaffinity(0, {cpu})  # of this thread only
        run(rounds)  # without Python's lock

    def together() -> None:
        threads = [threading.Thread(target=work, args=(cpu,)) for cpu in cpus]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    seconds = best(together, SECONDS)
    lanes = (16 if wide else 8) * (2 if pairs else 1)
    return 2e-9 * lanes * _SUMS * rounds * len(cpus) / seconds
