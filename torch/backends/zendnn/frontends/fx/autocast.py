"""Makes what autocast does a part of the graph.

A graph that is traced above autocast does not show its conversions. Each operator is tried on fake
tensors, with autocast and without. Where that makes a difference, its floating-point operands get
the dtype of its result.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

_enter, _exit = torch.amp.autocast_mode._enter_autocast, torch.amp.autocast_mode._exit_autocast


def is_used(source: fx.GraphModule) -> bool:
    """Whether autocast is on now, or in some part of a graph."""
    return torch.is_autocast_enabled("cpu") or any(n.target is _enter for n in source.graph.nodes)


def make_explicit(source: fx.GraphModule) -> None:
    """Insert the conversions that autocast would do, remove its regions and state the true types.

    ``meta['val']`` of placeholders are fake tensors, and those of other nodes become so.

    Raises:
        RuntimeError: where it cannot be said what autocast does to an operator.
    """
    made: dict[fx.Node, Any] = {}
    with contextlib.ExitStack() as regions:
        for node in list(source.graph.nodes):
            args, kwargs = fx.map_arg((node.args, node.kwargs), made.get)
            if node.op == "placeholder":
                made[node] = node.meta["val"]
            elif node.op == "get_attr":
                made[node] = node.meta.get("val")
            elif node.target is _enter:
                made[node] = region = _enter(*args)
                regions.callback(_exit, region)
            elif node.target is _exit:
                _exit(*args)
                regions.pop_all()
            elif node.op == "call_function":
                made[node] = node.meta["val"] = node.target(*args, **kwargs)
                if torch.is_autocast_enabled("cpu"):
                    _convert_operands(source.graph, node, args, kwargs)
    for node in reversed(list(source.graph.nodes)):
        if node.target in (_enter, _exit):
            source.graph.erase_node(node)


def _convert_operands(graph: fx.Graph, node: fx.Node, args: Any, kwargs: Any) -> None:
    """Insert conversions before a node, if autocast makes a difference."""
    wanted = _dtypes(node.meta["val"])
    if _without_autocast(node.target, args, kwargs) == wanted:
        return
    dtype = next((dtype for dtype in wanted if dtype.is_floating_point), None)

    def is_other(x: Any) -> bool:
        return isinstance(x, Tensor) and x.is_floating_point() and x.dtype != dtype

    given = [x.to(dtype) if is_other(x) else x for x in pytree.tree_leaves((args, kwargs))]
    spec = pytree.tree_structure((args, kwargs))
    if dtype is None or _without_autocast(node.target, *spec.unflatten(given)) != wanted:
        raise RuntimeError(f"what autocast does to {node.target} is not known")

    def convert(operand: fx.Node) -> fx.Node:
        if not is_other(operand.meta.get("val")):
            return operand
        with graph.inserting_before(node):
            to = torch.ops.aten._to_copy.default
            converted = graph.call_function(to, (operand,), {"dtype": dtype})
        converted.meta["val"] = operand.meta["val"].to(dtype)
        return converted

    node.args, node.kwargs = fx.map_arg((node.args, node.kwargs), convert)


def _dtypes(result: Any) -> list[torch.dtype]:
    return [x.dtype for x in pytree.tree_leaves(result) if isinstance(x, Tensor)]


def _without_autocast(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Return the dtypes of a function's results; None where it refuses its operands."""
    with torch.autocast("cpu", enabled=False):
        try:
            return _dtypes(function(*args, **kwargs))
        except (RuntimeError, TypeError):
            return None
