"""The engine's own graph: front ends import into it, passes rewrite it, plans are made of it.

A graph is a list of nodes in an order that can be run. Its values have types, inferred by the rules
of ``table/operators.py`` when a node is added. It does not know where it came from: a front end
keeps what it needs to find its way back in ``Value.source`` and ``Node.source``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch.backends.zendnn.ir.infer import infer_dims, infer_dtype, infer_types
from torch.backends.zendnn.ir.node import (
    OPAQUE,
    OPAQUE_ROW,
    SOME_FLOAT,
    SOME_INTEGER,
    Kind,
    Node,
    Operand,
    Value,
)
from torch.backends.zendnn.table.notation import Trait


def _views(value: Value) -> list[Value]:
    return [view for user in value.users if user.has(Trait.VIEW) for view in user.outputs]


def may_share(value: Value) -> list[Value]:
    """What plans may leave in a value's memory: views, and results without changed elements."""
    copies = [out for user in value.users if _may_share(user, value) for out in user.outputs]
    return _views(value) + copies


def _may_share(node: Node, value: Value) -> bool:
    if node.op == "cat":  # whose parts must lie side by side
        return all(map(_may_be_state, node.values()))
    dtypes = {value.dtype, node.outputs[0].dtype} if node.outputs else set()
    is_same = len(dtypes) == 1 or not dtypes.isdisjoint({None, SOME_FLOAT, SOME_INTEGER})
    return node.has(Trait.MAY_SHARE) and is_same


def _may_be_state(value: Value) -> bool:
    known: dict[Value, bool] = {}
    waiting = [value]
    while waiting:
        node = (last := waiting[-1]).producer
        if last.is_state or node is None or not node.has(Trait.MAY_SHARE):
            known[last] = last.is_state
        elif unknown := [operand for operand in node.values() if operand not in known]:
            waiting += unknown
            continue
        else:
            of = all if node.op == "cat" else any
            known[last] = of(known[operand] for operand in node.values())
        waiting.pop()
    return known[value]


@dataclass
class Graph:
    """Nodes in order, with the graph's inputs and outputs."""

    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    _names: int = 0

    def value(self, kind: Kind = "tensor", source: Any = None) -> Value:
        """Return a new value that nothing makes or reads yet."""
        self._names += 1
        return Value(f"%{self._names}", kind, source=source)

    def input(self, kind: Kind = "tensor", source: Any = None) -> Value:
        """Return a new input of the graph."""
        value = self.value(kind, source)
        self.inputs.append(value)
        return value

    def constant(self, tensor: torch.Tensor, source: Any = None) -> Value:
        """Return a new value that always is ``tensor``."""
        value = self.value("tensor", source)
        value.constant = tensor
        value.dtype = str(tensor.dtype).removeprefix("torch.")
        value.dims = tuple(tensor.shape)
        return value

    def set_outputs(self, values: Sequence[Value]) -> None:
        """Set the graph's outputs, which escape."""
        self.outputs = list(values)
        for value in values:
            value.escapes = True

    def add(
        self,
        op: str,
        inputs: Sequence[Operand],
        *,
        outputs: Sequence[Value] | None = None,
        before: Node | None = None,
        **fields: Any,
    ) -> Node:
        """Append a node, or insert it before another; without ``outputs`` it makes one tensor."""
        results = tuple(outputs) if outputs is not None else (self.value(),)
        node = Node(op, tuple(inputs), results, **fields)
        for value in node.values():
            value.users.append(node)
        for value in results:
            value.producer = node
        if before is None:
            self.nodes.append(node)
        else:
            self.nodes.insert(self.nodes.index(before), node)
        infer_types(node)
        return node

    def infer_types(self) -> None:
        """Infer the types of all values again, after passes have added information."""
        for node in self.nodes:
            infer_types(node)

    def set_inputs(self, node: Node, inputs: Sequence[Operand]) -> None:
        """Replace a node's operands."""
        for value in node.values():
            value.users.remove(node)
        node.inputs = tuple(inputs)
        for value in node.values():
            value.users.append(node)

    def replace_uses(self, old: Value, new: Operand) -> None:
        """Make every reader of ``old``, which must be private, read ``new`` instead."""
        assert self.is_private(old), f"{old} is read outside the graph"
        for node in list(dict.fromkeys(old.users)):
            self.set_inputs(node, [new if operand is old else operand for operand in node.inputs])
        if old.kind == "number":
            for value in (value for node in self.nodes for value in node.outputs):
                if value.dims is not None and old in value.dims:
                    value.dims = tuple(new if dim is old else dim for dim in value.dims)

    def take_over(self, node: Node, *values: Value) -> None:
        """Make ``node`` the producer of ``values``, in place of its own outputs.

        The former producers, which must be later in the order and make nothing else, are removed.
        """
        formers = dict.fromkeys(value.producer for value in values)
        node.outputs = values
        for value in values:
            value.producer = node
        for former in formers:
            if former is not None and former is not node:
                assert set(former.outputs) <= set(values), f"{former.op} makes more than that"
                self._unlink(former)

    def move_before(self, node: Node, other: Node) -> None:
        """Move a node to just before another; its operands and users must allow it."""
        self.nodes.remove(node)
        self.nodes.insert(self.nodes.index(other), node)

    def remove(self, node: Node) -> None:
        """Remove a node whose outputs nobody reads."""
        for value in node.outputs:
            assert not value.users, f"{value} is still read"
            assert not value.escapes, f"{value} is still read outside"
        self._unlink(node)

    def _unlink(self, node: Node) -> None:
        for value in node.values():
            value.users.remove(node)
        self.nodes.remove(node)

    def is_private(self, value: Value) -> bool:
        """Whether only nodes that passes may rewrite read ``value``."""
        return not value.escapes and all(user.op != OPAQUE for user in value.users)

    def only_user(self, value: Value) -> Node | None:
        """The one node that reads a private value, and reads it once; None for all else.

        None, too, if a pass may not perform both in one step, since that would skip a rounding.
        """
        if len(value.users) == 1 and self.is_private(value):
            user = value.users[0]
            return None if value.is_rounded and not user.keeps_rounding else user
        return None

    def remove_dead(self) -> int:
        """Remove the nodes without effects whose results nobody reads; return how many."""
        dead = 0
        for node in reversed(list(self.nodes)):
            if not (node.op == OPAQUE or node.writes or node.readers or node.escapes):
                self._unlink(node)
                dead += 1
        return dead

    def forget_constants(self) -> None:
        """Let go of constants, since nodes and values refer to each other and may last."""
        for node in self.nodes:
            for value in node.values():
                value.constant = None

    def check(self) -> None:
        """Raise AssertionError when an invariant is broken: order, use lists, rows or types."""
        defined: set[Value] = set(self.inputs)
        readers: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in node.values():
                assert value in defined or value.constant is not None or node.op == OPAQUE, (
                    f"{node.op} reads {value} before it is made"
                )
                readers.setdefault(value, []).append(node)
            for value in node.outputs:
                assert value.producer is node, f"{value} does not know its producer"
                defined.add(value)
            for post in node.post_ops:
                assert post.operand is None or post.operand < len(node.inputs)
            _check_row(node)
        assert not self.late_reader(), f"{self.late_reader()} reads what has been overwritten"
        for value in defined:
            assert sorted(map(id, value.users)) == sorted(map(id, readers.get(value, []))), (
                f"{value} does not know its users"
            )

    def late_reader(self, step: Callable[[Value], list[Value]] = _views) -> Node | None:
        """A node that reads a state after another node has written to it.

        ``step`` says which values lie in a value's memory: its views, or all that ``may_share`` it.
        The maker of such a result counts as a reader, since a plan copies its results last.
        """
        gone: set[Value] = set()
        for node in self.nodes:
            if any(value in gone for value in node.values()):
                if not node.is_view:
                    return node
                gone.update(node.outputs)  # a view reads nothing
            if node.writes:
                gone |= reach(list(node.values())[:1], step)
        results = [value for value in gone if not (value.is_state or self.is_private(value))]
        return results[0].producer if results else None

    def __str__(self) -> str:
        return "\n".join(map(str, self.nodes))


T = TypeVar("T")


def reach(start: Iterable[T], step: Callable[[T], Iterable[T]]) -> set[T]:
    """Return what steps lead to from the start, with the start."""
    found: set[T] = set()
    waiting = list(start)
    while waiting:
        item = waiting.pop()
        if item not in found:
            found.add(item)
            waiting += step(item)
    return found


def _check_row(node: Node) -> None:
    """Raise AssertionError when a node or the types of its results contradict its row."""
    row = node.row
    if row is OPAQUE_ROW:
        return
    unknown_keys = node.attributes.keys() - row.attributes.keys()
    assert not unknown_keys, f"{node.op} has no attribute {min(unknown_keys)}"
    stated = {name for name, spec in row.attributes.items() if spec.default is None}
    assert stated <= node.attributes.keys(), f"{node.op} states no {min(stated)}"
    own = len(node.inputs) - sum(post.operand is not None for post in node.post_ops)
    assert own >= row.fewest, f"{node.op} has {own} operands"
    for position, operand in enumerate(node.inputs[:own]):
        spec = row.operand(position)
        assert spec is not None, f"{node.op} has {own} operands"
        number = isinstance(operand, int) or (operand is not None and operand.kind == "number")
        assert operand is None or number == spec.is_number, f"{node.op}'s {spec.name} is {operand}"
    if node.post_ops:
        return
    dtype, dims = infer_dtype(node), infer_dims(node)
    for value in node.outputs:
        dtypes = {dtype, value.dtype} - {None, SOME_FLOAT, SOME_INTEGER}
        assert len(dtypes) < 2, f"{node.op} makes {dtype}, and {value} is {value.dtype}"
        if dims is not None and value.dims is not None:
            pairs = zip(dims, value.dims, strict=False)
            both = [(a, b) for a, b in pairs if isinstance(a, int) and isinstance(b, int)]
            assert len(dims) == len(value.dims), f"{value} has {len(value.dims)} dimensions"
            assert all(a == b for a, b in both), f"{node.op} makes {dims}, not {value.dims}"


@dataclass(frozen=True)
class Region:
    """Nodes that become one call: what they read from outside and what others read of them."""

    nodes: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]

    @staticmethod
    def of(nodes: Iterable[Node], read: Container[Value] = ()) -> Region:
        """Return the region of these nodes, which are in order; ``read`` is what others read."""
        members = tuple(nodes)
        results = dict.fromkeys(value for node in members for value in node.outputs)
        used = dict.fromkeys(value for node in members for value in node.values())
        inputs = tuple(v for v in used if v not in results and v.constant is None)
        tensors = [v for v in results if v.kind == "tensor" and not v.is_state]
        return Region(members, inputs, tuple(v for v in tensors if v.escapes or v in read))


Pass = Callable[[Graph], int]
