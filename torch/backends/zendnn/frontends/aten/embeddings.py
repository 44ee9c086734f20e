"""Bags of embeddings."""

from __future__ import annotations

from torch.backends.zendnn.frontends.aten.mappings import operands
from torch.backends.zendnn.frontends.calls import Call

#: torch's own order of them.
BAG_MODES = ("sum", "mean", "max")


def embedding_bag(call: Call) -> None:
    """Sums, means or maxima of bags; what else the operator returns is for training."""
    call.require("padding_idx", None)
    call.require("mode", *range(len(BAG_MODES)))
    names = ("weight", "indices", "offsets", "per_sample_weights")
    call.result(
        "embedding_bag",
        operands(call, "embedding_bag", *names),
        mode=BAG_MODES[call.integer("mode")],
        last_offset=bool(call.python("include_last_offset")),
    )
