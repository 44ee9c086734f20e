"""Makes a model from a seed: NNSmith draws a graph with matching sizes, which becomes a Model."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy
import torch
from nnsmith.abstract.op import Constant, Input
from nnsmith.graph_gen import model_gen

from tools.fuzz.blocks import with_block
from tools.fuzz.chains import with_chain
from tools.fuzz.check.source import Code
from tools.fuzz.lookups import with_lookups
from tools.fuzz.model import KINDS, Data, Model, Node, draw_layout, source, tensors
from tools.fuzz.operators import operator_set, text_of
from tools.fuzz.operators.row import BOOL, F32, I64
from tools.fuzz.writes import with_writes

#: Maximum elements of one weight; a larger one takes longer to make than to check.
WEIGHT_LIMIT = 2**18
#: Share of the models that write in place.
WRITTEN = 0.4
#: Share of the models with a block that depends on data.
BRANCHED = 0.15
#: Share of the models with a chain of hundreds of operators, which take seconds to check.
CHAINED = 0.01
#: Share of the models of float32 in which one weight has another dtype.
MIXED = 0.06
#: Share of the models with lookups of rows.
LOOKED_UP = 0.2
#: Attempts of NNSmith's Z3 to find a graph.
TRIES = 20
#: Seconds that NNSmith may spend on one graph.
LIMIT = 4
OPERATOR_SET = operator_set()


def generate(seed: int, index: int, nodes: int, bf16: bool = False) -> Model:
    """Return model ``index`` of a seed, with at most ``nodes`` operators.

    Raises RuntimeError when NNSmith finds no graph.
    """
    rng = random.Random(f"{seed} {index}")
    for _ in range(TRIES):
        model = _attempt(rng.randrange(2**31), nodes, bf16)
        if model is not None:
            if rng.random() < LOOKED_UP:
                model = _changed(model, with_lookups, rng)
            if rng.random() < WRITTEN:
                model = _changed(model, with_writes, rng)
            if rng.random() < BRANCHED:
                model = _changed(model, with_block, rng)
            if rng.random() < CHAINED:
                model = _changed(model, with_chain, rng)
            if rng.random() < MIXED and not bf16:
                model = _mixed(model, rng)
            return model
    raise RuntimeError(f"NNSmith found no graph for model {index} of seed {seed}")


def _changed(
    model: Model, change: Callable[[Model, random.Random], Model], rng: random.Random
) -> Model:
    """Return a changed model that torch accepts, such as one that reads no memory it writes to."""
    for _ in range(TRIES):
        changed = change(model, rng)
        dtype = torch.bfloat16 if model.bf16 else torch.float32
        model_class = Code(source(changed)).classes(dtype)["Model"]
        weights = tensors(changed, list(changed.weights().values()))
        try:
            with torch.no_grad():
                model_class(weights)(*tensors(changed, changed.inputs[0]).values())
        except (IndexError, RuntimeError, ValueError):
            continue
        return changed
    return model


def _mixed(model: Model, rng: random.Random) -> Model:
    """Return a model in which one weight has another dtype; torch may refuse it."""
    weights = model.weights()
    floating = [name for name, weight in weights.items() if weight.dtype == "float32"]
    if not floating:
        return model
    name, dtype = rng.choice(floating), rng.choice(["bfloat16", "bfloat16", "float64"])
    nodes = tuple(
        replace(
            node,
            weights=tuple(replace(w, dtype=dtype) if w.name == name else w for w in node.weights),
        )
        for node in model.nodes
    )
    return replace(model, nodes=nodes)


def _attempt(seed: int, nodes: int, bf16: bool) -> Model | None:
    rng = random.Random(seed)
    random.seed(seed)  # NNSmith and its operators draw from the global generator
    numpy.random.seed(seed)
    torch.manual_seed(seed)
    try:
        result = model_gen(
            OPERATOR_SET,
            rng.choice(["symbolic-cinit", "concolic", "concolic"]),
            rng.randint(1, nodes),
            seed=seed,
            timeout_ms=LIMIT * 1000,
            init_fp=rng.random() < 0.9,
            forward_prob=rng.choice([0.5, 0.8, 1.0]),
            concr_ph_dim_rng=rng.choice([(1, 4), (1, 9), (2, 17), (1, 33), (1, 70)]),
            max_elem_per_tensor=rng.choice([2**9, 2**12, 2**12, 2**15]),
            rank_choices=[1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 5],
            dtype_choices=[F32, I64, BOOL],
        ).make_concrete()
    except Exception:  # NNSmith's assertions and Z3 raise all kinds of errors
        return None
    random.seed(seed)
    return _model(result, seed, rng, bf16)


def _model(graph: Any, seed: int, rng: random.Random, bf16: bool) -> Model | None:
    names: dict[str, str] = {}
    inputs: list[Data] = []
    nodes: list[Node] = []
    special = rng.choice(list(KINDS)) if rng.random() < 0.25 else "normal"
    for inst in graph.insts:
        op, value = inst.iexpr.op, inst.retval()
        result = names[value] = f"v{len(names)}"
        like = graph.vars[value]
        shape, dtype = tuple(int(n) for n in like.shape), str(like.dtype)
        if isinstance(op, Input):
            kind = special if rng.random() < 0.7 else "normal"
            inputs.append(Data(result, shape, dtype, kind, layout=draw_layout(rng)))
            continue
        if isinstance(op, Constant):
            expression, weights = "{w0}", [Data("", shape, dtype)]
        else:
            expression, weights = text_of(op)
        named = tuple(replace(w, name=f"{result}_{i}") for i, w in enumerate(weights))
        if any(_elements(weight.shape) > WEIGHT_LIMIT for weight in named):
            return None
        arguments = tuple(names[argument] for argument in inst.iexpr.args)
        operator = "constant" if isinstance(op, Constant) else type(op).__name__
        nodes.append(Node(result, operator, arguments, expression, named, shape, dtype))
    used = {argument for node in nodes for argument in node.arguments}
    outputs = tuple(n.result for n in nodes if n.result not in used and n.operator != "constant")
    if not outputs or not inputs:
        return None
    extra = [n.result for n in nodes if n.result in used and n.operator != "constant"]
    if extra and rng.random() < 0.25:
        outputs = (*outputs, rng.choice(extra))
    inputs = [data for data in inputs if data.name in used]
    if not inputs:
        return None
    return Model(seed, tuple(nodes), _runs(inputs, rng), outputs, bf16)


def _runs(inputs: list[Data], rng: random.Random) -> tuple[tuple[Data, ...], ...]:
    """Return sets of inputs: these, and copies with other batch sizes."""
    runs = [tuple(inputs)]
    ranked = [data for data in inputs if data.shape]
    if not ranked:
        return tuple(runs)
    batch = ranked[0].shape[0]
    makers: list[Callable[[int], int]] = [lambda n: 1, lambda n: n + 1, lambda n: 2 * n]
    for size in {make(batch) for make in rng.sample(makers, 2)} - {batch}:
        runs.append(
            tuple(
                replace(data, shape=(size, *data.shape[1:]), layout=draw_layout(rng))
                if data.shape[:1] == (batch,)
                else data
                for data in inputs
            )
        )
    return tuple(runs)


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
