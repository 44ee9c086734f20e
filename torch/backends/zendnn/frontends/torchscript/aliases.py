"""Which values of a TorchScript graph may share memory, and which nodes may write to them.

torch's alias analysis goes by the schemas of operators. Some schemas promise a new tensor where the
operator may return its input or a view of it, as ``type_as`` does for a tensor that has the dtype
already; torch's analysis is extended by these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from torch.backends.zendnn.frontends.torchscript.blocks import (
    TorchBlock,
    TorchGraph,
    outer_block,
)
from torch.backends.zendnn.frontends.torchscript.calls import (
    TorchNode,
    TorchValue,
    qualified,
    schema_arguments,
)

#: Operators that may return an input or a view of it, although their schemas do not say so.
UNDECLARED = qualified(
    "aten",
    "type_as dropout feature_dropout alpha_dropout feature_alpha_dropout atleast_1d atleast_2d "
    "atleast_3d broadcast_tensors meshgrid cartesian_prod einsum sum_to_size unsafe_chunk "
    "unsafe_split unsafe_split_with_sizes to_dense conj_physical _unsafe_view lift dequantize "
    "flatten_dense_tensors unflatten_dense_tensors _cast_Byte _cast_Char _cast_Double _cast_Float "
    "_cast_Half _cast_Int _cast_Long _cast_Short",
)
#: What follows an operator that was in place: its result, and what it was to write to.
IN_PLACE = "zendnn::in_place"
#: Operators that build and take apart containers: reports do not list them.
STRUCTURE = qualified(
    "prim",
    "ListConstruct TupleConstruct DictConstruct ListUnpack TupleUnpack TupleIndex GetAttr",
)
#: Operators of these kinds only look at what they are given, unless a schema says otherwise.
PURE_PRIMS = (
    STRUCTURE
    | qualified(
        "prim",
        "ConstantChunk NumToTensor dtype device shape layout unchecked_cast unchecked_unwrap "
        "Uninitialized isinstance min max is_nested AutogradZero",
    )
    | {IN_PLACE}
)
CONTROL = qualified("prim", "If Loop")
#: What a schema says of a result that may share memory with an argument.
_DECLARED = re.compile(r"\([a-z](!|\)|\||\s*->)|\(\*\)")


def may_return_input(node: TorchNode) -> bool:
    """Whether a result of a node may share memory with one of its inputs."""
    return node.kind() in UNDECLARED or bool(_DECLARED.search(node.schema()))


def may_write(node: TorchNode) -> list[TorchValue]:
    """Return what a node, or one inside it, may write to: what its schema says, or all it reads."""
    inside = [v for block in node.blocks() for inner in block.nodes() for v in may_write(inner)]
    return [*inside, *_may_write_itself(node)]


def _may_write_itself(node: TorchNode) -> list[TorchValue]:
    if "!" in node.schema():
        arguments = schema_arguments(node.schema()).values()
        return [
            value
            for argument, value in zip(arguments, node.inputs(), strict=False)
            # torch takes the annotation of a list's elements for the list's own.
            if value.type().kind() == "ListType" or _is_written(argument)
        ]
    is_pure = node.kind().startswith("aten::") or node.kind() in PURE_PRIMS | CONTROL
    return [] if is_pure else list(node.inputs())


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


class Aliases:
    """The alias analysis of a graph as it is now."""

    def __init__(self, graph: TorchGraph) -> None:
        self._database = graph.alias_db()
        nodes = list(_nodes_below(outer_block(graph)))
        self._writes = [(node, value) for node in nodes for value in _may_write_itself(node)]
        self._undeclared = list(_undeclared_views(nodes))
        self._found: dict[int, list[TorchValue]] = {}

    def has_writers(self, value: TorchValue) -> bool:
        """Whether something in the graph may write to a value."""
        return any(map(self._has_writers, self._connected(value)))

    def may_share(self, value: TorchValue, other: TorchValue) -> bool:
        """Whether two values may share memory, or one may contain the other."""
        return any(self._database.may_contain_alias(value, x) for x in self._connected(other))

    def _has_writers(self, value: TorchValue) -> bool:
        # torch's analysis does not say so of a list whose elements are written.
        return self._database.has_writers(value) or (
            value.type().kind() == "ListType" and bool(self._writers(value))
        )

    def _writers(self, value: TorchValue) -> list[TorchNode]:
        return [
            writer
            for writer, target in self._writes
            if self._database.may_contain_alias(target, value)
        ]

    def _connected(self, value: TorchValue) -> list[TorchValue]:
        """Return a value and those that undeclared views connect with it."""
        if value.unique() not in self._found:
            found = self._search(value)
            self._found |= {x.unique(): found for x in found}
        return self._found[value.unique()]

    def _search(self, value: TorchValue) -> list[TorchValue]:
        found, size = [value], 0
        rest = list(self._undeclared)
        while size != len(found):
            size = len(found)
            for view in list(rest):
                _, *pair = view
                # In a chain, the last one found shares memory with the next one.
                near = (self._database.may_contain_alias(x, y) for x in found[::-1] for y in pair)
                if any(near):
                    found += pair
                    rest.remove(view)
        return found

    def hides_writes(self) -> bool:
        """Whether something may be written to either side of an undeclared view that exists."""
        return any(
            self._is_written_after(node, value)
            for node, *pair in self._undeclared
            for value in pair
            if self._has_writers(value)
        )

    def _is_written_after(self, node: TorchNode, value: TorchValue) -> bool:
        writers = self._writers(value)
        return not writers or _is_in_loop(node) or not all(w.isBefore(node) for w in writers)


def _is_in_loop(node: TorchNode) -> bool:
    """Whether a node may run again after what follows it."""
    while (node := node.owningBlock().owningNode()) is not None:
        if node.kind() == "prim::Loop":
            return True
    return False


def _nodes_below(block: TorchBlock) -> Iterator[TorchNode]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes_below(inner)


def _undeclared_views(
    nodes: Sequence[TorchNode],
) -> Iterator[tuple[TorchNode, TorchValue, TorchValue]]:
    """Yield the nodes that hide views, with what a view may be of, and the view.

    Of a new tensor that nothing else reads, a view is as good as a copy.
    """
    handed_on: set[int] = set()
    for node in nodes:
        if node.kind() not in UNDECLARED and may_return_input(node):
            continue
        tensors = list(_tensors(node)) if node.kind() in UNDECLARED else []
        if node.kind() == "aten::einsum" and len(tensors) > 1:
            tensors = []  # a product is new
        viewed = [
            value
            for value in tensors
            if value.unique() not in handed_on
            or value.node().owningBlock() is not node.owningBlock()
        ]
        yield from ((node, taken, returned) for taken in viewed for returned in node.outputs())
        if node.kind().startswith("aten::") and not viewed:
            handed_on.update(value.unique() for value in node.outputs() if _has_one_reader(value))


def _has_one_reader(value: TorchValue) -> bool:
    readers = [use.user for use in value.uses()]
    return len(readers) == 1 and all(
        len(reader.output().uses()) == 1
        for reader in readers
        if reader.kind() == "prim::ListConstruct"
    )


def _tensors(node: TorchNode) -> Iterator[TorchValue]:
    """Yield the tensors that a node reads, in place of a list its elements."""
    # type_as only reads the dtype of its second operand.
    for value in [node.inputsAt(0)] if node.kind() == "aten::type_as" else node.inputs():
        maker = value.node()
        if maker.kind() == "prim::ListConstruct":
            yield from maker.inputs()
        elif value.type().kind() in ("TensorType", "ListType"):
            yield value
