"""The engine's own graph: front ends import into it, passes rewrite it, plans are made of it.

A graph is a list of nodes in an order that can be run. Its values have types, inferred by the rules
of ``table/operators.py`` when a node is added. It does not know where it came from: a front end
keeps what it needs to find its way back in ``Value.source`` and ``Node.source``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import torch
from torch.backends.zendnn.table.dtypes import of_kind
from torch.backends.zendnn.table.functions import FUNCTIONS
from torch.backends.zendnn.table.notation import Attribute, Function, Operator, Trait
from torch.backends.zendnn.table.operators import OPERATORS
from torch.backends.zendnn.table.shapes import Dim, Dims, unknown

Kind = Literal["tensor", "number", "other"]

#: The operator of a node that only its front end understands; it stays where it was.
OPAQUE = "opaque"

_OPAQUE_ROW = Operator("opaque(Any?[] operands)", traits=Trait.FOREIGN)

#: Dtypes of which only the class is known.
SOME_FLOAT, SOME_INTEGER = "floating", "integer"
_FLOATS = of_kind("float") | {SOME_FLOAT}
_INTEGERS = of_kind("integer") | {SOME_INTEGER}


@dataclass(eq=False)
class Value:
    """What a node makes, the graph is given, or a constant.

    Attributes:
        kind: 'tensor', 'number' (one Python int) or 'other' (what only opaque nodes touch).
        dtype: its name, SOME_FLOAT or SOME_INTEGER (which bool is, too); None when unknown.
        dims: its sizes, as far as they are known; None where not even their number is.
        is_assumed: whether a pass relied on a dtype that the graph does not prove. A plan refuses
            an input of another one.
        is_state: whether it is memory that a node writes to, as of this point in the order, or a
            view of it. Regions take it as an input and never return it.
        is_rounded: whether eager mode rounds it and no pass may skip that.
        escapes: whether it is read outside the graph's nodes. Opaque nodes count as outside too
            (``Graph.is_private`` checks both).
    """

    name: str
    kind: Kind = "tensor"
    constant: torch.Tensor | None = None
    producer: Node | None = None
    escapes: bool = False
    dtype: str | None = None
    dims: Dims | None = None
    is_assumed: bool = False
    is_state: bool = False
    is_rounded: bool = False
    source: Any = None
    #: The nodes that read this value, once for each operand. Graph alone maintains it.
    users: list[Node] = field(default_factory=list, repr=False)

    def __str__(self) -> str:
        return self.name

    @property
    def rank(self) -> int | None:
        """How many dimensions it has."""
        return None if self.dims is None else len(self.dims)

    @property
    def is_floating(self) -> bool:
        """Whether it surely holds floating-point numbers."""
        return self.dtype in _FLOATS

    @property
    def is_integer(self) -> bool:
        """Whether it surely holds integers or booleans."""
        return self.dtype in _INTEGERS

    def learn_dims(self, dims: Dims) -> None:
        """Note dims; sizes that are known already stay, and so does a rank."""
        if self.dims is None:
            self.dims = dims
        elif len(self.dims) == len(dims):
            self.dims = tuple(map(_more_exact, self.dims, dims))


def _more_exact(old: Dim, new: Dim) -> Dim:
    return new if old is None or (isinstance(new, int) and not isinstance(old, int)) else old


Operand = Value | int | None


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


@dataclass(frozen=True)
class PostOp:
    """What a compute node applies to each element of its result before it stores it.

    ``algorithm`` is an eltwise algorithm (with ``alpha`` and ``beta``) or a binary one ('add',
    'sub', 'mul', 'div', 'max', 'min'), whose other operand is the node's input ``operand``. Both
    broadcast, but ``keeps`` may be whose size the result has: 'result' (so far) or 'operand'.
    """

    algorithm: str
    alpha: float = 0.0
    beta: float = 0.0
    operand: int | None = None
    keeps: str = ""

    def __str__(self) -> str:
        """Return it as a description writes it."""
        if self.operand is None:
            return f"{self.algorithm}:{self.alpha!r}:{self.beta!r}"
        return f"{self.algorithm}@{self.operand}" + (f":{self.keeps}" if self.keeps else "")


@dataclass(eq=False)
class Node:
    """One operator. Inputs change through the graph only, so that use lists stay right."""

    op: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Value, ...]
    attributes: dict[str, Attribute] = field(default_factory=dict)
    post_ops: tuple[PostOp, ...] = ()
    #: The model's operators that this node performs, in order, by their public names.
    origin: tuple[str, ...] = ()
    #: Whether an opaque node keeps its order among such nodes: it writes, prints, or reads what
    #: another one writes.
    ordered: bool = False
    #: Why a front end left the node opaque.
    reason: str = ""
    source: Any = None

    @property
    def row(self) -> Operator:
        """The row of its operator."""
        return OPERATORS.get(self.op, _OPAQUE_ROW)

    @property
    def function(self) -> Function | None:
        """The function of an ``eltwise``, if there is one of that name."""
        return FUNCTIONS.get(self.get("algorithm")) if self.op == "eltwise" else None

    def has(self, trait: Trait) -> bool:
        """Whether its operator has one of these traits."""
        # Of the numbers, since passes ask often, and Flag makes a new one to answer.
        return self.row.traits._value_ & trait._value_ != 0

    @property
    def is_view(self) -> bool:
        """Whether its results are views of its first operand."""
        return self.has(Trait.VIEW)

    @property
    def keeps_rounding(self) -> bool:
        """Whether it makes the same of its operands if they are rounded after it."""
        is_exact = self.function is not None and self.function.exact
        return self.is_view or self.op in ("cat", "stack") or is_exact

    @property
    def writes(self) -> bool:
        """Whether it writes to its first operand."""
        return self.has(Trait.WRITES)

    @property
    def is_foreign(self) -> bool:
        """Whether no plan can hold it: opaque nodes, and those made for passes to match only."""
        return self.has(Trait.FOREIGN) or (self.function is not None and self.function.foreign)

    @property
    def output(self) -> Value:
        """The only output."""
        (value,) = self.outputs
        return value

    def values(self) -> Iterator[Value]:
        """The operands that are values, with repetitions."""
        return (operand for operand in self.inputs if isinstance(operand, Value))

    @property
    def readers(self) -> list[Node]:
        """The nodes that read its results, with repetitions."""
        return [user for value in self.outputs for user in value.users]

    @property
    def escapes(self) -> bool:
        """Whether one of its results does."""
        return any(value.escapes for value in self.outputs)

    def get(self, name: str) -> Any:
        """An attribute, or its default; None where the operator has none of that name."""
        spec = self.row.attributes.get(name)
        return self.attributes.get(name, None if spec is None else spec.default)

    def __str__(self) -> str:
        """Return it as one line of a plan's description (docs/plan.md)."""
        inputs = ("none" if operand is None else str(operand) for operand in self.inputs)
        words = [f"{', '.join(map(str, self.outputs))} = {self.op}({', '.join(inputs)})"]
        words += [f"{key}={_format_attribute(x)}" for key, x in sorted(self.attributes.items())]
        if self.post_ops:
            words.append("post=" + ";".join(map(str, self.post_ops)))
        return " ".join(words)


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
        made = tuple(outputs) if outputs is not None else (self.value(),)
        node = Node(op, tuple(inputs), made, **fields)
        for value in node.values():
            value.users.append(node)
        for value in made:
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
        made: set[Value] = set(self.inputs)
        readers: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in node.values():
                assert value in made or value.constant is not None or node.op == OPAQUE, (
                    f"{node.op} reads {value} before it is made"
                )
                readers.setdefault(value, []).append(node)
            for value in node.outputs:
                assert value.producer is node, f"{value} does not know its producer"
                made.add(value)
            for post in node.post_ops:
                assert post.operand is None or post.operand < len(node.inputs)
            _check_row(node)
        assert not self.late_reader(), f"{self.late_reader()} reads what has been overwritten"
        for value in made:
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
    if row is _OPAQUE_ROW:
        return
    unknown_keys = node.attributes.keys() - row.attributes.keys()
    assert not unknown_keys, f"{node.op} has no attribute {min(unknown_keys)}"
    own = len(node.inputs) - sum(post.operand is not None for post in node.post_ops)
    assert own >= row.fewest, f"{node.op} has {own} operands"
    for position, operand in enumerate(node.inputs[:own]):
        spec = row.operand(position)
        assert spec is not None, f"{node.op} has {own} operands"
        number = isinstance(operand, int) or (operand is not None and operand.kind == "number")
        assert operand is None or number == spec.is_number, f"{node.op}'s {spec.name} is {operand}"
    if node.post_ops:
        return
    dtype, dims = infer_dtype(node), _infer_dims(node)
    for value in node.outputs:
        told = {dtype, value.dtype} - {None, SOME_FLOAT, SOME_INTEGER}
        assert len(told) < 2, f"{node.op} makes {dtype}, and {value} is {value.dtype}"
        if dims is not None and value.dims is not None:
            pairs = zip(dims, value.dims, strict=False)
            both = [(a, b) for a, b in pairs if isinstance(a, int) and isinstance(b, int)]
            assert len(dims) == len(value.dims), f"{value} has {len(value.dims)} dimensions"
            assert all(a == b for a, b in both), f"{node.op} makes {dims}, not {value.dims}"


def infer_types(node: Node) -> None:
    """Set the types of a node's results by the rules of its row."""
    dtype, dims = infer_dtype(node), _infer_dims(node)
    first = node.inputs[0] if node.inputs else None
    shares = isinstance(first, Value) and first.is_state and node.has(Trait.VIEW | Trait.WRITES)
    for value in node.outputs:
        value.is_state = value.is_state or shares
        if dtype is not None and value.dtype in (None, SOME_FLOAT, SOME_INTEGER):
            value.dtype = dtype
        if dims is not None:
            value.learn_dims(dims)


def infer_dtype(node: Node) -> str | None:
    """The dtype of a node's results, as far as its operands tell."""
    if stated := node.get("dtype"):
        return str(stated)
    if isinstance(node.row.result.dtype, str):
        return node.row.result.dtype
    dtypes = {value.dtype for value in dtype_sources(node)}
    dtype = dtypes.pop() if len(dtypes) == 1 else None
    keeps_integers = node.function is not None and node.function.keeps_integers
    makes_floats = node.has(Trait.FLOATING) and not keeps_integers
    return SOME_FLOAT if makes_floats and dtype not in _FLOATS else dtype


def dtype_sources(node: Node) -> list[Value]:
    """The operands whose dtype a node's results have; none where the node states it."""
    dtype = node.row.result.dtype
    if node.get("dtype") or not isinstance(dtype, slice):
        return []
    return [v for v in node.inputs[dtype] if isinstance(v, Value) and v.kind == "tensor"]


def _infer_dims(node: Node) -> Dims | None:
    rule = node.row.result.dims
    if rule is None or len(node.inputs) < node.row.fewest:
        return None
    given = [operand.dims if isinstance(operand, Value) else None for operand in node.inputs]
    try:
        dims = rule(node, given)
    except IndexError:  # the model's own error, raised when it runs
        return None
    if dims is None or not node.post_ops:
        return dims
    # What a post-op reads may be larger.
    given = [given[post.operand] for post in node.post_ops if post.operand is not None]
    ranks = [len(dims), *(len(other) for other in given if other is not None)]
    return unknown(max(ranks)) if len(ranks) == len(given) + 1 else None


def _format_attribute(value: Attribute) -> str:
    """Return an attribute's value as a description writes it, without spaces."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(int(value) if isinstance(value, bool) else value)


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
        made = dict.fromkeys(value for node in members for value in node.outputs)
        used = dict.fromkeys(value for node in members for value in node.values())
        inputs = tuple(v for v in used if v not in made and v.constant is None)
        given = [v for v in made if v.kind == "tensor" and not v.is_state]
        return Region(members, inputs, tuple(v for v in given if v.escapes or v in read))

    def describe(
        self, without: Iterable[str] = (), tune: float | None = None
    ) -> tuple[str, list[torch.Tensor]]:
        """Return the description and the constants that a plan is made from (docs/plan.md).

        ``without`` are passes that the plan shall not run, ``tune`` the seconds that it may time
        implementations for, where that is not the default.
        """
        values = dict.fromkeys(value for node in self.nodes for value in node.values())
        constants = [value for value in values if value.constant is not None]
        lines = [f"{DESCRIPTION} {VERSION}"]
        lines += [f"without {' '.join(names)}"] if (names := sorted(without)) else []
        lines += [] if tune is None else [f"tune {tune}"]
        for value in self.inputs:
            dtype = f" {value.dtype}" if value.is_assumed else ""
            lines.append(f"{value} = input {value.kind}{dtype}")
        lines += [f"{value} = constant {index}" for index, value in enumerate(constants)]
        for node in self.nodes:
            lines.append(f"{node} # {'+'.join(node.origin)}" if node.origin else str(node))
        lines.append(f"return {', '.join(map(str, self.outputs))}")
        return "\n".join(lines) + "\n", [v.constant for v in constants if v.constant is not None]


#: The first line of a description, and the version that saved plans are checked against.
DESCRIPTION = "zendnn-plan"
VERSION = 3

Pass = Callable[[Graph], int]
