"""Embeddings, and the indices and offsets that they read."""

from __future__ import annotations

import torch
from torch.backends.zendnn.frontends.aten.mappings import operands
from torch.backends.zendnn.frontends.calls import ANY, MISSING, Call, Refused
from torch.backends.zendnn.graph import Operand, Value

BAG_MODES = {0: "sum", 1: "mean", 2: "max"}


def embedding_bag(call: Call) -> None:
    """Sums, means or maxima of bags; what else the operator returns is for training."""
    if any(map(call.is_used, range(1, len(call.outputs)))):
        raise Refused("its offsets, sizes or indices are used")
    if call.has("padding_idx"):
        call.require("padding_idx", None)
    mode = call.integer("mode")
    if mode not in BAG_MODES:
        raise Refused(f"mode is {mode}")
    names = ["weight", "indices", "offsets"]
    if not call.absent("per_sample_weights"):
        names.append("per_sample_weights")
    inputs = operands(call, "embedding_bag", *names)
    last = {"last_offset": True} if call.python("include_last_offset") else {}
    call.result("embedding_bag", inputs, mode=BAG_MODES[mode], **last)


def arange(call: Call) -> None:
    """Whole numbers in order; only the passes' patterns read it."""
    call.require("dtype", None, 4)  # 4 is int64
    given = [call.number(name) for name in ("start", "end", "step") if call.has(name)]
    inputs: dict[int, list[Operand]] = {1: [0, *given, 1], 2: [*given, 1], 3: given}
    call.result("arange", inputs[len(given)])


def index(call: Call) -> None:
    """Pairs of the last two dimensions, chosen by constant rows and columns."""
    given: list[Value | None]
    constant = call.constant("indices")
    if constant is not MISSING:
        given = [None if item is None else call.graph.constant(item) for item in constant]
    else:
        given = [
            None if call.constant_of(element) is None else call.as_tensor(element, "an index", ANY)
            for element in call.elements("indices")
        ]
    leading, pair = given[:-2], given[-2:]
    lists = [i.constant for i in pair if i is not None and i.constant is not None]
    if len(lists) != 2 or not leading or any(i is not None for i in leading):
        raise Refused("its indices are not two constants at the end")
    rows, columns = lists
    pairs = rows.dim() == 1 and rows.shape == columns.shape
    if not pairs or any(i.dtype != torch.int64 or (i < 0).any() for i in lists):
        raise Refused("its indices are not two lists of int64")
    x = call.tensor("self")
    if x.rank != len(given):
        raise Refused("how many dimensions it indexes is not known")
    if len(given) > 3:
        raise Refused(f"it indexes {len(given)} dimensions")
    call.result("gather_pairs", [x, *pair])
