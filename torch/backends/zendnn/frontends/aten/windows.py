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
    """Padding with a number; sizes that are known now are not below 0."""
    known = tuple(size for size in call.numbers("pad") if isinstance(size, int))
    if min(known, default=0) < 0:
        raise Refused(f"pad is {known}")
    mapped(call)


def roll(call: Call) -> None:
    """Dimensions that are shifted; without any, torch shifts the flattened tensor."""
    if not call.integers("dims"):
        raise Refused("dims is empty")
    mapped(call)
