"""Reads functional aten graphs of FX, as ``torch.export`` and ``torch.compile`` make them."""

from __future__ import annotations

import math
import operator
from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.backends.zendnn.frontends import schedule
from torch.backends.zendnn.frontends.aten import IMPORTERS
from torch.backends.zendnn.frontends.aten.dtypes import CONTIGUOUS, PRESERVED
from torch.backends.zendnn.frontends.calls import ANY, FLOATING, Refused
from torch.backends.zendnn.frontends.fx.calls import (
    FUNCTIONS,
    FxCall,
    Scope,
    is_ordered,
    kind_of,
    name_of,
    operator_key,
    operator_of,
)
from torch.backends.zendnn.frontends.fx.mutation import (
    base,
    bases,
    is_view,
    sharing,
    viewed_by,
    write_in_place,
    writes,
    written_by,
)
from torch.backends.zendnn.frontends.fx.state import STATE_WRITES, find_states
from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import OPAQUE


class Imported(schedule.Imported):
    """An FX graph as the engine sees it; its nodes name their values."""

    def __init__(self, source: fx.Graph, scope: Scope, views: Sequence[fx.Node] = ()) -> None:
        super().__init__(scope.graph)
        self.source = source
        self.scope = scope
        #: Nodes that make results only by viewing, which plans would copy.
        self.views = views

    def key(self, source: fx.Node) -> fx.Node:
        return source

    def inputs(self, node: fx.Node) -> list[fx.Node]:
        return [read for read in node.all_input_nodes if read not in self.scope.constants]

    reads = inputs

    def makes(self, node: fx.Node) -> list[fx.Node]:
        return [node]

    def results(self) -> list[fx.Node]:
        readers = (output_of(self.source), *self.views)
        read = (node for reader in readers for node in reader.all_input_nodes)
        return [node for node in read if node not in self.views]

    def reads_memory(self, node: fx.Node) -> bool:
        return (writes(node) or not is_view(node)) and kind_of(node) != "number"

    def writes_memory(self, node: fx.Node) -> bool:
        return writes(node)


def output_of(graph: fx.Graph) -> fx.Node:
    """Return the node that returns a graph's results."""
    return next(iter(reversed(graph.nodes)))


#: Folding makes no larger constant than this or what it is made of, in elements.
_MOST_FOLDED = 1 << 20


def simplify(
    source: fx.GraphModule, known: Mapping[str, torch.Tensor]
) -> dict[fx.Node, torch.Tensor]:
    """Evaluate what depends on constants only, write in place, and check no types again.

    A conversion by ``prims``, which runs in Python, becomes aten's.

    Constants are the placeholders that are ``known`` by name, and attributes that no node writes.
    Returns the tensors of all nodes that are constants afterwards.
    """
    written = written_by(source.graph)
    # Who gets such memory may write to it.
    own = bases(source.graph)
    returned = {own[node] for node in output_of(source.graph).all_input_nodes}
    constants: dict[fx.Node, torch.Tensor] = {}
    #: Constants, and what is made of them, also views and lists.
    values: dict[fx.Node, Any] = {}
    for node in list(source.graph.nodes):
        viewed = viewed_by(node)
        own[node] = node if viewed is None else own[viewed]  # of what it reads by now
        if node.target == torch.ops.aten._assert_tensor_metadata.default:
            source.graph.erase_node(node)
            continue
        if node.target == torch.ops.prims.convert_element_type.default:
            x, dtype = node.args
            node.target, node.args = torch.ops.aten._to_copy.default, (x,)
            node.kwargs = {"dtype": dtype}
        if node.op == "placeholder" and node.name in known:
            constants[node] = values[node] = known[node.name]
        elif node.op == "get_attr" and node not in written:
            held = attribute(source, node)
            if isinstance(held, torch.Tensor):
                constants[node] = values[node] = held.detach()
        elif node not in returned and _is_foldable(node, values):
            read = ChainMap(_shape_only(node), values)
            args, kwargs = fx.map_arg((node.args, node.kwargs), read.__getitem__)
            try:
                with torch.no_grad():
                    values[node] = result = node.target(*args, **kwargs)
            except (RuntimeError, IndexError):
                continue  # the model's own error, raised when it runs
            if not isinstance(result, torch.Tensor) or (
                viewed is not None and (own[node] in returned or not result.is_contiguous())
            ):
                continue
            with source.graph.inserting_before(node):
                name = f"_folded_{node.name}"
                source.register_buffer(name, result, persistent=False)
                folded = source.graph.get_attr(name)
            folded.meta = dict(node.meta)
            node.replace_all_uses_with(folded)
            source.graph.erase_node(node)
            constants[folded] = values[folded] = result
            own[folded] = folded
    write_in_place(source.graph)
    _drop_empty_parts(source.graph)
    source.graph.eliminate_dead_code()
    return {node: tensor for node, tensor in constants.items() if node.users}


#: Operators that read no element of their first argument.
_LIKE = frozenset(
    operator_of(f"aten::{name}")
    for name in ("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")
)


def _shape_only(node: fx.Node) -> dict[fx.Node, torch.Tensor]:
    """Return any tensor for an argument of which a node reads the sizes, if they are known."""
    like = node.args[0] if node.target in _LIKE else None
    x = like.meta.get("val") if isinstance(like, fx.Node) else None
    if not isinstance(x, torch.Tensor) or x.layout != torch.strided:
        return {}
    if not all(isinstance(size, int) for size in (*x.shape, *x.stride())):
        return {}
    assert isinstance(like, fx.Node)
    return {like: torch.empty_strided(x.shape, x.stride(), dtype=x.dtype)}


def _drop_empty_parts(graph: fx.Graph) -> None:
    """Take parts without elements out of ``cat``, so that a region need not wait for them.

    With one of them, torch's result is row-major: it has channels last if all parts have.
    """
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.cat.default):
        parts, *where = node.args
        values = [part.meta["val"] for part in parts]
        some = [
            part
            for part, x in zip(parts, values, strict=True)
            if not any(isinstance(size, int) and size == 0 for size in x.shape)
        ]
        if not some or len(some) == len(parts) or len({x.dtype for x in values}) > 1:
            continue
        with graph.inserting_before(node):
            x = some[0]
            if len(some) > 1:
                x = graph.call_function(node.target, (some, *where))
                x.meta = dict(node.meta)
        node.target, node.args = torch.ops.aten.clone.default, (x,)
        node.kwargs = {"memory_format": torch.contiguous_format}


def _is_foldable(node: fx.Node, values: Mapping[fx.Node, Any]) -> bool:
    """Whether a node only depends on constants, and what it makes is small or no larger."""
    shapes = _shape_only(node)
    read = [argument for argument in node.all_input_nodes if argument not in shapes]
    if not all(argument in values for argument in read) or is_ordered(node):
        return False
    if read and (node.target == operator.getitem or is_view(node)):
        return True
    value = node.meta.get("val")
    several = value if isinstance(value, list | tuple) else [value]
    known = (values[argument] for argument in read)
    most = max([_MOST_FOLDED, *(x.numel() for x in known if isinstance(x, torch.Tensor))])
    return isinstance(node.target, torch._ops.OpOverload) and all(
        isinstance(x, torch.Tensor)
        and all(isinstance(size, int) for size in x.shape)
        and x.numel() <= most
        for x in several
    )


def import_graph(
    source: fx.GraphModule,
    constants: dict[fx.Node, torch.Tensor],
    views: Sequence[fx.Node] = (),
    *,
    states: bool = False,
) -> Imported:
    """Return a graph, imported; it may write to inputs and attributes, also through views.

    What it returns are the results, or what these ``views`` at its end read. With ``states``,
    inputs of which it writes parts are states.

    Raises:
        Unproven: if something that writes to a state is refused.
    """
    scope = Scope(Graph(), constants)
    if states:
        scope.states = find_states(source.graph, constants)
    imported = Imported(source.graph, scope, views)
    imported.near_states = frozenset(sharing(source.graph, written_by(source.graph)))
    for node in source.graph.nodes:
        if node.op in ("get_attr", "output"):
            continue
        if node.op == "placeholder":
            if node not in constants:
                scope.operand(node)
            continue
        imported.nodes.append(node)
        if reason := _try_import(scope, node):
            if writes(node) and base(node.args[0]) in scope.states:
                raise schedule.Unproven(reason)
            imported.opaque[node] = ordered = is_ordered(node)
            _add_opaque(scope, node, reason, ordered)
    results = (value for node in imported.results() for value in scope.read(node))
    scope.graph.set_outputs([v for v in dict.fromkeys(results) if v.constant is None])
    imported.finish()
    return imported


def attribute(source: fx.GraphModule, node: fx.Node) -> Any:
    """Return what a node reads of its module."""
    found: Any = source
    for name in str(node.target).split("."):
        found = getattr(found, name)
    return found


def clone(call: FxCall) -> None:
    """A copy, which in a functional graph only differs by its strides."""
    call.require("memory_format", *PRESERVED, CONTIGUOUS)
    x = call.tensor("self", ANY)
    if call.python("memory_format") == CONTIGUOUS:
        call.result("contiguous", [x])
    else:
        call.identity(x)


def copy(call: FxCall) -> None:
    """What a write to a whole tensor leaves there."""
    if not call.is_dense():
        raise Refused("the tensor that it writes to has gaps in memory")
    old, new = (node.meta["val"] for node in call.node.args[:2])
    x = call.tensor("src", ANY)
    if old.dtype != new.dtype:
        if old.dtype not in FLOATING:
            raise Refused("it converts to a dtype that is not float32 or bfloat16")
        x = call.step("to", [x], dtype=str(old.dtype).removeprefix("torch."))
    if old.dim() == new.dim() and all(map(_same_size, old.shape, new.shape)):
        call.identity(x)
    else:
        call.result("expand_as", [x, call.tensor("self", ANY)])


def as_strided(call: FxCall) -> None:
    """A view of memory, where its operand surely fills that."""
    call.require("storage_offset", None)
    x, held = call.tensor("self", ANY), call.node.args[0].meta["val"]
    shape, own = tuple(held.shape), tuple(held.stride())
    if not all(isinstance(size, int) for size in (*shape, *own)):
        raise Refused("where its operand lies is not known")
    sizes, strides = call.integers("size"), call.integers("stride")
    read = max(_span(shape, own), _span(sizes, strides))
    if read > math.prod(shape) or 0 in own:
        raise Refused("it looks at memory around its operand")
    call.result("as_strided", [x], input_strides=own, sizes=sizes, strides=strides)


def _span(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """Return how many elements there are from the first to the last in memory."""
    return 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))


def expand(call: FxCall) -> None:
    """A view of which each size that stays is -1, also where nobody knows it yet."""
    x = call.tensor("self", ANY)
    before, after = (known.meta["val"].shape for known in (call.node.args[0], call.node))
    missing = len(after) - len(before)
    sizes = call.numbers("size")
    stays = [
        i >= missing and _same_symbol(after[i], before[i - missing]) for i in range(len(after))
    ]
    call.result("expand", [x, *(-1 if s else size for s, size in zip(stays, sizes, strict=True))])


def _same_size(a: int | torch.SymInt, b: int | torch.SymInt) -> bool:
    return (isinstance(a, int) and isinstance(b, int) and a == b) or _same_symbol(a, b)


def _same_symbol(a: int | torch.SymInt, b: int | torch.SymInt) -> bool:
    return (
        isinstance(a, torch.SymInt) and isinstance(b, torch.SymInt) and a.node.expr == b.node.expr
    )


_IMPORTERS = IMPORTERS | {
    "aten::as_strided": as_strided,
    "aten::clone": clone,
    "aten::copy": copy,
    "aten::expand": expand,
}


def _try_import(scope: Scope, node: fx.Node) -> str:
    """Import a node, or return why not."""
    try:
        if node.target in FUNCTIONS:
            FUNCTIONS[node.target](scope, node)
            return ""
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            return "it is control flow"
        if not isinstance(node.target, torch._ops.OpOverload):
            return "the engine has no such operator"
        key = operator_key(node.target)
        importer = _IMPORTERS.get(key)
        if key in STATE_WRITES and base(node.args[0]) in scope.states:
            importer = STATE_WRITES[key]
        if importer is None:
            return "the engine has no such operator"
        importer(FxCall(scope, node))
    except Refused as refused:
        return str(refused)
    return ""


def _add_opaque(scope: Scope, node: fx.Node, reason: str, ordered: bool) -> None:
    """Add a node that nobody but this front end understands."""
    inputs = dict.fromkeys(v for read in node.all_input_nodes for v in scope.read(read))
    result = scope.graph.value(kind_of(node), node)
    scope.bind(node, result)
    scope.graph.add(
        OPAQUE,
        list(inputs),
        outputs=[result],
        origin=(name_of(node),),
        ordered=ordered,
        reason=reason,
        source=node,
    )
