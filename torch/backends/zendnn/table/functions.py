"""The one table of algorithms: functions of one or two elements, post-ops, and what modes name.

It serves passes, importers of aten operators, C++, kernels and docs/plan.md, as ``operators.py``
does, and imports no torch. ``notation.py`` explains the mappings.
"""

from __future__ import annotations

import math
from typing import Any

from torch.backends.zendnn.table.notation import Function


def _plain(name: str, primitive: str, aten: str = "", **more: Any) -> Function:
    """A function without parameters, whose name torch shares if no mapping is given."""
    aten = aten or f"aten::{name}(self)"
    return Function(name, (aten,), primitive=primitive, **{"alpha": 0.0, **more})


def _binary(name: str, aten: str, **more: Any) -> Function:
    """A function of two elements: an algorithm of ``binary``, and a post-op."""
    return Function(name, (aten,), primitive=f"binary_{name}", operands=("a", "b"), **more)


def _pair(name: str, aten: str = "", enumerator: str = "") -> Function:
    """A function of two elements that are compared, or of two integers: never a post-op."""
    aten = f"aten::{aten or name}.Tensor(self, other)"
    return Function(name, (aten,), operands=("a", "b"), enumerator=enumerator)


_UNBOUNDED: dict[str, Any] = {"magnifies": math.inf}

FUNCTIONS = {
    row.name: row
    for row in (
        _plain("relu", "eltwise_relu", keeps_integers=True, exact=True),
        Function(
            "leaky_relu",
            ("aten::leaky_relu(self, negative_slope=alpha)",),
            "slope",
            primitive="eltwise_relu",
        ),
        Function(
            "clip",
            (
                "aten::clamp(self, min=alpha|-inf, max=beta|inf)",
                "aten::hardtanh(self, min_val=alpha, max_val=beta)",
                "aten::relu6(self) alpha=0.0 beta=6.0",
                "aten::clamp_min(self, min=alpha) beta=inf",
                "aten::clamp_max(self, max=beta) alpha=-inf",
            ),
            "low, high",
            primitive="eltwise_clip",
            keeps_integers=True,
        ),
        _plain("sigmoid", "eltwise_logistic", is_typed=True),
        _plain("tanh", "eltwise_tanh"),
        _plain(
            "gelu",
            "eltwise_gelu_erf",
            "aten::gelu(self, approximate='none')",
            doc="exact",
            is_typed=True,
        ),
        _plain(
            "gelu_tanh", "eltwise_gelu_tanh", "aten::gelu(self, approximate='tanh')", is_typed=True
        ),
        _plain("silu", "eltwise_swish", alpha=1.0, is_typed=True),
        _plain("hardswish", "eltwise_hardswish", alpha=1 / 6, beta=0.5),
        _plain("hardsigmoid", "eltwise_hardsigmoid", alpha=1 / 6, beta=0.5),
        Function(
            "elu",
            ("aten::elu(self, alpha=alpha, scale=1, input_scale=1)",),
            "alpha",
            primitive="eltwise_elu",
        ),
        _plain("mish", "eltwise_mish"),
        _plain("softplus", "", "aten::softplus(self, beta=1, threshold=20)"),
        _plain("exp", "eltwise_exp", **_UNBOUNDED),
        _plain("abs", "eltwise_abs", keeps_integers=True, exact=True),
        _plain("sqrt", "eltwise_sqrt", **_UNBOUNDED),
        _plain("square", "eltwise_square", keeps_integers=True),
        # ZenDNN's logarithm is only exact to 1e-6 near 1, where the result is near 0.
        _plain("log", ""),
        Function("affine", (), "alpha·x + beta", primitive="eltwise_linear", keeps_integers=True),
        _plain("round", "eltwise_round", keeps_integers=True, **_UNBOUNDED),
        _plain("log2", "", is_typed=True),
        _plain("sin", ""),
        _plain("cos", ""),
        _plain("floor", "", keeps_integers=True),
        _plain("ceil", "", keeps_integers=True),
        _plain("atan", ""),
        _plain("erf", "", foreign=True),
        _plain("rsqrt", "", foreign=True),
    )
}

COMBINATIONS = {
    row.name: row
    for row in (
        _binary("add", "aten::add.Tensor(self, other)", commutes=True),
        _binary("sub", "aten::sub.Tensor(self, other)"),
        # By operands of 0.5 to 1.5, as trials have them.
        _binary("mul", "aten::mul.Tensor(self, other)", magnifies=1.5, commutes=True),
        _binary("div", "aten::div.Tensor(self, other)", magnifies=2.0),
        _binary("max", "aten::maximum(self, other)", commutes=True),
        _binary("min", "aten::minimum(self, other)", commutes=True),
    )
}

#: Algorithms of ``compare``, and then those of ``integer``, by name.
PAIRS = {
    row.name: row
    for row in (
        *map(_pair, ("eq", "ne", "lt", "le", "gt", "ge")),
        *map(_pair, ("add", "sub", "mul")),
        _pair("and", "bitwise_and", "bit_and"),
        _pair("or", "bitwise_or", "bit_or"),
        _pair("xor", "bitwise_xor", "bit_xor"),
    )
}

#: Types of attributes that name an algorithm: C++'s enumerators, by that name.
ENUMERATIONS: dict[str, dict[str, str]] = {
    "Eltwise": {x.name: x.enumerator for x in FUNCTIONS.values() if not x.foreign},
    "Binary": {x.name: x.enumerator for x in COMBINATIONS.values()},
    "Pair": {x.name: x.enumerator for x in PAIRS.values()},
    "Resampling": {name: name for name in ("nearest", "linear", "cubic")},
    # Without reduction, a bag is one id, whose row is copied.
    "Reduction": {"sum": "sum", "mean": "mean", "max": "max", "each": "none"},
}
