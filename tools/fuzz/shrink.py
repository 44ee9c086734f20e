"""Shrinks a failing model: fewer nodes, then fewer runs, plainer data and smaller sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from tools.fuzz.model import Data, Model, Node

#: Maximum number of models to try.
TRIALS = 250


def shrink(model: Model, fails: Callable[[Model], bool], trials: int = TRIALS) -> Model:
    """Return the smallest model found for which ``fails`` holds, as it does for ``model``."""
    seen = {model}
    changed = True
    while changed:
        changed = False
        for candidates in (_fewer_nodes, _fewer_runs, _plainer, _smaller):
            again = True
            while again:
                again = False
                for candidate in candidates(model):
                    if candidate in seen:
                        continue
                    if len(seen) > trials:
                        return model
                    seen.add(candidate)
                    if fails(candidate):
                        model, changed, again = candidate, True, True
                        break
    return model


def _fewer_nodes(model: Model) -> Iterator[Model]:
    for output in sorted({*model.outputs, *(node.result for node in model.nodes)}, key=_number):
        if (output,) != model.outputs and any(node.result == output for node in model.nodes):
            yield _pruned(replace(model, outputs=(output,)))
    for dropped in model.outputs:
        if len(model.outputs) > 1:
            kept = tuple(name for name in model.outputs if name != dropped)
            yield _pruned(replace(model, outputs=kept))
    for node in reversed(model.nodes):
        if node.under:
            for block in ([x for x in model.nodes if x.under == node.under], [node]):
                freed = (replace(x, under="") if x in block else x for x in model.nodes)
                yield _pruned(replace(model, nodes=tuple(freed)))
    read = {*model.outputs, *(argument for node in model.nodes for argument in node.arguments)}
    for node in reversed(model.nodes):
        if node.writes and node.result not in read:
            yield _pruned(replace(model, nodes=tuple(x for x in model.nodes if x is not node)))
    shapes = {data.name: (data.shape, data.dtype) for data in model.inputs[0]}
    for node in reversed(model.nodes):
        for argument in () if node.is_header else node.arguments:
            if shapes.get(argument, (node.shape, node.dtype)) == (node.shape, node.dtype):
                yield _pruned(_renamed(model, node, argument))
        shapes.pop(node.result, None)
    for node in reversed(model.nodes):
        if node.result not in model.outputs and not node.is_header:
            yield _pruned(_as_input(model, node))


def _number(name: str) -> int:
    return int(name[1:])


def _renamed(model: Model, gone: Node, argument: str) -> Model:
    """Return the model without a node; its readers read one of its arguments instead."""

    def named(name: str) -> str:
        return argument if name == gone.result else name

    nodes = tuple(
        replace(node, arguments=tuple(map(named, node.arguments)))
        for node in model.nodes
        if node is not gone
    )
    return replace(model, nodes=nodes, outputs=tuple(map(named, model.outputs)))


def _as_input(model: Model, gone: Node) -> Model:
    """Return the model with an input in place of a node; each run keeps its batch size."""
    first = model.inputs[0]
    batch = next((data.shape[0] for data in first if data.shape), None)
    runs = []
    for run in model.inputs:
        size = next((data.shape[0] for data in run if data.shape), None)
        shape = gone.shape
        if shape and size is not None and shape[0] == batch:
            shape = (size, *shape[1:])
        runs.append((*run, Data(gone.result, shape, gone.dtype)))
    nodes = tuple(node for node in model.nodes if node is not gone)
    return replace(model, nodes=nodes, inputs=tuple(runs))


def _pruned(model: Model) -> Model:
    """Return the model without nodes and inputs that its outputs and writes do not need."""
    needed = set(model.outputs)
    nodes: list[Node] = []
    for node in reversed(model.nodes):
        if node.result in needed or node.writes:
            nodes.insert(0, node)
            needed |= {*node.arguments, node.under}
    runs = tuple(tuple(data for data in run if data.name in needed) for run in model.inputs)
    return replace(model, nodes=tuple(nodes), inputs=runs)


def _fewer_runs(model: Model) -> Iterator[Model]:
    for number in range(len(model.inputs)):
        if len(model.inputs) > 1:
            yield replace(model, inputs=(model.inputs[number],))
    for number in range(1, len(model.inputs)):
        if len(model.inputs) > 2:
            yield replace(model, inputs=(model.inputs[0], model.inputs[number]))


def _plainer(model: Model) -> Iterator[Model]:
    for plain in ({"layout": "contiguous"}, {"kind": "normal"}):
        for number, run in enumerate(model.inputs):
            for place, data in enumerate(run):
                new = replace(data, **plain)  # type: ignore[arg-type]
                if new != data:
                    changed = (*run[:place], new, *run[place + 1 :])
                    runs = (*model.inputs[:number], changed, *model.inputs[number + 1 :])
                    yield replace(model, inputs=runs)


def _smaller(model: Model) -> Iterator[Model]:
    """Yield models with one size replaced everywhere, and with one size of an input replaced."""
    sizes = {size for run in model.inputs for data in run for size in data.shape}
    sizes |= {size for weight in model.weights().values() for size in weight.shape}
    for size in sorted(sizes, reverse=True):
        for less in dict.fromkeys((1, 2, size // 2, size - 1)):
            if 0 < less < size:
                yield _resized(model, size, less)
    for number, run in enumerate(model.inputs):
        for place, data in enumerate(run):
            for dim, size in enumerate(data.shape):
                for less in dict.fromkeys((1, 2, size // 2, size - 1)):
                    if 0 < less < size:
                        shape = (*data.shape[:dim], less, *data.shape[dim + 1 :])
                        changed = (*run[:place], replace(data, shape=shape), *run[place + 1 :])
                        runs = (*model.inputs[:number], changed, *model.inputs[number + 1 :])
                        yield replace(model, inputs=runs)


def _resized(model: Model, old: int, new: int) -> Model:
    def resized(data: Data) -> Data:
        return replace(data, shape=tuple(new if size == old else size for size in data.shape))

    number = re.compile(rf"(?<![\w.{{]){old}(?![\w.}}])")
    nodes = tuple(
        replace(
            node,
            expression=number.sub(str(new), node.expression),
            weights=tuple(map(resized, node.weights)),
            shape=tuple(new if size == old else size for size in node.shape),
        )
        for node in model.nodes
    )
    return replace(model, nodes=nodes, inputs=tuple(tuple(map(resized, r)) for r in model.inputs))
