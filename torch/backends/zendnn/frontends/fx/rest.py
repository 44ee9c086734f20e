"""What stays between the calls of plans: groups of its operators become one call each.

A group is a run of neighbours in the graph's order, so that no read passes a write.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import logging
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._dynamo.convert_frame import compile_lock
from torch.backends.zendnn.frontends.fx.calls import hint_of, kind_of
from torch.backends.zendnn.frontends.fx.mutation import is_view, writes
from torch.backends.zendnn.passes.partition import LARGE
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

log = logging.getLogger(__name__)

_aten = torch.ops.aten

#: A group is worth a call if its operators go through ``LARGE`` elements, so that it saves traffic,
#: or if it has so many operators, so that it saves their calls.
MANY = 16

#: A compiled group, which takes the group's inputs in order and returns its results in a tuple.
Compiled = Callable[..., Sequence[Any]]
Compile = Callable[[fx.GraphModule], Compiled]


def compile_groups(source: fx.GraphModule, compile: Compile) -> None:
    """Replace the groups of a graph that are worth it by calls of what ``compile`` makes of them.

    The graph may call modules, write to inputs and draw random numbers; these stay.
    """
    for number, group in enumerate(filter(_is_worth_a_call, map(_trimmed, _runs(source.graph)))):
        _replace(source, group, f"rest_{number}", compile)
    source.graph.lint()
    source.recompile()


def _runs(graph: fx.Graph) -> Iterator[dict[fx.Node, None]]:
    """Yield the runs of operators that can be in a group."""
    run: dict[fx.Node, None] = {}
    for node in list(graph.nodes):
        light = node.op == "get_attr" or node.target == operator.getitem or _is_number(node)
        if light and not any(x in run for x in node.all_input_nodes):
            continue  # can be computed before the group
        if light or _can_be_grouped(node):
            run[node] = None
        elif run:
            yield run
            run = {}


def _is_number(node: fx.Node) -> bool:
    return node.op == "call_function" and kind_of(node) == "number"


def _can_be_grouped(node: fx.Node) -> bool:
    target, value = node.target, node.meta.get("val")
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return False
    several = value if isinstance(value, list | tuple) else [value]
    return (
        all(isinstance(x, Tensor) and not x.dtype.is_complex for x in several)
        and not writes(node)
        and not node.is_impure()
        and (_UNFIT.isdisjoint(target.tags) or node.target == _aten.index.Tensor)
        and (not places_of(node) or _can_be_checked(node))
    )


#: Operators whose results, or whose sizes, do not follow from what they read.
_UNFIT = frozenset(
    {
        torch.Tag.nondeterministic_seeded,
        torch.Tag.dynamic_output_shape,
        torch.Tag.data_dependent_output,
    }
)

#: Arguments that say where an operator reads or writes elements.
_PLACES = frozenset({"index", "indices", "target"})


def places_of(node: fx.Node) -> list[fx.Node]:
    """Return the tensors of integers or masks that say where a node reads or writes elements."""
    assert isinstance(node.target, torch._ops.OpOverload)
    names = (argument.name for argument in node.target._schema.arguments)
    arguments = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    named = tree_leaves([arguments[name] for name in _PLACES & arguments.keys()])
    return [
        place
        for place in named
        if isinstance(place, fx.Node)
        and isinstance(place.meta["val"], Tensor)
        and not place.meta["val"].is_floating_point()
    ]


def _can_be_checked(node: fx.Node) -> bool:
    """Whether a node indexes by numbers, which its group can check as eager mode does.

    For one out of bounds, Inductor's own loops end the process, or count from the end. The sizes of
    a mask's results are not known. Other operators with indices are as fast on eager kernels.
    """
    if node.target != _aten.index.Tensor:
        return False
    dtypes = {place.meta["val"].dtype for place in places_of(node)}
    sizes = node.args[0].meta["val"].shape
    empty = any(isinstance(size, int) and size == 0 for size in sizes)
    return dtypes <= {torch.int32, torch.int64} and not empty


def _trimmed(run: dict[fx.Node, None]) -> list[fx.Node]:
    """Return a run without views of what it is given, which keep the memory of that."""
    outside: set[fx.Node] = set()
    for node in run:
        several = node.args[0] if node.target == operator.getitem else node
        if isinstance(several, fx.Node) and is_view(several):
            read = several.all_input_nodes[:1]
            if all(x not in run or x in outside for x in read):
                outside.add(node)
    return [node for node in run if node not in outside]


def _is_worth_a_call(group: list[fx.Node]) -> bool:
    computing = [node for node in group if _can_be_grouped(node) and not is_view(node)]
    if len(computing) >= MANY:
        return True
    return len(computing) > 1 and sum(map(_elements, computing)) >= LARGE


def _elements(node: fx.Node) -> int:
    """Return how many elements a node reads or makes at most, at the sizes of the first call."""
    most = 0
    for near in (node, *node.all_input_nodes):
        value = near.meta.get("val")
        for x in value if isinstance(value, list | tuple) else [value]:
            if isinstance(x, Tensor):
                most = max(most, math.prod(hint_of(size) or 1 for size in x.shape))
    return most


def _replace(source: fx.GraphModule, group: list[fx.Node], name: str, compile: Compile) -> None:
    """Replace a group by one call."""
    inside = set(group)
    inputs = dict.fromkeys(x for node in group for x in node.all_input_nodes if x not in inside)
    outputs = [node for node in group if any(user not in inside for user in node.users)]
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in group:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in outputs))
    source.add_module(name, compile(fx.GraphModule(torch.nn.Module(), graph)))
    with source.graph.inserting_after(group[-1]):
        call = source.graph.call_module(name, tuple(inputs))
    with source.graph.inserting_after(call):
        for position, node in reversed(list(enumerate(outputs))):
            element = source.graph.call_function(operator.getitem, (call, position))
            element.meta = dict(node.meta)
            node.replace_all_uses_with(element, lambda user: user not in inside)
    for node in reversed(group):
        source.graph.erase_node(node)


# How Inductor compiles a group.


#: Inductor takes longer to compile a group than the group takes in many eager calls: at the first
#: ones the group is eager, so that a prompt's graph, which may run once, does not wait for it.
RECURRING = 3


def by_inductor(group: fx.GraphModule) -> Compiled:
    """Return a group of operators that Inductor compiles when its calls recur.

    It is compiled for sizes that change if those of its inputs do.
    """
    sizes = [
        size
        for node in group.graph.nodes
        for size in getattr(node.meta.get("val"), "shape", [node.meta.get("val")])
    ]
    return Group(group, any(isinstance(size, torch.SymInt) for size in sizes))


def _uncached() -> contextlib.AbstractContextManager[Any]:
    """Keep Dynamo from its cache of whole functions, which takes all groups for the same one."""
    settings: Any = torch._dynamo.config
    if not hasattr(settings, "caching_precompile"):  # an older torch
        return contextlib.nullcontext()
    result: contextlib.AbstractContextManager[Any] = settings.patch(caching_precompile=False)
    return result


def _with_checks(group: fx.GraphModule) -> fx.GraphModule | None:
    """Return a group that clamps its indices; its last result says whether all are within bounds.

    Returns None for a group without indices.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    checks: list[fx.Node] = []

    def compute(function: Callable[..., Any], *arguments: Any) -> Any:
        if not any(isinstance(x, fx.Node) for x in arguments):
            return function(*arguments)
        return graph.call_function(function, arguments)

    def bounded(place: fx.Node, x: fx.Node, dim: int) -> fx.Node:
        size = x.meta["val"].shape[dim]
        if not isinstance(size, int):
            size = compute(_aten.sym_size.int, copies[x], dim)
        least, most = compute(operator.neg, size), compute(operator.sub, size, 1)
        not_below = compute(_aten.ge.Scalar, copies[place], least)
        not_above = compute(_aten.le.Scalar, copies[place], most)
        both = compute(_aten.logical_and.default, not_below, not_above)
        checks.append(compute(_aten.all.default, both))
        return graph.call_function(_aten.clamp.default, (copies[place], least, most))

    *nodes, output = group.graph.nodes
    for node in nodes:
        if node.target != _aten.index.Tensor:
            copies[node] = graph.node_copy(node, copies.__getitem__)
            continue
        x, places = node.args
        within = [
            None if place is None else bounded(place, x, dim) for dim, place in enumerate(places)
        ]
        # Inductor checks no indices of this one again.
        copies[node] = compute(_aten._unsafe_index.Tensor, copies[x], within)
    if not checks:
        return None
    all_within = functools.reduce(functools.partial(compute, _aten.logical_and.default), checks)
    results = fx.map_arg(output.args[0], copies.__getitem__)
    graph.output((*results, all_within))
    return fx.GraphModule(group, graph)


class Group(torch.nn.Module):
    """Operators that Inductor compiles, for the sizes and strides of the last call or for all.

    Dynamo's guards of the whole graph hold for it; where sizes are fixed, it saves those that
    torch.compile would add. Where an index is out of bounds, eager kernels raise the error.
    """

    def __init__(self, group: fx.GraphModule, dynamic: bool) -> None:
        super().__init__()
        self.group = group
        self._checked = _with_checks(group)
        self._dynamic = dynamic
        self._calls = 0
        self._compiled: Compiled | None = None

    def forward(self, *arguments: Tensor) -> Sequence[Any]:
        if self._compiled is None:
            self._calls += 1
            if self._calls < RECURRING:
                return self._eager(arguments)
            self._compiled = self._compile(arguments)
        try:
            results: Sequence[Any] = self._compiled(*arguments)
        except AssertionError:  # an input has other strides
            if self._dynamic:
                raise
            self._compiled = self._compile(arguments)
            results = self._compiled(*arguments)
        if self._checked is None:
            return results
        *results, within = results
        return results if within else self._eager(arguments)

    def _eager(self, arguments: Sequence[Tensor]) -> Sequence[Any]:
        results: Sequence[Any] = self.group(*arguments)
        return results

    def _compile(self, arguments: Sequence[Tensor]) -> Compiled:
        source = self.group if self._checked is None else self._checked
        if self._dynamic:
            with _uncached():
                compiled: Compiled = torch.compile(source, backend="inductor", dynamic=True)
            return compiled
        from torch._inductor.compile_fx import compile_fx  # slow

        copied = fx.GraphModule(source, copy.deepcopy(source.graph))
        try:
            # AOTAutograd checks operators at a first call, and is for one thread at a time.
            with compile_lock, _disable_current_modes():
                result: Compiled = compile_fx(copied, list(arguments))
        except Exception as error:
            log.warning("operators between regions stay eager: %s", error)
            result = source
        return result
