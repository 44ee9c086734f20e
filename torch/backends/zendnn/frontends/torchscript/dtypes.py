"""Which TorchScript tensors must hold integers or booleans, as far as the graph shows.

A traced and frozen graph states no dtypes. A plan refuses its whole region when it is given an
integer to compute with, so arithmetic on ids and masks is left out of regions from the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.backends.zendnn.frontends.aten.mappings import VIEWS
from torch.backends.zendnn.frontends.torchscript.calls import (
    TorchNode,
    is_constant,
    qualified,
    schema_arguments,
)
from torch.backends.zendnn.frontends.torchscript.mutation import IN_PLACE
from torch.backends.zendnn.table.dtypes import DTYPES, of_kind

#: torch's own numbers of its integers and bool.
WHOLE_NUMBERS = frozenset(DTYPES[name].number for name in of_kind("integer"))

#: Operators whose result is whole whatever they are given.
MAKES_WHOLE = {"prim::NumToTensor"} | qualified(
    "aten",
    "eq ne lt le gt ge logical_and logical_or logical_not logical_xor bitwise_and bitwise_or "
    "bitwise_not isnan isinf argmax argmin argsort bucketize searchsorted all any nonzero",
)
#: Operators that read indices, and where.
READS_WHOLE = {
    "aten::embedding": (1,),
    "aten::embedding_bag": (1, 2),
    "aten::gather": (2,),
    "aten::index_select": (2,),
    "aten::scatter": (2,),
    "aten::one_hot": (0,),
    "aten::IntImplicit": (0,),
}
#: Operators whose result has the dtype of an operand, and the reverse: where that is.
SAME = {"aten::type_as": 1, IN_PLACE: 1} | dict.fromkeys(
    VIEWS
    | qualified(
        "aten",
        "detach clone repeat roll flip relu neg abs dropout masked_fill gather index_select index "
        "clamp pad amax amin",
    ),
    0,
)
#: Operators whose result is whole if and only if all they are given is.
PROMOTES = qualified("aten", "add sub rsub mul remainder maximum minimum floor_divide where")
#: Operators with an argument that states the dtype of the result.
STATES = qualified("aten", "to arange zeros ones full empty zeros_like ones_like full_like")


def whole_values(nodes: Iterable[TorchNode]) -> frozenset[int]:
    """Return the tensors, by ``unique()``, that must hold integers or booleans."""
    rules = [rule for node in nodes for rule in _rules(node)]
    known: set[int] = set()
    size = -1
    while size != len(known):
        size = len(known)
        known.update(value for needed, value in rules if known.issuperset(needed))
    return frozenset(known)


def _rules(node: TorchNode) -> Iterator[tuple[list[int], int]]:
    """Yield what the node shows: when the former are whole, the latter is."""
    kind = node.kind()
    inputs = [value.unique() for value in node.inputs()]
    results = [value.unique() for value in node.outputs()]
    shown = [inputs[position] for position in READS_WHOLE.get(kind, ())]
    states = kind in STATES and _stated_dtype(node) in WHOLE_NUMBERS
    constant = kind == "prim::Constant" and _is_whole(node.output().toIValue())
    if kind in MAKES_WHOLE or states or constant:
        shown += results
    yield from (([], value) for value in shown)
    if kind in SAME:
        yield [inputs[SAME[kind]]], results[0]
        yield results, inputs[SAME[kind]]
    elif kind == "aten::cumsum" and _stated_dtype(node) is None:
        yield inputs[:1], results[0]
    elif kind in PROMOTES:
        # A number is an int, or a constant.
        yield [v.unique() for v in node.inputs() if v.type().kind() != "IntType"], results[0]
        yield from ((results, v.unique()) for v in node.inputs() if v.type().kind() == "TensorType")


def _is_whole(constant: Any) -> bool:
    if isinstance(constant, torch.Tensor):
        return not (constant.is_floating_point() or constant.is_complex())
    return isinstance(constant, int)


def _stated_dtype(node: TorchNode) -> Any:
    """Return the number of the dtype that an argument states; None where there is none."""
    arguments = dict(zip(schema_arguments(node.schema()), node.inputs(), strict=False))
    stated = arguments.get("dtype")
    return stated if stated is None or not is_constant(stated) else stated.toIValue()
