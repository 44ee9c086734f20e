"""Which TorchScript tensors must hold integers or booleans, as far as the graph gives it away.

A traced and frozen graph says no dtypes. A plan that is given an integer where it computes refuses
the whole region, so arithmetic on ids and masks is better left out of regions from the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch.backends.zendnn.frontends.aten.mappings import VIEWS
from torch.backends.zendnn.frontends.torchscript.calls import (
    TorchNode,
    TorchValue,
    is_constant,
    schema_arguments,
)

#: torch's own numbers of its integers and bool.
WHOLE_NUMBERS = frozenset({0, 1, 2, 3, 4, 11})


def _aten(names: str) -> frozenset[str]:
    return frozenset(f"aten::{name}" for name in names.split())


#: Operators whose result is whole whatever they are given.
MAKES_WHOLE = {"prim::NumToTensor"} | _aten(
    "eq ne lt le gt ge logical_and logical_or logical_not logical_xor bitwise_and bitwise_or "
    "bitwise_not isnan isinf argmax argmin argsort bucketize searchsorted all any nonzero"
)
#: Operators that read indices, and where.
READS_WHOLE = {
    "aten::embedding": (1,),
    "aten::embedding_bag": (1, 2),
    "aten::gather": (2,),
    "aten::index_select": (2,),
    "aten::scatter": (2,),
    "aten::one_hot": (0,),
}
#: Operators whose result has the dtype of their first operand, and the reverse.
SAME = VIEWS | _aten(
    "detach clone repeat roll flip relu neg abs dropout masked_fill gather index_select index "
    "clamp pad"
)
#: Operators whose result is whole if and only if all they are given is.
PROMOTES = _aten("add sub rsub mul remainder maximum minimum floor_divide where")
#: Operators with an argument that states the dtype of the result.
STATES = _aten("to arange zeros ones full empty zeros_like ones_like full_like")


def whole_values(nodes: Iterable[TorchNode]) -> frozenset[int]:
    """Return the tensors, by ``unique()``, that must hold integers or booleans."""
    members = list(nodes)
    known: set[int] = set()
    size = -1
    while size != len(known):
        size = len(known)
        for node in members:
            known.update(value.unique() for value in _follows(node, known))
    return frozenset(known)


def _follows(node: TorchNode, known: set[int]) -> Iterator[TorchValue]:
    """Yield what the node shows to be whole when ``known`` are."""
    kind = node.kind()
    inputs, outputs = list(node.inputs()), list(node.outputs())
    if kind == "prim::Constant":
        yield from (value for value in outputs if _is_whole(value, known))
        return
    for position in READS_WHOLE.get(kind, ()):
        yield inputs[position]
    if kind in MAKES_WHOLE or (kind in STATES and _states_whole(node)):
        yield from outputs
    elif kind in SAME:
        if _is_whole(inputs[0], known):
            yield outputs[0]
        if outputs[0].unique() in known:
            yield inputs[0]
    elif kind == "aten::cumsum" and _is_whole(inputs[0], known):
        if is_constant(inputs[2]) and inputs[2].toIValue() is None:  # it states no dtype
            yield outputs[0]
    elif kind == "aten::type_as":
        for one, other in ((inputs[1], outputs[0]), (outputs[0], inputs[1])):
            if _is_whole(one, known):
                yield other
    elif kind in PROMOTES:
        if all(_is_whole(value, known) for value in inputs):
            yield outputs[0]
        if outputs[0].unique() in known:
            yield from (value for value in inputs if value.type().kind() == "TensorType")


def _is_whole(value: TorchValue, known: set[int]) -> bool:
    if value.unique() in known:
        return True
    if not is_constant(value):
        return bool(value.type().kind() == "IntType")
    constant = value.toIValue()
    if isinstance(constant, torch.Tensor):
        return not (constant.is_floating_point() or constant.is_complex())
    return isinstance(constant, int)


def _states_whole(node: TorchNode) -> bool:
    names, _ = schema_arguments(node.schema())
    stated = (v for name, v in zip(names, node.inputs(), strict=False) if name == "dtype")
    return any(is_constant(value) and value.toIValue() in WHOLE_NUMBERS for value in stated)
