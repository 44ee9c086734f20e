"""The FX front end: functional aten graphs come in, graphs with calls of plans go out."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch.backends.zendnn import passes
from torch.backends.zendnn.frontends.fx.reader import import_graph, simplify
from torch.backends.zendnn.frontends.fx.writer import MakePlan, emit
from torch.backends.zendnn.frontends.schedule import schedule
from torch.backends.zendnn.passes import partition


def make_plan(description: str, constants: list[torch.Tensor], name: str) -> Any:
    """Return the plan that C++ makes of a region."""
    return torch.classes.zendnn.Plan(description, constants, name)


def optimize(
    source: fx.GraphModule,
    constants: Mapping[str, torch.Tensor],
    make_plan: MakePlan = make_plan,
) -> fx.GraphModule:
    """Return a module that computes what ``source`` does, with calls of plans.

    Args:
        source: a functional graph of aten operators, each with its fake result in ``meta['val']``.
        constants: the tensors of placeholders that stay what they are, by the names of the nodes.

    A graph may end with copies to its inputs and attributes. Nothing else may write.
    """
    copied = fx.GraphModule(source, copy.deepcopy(source.graph))
    imported = import_graph(copied, simplify(copied, constants))
    passes.run(imported.graph)
    return emit(copied, schedule(imported, partition.partition(imported.graph)), make_plan)
