"""Randomly changed descriptions, constants and inputs, as in a damaged file: a plan refuses them
with a reason or runs. It does so in another process, which must not crash, hang, take much memory,
or write to its inputs."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import event, given
from hypothesis import strategies as st

from test.drawing import examples
from test.server import Ended, Server

from ..support.descriptions import SAMPLES, Case, changed_case

#: Memory that a plan may take in addition to the process's; all cases here are small.
MORE_BYTES = 3 << 30
SECONDS = 60.0

#: Answers each case with its outcome; a failed assertion is an answer, too.
PROGRAM = """
import io, os, resource
import torch

if "asan" not in os.environ.get("LD_PRELOAD", ""):  # which maps far more than it uses
    taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + int(sys.argv[2]),) * 2)

def bits(x):
    if x.device.type != "cpu" or x.layout != torch.strided or not x.numel():
        return None
    x = x.detach()
    x = torch._neg_view(x) if x.is_neg() else x
    return torch.empty(x.numel(), dtype=x.dtype).copy_(x.flatten()).view(torch.uint8)

def same(x, y):
    return x is None or torch.equal(x, y)

def first_line(error):
    return str(error).splitlines()[0] if str(error) else ""

def answer(text, constants, tensors, numbers):
    before = [bits(x) for x in (*constants, *tensors)]
    try:
        plan = torch.classes.zendnn.Plan(text, constants, "changed")
    except RuntimeError as error:
        assert "ZenDNN plan changed" in first_line(error), first_line(error)
        return "not read: " + first_line(error)
    texts = [plan.description()]
    for _ in range(2):  # the first one may move inputs to where they belong
        copy = torch.classes.zendnn.Plan(texts[-1], constants, "copy")
        texts.append(copy.description())
    assert texts[2] == texts[1], texts
    with torch.no_grad():
        takes = plan.takes(tensors, numbers)
        try:
            results = plan.run(tensors, numbers)
        except (RuntimeError, IndexError, ValueError, MemoryError) as error:
            said = first_line(error)
            refused = "ZenDNN plan changed does not take" in said
            assert takes != refused or "alloc" in said, f"takes: {takes}, but run: {said}"
            return "refused: " + said
    assert takes, "runs what it does not take"
    assert all(isinstance(x, torch.Tensor) and x.sum() is not None for x in results)
    fixed = constants if "write(" in text else (*constants, *tensors)
    for x, kept in zip(fixed, before):
        assert same(kept, bits(x)), "a constant or an input was changed"
    plan.explain()
    return "runs"

while True:
    try:
        given = torch.load(io.BytesIO(asked.recv_bytes()), weights_only=False)
    except EOFError:
        break
    try:
        said = answer(*given)
    except Exception as error:
        said = f"wrong: {type(error).__name__}: {error}"
    asked.send_bytes(said.encode(errors="replace"))
"""


def ask(server: Server, case: Case) -> str:
    """The outcome of a case: ``not read: …``, ``refused: …``, ``runs`` or ``wrong: …``."""
    sent = io.BytesIO()
    torch.save((case.text, list(case.constants), list(case.tensors), list(case.numbers)), sent)
    try:
        return server.ask(sent.getvalue()).decode()
    except Ended as error:
        return f"wrong: {error}"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    env = {**os.environ, "ZENDNN_TUNING_BUDGET": "0"}
    result = Server(PROGRAM, str(MORE_BYTES), env=env, seconds=SECONDS)
    yield result
    result.stop()


@pytest.mark.parametrize("name", SAMPLES)
def test_unchanged_descriptions_run(server: Server, name: str) -> None:
    assert ask(server, SAMPLES[name]) == "runs"


@pytest.mark.parametrize("name", SAMPLES)
def test_the_description_that_a_plan_returns_makes_the_same_plan(name: str) -> None:
    case = SAMPLES[name]
    text, results = case.text, []
    for _ in range(2):
        plan = torch.classes.zendnn.Plan(text, list(case.constants), name)
        tensors = [x.clone() for x in case.tensors]  # some are written
        results.append(plan.run(tensors, list(case.numbers)))
        text = plan.description()
    for first, second in zip(*results, strict=True):
        torch.testing.assert_close(first, second, rtol=0, atol=0, equal_nan=True)


@examples(600)
@given(data=st.data())
def test_changed_descriptions(server: Server, data: st.DataObject) -> None:
    case = changed_case(data.draw)
    said = ask(server, case)
    event(said.partition(":")[0])
    shapes = [(x.dtype, tuple(x.shape)) for x in (*case.constants, *case.tensors)]
    assert not said.startswith("wrong"), f"{said}\n{case.text}\n{shapes}\n{case.numbers}"
