"""The CPU allocator: what it caches, for how long; only the time changes for users."""

from __future__ import annotations

import ctypes
import functools
import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from test.drawing import property_test

from .common import run_python, same_error, stock, values

ZENDNN = torch.backends.zendnn
SMALL = 4 << 10  # bytes: left to stock torch
LARGE = 1 << 20  # bytes: cached
MEBIBYTE = 1 << 20


@pytest.fixture(autouse=True)
def cache() -> Iterator[None]:
    """An empty cache with the default limit."""
    limit = ZENDNN.memory_cache_limit()
    gc.collect()
    ZENDNN.empty_cache()
    yield
    ZENDNN.set_memory_cache_limit(limit)


def block(size: int) -> Tensor:
    return torch.empty(size, dtype=torch.uint8)


def kept_after_freeing(size: int) -> int:
    """The growth of the cache in bytes when a new block of ``size`` bytes is freed."""
    ZENDNN.empty_cache()
    before: int = ZENDNN.memory_cached()
    block(size)
    return int(ZENDNN.memory_cached()) - before


# What is kept.


def test_a_large_block_is_reused() -> None:
    first = block(LARGE)
    place = first.data_ptr()
    del first
    assert ZENDNN.memory_cached() >= LARGE
    again = block(LARGE - 1000)
    assert again.data_ptr() == place
    assert ZENDNN.memory_cached() == 0


FAULTS = """
import resource, torch
def step():
    return torch.ones(12 << 20) + 1
for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_reused_memory_costs_no_page_faults() -> None:
    """The C library makes the kernel map 48 MiB anew each time."""
    assert int(run_python(FAULTS)) < 100
    assert int(run_python(FAULTS, ZENDNN_ALLOCATOR_CACHE="0")) > 1000


@pytest.mark.parametrize("size", [0, 1, 64, SMALL])
def test_small_blocks_are_left_to_stock_torch(size: int) -> None:
    assert kept_after_freeing(size) == 0


@property_test
@given(st.one_of(st.integers(1 << 17, 1 << 20), st.integers(1 << 20, 1 << 28)))
def test_rounding_wastes_at_most_an_eighth(size: int) -> None:
    assert size <= kept_after_freeing(size) <= size * 9 // 8


@property_test
@given(st.lists(st.integers(1, 1 << 22), min_size=1, max_size=8))
def test_blocks_are_aligned_and_do_not_overlap(sizes: list[int]) -> None:
    blocks = [block(size).fill_(i) for i, size in enumerate(sizes)]
    assert all(b.data_ptr() % 64 == 0 for b in blocks)
    assert all(bool((b == i).all()) for i, b in enumerate(blocks))


# How much is kept.


def test_the_cache_stays_within_the_limit_and_evicts_the_oldest_first() -> None:
    ZENDNN.set_memory_cache_limit(3 * LARGE)
    blocks = [block(LARGE) for _ in range(5)]
    places = [b.data_ptr() for b in blocks]
    while blocks:
        del blocks[0]
        assert ZENDNN.memory_cached() <= 3 * LARGE
    assert ZENDNN.memory_cached() == 3 * LARGE
    again = [block(LARGE) for _ in range(3)]
    assert [b.data_ptr() for b in again] == places[:1:-1]


def test_the_oldest_block_of_any_thread_is_evicted_first() -> None:
    """Of this thread's block, another thread's and a larger one, the oldest is freed."""
    ZENDNN.set_memory_cache_limit(3 * LARGE)
    blocks = [block(LARGE)]
    other = threading.Thread(target=lambda: blocks.append(block(LARGE)))
    other.start()
    other.join()
    place = blocks[1].data_ptr()
    del blocks[0]
    blocks.clear()
    block(2 * LARGE)
    assert ZENDNN.memory_cached() == 3 * LARGE
    assert block(LARGE).data_ptr() == place


def test_a_lower_limit_applies_immediately() -> None:
    blocks = [block(LARGE) for _ in range(4)]
    blocks.clear()
    assert ZENDNN.memory_cached() == 4 * LARGE
    ZENDNN.set_memory_cache_limit(2 * LARGE)
    assert ZENDNN.memory_cache_limit() == 2 * LARGE
    assert ZENDNN.memory_cached() == 2 * LARGE


def test_blocks_larger_than_the_limit_are_not_kept() -> None:
    x = block(LARGE)
    ZENDNN.set_memory_cache_limit(LARGE // 2)
    del x
    assert kept_after_freeing(LARGE) == 0


def test_a_limit_of_zero_keeps_nothing() -> None:
    ZENDNN.set_memory_cache_limit(0)
    assert kept_after_freeing(LARGE) == 0


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="number of bytes"):
        ZENDNN.set_memory_cache_limit(-1)


def memory_of_machine() -> int:
    words = Path("/proc/meminfo").read_text(encoding="utf-8").split()
    return int(words[words.index("MemTotal:") + 1]) << 10


LIMIT = "import torch; print(torch.backends.zendnn.memory_cache_limit())"


def test_the_default_limit_is_an_eighth_of_the_memory() -> None:
    assert 0 < int(run_python(LIMIT)) <= memory_of_machine() // 8 + 4096


@pytest.mark.parametrize("number", [0, 1, 123456789])
def test_a_variable_sets_the_limit(number: int) -> None:
    assert int(run_python(LIMIT, ZENDNN_ALLOCATOR_CACHE=str(number))) == number


@pytest.mark.parametrize("text", ["", "-1", "1 GB"])
def test_a_variable_that_is_no_number_is_ignored(text: str) -> None:
    assert run_python(LIMIT, ZENDNN_ALLOCATOR_CACHE=text) == run_python(LIMIT)


ADDRESS_SPACE = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, resource.RLIM_INFINITY))
import torch; print(torch.backends.zendnn.memory_cache_limit())
"""


def test_a_limit_of_the_address_space_lowers_the_default() -> None:
    assert int(run_python(ADDRESS_SPACE)) == min(1 << 30, int(run_python(LIMIT)))


SHAPES = """
import torch
limit = 256 << 20
torch.backends.zendnn.set_memory_cache_limit(limit)
draw = torch.Generator().manual_seed(0)
def resident():
    words = open("/proc/self/status").read().split()
    return int(words[words.index("VmRSS:") + 1]) << 10
before = resident()
for i in range(500):
    x = torch.ones(int(torch.randint(1, 1 << 23, (1,), generator=draw)))
    assert torch.backends.zendnn.memory_cached() <= limit
print(resident() - before - limit)
torch.backends.zendnn.empty_cache()
print(resident() - before - x.nbytes)
"""


def test_memory_stays_bounded_over_many_shapes_and_can_be_released() -> None:
    """The limit excludes the current tensor (up to 36 MiB) and torch's own memory."""
    grown, left = map(int, run_python(SHAPES).split())
    assert grown < 60 * MEBIBYTE
    assert left < 30 * MEBIBYTE


def test_live_tensors_survive_an_empty_cache() -> None:
    x = values(LARGE // 4, seed=1)
    block(LARGE)
    ZENDNN.empty_cache()
    assert ZENDNN.memory_cached() == 0
    assert torch.equal(x, values(LARGE // 4, seed=1))


# Switched off.


def test_switched_off_the_cache_serves_nothing_but_keeps_freed_blocks() -> None:
    inside = block(LARGE)
    block(LARGE)
    cached = ZENDNN.memory_cached()
    with stock():
        block(LARGE)
        assert ZENDNN.memory_cached() == cached
        del inside
        assert ZENDNN.memory_cached() == 2 * cached
        outside = block(LARGE)
    del outside
    assert ZENDNN.memory_cached() == 2 * cached


@pytest.mark.parametrize("flag", ["zero_fill", "junk_fill"])
def test_torchs_own_fill_of_new_memory_is_left_to_torch(flag: str) -> None:
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    switch = ctypes.c_bool.in_dll(library, f"FLAGS_caffe2_cpu_allocator_do_{flag}")
    block(LARGE).fill_(123)
    switch.value = True
    try:
        x = block(LARGE)
    finally:
        switch.value = False
    assert not bool((x == 123).any())
    assert flag != "zero_fill" or not x.any()


# Threads, processes, and the end.


def test_a_block_that_another_thread_frees_is_reused() -> None:
    blocks = [block(LARGE)]
    place = blocks[0].data_ptr()
    thread = threading.Thread(target=blocks.clear)
    thread.start()
    thread.join()
    assert block(LARGE).data_ptr() == place


def test_a_thread_reuses_blocks_of_its_numa_node() -> None:
    """Threads have one of eight slots; ten threads in sequence share one block."""
    places = set()
    for _ in range(10):
        thread = threading.Thread(target=lambda: places.add(block(LARGE).data_ptr()))
        thread.start()
        thread.join()
    nodes = len(list(Path("/sys/devices/system/node").glob("node[0-9]*")))
    assert len(places) <= max(nodes, 1)


def test_many_threads_never_share_a_block() -> None:
    """Each thread fills its blocks, passes half to the next, and checks the contents."""
    ZENDNN.set_memory_cache_limit(16 * MEBIBYTE)
    count = 8
    wrong: list[str] = []
    shelves: list[list[tuple[int, Tensor]]] = [[] for _ in range(count)]

    def work(me: int) -> None:
        draw = torch.Generator().manual_seed(me)
        for step in range(200):
            size = int(torch.randint(1 << 14, 1 << 21, (1,), generator=draw))
            mark = (me * 31 + step) % 251
            shelves[(me + step) % count].append((mark, block(size).fill_(mark)))
            if len(shelves[me]) > 4:
                mark, x = shelves[me].pop(0)
                if not bool((x == mark).all()):
                    wrong.append(f"thread {me}, step {step}")

    threads = [threading.Thread(target=work, args=(me,)) for me in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert ZENDNN.memory_cached() <= 16 * MEBIBYTE
    shelves.clear()


FORK = """
import os, threading, torch
torch.set_num_threads(1)
stop = False
def busy():
    while not stop:
        torch.empty(1 << 20)
threads = [threading.Thread(target=busy) for _ in range(4)]
for thread in threads:
    thread.start()
for i in range(50):
    child = os.fork()
    if child == 0:
        for _ in range(20):
            torch.empty(1 << 20).fill_(1)
        torch.backends.zendnn.empty_cache()
        torch.empty(1 << 20)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
stop = True
for thread in threads:
    thread.join()
print("done")
"""


def test_a_process_forked_during_allocations_can_allocate() -> None:
    assert run_python(FORK).strip() == "done"


AT_THE_END = """
import atexit, sys, torch
kept = [torch.ones(1 << 20), torch.ones(3 << 20)]
sys.modules["kept"] = kept
class Late:
    def __del__(self):
        torch_empty(1 << 20).fill_(1)
torch_empty = torch.empty
late = Late()
atexit.register(lambda: kept.append(torch.ones(1 << 21)))
print("done")
"""


def test_tensors_may_outlive_the_program() -> None:
    assert run_python(AT_THE_END).strip() == "done"


SHARED = """
import torch, torch.multiprocessing as processes
torch.set_num_threads(1)  # OpenMP's threads are not in a child
def add(x, y):
    x += 1
    y += 1
x, y = torch.zeros(1 << 20), torch.zeros(1 << 20)
x.share_memory_()
assert x.is_shared() and not y.is_shared()
child = processes.get_context("fork").Process(target=add, args=(x, y))
child.start()
child.join()
print(child.exitcode, x.sum().item() / x.numel(), y.sum().item())
"""


def test_memory_is_shared_with_other_processes_as_before() -> None:
    assert run_python(SHARED).split() == ["0", "1.0", "0.0"]


# What torch expects of an allocator.


def sizes_reported(size: int) -> list[int]:
    """The sizes that the profiler reports while two blocks are allocated and freed."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        first = block(size)
        second = block(size + 1)
        del first
        del second
    events = profile.profiler.kineto_results.events()
    return [event.nbytes() for event in events if event.name() == "[memory]"]


@pytest.mark.parametrize("size", [SMALL, LARGE, 5 * MEBIBYTE])
def test_the_profiler_reports_the_same_as_for_stock_torch(size: int) -> None:
    with stock():
        theirs = sizes_reported(size)
    assert sizes_reported(size) == theirs == [size, size + 1, -size, -size - 1]
    assert sizes_reported(size) == theirs, "of blocks that serve again"


def test_torchs_onednn_allocates_and_frees_raw_memory() -> None:
    """Its tensors allocate and free memory through raw pointers."""
    x = values(64, 8192, seed=1)
    with stock():
        inside = x.to_mkldnn()
    outside = x.to_mkldnn()
    assert torch.equal(inside.to_dense(), x)
    assert torch.equal(outside.to_dense(), x)
    del inside
    assert torch.equal(outside.to_dense(), x)


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_a_lazy_clone_is_copied_when_it_is_written_to(size: int) -> None:
    x = values(size // 4, seed=1)
    y = torch._lazy_clone(x)
    y.add_(1)
    assert torch.equal(x, values(size // 4, seed=1))
    assert torch.equal(y, x + 1)


def test_storages_can_grow_and_shrink() -> None:
    x = values(1000, seed=1)
    for size in (1 << 20, 1 << 10, 1 << 22, 2000):
        x.resize_(size)
        assert torch.equal(x[:1000], values(1000, seed=1))


def test_an_impossible_allocation_raises_stock_torchs_error() -> None:
    block(LARGE)
    for size in (1 << 55, (1 << 62) + 1):
        assert "allocate" in same_error(functools.partial(block, size))


EXHAUSTED = """
import resource, torch
torch.backends.zendnn.set_memory_cache_limit(4 << 30)
blocks = [torch.empty(100 << 20, dtype=torch.uint8) for _ in range(10)]
words = open("/proc/self/status").read().split()
size = int(words[words.index("VmSize:") + 1]) << 10
resource.setrlimit(resource.RLIMIT_AS, (size + (100 << 20), resource.RLIM_INFINITY))
blocks.clear()
assert torch.backends.zendnn.memory_cached() > 1000 << 20
x = torch.empty({size} << 20, dtype=torch.uint8)
print(torch.backends.zendnn.memory_cached())
"""


@pytest.mark.parametrize("size", [500, 700])
def test_the_cache_is_emptied_when_memory_runs_out(size: int) -> None:
    assert int(run_python(EXHAUSTED.format(size=size))) == 0


HUGE_PAGES = """
import re, torch
x = torch.empty(9 << 20, dtype=torch.uint8)
print(x.data_ptr() % (1 << 21))
flags = ""
for text in re.split(r"\\n(?=[0-9a-f]+-[0-9a-f]+ )", open("/proc/self/smaps").read()):
    start, end = (int(number, 16) for number in text.split(" ")[0].split("-"))
    if start <= x.data_ptr() < end:
        flags = text.rpartition("VmFlags:")[2]
print("hg" in flags.split())
"""


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(),
    reason="this Linux kernel has no transparent huge pages",
)
def test_large_blocks_request_huge_pages_by_default() -> None:
    """The kernel marks memory with the huge-page advice by 'hg'."""
    assert run_python(HUGE_PAGES).split() == ["0", "True"]
    assert run_python(HUGE_PAGES, ZENDNN_HUGE_PAGES="0").split()[1] == "False"


ROUNDED_UP = """
import os, torch
def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")
torch.zeros(16 << 20, dtype=torch.uint8)  # the first call loads code
before = resident()
x = torch.zeros((64 << 20) + 4096, dtype=torch.uint8)
print(resident() - before)
"""


def test_rounding_up_takes_no_memory() -> None:
    """A block of 72 MiB for 64 MiB and a page does not touch the huge page at the end."""
    assert 64 << 20 <= int(run_python(ROUNDED_UP)) < 65 << 20
