"""Operators and layers whose results have their first operand's sizes."""

from __future__ import annotations

import random
from collections.abc import Callable

from tools.fuzz.model import Data
from tools.fuzz.operators.row import FEW, Attributes, Sizes, Text, weight

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


def with_dim(text: str) -> Callable[[list[Sizes], Attributes], Text]:
    def make(shapes: list[Sizes], a: Attributes) -> Text:
        sizes = list(shapes[0])
        return text.format("{0}", d=a["dim"], n=sizes[a["dim"]], k=a["k"], s=sizes), []

    return make


def any_dim(ranks: list[int]) -> Attributes:
    return {"dim": random.randrange(ranks[0]), "k": random.randint(-3, 3)}


def plain(text: str) -> Callable[[list[Sizes], Attributes], Text]:
    return lambda shapes, a: (text, [])


def drawn(draw: Callable[[], str]) -> Callable[[list[Sizes], Attributes], Text]:
    return lambda shapes, a: (draw(), [])


def layer_norm(shapes: list[Sizes], a: Attributes) -> Text:
    over = shapes[0][-random.choice([1, 1, 1, 2]) :]
    weights = [weight(over), weight(over)] if random.random() < 0.8 else []
    if weights and random.random() < 0.3:
        return f"F.layer_norm({{0}}, {over}, {{w0}}, None, 1e-5)", weights[:1]
    tail = "{w0}, {w1}" if weights else "None, None"
    return f"F.layer_norm({{0}}, {over}, {tail}, 1e-5)", weights


def rms_norm(shapes: list[Sizes], a: Attributes) -> Text:
    last = shapes[0][-1:]
    if random.random() < 0.5:
        return f"F.rms_norm({{0}}, {last}, {{w0}}, 1e-5)", [weight(last)]
    text = "{0} * torch.rsqrt({0}.pow(2).mean(-1, keepdim=True) + 1e-6) * {w0}"
    return text, [weight(last)]


def group_norm(shapes: list[Sizes], a: Attributes) -> Text:
    channels = shapes[0][1]
    groups = random.choice([g for g in range(1, channels + 1) if channels % g == 0])
    if random.random() < 0.2:
        return f"F.group_norm({{0}}, {groups})", []
    weights = [weight([channels]), weight([channels])]
    return f"F.group_norm({{0}}, {groups}, {{w0}}, {{w1}})", weights


def batch_norm(shapes: list[Sizes], a: Attributes) -> Text:
    c = [shapes[0][1]]
    weights = [weight(c), weight(c, "positive"), weight(c), weight(c)]
    tail = random.choice(["{w2}, {w3}", "{w2}, {w3}", "None, None"])
    used = weights if "w2" in tail else weights[:2]
    return f"F.batch_norm({{0}}, {{w0}}, {{w1}}, {tail}, False, 0.1, 1e-5)", used


def instance_norm(shapes: list[Sizes], a: Attributes) -> Text:
    return "F.instance_norm({0})", []


def prelu(shapes: list[Sizes], a: Attributes) -> Text:
    channels = shapes[0][1] if len(shapes[0]) > 1 and random.random() < 0.7 else 1
    # ZenDNN's primitive gives 0 where torch gives the -0 of a negative slope.
    return "F.prelu({0}, {w0})", [weight([channels], "positive")]


def per_channel(shapes: list[Sizes], a: Attributes) -> Text:
    shape = [1] * len(shapes[0])
    dim = random.randrange(len(shape))
    shape[dim] = shapes[0][dim]
    text = random.choice(["{0} * {w0}", "{0} + {w0}", "{w0} - {0}", "{w0} * {0}", "{0} / {w0}"])
    return text, [weight(shape, "positive")]


def full_weight(shapes: list[Sizes], a: Attributes) -> Text:
    return random.choice(["{0} + {w0}", "{0} * {w0}", "{w0} - {0}"]), [weight(shapes[0])]


def residual_linear(shapes: list[Sizes], a: Attributes) -> Text:
    n = shapes[0][-1]
    weights = [weight([n, n], "scaled"), weight([n])]
    form = random.choice(
        ["{0} + F.linear({0}, {w0}, {w1})", "F.relu(F.linear({0}, {w0}, {w1}) + {0})"]
    )
    return form, weights


def mlp(shapes: list[Sizes], a: Attributes) -> Text:
    n, m = shapes[0][-1], random.choice(FEW)
    act = random.choice(["F.gelu", "F.relu", "F.silu", "torch.tanh", "torch.sigmoid"])
    weights = [weight([m, n], "scaled"), weight([m]), weight([n, m], "scaled"), weight([n])]
    return f"F.linear({act}(F.linear({{0}}, {{w0}}, {{w1}})), {{w2}}, {{w3}})", weights


def gated_mlp(shapes: list[Sizes], a: Attributes) -> Text:
    n, m = shapes[0][-1], random.choice(FEW)
    weights = [weight([m, n], "scaled"), weight([m, n], "scaled"), weight([n, m], "scaled")]
    return "F.linear(F.silu(F.linear({0}, {w0})) * F.linear({0}, {w1}), {w2})", weights


def self_attention(shapes: list[Sizes], a: Attributes) -> Text:
    _, t, n = shapes[0]
    heads = random.choice([h for h in (1, 2, 3, 4, 8) if n % h == 0])
    weights = [weight([n, n], "scaled") for _ in range(4)]
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


def packed_attention(shapes: list[Sizes], a: Attributes) -> Text:
    _, t, n = shapes[0]
    heads = random.choice([h for h in (1, 2, 4) if n % h == 0])
    part = f"F.linear({{0}}, {{w0}}, {{w1}}).view(-1, {t}, 3, {heads}, {n // heads}).permute(2, 0, 3, 1, 4)"  # noqa: E501
    core = f"F.scaled_dot_product_attention({part}[0], {part}[1], {part}[2])"
    weights = [weight([3 * n, n], "scaled"), weight([3 * n])]
    return f"{core}.transpose(1, 2).reshape(-1, {t}, {n})", weights


def recurrent(shapes: list[Sizes], a: Attributes) -> Text:
    n = shapes[0][2]
    kind, layers, both, first = a["kind"], random.choice([1, 1, 2]), a["both"], a["first"]
    directions = 2 if both else 1
    hidden = a["hidden"]
    gates = {"lstm": 4, "gru": 3}[kind] * hidden
    weights: list[Data] = []
    for layer in range(layers):
        for _ in range(directions):
            depth = n if layer == 0 else hidden * directions
            weights += [weight([gates, depth], "scaled"), weight([gates, hidden], "scaled")]
            weights += [weight([gates]), weight([gates])]
    # torch's kernel reads and writes out of bounds when a batch or a depth does not match.
    x = f"{{0}}.expand(-1, -1, {n})"
    state = weight([layers * directions, 1, hidden])
    names = ", ".join(f"{{w{i}}}" for i in range(len(weights)))
    h = f"{{w{len(weights)}}}.expand(-1, {{0}}.size({0 if first else 1}), -1).contiguous()"
    hx = f"[{h}, {h} * 0.5]" if kind == "lstm" else h
    text = f"torch.{kind}({x}, {hx}, [{names}], True, {layers}, 0.0, False, {both}, {first})[0]"
    return text, [*weights, state]


def recurrent_gives(shapes: list[Sizes], a: Attributes) -> Sizes:
    return [*shapes[0][:2], a["hidden"] * (2 if a["both"] else 1)]


def recurrent_draw(ranks: list[int]) -> Attributes:
    return {
        "kind": random.choice(["lstm", "gru"]),
        "both": random.random() < 0.4,
        "first": random.random() < 0.6,
        "hidden": random.choice([1, 2, 3, 5, 8, 16, 17]),
    }
