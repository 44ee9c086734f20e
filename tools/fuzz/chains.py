"""Puts a chain of hundreds of light operators behind a result of a random model."""

from __future__ import annotations

import random
from dataclasses import replace

from tools.fuzz.model import Model, Node

#: Lengths of chains: a call of Python for each node would exceed the limit of recursion.
LENGTHS = (120, 250, 400, 800)
#: What a chain repeats, for a tensor {0} of rank {r} and shape {s}; numbers stay small.
LINKS = {
    "seen": "{0}.view({s})",
    "turned_back": "{0}.transpose(0, -1).transpose(-1, 0)",
    "widened": "{0}.unsqueeze(0).squeeze(0)",
    "damped": "{0} * 0.75",
    "shifted": "{0} + 0.25",
    "squashed": "torch.tanh({0})",
    "flat": "{0}.flatten().view({s})",
}


def with_chain(model: Model, rng: random.Random) -> Model:
    """Return a model with a chain behind one of its results of floating-point numbers."""
    ends = {node.result: node for node in model.nodes if node.result in model.outputs}
    known = [name for name, node in ends.items() if node.dtype == "float32" and node.shape]
    if not known:
        return model
    end = rng.choice(known)
    shape, last = ends[end].shape, end
    links = rng.sample(list(LINKS), rng.randint(1, 3))
    number = max(int(x.name[1:]) for x in model.inputs[0])
    number = max(number, *(int(node.result[1:]) for node in model.nodes))
    # The batch may be another one.
    sizes = [-1, *shape[1:]] if shape[0] else list(shape)
    nodes = list(model.nodes)
    for _ in range(rng.choice(LENGTHS)):
        number += 1
        link = rng.choice(links)
        text = LINKS[link].format("{0}", s=sizes)
        nodes.append(Node(f"v{number}", link, (last,), text, (), shape, "float32"))
        last = nodes[-1].result
    outputs = tuple(last if name == end else name for name in model.outputs)
    return replace(model, nodes=tuple(nodes), outputs=outputs)
