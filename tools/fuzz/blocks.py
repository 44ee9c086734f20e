"""Puts nodes of a random model under control flow that depends on data: branches and loops."""

from __future__ import annotations

import random
from dataclasses import replace

from tools.fuzz.model import Model, Node

#: How often a block runs, of a tensor {0}; by operators, of which the name says what runs it.
HEADERS = {
    "if": "int(({0} > 0).sum() % 2)",
    "if_large": "int({0}.abs().max() > 1.5)",
    "for": "int(({0} > 0).sum() % 3)",
    "for_two": "int(({0} != {0}).sum() * 0 + 2)",
}


def with_block(model: Model, rng: random.Random) -> Model:
    """Return a model with some of its neighbouring nodes in a block.

    Where the block does not run, its results are zeros.
    """
    nodes = model.nodes
    start = rng.randrange(len(nodes))
    end = rng.randint(start + 1, len(nodes))
    shapes = {data.name: data.shape for data in model.inputs[0] if data.dtype != "bool"}
    shapes |= {node.result: node.shape for node in nodes[:start] if node.dtype != "bool"}
    known = [name for name, shape in shapes.items() if 0 not in shape]
    if any(node.under for node in nodes) or not known:
        return model
    operator = rng.choice(list(HEADERS))
    number = 1 + max(int(name[1:]) for name in (*shapes, *(node.result for node in nodes)))
    header = Node(
        f"v{number}", operator, (rng.choice(known),), HEADERS[operator], (), (), dtype="int"
    )
    block = (replace(node, under=header.result) for node in nodes[start:end])
    return replace(model, nodes=(*nodes[:start], header, *block, *nodes[end:]))
