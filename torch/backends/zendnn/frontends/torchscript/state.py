"""States: tensors that TorchScript writes to in place, where it can be proven what is written.

A *root* is a tensor that the outermost block is given, reads from an attribute or has just made. It
and its *views* share memory at all times. When everything that may write to anything writes to
roots and views, each write makes a new version of its root, and what is read afterwards reads that.
Other tensors may still share memory with a root, as two arguments can: the plan compares addresses
before each run, and ``schedule.py`` keeps what lies outside of regions in the model's own order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch.backends.zendnn.frontends.aten import IMPORTERS, Importer, writes
from torch.backends.zendnn.frontends.calls import Refused
from torch.backends.zendnn.frontends.torchscript.aliases import may_return_input
from torch.backends.zendnn.frontends.torchscript.blocks import captured
from torch.backends.zendnn.frontends.torchscript.calls import (
    TorchNode,
    TorchScriptCall,
    TorchValue,
    operator_name,
    qualified,
)
from torch.backends.zendnn.ir.node import Value

#: What shares memory with its first argument whatever that is.
VIEWS = qualified(
    "aten",
    "slice.Tensor select.int view transpose.int t mT permute unsqueeze squeeze.dim expand swapaxes "
    "swapdims unflatten.int detach expand_as",
)
#: What makes memory of its own.
_MAKERS = qualified("aten", "zeros ones empty clone")
#: Hands on what it is given, in a container or out of one.
_HANDS_ON = qualified(
    "prim",
    "ListConstruct TupleConstruct ListUnpack TupleUnpack TupleIndex unchecked_cast "
    "unchecked_unwrap",
)
_READS_NOTHING = VIEWS | _HANDS_ON | {"prim::GetAttr", "aten::size", "aten::size.int"}
#: What may set an attribute.
_MAY_SET = qualified("prim", "SetAttr CallMethod CallFunction")


@dataclass
class States:
    """The states of a graph, by ``unique()``."""

    #: The root of each root and view.
    roots: dict[int, TorchValue] = field(default_factory=dict)
    #: The nodes that make the views of each root, in order.
    views: dict[int, list[TorchNode]] = field(default_factory=dict)
    #: The root that each of these nodes writes to.
    writes: dict[TorchNode, TorchValue] = field(default_factory=dict)

    def is_view(self, node: TorchNode) -> bool:
        """Whether a node makes a view of a root."""
        return operator_name(node) in VIEWS and node.inputsAt(0).unique() in self.roots


def join_attributes(nodes: list[TorchNode], everywhere: list[TorchNode]) -> None:
    """Let the nodes of a block read an attribute once, unless some node may set one."""
    if any(node.kind() in _MAY_SET for node in everywhere):
        return
    found: dict[tuple[int, str], TorchValue] = {}
    for node in nodes:
        if node.kind() == "prim::GetAttr":
            key = (node.inputsAt(0).unique(), node.s("name"))
            if key in found:
                node.output().replaceAllUsesWith(found[key])
            found.setdefault(key, node.output())


def find_states(nodes: list[TorchNode], writers: list[TorchNode]) -> States | None:
    """Return the states of a block of these nodes, of which those may write.

    Results of writes, which are their targets, are read as such from here on. None where there are
    no writes, or something cannot be proven.
    """
    if not writers or any(operator_name(node) not in WRITES for node in writers):
        return None
    states = States()
    for node in writers:
        node.output().replaceAllUsesWith(node.inputsAt(0))
        root = _root_of(node.inputsAt(0))
        if root is None:
            return None
        states.writes[node] = root
        states.roots[root.unique()] = root
        states.views[root.unique()] = []
    return states if _follow(nodes, states) else None


def _root_of(value: TorchValue) -> TorchValue | None:
    while operator_name(value.node()) in VIEWS:
        value = value.node().inputsAt(0)
    kind = value.node().kind()
    is_root = kind in ("prim::Param", "prim::GetAttr") or kind in _MAKERS
    return value if is_root and value.type().kind() == "TensorType" else None


def _follow(nodes: list[TorchNode], states: States) -> bool:
    """Note the views of all roots; whether nothing else that shares their memory is read late."""
    position = {node: index for index, node in enumerate(nodes)}
    written: dict[int, list[int]] = {}
    for node, root in states.writes.items():
        written.setdefault(root.unique(), []).append(position[node])
    shared: dict[int, TorchValue] = {}  # the root that a value may share memory with
    for node in nodes:
        for value in captured(node):
            root = states.roots.get(value.unique()) or shared.get(value.unique())
            if root is None or node in states.writes:
                continue
            if states.is_view(node) and value.unique() == node.inputsAt(0).unique():
                states.roots[node.output().unique()] = root
                states.views[root.unique()].append(node)
            elif node.kind() in _HANDS_ON or may_return_input(node):
                # It may be a copy as well: nobody may read it after another write.
                uses = [use.user for output in node.outputs() for use in output.uses()]
                last = max((position.get(user, len(nodes)) for user in uses), default=0)
                if any(position[node] < write < last for write in written[root.unique()]):
                    return False
                shared.update((output.unique(), root) for output in node.outputs())
            elif list(node.blocks()) or not node.kind().startswith(("aten::", "prim::")):
                return False
    return True


def reads_memory(node: TorchNode) -> bool:
    """Whether a node reads or writes elements, so that it matters when it runs."""
    return operator_name(node) not in _READS_NOTHING


# Writes.


def write(call: TorchScriptCall, value: Value, *rows: Value, **attributes: Any) -> None:
    """Add a write of a value to the call's first argument; to rows of a dimension if given."""
    scope, states = call.scope, call.scope.states
    assert states is not None
    root = states.writes[call.node]
    base, target = scope.operand(root), scope.operand(call.node.inputsAt(0))
    if not (isinstance(base, Value) and isinstance(target, Value) and base.is_state):
        raise Refused("what it writes to is not known")
    if not target.is_state:
        raise Refused("what it writes to is a copy")
    scope.bind(root, call.step("write", [base, target, value, *rows], **attributes))
    for view in states.views[root.unique()]:
        if view.output().unique() in scope.operands:
            IMPORTERS[operator_name(view)](TorchScriptCall(scope, view))


def in_place(importer: Importer) -> Callable[[TorchScriptCall], None]:
    """The write of what an operator makes of its first argument and others."""

    def run(call: TorchScriptCall) -> None:
        importer(call)
        value = call.operand_of(call.outputs[0])
        if not isinstance(value, Value):
            raise Refused("it makes no tensor")
        write(call, value)

    return run


#: What writes to its first argument.
WRITES: dict[str, Callable[[TorchScriptCall], None]] = {
    **{name: partial(importer, write=write) for name, importer in writes.WRITES.items()},
    **{
        f"aten::{name}_.{overload}": in_place(IMPORTERS[f"aten::{name}.{overload}"])
        for name in ("add", "sub", "mul", "div")
        for overload in ("Tensor", "Scalar")
    },
}
