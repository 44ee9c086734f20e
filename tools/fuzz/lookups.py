"""Adds lookups to a random model: embeddings and bags in place of inputs, and rows of results.

NNSmith hardly ever draws integers. Here they are inputs of their own, of which a last run may have
wrong ones.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace

from tools.fuzz.model import Data, Model, Node, draw_layout

#: Rows of a table.
ROWS = 7
#: Valid ids of a dimension of {n} elements, from the integers of an input {i}; the second form
#: keeps negative numbers that are too large.
IDS = ("({i}.abs() % {n})", "({i} + 4).clamp(max={n} - 1)")
#: Bags of ids {i} that begin at the offsets {o}, in a table.
BAGS = {
    "bag_sums": "F.embedding_bag({i}, {{w0}}, {o}, mode='sum', include_last_offset={last})",
    "bag_means": "F.embedding_bag({i}, {{w0}}, {o}, mode='mean', include_last_offset={last})",
    "bag_maxima": "F.embedding_bag({i}, {{w0}}, {o}, mode='max', include_last_offset={last})",
    "weighted_bags": "F.embedding_bag({i}, {{w0}}, {o}, mode='sum', per_sample_weights=({i} * 0.5).to({{float}}), include_last_offset={last})",  # noqa: E501
    "padded_bags": "F.embedding_bag({i}, {{w0}}, {o}, mode='sum', padding_idx=2, include_last_offset={last})",  # noqa: E501
}
#: As many elements of dimension {d} of {0}, which ids {i} choose, as it has; {v} is a shape of ids.
LOOKUPS = {
    "index_selected": "torch.index_select({{0}}, {d}, {i})",
    "indexed": "{{0}}.movedim({d}, 0)[{i}].movedim(0, {d})",
    "gathered": "torch.gather({{0}}, {d}, {i}.view({v}).expand_as({{0}}))",
    "taken_along": "torch.take_along_dim({{0}}, {i}.view({v}), {d})",
    "scattered": "{{0}}.scatter_add({d}, {i}.view({v}).expand_as({{0}}), {{0}})",
    "added_at": "{{0}}.index_add({d}, {i}, {{0}})",
    "filled_at": "{{0}}.index_fill({d}, {i}, 0.5)",
}
#: Share of the models with lookups that get a run with wrong integers.
WRONG_RUNS = 0.5


def with_lookups(model: Model, rng: random.Random) -> Model:
    """Return a model with a lookup or two, and perhaps a run with wrong integers."""
    for change in rng.choice([[_embedded], [_embedded], [_chosen], [_embedded, _chosen]]):
        model = change(model, rng)
    wrong = tuple(
        replace(x, kind=f"wrong_{x.kind}") if x.dtype == "int64" and rng.random() < 0.7 else x
        for x in model.inputs[0]
    )
    if wrong != model.inputs[0] and rng.random() < WRONG_RUNS:
        return replace(model, inputs=(*model.inputs, wrong))
    return model


def _embedded(model: Model, rng: random.Random) -> Model:
    """Return a model in which an embedding, or bags, stand for an input."""
    places = [
        place
        for place, x in enumerate(model.inputs[0])
        if x.dtype == "float32" and len(x.shape) > 1 and 0 not in x.shape
    ]
    if not places:
        return model
    place = rng.choice(places)
    x, number = model.inputs[0][place], _next(model)
    ids, offsets = f"v{number}", f"v{number + 1}"
    text = rng.choice(IDS).format(i="{0}", n=ROWS)
    last, runs = rng.random() < 0.6, []
    operator = rng.choice(list(BAGS)) if rng.random() < 0.7 else "embedded"
    for run in model.inputs:
        shape, layout = run[place].shape, draw_layout(rng)
        more = [Data(ids, shape[:-1], "int64", layout=layout)]
        if operator != "embedded":
            bags = math.prod(shape[:-1])
            count = rng.choice([0, 1, bags, 2 * bags + 1])
            more = [Data(ids, (count,), "int64", layout=layout)]
            more += [Data(offsets, (bags + last,), "int64", "offsets", limit=count + 1)]
        runs.append((*run[:place], *more, *run[place + 1 :]))
    expression, read = f"F.embedding({text}, {{w0}})", [ids]
    if operator != "embedded":
        bags_of = BAGS[operator].format(i=text, o="{1}", last=last)
        expression, read = f"{bags_of}.view({[-1, *x.shape[1:]]})", [ids, offsets]
    table = Data(f"{x.name}_0", (ROWS, x.shape[-1]))
    node = Node(x.name, operator, tuple(read), expression, (table,), x.shape, "float32")
    return replace(model, nodes=(node, *model.nodes), inputs=tuple(runs))


def _chosen(model: Model, rng: random.Random) -> Model:
    """Return a model in which ids choose elements of a result."""
    places = [
        place
        for place, node in enumerate(model.nodes)
        if node.dtype == "float32" and node.shape and 0 not in node.shape and not node.under
    ]
    if not places:
        return model
    place = rng.choice(places)
    node, number = model.nodes[place], _next(model)
    dim = rng.randrange(len(node.shape))
    size, first = node.shape[dim], _batch(model.inputs[0])
    runs = []
    for run in model.inputs:
        count = _batch(run) if dim == 0 and size == first else size
        runs.append((*run, Data(f"v{number}", (count,), "int64", layout=draw_layout(rng))))
    operator, result = rng.choice(list(LOOKUPS)), f"v{number + 1}"
    view = [-1 if i == dim else 1 for i in range(len(node.shape))]
    text = rng.choice(IDS).format(i="{1}", n=size)
    expression = LOOKUPS[operator].format(i=text, d=dim, v=view)
    added = Node(
        result, operator, (node.result, f"v{number}"), expression, (), node.shape, "float32"
    )

    def named(name: str) -> str:
        return result if name == node.result else name

    after = (
        replace(other, arguments=tuple(map(named, other.arguments)))
        for other in model.nodes[place + 1 :]
    )
    nodes = (*model.nodes[: place + 1], added, *after)
    outputs = tuple(map(named, model.outputs))
    return replace(model, nodes=nodes, inputs=tuple(runs), outputs=outputs)


def _next(model: Model) -> int:
    """Return a number that no value of a model has."""
    named = [*(data.name for data in model.inputs[0]), *(node.result for node in model.nodes)]
    return 1 + max(int(name[1:]) for name in named)


def _batch(run: tuple[Data, ...]) -> int:
    return next((data.shape[0] for data in run if data.shape), 1)
