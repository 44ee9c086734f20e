"""What passes know of each operator of docs/plan.md, whatever its operands are."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto

from torch.backends.zendnn.graph import OPAQUE, Node
from torch.backends.zendnn.passes import _shapes as shapes


class Trait(Flag):
    """What is true of an operator, or of its results."""

    VIEW = auto()  # it rearranges a tensor and computes nothing
    NUMBER = auto()  # its result is a number
    SIZE = auto()  # its result is a number that is read off a tensor
    POST_OPS = auto()  # it takes post-ops
    COMPUTES = auto()  # plans refuse to run it on anything but floating-point numbers
    FLOATING = auto()  # results are floating-point numbers in torch, too, whatever the operands are
    DENSE = auto()  # results are dense in the order of their dimensions
    ORDERED = auto()  # results are in one order in memory, in whatever order operands are
    WANTS_DIMENSIONS = auto()  # torch refuses a first operand without dimensions
    MAKES_DIMENSIONS = auto()  # results have at least one
    KEEPS_DIMENSIONS = auto()  # results have some if and only if the first operand has


_NONE = Trait(0)
_VIEW, _DENSE, _FLOATING, _COMPUTES = Trait.VIEW, Trait.DENSE, Trait.FLOATING, Trait.COMPUTES
_SIZE = Trait.NUMBER | Trait.SIZE
_KEEPS, _MAKES = Trait.KEEPS_DIMENSIONS, Trait.MAKES_DIMENSIONS
_WANTS = Trait.WANTS_DIMENSIONS | _MAKES
_PRODUCT = _COMPUTES | Trait.POST_OPS
_FUNCTION = _COMPUTES | _FLOATING


@dataclass(frozen=True)
class Operator:
    """A row of the table.

    ``shape`` is the rule for the shape of results; None says nothing. ``dtype`` is that of results:
    the one that these operands share, as far as they are tensors, or one by name; None says
    nothing. A node's attribute of that name says it before.
    """

    traits: Trait = _NONE
    shape: shapes.Rule | None = None
    dtype: slice | str | None = None


_ALL, _FIRST, _SECOND = slice(None), slice(1), slice(1, 2)

OPERATORS = {
    "size": Operator(_SIZE),
    "numel": Operator(_SIZE),
    "number_add": Operator(Trait.NUMBER),
    "number_sub": Operator(Trait.NUMBER),
    "number_mul": Operator(Trait.NUMBER),
    "number_floordiv": Operator(Trait.NUMBER),
    "number_remainder": Operator(Trait.NUMBER),
    "power": Operator(shape=shapes.always(()), dtype="float32"),
    "view": Operator(_VIEW, shapes.stated, _ALL),
    "flatten": Operator(_VIEW | _MAKES, shapes.flattened, _ALL),
    "unflatten": Operator(_VIEW | _WANTS, shapes.unflattened, _ALL),
    "transpose": Operator(_VIEW | _KEEPS, shapes.transposed, _ALL),
    "permute": Operator(_VIEW | _KEEPS, shapes.permuted, _ALL),
    "unsqueeze": Operator(_VIEW | _MAKES, shapes.unsqueezed, _ALL),
    "squeeze": Operator(_VIEW, None, _ALL),
    "expand": Operator(_VIEW, shapes.stated, _ALL),
    "expand_as": Operator(_VIEW, shapes.as_other, _FIRST),
    "select": Operator(_VIEW, shapes.selected, _ALL),
    "slice": Operator(_VIEW | _WANTS, shapes.sliced, _ALL),
    "split": Operator(_VIEW | _WANTS, shapes.split, _ALL),
    "contiguous": Operator(_VIEW | _KEEPS | _DENSE, shapes.same, _ALL),
    "convolution": Operator(_PRODUCT | _FLOATING | _WANTS, shapes.convolution, _SECOND),
    "linear": Operator(_PRODUCT | _FLOATING | _WANTS | _DENSE, shapes.linear, _SECOND),
    "matmul": Operator(_PRODUCT | _DENSE, shapes.matmul, _ALL),
    "binary": Operator(_PRODUCT, shapes.broadcast(2), _ALL),
    "batch_norm": Operator(_PRODUCT | _FLOATING | _WANTS, shapes.same, _FIRST),
    "eltwise": Operator(_FUNCTION | _KEEPS, shapes.same, _ALL),
    "prelu": Operator(_COMPUTES | _KEEPS, shapes.same, _ALL),
    "softmax": Operator(_FUNCTION | _KEEPS | _DENSE, shapes.same, _ALL),
    "layer_norm": Operator(_FUNCTION | _WANTS | _DENSE, shapes.same, _FIRST),
    "rms_norm": Operator(_FUNCTION | _WANTS, shapes.same),
    "group_norm": Operator(_FUNCTION | _WANTS, shapes.same),
    "attention": Operator(_FLOATING | _WANTS | Trait.ORDERED, shapes.as_many(0), slice(3)),
    "nonzero": Operator(_KEEPS, shapes.same),
    "where": Operator(shape=shapes.broadcast(3)),
    "embedding": Operator(_FLOATING | _WANTS | _DENSE, shapes.embedding, _FIRST),
    "embedding_bag": Operator(_WANTS | _DENSE, shapes.always(shapes.unknown(2)), _FIRST),
    "embedding_bags": Operator(shape=shapes.embedding_bags),
    "gather_pairs": Operator(shape=shapes.as_many(-1), dtype=_FIRST),
    "pairwise_dot": Operator(),
    "max_pool": Operator(_WANTS, shapes.as_many(0), _ALL),
    "avg_pool": Operator(_WANTS, shapes.as_many(0), _ALL),
    "adaptive_avg_pool": Operator(_WANTS, shapes.as_many(0), _ALL),
    "resample": Operator(_WANTS, shapes.as_many(0)),
    "mean": Operator(_NONE, shapes.averaged, _ALL),
    "cat": Operator(_WANTS, shapes.as_many(0), _ALL),
    "stack": Operator(_MAKES, shapes.as_many(1), _ALL),
    "pad": Operator(_WANTS, shapes.as_many(0), _ALL),
    "roll": Operator(_KEEPS, shapes.same, _ALL),
    "to_like": Operator(_KEEPS, shapes.same, _SECOND),
    "to": Operator(_FLOATING | _KEEPS, shapes.same),
}


def having(trait: Trait) -> frozenset[str]:
    """The names of all operators that have one of these traits."""
    return frozenset(name for name, row in OPERATORS.items() if row.traits & trait)


def operator(node: Node) -> Operator:
    """What is known of a node's operator; nothing is of one that no plan holds."""
    return OPERATORS.get(node.op, Operator())


VIEWS = having(Trait.VIEW)
NUMBERS = having(Trait.NUMBER)
SIZES = having(Trait.SIZE)
TAKES_POST_OPS = having(Trait.POST_OPS)
COMPUTES = having(Trait.COMPUTES)
DENSE = having(Trait.DENSE)
ORDERED = having(Trait.DENSE | Trait.ORDERED)

#: Functions of each element that make integers of integers in torch.
KEEP_WHOLE = frozenset({"relu", "clip", "abs", "square", "linear", "round"})

#: Functions that only passes know.
MATCHED_ONLY = frozenset({"erf", "rsqrt"})


def is_foreign(node: Node) -> bool:
    """Whether no plan can hold the node: opaque ones, and those made for passes to match only."""
    return node.op in (OPAQUE, "arange") or (
        node.op == "eltwise" and node.attributes["algorithm"] in MATCHED_ONLY
    )


def makes_floats(node: Node) -> bool:
    """Whether results are surely floating-point numbers, whatever the operands are."""
    return Trait.FLOATING in operator(node).traits and not keeps_whole(node)


def keeps_whole(node: Node) -> bool:
    """Whether it is a function that makes integers of integers."""
    return node.op == "eltwise" and node.attributes["algorithm"] in KEEP_WHOLE
