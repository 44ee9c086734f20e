"""The table of operators in random models: NNSmith's own, and those that it lacks.

NNSmith chooses matching sizes. The table gives each operator's result shape (sizes may be Z3's)
and, once sizes are known, its Python expression and its weights.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nnsmith.abstract.arith import nnsmith_add, nnsmith_div, nnsmith_eq, nnsmith_ge, nnsmith_mul
from nnsmith.abstract.dtype import DType
from nnsmith.abstract.op import AbsOpBase, mark_abstract
from nnsmith.abstract.tensor import AbsTensor
from nnsmith.materialize.torch.forward import ALL_TORCH_OPS

from tools.fuzz import functions
from tools.fuzz.model import Data

Sizes = list[Any]
Attributes = dict[str, Any]
#: An expression as ``model.Node`` has it, and the weights in it.
Text = tuple[str, list[Data]]

F32, I64, BOOL = DType.float32, DType.int64, DType.bool
FEW = (1, 1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 24, 31, 32, 33, 48, 64, 65)


@dataclass(frozen=True)
class Operator:
    """An operator that NNSmith lacks.

    ``ranks`` lists the ranks that each input may have; ``draw`` chooses attributes for given ranks;
    ``needs`` returns the constraints on sizes, ``gives`` the result's sizes. ``back`` returns the
    inputs' ranks for a result's rank; with it, NNSmith may insert the operator before existing
    ones.
    """

    name: str
    ranks: tuple[tuple[int, ...], ...]
    text: Callable[[list[Sizes], Attributes], Text]
    gives: Callable[[list[Sizes], Attributes], Sizes] = lambda shapes, a: list(shapes[0])
    needs: Callable[[list[Sizes], Attributes], list[Any]] = lambda shapes, a: []
    draw: Callable[[list[int]], Attributes] = lambda ranks: {}
    back: Callable[[int], list[int]] | None = None
    takes: tuple[DType, ...] = (F32,)
    returns: DType = F32
    often: int = 1


def _weight(shape: Sequence[int], kind: str = "normal", **more: Any) -> Data:
    return Data("", tuple(shape), kind=kind, **more)


def _up_to(last: int, first: int = 1) -> tuple[int, ...]:
    return tuple(range(first, last + 1))


def _maybe(text: str, chance: float = 0.5) -> str:
    return text if random.random() < chance else "None"


# Operators that keep their input's shape.

#: Beside the functions in the engine's own table.
ELEMENTWISE = {
    "selu": "F.selu({0})",
    "logsigmoid": "F.logsigmoid({0})",
    "pow2": "{0} ** 2",
    "pow3": "torch.pow({0}, 3)",
    "reciprocal": "torch.reciprocal({0})",
    "sign": "torch.sign({0})",
    "half_and_back": "{0}.half().to({0}.dtype)",
    "add_scalar": "{0} + 1.5",
    "rsub_scalar": "1.25 - {0}",
    "mul_scalar": "{0} * 0.5",
    "div_scalar": "{0} / 3.0",
    "rdiv_scalar": "2.0 / {0}",
    "alpha": "torch.add({0}, {0}, alpha=2)",
    "dropout": "F.dropout({0}, 0.5, False)",
    "contiguous": "{0}.contiguous()",
    "clone": "{0}.clone()",
    "detach": "{0}.detach()",
    "nan_to_num": "torch.nan_to_num({0})",
    "in_place_relu": "{0}.mul(1.5).relu_()",
    "in_place_add": "{0}.clone().add_({0})",
    "in_place_fill": "{0}.clone().masked_fill_({0} > 0.5, 0.0)",
    "masked_fill": "{0}.masked_fill({0} < 0, -1.0)",
    "where_scalar": "torch.where({0} > 0, {0}, 0.25)",
    "quick_gelu": "{0} * torch.sigmoid(1.702 * {0})",
    "swish": "{0} * torch.sigmoid({0})",
}
WITH_DIM = {
    "log_softmax": "F.log_softmax({0}, {d})",
    "softmin": "F.softmax(-{0}, {d})",
    "cumsum": "torch.cumsum({0}, {d})",
    "flip": "torch.flip({0}, [{d}])",
    "roll": "torch.roll({0}, [{k}], [{d}])",
    "sort": "torch.sort({0}, {d})[0]",
    "normalize": "F.normalize({0}, 2.0, {d})",
    "halves_swapped": "torch.cat([{0}.narrow({d}, 0, {n} // 2), {0}.narrow({d}, {n} // 2, {n} - {n} // 2)][::-1], {d})",  # noqa: E501
    "minus_mean": "{0} - {0}.mean([{d}], keepdim=True)",
    "minus_max": "{0} - {0}.amax({d}, keepdim=True)",
    "minus_min_of_all": "{0} - {0}.min()",
    "scaled_by_max": "{0} / ({0}.abs().amax([0, {d}], keepdim=True) + 1)",
    "gate_of_sum": "{0} * torch.sigmoid({0}.sum({d}, keepdim=True))",
    "chunks": "torch.cat(torch.chunk({0}, 3, {d}), {d})",
    "unbound": "torch.stack(torch.unbind({0}, {d}), {d})",
    "slice_written": "{0}.slice_scatter({0}.narrow({d}, 0, ({n} + 1) // 2) * 2, {d}, 0, ({n} + 1) // 2)",  # noqa: E501
    "row_written": "{0}.select_scatter({0}.select({d}, 0) * 2, {d}, -1)",
    "cut_and_padded": "F.pad({0}.flatten(0), [1, -1]).view({s})",
    "standardised": "{0} / ({0}.std({d}, unbiased=False, keepdim=True) + 1)",
    "squeezed": "{0}.unsqueeze({d}).squeeze({d})",
    "swapped_twice": "{0}.transpose({d}, 0).contiguous().transpose({d}, 0)",
    "part_written": "part_written({0}, {d}, ({n} + 1) // 2)",
    "turned_written": "turned_written({0}, {d})",
    "windowed": "F.pad({0}.flatten(0), [1, 2])[1:-2].view({s})",
}


def _with_dim(text: str) -> Callable[[list[Sizes], Attributes], Text]:
    def make(shapes: list[Sizes], a: Attributes) -> Text:
        sizes = list(shapes[0])
        return text.format("{0}", d=a["dim"], n=sizes[a["dim"]], k=a["k"], s=sizes), []

    return make


def _any_dim(ranks: list[int]) -> Attributes:
    return {"dim": random.randrange(ranks[0]), "k": random.randint(-3, 3)}


def _plain(text: str) -> Callable[[list[Sizes], Attributes], Text]:
    return lambda shapes, a: (text, [])


#: NNSmith's operators that are calls of their operands.
_CALLS = {
    "ReLU": "torch.relu", "GELU": "F.gelu", "LeakyReLU": "F.leaky_relu", "Sigmoid": "torch.sigmoid",
    "Sin": "torch.sin", "Cos": "torch.cos", "Atan": "torch.atan", "Abs": "torch.abs",
    "Where": "torch.where", "Add": "torch.add", "Sub": "torch.sub", "Mul": "torch.mul",
    "Div": "torch.div", "Max": "torch.max", "Min": "torch.min", "Equal": "torch.eq",
    "Greater": "torch.gt", "Less": "torch.lt", "And": "torch.logical_and", "Or": "torch.logical_or",
    "Xor": "torch.logical_xor", "Pow": "torch.pow", "Floor": "torch.floor", "Ceil": "torch.ceil",
    "Round": "torch.round", "Sqrt": "torch.sqrt", "Log2": "torch.log2", "Neg": "torch.neg",
    "PTMatMul": "torch.matmul", "Flatten": "torch.flatten",
}  # fmt: skip


def _drawn(draw: Callable[[], str]) -> Callable[[list[Sizes], Attributes], Text]:
    return lambda shapes, a: (draw(), [])


def _functions() -> list[tuple[str, Callable[[], str]]]:
    """Return the functions of the engine's table that NNSmith lacks."""
    return list(functions.expressions({text.partition(".")[2] for text in _CALLS.values()}))


def _layer_norm(shapes: list[Sizes], a: Attributes) -> Text:
    over = shapes[0][-random.choice([1, 1, 1, 2]) :]
    weights = [_weight(over), _weight(over)] if random.random() < 0.8 else []
    if weights and random.random() < 0.3:
        return f"F.layer_norm({{0}}, {over}, {{w0}}, None, 1e-5)", weights[:1]
    tail = "{w0}, {w1}" if weights else "None, None"
    return f"F.layer_norm({{0}}, {over}, {tail}, 1e-5)", weights


def _rms_norm(shapes: list[Sizes], a: Attributes) -> Text:
    last = shapes[0][-1:]
    if random.random() < 0.5:
        return f"F.rms_norm({{0}}, {last}, {{w0}}, 1e-5)", [_weight(last)]
    text = "{0} * torch.rsqrt({0}.pow(2).mean(-1, keepdim=True) + 1e-6) * {w0}"
    return text, [_weight(last)]


def _group_norm(shapes: list[Sizes], a: Attributes) -> Text:
    channels = shapes[0][1]
    groups = random.choice([g for g in range(1, channels + 1) if channels % g == 0])
    if random.random() < 0.2:
        return f"F.group_norm({{0}}, {groups})", []
    weights = [_weight([channels]), _weight([channels])]
    return f"F.group_norm({{0}}, {groups}, {{w0}}, {{w1}})", weights


def _batch_norm(shapes: list[Sizes], a: Attributes) -> Text:
    c = [shapes[0][1]]
    weights = [_weight(c), _weight(c, "positive"), _weight(c), _weight(c)]
    tail = random.choice(["{w2}, {w3}", "{w2}, {w3}", "None, None"])
    used = weights if "w2" in tail else weights[:2]
    return f"F.batch_norm({{0}}, {{w0}}, {{w1}}, {tail}, False, 0.1, 1e-5)", used


def _instance_norm(shapes: list[Sizes], a: Attributes) -> Text:
    return "F.instance_norm({0})", []


def _prelu(shapes: list[Sizes], a: Attributes) -> Text:
    channels = shapes[0][1] if len(shapes[0]) > 1 and random.random() < 0.7 else 1
    # ZenDNN's primitive gives 0 where torch gives the -0 of a negative slope.
    return "F.prelu({0}, {w0})", [_weight([channels], "positive")]


def _per_channel(shapes: list[Sizes], a: Attributes) -> Text:
    shape = [1] * len(shapes[0])
    dim = random.randrange(len(shape))
    shape[dim] = shapes[0][dim]
    text = random.choice(["{0} * {w0}", "{0} + {w0}", "{w0} - {0}", "{w0} * {0}", "{0} / {w0}"])
    return text, [_weight(shape, "positive")]


def _full_weight(shapes: list[Sizes], a: Attributes) -> Text:
    return random.choice(["{0} + {w0}", "{0} * {w0}", "{w0} - {0}"]), [_weight(shapes[0])]


def _residual_linear(shapes: list[Sizes], a: Attributes) -> Text:
    n = shapes[0][-1]
    weights = [_weight([n, n], "scaled"), _weight([n])]
    form = random.choice(
        ["{0} + F.linear({0}, {w0}, {w1})", "F.relu(F.linear({0}, {w0}, {w1}) + {0})"]
    )
    return form, weights


def _mlp(shapes: list[Sizes], a: Attributes) -> Text:
    n, m = shapes[0][-1], random.choice(FEW)
    act = random.choice(["F.gelu", "F.relu", "F.silu", "torch.tanh", "torch.sigmoid"])
    weights = [_weight([m, n], "scaled"), _weight([m]), _weight([n, m], "scaled"), _weight([n])]
    return f"F.linear({act}(F.linear({{0}}, {{w0}}, {{w1}})), {{w2}}, {{w3}})", weights


def _gated_mlp(shapes: list[Sizes], a: Attributes) -> Text:
    n, m = shapes[0][-1], random.choice(FEW)
    weights = [_weight([m, n], "scaled"), _weight([m, n], "scaled"), _weight([n, m], "scaled")]
    return "F.linear(F.silu(F.linear({0}, {w0})) * F.linear({0}, {w1}), {w2})", weights


def _self_attention(shapes: list[Sizes], a: Attributes) -> Text:
    _, t, n = shapes[0]
    heads = random.choice([h for h in (1, 2, 3, 4, 8) if n % h == 0])
    weights = [_weight([n, n], "scaled") for _ in range(4)]
    qkv = [
        f"F.linear({{0}}, {{w{i}}}).view(-1, {t}, {heads}, {n // heads}).transpose(1, 2)"
        for i in range(3)
    ]
    q, k, v = qkv
    causal = random.choice(["True", "False"])
    if random.random() < 0.6:
        core = f"F.scaled_dot_product_attention({q}, {k}, {v}, None, 0.0, {causal})"
    else:
        scale = random.choice([f"/ {max(n // heads, 1) ** 0.5}", "* 0.3"])
        core = f"torch.matmul(torch.softmax(torch.matmul({q}, {k}.transpose(-2, -1)) {scale}, -1), {v})"  # noqa: E501
    return f"F.linear({core}.transpose(1, 2).reshape(-1, {t}, {n}), {{w3}})", weights


def _packed_attention(shapes: list[Sizes], a: Attributes) -> Text:
    _, t, n = shapes[0]
    heads = random.choice([h for h in (1, 2, 4) if n % h == 0])
    part = f"F.linear({{0}}, {{w0}}, {{w1}}).view(-1, {t}, 3, {heads}, {n // heads}).permute(2, 0, 3, 1, 4)"  # noqa: E501
    core = f"F.scaled_dot_product_attention({part}[0], {part}[1], {part}[2])"
    weights = [_weight([3 * n, n], "scaled"), _weight([3 * n])]
    return f"{core}.transpose(1, 2).reshape(-1, {t}, {n})", weights


def _recurrent(shapes: list[Sizes], a: Attributes) -> Text:
    n = shapes[0][2]
    kind, layers, both, first = a["kind"], random.choice([1, 1, 2]), a["both"], a["first"]
    directions = 2 if both else 1
    hidden = a["hidden"]
    gates = {"lstm": 4, "gru": 3}[kind] * hidden
    weights: list[Data] = []
    for layer in range(layers):
        for _ in range(directions):
            depth = n if layer == 0 else hidden * directions
            weights += [_weight([gates, depth], "scaled"), _weight([gates, hidden], "scaled")]
            weights += [_weight([gates]), _weight([gates])]
    # torch's kernel reads and writes out of bounds when a batch or a depth does not match.
    x = f"{{0}}.expand(-1, -1, {n})"
    state = _weight([layers * directions, 1, hidden])
    names = ", ".join(f"{{w{i}}}" for i in range(len(weights)))
    h = f"{{w{len(weights)}}}.expand(-1, {{0}}.size({0 if first else 1}), -1).contiguous()"
    hx = f"[{h}, {h} * 0.5]" if kind == "lstm" else h
    text = f"torch.{kind}({x}, {hx}, [{names}], True, {layers}, 0.0, False, {both}, {first})[0]"
    return text, [*weights, state]


def _recurrent_gives(shapes: list[Sizes], a: Attributes) -> Sizes:
    return [*shapes[0][:2], a["hidden"] * (2 if a["both"] else 1)]


def _recurrent_draw(ranks: list[int]) -> Attributes:
    return {
        "kind": random.choice(["lstm", "gru"]),
        "both": random.random() < 0.4,
        "first": random.random() < 0.6,
        "hidden": random.choice([1, 2, 3, 5, 8, 16, 17]),
    }


# Operators that change the shape.


def _linear(shapes: list[Sizes], a: Attributes) -> Text:
    n, m = shapes[0][-1], a["out"]
    if random.random() < 0.25:
        return "F.linear({0}, {w0})", [_weight([m, n], "scaled")]
    return "F.linear({0}, {w0}, {w1})", [_weight([m, n], "scaled"), _weight([m])]


def _out(ranks: list[int]) -> Attributes:
    return {"out": random.choice(FEW)}


def _last_out(shapes: list[Sizes], a: Attributes) -> Sizes:
    return [*shapes[0][:-1], a["out"]]


def _with_input(shapes: list[Sizes], a: Attributes) -> Text:
    """A layer's result concatenated with its input, as in dense blocks."""
    n, m = shapes[0][-1], a["out"]
    act = random.choice(["", "F.relu", "torch.sigmoid"])
    part = f"{act}(F.linear({{0}}, {{w0}}, {{w1}}))"
    order = [part, "{0}"] if a["k"] else ["{0}", part]
    text = f"torch.cat([{', '.join(order)}], -1)"
    return text, [_weight([m, n], "scaled"), _weight([m])]


def _matmul_weight(shapes: list[Sizes], a: Attributes) -> Text:
    return "torch.matmul({0}, {w0})", [_weight([shapes[0][-1], a["out"]], "scaled")]


def _addmm(shapes: list[Sizes], a: Attributes) -> Text:
    m = a["out"]
    bias = random.choice([[m], [1, m], [1]])
    form = random.choice(["", ", beta=0.5, alpha=2.0", ", alpha=0.5"])
    text = "torch.addmm({w0}, {0}, {w1}" + form + ")"
    return text, [_weight(bias), _weight([shapes[0][-1], m], "scaled")]


def _conv_draw(ranks: list[int]) -> Attributes:
    dims = ranks[0] - 2
    kernel = [random.choice([1, 1, 2, 3, 3, 5]) for _ in range(dims)]
    if random.random() < 0.6:
        kernel = [kernel[0]] * dims
    return {
        "kernel": kernel,
        "stride": [random.choice([1, 1, 2, 3]) for _ in range(dims)],
        "padding": [random.choice([0, k // 2, k // 2, k - 1]) for k in kernel],
        "dilation": [random.choice([1, 1, 1, 2]) for _ in range(dims)],
        "out": random.choice(FEW),
        "wise": random.random() < 0.25,
    }


def _conv_gives(shapes: list[Sizes], a: Attributes) -> Sizes:
    spatial = [
        nnsmith_add(nnsmith_div(nnsmith_add(n, 2 * p - d * (k - 1) - 1), s), 1)
        for n, k, s, p, d in zip(
            shapes[0][2:], a["kernel"], a["stride"], a["padding"], a["dilation"], strict=True
        )
    ]
    return [shapes[0][0], shapes[0][1] if a["wise"] else a["out"], *spatial]


def _conv_needs(shapes: list[Sizes], a: Attributes) -> list[Any]:
    return [
        nnsmith_ge(nnsmith_add(n, 2 * p), d * (k - 1) + 1)
        for n, k, p, d in zip(shapes[0][2:], a["kernel"], a["padding"], a["dilation"], strict=True)
    ]


def _conv(shapes: list[Sizes], a: Attributes) -> Text:
    channels, dims = shapes[0][1], len(shapes[0]) - 2
    out = channels if a["wise"] else a["out"]
    common = [g for g in range(1, channels + 1) if channels % g == 0 and out % g == 0]
    groups = channels if a["wise"] else random.choice([1, 1, 1, *common])
    weights = [_weight([out, channels // groups, *a["kernel"]], "scaled"), _weight([out])]
    bias = _maybe("{w1}", 0.7)
    text = f"F.conv{dims}d({{0}}, {{w0}}, {bias}, {a['stride']}, {a['padding']}, {a['dilation']}, {groups})"  # noqa: E501
    return text, weights if bias != "None" else weights[:1]


def _conv_same(shapes: list[Sizes], a: Attributes) -> Text:
    channels, dims = shapes[0][1], len(shapes[0]) - 2
    k = random.choice([1, 3, 3, 5])
    groups = random.choice([1, 1, channels])
    weights = [_weight([channels, channels // groups, *[k] * dims], "scaled"), _weight([channels])]
    part = f"F.conv{dims}d({{0}}, {{w0}}, {{w1}}, 1, {k // 2}, 1, {groups})"
    form = random.choice(
        ["{p}", "{p} + {{0}}", "F.relu({p} + {{0}})", "F.silu({p})", "{{0}} * {p}"]
    )
    return form.replace("{p}", part).replace("{{0}}", "{0}"), weights


def _conv_transpose(shapes: list[Sizes], a: Attributes) -> Text:
    channels, dims, out = shapes[0][1], len(shapes[0]) - 2, a["out"]
    common = [g for g in range(1, channels + 1) if channels % g == 0 and out % g == 0]
    groups = random.choice([1, 1, *common])
    weights = [_weight([channels, out // groups, *[a["k"]] * dims], "scaled"), _weight([out])]
    text = f"F.conv_transpose{dims}d({{0}}, {{w0}}, {{w1}}, {a['s']}, {a['p']}, 0, {groups})"
    return text, weights


def _conv_transpose_gives(shapes: list[Sizes], a: Attributes) -> Sizes:
    spatial = [
        nnsmith_add(nnsmith_mul(nnsmith_add(n, -1), a["s"]), a["k"] - 2 * a["p"])
        for n in shapes[0][2:]
    ]
    return [shapes[0][0], a["out"], *spatial]


def _conv_transpose_draw(ranks: list[int]) -> Attributes:
    k = random.choice([1, 2, 3, 4])
    s, p = random.choice([1, 2, 2, 3]), random.choice([0, 0, (k - 1) // 2])
    return {"k": k, "s": s, "p": p, "out": random.choice(FEW)}


def _pool_draw(ranks: list[int]) -> Attributes:
    a = _conv_draw(ranks)
    padding = [random.choice([0, k // 2]) for k in a["kernel"]]
    kind = random.choice(["max", "avg"])
    dilation = a["dilation"] if kind == "max" else [1] * len(padding)
    return {**a, "padding": padding, "dilation": dilation, "wise": True, "kind": kind}


def _pool(shapes: list[Sizes], a: Attributes) -> Text:
    head = f"F.{a['kind']}_pool{len(shapes[0]) - 2}d({{0}}, {a['kernel']}, {a['stride']}"
    if a["kind"] == "max":
        return f"{head}, {a['padding']}, {a['dilation']}, False)", []
    return f"{head}, {a['padding']}, False, {random.choice([True, False])})", []


def _adaptive(shapes: list[Sizes], a: Attributes) -> Text:
    kind = random.choice(["avg", "avg", "max"])
    return f"F.adaptive_{kind}_pool{len(shapes[0]) - 2}d({{0}}, {a['sizes']})", []


def _global_pool(shapes: list[Sizes], a: Attributes) -> Text:
    dims = list(range(2, len(shapes[0])))
    form = random.choice(
        ["{0}.mean(%s)", "torch.mean({0}, %s)", "{0}.sum(%s)", "torch.amax({0}, %s)"]
    )
    return form % dims, []


def _mean_keep(shapes: list[Sizes], a: Attributes) -> Text:
    form = random.choice(["mean", "mean", "sum", "amax", "var"])
    return f"{{0}}.{form}({a['dim']}, keepdim=True)", []


def _kept(shapes: list[Sizes], a: Attributes) -> Sizes:
    return [1 if i == a["dim"] else n for i, n in enumerate(shapes[0])]


def _select(shapes: list[Sizes], a: Attributes) -> Text:
    n = shapes[0][a["dim"]]
    return f"{{0}}.select({a['dim']}, {random.randrange(-n, n)})", []


def _selected(shapes: list[Sizes], a: Attributes) -> Sizes:
    return [n for i, n in enumerate(shapes[0]) if i != a["dim"]]


def _permute(shapes: list[Sizes], a: Attributes) -> Text:
    return f"{{0}}.permute({a['order']})" + random.choice(["", ".contiguous()"]), []


def _permute_draw(ranks: list[int]) -> Attributes:
    return {"order": random.sample(range(ranks[0]), ranks[0])}


def _index_select(shapes: list[Sizes], a: Attributes) -> Text:
    ids = _weight([a["k"]], "index", dtype="int64", limit=shapes[0][a["dim"]])
    return f"torch.index_select({{0}}, {a['dim']}, {{w0}})", [ids]


def _indexed(shapes: list[Sizes], a: Attributes) -> Sizes:
    return [a["k"] if i == a["dim"] else n for i, n in enumerate(shapes[0])]


def _index_draw(ranks: list[int]) -> Attributes:
    return {"dim": random.randrange(ranks[0]), "k": random.choice([1, 2, 3, 5])}


def _scatter(shapes: list[Sizes], a: Attributes) -> Text:
    dim, n = a["dim"], shapes[0][a["dim"]]
    ids = _weight([n], "permutation", dtype="int64")
    shape = [n if i == dim else 1 for i in range(len(shapes[0]))]
    index = f"{{w0}}.view({shape}).expand({list(shapes[0])})"
    call = random.choice(["scatter", "scatter_add"])
    return f"{{0}}.{call}({dim}, {index}, {{0}} * 2)", [ids]


def _gather(shapes: list[Sizes], a: Attributes) -> Text:
    ids = _weight(shapes[0], "index", dtype="int64", limit=shapes[0][a["dim"]])
    return f"torch.gather({{0}}, {a['dim']}, {{w0}})", [ids]


def _embedding(shapes: list[Sizes], a: Attributes) -> Text:
    ids = "({0}.abs() % 5)"
    return f"F.embedding({ids}, {{w0}})", [_weight([5, a["out"]])]


def _embedding_bag(shapes: list[Sizes], a: Attributes) -> Text:
    mode = random.choice(["sum", "mean", "max"])
    table = _weight([7, a["out"]])
    return f"F.embedding_bag({{0}}.abs() % 7, {{w0}}, mode='{mode}')", [table]


def _attention(shapes: list[Sizes], a: Attributes) -> Text:
    rank = len(shapes[0])
    q, k = shapes[0][-2], shapes[1][-2]
    form = random.choice(["plain", "causal", "mask", "bool", "scale", "named"])
    start = "F.scaled_dot_product_attention({0}, {1}, {2}"
    if form == "mask":
        shape = random.choice([[q, k], [1, k], [*[1] * (rank - 2), q, k]])
        return f"{start}, {{w0}})", [_weight(shape)]
    if form == "bool":
        return f"{start}, {{w0}})", [_weight([q, k], dtype="bool")]
    if form == "named":
        scores = "torch.matmul({0}, {1}.transpose(-2, -1))"
        return f"torch.matmul(F.softmax({scores} * 0.25, dim=-1), {{2}})", []
    return start + {"plain": "", "causal": ", None, 0.0, True", "scale": ", scale=0.2"}[
        form
    ] + ")", []


def _attention_needs(shapes: list[Sizes], a: Attributes) -> list[Any]:
    q, k, v = shapes
    pairs = [*zip(q[:-2], k[:-2], strict=True), *zip(q[:-2], v[:-2], strict=True)]
    return [nnsmith_eq(x, y) for x, y in [*pairs, (q[-1], k[-1]), (k[-2], v[-2])]]


def _batched(shapes: list[Sizes], a: Attributes) -> Text:
    return ("torch.matmul({0}, {1}.transpose(-2, -1))" if a["turned"] else "{0} @ {1}"), []


def _batched_draw(ranks: list[int]) -> Attributes:
    return {"turned": random.random() < 0.5}


def _batched_needs(shapes: list[Sizes], a: Attributes) -> list[Any]:
    x, y = shapes
    inner = y[-1] if a["turned"] else y[-2]
    return [nnsmith_eq(i, j) for i, j in [*zip(x[:-2], y[:-2], strict=True), (x[-1], inner)]]


def _batched_gives(shapes: list[Sizes], a: Attributes) -> Sizes:
    return [*shapes[0][:-1], shapes[1][-2] if a["turned"] else shapes[1][-1]]


def _stack(shapes: list[Sizes], a: Attributes) -> Text:
    return f"torch.stack([{{0}}, {{1}}], {a['dim']})", []


def _stacked(shapes: list[Sizes], a: Attributes) -> Sizes:
    return [*shapes[0][: a["dim"]], 2, *shapes[0][a["dim"] :]]


def _equal_sizes(shapes: list[Sizes], a: Attributes) -> list[Any]:
    return [nnsmith_eq(x, y) for x, y in zip(shapes[0], shapes[1], strict=True)]


PAIRS = {
    "residual_norm": "F.layer_norm({0} + {1}, [{n}])",
    "mul_add": "torch.addcmul({0}, {0}, {1}, value=0.5)",
    "gate": "torch.sigmoid({0}) * {1}",
    "add_relu": "F.relu({0} + {1})",
    "lerp": "torch.lerp({0}, {1}, 0.3)",
    "in_place_added": "{0}.clone().add_({1}, alpha=0.5)",
    "to_like": "{0}.type_as({1})",
    "expand_as": "{0}.expand_as({1})",
    "maximum": "torch.maximum({0}, {1})",
    "two_layers_added": "F.linear({0}, {w0}) + F.linear({1}, {w1})",
}


def _pair(text: str) -> Callable[[list[Sizes], Attributes], Text]:
    def make(shapes: list[Sizes], a: Attributes) -> Text:
        n = shapes[0][-1]
        weights = [_weight([n, n], "scaled") for _ in range(2 * ("w1" in text))]
        return text.replace("{n}", str(n)), weights

    return make


def _same_rank(count: int) -> Callable[[int], list[int]]:
    return lambda rank: [rank] * count


_KEEP: Mapping[str, Any] = {"back": _same_rank(1)}
_IMAGES = ((3, 4, 4, 4, 5),)


def _resized(shapes: list[Sizes], a: Attributes) -> Text:
    mode = random.choice(["nearest", "bilinear"])
    corners = random.choice(["True", "False"]) if mode == "bilinear" else "None"
    return (
        f"F.interpolate({{0}}, scale_factor={a['k']}.0, mode='{mode}', align_corners={corners})",
        [],
    )


OPERATORS: tuple[Operator, ...] = (
    *(Operator(n, (_up_to(5),), _plain(t), **_KEEP) for n, t in ELEMENTWISE.items()),
    *(Operator(n, (_up_to(5),), _drawn(draw), **_KEEP) for n, draw in _functions()),
    *(Operator(n, (_up_to(5),), _with_dim(t), draw=_any_dim, **_KEEP) for n, t in WITH_DIM.items()),
    *(
        Operator(n, (_up_to(5),) * 2, _pair(t), needs=_equal_sizes, back=_same_rank(2))
        for n, t in PAIRS.items()
    ),
    Operator("layer_norm", (_up_to(5, 2),), _layer_norm, often=4, **_KEEP),
    Operator("rms_norm", (_up_to(5, 2),), _rms_norm, often=3, **_KEEP),
    Operator("group_norm", (_up_to(5, 3),), _group_norm, often=3, **_KEEP),
    Operator("batch_norm", (_up_to(5, 2),), _batch_norm, often=4, **_KEEP),
    Operator(
        "instance_norm",
        ((3, 4),),
        _instance_norm,
        needs=lambda shapes, a: [nnsmith_ge(shapes[0][2], 2)],
        **_KEEP,
    ),
    Operator("prelu", (_up_to(5, 2),), _prelu, often=2, **_KEEP),
    Operator("per_channel", (_up_to(5),), _per_channel, often=4, **_KEEP),
    Operator("full_weight", (_up_to(4),), _full_weight, often=2, **_KEEP),
    Operator("residual_linear", (_up_to(4, 2),), _residual_linear, often=3, **_KEEP),
    Operator("mlp", (_up_to(4),), _mlp, often=3, **_KEEP),
    Operator("gated_mlp", (_up_to(4),), _gated_mlp, often=2, **_KEEP),
    Operator("self_attention", ((3,),), _self_attention, often=4, **_KEEP),
    Operator("packed_attention", ((3,),), _packed_attention, often=2, **_KEEP),
    Operator("recurrent", ((3,),), _recurrent, _recurrent_gives, draw=_recurrent_draw, often=3),
    Operator("linear", (_up_to(5),), _linear, _last_out, draw=_out, often=10),
    Operator(
        "linear_beside",
        (_up_to(4, 2),),
        _with_input,
        lambda s, a: [*s[0][:-1], nnsmith_add(s[0][-1], a["out"])],
        draw=lambda ranks: {**_out(ranks), "k": random.randrange(2)},
        often=3,
    ),
    Operator("matmul_weight", (_up_to(5),), _matmul_weight, _last_out, draw=_out, often=3),
    Operator("addmm", ((2,),), _addmm, _last_out, draw=_out, often=3),
    Operator("convolution", _IMAGES, _conv, _conv_gives, _conv_needs, _conv_draw, often=12),
    Operator("convolution_same", ((3, 4, 5),), _conv_same, often=6, **_KEEP),
    Operator(
        "conv_transpose",
        ((3, 4, 5),),
        _conv_transpose,
        _conv_transpose_gives,
        draw=_conv_transpose_draw,
        often=4,
    ),
    Operator("pool", ((3, 4, 5),), _pool, _conv_gives, _conv_needs, _pool_draw, often=6),
    Operator(
        "adaptive_pool",
        ((3, 4),),
        _adaptive,
        lambda s, a: [*s[0][:2], *a["sizes"]],
        draw=lambda ranks: {"sizes": [random.choice([1, 1, 2, 3])] * (ranks[0] - 2)},
        often=2,
    ),
    Operator("global_pool", ((3, 4, 5),), _global_pool, lambda s, a: list(s[0][:2]), often=2),
    Operator("mean_keep", (_up_to(5),), _mean_keep, _kept, draw=_any_dim, often=3),
    Operator("select", (_up_to(5),), _select, _selected, draw=_any_dim, often=2),
    Operator(
        "permute",
        (_up_to(5, 2),),
        _permute,
        lambda s, a: [s[0][i] for i in a["order"]],
        draw=_permute_draw,
        often=5,
    ),
    Operator("index_select", (_up_to(5),), _index_select, _indexed, draw=_index_draw, often=2),
    Operator("scatter", (_up_to(4),), _scatter, draw=_any_dim, often=2),
    Operator("gather", (_up_to(4),), _gather, draw=_any_dim, often=1),
    Operator(
        "resize",
        ((4,),),
        _resized,
        lambda s, a: [*s[0][:2], *[nnsmith_mul(n, a["k"]) for n in s[0][2:]]],
        draw=lambda ranks: {"k": random.choice([1, 2, 3])},
        often=2,
    ),
    Operator(
        "embedding",
        (_up_to(3),),
        _embedding,
        lambda s, a: [*s[0], a["out"]],
        draw=_out,
        takes=(I64,),
        often=4,
        back=None,
    ),
    Operator(
        "embedding_bag",
        ((2,),),
        _embedding_bag,
        lambda s, a: [s[0][0], a["out"]],
        draw=_out,
        takes=(I64,),
        often=4,
    ),
    Operator(
        "attention",
        ((3, 4),) * 3,
        _attention,
        lambda s, a: [*s[0][:-1], s[2][-1]],
        _attention_needs,
        back=_same_rank(3),
        takes=(F32,) * 3,
        often=8,
    ),
    Operator(
        "batched_matmul",
        ((2, 3, 4, 5),) * 2,
        _batched,
        _batched_gives,
        _batched_needs,
        _batched_draw,
        back=_same_rank(2),
        often=6,
    ),
    Operator("stack", (_up_to(4),) * 2, _stack, _stacked, _equal_sizes, _any_dim, often=3),
)


def _nnsmith_class(row: Operator) -> type[AbsOpBase]:
    def attributes(self: Any, inputs: list[AbsTensor]) -> Attributes:
        if "drawn" not in self.extra_attrs:
            self.extra_attrs["drawn"] = row.draw([x.ndims for x in inputs])
        return self.extra_attrs["drawn"]  # type: ignore[no-any-return]

    def init(self: Any) -> None:
        AbsOpBase.__init__(self)
        self.inp_ranks = list(row.ranks)
        self.out_ranks = [row.ranks[0] if row.back else ()]

    def type_transfer(self: Any, inputs: list[AbsTensor]) -> list[AbsTensor]:
        shapes = [list(x.shape) for x in inputs]
        return [AbsTensor(row.gives(shapes, attributes(self, inputs)), row.returns)]

    def requires(self: Any, inputs: list[AbsTensor]) -> list[Any]:
        return row.needs([list(x.shape) for x in inputs], attributes(self, inputs))

    def deduct(self: Any, outputs: list[AbsTensor]) -> list[tuple[int, DType]]:
        assert row.back is not None
        return [(rank, F32) for rank in row.back(outputs[0].ndims)]

    takes = row.takes * len(row.ranks) if len(row.takes) == 1 else row.takes
    body = {
        "__init__": init,
        "in_dtypes": [takes],
        "out_dtypes": [(row.returns,)],
        "same_inp_dims": len(row.ranks) > 1,
        "type_transfer": type_transfer,
        "requires": requires,
        "deduct_inp_ranks_and_dtype": deduct,
        "row": row,
    }
    return mark_abstract("zendnn")(type(row.name, (AbsOpBase,), body))  # type: ignore[no-any-return]


# NNSmith's own operators, which keep attributes in the instance.


def _dim(op: Any) -> int:
    return int(op.extra_attrs["reduce_dim"])


def _reduction(text: str) -> Callable[[Any], str]:
    return lambda op: text.format(d=_dim(op))


def _slice(op: Any) -> str:
    n = op.input_like[0].shape[op.extra_attrs["axis"]]
    start, end, region = op.start, op.end, op.extra_attrs["region"]
    if region in ("left", "mid"):
        start -= n
    if region == "left" and end < n:
        end -= n
    dims = ["::"] * op.extra_attrs["ndims"]
    dims[op.extra_attrs["axis"]] = f"{start}:{'' if end > 2**62 else end}:{op.step}"
    return f"{{0}}[{', '.join(dims)}]"


def _pad(mode: str) -> Callable[[Any], str]:
    more = ", value=0.5" if mode == "constant" else ""
    return lambda op: f"F.pad({{0}}, {list(op.padding_list)}, mode='{mode}'{more})"


def _cat(op: Any) -> str:
    names = ", ".join(f"{{{i}}}" for i in range(op.arity))
    return f"torch.cat([{names}], {op.extra_attrs['axis']})"


def _pool2d(kind: str) -> Callable[[Any], str]:
    return lambda op: (
        f"F.{kind}_pool2d({{0}}, [{op.kernel_h_size}, {op.kernel_w_size}], "
        f"{op.stride}, {op.padding})"
    )


def _expand(op: Any) -> str:
    """Unchanged sizes are -1, so that other sizes fit too."""
    new, old = list(op.output_like[0].shape), list(op.input_like[0].shape)
    for i in range(1, min(len(new), len(old)) + 1):
        if new[-i] == old[-i]:
            new[-i] = -1
    return f"{{0}}.expand({new})"


def _reshape(op: Any) -> str:
    sizes = list(op.target_shape)
    if sizes:
        sizes[0] = -1
    return f"{{0}}.{random.choice(['reshape', 'reshape', 'contiguous().view'])}({sizes})"


def _transpose(op: Any) -> str:
    return f"{{0}}.transpose{tuple(op._init_swap_dims(op.input_like[0].shape))}"


def _interpolate(mode: str) -> Callable[[Any], str]:
    more = "" if mode == "nearest" else ", align_corners=False"
    return lambda op: f"F.interpolate({{0}}, size={list(op.size)}, mode='{mode}'{more})"


def _call(name: str) -> Callable[[Any], str]:
    return lambda op: f"{name}({', '.join(f'{{{i}}}' for i in range(op.n_input()))})"


def _clip(op: Any) -> str:
    bound = "1.5" if op.input_like[0].dtype == F32 else "1"
    return f"torch.clip({{0}}, -{bound}, {bound})"


_REDUCTIONS = {
    "TorchReduceSum": "{{0}}.sum({d})", "ReduceMin": "{{0}}.min({d})[0]",
    "ReduceMax": "{{0}}.max({d})[0]", "ReduceMean": "{{0}}.mean({d})",
    "ArgMin": "{{0}}.argmin({d})", "ArgMax": "{{0}}.argmax({d})", "Squeeze": "{{0}}.squeeze({d})",
}  # fmt: skip

#: Expressions of NNSmith's operators; others are not used.
NNSMITH: Mapping[str, Callable[[Any], str]] = {
    **{name: _call(function) for name, function in _CALLS.items()},
    **{name: _reduction(text) for name, text in _REDUCTIONS.items()},
    "Clip": _clip,
    "Softmax": lambda op: f"F.softmax({{0}}, {op.dim})",
    "MaxPool2d": _pool2d("max"),
    "AvgPool2d": _pool2d("avg"),
    "Slice": _slice,
    "ConstPad": _pad("constant"),
    "ReflectPad": _pad("reflect"),
    "ReplicatePad": _pad("replicate"),
    **{f"ExpandLast{i}": _expand for i in range(1, 5)},
    "Reshape": _reshape,
    "Transpose": _transpose,
    "NearestInterp": _interpolate("nearest"),
    "LinearInterp": _interpolate("linear"),
    "BilinearInterp": _interpolate("bilinear"),
    "BicubicInterp": _interpolate("bicubic"),
    "TrilinearInterp": _interpolate("trilinear"),
    "Tril": lambda op: f"{{0}}.tril({op.diagonal})",
    "Triu": lambda op: f"{{0}}.triu({op.diagonal})",
    **{f"Concat{i}": _cat for i in range(1, 6)},
    "CastBool": lambda op: "{0}.to(torch.bool)",
    "CastF32": lambda op: "{0}.to({float})",
    "CastI32": lambda op: "{0}.to(torch.int32)",
    "CastI64": lambda op: "{0}.to(torch.int64)",
}
#: Weights of the operators that matter most to plans and eager overrides.
_OFTEN = {"Concat2": 6, "Concat3": 2, "Add": 5, "Mul": 3, "PTMatMul": 4, "Softmax": 3, "Reshape": 4,
          "Transpose": 4, "Slice": 4, "ReLU": 4, "GELU": 2, "Sigmoid": 2}  # fmt: skip


def operator_set() -> list[type[AbsOpBase]]:
    """Return the operators' classes for NNSmith, each repeated by its weight."""
    chosen: list[type[AbsOpBase]] = []
    for kind in ALL_TORCH_OPS:
        if kind.__name__ in NNSMITH:
            chosen += [kind] * _OFTEN.get(kind.__name__, 1)
    for row in OPERATORS:
        chosen += [_nnsmith_class(row)] * row.often
    return chosen


def text_of(op: AbsOpBase) -> Text:
    """Return an operator's expression and weights; its sizes must be known."""
    row = getattr(op, "row", None)
    if row is None:
        return NNSMITH[type(op).__name__](op), []
    shapes = [list(x.shape) for x in op.input_like]
    return row.text(shapes, op.extra_attrs.get("drawn", {}))  # type: ignore[no-any-return]


def names() -> list[str]:
    """Return the names of all operators that a model may have."""
    return sorted({kind.__name__ for kind in operator_set()})
