"""Nodes and operands that do not match docs/plan.md are refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.backends.zendnn.ir.node import Value

from ..support.graphs import Builder
from ..support.plans import last_node, make_plan, refusal, region_of, tensor, then
from ..support.samples import plan_of

BF16 = torch.bfloat16


def refused_graphs() -> dict[str, Callable[[Builder], Value]]:
    """Graphs that a plan refuses for their examples."""

    def x(b: Builder, *shape: int, dtype: torch.dtype = torch.float32) -> Value:
        return b.input(tensor(*shape, dtype=dtype))

    def image(b: Builder, op: str, **attributes: Any) -> Value:
        return b(op, x(b, 1, 3, 5, 5), **attributes)

    def bag(b: Builder, weights: Value, mode: str = "sum") -> Value:
        ids = b.input(torch.randint(5, (2, 3)))
        return b("embedding_bag", b.constant(5, 3), ids, None, weights, mode=mode)

    def pairs(
        b: Builder, rows: list[int], columns: list[int], dtype: torch.dtype = torch.int64
    ) -> Value:
        places = (torch.tensor(rows, dtype=dtype), torch.tensor(columns))
        return b("gather_pairs", x(b, 4, 4), *map(b.graph.constant, places))

    pool = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1)}

    def pooled(name: str, number: int) -> Callable[[Builder], Value]:
        return lambda b: image(b, "max_pool", **{**pool, name: (number, 2)})

    def convolved(name: str, number: int) -> Callable[[Builder], Value]:
        window: dict[str, Any] = {name: (number, 1)}
        return lambda b: b.convolution(x(b, 1, 3, 5, 5), b.constant(8, 3, 3, 3), **window)

    return {
        "an empty tensor": lambda b: b.eltwise("relu", x(b, 0, 3)),
        "an empty slice": lambda b: b("slice", x(b, 4, 3), 0, 2, 2, 1),
        "float64": lambda b: b.eltwise("relu", x(b, 2, 3, dtype=torch.float64)),
        "float16": lambda b: b.linear(x(b, 2, 3, dtype=torch.float16), 4, 3),
        "integers": lambda b: b.binary(
            "add", x(b, 2, dtype=torch.int64), x(b, 2, dtype=torch.int64)
        ),
        "two types": lambda b: b.binary("add", x(b, 2), x(b, 2, dtype=torch.bfloat16)),
        "sizes that do not broadcast": lambda b: b.binary("add", x(b, 2), x(b, 3)),
        "other features": lambda b: b.linear(x(b, 2, 5), 4, 3),
        "weights that are computed": lambda b: b("linear", x(b, 2, 5), x(b, 4, 5), None),
        "other channels": lambda b: b.convolution(x(b, 1, 4, 5, 5), b.constant(8, 3, 3, 3)),
        "no batch": lambda b: b.convolution(x(b, 3, 5, 5), b.constant(8, 3, 3, 3)),
        "an image smaller than the kernel": lambda b: b.convolution(
            x(b, 1, 3, 2, 5), b.constant(8, 3, 3, 3)
        ),
        "batches that do not broadcast": lambda b: b("matmul", x(b, 2, 3, 4), x(b, 3, 4, 5)),
        "other inner sizes": lambda b: b("matmul", x(b, 3, 4), x(b, 5, 4)),
        "a vector": lambda b: b("matmul", x(b, 3, 4), x(b, 4)),
        "other ranks": lambda b: b("cat", x(b, 2, 3), x(b, 2), dim=0),
        "other rows": lambda b: b("cat", x(b, 2, 3), x(b, 2, 4), dim=0),
        "a stack of other sizes": lambda b: b("stack", x(b, 2, 3), x(b, 2, 4), dim=0),
        "a window larger than the image": lambda b: image(
            b, "max_pool", **{**pool, "kernel": (7, 7)}
        ),
        **{
            f"a pool with a {name} of {number}": pooled(name, number)
            for name, number in [("kernel", 0), ("stride", 0), ("dilation", 0), ("padding", -1)]
        },
        **{
            f"a convolution with a {name} of {number}": convolved(name, number)
            for name, number in [("stride", 0), ("stride", -1), ("dilation", 0), ("padding", -1)]
        },
        "groups that do not divide": lambda b: b.convolution(
            x(b, 1, 9, 5, 5), b.constant(8, 3, 3, 3), groups=3
        ),
        "an adaptive pool to less than nothing": lambda b: image(
            b, "adaptive_avg_pool", sizes=(-1, 1)
        ),
        "windows of several sizes": lambda b: image(b, "adaptive_avg_pool", sizes=(2, 2)),
        "another number of elements": lambda b: b("view", x(b, 2, 3), 4, -1),
        "a dimension that is not there": lambda b: b("transpose", x(b, 2, 3), 0, 2),
        "a slice backwards": lambda b: b("slice", x(b, 4), 0, None, None, -1),
        "an index that is not there": lambda b: b("select", x(b, 4, 2), 0, 4),
        "a mean that repeats a dimension": lambda b: b("mean", x(b, 2, 3, 4), dims=(0, -3)),
        "an argmax over two dimensions": lambda b: b("argmax", x(b, 2, 3, 4), dims=(0, 1)),
        "a triangle of a vector": lambda b: b("triu", x(b, 4)),
        "indices of float": lambda b: b("embedding", b.constant(5, 3), x(b, 4)),
        "weights of a mean": lambda b: bag(b, x(b, 6), mode="mean"),
        "weights of other ids": lambda b: bag(b, x(b, 5)),
        "weights of another dtype": lambda b: bag(b, b.input(tensor(6).bfloat16())),
        "a bias of another size": lambda b: b(
            "linear", x(b, 2, 5), b.constant(4, 5), b.constant(1)
        ),
        "a bias with two dimensions": lambda b: b(
            "linear", x(b, 2, 5), b.constant(4, 5), b.constant(1, 4)
        ),
        "a bias of other channels": lambda b: b.convolution(
            x(b, 1, 3, 5, 5), b.constant(8, 3, 3, 3), b.constant(4)
        ),
        "an operand of other sizes": lambda b: then(
            b, b.linear(x(b, 2, 3), 4, 3), ("add", x(b, 3, 4))
        ),
        "slopes of other channels": lambda b: b("prelu", x(b, 2, 3, 4), b.constant(4)),
        "heads that do not divide": lambda b: b(
            "attention", x(b, 1, 3, 4, 8), x(b, 1, 2, 4, 8), x(b, 1, 2, 4, 8), None, scale=0.0
        ),
        "a split into other parts": lambda b: b("split", x(b, 5, 3), dim=0, sizes=(2,)),
        "sizes of another rank": lambda b: b("view", x(b, 5, 3), b("size", x(b, 5, 3), 0, rank=3)),
        "a layer of another type": lambda b: b.linear(x(b, 2, 3, dtype=BF16), 4, 3),
        "weights of three dimensions": lambda b: b("linear", x(b, 2, 3), b.constant(4, 3, 2), None),
        "weights that are one vector": lambda b: b(
            "linear", x(b, 3, 5), b("cat", b.constant(5), b.constant(5), dim=0), None
        ),
        "images of another type": lambda b: b.convolution(
            x(b, 1, 3, 5, 5, dtype=BF16), b.constant(8, 3, 3, 3)
        ),
        "a pair before the first": lambda b: pairs(b, [0, -1], [0, 1]),
        "a pair beyond the last": lambda b: pairs(b, [0, 4], [0, 1]),
        "more rows than columns": lambda b: pairs(b, [0, 1, 2], [0, 1]),
        "pairs of int32": lambda b: pairs(b, [0, 1], [0, 1], torch.int32),
        "65 features": lambda b: b(
            "pairwise_dot", x(b, 2, 65, 8), *(b.graph.constant(torch.tensor([0, 1])),) * 2
        ),
        "a factor of another size": lambda b: b(
            "layer_norm", x(b, 2, 3), b.constant(4), None, None, eps=1e-5, dims=1
        ),
    }


REFUSED = refused_graphs()


@pytest.mark.parametrize("why", REFUSED)
def test_graphs_that_a_plan_refuses(b: Builder, why: str) -> None:
    """A plan refuses with a reason, and again the next time."""
    out = REFUSED[why](b)
    region = region_of(b, out)
    if last_node(b).post_ops:  # the operand was added after the node that reads it
        b.graph.check()
    plan = make_plan(region)
    tensors = [b.examples[b.graph.inputs.index(x)] for x in region.inputs]
    for _ in range(2):
        assert not plan.takes(tensors, [])
        with pytest.raises(RuntimeError, match=r"ZenDNN plan test does not take these inputs: \w+"):
            plan.run(tensors, [])
    assert refusal(plan)


#: Nodes that do not match the table of operators, with an image of 6 channels and the number 2.
BAD_NODES = {
    "cat(%x, 99999999999) dim=0": "operand 1 is no tensor",
    "cat() dim=0": "operand 0 is no tensor",
    "linear(%x)": "operand 1 is no tensor",
    "flatten(%x)": "operand 1 is no number",
    "flatten(%x, 0, none)": "operand 2 is no number",
    "view(%x, %x)": "operand 1 is no number",
    "eltwise(%n) algorithm=relu": "operand 0 is no tensor",
    "eltwise(%x, %x) algorithm=relu": "2 operands",
    "batch_norm(%x, none, none, none, none)": "operand 3 is no tensor",
    "embedding_bags(%x, none) count=1": "without operand 1",
    "embedding_bags(%x, %x, %x, %x) count=2": "results",
    "softmax(%x, 99999999999) dim=0 post=add@1": "post-ops",
    "softmax(%x) dim=0 post=relu": "post-ops",
    "binary(%x, %x) algorithm=add post=add@1": "own operand",
    "binary(%x, %x, 3) algorithm=add post=add@2": "operand 2 is no tensor",
    "numel(%x)": "result that is a number",
    "split(%x) dim=1 sizes=-1": "split",
}


@pytest.mark.parametrize("node", BAD_NODES)
def test_nodes_that_match_no_operator_are_refused(node: str) -> None:
    plan = plan_of("%x = input tensor", "%n = input number", f"%y = {node}", "return %y")
    assert not plan.takes([tensor(2, 6, 4, 4)], [2])
    assert BAD_NODES[node] in refusal(plan)


def ids(*shape: int, below: int = 5) -> Tensor:
    return torch.randint(below, shape)


#: Nodes whose operands do not match, with the operands %0, %1, … and the plan's reason.
BAD_OPERANDS: dict[str, tuple[list[Tensor], str]] = {
    "embedding_bag(%0, %1, none, %2) mode=each": (
        [tensor(5, 3), ids(2, 3), tensor(2, 3)],
        "other weights",
    ),
    "embedding_bag(%0, %1, %2) mode=sum": ([tensor(5, 3), ids(2, 3), ids(2)], "other offsets"),
    "embedding_bag(%0, %1, %2) mode=max": ([tensor(5, 3), ids(6), ids(2, 1)], "other offsets"),
    "cat(%0, %1) dim=0": ([tensor(2, 3), tensor(2, 3, dtype=BF16)], "different tensors"),
    "stack(%0, %1) dim=0": ([tensor(2, 3), tensor(2, 3, dtype=BF16)], "different tensors"),
    "pad(%0, 1)": ([tensor(2, 3)], "dimensions that are not there"),
    "pad(%0, 1, 1, 1, 1)": ([tensor(3)], "dimensions that are not there"),
    "pad(%0, -1, 1)": ([tensor(2, 3)], "a negative padding"),
    "roll(%0) shifts=1 dims=0,1": ([tensor(2, 3)], "shifts of other dimensions"),
    "gather_pairs(%0, %1, %1)": ([tensor(2, 2, 3, 3), ids(4, below=3)], "with other dimensions"),
    "softmax(%0) dim=-9": ([tensor(2, 3)], "dimension -9 of a tensor with 2"),
    "matmul(%0, %1)": ([tensor(32, 64), tensor(64, 32, dtype=BF16)], "operands disagree"),
    "binary(%0, %0, %1) algorithm=add post=add@2": (
        [tensor(2), tensor(2, dtype=BF16)],
        "different dtypes",
    ),
    "prelu(%0, %1)": ([tensor(2, 3, 4, 4), tensor(3, dtype=BF16)], "one for each channel"),
    "prelu(%0, %1) ": ([tensor(2, 3, 1, 2, 2, 2), tensor(3)], "one for each channel"),
    "attention(%0, %0, %0, none) scale=0.5": ([tensor(1, 2, 3, 1032)], "other sizes"),
    "attention(%0, %0, %0, %1) scale=0.5": (
        [tensor(2, 3, 8), tensor(1, 2, 3, 3)],
        "too many dimensions",
    ),
    "attention(%0, %0, %0, %1) scale=0.25": (
        [tensor(1, 2, 3, 8), tensor(1, 2, 2, 3)],
        "not broadcast",
    ),
    "attention(%0, %0, %0, none) scale=0.5 swapped=1": ([tensor(2, 3, 8)], "other sizes"),
    "attention(%0, %1, %1, none) scale=0.5": (
        [tensor(1, 2, 3, 8), tensor(1, 2, 3, 9)],
        "other sizes",
    ),
    "attention(%0, %1, %1, none) scale=1.0": (
        [tensor(2, 2, 3, 8), tensor(1, 2, 3, 8)],
        "other sizes",
    ),
    "attention(%0, %0, %0, none, %1) scale=0.5 fill=0": (
        [tensor(1, 2, 3, 8), tensor(3, 3)],
        "not a tensor of bool",
    ),
    "permute(%0, 0, 0)": ([tensor(2, 2)], "repeats a dimension"),
    "expand(%0, 4, 6)": ([tensor(2, 6)], "must match the existing size"),
    "expand(%0, -1, 2, 6)": ([tensor(2, 6)], "non-existing dimension"),
    "unflatten(%0, 1, -1, 2)": ([tensor(2, 5)], "is invalid for input of size 5"),
    "flatten(%0, 1, 0)": ([tensor(2, 6)], "dimensions in the wrong order"),
    "layer_norm(%0, none, none, %1) eps=1e-5 dims=1": (
        [tensor(2), tensor(2, dtype=BF16)],
        "different dtypes",
    ),
    "layer_norm(%0, none, none, none) eps=1e-5 dims=3": (
        [tensor(2, 6)],
        "dimensions that are not there",
    ),
    "layer_norm(%0, none, none, none) eps=1e-5 dims=1 sizes=5": (
        [tensor(2, 6)],
        "over other sizes",
    ),
    "rope(%0, %1, %1)": ([tensor(2, 6), tensor(2, 6, dtype=BF16)], "different dtypes"),
    "rope(%0, %1, %2)": ([tensor(2, 6), tensor(2, 4), tensor(2, 1)], "tables of other sizes"),
    "rope(%0, %1, %1) interleaved=1": ([tensor(2, 6), tensor(2, 5)], "tables of other sizes"),
    "rope(%0, %1, %1) interleaved=0": ([tensor(2, 6), tensor(2, 8)], "tables of other sizes"),
    "rms_norm(%0, none) eps=1e-5 dims=1 dtype=bfloat16": ([tensor(2, 6)], "converts"),
    "batch_norm(%0, none, none, %1, %1) eps=1e-5": (
        [tensor(2, 6, 3, 3), tensor(6, dtype=BF16).abs()],
        "statistics are not float32",
    ),
    "batch_norm(%0, none, none, %1, %1) eps=1e-3": (
        [tensor(2, 6, 3), tensor(3).abs()],
        "statistics are not float32",
    ),
    "group_norm(%0, none, none) eps=1e-5 groups=4": (
        [tensor(2, 6, 3, 3)],
        "do not divide the channels",
    ),
    "resample(%0, 10, 10) algorithm=nearest scale_height=2.05 scale_width=2.05": (
        [tensor(1, 3, 5, 5)],
        "not that of the sizes",
    ),
    "max_pool(%0) kernel=3,3 stride=1,1 padding=2,0 dilation=1,1": (
        [tensor(1, 2, 5, 5)],
        "lie in the padding",
    ),
    "mean(%0) dims=0": ([tensor(3, 0).t()], "an empty tensor"),
}


@pytest.mark.parametrize("node", BAD_OPERANDS)
def test_mismatched_operands_are_refused(node: str) -> None:
    operands, why = BAD_OPERANDS[node]
    inputs = [f"%{i} = input tensor" for i in range(len(operands))]
    plan = plan_of(*inputs, f"%9 = {node}", "return %9")
    assert not plan.takes(operands, [])
    assert why in refusal(plan)


#: Constants without plain memory or without elements, and the nodes that read them.
BAD_CONSTANTS: dict[str, tuple[str, Callable[[], Tensor]]] = {
    "signs are to be turned": ("nonzero(%c)", lambda: torch._neg_view(tensor(6))),
    "zeros have no memory": ("nonzero(%c)", lambda: torch._efficientzerotensor((6,))),
    "rows have sizes of their own": ("nonzero(%c)", lambda: torch.nested.nested_tensor([ids(6)])),
    "keys have no heads": ("attention(%x, %c, %c, none)", lambda: torch.empty(1, 0, 3, 6)),
    "products sum nothing": ("matmul(%c, %c)", lambda: torch.empty(0, 0)),
    "layers have no features": ("linear(%c, %c, none)", lambda: torch.empty(3, 0)),
}


@pytest.mark.parametrize("which", BAD_CONSTANTS)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_constants_without_elements_of_their_own_are_refused(which: str) -> None:
    node, make = BAD_CONSTANTS[which]
    lines = ("zendnn-plan 3", "%x = input tensor", "%c = constant 0", f"%y = {node}", "return %y")
    plan = torch.classes.zendnn.Plan("\n".join(lines), [make()], "test")
    assert not plan.takes([tensor(1, 2, 3, 6)], [])
    assert re.search("an empty tensor|not a dense CPU tensor", refusal(plan))


@pytest.mark.parametrize("factor", ["1e-30", "1e-300", "inf", "nan", "-1"])
def test_images_of_one_line_are_resampled_by_any_factor(factor: str) -> None:
    """Positions that overflow integers are beyond the last line, not in the next image."""
    scales = f"scale_height={factor} scale_width={factor} align_corners=0"
    plan = plan_of(
        "%x = input tensor", f"%y = resample(%x, 4, 4) algorithm=linear {scales}", "return %y"
    )
    x = tensor(3, 2, 1, 1)
    assert plan.takes([x], []), refusal(plan)
    assert torch.equal(plan.run([x], [])[0], x.expand(3, 2, 4, 4))


#: Arguments so large that ZenDNN's computations with them overflow or take forever.
LARGE_WINDOWS = [
    *(
        f"{op}(%x) kernel={size} stride=1 padding={size // 2} dilation=1"
        for op in ("max_pool", "avg_pool")
        for size in (1 << 13, (1 << 31) - 1)
    ),
    *(
        f"convolution(%x, %w, none) stride={s} padding={p} dilation={d} groups=1 transposed={t}"
        for t in (0, 1)
        for s, p, d in [((1 << 31) - 1, (1 << 31) - 1, 1), (1, (1 << 31) - 1, (1 << 31) - 1)]
    ),
]


@pytest.mark.parametrize("node", LARGE_WINDOWS)
def test_windows_that_are_too_large_are_refused(node: str) -> None:
    lines = ("zendnn-plan 3", "%x = input tensor", "%w = constant 0", f"%y = {node}", "return %y")
    plan = torch.classes.zendnn.Plan("\n".join(lines), [tensor(4, 4, 3, 3)], "test")
    assert not plan.takes([tensor(1, 4, 5, 5)], [])
    assert "window" in refusal(plan)


@pytest.mark.parametrize("parts", ["sizes=1", f"chunks={1 << 40}", f"chunks={(1 << 63) - 1}"])
def test_a_split_into_very_many_parts_is_refused_without_listing_them(parts: str) -> None:
    plan = plan_of(
        "%x = input tensor",
        f"%a = expand(%x, {1 << 40})",
        f"%y, %z = split(%a) dim=0 {parts}",
        "return %y, %z",
    )
    assert not plan.takes([tensor(1)], [])
    assert "a split into other parts" in refusal(plan)


def test_results_that_an_operator_lacks_are_refused() -> None:
    plan = plan_of("%1 = input tensor", "%2, %3 = softmax(%1) dim=0", "return %2, %3")
    assert not plan.takes([tensor(2, 6)], [])
    assert "2 results" in refusal(plan)


@pytest.mark.parametrize(("tensors", "numbers"), [([], [3]), ([0], []), ([0, 0], [3]), ([], [])])
def test_a_wrong_number_of_inputs_is_refused(
    b: Builder, tensors: list[int], numbers: list[int]
) -> None:
    x, size = b.input(tensor(6)), b.input(3)
    plan = make_plan(region_of(b, b("view", b.eltwise("relu", x), size, -1)))
    with pytest.raises(RuntimeError, match=r"ZenDNN plan test"):
        plan.run([b.examples[0] for _ in tensors], numbers)
