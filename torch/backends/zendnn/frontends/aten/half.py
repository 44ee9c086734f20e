"""One warning about models in float16, which no plan computes yet."""

from __future__ import annotations

import functools
import warnings

import torch
from torch.backends.zendnn.frontends.aten.mappings import Importer
from torch.backends.zendnn.frontends.calls import Call, Refused


def warned_of(importer: Importer) -> Importer:
    """Return an importer of products that warns of the first one in float16."""

    def import_call(call: Call) -> None:
        try:
            importer(call)
        except Refused as refused:
            if refused.dtype == torch.float16:
                warn_once()
            raise

    return import_call


@functools.cache
def warn_once() -> None:
    """Warn of float16: the first call only, in a process."""
    warnings.warn(
        "the model computes in float16, which runs on torch's own kernels and is often slower than "
        "float32: convert it to bfloat16 by model.bfloat16() or "
        'torch.autocast("cpu", torch.bfloat16), which ZenDNN takes',
        stacklevel=2,
    )
