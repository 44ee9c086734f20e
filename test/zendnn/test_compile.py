"""torch.compile with Inductor: its calls through the dispatcher reach the eager overrides."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .common import (
    HAS_WIDE_VECTORS,
    PRIMITIVE_DTYPES,
    assert_as_exact,
    counting,
    of_products,
    run_python,
    stock,
    values,
)

OPERATIONS: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "linear": (lambda x, w, b: F.linear(x, w, b).relu(), [(48, 64), (96, 64), (96,)]),
    "mm": (lambda a, b: torch.mm(a, b) * 2, [(48, 64), (64, 40)]),
    "bmm": (lambda a, b: torch.bmm(a, b).relu(), [(4, 48, 64), (4, 64, 40)]),
    "baddbmm": (torch.baddbmm, [(4, 48, 40), (4, 48, 64), (4, 64, 40)]),
    "conv2d": (
        lambda x, w, b: F.conv2d(x, w, b, padding=1).relu(),
        [(2, 8, 20, 20), (16, 8, 3, 3), (16,)],
    ),
    "attention": (F.scaled_dot_product_attention, [(2, 4, 64, 32)] * 3),
}

#: Operators that must run on ZenDNN; others may fall back to torch.
ALWAYS = ("conv2d", *(("linear", "mm", "bmm", "baddbmm") if HAS_WIDE_VECTORS else ()))


@pytest.fixture(autouse=True, scope="module")
def compiled_code(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Compiled code goes into a separate folder, so that no cache has it."""
    folder: Path = tmp_path_factory.mktemp("inductor")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def forget_compiled_code() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def primitives(calls: Counter[str]) -> Counter[str]:
    """The counts without reorders, since Inductor does its own."""
    return Counter({kind: count for kind, count in calls.items() if kind != "reorder"})


@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES, ids=str)
@pytest.mark.parametrize("name", OPERATIONS)
def test_compiled_operations_run_on_zendnn_as_eager_ones_do(name: str, dtype: torch.dtype) -> None:
    function, shapes = OPERATIONS[name]
    operands = [values(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)]
    compiled = torch.compile(function, dynamic=False)
    with counting() as eagerly:
        function(*operands)
    compiled(*operands)
    with counting() as calls:
        ours = compiled(*operands)
    assert primitives(calls) == primitives(eagerly)
    assert calls or name not in ALWAYS
    with stock():
        theirs = function(*operands)
        exact = function(*(operand.double() for operand in operands))
        bound = function(*(operand.double().abs() for operand in operands))
    assert_as_exact(ours, theirs, exact, bound.abs().max().item())


def test_switching_off_also_applies_to_compiled_code() -> None:
    function, shapes = OPERATIONS["conv2d"]
    operands = [values(*shape, seed=i) for i, shape in enumerate(shapes)]
    compiled = torch.compile(function, dynamic=False)
    with counting() as calls:
        compiled(*operands)
    assert calls
    with stock():
        theirs = function(*operands)
        with counting() as calls:
            ours = compiled(*operands)
    assert not calls
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@of_products
def test_a_compiled_training_step_runs_on_zendnn_forward_and_backward() -> None:
    net = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 32))
    images = values(4, 4, 10, 10)
    expected = net(images).square().mean()
    want = torch.autograd.grad(expected, list(net.parameters()))
    compiled = torch.compile(net, dynamic=False)
    with counting() as forward:
        loss = compiled(images).square().mean()
    with counting() as backward:
        got = torch.autograd.grad(loss, list(net.parameters()))
    assert {"matmul", "convolution"} <= set(forward)
    assert backward["matmul"] >= 1
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    for one, two in zip(got, want, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


FROZEN = """
import json
import torch
from torch import nn
torch.manual_seed(0)
zendnn = torch.backends.zendnn
net = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 32)).eval()
images = torch.randn(4, 4, 10, 10)
torch._inductor.config.freezing = True
torch._inductor.config.fx_graph_cache = False  # its keys know nothing of the switch below
with torch.no_grad():
    with zendnn.flags(enabled=False):
        want = net(images)
    compiled = torch.compile(net, dynamic=False)
    with torch.backends.mkldnn.flags(enabled={mkldnn}):
        compiled(images)
    zendnn.reset_counters()
    got = compiled(images)
    print(json.dumps([(got - want).abs().max().item(), zendnn.counters()]))
"""


@of_products
@pytest.mark.parametrize("mkldnn", [True, False])
def test_freezing_packs_weights_for_torchs_onednn_unless_that_is_off_during_compilation(
    mkldnn: bool, compiled_code: Path
) -> None:
    code = FROZEN.format(mkldnn=mkldnn)
    error, calls = json.loads(run_python(code, TORCHINDUCTOR_CACHE_DIR=str(compiled_code)))
    assert error < 1e-5
    assert {kind for kind in calls if kind != "reorder"} == (
        set() if mkldnn else {"matmul", "convolution"}
    )
