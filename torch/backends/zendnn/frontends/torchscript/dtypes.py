"""Which TorchScript tensors must hold integers or booleans, as far as the graph gives it away.

A traced and frozen graph says no dtypes. A plan that is given an integer where it computes refuses
the whole region, so arithmetic on ids and masks is better left out of regions from the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch.backends.zendnn.frontends.torchscript.calls import (
    TorchNode,
    TorchValue,
    is_constant,
    schema_arguments,
)

#: torch's own numbers of its integers and bool.
WHOLE_NUMBERS = frozenset({0, 1, 2, 3, 4, 11})

#: Operators whose result is whole whatever they are given.
MAKES_WHOLE = frozenset(
    {
        *("aten::eq", "aten::ne", "aten::lt", "aten::le", "aten::gt", "aten::ge"),
        *("aten::logical_and", "aten::logical_or", "aten::logical_not", "aten::logical_xor"),
        *("aten::isnan", "aten::isinf", "aten::argmax", "aten::argmin", "aten::argsort"),
        *("aten::bitwise_and", "aten::bitwise_or", "aten::bitwise_not", "aten::bucketize"),
        *("prim::NumToTensor", "aten::all", "aten::any", "aten::nonzero", "aten::searchsorted"),
    }
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
SAME = frozenset(
    {
        *("aten::view", "aten::reshape", "aten::flatten", "aten::unflatten", "aten::transpose"),
        *("aten::t", "aten::mT", "aten::permute", "aten::unsqueeze", "aten::squeeze"),
        *("aten::expand", "aten::expand_as", "aten::select", "aten::slice", "aten::contiguous"),
        *("aten::detach", "aten::clone", "aten::repeat", "aten::roll", "aten::flip"),
        *("aten::relu", "aten::neg", "aten::abs", "aten::dropout", "aten::masked_fill"),
        *("aten::gather", "aten::index_select", "aten::index", "aten::clamp", "aten::pad"),
    }
)
#: Operators whose result is whole if and only if all they are given is.
PROMOTES = frozenset(
    {
        *("aten::add", "aten::sub", "aten::rsub", "aten::mul", "aten::remainder"),
        *("aten::maximum", "aten::minimum", "aten::floor_divide", "aten::where"),
    }
)
#: Operators with an argument that states the dtype of the result.
STATES = frozenset(
    {
        *("aten::to", "aten::arange", "aten::zeros", "aten::ones", "aten::full", "aten::empty"),
        *("aten::zeros_like", "aten::ones_like", "aten::full_like"),
    }
)


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
    elif kind == "aten::cumsum" and _is_whole(inputs[0], known) and _is_none(inputs[2]):
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


def _is_none(value: TorchValue) -> bool:
    return is_constant(value) and value.toIValue() is None


def _is_whole(value: TorchValue, known: set[int]) -> bool:
    if value.unique() in known:
        return True
    if value.node().kind() != "prim::Constant":
        return bool(value.type().kind() == "IntType")
    constant = value.toIValue()
    if isinstance(constant, torch.Tensor):
        return not (constant.is_floating_point() or constant.is_complex())
    return isinstance(constant, int)


def _states_whole(node: TorchNode) -> bool:
    names, _ = schema_arguments(node.schema())
    if "dtype" not in names:
        return False
    value = node.inputsAt(names.index("dtype"))
    if value.node().kind() != "prim::Constant":
        return False
    number = value.toIValue()
    return number in WHOLE_NUMBERS
