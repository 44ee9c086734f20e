"""The one table of the engine's operators: what each is called and takes, and what follows from it.

It serves the types of values (``graph.py``), the passes, the importers of aten operators
(``frontends/aten.py``), the C++ side, which the build generates, and the tables of docs/plan.md. It
imports no torch, so that the build can read it before there is one.

A *signature* names an operator, its operands and, after ``*``, its attributes with their defaults:

    softmax(Tensor x, *, int dim=-1, bool log=False)

===========  ==============================================================
operand      what it takes
===========  ==============================================================
``Tensor``   float32 or bfloat16
``Index``    int64 or int32
``Bool``     bool
``Any``      all of these
``Constant`` a Tensor that is known before the plan runs
``Float``    the same, converted to float32
``int``      a number: an integer, or a value that is known when the plan runs
``dim``      an integer
===========  ==============================================================

``?`` allows None; ``[]`` stands for as many as there are, last of all.

A *mapping* says which aten operator does the same. It is read in both directions: to import a call,
and to make one. Its items are the operator's arguments. An item without ``=`` is the next operand;
``eps=eps`` names an operand or an attribute; ``min=alpha|-inf`` adds what None stands for; a
literal, ``training=False``, is the only value that is taken; ``_`` takes any. An argument that is
not named must have its default. After the parentheses stand attributes that no argument gives:

    aten::relu6(self) alpha=0.0 beta=6.0
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Flag, auto
from functools import cached_property
from typing import Any

from torch.backends.zendnn import dims as infer

Attribute = bool | int | float | str | tuple[int, ...]

_SIGNATURE = re.compile(r"(\w+)\((.*)\)")
_MAPPING = re.compile(r"([\w:.]+)\((.*?)\)(.*)")


@dataclass(frozen=True)
class Operand:
    """One operand of a signature, or several when it is ``many``."""

    name: str
    type: str
    optional: bool
    many: bool

    @property
    def is_number(self) -> bool:
        """Whether it is a number rather than a tensor."""
        return self.type in ("int", "dim")


@dataclass(frozen=True)
class AttributeSpec:
    """One attribute of a signature: its type (bool, int, float, str or int[]) and its default."""

    name: str
    type: str
    default: Attribute


@dataclass(frozen=True)
class Argument:
    """One argument of a mapping: what it is bound to, or what it must be."""

    name: str
    #: The operand or attribute; empty where only ``literal`` is taken, ``_`` where anything is.
    target: str
    literal: Any = None


@dataclass(frozen=True)
class Mapping:
    """An aten operator in terms of a row: see the notation above."""

    text: str

    @cached_property
    def _parts(self) -> tuple[str, str, str]:
        match = _MAPPING.fullmatch(self.text)
        assert match is not None, f"'{self.text}' is no mapping"
        return match[1], match[2], match[3]

    @property
    def name(self) -> str:
        """The aten operator, with its overload."""
        return self._parts[0]

    def arguments(self, operands: Iterable[str]) -> list[Argument]:
        """Its arguments, given the names of the row's operands."""
        free = iter(operands)
        return [_argument(item, free) for item in _items(self._parts[1])]

    @cached_property
    def fixed(self) -> dict[str, Attribute]:
        """The attributes that no argument gives."""
        return {
            key: _literal(text)
            for key, text in (word.split("=") for word in self._parts[2].split())
        }


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _literal(text: str) -> Any:
    if text in ("inf", "-inf"):
        return float(text)
    value = ast.literal_eval(text)
    return tuple(value) if isinstance(value, list) else value


def _argument(item: str, free: Any) -> Argument:
    name, equals, bound = item.partition("=")
    if not equals:
        return Argument(name, next(free))
    target, bar, default = bound.partition("|")
    if target == "_" or (target.isidentifier() and target not in ("None", "True", "False")):
        return Argument(name, target, _literal(default) if bar else None)
    return Argument(name, "", _literal(bound))


class Trait(Flag):
    """What is true of an operator, or of its results."""

    VIEW = auto()  # it rearranges a tensor and computes nothing
    POST_OPS = auto()  # it takes post-ops
    COMPUTES = auto()  # plans refuse to run it on anything but floating-point numbers
    FLOATING = auto()  # results are floating-point numbers in torch, too, whatever the operands are
    ROW_MAJOR = auto()  # results are contiguous
    ORDERED = auto()  # results lie in one order, whatever the order of operands
    WANTS_DIMS = auto()  # torch refuses a first operand without dimensions
    MAKES_DIMS = auto()  # results have at least one
    KEEPS_DIMS = auto()  # results have some if and only if the first operand has
    CASTS = auto()  # autocast lowers its operands
    FOREIGN = auto()  # passes match it, and no plan holds it
    ONE_OR_TWO = auto()  # it makes a second result where one is wanted


NONE = Trait(0)


@dataclass(frozen=True)
class Operator:
    """A row of the table.

    Attributes:
        signature: the name, operands and attributes, in the notation above.
        family: the functions ``infer_<family>`` and ``build_<family>`` of plans run it.
        doc: a sentence or two for docs/plan.md.
        dims: the rule for the dims of results; None says nothing.
        dtype: that of results: a slice of the operands that share it, or a name. A node's attribute
            ``dtype`` comes first.
        strides: whose strides torch's results take over: 'input', 'input_or_weight', 'all', or
            'elements' of all operands that are combined; '' for row-major ones and for views.
        results: 'tensor', 'tensors' or 'number'.
        aten: mappings; the first serves calls too.
    """

    signature: str
    family: str
    doc: str = ""
    traits: Trait = NONE
    dims: infer.Rule | None = None
    dtype: slice | str | None = None
    strides: str = ""
    results: str = "tensor"
    aten: tuple[str, ...] = ()

    @cached_property
    def name(self) -> str:
        """What descriptions call it."""
        return self._match[1]

    @cached_property
    def _match(self) -> re.Match[str]:
        match = _SIGNATURE.fullmatch(self.signature)
        assert match is not None, f"'{self.signature}' is no signature"
        return match

    @cached_property
    def _halves(self) -> tuple[list[str], list[str]]:
        items = _items(self._match[2])
        cut = items.index("*") if "*" in items else len(items)
        return items[:cut], items[cut + 1 :]

    @cached_property
    def operands(self) -> tuple[Operand, ...]:
        """Its operands."""
        found = []
        for item in self._halves[0]:
            type_, name = item.split()
            many = type_.endswith("[]")
            type_ = type_.removesuffix("[]")
            found.append(Operand(name, type_.rstrip("?"), type_.endswith("?"), many))
        return tuple(found)

    @cached_property
    def attributes(self) -> dict[str, AttributeSpec]:
        """Its attributes, by name."""
        found = {}
        for item in self._halves[1]:
            type_, _, rest = item.partition(" ")
            name, _, default = rest.partition("=")
            found[name] = AttributeSpec(name, type_, _literal(default))
        return found

    @cached_property
    def mappings(self) -> tuple[Mapping, ...]:
        """The aten operators that do the same."""
        return tuple(map(Mapping, self.aten))

    @cached_property
    def fewest(self) -> int:
        """How many operands a node must have: those at the end may be left out if optional."""
        wanted = [i for i, x in enumerate(self.operands) if not (x.optional or x.many)]
        return wanted[-1] + 1 if wanted else 0

    def operand(self, position: int) -> Operand | None:
        """The operand at a position, of which the last may stand for several; None beyond them."""
        if position < len(self.operands):
            return self.operands[position]
        return self.operands[-1] if self.operands and self.operands[-1].many else None


@dataclass(frozen=True)
class Function:
    """A function of each element: an algorithm of ``eltwise``, and a post-op.

    Attributes:
        name: what descriptions call it.
        aten: mappings to ``alpha`` and ``beta``; the first serves calls too.
        doc: what alpha and beta are.
        primitive: ZenDNN's algorithm; empty where only our kernels have the function.
        alpha, beta: the parameters of ZenDNN's algorithm, where they are not the function's own.
        magnifies: the factor by which it may magnify the rounding error of a sum; infinity where
            there is no bound, as for log next to 0.
        keeps_integers: whether torch makes integers of integers.
        foreign: whether passes match it, and no plan computes it.
    """

    name: str
    aten: tuple[str, ...] = ()
    doc: str = ""
    primitive: str = ""
    alpha: float | None = None
    beta: float | None = None
    magnifies: float = 1.0
    keeps_integers: bool = False
    foreign: bool = False
    operands: tuple[str, ...] = field(default=("x",), init=False)

    @property
    def has_parameters(self) -> bool:
        """Whether alpha and beta are the function's own."""
        return self.alpha is None


@dataclass(frozen=True)
class Combination:
    """A function of two elements: an algorithm of ``binary``, and a post-op."""

    name: str
    aten: str
    primitive: str
    magnifies: float = 1.0
    commutes: bool = False


def _plain(name: str, primitive: str, **more: Any) -> Function:
    """A function without parameters whose name torch shares."""
    return Function(name, (f"aten::{name}(self)",), primitive=primitive, **{"alpha": 0.0, **more})


_UNBOUNDED = {"magnifies": math.inf}

FUNCTIONS = {
    row.name: row
    for row in (
        _plain("relu", "eltwise_relu", keeps_integers=True),
        Function(
            "leaky_relu",
            ("aten::leaky_relu(self, negative_slope=alpha)",),
            "slope",
            primitive="eltwise_relu",
        ),
        Function(
            "clip",
            (
                "aten::clamp(self, min=alpha|-inf, max=beta|inf)",
                "aten::hardtanh(self, min_val=alpha, max_val=beta)",
                "aten::relu6(self) alpha=0.0 beta=6.0",
                "aten::clamp_min(self, min=alpha) beta=inf",
                "aten::clamp_max(self, max=beta) alpha=-inf",
            ),
            "low, high",
            primitive="eltwise_clip",
            keeps_integers=True,
        ),
        _plain("sigmoid", "eltwise_logistic"),
        _plain("tanh", "eltwise_tanh"),
        Function(
            "gelu",
            ("aten::gelu(self, approximate='none')",),
            "exact",
            primitive="eltwise_gelu_erf",
            alpha=0.0,
        ),
        Function(
            "gelu_tanh",
            ("aten::gelu(self, approximate='tanh')",),
            primitive="eltwise_gelu_tanh",
            alpha=0.0,
        ),
        _plain("silu", "eltwise_swish", alpha=1.0),
        _plain("hardswish", "eltwise_hardswish", alpha=1 / 6, beta=0.5),
        _plain("hardsigmoid", "eltwise_hardsigmoid", alpha=1 / 6, beta=0.5),
        Function(
            "elu",
            ("aten::elu(self, alpha=alpha, scale=1, input_scale=1)",),
            "alpha",
            primitive="eltwise_elu",
        ),
        _plain("mish", "eltwise_mish"),
        _plain("exp", "eltwise_exp", **_UNBOUNDED),
        _plain("abs", "eltwise_abs", keeps_integers=True),
        _plain("sqrt", "eltwise_sqrt", **_UNBOUNDED),
        _plain("square", "eltwise_square", keeps_integers=True),
        _plain("log", "eltwise_log", **_UNBOUNDED),
        Function("affine", (), "alpha·x + beta", primitive="eltwise_linear", keeps_integers=True),
        _plain("round", "eltwise_round", keeps_integers=True, **_UNBOUNDED),
        _plain("log2", ""),
        _plain("sin", ""),
        _plain("cos", ""),
        _plain("floor", "", keeps_integers=True),
        _plain("ceil", "", keeps_integers=True),
        _plain("erf", "", foreign=True),
        _plain("rsqrt", "", foreign=True),
    )
}

COMBINATIONS = {
    row.name: row
    for row in (
        Combination("add", "aten::add.Tensor(self, other)", "binary_add", commutes=True),
        Combination("sub", "aten::sub.Tensor(self, other)", "binary_sub"),
        # By operands of 0.5 to 1.5, as trials have them.
        Combination("mul", "aten::mul.Tensor(self, other)", "binary_mul", 1.5, commutes=True),
        Combination("div", "aten::div.Tensor(self, other)", "binary_div", 2.0),
        Combination("max", "aten::maximum(self, other)", "binary_max", commutes=True),
        Combination("min", "aten::minimum(self, other)", "binary_min", commutes=True),
    )
}

_VIEW, _ROW_MAJOR, _FLOATING = Trait.VIEW, Trait.ROW_MAJOR, Trait.FLOATING
_KEEPS, _MAKES = Trait.KEEPS_DIMS, Trait.MAKES_DIMS
_WANTS = Trait.WANTS_DIMS | _MAKES
_PRODUCT = Trait.COMPUTES | Trait.CASTS
_FUSES = Trait.COMPUTES | Trait.POST_OPS
_FUNCTION = Trait.COMPUTES | _FLOATING
_ALL, _FIRST, _SECOND = slice(None), slice(1), slice(1, 2)


def _number(name: str, *aten: str) -> Operator:
    """Arithmetic of two numbers."""
    return Operator(f"number_{name}(int a, int b)", "number", results="number", aten=aten)


def _window(name: str, more: str, doc: str, aten: tuple[str, ...] = ()) -> Operator:
    """A window that moves over an image."""
    attributes = "int[] kernel=[], int[] stride=[], int[] padding=[], int[] dilation=[]"
    return Operator(
        f"{name}(Tensor x, *, {attributes}, bool ceil=False{more})",
        "pool",
        doc,
        _WANTS,
        infer.as_many(0),
        _ALL,
        "input",
        aten=aten,
    )


NUMBER_ROWS = (
    Operator(
        "size(Any x, dim dim)",
        "size",
        "of any tensor",
        results="number",
        aten=("aten::size.int(self, dim)",),
    ),
    Operator(
        "numel(Any x)", "numel", "of any tensor", results="number", aten=("aten::numel(self)",)
    ),
    _number("add", "aten::add.int(a, b)"),
    _number("sub", "aten::sub.int(a, b)", "aten::neg.int(a=b) a=0"),
    _number("mul", "aten::mul.int(a, b)"),
    _number(
        "floordiv",
        "aten::floordiv.int(a, b)",
        "aten::floor_divide(self, other)",
        "aten::floor_divide.Scalar(self, other)",
        "aten::div.Tensor_mode(self, other, rounding_mode='floor')",
    ),
    _number(
        "remainder",
        "aten::remainder.int(a, b)",
        "aten::remainder.Tensor(self, other)",
        "aten::remainder.Scalar(self, other)",
    ),
    Operator(
        "power(int n, *, float exponent=1.0)",
        "power",
        "a float32 tensor without dimensions",
        dims=infer.always(()),
        dtype="float32",
    ),
    Operator(
        "arange(int start, int end, int step)",
        "",
        "offsets of bags, for passes to match",
        Trait.FOREIGN,
        dims=infer.always((None,)),
        dtype="int64",
    ),
)

VIEW_ROWS = (
    Operator(
        "view(Any x, int[] sizes)",
        "view",
        "one size may be -1; also for a reshape",
        _VIEW,
        infer.stated,
        _ALL,
        aten=("aten::reshape(self, shape)", "aten::view(self, size)"),
    ),
    Operator(
        "flatten(Any x, dim start, dim end)",
        "view",
        "",
        _VIEW | _MAKES,
        infer.flattened,
        _ALL,
        aten=("aten::flatten.using_ints(self, start_dim, end_dim)",),
    ),
    Operator(
        "unflatten(Any x, dim dim, int[] sizes)",
        "view",
        "one size may be -1",
        _VIEW | _WANTS,
        infer.unflattened,
        _ALL,
        aten=("aten::unflatten.int(self, dim, sizes)",),
    ),
    Operator(
        "transpose(Any x, dim a, dim b)",
        "view",
        "",
        _VIEW | _KEEPS,
        infer.transposed,
        _ALL,
        aten=(
            "aten::transpose.int(self, dim0, dim1)",
            "aten::swapaxes(self, axis0, axis1)",
            "aten::swapdims(self, dim0, dim1)",
            "aten::t(self) a=0 b=1",
            "aten::mT(self) a=-2 b=-1",
        ),
    ),
    Operator(
        "permute(Any x, dim[] dims)",
        "view",
        "",
        _VIEW | _KEEPS,
        infer.permuted,
        _ALL,
        aten=("aten::permute(self, dims)",),
    ),
    Operator(
        "unsqueeze(Any x, dim dim)",
        "view",
        "",
        _VIEW | _MAKES,
        infer.unsqueezed,
        _ALL,
        aten=("aten::unsqueeze(self, dim)",),
    ),
    Operator(
        "squeeze(Any x, dim dim)",
        "view",
        "",
        _VIEW,
        None,
        _ALL,
        aten=("aten::squeeze.dim(self, dim)",),
    ),
    Operator(
        "expand(Any x, int[] sizes)",
        "view",
        "-1 keeps a size",
        _VIEW,
        infer.stated,
        _ALL,
        aten=("aten::expand(self, size, implicit=_)",),
    ),
    Operator(
        "expand_as(Any x, Any other)",
        "view",
        "to the sizes of another tensor",
        _VIEW,
        infer.as_other,
        _FIRST,
        aten=("aten::expand_as(self, other)",),
    ),
    Operator(
        "select(Any x, dim dim, int index)",
        "view",
        "",
        _VIEW,
        infer.selected,
        _ALL,
        aten=("aten::select.int(self, dim, index)",),
    ),
    Operator(
        "slice(Any x, dim dim, int? start, int? end, int step)",
        "view",
        "`none` stands for a missing bound",
        _VIEW | _WANTS,
        infer.sliced,
        _ALL,
        aten=("aten::slice.Tensor(self, dim, start, end, step)",),
    ),
    Operator(
        "split(Any x, *, int dim=0, int[] sizes=[], int chunks=0)",
        "split",
        "into `sizes`, of which a single one is that of all and the last part may be smaller, or "
        "into `chunks`",
        _VIEW | _WANTS,
        infer.split,
        _ALL,
        results="tensors",
    ),
    Operator(
        "contiguous(Any x)",
        "view",
        "a hint that a plan may ignore",
        _VIEW | _KEEPS | _ROW_MAJOR,
        infer.same,
        _ALL,
        aten=("aten::contiguous(self)",),
    ),
)

COMPUTE_ROWS = (
    Operator(
        "convolution(Tensor x, Constant weight, Constant? bias, *, int[] stride=[], "
        "int[] padding=[], int[] padding_end=[], int[] dilation=[], int groups=1, "
        "bool transposed=False, int[] output_padding=[])",
        "convolution",
        "windows have a number for each spatial dimension, of which there are 1 to 3; "
        "`padding_end` where it differs; the weight is in torch's order",
        _PRODUCT | _FUSES | _FLOATING | _WANTS,
        infer.convolution,
        _SECOND,
        "input_or_weight",
    ),
    Operator(
        "linear(Tensor x, Constant weight, Constant? bias, *, str dtype='')",
        "linear",
        "the weight, (out, in), may be a `cat` of contiguous constants; `dtype` is float32 when x "
        "is bfloat16 and the result is not",
        _PRODUCT | _FUSES | _FLOATING | _WANTS | _ROW_MAJOR,
        infer.linear,
        _SECOND,
    ),
    Operator(
        "matmul(Tensor a, Tensor b)",
        "matmul",
        "2 to 6 dimensions, broadcasting as `torch.matmul`",
        _PRODUCT | _FUSES | _ROW_MAJOR,
        infer.matmul,
        _ALL,
    ),
    Operator(
        "eltwise(Tensor x, *, str algorithm='', float alpha=0.0, float beta=0.0)",
        "eltwise",
        "a function of each element, see below",
        _FUNCTION | _KEEPS,
        infer.same,
        _ALL,
        "elements",
    ),
    Operator(
        "binary(Tensor a, Tensor b, *, str algorithm='')",
        "binary",
        "`algorithm`: add sub mul div max min; broadcasts",
        _FUSES,
        infer.broadcast(2),
        _ALL,
        "elements",
    ),
    Operator(
        "prelu(Tensor x, Constant slopes)",
        "prelu",
        "one slope, or one for each channel (dimension 1)",
        Trait.COMPUTES | _KEEPS,
        infer.same,
        _ALL,
        "elements",
        aten=("aten::prelu(self, weight)",),
    ),
    Operator(
        "nonzero(Any x)",
        "nonzero",
        "a tensor of bool",
        _KEEPS,
        infer.same,
        "bool",
        "elements",
    ),
    Operator(
        "where(Bool condition, Tensor? x, Tensor? y, *, float value=0.0, bool filled=False)",
        "where",
        "x where the condition holds, and y elsewhere; `value` stands for `none`; broadcasts; "
        "`filled`: the result is row-major, whatever the order of operands",
        dims=infer.broadcast(3),
        strides="elements",
    ),
    Operator(
        "softmax(Tensor x, *, int dim=-1, bool log=False)",
        "softmax",
        "",
        _FUNCTION | _KEEPS | _ROW_MAJOR,
        infer.same,
        _ALL,
    ),
    Operator(
        "layer_norm(Tensor x, Constant? weight, Constant? bias, Tensor? residual, *, "
        "float eps=1e-5, int dims=1, int[] sizes=[])",
        "layer_norm",
        "over `dims` trailing dimensions, of `sizes` when they must be these; normalises "
        "x + residual, which broadcast to each other; a second result is x + residual",
        _FUNCTION | _WANTS | _ROW_MAJOR | Trait.ONE_OR_TWO,
        infer.same,
        _FIRST,
    ),
    Operator(
        "rms_norm(Tensor x, Constant? weight, Tensor? none, Tensor? residual, *, "
        "float eps=1e-5, int dims=1, int[] sizes=[], str dtype='')",
        "layer_norm",
        "as `layer_norm`, but divides by √(mean(x²) + `eps`) only; `dtype`: what x must have",
        _FUNCTION | _WANTS | Trait.ONE_OR_TWO,
        infer.same,
        strides="input",
    ),
    Operator(
        "group_norm(Tensor x, Constant? weight, Constant? bias, *, float eps=1e-5, int groups=1)",
        "group_norm",
        "`groups` of channels (dimension 1)",
        _FUNCTION | _WANTS,
        infer.same,
        strides="input",
        aten=(
            "aten::group_norm(input, num_groups=groups, weight=weight, bias=bias, eps=eps, "
            "cudnn_enabled=_)",
        ),
    ),
    Operator(
        "batch_norm(Tensor x, Float? weight, Float? bias, Float mean, Float variance, *, "
        "float eps=1e-5)",
        "batch_norm",
        "all operands but x are float32",
        _FUSES | _FLOATING | _WANTS,
        infer.same,
        _FIRST,
        "input",
        aten=(
            "aten::batch_norm(input, weight, bias, running_mean, running_var, training=False, "
            "momentum=_, eps=eps, cudnn_enabled=_)",
        ),
    ),
    Operator(
        "attention(Tensor q, Tensor k, Tensor v, Any? mask, Bool? chosen, *, float scale=0.0, "
        "bool causal=False, bool grouped=False, bool swapped=False, bool additive=False, "
        "float fill=0.0, bool fill_where=True)",
        "attention",
        "q (batch, heads, target, size), k and v (batch, heads, source, size), where batch or both "
        "batch and heads may be missing; mask broadcasts to (batch, heads, target, source) and is "
        "added, or says where to look if it is bool; with `chosen`, which broadcasts likewise, "
        "scores where it is `fill_where` become `fill` before that; a query that sees no key gives "
        "0; `scale` (0: 1/√size), `causal`; `grouped`: as many heads of queries as there are for "
        "each of the keys' share it, else there are as many or one; `swapped`: the result is "
        "(batch, target, heads, size); `additive`: as softmax(q·kᵀ + mask)·v spelled out: a bool "
        "mask, which adds 0 or 1, is refused, and a query that sees no key gives NaN",
        Trait.CASTS | _FLOATING | _WANTS | Trait.ORDERED,
        infer.as_many(0),
        slice(3),
    ),
    Operator(
        "embedding(Constant table, Index ids)",
        "embedding",
        "",
        _FLOATING | _WANTS | _ROW_MAJOR,
        infer.embedding,
        _FIRST,
        aten=("aten::embedding(weight, indices, padding_idx=_, scale_grad_by_freq=_, sparse=_)",),
    ),
    Operator(
        "embedding_bag(Constant table, Index ids, Index? offsets, Tensor? weights, *, "
        "str mode='sum', bool last_offset=False)",
        "embedding_bags",
        "`mode`: sum mean max; without offsets ids are 2-D and a row is a bag; `last_offset`: the "
        "last one is the end of the last bag; weights of the table's dtype, as many as the ids, "
        "for sums",
        _WANTS | _ROW_MAJOR,
        infer.always(infer.unknown(2)),
        _FIRST,
    ),
    Operator(
        "embedding_bags(Any?[] operands, *, int count=1, str mode='sum', bool last_offset=False)",
        "embedding_bags",
        "tables, ids, offsets or none, weights or none, `count` of each: `embedding_bag` of each "
        "table with its ids, or `embedding` when the mode is `each`",
        dims=infer.embedding_bags,
        results="tensors",
    ),
    Operator(
        "gather_pairs(Tensor x, Index rows, Index columns)",
        "gather_pairs",
        "x[..., rows, columns] for constant int64 rows and columns",
        dims=infer.as_many(-1),
        dtype=_FIRST,
    ),
    Operator(
        "pairwise_dot(Tensor x, Index rows, Index columns)",
        "pairwise_dot",
        "x[:, rows[i]] · x[:, columns[i]] for each i; x is (batch, features, size), up to 64 "
        "features",
        Trait.CASTS,
    ),
    _window("max_pool", "", ""),
    _window("avg_pool", ", bool include_pad=True", ""),
    Operator(
        "adaptive_avg_pool(Tensor x, *, int[] sizes=[])",
        "adaptive_pool",
        "the sizes of x must be multiples of them",
        _WANTS,
        infer.as_many(0),
        _ALL,
        "input",
    ),
    Operator(
        "resample(Tensor x, int? height, int? width, *, str algorithm='', "
        "float scale_height=0.0, float scale_width=0.0, bool align_corners=False)",
        "resample",
        "scales stand for what is none, and are 0 when they are not known; `algorithm`: "
        "nearest, linear or cubic; x is (batch, channels, height, width), or (batch, channels, "
        "width) of linear ones",
        _WANTS,
        infer.as_many(0),
        strides="input",
    ),
    Operator(
        "mean(Tensor x, *, int[] dims=[], bool keep=False)",
        "reduce",
        "over `dims`, or over all without any; `keep`: they stay, with a size of 1",
        dims=infer.reduced,
        dtype=_ALL,
        aten=("aten::mean.dim(self, dim=dims|[], keepdim=keep)", "aten::mean(self)"),
    ),
    Operator(
        "sum(Tensor x, *, int[] dims=[], bool keep=False)",
        "reduce",
        "as `mean`",
        dims=infer.reduced,
        dtype=_ALL,
        aten=("aten::sum.dim_IntList(self, dim=dims|[], keepdim=keep)", "aten::sum(self)"),
    ),
    Operator(
        "argmax(Tensor x, *, int[] dims=[], bool keep=False)",
        "argmax",
        "the first of the largest elements along a dimension, or of all without one; int64; NaN is "
        "the largest",
        dims=infer.reduced,
        dtype="int64",
        aten=("aten::argmax(self, dim=dims|[], keepdim=keep)",),
    ),
    *(
        Operator(
            f"{name}(Any x, *, int diagonal=0)",
            "triangle",
            f"zeros {where} the diagonal, of the last two dimensions",
            _KEEPS | _WANTS | _ROW_MAJOR,
            infer.same,
            _ALL,
            aten=(f"aten::{name}(self, diagonal=diagonal)",),
        )
        for name, where in (("triu", "below"), ("tril", "above"))
    ),
    Operator(
        "cat(Tensor[] parts, *, int dim=0)",
        "cat",
        "",
        _WANTS,
        infer.as_many(0),
        _ALL,
        "all",
        aten=("aten::cat(tensors, dim=dim)",),
    ),
    Operator(
        "stack(Tensor[] parts, *, int dim=0)",
        "stack",
        "",
        _MAKES,
        infer.as_many(1),
        _ALL,
        aten=("aten::stack(tensors, dim=dim)",),
    ),
    Operator(
        "pad(Tensor x, int[] pads, *, float value=0.0)",
        "pad",
        "two numbers for each dimension, the last one first",
        _WANTS,
        infer.as_many(0),
        _ALL,
        "input",
        aten=(
            "aten::constant_pad_nd(self, pad, value=value)",
            "aten::pad(self, pad, mode='constant', value=value|0.0)",
        ),
    ),
    Operator(
        "roll(Tensor x, *, int[] shifts=[], int[] dims=[])",
        "roll",
        "",
        _KEEPS,
        infer.same,
        _ALL,
        "input",
        aten=("aten::roll(self, shifts=shifts, dims=dims)",),
    ),
    Operator(
        "to_like(Any x, Any y)",
        "to",
        "of what dtype y is",
        _KEEPS,
        infer.same,
        _SECOND,
        "elements",
        aten=("aten::type_as(self, other)",),
    ),
    Operator(
        "to(Any x, *, str dtype='', bool floating=False)",
        "to",
        "`dtype`: float32 bfloat16; `floating`: x is one of the two, and not an integer",
        _FLOATING | _KEEPS,
        infer.same,
        strides="elements",
    ),
)

#: Every operator, by name.
OPERATORS = {row.name: row for row in (*NUMBER_ROWS, *VIEW_ROWS, *COMPUTE_ROWS)}


def having(trait: Trait) -> frozenset[str]:
    """The names of all operators that have one of these traits."""
    return frozenset(name for name, row in OPERATORS.items() if row.traits & trait)


NUMBERS = frozenset(name for name, row in OPERATORS.items() if row.results == "number")
SIZES = frozenset({"size", "numel"})
VIEWS = having(Trait.VIEW)
TAKES_POST_OPS = having(Trait.POST_OPS)
