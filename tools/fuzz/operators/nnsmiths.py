"""NNSmith's own operators, which keep their attributes in the instance."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from tools.fuzz.operators.row import F32

#: NNSmith's operators that are calls of their operands.
CALLS = {
    "ReLU": "torch.relu", "GELU": "F.gelu", "LeakyReLU": "F.leaky_relu", "Sigmoid": "torch.sigmoid",
    "Sin": "torch.sin", "Cos": "torch.cos", "Atan": "torch.atan", "Abs": "torch.abs",
    "Where": "torch.where", "Add": "torch.add", "Sub": "torch.sub", "Mul": "torch.mul",
    "Div": "torch.div", "Max": "torch.max", "Min": "torch.min", "Equal": "torch.eq",
    "Greater": "torch.gt", "Less": "torch.lt", "And": "torch.logical_and", "Or": "torch.logical_or",
    "Xor": "torch.logical_xor", "Pow": "torch.pow", "Floor": "torch.floor", "Ceil": "torch.ceil",
    "Round": "torch.round", "Sqrt": "torch.sqrt", "Log2": "torch.log2", "Neg": "torch.neg",
    "PTMatMul": "torch.matmul", "Flatten": "torch.flatten",
}  # fmt: skip


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
EXPRESSIONS: Mapping[str, Callable[[Any], str]] = {
    **{name: _call(function) for name, function in CALLS.items()},
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
OFTEN = {"Concat2": 6, "Concat3": 2, "Add": 5, "Mul": 3, "PTMatMul": 4, "Softmax": 3, "Reshape": 4,
          "Transpose": 4, "Slice": 4, "ReLU": 4, "GELU": 2, "Sigmoid": 2}  # fmt: skip
