"""Attention, and the layers that torch makes of it."""

from __future__ import annotations

import math

from torch.backends.zendnn.frontends.calls import BOOL, FLOATING, Call, Refused
from torch.backends.zendnn.ir.node import Operand, Value
from torch.backends.zendnn.table.notation import Attribute


def attention(call: Call) -> None:
    """Scaled dot product attention, with a mask or a causal one, not both."""
    scale = 0.0 if call.absent("scale") else call.real("scale")
    if scale == 0.0 and not call.absent("scale"):
        raise Refused("scale is 0")
    if call.real("dropout_p") != 0.0:
        raise Refused("dropout_p is not 0")
    causal = bool(call.python("is_causal"))
    if causal and not call.absent("attn_mask"):
        raise Refused("it is causal and has a mask")
    mask = None if call.absent("attn_mask") else call.tensor("attn_mask", FLOATING | BOOL)
    inputs = [call.tensor("query"), call.tensor("key"), call.tensor("value"), mask]
    more: dict[str, Attribute] = {"grouped": True} if call.python("enable_gqa") else {}
    call.result("attention", inputs, scale=scale, causal=causal, **more)


def constants(call: Call, layer: str, suffix: str = "") -> list[Value]:
    """Return the weight and the bias of one of the layers of an operator."""
    names = (f"{layer}_{part}{suffix}" for part in ("weight", "bias"))
    return [call.graph.constant(call.weight(name)) for name in names]


def self_attention(call: Call, query: Operand, key: Operand, value: Operand) -> Value:
    """Multi-head attention with its projections, of (batch, time, features)."""
    heads = call.integer("num_heads" if call.has("num_heads") else "num_head")
    features = call.integer("embed_dim")
    if call.weight("qkv_weight").shape != (3 * features, features) or features % heads:
        raise Refused("qkv_weight has another shape")
    weights, biases = (call.weight(name).chunk(3) for name in ("qkv_weight", "qkv_bias"))
    projected = []
    for x, *parts in zip((query, key, value), weights, biases, strict=True):
        y = call.step("linear", [x, *map(call.graph.constant, parts)])
        y = call.step("unflatten", [y, -1, heads, features // heads])
        projected.append(call.step("transpose", [y, 1, 2]))
    inputs: list[Operand] = [*projected, None]
    attributes: dict[str, Attribute] = {"scale": 0.0, "causal": False, "additive": True}
    if not call.absent("mask"):
        # Whatever is not 0 hides.
        hidden: Operand = call.step("nonzero", [call.tensor("mask", FLOATING | BOOL)])
        mask_type = call.python("mask_type")
        if mask_type == 1:  # (batch, source)
            hidden = call.step("unsqueeze", [call.step("unsqueeze", [hidden, 1]), 1])
        elif mask_type not in (0, 2):  # (target, source), or for each head
            raise Refused(f"mask_type is {mask_type}")
        inputs.append(hidden)
        attributes |= {"fill": -math.inf, "fill_where": True}
    y = call.step("transpose", [call.step("attention", inputs, **attributes), 1, 2])
    return call.step("linear", [call.step("flatten", [y, 2, 3]), *constants(call, "proj")])


def multi_head_attention(call: Call) -> None:
    """What nn.MultiheadAttention is when it is not trained."""
    call.identity(self_attention(call, *map(call.tensor, ("query", "key", "value"))))


def encoder_layer(call: Call) -> None:
    """What nn.TransformerEncoderLayer is when it is not trained."""
    first = bool(call.python("norm_first"))

    def norm(x: Operand, position: int) -> Value:
        affine = constants(call, "norm", f"_{position}")
        return call.step("layer_norm", [x, *affine, None], eps=call.real("eps"), dims=1)

    def feed_forward(x: Operand) -> Value:
        y = call.step("linear", [x, *constants(call, "ffn", "_1")])
        name = "gelu" if call.python("use_gelu") else "relu"
        y = call.step("eltwise", [y], algorithm=name, alpha=0.0, beta=0.0)
        return call.step("linear", [y, *constants(call, "ffn", "_2")])

    x: Value = call.tensor("src")
    for position, layer in ((1, lambda y: self_attention(call, y, y, y)), (2, feed_forward)):
        y = layer(norm(x, position) if first else x)
        x = call.step("binary", [x, y], algorithm="add")
        x = x if first else norm(x, position)
    call.identity(x)
