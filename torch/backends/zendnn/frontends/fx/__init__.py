"""The FX front end: functional aten graphs come in, graphs with calls of plans go out."""

from __future__ import annotations

import copy
import operator
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch._inductor.compiler_bisector  # first, as torch.compile does in other threads

# isort: split
import torch._dynamo  # whole, before parts of it, which another thread may wait for
from torch import Tensor, fx
from torch._dynamo.eval_frame import OptimizedModule
from torch._guards import CompileId
from torch.backends.zendnn import passes
from torch.backends.zendnn.frontends import Optimized, count_left_out, left_out
from torch.backends.zendnn.frontends.fx import functions, report
from torch.backends.zendnn.frontends.fx.autocast import PlannedProgram
from torch.backends.zendnn.frontends.fx.logs import UNKNOWN, Capture, GraphLog, line_of
from torch.backends.zendnn.frontends.fx.mutation import views_at_end
from torch.backends.zendnn.frontends.fx.reader import attribute, import_graph, simplify
from torch.backends.zendnn.frontends.fx.repeats import join_repeats
from torch.backends.zendnn.frontends.fx.rest import Compile, compile_groups
from torch.backends.zendnn.frontends.fx.writer import MakePlan, PlannedRegion, emit
from torch.backends.zendnn.frontends.schedule import Schedule, Unproven, schedule
from torch.backends.zendnn.ir.graph import may_share
from torch.backends.zendnn.passes import partition
from torch.export import ExportedProgram

#: The name of a module that a graph may call first, to refuse its inputs.
INPUT_CHECK = "check_inputs"
#: What says nothing to people: that, and reading a result of what was left out.
_HIDDEN = frozenset({INPUT_CHECK, operator.getitem.__name__})
#: Where a graph keeps its ``Notes``: in an attribute, which pickling keeps, and in ``meta``, which
#: copying keeps.
_NOTES = "_zendnn_notes"
#: The graphs that were made for weights which may change, and what for.
_origins: weakref.WeakKeyDictionary[fx.GraphModule, Origin] = weakref.WeakKeyDictionary()
#: Held while that changes or is gone through: threads may compile and explain at the same time.
_origins_lock = threading.Lock()


class Origin(NamedTuple):
    """What a graph was made for."""

    weights: list[Tensor]
    #: Dynamo's number of the compilation, and the backend that it called; None outside of Dynamo,
    #: and of those that it forgot.
    compile_id: CompileId | None
    backend: Any


class Notes(NamedTuple):
    """What a graph says about itself, beside its plans."""

    #: Each operator that was left out, why, and its line in the model.
    left_out: list[tuple[str, str, str]]
    #: Why and where Dynamo ended the graph; empty where it did not have to.
    graph_break: str


def make_plan(description: str, constants: list[Tensor], name: str) -> Any:
    """Return the plan that C++ makes of a region."""
    return torch.classes.zendnn.Plan(description, constants, name)


def optimize(
    source: fx.GraphModule,
    constants: Mapping[str, Tensor],
    make_plan: MakePlan = make_plan,
    capture: Capture = UNKNOWN,
    compile: Compile | None = None,
) -> fx.GraphModule:
    """Return a module that computes what ``source`` does, with calls of plans.

    Args:
        source: a functional graph of aten operators, each with its fake result in ``meta['val']``.
        constants: the tensors of placeholders that stay what they are, by the names of the nodes.
        make_plan: makes the plan of a region.
        capture: where the graph comes from, for logs and explanations.
        compile: compiles groups of operators between the regions, which otherwise stay as they are.

    A graph may end with copies to its inputs and attributes. Nothing else may write.
    """
    log = GraphLog(capture)
    with torch.autocast("cpu", enabled=False):  # its conversions are in the graph
        try:
            copied, planned = _planned(source, constants, log, compile, states=True)
        except Unproven:
            copied, planned = _planned(source, constants, log, compile, states=False)
    result = emit(copied, planned, make_plan)
    if compile is not None:
        compile_groups(result, compile)
    outside = left_out([planned.imported.graph], _HIDDEN)
    notes = Notes(
        [(op, why, line_of(node.source)) for op, why, node in outside], capture.graph_break
    )
    result.meta[_NOTES] = notes
    setattr(result, _NOTES, notes)
    log.planned(planned, count_left_out(notes.left_out))
    with _origins_lock:
        _origins[result] = Origin(list(constants.values()), capture.compile_id, capture.backend)
    return result


def _planned(
    source: fx.GraphModule,
    constants: Mapping[str, Tensor],
    log: GraphLog,
    compile: Compile | None,
    *,
    states: bool,
) -> tuple[fx.GraphModule, Schedule]:
    """Return a simplified copy of a graph and its schedule."""
    copied = fx.GraphModule(source, copy.deepcopy(source.graph))
    join_repeats(copied.graph)
    known = simplify(copied, constants)
    imported = import_graph(copied, known, views_at_end(copied.graph), states=states)
    log.imported(imported.graph)
    passes.run(imported.graph, log.changed)
    if late := imported.graph.late_reader(may_share):
        raise Unproven(f"{late.op} reads what has been overwritten")
    regions = partition.partition(imported.graph, rest_is_compiled=compile is not None)
    return copied, schedule(imported, regions)


# What an optimised model says about itself.

#: What ``frontends.FrontEnd`` asks for.
TAKES = "a module, function or program that torch.compile or torch.backends.zendnn returned"
HOW_TO_OPTIMIZE = (
    "the first call of a compiled model makes plans, while ZenDNN is enabled; "
    "torch.backends.zendnn.export puts them into a program"
)


def takes(model: object) -> bool:
    """Return whether a model is compiled, or a graph or a program that was optimised."""
    kinds = OptimizedModule | PlannedProgram | fx.GraphModule | ExportedProgram
    return isinstance(model, kinds) or functions.is_compiled(model)


def optimized(model: Any) -> list[Optimized]:
    """Return the graphs of a model, in the order in which they were made."""
    from torch.backends.zendnn.frontends.fx import program  # which imports this

    if program.is_planned(model):
        return [program.planned(model)]
    found = []
    for number, graph in enumerate(_graphs(model)):
        if (notes := noted(graph)) is not None:
            left = count_left_out(notes.left_out)
            name, calls = f"graph {number}", report.calls_of(graph, _call_in(graph))
            found.append(Optimized(name, _plans(graph), left, notes.graph_break, calls))
    return found


def _graphs(model: Any) -> Iterator[fx.GraphModule]:
    """The optimised graphs of a model; those of a compiled module read its weights."""
    if isinstance(model, PlannedProgram):
        model = model.planned
    if isinstance(model, fx.GraphModule):
        yield model
        return
    if isinstance(model, ExportedProgram):
        return
    if functions.is_compiled(model):
        graphs = _with_origins()
        known = [(origin.compile_id, origin.backend) for _, origin in graphs]
        backends = functions.backends(model, known)
        yield from (graph for graph, origin in graphs if id(origin.backend) in backends)
        return
    weights = {tensor.data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    for graph, origin in _with_origins():
        if not weights.isdisjoint(tensor.data_ptr() for tensor in origin.weights):
            yield graph


def _with_origins() -> list[tuple[fx.GraphModule, Origin]]:
    with _origins_lock:
        return list(_origins.items())


def forget_compilations() -> None:
    """Let no compiled function find the graphs that there are."""
    with _origins_lock:
        for graph, origin in list(_origins.items()):
            _origins[graph] = origin._replace(compile_id=None, backend=None)


def noted(graph: fx.GraphModule) -> Notes | None:
    """Return the notes of a graph; None for one that was not optimised."""
    notes: Notes | None = graph.meta.get(_NOTES, getattr(graph, _NOTES, None))
    return notes


def _call_in(graph: fx.GraphModule) -> report.CallOf:
    def call_of(node: fx.Node) -> tuple[Any, Sequence[fx.Node], Sequence[fx.Node]] | None:
        region = attribute(graph, node) if node.op == "call_module" else None
        if not isinstance(region, PlannedRegion):
            return None
        count, numbers, _ = region.signature
        arguments = node.all_input_nodes
        return region.plan, arguments[:count], arguments[count : count + numbers]

    return call_of


def _plans(graph: fx.GraphModule) -> tuple[Any, ...]:
    return tuple(inner.plan for inner in graph.modules() if isinstance(inner, PlannedRegion))
