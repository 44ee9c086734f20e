"""Resampling, padding and rolling."""

from __future__ import annotations

from torch.backends.zendnn.frontends.aten.mappings import mapped
from torch.backends.zendnn.frontends.calls import Call, Refused


def resample(call: Call, *, algorithm: str) -> None:
    """An image or a signal in another size, or by factors."""
    scales = [name for name in ("scales", "scales_h", "scales_w") if call.has(name)]
    stated = [0.0 if call.absent(name) else call.real(name) for name in scales]
    sizes = [] if call.absent("output_size") else call.numbers("output_size")
    # A signal has no height.
    height, width = [0.0, 0.0, *(call.python("scale_factors") or stated)][-2:]
    call.result(
        "resample",
        [call.tensor("input" if call.has("input") else "self"), *[None, None, *sizes][-2:]],
        algorithm=algorithm,
        align_corners=bool(call.python("align_corners")),
        scale_height=float(height),
        scale_width=float(width),
    )


def pad(call: Call) -> None:
    """Padding with a number, of what is left where a size that is known now is below 0."""
    x, pads = call.tensor("self"), call.numbers("pad")
    call.require("mode", None, "constant")
    for at in range(0, len(pads), 2):
        cut = [-size if isinstance(size, int) and size < 0 else 0 for size in pads[at : at + 2]]
        if any(cut):
            bounds = cut[0], -cut[1] or None
            x = call.step("slice", [x, -1 - at // 2, *bounds, 1])
    more = [max(size, 0) if isinstance(size, int) else size for size in pads]
    call.result("pad", [x, *more], value=0.0 if call.absent("value") else call.real("value"))


def roll(call: Call) -> None:
    """Dimensions that are shifted; without any, torch shifts the flattened tensor."""
    if not call.integers("dims"):
        raise Refused("dims is empty")
    mapped(call)
