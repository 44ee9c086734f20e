"""The reference interpreter of graphs: docs/plan.md in torch's own operators, slow and simple.

``evaluate`` runs a graph, ``run_region`` one region, ``run_regions`` a whole partition. The
``source`` of an opaque node is a function of its operands that returns a tuple of results.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.backends.zendnn.ir.graph import Graph, Region
from torch.backends.zendnn.ir.node import OPAQUE, Node, Operand, PostOp, Value
from torch.backends.zendnn.passes.partition import outside
from torch.backends.zendnn.table.operators import NUMBERS

Environment = dict[Value, Any]

ELTWISE: dict[str, Callable[[Tensor, float, float], Tensor]] = {
    "relu": lambda x, alpha, beta: x.clamp(min=0),
    "leaky_relu": lambda x, alpha, beta: torch.where(x > 0, x, x * alpha),
    "clip": lambda x, alpha, beta: x.clamp(alpha, beta),
    "sigmoid": lambda x, alpha, beta: 1 / (1 + (-x).exp()),
    "tanh": lambda x, alpha, beta: x.tanh(),
    "gelu": lambda x, alpha, beta: x / 2 * (1 + torch.erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x, alpha, beta: (
        x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "silu": lambda x, alpha, beta: x / (1 + (-x).exp()),
    "hardswish": lambda x, alpha, beta: x * (x + 3).clamp(0, 6) / 6,
    "hardsigmoid": lambda x, alpha, beta: (x + 3).clamp(0, 6) / 6,
    "elu": lambda x, alpha, beta: torch.where(x > 0, x, alpha * x.expm1()),
    "mish": lambda x, alpha, beta: x * F.softplus(x).tanh(),
    "softplus": lambda x, alpha, beta: F.softplus(x),
    "exp": lambda x, alpha, beta: x.exp(),
    "abs": lambda x, alpha, beta: x.abs(),
    "sqrt": lambda x, alpha, beta: x.sqrt(),
    "square": lambda x, alpha, beta: x * x,
    "log": lambda x, alpha, beta: x.log(),
    "affine": lambda x, alpha, beta: alpha * x + beta,
    "round": lambda x, alpha, beta: x.round(),
    "log2": lambda x, alpha, beta: x.log2(),
    "sin": lambda x, alpha, beta: x.sin(),
    "cos": lambda x, alpha, beta: x.cos(),
    "floor": lambda x, alpha, beta: x.floor(),
    "ceil": lambda x, alpha, beta: x.ceil(),
    "atan": lambda x, alpha, beta: x.atan(),
    "erf": lambda x, alpha, beta: torch.erf(x),
    "rsqrt": lambda x, alpha, beta: x.rsqrt(),
}

BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "max": torch.maximum,
    "min": torch.minimum,
}

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
#: The dtypes of all tensors that plans make.
MADE = {**DTYPES, "int64": torch.int64, "bool": torch.bool}


def evaluate(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """The graph's outputs for these inputs."""
    environment: Environment = dict(zip(graph.inputs, inputs, strict=True))
    run_nodes(graph.nodes, environment)
    return [read(value, environment) for value in graph.outputs]


def run_region(region: Region, inputs: Sequence[Any]) -> list[Any]:
    """The region's outputs, computed only from its inputs and constants."""
    environment: Environment = dict(zip(region.inputs, inputs, strict=True))
    run_nodes(region.nodes, environment)
    return [read(value, environment) for value in region.outputs]


def run_regions(graph: Graph, regions: Sequence[Region], inputs: Sequence[Any]) -> list[Any]:
    """The graph's outputs, with each region as one call."""
    environment: Environment = dict(zip(graph.inputs, inputs, strict=True))
    for item in schedule(graph, regions):
        if isinstance(item, Node):
            run_nodes([item], environment)
        else:
            results = run_region(item, [environment[value] for value in item.inputs])
            environment.update(zip(item.outputs, results, strict=True))
    return [read(value, environment) for value in graph.outputs]


def schedule(graph: Graph, regions: Iterable[Region]) -> list[Region | Node]:
    """Return regions and the nodes outside in an executable order.

    Raises AssertionError when there is none, or when a node reads a value that no region returns.
    """
    regions = tuple(regions)
    outer = outside(graph, regions)
    maker: dict[Value, Region | Node] = {}
    for node in outer:
        maker.update(dict.fromkeys(node.outputs, node))
    for region in regions:
        maker.update(dict.fromkeys(region.outputs, region))
    inputs = set(graph.inputs)
    order: list[Region | Node] = []
    state: dict[int, str] = {}

    def visit(item: Region | Node) -> None:
        if state.get(id(item)) == "done":
            return
        assert id(item) not in state, "regions wait for each other"
        state[id(item)] = "waiting"
        for value in item.inputs if isinstance(item, Region) else item.values():
            if value in maker:
                visit(maker[value])
            else:
                opaque = isinstance(item, Node) and item.op == OPAQUE
                is_done = value in inputs or value.constant is not None
                assert is_done or (opaque and value.producer is None), f"nobody makes {value.name}"
        state[id(item)] = "done"
        order.append(item)

    # A region takes the place of its last node, or an earlier one if a node reads its results.
    place: dict[Node, Region | Node] = {node: node for node in outer}
    place.update({_last_of(region): region for region in regions})
    for node in graph.nodes:
        if node in place:
            visit(place[node])
    ordered = [item for item in order if isinstance(item, Node) and item.ordered]
    assert ordered == [node for node in graph.nodes if node.ordered], "effects change their order"
    for value in graph.outputs:
        assert value in maker or value in inputs or value.constant is not None, (
            f"nobody returns {value.name}"
        )
    return order


def _last_of(region: Region) -> Node:
    return next(node for node in reversed(region.nodes) if node.op not in NUMBERS)


def run_nodes(nodes: Iterable[Node], environment: Environment) -> None:
    """Run nodes in order, and add their results to the environment."""
    for node in nodes:
        results = run_node(node, [read(operand, environment) for operand in node.inputs])
        environment.update(zip(node.outputs, results, strict=True))


def read(operand: Operand, environment: Environment) -> Any:
    """The value of an operand."""
    if not isinstance(operand, Value):
        return operand
    return environment[operand] if operand.constant is None else operand.constant


def run_node(node: Node, operands: Sequence[Any]) -> tuple[Any, ...]:
    """The results of one node."""
    if node.op == OPAQUE:
        results: tuple[Any, ...] = node.source(*operands)
        return results
    own = len(operands) - sum(post.operand is not None for post in node.post_ops)
    result = OPERATORS[node.op](dict(node.attributes), *operands[:own])
    if isinstance(result, tuple):
        assert not node.post_ops
        return result[: len(node.outputs)] if node.op in ("layer_norm", "rms_norm") else result
    for post in node.post_ops:
        result = apply_post_op(post, result, operands)
    return (result,)


def apply_post_op(post: PostOp, x: Tensor, operands: Sequence[Any]) -> Tensor:
    """Apply one post-op; x and the operand of a binary one broadcast to each other."""
    if post.operand is None:
        return ELTWISE[post.algorithm](x, post.alpha, post.beta)
    return BINARY[post.algorithm](x, operands[post.operand])


Attributes = dict[str, Any]


def linear(a: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    dtype = DTYPES[a["dtype"]] if "dtype" in a else x.dtype
    if dtype == x.dtype and (bias is None or bias.dtype == dtype):
        return F.linear(x, weight, bias)
    result = F.linear(x.float(), weight.float(), None if bias is None else bias.float())
    return result.to(dtype)


def convolution(a: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    dims = weight.dim() - 2
    if a.get("transposed"):
        functions = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
        extra = a.get("output_padding", (0,) * dims)
        return functions[dims](
            x, weight, bias, a["stride"], a["padding"], extra, a["groups"], a["dilation"]
        )
    begin: tuple[int, ...] = a["padding"]
    end = a.get("padding_end", begin)
    padded = F.pad(x, [p for pair in zip(begin[::-1], end[::-1], strict=True) for p in pair])
    functions = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
    return functions[dims](padded, weight, bias, a["stride"], 0, a["dilation"], a["groups"])


def eltwise(a: Attributes, x: Tensor) -> Tensor:
    return ELTWISE[a["algorithm"]](x, a.get("alpha", 0.0), a.get("beta", 0.0))


def prelu(_: Attributes, x: Tensor, slopes: Tensor) -> Tensor:
    return F.prelu(x, slopes)


def softmax(a: Attributes, x: Tensor) -> Tensor:
    return (F.log_softmax if a.get("log") else F.softmax)(x, a["dim"])


def layer_norm(
    a: Attributes, x: Tensor, weight: Tensor | None, bias: Tensor | None, residual: Tensor | None
) -> tuple[Tensor, Tensor]:
    total = x if residual is None else x + residual
    return F.layer_norm(total, total.shape[-a["dims"] :], weight, bias, a["eps"]), total


def rms_norm(
    a: Attributes, x: Tensor, weight: Tensor | None, bias: None, residual: Tensor | None
) -> tuple[Tensor, Tensor]:
    assert bias is None
    total = x if residual is None else x + residual
    dims = list(range(-a["dims"], 0))
    scaled = total * (total.square().mean(dims, keepdim=True) + a["eps"]).rsqrt()
    return (scaled if weight is None else scaled * weight).to(total.dtype), total


def rope(a: Attributes, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, kept = x[..., : cos.size(-1)], x[..., cos.size(-1) :]
    turned = torch.empty_like(first)
    half = first.size(-1) // 2
    pairs = (
        [(2 * i, 2 * i + 1) for i in range(half)]
        if a.get("interleaved")
        else [(i, half + i) for i in range(half)]
    )
    for i, j in pairs:
        turned[..., i], turned[..., j] = -first[..., j], first[..., i]
    return torch.cat([first * cos + turned * sin, kept], -1)


def group_norm(a: Attributes, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    return F.group_norm(x, a["groups"], weight, bias, a["eps"])


def resample(a: Attributes, x: Tensor, height: int | None, width: int | None) -> Tensor:
    spatial = x.dim() - 2
    wanted = (height, width)[-spatial:]
    factors = [a.get("scale_height", 0.0), a.get("scale_width", 0.0)][-spatial:]
    sizes = [
        math.floor(size * factor) if fixed is None else fixed
        for fixed, size, factor in zip(wanted, x.shape[2:], factors, strict=True)
    ]
    known = [factor or None for factor in factors]
    functions = {
        ("linear", 1): torch.ops.aten.upsample_linear1d,
        ("linear", 2): torch.ops.aten.upsample_bilinear2d,
        ("cubic", 2): torch.ops.aten.upsample_bicubic2d,
    }
    if a["algorithm"] == "nearest":
        return torch.ops.aten.upsample_nearest2d(x, sizes, *known)
    return functions[a["algorithm"], spatial](x, sizes, a.get("align_corners", False), *known)


def batch_norm(
    a: Attributes,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
) -> Tensor:
    return F.batch_norm(x, mean, variance, weight, bias, eps=a["eps"])


def where(a: Attributes, condition: Tensor, x: Tensor | None, y: Tensor | None) -> Tensor:
    number = a.get("value", 0.0)
    return torch.where(condition, number if x is None else x, number if y is None else y)


def attention(
    a: Attributes,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    chosen: Tensor | None = None,
) -> Tensor:
    assert q.dim() == k.dim() == v.dim()
    if a.get("grouped"):
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(-2, -1) * (a["scale"] or 1 / math.sqrt(q.shape[-1]))
    if chosen is not None:
        scores = scores.masked_fill(chosen == a["fill_where"], a["fill"])
    if mask is not None:
        scores = scores + mask
    if a.get("causal"):
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -math.inf)
    result = scores.softmax(-1) @ v
    return result.transpose(1, 2) if a.get("swapped") else result


def embedding_bag(
    a: Attributes,
    table: Tensor,
    ids: Tensor,
    offsets: Tensor | None,
    weights: Tensor | None = None,
) -> Tensor:
    if a["mode"] == "each":
        return F.embedding(ids, table)
    assert (offsets is None) == (ids.dim() == 2)
    last = bool(a.get("last_offset")) and offsets is not None
    return F.embedding_bag(
        ids,
        table,
        offsets,
        mode=a["mode"],
        include_last_offset=last,
        per_sample_weights=None if weights is None else weights.reshape(ids.shape),
    )


def embedding_bags(a: Attributes, *operands: Tensor) -> tuple[Tensor, ...]:
    count = a["count"]
    groups = [operands[i : i + count] for i in range(0, len(operands), count)]
    tables, ids, offsets, weights = groups + [(None,) * count] * (4 - len(groups))
    bags = zip(tables, ids, offsets, weights, strict=True)
    return tuple(embedding_bag(a, *bag) for bag in bags)


def max_pool(a: Attributes, x: Tensor) -> Tensor:
    functions = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
    return functions[len(a["kernel"])](
        x, a["kernel"], a.get("stride"), a["padding"], a["dilation"], a.get("ceil", False)
    )


def avg_pool(a: Attributes, x: Tensor) -> Tensor:
    functions = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
    wide = x.float() if x.dtype == torch.bfloat16 else x  # torch lacks a bfloat16 avg_pool3d
    return functions[len(a["kernel"])](
        wide, a["kernel"], a.get("stride"), a["padding"], a.get("ceil", False), a["include_pad"]
    ).to(x.dtype)


def adaptive_avg_pool(a: Attributes, x: Tensor) -> Tensor:
    functions = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
    return functions[len(a["sizes"])](x, a["sizes"])


def split(a: Attributes, x: Tensor) -> tuple[Tensor, ...]:
    if "sizes" in a:
        size, *more = a["sizes"]
        return x.split([size, *more] if more else size, a["dim"])
    return x.chunk(a["chunks"], a["dim"])


def argmax(a: Attributes, x: Tensor) -> Tensor:
    (dim,) = a.get("dims", ()) or (None,)
    return x.argmax(dim, a.get("keep", False))


def amax(a: Attributes, x: Tensor) -> Tensor:
    return x.amax(a.get("dims", ()), a.get("keep", False))


def amin(a: Attributes, x: Tensor) -> Tensor:
    return x.amin(a.get("dims", ()), a.get("keep", False))


def logsumexp(a: Attributes, x: Tensor) -> Tensor:
    return x.logsumexp(a.get("dims", ()) or tuple(range(x.dim())), a.get("keep", False))


def topk(a: Attributes, x: Tensor) -> Tensor:
    return x.topk(a["k"], a["dim"], a.get("largest", True), a.get("sorted", True)).indices


def index(a: Attributes, x: Tensor, *indices: Tensor | None) -> Tensor:
    return x[tuple(slice(None) if i is None else i.long() for i in indices)]


def cut(a: Attributes, x: Tensor, dim: int, start: int | None, end: int | None, step: int) -> Any:
    return torch.ops.aten.slice(x, dim, start, end, step)


def as_strided(a: Attributes, x: Tensor) -> Tensor:
    memory = torch.empty_strided(x.shape, a["input_strides"], dtype=x.dtype).copy_(x)
    return memory.as_strided(a["sizes"], a["strides"])


def scatter(a: Attributes, x: Tensor, indices: Tensor, value: Tensor) -> Tensor:
    value = value if value.dim() else value.expand_as(indices)
    return (x.scatter_add if a.get("add") else x.scatter)(a["dim"], indices, value)


def slice_scatter(a: Attributes, x: Tensor, value: Tensor, dim: int, *bounds: int | None) -> Tensor:
    result = x.clone()
    torch.ops.aten.slice(result, dim, *bounds).copy_(value)
    return result


def write(
    a: Attributes, x: Tensor, target: Tensor, value: Tensor, rows: Tensor | None = None
) -> Tensor:
    if rows is None:
        target.copy_(value)
    else:
        target[(slice(None),) * a["dim"] + (rows,)] = value
    return x


#: The arithmetic and logic of integers.
INTEGERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    **{name: BINARY[name] for name in ("add", "sub", "mul")},
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
}

#: Every operator as a function of its attributes and its operands, without those of post-ops.
OPERATORS: dict[str, Callable[..., Any]] = {
    "size": lambda a, x, dim: x.shape[dim],
    "numel": lambda a, x: x.numel(),
    "number_add": lambda a, x, y: x + y,
    "number_sub": lambda a, x, y: x - y,
    "number_mul": lambda a, x, y: x * y,
    "number_floordiv": lambda a, x, y: x // y,
    "number_remainder": lambda a, x, y: x % y,
    "power": lambda a, x: torch.tensor(float(x)) ** a["exponent"],
    "arange": lambda a, start, end, step: torch.arange(start, end, step),
    "scalar": lambda a, n: torch.tensor(n),
    "full": lambda a, *sizes: torch.full(sizes, a["value"], dtype=MADE[a["dtype"]]),
    "compare": lambda a, x, y: getattr(torch, a["algorithm"])(x, y),
    "integer": lambda a, x, y: INTEGERS[a["algorithm"]](x, y),
    "cumsum": lambda a, x: x.cumsum(a["dim"], dtype=MADE[a["dtype"]]),
    "write": write,
    "view": lambda a, x, *sizes: x.reshape(sizes),
    "flatten": lambda a, x, start, end: x.flatten(start, end),
    "unflatten": lambda a, x, dim, *sizes: x.unflatten(dim, sizes),
    "transpose": lambda a, x, first, second: x.transpose(first, second),
    "permute": lambda a, x, *dims: x.permute(dims),
    "unsqueeze": lambda a, x, dim: x.unsqueeze(dim),
    "squeeze": lambda a, x, dim: x.squeeze(dim),
    "expand": lambda a, x, *sizes: x.expand(sizes),
    "expand_as": lambda a, x, other: x.expand_as(other),
    "select": lambda a, x, dim, index: x.select(dim, index),
    "slice": cut,
    "split": split,
    "as_strided": as_strided,
    "contiguous": lambda a, x: x.contiguous(),
    "convolution": convolution,
    "linear": linear,
    "matmul": lambda a, x, y: x @ y,
    "eltwise": eltwise,
    "binary": lambda a, x, y: BINARY[a["algorithm"]](x, y),
    "nonzero": lambda a, x: x != 0,
    "where": where,
    "prelu": prelu,
    "softmax": softmax,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "rope": rope,
    "group_norm": group_norm,
    "batch_norm": batch_norm,
    "attention": attention,
    "embedding": lambda a, table, ids: F.embedding(ids, table),
    "embedding_bag": embedding_bag,
    "embedding_bags": embedding_bags,
    "gather_pairs": lambda a, x, rows, columns: x[..., rows, columns],
    "pairwise_dot": lambda a, x, rows, columns: (x @ x.mT)[..., rows, columns],
    "max_pool": max_pool,
    "avg_pool": avg_pool,
    "adaptive_avg_pool": adaptive_avg_pool,
    "resample": resample,
    "mean": lambda a, x: x.mean(a.get("dims", ()), a.get("keep", False)),
    "sum": lambda a, x: x.sum(a.get("dims", ()), a.get("keep", False)),
    "amax": amax,
    "amin": amin,
    "argmax": argmax,
    "logsumexp": logsumexp,
    "topk": topk,
    "index": index,
    "take_along": lambda a, x, indices: x.gather(a["dim"], indices.long()),
    "scatter": scatter,
    "slice_scatter": slice_scatter,
    "triu": lambda a, x: x.triu(a.get("diagonal", 0)),
    "tril": lambda a, x: x.tril(a.get("diagonal", 0)),
    "cat": lambda a, *parts: torch.cat(parts, a["dim"]),
    "stack": lambda a, *parts: torch.stack(parts, a["dim"]),
    "pad": lambda a, x, *pads: F.pad(x, pads, value=a["value"]),
    "roll": lambda a, x: x.roll(a["shifts"], a["dims"]),
    "to_like": lambda a, x, y: x.to(y.dtype),
    "to": lambda a, x: x.to(getattr(torch, a["dtype"])),
}
