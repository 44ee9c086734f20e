"""Importers of operators that write a part of their first argument, once that is known as a state.

A front end knows states by means of its own, and gives ``write``: it adds the write of a value to
the call's first argument, or to rows of one of its dimensions.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.backends.zendnn.frontends.calls import ANY, Call, Refused

Write = Callable[..., None]


def copy(call: Call, write: Write) -> None:
    """All of a view becomes another tensor, repeated if need be."""
    write(call, call.tensor("src", ANY))


def put_rows(call: Call, write: Write) -> None:
    """Rows that a tensor of integers names."""
    call.require("accumulate", False)
    elements = enumerate(call.elements("indices"))
    indices = [(dim, handle) for dim, handle in elements if call.constant_of(handle) is not None]
    if len(indices) != 1:
        raise Refused("it indexes more than one dimension")
    ((dim, handle),) = indices
    rows = call.as_tensor(handle, "indices", frozenset({torch.int64}))
    write(call, call.tensor("values", ANY), rows, dim=dim, wraps=True)


def copy_rows(call: Call, write: Write) -> None:
    """The same, of as many rows."""
    rows = call.tensor("index", frozenset({torch.int64}))
    write(call, call.tensor("source", ANY), rows, dim=call.integer("dim"))


#: What writes to its first argument.
WRITES: dict[str, Callable[..., None]] = {
    "aten::copy_": copy,
    "aten::index_put_": put_rows,
    "aten::index_copy_": copy_rows,
}
