"""Embeddings, and the indices and offsets that they read."""

from __future__ import annotations

import torch
from torch.backends.zendnn.frontends.aten.mappings import operands
from torch.backends.zendnn.frontends.calls import Call, Refused

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


def index(call: Call) -> None:
    """Pairs of the last two dimensions, chosen by constant rows and columns."""
    constant = call.constant("indices")
    given = constant if isinstance(constant, list) else []
    leading, pair = given[:-2], [i for i in given[-2:] if i is not None]
    if len(pair) != 2 or not leading or any(i is not None for i in leading):
        raise Refused("its indices are not two constants at the end")
    rows, columns = pair
    pairs = rows.dim() == 1 and rows.shape == columns.shape
    if not pairs or any(i.dtype != torch.int64 or (i < 0).any() for i in pair):
        raise Refused("its indices are not two lists of int64")
    x = call.tensor("self")
    if x.rank != len(given):
        raise Refused("how many dimensions it indexes is not known")
    if len(given) > 3:
        raise Refused(f"it indexes {len(given)} dimensions")
    call.result("gather_pairs", [x, *map(call.graph.constant, pair)])
