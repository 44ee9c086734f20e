"""Which values of a TorchScript graph may share memory.

torch's alias analysis goes by the schemas of operators. Some schemas promise a new tensor where the
operator may return its input or a view of it, as ``type_as`` does for a tensor that has the dtype
already; torch's analysis is extended by these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from torch.backends.zendnn.frontends.torchscript.blocks import (
    TorchGraph,
    blocks_below,
    outer_block,
)
from torch.backends.zendnn.frontends.torchscript.calls import TorchNode, TorchValue, qualified

#: Operators that may return an input or a view of it, although their schemas do not say so.
UNDECLARED = qualified(
    "aten",
    "type_as dropout feature_dropout alpha_dropout feature_alpha_dropout atleast_1d atleast_2d "
    "atleast_3d broadcast_tensors meshgrid cartesian_prod einsum sum_to_size unsafe_chunk "
    "unsafe_split unsafe_split_with_sizes to_dense conj_physical",
)
#: What a schema says of a result that may share memory with an argument.
_DECLARED = re.compile(r"\([a-z](!|\)|\||\s*->)|\(\*\)")


def may_return_input(node: TorchNode) -> bool:
    """Whether a result of a node may share memory with one of its inputs."""
    return node.kind() in UNDECLARED or bool(_DECLARED.search(node.schema()))


class Aliases:
    """The alias analysis of a graph as it is now."""

    def __init__(self, graph: TorchGraph) -> None:
        self._database = graph.alias_db()
        self._undeclared = [
            (taken, returned)
            for block in blocks_below(outer_block(graph))
            for node in block.nodes()
            if node.kind() in UNDECLARED
            for taken in _tensors(node)
            for returned in node.outputs()
        ]
        self._found: dict[int, list[TorchValue]] = {}

    def has_writers(self, value: TorchValue) -> bool:
        """Whether something in the graph may write to a value."""
        return any(map(self._database.has_writers, self._connected(value)))

    def may_share(self, value: TorchValue, other: TorchValue) -> bool:
        """Whether two values may share memory, or one may contain the other."""
        return any(self._database.may_contain_alias(value, x) for x in self._connected(other))

    def _connected(self, value: TorchValue) -> list[TorchValue]:
        """Return a value and those that undeclared views connect with it."""
        if value.unique() not in self._found:
            self._found[value.unique()] = self._search(value)
        return self._found[value.unique()]

    def _search(self, value: TorchValue) -> list[TorchValue]:
        found, size = [value], 0
        rest = list(self._undeclared)
        while size != len(found):
            size = len(found)
            for pair in list(rest):
                if any(self._database.may_contain_alias(x, y) for x in found for y in pair):
                    found += pair
                    rest.remove(pair)
        return found

    def hidden_writes(self) -> Iterator[TorchValue]:
        """Yield what is written on either side of an undeclared view."""
        yield from (x for pair in self._undeclared for x in pair if self._database.has_writers(x))


def _tensors(node: TorchNode) -> Iterator[TorchValue]:
    """Yield the values that a node reads, in place of a list its elements."""
    for value in node.inputs():
        maker = value.node()
        if maker.kind() == "prim::ListConstruct":
            yield from maker.inputs()
        elif maker.kind() != "prim::Constant":
            yield value
