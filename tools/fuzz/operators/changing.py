"""Operators and layers whose results have other sizes than their operands, or that take several."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from nnsmith.abstract.arith import nnsmith_add, nnsmith_div, nnsmith_eq, nnsmith_ge, nnsmith_mul

from tools.fuzz.operators.row import FEW, Attributes, Sizes, Text, maybe, weight


def linear(shapes: list[Sizes], a: Attributes) -> Text:
    n, m = shapes[0][-1], a["out"]
    if random.random() < 0.25:
        return "F.linear({0}, {w0})", [weight([m, n], "scaled")]
    return "F.linear({0}, {w0}, {w1})", [weight([m, n], "scaled"), weight([m])]


def out(ranks: list[int]) -> Attributes:
    return {"out": random.choice(FEW)}


def last_out(shapes: list[Sizes], a: Attributes) -> Sizes:
    return [*shapes[0][:-1], a["out"]]


def with_input(shapes: list[Sizes], a: Attributes) -> Text:
    """A layer's result concatenated with its input, as in dense blocks."""
    n, m = shapes[0][-1], a["out"]
    act = random.choice(["", "F.relu", "torch.sigmoid"])
    part = f"{act}(F.linear({{0}}, {{w0}}, {{w1}}))"
    order = [part, "{0}"] if a["k"] else ["{0}", part]
    text = f"torch.cat([{', '.join(order)}], -1)"
    return text, [weight([m, n], "scaled"), weight([m])]


def matmul_weight(shapes: list[Sizes], a: Attributes) -> Text:
    return "torch.matmul({0}, {w0})", [weight([shapes[0][-1], a["out"]], "scaled")]


def addmm(shapes: list[Sizes], a: Attributes) -> Text:
    m = a["out"]
    bias = random.choice([[m], [1, m], [1]])
    form = random.choice(["", ", beta=0.5, alpha=2.0", ", alpha=0.5"])
    text = "torch.addmm({w0}, {0}, {w1}" + form + ")"
    return text, [weight(bias), weight([shapes[0][-1], m], "scaled")]


def conv_draw(ranks: list[int]) -> Attributes:
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


def conv_gives(shapes: list[Sizes], a: Attributes) -> Sizes:
    spatial = [
        nnsmith_add(nnsmith_div(nnsmith_add(n, 2 * p - d * (k - 1) - 1), s), 1)
        for n, k, s, p, d in zip(
            shapes[0][2:], a["kernel"], a["stride"], a["padding"], a["dilation"], strict=True
        )
    ]
    return [shapes[0][0], shapes[0][1] if a["wise"] else a["out"], *spatial]


def conv_needs(shapes: list[Sizes], a: Attributes) -> list[Any]:
    return [
        nnsmith_ge(nnsmith_add(n, 2 * p), d * (k - 1) + 1)
        for n, k, p, d in zip(shapes[0][2:], a["kernel"], a["padding"], a["dilation"], strict=True)
    ]


def conv(shapes: list[Sizes], a: Attributes) -> Text:
    channels, dims = shapes[0][1], len(shapes[0]) - 2
    out = channels if a["wise"] else a["out"]
    common = [g for g in range(1, channels + 1) if channels % g == 0 and out % g == 0]
    groups = channels if a["wise"] else random.choice([1, 1, 1, *common])
    weights = [weight([out, channels // groups, *a["kernel"]], "scaled"), weight([out])]
    bias = maybe("{w1}", 0.7)
    text = f"F.conv{dims}d({{0}}, {{w0}}, {bias}, {a['stride']}, {a['padding']}, {a['dilation']}, {groups})"  # noqa: E501
    return text, weights if bias != "None" else weights[:1]


def conv_same(shapes: list[Sizes], a: Attributes) -> Text:
    channels, dims = shapes[0][1], len(shapes[0]) - 2
    k = random.choice([1, 3, 3, 5])
    groups = random.choice([1, 1, channels])
    weights = [weight([channels, channels // groups, *[k] * dims], "scaled"), weight([channels])]
    part = f"F.conv{dims}d({{0}}, {{w0}}, {{w1}}, 1, {k // 2}, 1, {groups})"
    form = random.choice(
        ["{p}", "{p} + {{0}}", "F.relu({p} + {{0}})", "F.silu({p})", "{{0}} * {p}"]
    )
    return form.replace("{p}", part).replace("{{0}}", "{0}"), weights


def conv_transpose(shapes: list[Sizes], a: Attributes) -> Text:
    channels, dims, out = shapes[0][1], len(shapes[0]) - 2, a["out"]
    common = [g for g in range(1, channels + 1) if channels % g == 0 and out % g == 0]
    groups = random.choice([1, 1, *common])
    weights = [weight([channels, out // groups, *[a["k"]] * dims], "scaled"), weight([out])]
    text = f"F.conv_transpose{dims}d({{0}}, {{w0}}, {{w1}}, {a['s']}, {a['p']}, 0, {groups})"
    return text, weights


def conv_transpose_gives(shapes: list[Sizes], a: Attributes) -> Sizes:
    spatial = [
        nnsmith_add(nnsmith_mul(nnsmith_add(n, -1), a["s"]), a["k"] - 2 * a["p"])
        for n in shapes[0][2:]
    ]
    return [shapes[0][0], a["out"], *spatial]


def conv_transpose_draw(ranks: list[int]) -> Attributes:
    k = random.choice([1, 2, 3, 4])
    s, p = random.choice([1, 2, 2, 3]), random.choice([0, 0, (k - 1) // 2])
    return {"k": k, "s": s, "p": p, "out": random.choice(FEW)}


def pool_draw(ranks: list[int]) -> Attributes:
    a = conv_draw(ranks)
    padding = [random.choice([0, k // 2]) for k in a["kernel"]]
    kind = random.choice(["max", "avg"])
    dilation = a["dilation"] if kind == "max" else [1] * len(padding)
    return {**a, "padding": padding, "dilation": dilation, "wise": True, "kind": kind}


def pool(shapes: list[Sizes], a: Attributes) -> Text:
    head = f"F.{a['kind']}_pool{len(shapes[0]) - 2}d({{0}}, {a['kernel']}, {a['stride']}"
    if a["kind"] == "max":
        return f"{head}, {a['padding']}, {a['dilation']}, False)", []
    return f"{head}, {a['padding']}, False, {random.choice([True, False])})", []


def adaptive(shapes: list[Sizes], a: Attributes) -> Text:
    kind = random.choice(["avg", "avg", "max"])
    return f"F.adaptive_{kind}_pool{len(shapes[0]) - 2}d({{0}}, {a['sizes']})", []


def global_pool(shapes: list[Sizes], a: Attributes) -> Text:
    dims = list(range(2, len(shapes[0])))
    form = random.choice(
        ["{0}.mean(%s)", "torch.mean({0}, %s)", "{0}.sum(%s)", "torch.amax({0}, %s)"]
    )
    return form % dims, []


def mean_keep(shapes: list[Sizes], a: Attributes) -> Text:
    form = random.choice(["mean", "mean", "sum", "amax", "var"])
    return f"{{0}}.{form}({a['dim']}, keepdim=True)", []


def kept(shapes: list[Sizes], a: Attributes) -> Sizes:
    return [1 if i == a["dim"] else n for i, n in enumerate(shapes[0])]


def select(shapes: list[Sizes], a: Attributes) -> Text:
    n = shapes[0][a["dim"]]
    return f"{{0}}.select({a['dim']}, {random.randrange(-n, n)})", []


def selected(shapes: list[Sizes], a: Attributes) -> Sizes:
    return [n for i, n in enumerate(shapes[0]) if i != a["dim"]]


def permute(shapes: list[Sizes], a: Attributes) -> Text:
    return f"{{0}}.permute({a['order']})" + random.choice(["", ".contiguous()"]), []


def permute_draw(ranks: list[int]) -> Attributes:
    return {"order": random.sample(range(ranks[0]), ranks[0])}


def index_select(shapes: list[Sizes], a: Attributes) -> Text:
    ids = weight([a["k"]], "index", dtype="int64", limit=shapes[0][a["dim"]])
    return f"torch.index_select({{0}}, {a['dim']}, {{w0}})", [ids]


def indexed(shapes: list[Sizes], a: Attributes) -> Sizes:
    return [a["k"] if i == a["dim"] else n for i, n in enumerate(shapes[0])]


def index_draw(ranks: list[int]) -> Attributes:
    return {"dim": random.randrange(ranks[0]), "k": random.choice([1, 2, 3, 5])}


def scatter(shapes: list[Sizes], a: Attributes) -> Text:
    dim, n = a["dim"], shapes[0][a["dim"]]
    ids = weight([n], "permutation", dtype="int64")
    shape = [n if i == dim else 1 for i in range(len(shapes[0]))]
    index = f"{{w0}}.view({shape}).expand({list(shapes[0])})"
    call = random.choice(["scatter", "scatter_add"])
    return f"{{0}}.{call}({dim}, {index}, {{0}} * 2)", [ids]


def gather(shapes: list[Sizes], a: Attributes) -> Text:
    ids = weight(shapes[0], "index", dtype="int64", limit=shapes[0][a["dim"]])
    return f"torch.gather({{0}}, {a['dim']}, {{w0}})", [ids]


def embedding(shapes: list[Sizes], a: Attributes) -> Text:
    ids = "({0}.abs() % 5)"
    return f"F.embedding({ids}, {{w0}})", [weight([5, a["out"]])]


def embedding_bag(shapes: list[Sizes], a: Attributes) -> Text:
    mode = random.choice(["sum", "mean", "max"])
    table = weight([7, a["out"]])
    return f"F.embedding_bag({{0}}.abs() % 7, {{w0}}, mode='{mode}')", [table]


def attention(shapes: list[Sizes], a: Attributes) -> Text:
    rank = len(shapes[0])
    q, k = shapes[0][-2], shapes[1][-2]
    form = random.choice(["plain", "causal", "mask", "bool", "scale", "named"])
    start = "F.scaled_dot_product_attention({0}, {1}, {2}"
    if form == "mask":
        shape = random.choice([[q, k], [1, k], [*[1] * (rank - 2), q, k]])
        return f"{start}, {{w0}})", [weight(shape)]
    if form == "bool":
        return f"{start}, {{w0}})", [weight([q, k], dtype="bool")]
    if form == "named":
        scores = "torch.matmul({0}, {1}.transpose(-2, -1))"
        return f"torch.matmul(F.softmax({scores} * 0.25, dim=-1), {{2}})", []
    return start + {"plain": "", "causal": ", None, 0.0, True", "scale": ", scale=0.2"}[
        form
    ] + ")", []


def attention_needs(shapes: list[Sizes], a: Attributes) -> list[Any]:
    q, k, v = shapes
    pairs = [*zip(q[:-2], k[:-2], strict=True), *zip(q[:-2], v[:-2], strict=True)]
    return [nnsmith_eq(x, y) for x, y in [*pairs, (q[-1], k[-1]), (k[-2], v[-2])]]


def batched(shapes: list[Sizes], a: Attributes) -> Text:
    return ("torch.matmul({0}, {1}.transpose(-2, -1))" if a["turned"] else "{0} @ {1}"), []


def batched_draw(ranks: list[int]) -> Attributes:
    return {"turned": random.random() < 0.5}


def batched_needs(shapes: list[Sizes], a: Attributes) -> list[Any]:
    x, y = shapes
    inner = y[-1] if a["turned"] else y[-2]
    return [nnsmith_eq(i, j) for i, j in [*zip(x[:-2], y[:-2], strict=True), (x[-1], inner)]]


def batched_gives(shapes: list[Sizes], a: Attributes) -> Sizes:
    return [*shapes[0][:-1], shapes[1][-2] if a["turned"] else shapes[1][-1]]


def stack(shapes: list[Sizes], a: Attributes) -> Text:
    return f"torch.stack([{{0}}, {{1}}], {a['dim']})", []


def stacked(shapes: list[Sizes], a: Attributes) -> Sizes:
    return [*shapes[0][: a["dim"]], 2, *shapes[0][a["dim"] :]]


def equal_sizes(shapes: list[Sizes], a: Attributes) -> list[Any]:
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


def pair(text: str) -> Callable[[list[Sizes], Attributes], Text]:
    def make(shapes: list[Sizes], a: Attributes) -> Text:
        n = shapes[0][-1]
        weights = [weight([n, n], "scaled") for _ in range(2 * ("w1" in text))]
        return text.replace("{n}", str(n)), weights

    return make


IMAGES = ((3, 4, 4, 4, 5),)


def resized(shapes: list[Sizes], a: Attributes) -> Text:
    mode = random.choice(["nearest", "bilinear"])
    corners = random.choice(["True", "False"]) if mode == "bilinear" else "None"
    return (
        f"F.interpolate({{0}}, scale_factor={a['k']}.0, mode='{mode}', align_corners={corners})",
        [],
    )
