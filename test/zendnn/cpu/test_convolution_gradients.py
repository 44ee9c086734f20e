"""Gradients that torch's own oneDNN writes past its workspace run on ours, and are right.

They crash or corrupt memory, so each case has a process of its own.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ..common import PRIMITIVE_DTYPES, counting, run_python, values

#: Computes the gradients of a layer on channels-last images, dense or as tensors on the device
#: zendnn, and compares them with those of float64.
PROGRAM = """
import copy

import torch
from torch import nn

def check(layer, dtype, *shape, blocked=False):
    torch.manual_seed(0)
    exact = layer.double()
    x = torch.randn(*shape, dtype=torch.double).to(dtype).double()
    for p in exact.parameters():
        p.data = p.data.to(dtype).double()
    order = (0, *range(2, x.dim()), 1)
    back = (0, x.dim() - 1, *range(1, x.dim() - 1))
    leaf = x.to(dtype).permute(order).contiguous().permute(back).requires_grad_()
    held = x.clone().requires_grad_()
    want = exact(held)
    out = torch.randn(want.shape, dtype=torch.double).to(dtype).double()
    wanted = torch.autograd.grad(want, [held, *exact.parameters()], out)
    ours = copy.deepcopy(layer).to(dtype)
    if dtype is not torch.double and x.dim() == 4:
        ours = ours.to(memory_format=torch.channels_last)
    argument = leaf.to_zendnn() if blocked else leaf
    result = ours(argument)
    result = result.to_dense() if blocked else result
    gradients = torch.autograd.grad(result, [leaf, *ours.parameters()], out.to(dtype))
    for a, b in zip(gradients, wanted):
        error = (a.double() - b).abs().max() / b.abs().max()
        assert error < (1e-4 if dtype == torch.float32 else 2e-2), float(error)
"""


def run(*cases: str, isa: str = "") -> None:
    limit = {"ZENDNN_MAX_CPU_ISA": isa, "ONEDNN_MAX_CPU_ISA": isa} if isa else {}
    run_python("\n".join([PROGRAM, *cases]), **limit)


SETS = ("", "AVX512_CORE_BF16", "AVX512_CORE", "AVX2")
#: The device zendnn takes bfloat16 from AVX-512 on.
CASES = [
    (isa, dtype, blocked)
    for isa in SETS
    for dtype in PRIMITIVE_DTYPES
    for blocked in (False, True)
    if not (blocked and (isa, dtype) == ("AVX2", torch.bfloat16))
]


@pytest.mark.parametrize(("isa", "dtype", "blocked"), CASES)
def test_gradients_of_strided_points_of_few_channels(
    isa: str, dtype: torch.dtype, blocked: bool
) -> None:
    """uxlfoundation/oneDNN#6035: the gradient of the weights, by a copy of the points."""
    sizes = [(1, 2, 256), (4, 3, 255), (15, (1, 2), 256), (17, 2, 64)]
    cases = [f"blocked, dtype = {blocked}, {dtype}"]
    for channels, stride, size in sizes:
        layer = f"nn.Conv2d({channels}, 8, 1, stride={stride})"
        cases.append(f"check({layer}, dtype, 2, {channels}, {size}, {size}, blocked=blocked)")
    cases.append("check(nn.Conv2d(4, 8, 1, stride=2), dtype, 2, 4, 96, 24, blocked=blocked)")
    cases.append("check(nn.Conv2d(8, 8, 1, stride=2, groups=2), dtype, 2, 8, 96, 24)")
    run(*cases, isa=isa)


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("dtype", PRIMITIVE_DTYPES, ids=str)
def test_gradients_of_transposed_ones_of_signals_and_of_volumes(
    isa: str, dtype: torch.dtype
) -> None:
    run(
        f"dtype = {dtype}",
        "check(nn.ConvTranspose2d(8, 4, 1, stride=2, output_padding=1), dtype, 2, 8, 128, 128)",
        "check(nn.ConvTranspose2d(8, 1, 1, stride=3, output_padding=2), dtype, 2, 8, 64, 128)",
        "check(nn.ConvTranspose1d(8, 4, 1, stride=2, output_padding=1), dtype, 2, 8, 50000)",
        "check(nn.Conv1d(1, 8, 1, stride=2), dtype, 2, 1, 100000)",
        "check(nn.Conv1d(4, 8, 1, stride=2), dtype, 2, 4, 60000)",
        "check(nn.Conv3d(4, 8, 1, stride=2), dtype, 2, 4, 16, 16, 16)",
        isa=isa,
    )


@pytest.mark.parametrize("wanted", [(True, True), (False, True), (True, False)])
def test_only_such_gradients_are_ours(wanted: tuple[bool, bool]) -> None:
    """One of the weights that is not wanted is no reason."""
    of_input, of_weights = wanted
    layer = nn.Conv2d(4, 8, 1, stride=2).requires_grad_(of_weights)
    x = values(2, 4, 8, 8).to(memory_format=torch.channels_last).requires_grad_(of_input)
    out = layer(x).sum()
    with counting() as calls:
        out.backward()
    assert calls["convolution"] == (of_input + 1 if of_weights else 0)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(4, 8, 1),
        nn.Conv2d(4, 8, 3, stride=2),
        nn.Conv2d(16, 8, 1, stride=2),
        nn.Conv2d(4, 8, 1, stride=2, groups=2),
    ],
    ids=str,
)
def test_other_gradients_are_torchs(layer: nn.Conv2d) -> None:
    x = values(2, layer.in_channels, 8, 8).requires_grad_()
    out = layer(x)
    with torch.backends.zendnn.record() as events:
        out.sum().backward()
    (event,) = [e for e in events if e.operator == "aten::convolution_backward"]
    assert (event.route, event.reason) == ("torch", "a gradient that torch computes")
