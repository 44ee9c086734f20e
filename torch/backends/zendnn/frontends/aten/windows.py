"""Pooling, resampling, padding and rolling."""

from __future__ import annotations

from typing import Literal

from torch.backends.zendnn.frontends.aten.mappings import MAPPED
from torch.backends.zendnn.frontends.calls import Call, Refused
from torch.backends.zendnn.graph import Attribute


def pool(call: Call, *, op: Literal["max_pool", "avg_pool"], spatial: int) -> None:
    """A window that moves; without a stride it moves by its own size."""
    kernel = call.integers("kernel_size", spatial)
    attributes: dict[str, Attribute] = {
        "kernel": kernel,
        "stride": call.integers("stride", spatial) or kernel,
        "padding": call.integers("padding", spatial),
        "ceil": bool(call.python("ceil_mode")),
    }
    if call.has("dilation"):
        attributes["dilation"] = call.integers("dilation", spatial)
    if op == "avg_pool":
        attributes["include_pad"] = bool(call.python("count_include_pad"))
    if call.has("divisor_override"):
        call.require("divisor_override", None)
    call.result(op, [call.tensor("self")], **attributes)


def resample(call: Call, *, algorithm: str) -> None:
    """An image or a signal in another size, or by factors."""
    keys = ("scales",) if call.has("scales") else ("scales_h", "scales_w")
    if call.has("scale_factors"):
        factors = call.python("scale_factors") or ()
    else:
        factors = [0.0 if call.absent(name) else call.real(name) for name in keys]
    sizes = [] if call.absent("output_size") else call.numbers("output_size")
    # A signal has no height.
    height, width = [0.0, 0.0, *factors][-2:]
    call.result(
        "resample",
        [call.tensor("input" if call.has("input") else "self"), *[None, None, *sizes][-2:]],
        algorithm=algorithm,
        align_corners=call.has("align_corners") and bool(call.python("align_corners")),
        scale_height=float(height),
        scale_width=float(width),
    )


def adaptive_pool(call: Call, *, spatial: int) -> None:
    """Means of windows, of which there are so many."""
    sizes = call.integers("output_size", spatial)
    call.result("adaptive_avg_pool", [call.tensor("self")], sizes=sizes)


def pad(call: Call) -> None:
    """Padding with a number; sizes that are known now are not below 0."""
    known = tuple(size for size in call.numbers("pad") if isinstance(size, int))
    if min(known, default=0) < 0:
        raise Refused(f"pad is {known}")
    MAPPED[call.name](call)


def roll(call: Call) -> None:
    """Dimensions that are shifted; without any, torch shifts the flattened tensor."""
    if not call.integers("dims"):
        raise Refused("dims is empty")
    MAPPED[call.name](call)
