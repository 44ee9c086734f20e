"""A refusal costs only the operator: torch computes it inside the plan, as it does outside."""

from __future__ import annotations

import copy
import io
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.backends.zendnn.frontends import torchscript
from torch.utils._python_dispatch import TorchDispatchMode

from test.drawing import property_test

from ..common import run_python, values
from ..support.graphs import Builder
from ..support.interpreter import rope
from ..support.plans import (
    check,
    explained,
    implementations,
    interpret,
    layout_of,
    left_of,
    make_plan,
    refusal,
    region_of,
    tensor,
    then,
)
from ..support.samples import POST_OPS, convolved, plan_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]

BF16 = torch.bfloat16
ops = torch.ops.aten


def spelled_out(x: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax(x @ x.transpose(-2, -1) * 0.5 + mask, -1) @ v


#: Nodes that a plan refuses, with their operands %0, %1, …, the reason, and torch's function.
LEFT: dict[str, tuple[list[Tensor], str, Callable[..., Tensor]]] = {
    "avg_pool(%0) kernel=3,3 stride=2,2 padding=1,1 ceil=1 include_pad=1": (
        [tensor(2, 5, 8, 8)],
        "an average over windows that reach beyond the padding",
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    ),
    "avg_pool(%0) kernel=3 stride=2 padding=1 ceil=1 include_pad=1": (
        [tensor(2, 5, 8)],
        "an average over windows that reach beyond the padding",
        lambda x: F.avg_pool1d(x, 3, 2, 1, ceil_mode=True),
    ),
    "avg_pool(%0) kernel=3,3,3 stride=2,2,2 padding=1,1,1 ceil=1 include_pad=1": (
        [tensor(2, 5, 8, 8, 8)],
        "an average over windows that reach beyond the padding",
        lambda x: F.avg_pool3d(x, 3, 2, 1, ceil_mode=True),
    ),
    "avg_pool(%0) kernel=2,2 stride=2,2 padding=0,0": (
        [tensor(5, 8, 8)],
        "an operator with an argument for another number of dimensions",
        lambda x: F.avg_pool2d(x, 2),
    ),
    "max_pool(%0) kernel=3,3 stride=2,2 padding=1,1 dilation=1,1": (
        [tensor(5, 8, 8)],
        "an operator with an argument for another number of dimensions",
        lambda x: F.max_pool2d(x, 3, 2, 1),
    ),
    "max_pool(%0) kernel=2,2,2 stride=2,2,2 padding=0,0,0 dilation=1,1,1": (
        [tensor(5, 8, 8, 8)],
        "an operator with an argument for another number of dimensions",
        lambda x: F.max_pool3d(x, 2),
    ),
    "max_pool(%0) kernel=3 stride=1 padding=0 dilation=1": (
        [tensor(5, 8)],
        "a pooling of a tensor without batch and channels",
        lambda x: F.max_pool1d(x, 3, 1),
    ),
    "adaptive_avg_pool(%0) sizes=3": (
        [tensor(2, 5, 8)],
        "an adaptive pooling with windows of different sizes",
        lambda x: F.adaptive_avg_pool1d(x, 3),
    ),
    "adaptive_avg_pool(%0) sizes=3,5": (
        [tensor(2, 5, 8, 9)],
        "an adaptive pooling with windows of different sizes",
        lambda x: F.adaptive_avg_pool2d(x, (3, 5)),
    ),
    "adaptive_avg_pool(%0) sizes=3,2,2": (
        [tensor(2, 5, 8, 4, 4)],
        "an adaptive pooling with windows of different sizes",
        lambda x: F.adaptive_avg_pool3d(x, (3, 2, 2)),
    ),
    "adaptive_avg_pool(%0) sizes=2,2": (
        [tensor(5, 8, 8)],
        "an operator with an argument for another number of dimensions",
        lambda x: F.adaptive_avg_pool2d(x, 2),
    ),
    "matmul(%0, %1)": ([tensor(5, 4, 8), tensor(8)], "a matrix product with vectors", torch.matmul),
    "matmul(%1, %0)": (
        [tensor(5, 8, 4), tensor(8)],
        "a matrix product with vectors",
        lambda x, y: y @ x,
    ),
    "matmul(%0, %1) ": (
        [tensor(600, 3, 3), tensor(600, 3, 4)],
        "products of many tiny matrices",
        torch.matmul,
    ),
    "linear(%0, %1)": ([tensor(5, 8), tensor(4, 8)], "weights are computed", F.linear),
    "linear(%0, %1, %2) ": (
        [tensor(2, 5, 8), tensor(4, 8), tensor(4)],
        "weights are computed",
        F.linear,
    ),
    "convolution(%0, %1, %2) stride=2,1 padding=1,0 dilation=1,2 groups=2": (
        [tensor(2, 4, 9, 9), tensor(6, 2, 3, 3), tensor(6)],
        "weights are computed",
        lambda x, w, b: F.conv2d(x, w, b, (2, 1), (1, 0), (1, 2), 2),
    ),
    "convolution(%0, %1) stride=1 padding=1 padding_end=2": (
        [tensor(2, 4, 9), tensor(6, 4, 4)],
        "weights are computed",
        lambda x, w: F.conv1d(F.pad(x, (1, 2)), w),
    ),
    "convolution(%0, %1) stride=2,2 padding=1,1 transposed=1 output_padding=1,1": (
        [tensor(2, 4, 9, 9), tensor(4, 6, 3, 3)],
        "weights are computed",
        lambda x, w: F.conv_transpose2d(x, w, None, 2, 1, 1),
    ),
    "prelu(%0, %1)": (
        [tensor(2, 3, 1, 2, 2, 2), tensor(3)],
        "a PReLU whose slopes are not one for each channel",
        F.prelu,
    ),
    "pad(%0, -1, 2, 1, -2) value=0.5": (
        [tensor(2, 6, 6)],
        "a negative padding",
        lambda x: F.pad(x, (-1, 2, 1, -2), value=0.5),
    ),
    "gather_pairs(%0, %1, %1)": (
        [tensor(2, 2, 3, 3), torch.tensor([2, 0, 1])],
        "with other dimensions",
        lambda x, i: x[..., i, i],
    ),
    "pairwise_dot(%0, %1, %1)": (
        [tensor(2, 65, 8), torch.tensor([2, 0, 64])],
        "an interaction of more than 64 features",
        lambda x, i: torch.bmm(x, x.transpose(1, 2))[:, i, i],
    ),
    "rope(%0, %1, %1)": (
        [tensor(2, 3, 6), tensor(4, 1, 3, 6)],
        "a rotation by tables of more dimensions",
        lambda x, table: rope({}, x.expand(4, -1, -1, -1), table, table),
    ),
    "rope(%0, %1, %1) interleaved=1": (
        [tensor(1, 3, 4), tensor(2, 3, 4)],
        "a rotation by tables of more dimensions",
        lambda x, table: rope({"interleaved": True}, x.expand(2, -1, -1), table, table),
    ),
    "attention(%0, %0, %0, none) scale=0.5": (
        [tensor(1, 2, 3, 1032)],
        "an attention whose operands have other sizes",
        lambda x: F.scaled_dot_product_attention(x, x, x, scale=0.5),
    ),
    "attention(%0, %0, %1, %2) scale=0 swapped=1": (
        [tensor(1, 2, 3, 8), tensor(1, 2, 3, 4), tensor(3, 3)],
        "an attention whose operands have other sizes",
        lambda x, v, mask: (
            F.scaled_dot_product_attention(x, x, v, mask).transpose(1, 2).contiguous()
        ),
    ),
    "attention(%0, %0, %1, none) scale=0 causal=1": (
        [tensor(2, 2, 3, 5, 8), tensor(2, 2, 3, 5, 8, seed=1)],
        "an attention whose operands have other ranks",
        lambda x, v: F.scaled_dot_product_attention(x, x, v, is_causal=True),
    ),
    "attention(%0, %0, %1, none) scale=0 grouped=1": (
        [tensor(2, 4, 3, 8), tensor(2, 4, 3, 6)],
        "an attention whose operands have other sizes",
        lambda x, v: F.scaled_dot_product_attention(x, x, v, enable_gqa=True),
    ),
    "attention(%0, %0, %1, %2) scale=0.5 additive=1": (
        [tensor(2, 2, 3, 8), tensor(2, 2, 3, 4), tensor(3, 3)],
        "an attention whose operands have other sizes",
        spelled_out,
    ),
    "attention(%0, %0, %1, %2, %3) scale=0.5 additive=1 fill=-3 fill_where=0": (
        [
            tensor(2, 2, 3, 8),
            tensor(2, 2, 3, 4),
            tensor(3, 3),
            torch.tensor([[True, False, True]] * 3),
        ],
        "an attention whose operands have other sizes",
        lambda x, v, mask, c: (
            torch.softmax(
                (x @ x.transpose(-2, -1) * 0.5).masked_fill(~c, -3.0) + mask,
                -1,
            )
            @ v
        ),
    ),
    "resample(%0, 10, 10) algorithm=nearest scale_height=2.05 scale_width=2.05": (
        [tensor(1, 3, 5, 5)],
        "a resampling whose factor is not that of the sizes",
        lambda x: ops.upsample_nearest2d(x, [10, 10], 2.05, 2.05),
    ),
}
#: Nodes of LEFT that torch computes both contiguous and channels-last.
OF_IMAGES = [
    node
    for node, (operands, *_) in LEFT.items()
    if operands[0].dim() == 4 and node.split("(")[0] in ("avg_pool", "adaptive_avg_pool")
]


#: A pool of (3, 4, 5) with overlapping windows.
POOL = "adaptive_avg_pool(%0) sizes=2"


def left_plan(node: str, operands: int) -> Any:
    """A plan that returns a node's result and a function of it."""
    inputs = [f"%{i} = input tensor" for i in range(operands)]
    return plan_of(
        *inputs, f"%8 = {node} # aten::it", "%9 = eltwise(%8) algorithm=abs", "return %8, %9"
    )


@pytest.mark.parametrize("node", LEFT)
def test_a_refusal_costs_one_step(node: str) -> None:
    """The bits are torch's own, and the plan names the operator, the reason and the time."""
    operands, why, function = LEFT[node]
    plan = left_plan(node, len(operands))
    got, after = plan.run(operands, [])
    want = function(*operands)
    assert (got.dtype, got.shape, got.stride()) == (want.dtype, want.shape, want.stride())
    assert torch.equal(got, want)
    assert torch.equal(after, want.abs())
    name = f"torch {node.split('(')[0]}"
    assert implementations(plan).count(name) == 1
    (left,) = left_of(plan)
    assert left["operator"] == "aten::it"
    assert why in left["reason"]
    assert left["ms"] > 0


@pytest.mark.parametrize("dtype", [torch.float32, BF16])
@pytest.mark.parametrize("node", OF_IMAGES)
def test_images_have_torchs_strides(node: str, dtype: torch.dtype) -> None:
    """Also in bfloat16, and for channels-last images."""
    operands, _, function = LEFT[node]
    x = operands[0].to(dtype).contiguous(memory_format=torch.channels_last)
    plan = left_plan(node, 1)
    got, _ = plan.run([x], [])
    want = function(x)
    assert got.stride() == want.stride()
    assert torch.equal(got, want)


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize("size", [3, 8, 16, 32])
def test_a_refusal_between_convolutions(b: Builder, size: int) -> None:
    """In each layout: torch's operands and results are reordered as needed."""
    x = then(b, convolved(b, b.input(tensor(2, 3, 8, 8)), 3, size, 3), "relu")
    pooled = b("adaptive_avg_pool", x, sizes=(3, 5))
    plan = check(b, convolved(b, pooled, size, 8), x)
    assert len(left_of(plan)) == 1
    assert implementations(plan).count("torch adaptive_avg_pool") == 1
    assert layout_of(plan)


@pytest.mark.parametrize("name", POST_OPS)
@pytest.mark.parametrize("dtype", [torch.float32, BF16])
def test_functions_after_a_refused_node(b: Builder, name: str, dtype: torch.dtype) -> None:
    x, vector = b.input(tensor(5, 4, 8, dtype=dtype)), b.input(tensor(8, dtype=dtype))
    positive = b.eltwise("abs", x), b.eltwise("abs", vector)
    product = then(b, b("matmul", *positive), (name, *POST_OPS[name]))
    plan = make_plan(region_of(b, product))
    (got,) = plan.run(b.examples, [])
    assert len(left_of(plan)) == 1
    reference = Builder()
    out = reference.eltwise(name, reference.input(b.examples[0].abs() @ b.examples[1].abs()))
    node = out.producer
    assert node is not None
    alpha, beta = POST_OPS[name]
    node.attributes = {**node.attributes, "alpha": alpha, "beta": beta}
    (want,) = make_plan(region_of(reference, out)).run(reference.examples, [])
    last_place = 1e-5 if dtype == torch.float32 else 2.0**-7
    assert (got - want).abs().max() <= last_place * want.abs().max().clamp(min=1)


@pytest.mark.parametrize("algorithm", ["add", "sub", "mul", "div", "max", "min"])
def test_operands_after_a_refused_node(b: Builder, algorithm: str) -> None:
    """One of the result's size, and one that enlarges the result."""
    x, vector = b.input(tensor(5, 4, 8)), b.input(tensor(8))
    same, larger = b.input(tensor(5, 4, seed=1)), b.input(tensor(3, 1, 4, seed=2))
    x = b.eltwise("tanh", x)
    product = then(
        b, b("matmul", x, vector), (algorithm, same), "relu", ("add", larger), ("mul", larger)
    )
    plan = check(b, b.eltwise("tanh", product))
    assert len(left_of(plan)) == 1


def test_a_refused_node_within_a_concatenation(b: Builder) -> None:
    x = b.eltwise("tanh", b.input(tensor(5, 4, 8)))
    product = b("matmul", x, b.input(tensor(8)))
    check(b, b("cat", product, b("select", x, 2, 0), product, dim=1), product)


def test_a_refused_node_that_reads_one_value_twice(b: Builder) -> None:
    x = b.eltwise("tanh", b.input(tensor(8)))
    check(b, then(b, b("matmul", x, x), ("add", x)), b.eltwise("abs", x))


@pytest.mark.parametrize("repeated", ["repeated", "strided", "transposed"])
def test_operands_of_any_strides(b: Builder, repeated: str) -> None:
    x = b.input(tensor(4, 6, 8, layout=repeated))
    check(b, b.eltwise("tanh", b("adaptive_avg_pool", x, sizes=(3,))), b.eltwise("abs", x))


def plan_with(refused: int, others: int) -> Any:
    """A plan with this many refused pools and other operators."""
    pools = [f"%m{i} = {POOL} # pool{i}" for i in range(refused)]
    rest = [f"%r{i} = eltwise(%0) algorithm=abs" for i in range(others)]
    results = [f"%m{i}" for i in range(refused)] + [f"%r{i}" for i in range(others)]
    return plan_of("%0 = input tensor", *pools, *rest, f"return {', '.join(results)}")


@pytest.mark.parametrize(
    ("refused", "others", "taken"),
    [(1, 0, False), (1, 1, True), (2, 1, False), (2, 2, True), (3, 2, False)],
)
def test_a_plan_without_enough_operators_of_its_own_is_refused(
    refused: int, others: int, taken: bool
) -> None:
    plan = plan_with(refused, others)
    assert plan.takes([tensor(3, 4, 5)], []) is taken
    assert (refusal(plan) == "an adaptive pooling with windows of different sizes") is not taken
    assert len(left_of(plan)) == (refused if taken else 0)


def test_views_are_no_gain() -> None:
    """Views cost nothing anywhere."""
    plan = plan_of(
        "%0 = input tensor",
        f"%1 = {POOL}",
        "%2 = unsqueeze(%1, 0)",
        "%3 = size(%0, 0)",
        "%4 = expand(%2, %3, -1, -1, -1)",
        "return %4",
    )
    assert not plan.takes([tensor(3, 4, 5)], [])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64])
def test_other_types_cost_the_region(dtype: torch.dtype) -> None:
    """The passes' rewrites are only valid for the dtypes that plans accept."""
    plan = left_plan(POOL, 1)
    x = torch.ones(3, 4, 5, dtype=dtype)
    assert not plan.takes([x], [])
    assert refusal(plan).startswith("tensors of ")


@pytest.mark.parametrize(
    ("node", "operands"),
    [
        ("matmul(%0, %1)", [tensor(3, 4), tensor(4, dtype=BF16)]),
        ("matmul(%0, %1, %2) post=add@2", [tensor(3, 4), tensor(4), tensor(3, dtype=BF16)]),
        ("matmul(%0, %1, %2) post=add@2", [tensor(3, 4), tensor(4), torch.ones(3).long()]),
    ],
)
def test_types_that_differ_cost_the_region(node: str, operands: list[Tensor]) -> None:
    assert not left_plan(node, len(operands)).takes(operands, [])


@pytest.mark.parametrize(
    ("node", "operands"),
    [
        ("matmul(%0, %1)", [tensor(3, 4), tensor(5)]),
        ("max_pool(%0) kernel=7,7 stride=1,1 padding=0,0 dilation=1,1", [tensor(1, 2, 5, 5)]),
        ("adaptive_avg_pool(%0) sizes=-1,1", [tensor(1, 2, 5, 5)]),
        ("mean(%0) dims=0,7", [tensor(3, 4, 5)]),
        ("pad(%0, -9, 0)", [tensor(3, 4)]),
    ],
)
def test_operands_that_torch_refuses_cost_the_region(node: str, operands: list[Tensor]) -> None:
    """The model's own operators then raise the error."""
    plan = left_plan(node, len(operands))
    assert not plan.takes(operands, [])
    assert refusal(plan)


def test_an_empty_result_costs_the_region() -> None:
    plan = left_plan("pad(%0, -2, -2)", 1)
    assert not plan.takes([tensor(3, 4)], [])


# Surroundings.


def test_autocast_changes_nothing_inside() -> None:
    operands = [tensor(5, 4, 8), tensor(8)]
    plan = left_plan("matmul(%0, %1)", 2)
    want = plan.run(operands, [])
    for turn in range(2):
        if turn:
            plan.clear()  # so that it is built under autocast
        with torch.autocast("cpu", BF16):
            got = plan.run(operands, [])
        assert got[0].dtype == torch.float32
        assert all(map(torch.equal, got, want))


def test_gradients_are_not_recorded() -> None:
    plan = left_plan(POOL, 1)
    x = tensor(3, 4, 5)
    with torch.enable_grad():
        got, _ = plan.run([x], [])
    assert not got.requires_grad
    assert got.grad_fn is None


def test_modes_see_the_plan_only() -> None:
    names = []

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            names.append(str(func))
            return func(*args, **(kwargs or {}))

    plan = left_plan(POOL, 1)
    x = tensor(3, 4, 5)
    with Seen():
        torch.ops.zendnn.takes(plan, [x], [])
        torch.ops.zendnn.run(plan, [x], [])
    assert all(name.startswith("zendnn.") for name in names), names


def test_without_memory_to_try_torch_a_plan_steps_aside_until_there_is() -> None:
    code = """
import resource, torch
lines = ["zendnn-plan 3", "%0 = input tensor", "%1 = adaptive_avg_pool(%0) sizes=7,7",
         "%2 = eltwise(%1) algorithm=abs", "return %2", ""]
plan = torch.classes.zendnn.Plan("\\n".join(lines), [], "it")
x = torch.ones(1, 1024, 128, 128)  # 64 MiB
print(plan.takes([x], []))
plan.clear()
torch.backends.zendnn.empty_cache()
pages = int(open("/proc/self/statm").read().split()[0])
_, most = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (8 << 20), most))
print(plan.takes([x], []))
resource.setrlimit(resource.RLIMIT_AS, (most, most))
print(plan.takes([x], []))
"""
    assert run_python(code, ZENDNN_TUNING_BUDGET="0").split() == ["True", "False", "True"]


@pytest.mark.parametrize("node", ["linear(%1, %2, %3)", "matmul(%1, %2)"])
def test_without_wide_vectors_products_of_bfloat16_are_left(node: str) -> None:
    """Our kernels around them still run."""
    code = f"""
import torch
lines = ["%0 = input tensor", "%2 = constant 0", "%3 = constant 1", "%1 = softmax(%0) dim=-1",
         "%4 = {node} # product", "%5 = eltwise(%4) algorithm=gelu", "return %4, %5"]
constants = [torch.randn(8, 8).bfloat16(), torch.randn(8).bfloat16()]
plan = torch.classes.zendnn.Plan("\\n".join(["zendnn-plan 3", *lines, ""]), constants, "it")
x = torch.randn(3, 8).bfloat16()
got, _ = plan.run([x], [])
(built,) = plan.explain()["built"]
print([left["operator"] for left in built["left_to_torch"]])
soft, (w, b) = x.softmax(-1), constants
want = torch.nn.functional.linear(soft, w, b) if "linear" in "{node}" else soft @ w
print(((got.float() - want.float()).abs().max() <= 2**-7 * want.abs().max()).item())
"""
    assert run_python(code, ZENDNN_MAX_CPU_ISA="AVX2").splitlines() == ["['product']", "True"]


# Modules.


class Net(nn.Module):
    """Convolutions around pools, one of which fits few image sizes, and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.second = nn.Conv2d(16, 16, 3, padding=1)
        self.pool = nn.AvgPool2d(3, 2, padding=1, ceil_mode=True)
        self.ending = nn.AvgPool2d(640, ceil_mode=True)
        self.last = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x))
        x = F.relu(self.second(self.pool(x)))
        out: Tensor = self.last(self.ending(x).flatten(1))
        return out


REASON = "an average over windows that reach beyond the padding"
#: Images whose last windows reach beyond the padding, and others.
EVEN, ODD = (2, 3, 12, 12), (1, 3, 13, 17)


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture
def module(net: nn.Module) -> torch.jit.ScriptModule:
    with torch.no_grad():
        frozen = torch.jit.freeze(torch.jit.trace(net, values(*ODD)))
        result: torch.jit.ScriptModule = torch.jit.optimize_for_inference(frozen)
    return result


def assert_right(module: torch.jit.ScriptModule, net: nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        got = module(x)
        want = copy.deepcopy(net).double()(x.double())
    assert (got - want).abs().max() <= 1e-5 * want.abs().max()


def the_plan(module: torch.jit.ScriptModule) -> Any:
    (plan,) = torchscript.plans(module._c)
    return plan


def test_a_refusal_of_later_shapes(module: torch.jit.ScriptModule, net: nn.Module) -> None:
    """The first call finds it; other shapes keep their own steps."""
    plan = the_plan(module)
    for shape, left in [(ODD, []), (EVEN, [REASON]), (ODD, []), ((1, 3, 10, 12), [REASON])]:
        assert_right(module, net, values(*shape))
        assert [item["reason"] for item in left_of(plan)] == left
        assert sum("torch" in name for name in implementations(plan)) == len(left)
    assert len(explained(plan)["built"]) == 3


def test_saved_loaded_and_copied(module: torch.jit.ScriptModule, net: nn.Module) -> None:
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    for other in (torch.jit.load(file), copy.deepcopy(module)):
        assert_right(other, net, values(*EVEN))
        assert [item["reason"] for item in left_of(the_plan(other))] == [REASON]


def test_threads_share_left_operators(module: torch.jit.ScriptModule, net: nn.Module) -> None:
    inputs = [values(*shape, seed=seed) for shape in (EVEN, ODD) for seed in range(4)]
    with torch.no_grad():
        wants = [module(x) for x in inputs]
    the_plan(module).clear()
    wrong: list[int] = []

    def work(number: int) -> None:
        for turn in range(10):
            which = (number + turn) % len(inputs)
            with torch.no_grad():
                got = module(inputs[which])
            if not torch.allclose(got, wants[which], rtol=1e-5, atol=1e-6):
                wrong.append(which)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert not wrong
    for x in (inputs[0], inputs[-1]):
        assert_right(module, net, x)


def test_explain_names_the_operator_the_reason_and_the_time(
    module: torch.jit.ScriptModule,
) -> None:
    with torch.no_grad():
        module(values(*EVEN))
    explanation = torch.backends.zendnn.explain(module)
    (region,) = explanation.methods[0].regions
    (left,) = region.built[0].left_to_torch
    assert (left.operator, left.reason) == (("aten::avg_pool2d",), REASON)
    assert left.ms > 0
    _, _, after = str(explanation).partition("left to torch\n")
    words = after.splitlines()[0].split()
    assert words == ["avg_pool2d", *REASON.split(), f"{left.ms:.2f}", "ms"]


@pytest.mark.parametrize("shape", [(3, 4), (2, 5)])
def test_errors_are_torchs_own(shape: tuple[int, ...]) -> None:
    class Product(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return torch.matmul(x, y).relu() * 2 + x.mean((0, 1)).tanh()

    frozen = torch.jit.freeze(torch.jit.script(Product().eval()))
    module = torch.jit.optimize_for_inference(frozen)
    y = tensor(6)
    with pytest.raises(RuntimeError) as theirs:
        Product()(tensor(*shape), y)
    for _ in range(2):
        with pytest.raises(RuntimeError) as ours:
            module(tensor(*shape), y)
        assert str(theirs.value).splitlines()[0] in str(ours.value)


class Residual(nn.Module):
    """A scripted residual of unknown dtype, which passes assume to be float32 and convert."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4).bfloat16()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        narrow = x.to(torch.bfloat16)
        return x.relu() + self.layer(narrow), narrow


@pytest.mark.parametrize("dtype", [torch.float32, BF16])
def test_inputs_of_another_dtype_than_passes_assumed(dtype: torch.dtype) -> None:
    """torch computes the whole region, since the plan would promote the result."""
    net = Residual().eval()
    module = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.script(net)))
    x = values(3, 4, dtype=dtype)
    with torch.no_grad():
        for ours, theirs in zip(module(x), net(x), strict=True):
            assert ours.dtype == theirs.dtype
            torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)
    (built,) = explained(the_plan(module))["built"]
    assert built.get("refused", "") == ("an input that is not float32" if dtype == BF16 else "")


# Pools with windows larger than images, which plans compute themselves.


@property_test
@given(data=st.data())
def test_windows_larger_than_images(data: st.DataObject) -> None:
    b, draw = Builder(), data.draw
    dims = draw(st.integers(1, 3))
    sizes = [draw(st.integers(1, 6)) for _ in range(dims)]
    kernel = tuple(draw(st.integers(1, 9)) for _ in sizes)
    padding = tuple(draw(st.sampled_from([0, size // 2])) for size in kernel)
    # The stride of a global pool is its window's size.
    stride = tuple(draw(st.sampled_from([size, size, 1, 2])) for size in kernel)
    attributes: dict[str, Any] = {
        "kernel": kernel,
        "stride": stride,
        "padding": padding,
        "ceil": True,
    }
    op = draw(st.sampled_from(["max_pool", "avg_pool"]))
    if op == "max_pool":
        attributes["dilation"] = (1,) * dims
    else:
        attributes["include_pad"] = draw(st.booleans())
    x = b.eltwise("affine", b.input(tensor(2, 16, *sizes)), 1.0, -3.0)
    out = b(op, x, **attributes)
    region = region_of(b, out)
    try:
        interpret(region, b.examples, torch.float64, torch.float32)
    except RuntimeError:  # of a window beyond the image
        assert not make_plan(region).takes(b.examples, [])
        return
    plan = check(b, out)
    one = all(size == 1 for size in plan.run(b.examples, [])[0].shape[2:])
    if one or not any(padding):
        assert not left_of(plan)
