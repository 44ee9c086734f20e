"""The FX front end: functional aten graphs come in, graphs with calls of plans go out."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, fx
from torch._dynamo.eval_frame import OptimizedModule
from torch.backends.zendnn import passes
from torch.backends.zendnn.frontends import Optimized, count_left_out, left_out
from torch.backends.zendnn.frontends.fx.reader import import_graph, simplify
from torch.backends.zendnn.frontends.fx.rest import Compile, compile_groups
from torch.backends.zendnn.frontends.fx.writer import MakePlan, PlannedRegion, emit
from torch.backends.zendnn.frontends.fx.writes import views_at_end
from torch.backends.zendnn.frontends.schedule import schedule
from torch.backends.zendnn.passes import partition

#: The name of a module that a graph may call first, to refuse its inputs.
INPUT_CHECK = "check_inputs"
#: Where a graph notes the operators that were left out, and why: in an attribute, which pickling
#: keeps, and in ``meta``, which copying keeps.
_LEFT_OUT = "_zendnn_left_out"
#: The graphs that were made for weights which may change, and these weights.
_of_weights: weakref.WeakKeyDictionary[fx.GraphModule, list[Tensor]] = weakref.WeakKeyDictionary()


def make_plan(description: str, constants: list[Tensor], name: str) -> Any:
    """Return the plan that C++ makes of a region."""
    return torch.classes.zendnn.Plan(description, constants, name)


def optimize(
    source: fx.GraphModule,
    constants: Mapping[str, Tensor],
    make_plan: MakePlan = make_plan,
    compile: Compile | None = None,
) -> fx.GraphModule:
    """Return a module that computes what ``source`` does, with calls of plans.

    Args:
        source: a functional graph of aten operators, each with its fake result in ``meta['val']``.
        constants: the tensors of placeholders that stay what they are, by the names of the nodes.
        make_plan: makes the plan of a region.
        compile: compiles groups of operators between the regions, which otherwise stay as they are.

    A graph may end with copies to its inputs and attributes. Nothing else may write.
    """
    copied = fx.GraphModule(source, copy.deepcopy(source.graph))
    known = simplify(copied, constants)
    imported = import_graph(copied, known, views_at_end(copied.graph))
    passes.run(imported.graph)
    made = emit(copied, schedule(imported, partition.partition(imported.graph)), make_plan)
    if compile is not None:
        compile_groups(made, compile)
    made.meta[_LEFT_OUT] = left_out([imported.graph], {INPUT_CHECK})
    setattr(made, _LEFT_OUT, made.meta[_LEFT_OUT])
    _of_weights[made] = list(constants.values())
    return made


# What an optimised model says about itself.

#: What ``frontends.FrontEnd`` asks for.
TAKES = "a module that torch.compile or torch.backends.zendnn.optimize returned"
HOW_TO_OPTIMIZE = "the first call of a compiled model makes plans, while ZenDNN is enabled"


def takes(model: object) -> bool:
    """Return whether a model is compiled, or a graph that was optimised."""
    return isinstance(model, OptimizedModule | fx.GraphModule)


def optimized(model: Any) -> list[Optimized]:
    """Return the graphs of a model, in the order in which they were made."""
    return [
        Optimized(f"graph {number}", _plans(graph), count_left_out(_noted(graph) or ()))
        for number, graph in enumerate(_graphs(model))
    ]


def _graphs(model: Any) -> Iterator[fx.GraphModule]:
    """The optimised graphs of a model; those of a compiled one read its weights."""
    if isinstance(model, fx.GraphModule):
        yield from [model] if _noted(model) is not None else []
        return
    weights = {tensor.data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    for graph, read in list(_of_weights.items()):
        if not weights.isdisjoint(tensor.data_ptr() for tensor in read):
            yield graph


def _noted(graph: fx.GraphModule) -> list[tuple[str, str]] | None:
    """What was left out of a graph; None for one that was not optimised."""
    noted: list[tuple[str, str]] | None = graph.meta.get(_LEFT_OUT, getattr(graph, _LEFT_OUT, None))
    return noted


def _plans(graph: fx.GraphModule) -> tuple[Any, ...]:
    return tuple(inner.plan for inner in graph.modules() if isinstance(inner, PlannedRegion))
