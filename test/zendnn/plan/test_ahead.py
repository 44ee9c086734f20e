"""Executables for sizes that are about to come are built by another thread."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.backends.zendnn import _C
from torch.backends.zendnn.ir.graph import Region

from ..common import run_python
from ..support.decoder import BATCH, LENGTH, WIDTH, decoder
from ..support.graphs import Builder
from ..support.plans import explained, make_plan, region_of, tensor
from ..support.samples import plan_of

TIMEOUT = 60  # seconds


def grown(length: int) -> list[Tensor]:
    return [tensor(BATCH, 1, WIDTH), tensor(BATCH, length, WIDTH, seed=1)]


def decode(plan: torch.classes.zendnn.Plan, *lengths: int) -> list[list[Tensor]]:
    results = []
    for length in lengths:
        assert plan.takes(grown(length), [])
        results.append(plan.run(grown(length), []))
    return results


def wait_for(plan: torch.classes.zendnn.Plan) -> None:
    """Wait until an executable is there that no call has asked for."""
    end = time.monotonic() + TIMEOUT
    while explained(plan)["built_ahead"] == 0:
        assert time.monotonic() < end, "nothing was built ahead"
        time.sleep(0.001)


def sizes_built(plan: torch.classes.zendnn.Plan) -> list[int]:
    return [entry["inputs"][1]["sizes"][1] for entry in explained(plan)["built"]]


@pytest.fixture
def region(b: Builder) -> Region:
    return region_of(b, *decoder(b))


@pytest.fixture
def plan(region: Region) -> torch.classes.zendnn.Plan:
    return make_plan(region)


def test_a_size_that_continues_three_others_is_built_ahead(plan: torch.classes.zendnn.Plan) -> None:
    decode(plan, LENGTH, LENGTH + 1, LENGTH + 2)
    for length in range(LENGTH + 3, LENGTH + 9):
        wait_for(plan)
        assert sizes_built(plan)[0] == length - 1
        assert plan.takes(grown(length), [])
        assert explained(plan)["built_ahead"] == 0
        assert sizes_built(plan)[0] == length
        plan.run(grown(length), [])


@pytest.mark.parametrize("step", [1, 3, -1])
def test_what_is_built_ahead_computes_the_same(
    region: Region, plan: torch.classes.zendnn.Plan, step: int
) -> None:
    lengths = range(LENGTH + 10, LENGTH + 10 + 8 * step, step)
    for length in lengths:
        (result,) = decode(plan, length)
        (wanted,) = decode(make_plan(region), length)
        for x, y in zip(result, wanted, strict=True):
            assert torch.equal(x, y)
        if length not in lengths[:2]:
            wait_for(plan)


@pytest.mark.parametrize("lengths", [(7, 8), (7, 8, 10), (8, 7, 8)])
def test_sizes_that_do_not_grow_evenly_build_nothing_ahead(
    region: Region, plan: torch.classes.zendnn.Plan, lengths: tuple[int, ...]
) -> None:
    decode(plan, *lengths)
    other = make_plan(region)
    decode(other, 7, 8, 9)
    wait_for(other)  # by the same thread, afterwards
    assert explained(plan)["built_ahead"] == 0


def test_another_size_than_the_expected_one_is_built_when_it_comes(
    plan: torch.classes.zendnn.Plan,
) -> None:
    decode(plan, 7, 8, 9)
    wait_for(plan)
    decode(plan, 20)
    assert sizes_built(plan)[0] == 20
    assert explained(plan)["built_ahead"] == 1


def test_it_is_built_for_the_threads_of_its_caller(plan: torch.classes.zendnn.Plan) -> None:
    threads = torch.get_num_threads()
    try:
        for now in (1, threads + 1):
            torch.set_num_threads(now)
            plan.clear()
            decode(plan, 7, 8, 9)
            wait_for(plan)
            assert plan.takes(grown(10), [])
            assert explained(plan)["built_ahead"] == 0
            assert explained(plan)["built"][0]["threads"] == now
            assert torch.get_num_threads() == now
    finally:
        torch.set_num_threads(threads)


def test_numbers_that_grow_evenly_tell_of_the_next_call() -> None:
    """A slice that ends at a number has another size each time."""
    plan = plan_of(
        "%x = input tensor",
        "%n = input number",
        "%1 = slice(%x, 1, 0, %n, 1)",
        "%y = eltwise(%1) algorithm=abs",
        "return %y",
    )
    x = tensor(2, 32)
    for n in (3, 5, 7, 9, 11):
        assert plan.takes([x], [n])
        (y,) = plan.run([x], [n])
        assert torch.equal(y, x[:, :n].abs())
        if n >= 7:
            wait_for(plan)


def test_sizes_that_shrink_to_nothing_build_nothing_ahead(region: Region) -> None:
    plan, other = make_plan(region), make_plan(region)
    decode(plan, 3, 2, 1)
    decode(other, 3, 4, 5)
    wait_for(other)  # by the same thread, afterwards
    assert explained(plan)["built_ahead"] == 0


def test_what_was_built_ahead_is_timed_at_its_third_call(
    plan: torch.classes.zendnn.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As what was built at the call."""
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "2")
    length = LENGTH + 6  # after the first four, whose builds time
    for before in range(LENGTH, length):
        decode(plan, before)
    wait_for(plan)
    builds = []
    for _ in range(4):
        with torch.autograd.profiler.profile() as profile:
            decode(plan, length)
        builds.append(sum(event.name == "zendnn::prepare" for event in profile.function_events))
    assert builds == [0, 0, 1, 0]


@pytest.fixture
def capacity_of_one() -> Iterator[None]:
    before = _C._plan_cache_capacity()
    _C._set_plan_cache_capacity(1)
    yield
    _C._set_plan_cache_capacity(before)


@pytest.mark.usefixtures("capacity_of_one")
def test_no_more_is_kept_than_the_capacity_and_what_is_expected(
    plan: torch.classes.zendnn.Plan,
) -> None:
    for length in range(LENGTH, LENGTH + 6):
        decode(plan, length)
        if length >= LENGTH + 2:
            wait_for(plan)
        assert sizes_built(plan) == [length]


def test_a_cleared_plan_keeps_nothing_of_what_is_being_built(
    plan: torch.classes.zendnn.Plan,
) -> None:
    decode(plan, 7, 8, 9)
    plan.clear()
    assert explained(plan)["built"] == []
    assert explained(plan)["packed_bytes"] == 0


def test_a_cleared_plan_has_nothing_built_ahead(plan: torch.classes.zendnn.Plan) -> None:
    decode(plan, 7, 8, 9)
    wait_for(plan)
    plan.clear()
    assert explained(plan)["built_ahead"] == 0
    decode(plan, 10, 11)
    assert sizes_built(plan) == [11, 10]


def test_a_plan_that_goes_waits_for_what_is_being_built(region: Region) -> None:
    for _ in range(50):
        decode(make_plan(region), 7, 8, 9)


#: A process that has eight plans, for which another size is being built.
SCRIPT = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from zendnn.support.graphs import Builder
from zendnn.support.plans import make_plan, region_of
from zendnn.plan.test_ahead import decode, decoder, wait_for

b = Builder()
region = region_of(b, *decoder(b))
plans = [make_plan(region) for _ in range(8)]
for plan in plans:
    decode(plan, 7, 8, 9)
"""


@pytest.mark.parametrize("then", ["", "sys.exit()", "del plans, plan"])
def test_a_process_ends_while_something_is_being_built(then: str) -> None:
    run_python(SCRIPT + then)


def test_a_fork_builds_ahead_as_its_parent_does() -> None:
    run_python(
        SCRIPT
        + """
child = os.fork()
for plan in plans:
    decode(plan, 10, 11, 12)
wait_for(plans[-1])
if child:
    assert os.waitpid(child, 0) == (child, 0)
else:
    os._exit(0)
"""
    )


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_threads_that_openmp_binds_leave_building_their_other_cores() -> None:
    before = """
import os
cores = os.sched_getaffinity(0)
import torch
torch.ones(1 << 20).exp()
assert len(os.sched_getaffinity(0)) == 1, "OpenMP did not bind this thread"
"""
    after = """
wait_for(plans[-1])
tasks = [int(task) for task in os.listdir("/proc/self/task")]
names = {open(f"/proc/self/task/{task}/comm").read().strip(): task for task in tasks}
assert os.sched_getaffinity(names["zendnn_ahead"]) == cores
"""
    run_python(before + SCRIPT + after, OMP_PROC_BIND="true", OMP_PLACES="threads")
