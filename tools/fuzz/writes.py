"""Adds to a random model what is written in place: tensors, views of them, and states.

NNSmith draws pure graphs. Here they get operators whose names end in an underscore, as torch's do:
they write to their first argument, which other nodes read before and after.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F

from tools.fuzz.model import Data, Model, Node, Shape

# In these expressions, {0} is what is written or copied, {s} its shape and {r} its rank; {d} is a
# dimension, {n} its size, {a} the first and {k} the number of some of its elements; {b} is an index
# of the first dimension.

#: Writes to all of a tensor.
WHOLE = {
    "relu_": "{0}.relu_()",
    "tanh_": "{0}.tanh_()",
    "mul_scalar_": "{0}.mul_(0.5)",
    "add_scalar_": "{0}.add_(0.25)",
    "clamp_": "{0}.clamp_(-1.0, 0.75)",
    "fill_": "{0}.fill_(0.5)",
    "zero_": "{0}.zero_()",
    "masked_fill_": "{0}.masked_fill_({0} > 0.5, 0.0)",
}
#: Writes of another tensor of its shape.
FROM = {
    "copy_": "{0}.copy_({1})",
    "add_": "{0}.add_({1})",
    "sub_": "{0}.sub_({1}, alpha=2)",
    "mul_": "{0}.mul_({1})",
    "lerp_": "{0}.lerp_({1}, 0.25)",
    "addcmul_": "{0}.addcmul_({1}, {1}, value=0.5)",
    "masked_": "{0}.masked_fill_({1} > 0, 0.5)",
}
#: Writes to a part of a tensor, or through a view.
PART = {
    "part_fill_": "{0}.narrow({d}, {a}, {k}).fill_(0.5)",
    "part_add_": "{0}.narrow({d}, {a}, {k}).add_(0.25)",
    "turned_relu_": "{0}.transpose({d}, 0).relu_()",
    "flipped_": "{0}.copy_({0}.flip({d}))",
    "index_fill_": "{0}.index_fill_({d}, torch.tensor([{a}]), 0.5)",
}
#: Writes of a part of another tensor of its shape.
PART_FROM = {
    "part_copy_": "{0}.narrow({d}, {a}, {k}).copy_({1}.narrow({d}, {a}, {k}))",
    "part_mul_": "{0}.narrow({d}, {a}, {k}).mul_({1}.narrow({d}, 0, {k}))",
    "row_copy_": "{0}.select({d}, {a}).copy_({1}.select({d}, 0))",
    "index_copy_": "{0}.index_copy_({d}, torch.tensor([{a}]), {1}.narrow({d}, 0, 1))",
    "index_add_": "{0}.index_add_({d}, torch.tensor([{a}, 0]), {1}.narrow({d}, {n} - 1, 1).expand_as({0}.narrow({d}, 0, 2)).contiguous())",  # noqa: E501
    "index_put_": "{0}.index_put_((torch.tensor([{b}]),), {1}[:1])",
    "index_put_add_": "{0}.index_put_((torch.tensor([{b}, {b}]),), {1}[:1], accumulate=True)",
}
#: Copies, which a plan might leave out, views, which it might take for copies, and new tensors.
COPIES = {
    "zeros": "torch.zeros({s}, dtype={float})",
    "ones": "torch.ones({s}, dtype={float})",
    "full": "torch.full({s}, 0.5, dtype={float})",
    "zeros_like": "torch.zeros_like({0})",
    "cloned": "{0}.clone()",
    "not_padded": "F.pad({0}, [0, 0])",
    "joined": "torch.cat([{0}.narrow({d}, 0, {k}), {0}.narrow({d}, {k}, {n} - {k})], {d})",
    "joined_alone": "torch.cat([{0}], {d})",
    "converted": "{0}.to({float}, copy=True)",
    "same_dtype": "{0}.to({float})",
    "made_contiguous": "{0}.contiguous()",
    "scattered": "torch.slice_scatter(torch.zeros_like({0}), {0}, {d}, 0, {n})",
    "flattened": "{0}.flatten().view({s})",
    "turned_copy": "{0}.transpose({d}, 0).reshape(-1)",
    "turned": "{0}.transpose({d}, 0)",
    "part": "{0}.narrow({d}, {a}, {k})",
    "row": "{0}.select({d}, {a})",
    "times_one": "{0} * 1.0",
    "plus_zero": "{0} + 0.0",
    "not_dropped": "F.dropout({0}, 0.5, False)",
    "stacked": "torch.stack([{0}], {d}).squeeze({d})",
    "repeated": "{0}.repeat([1] * {r})",
    "upsampled": "{0}.repeat_interleave(1, {d})",
}
#: Reads of a state, the second operand.
READS = {
    "plus_state": "{0} + {1}",
    "times_state": "{0} * {1}",
    "least_of_state": "torch.where({0} < {1}, {0}, {1})",
}
#: A cache that is filled place by place, as those of language models: a write, and its position.
CACHES = {"cache_": "{0}.index_copy_({d}, {2} % {n}, {1}.narrow({d}, 0, 1))"}
POSITIONS = {"advance_": "{0}.add_(1)"}

Table = Mapping[str, str]
#: The name of a result or an input, or a state.
Operand = str | Data

#: What is added at once, and how often.
EVENTS = ("copy and write", "copy and write", "write", "write", "copy", "read", "cache")
#: Attempts to find an operator that takes a tensor's sizes.
TRIES = 6


def with_writes(model: Model, rng: random.Random) -> Model:
    """Return a model of float32 with writes and states among its nodes, where sizes allow them."""
    writer = _Writer(model, rng)
    places = [rng.randint(0, len(model.nodes)) for _ in range(rng.randint(1, 4))]
    for place, node in enumerate([*model.nodes, None]):
        for _ in range(places.count(place)):
            writer.add(rng.choice(EVENTS))
        if node is not None:
            writer.keep(node)
    return writer.model()


class _Writer:
    """A model under construction."""

    def __init__(self, model: Model, rng: random.Random) -> None:
        self._model, self._rng = model, rng
        self._nodes: list[Node] = []
        self._more: list[str] = []
        self._shapes: dict[str, Shape] = {}
        self._states: list[Data] = []
        #: What later nodes read in place of a tensor: its copy, or the result of a write.
        self._instead: dict[str, str] = {}
        named = [*(data.name for data in model.inputs[0]), *(node.result for node in model.nodes)]
        self._number = max(int(name[1:]) for name in named)
        for data in model.inputs[0]:
            self._known(data.name, data.shape, data.dtype)

    def model(self) -> Model:
        # torch refuses to write to tensors whose elements share memory.
        runs = tuple(
            tuple(replace(x, layout=x.layout.replace("expanded", "contiguous")) for x in run)
            for run in self._model.inputs
        )
        outputs = (*map(self._read, self._model.outputs), *self._more)
        return replace(self._model, nodes=tuple(self._nodes), inputs=runs, outputs=outputs)

    def keep(self, node: Node) -> None:
        """Add a node of the pure model."""
        self._nodes.append(replace(node, arguments=tuple(map(self._read, node.arguments))))
        self._known(node.result, node.shape, node.dtype)

    def add(self, event: str) -> None:
        """Add the nodes of an event, where there is a tensor whose sizes allow it."""
        if not self._shapes:
            return
        name = self._rng.choice(list(self._shapes))
        shape = self._shapes[name]
        if event == "read":
            self._operator(READS, name, self._state(shape))
        elif event == "cache":
            position = self._state((1,), "int64")
            if self._operator(CACHES, self._state(shape), name, position):
                self._operator(POSITIONS, position)
        else:
            target = self._state(shape) if self._rng.random() < 0.3 else name
            if "copy" in event:
                self._operator(COPIES, target)
            if "write" in event:
                others = [other for other, size in self._shapes.items() if size == shape]
                table = self._rng.choice((WHOLE, PART, FROM, PART_FROM))
                self._operator(table, target, self._rng.choice(others))

    def _operator(self, table: Table, *operands: Operand) -> bool:
        """Add an operator of a table that takes the operands; return whether there is one."""
        for _ in range(TRIES):
            operator = self._rng.choice(list(table))
            node = self._node(operator, table[operator], operands)
            if node is not None:
                self._nodes.append(node)
                self._known(node.result, node.shape, node.dtype)
                self._use(operands[0], node)
                return True
        return False

    def _node(self, operator: str, template: str, operands: Sequence[Operand]) -> Node | None:
        read = [x for x in operands if isinstance(x, str)]
        weights = [x for x in operands if isinstance(x, Data)]
        shapes = [self._shapes[x] if isinstance(x, str) else x.shape for x in operands]
        places = [
            f"{{{read.index(x)}}}" if isinstance(x, str) else f"{{w{weights.index(x)}}}"
            for x in operands
        ]
        expression = template.format(*places, float="{float}", **self._part(shapes[0]))
        arguments = [torch.zeros(self._shapes[x]) for x in read]
        result = _result(expression, arguments, [_zeros(x) for x in weights])
        if result is None:
            return None
        shape, dtype = tuple(result.shape), str(result.dtype).removeprefix("torch.")
        self._number += 1
        return Node(
            f"v{self._number}", operator, tuple(read), expression, tuple(weights), shape, dtype
        )

    def _part(self, shape: Shape) -> dict[str, int | Shape]:
        """Draw a dimension, and some of its elements."""
        dim = self._rng.randrange(max(len(shape), 1))
        size, first = (shape or (1,))[dim], self._rng.randrange((shape or (1,))[0])
        start = self._rng.randrange(size)
        number = self._rng.randint(1, size - start)
        named = {"d": dim, "n": size, "a": start, "k": number, "b": first}
        return {**named, "r": len(shape), "s": shape}

    def _state(self, shape: Shape, dtype: str = "float32") -> Data:
        """Return a state of a shape, more often one that there is."""
        found = [x for x in self._states if (x.shape, x.dtype) == (shape, dtype)]
        if not found or self._rng.random() < 0.3:
            kind = "normal" if dtype == "float32" else "index"
            found = [Data(f"state{len(self._states)}", shape, dtype, kind)]
            self._states += found
        return self._rng.choice(found)

    def _use(self, operand: Operand, node: Node) -> None:
        """Let later nodes read a result, or the caller."""
        if (
            isinstance(operand, str)
            and node.shape == self._shapes[operand]
            and self._rng.random() < 0.5
        ):
            self._instead[operand] = node.result
        if node.dtype == "float32" and self._rng.random() < 0.5:
            self._more.append(node.result)

    def _read(self, name: str) -> str:
        while name in self._instead:
            name = self._instead[name]
        return name

    def _known(self, name: str, shape: Shape, dtype: str) -> None:
        if dtype == "float32":
            self._shapes[name] = shape


def _zeros(data: Data) -> torch.Tensor:
    return torch.zeros(data.shape, dtype=getattr(torch, data.dtype))


def _result(
    expression: str, arguments: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]
) -> torch.Tensor | None:
    """Return what an expression gives, or None where it does not take the sizes."""
    values = {f"x{i}": x for i, x in enumerate(arguments)}
    values |= {f"w{i}": x for i, x in enumerate(weights)}
    text = expression.format(*values, float="torch.float32", **{name: name for name in values})
    try:
        result: torch.Tensor = eval(text, {"torch": torch, "F": F, **values})
    except (IndexError, RuntimeError, TypeError):
        return None
    return result
