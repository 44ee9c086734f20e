"""The one table of the engine's operators: signatures, and the rules for their results.

It serves the types of values (``ir``), the passes, the importers of aten operators
(``frontends/aten``), the C++ tables, which the build generates, and the tables of docs/plan.md. It
imports no torch, which the build may not have when it reads this. ``notation.py`` explains the
notation.
"""

from __future__ import annotations

from torch.backends.zendnn.table import shapes as infer
from torch.backends.zendnn.table.notation import Operator, Result, Trait, Work
from torch.backends.zendnn.table.views import NUMBER_ROWS, VIEW_ROWS

_ROW_MAJOR, _FLOATING = Trait.ROW_MAJOR, Trait.FLOATING
_KEEPS, _MAKES = Trait.KEEPS_DIMS, Trait.MAKES_DIMS
_WANTS = Trait.WANTS_DIMS | _MAKES
_SMALL = Trait.KEEPS_SMALL
_PRODUCT = Trait.COMPUTES | Trait.CASTS
_FUSES = Trait.COMPUTES | Trait.POST_OPS
_FUNCTION = Trait.COMPUTES | _FLOATING
_FALLS_BACK = Trait.FALLS_BACK
_ALL, _FIRST, _SECOND = slice(None), slice(1), slice(1, 2)


def _window(name: str, more: str = "") -> Operator:
    """A window that moves over an image."""
    attributes = "int[] kernel=[], int[] stride=[], int[] padding=[], int[] dilation=[]"
    signature = f"{name}(Tensor x, *, {attributes}, bool ceil=False{more})"
    result = Result(infer.as_many(0), _ALL, "input")
    traits = _WANTS | _FALLS_BACK
    return Operator(signature, "", traits, result, (), "pool", "pooling", Work.SOME)


def _reduction(signature: str, overload: str, doc: str) -> Operator:
    """The sum or the mean of some dimensions, or of all."""
    name = signature.partition("(")[0]
    aten = f"aten::{name}.{overload}(self, dim=dims|[], keepdim=keep)", f"aten::{name}(self)"
    result, traits = Result(infer.reduced, _ALL), Trait.ROUNDS
    return Operator(signature, doc, traits, result, aten, "reduce", "reduction", Work.SOME)


def _extremum(name: str, which: str) -> Operator:
    """The largest or the smallest elements of some neighbouring dimensions, or of all."""
    signature = f"{name}(Any x, *, int[] dims=[], bool keep=False)"
    aten = f"aten::{name}(self, dim=dims, keepdim=keep)", f"aten::{name[1:]}(self)"
    doc = f"the {which} elements over neighbouring `dims`, or over all; NaN if there is one"
    result = Result(infer.reduced, _ALL)
    return Operator(signature, doc, _FALLS_BACK, result, aten, "along", "reduction", Work.SOME)


def _triangle(name: str, where: str) -> Operator:
    """The triangle above or below a diagonal."""
    signature, aten = f"{name}(Any x, *, int diagonal=0)", f"aten::{name}(self, diagonal=diagonal)"
    doc, traits = f"zeros {where} the diagonal, of the last two dimensions", _WANTS | _ROW_MAJOR
    result = Result(infer.same, _ALL)
    return Operator(signature, doc, traits, result, (aten,), "triangle", work=Work.LIGHT)


COMPUTE_ROWS = (
    Operator(
        "convolution(Tensor x, Constant weight, Constant? bias, *, int[] stride=[], "
        "int[] padding=[], int[] padding_end=[], int[] dilation=[], int groups=1, "
        "bool transposed=False, int[] output_padding=[])",
        "windows have a number for each spatial dimension, of which there are 1 to 3; "
        "`padding_end` where it differs; the weight is in torch's order",
        _PRODUCT | _FUSES | _FLOATING | _WANTS | _SMALL | _FALLS_BACK,
        Result(infer.convolution, _SECOND, "input_or_weight"),
        primitive="convolution",
        work=Work.HEAVY,
    ),
    Operator(
        "linear(Tensor x, Constant weight, Constant? bias, *, dtype dtype='')",
        "the weight, (out, in), may be a `cat` of contiguous constants; `dtype` is float32 when x "
        "is bfloat16 and the result is not",
        _PRODUCT | _FUSES | _FLOATING | _WANTS | _SMALL | _ROW_MAJOR | _FALLS_BACK,
        Result(infer.linear, _SECOND),
        primitive="matmul",
        work=Work.HEAVY,
    ),
    Operator(
        "matmul(Tensor a, Tensor b)",
        "2 to 6 dimensions, broadcasting as `torch.matmul`",
        _PRODUCT | _FUSES | _ROW_MAJOR | _FALLS_BACK,
        Result(infer.matmul, _ALL),
        primitive="matmul",
        work=Work.HEAVY,
    ),
    Operator(
        "eltwise(Tensor x, *, Eltwise algorithm, float alpha=0.0, float beta=0.0)",
        "a function of each element, see below",
        _FUNCTION | _KEEPS | _SMALL,
        Result(infer.same, _ALL, "elements"),
        primitive="eltwise",
        work=Work.LIGHT,
    ),
    Operator(
        "binary(Tensor a, Tensor b, *, Binary algorithm, bool in_place=False)",
        "`algorithm`: add sub mul div max min; broadcasts; `in_place`: to no other size than a's",
        _FUSES | _SMALL | Trait.PROMOTES,
        Result(infer.broadcast(2), _ALL, "elements"),
        primitive="binary",
        work=Work.LIGHT,
    ),
    Operator(
        "prelu(Tensor x, Constant slopes)",
        "one slope, or one for each channel (dimension 1)",
        _PRODUCT | _KEEPS | _FALLS_BACK,  # autocast takes it for a product
        Result(infer.same, _ALL, "elements"),
        aten=("aten::prelu(self, weight)",),
        primitive="prelu",
        work=Work.SOME,
    ),
    Operator(
        "nonzero(Any x)",
        "a tensor of bool",
        _KEEPS,
        Result(infer.same, "bool", "elements"),
        family="to",
        primitive="reorder",
        work=Work.LIGHT,
    ),
    Operator(
        "compare(Any a, Any b, *, Pair algorithm)",
        "`algorithm`: eq ne lt le gt ge, of two tensors of one dtype: int64, bool, float32 or "
        "bfloat16; broadcasts",
        result=Result(infer.broadcast(2), "bool", "elements"),
        family="pair",
        work=Work.LIGHT,
    ),
    Operator(
        "integer(Any a, Any b, *, Pair algorithm)",
        "`algorithm`: add sub mul and or xor, of two int64 tensors, or of two of bool for the last "
        "three; broadcasts",
        result=Result(infer.broadcast(2), _ALL, "elements"),
        family="pair",
        work=Work.LIGHT,
    ),
    Operator(
        "where(Bool condition, Tensor? x, Tensor? y, *, float value=0.0, bool filled=False)",
        "x where the condition holds, and y elsewhere; `value` stands for `none`; broadcasts; "
        "`filled`: the result is row-major, whatever the order of operands",
        result=Result(infer.broadcast(3), strides="elements"),
        work=Work.LIGHT,
    ),
    Operator(
        "softmax(Tensor x, *, int dim=-1, bool log=False)",
        "",
        _FUNCTION | _KEEPS | _SMALL | _ROW_MAJOR,
        Result(infer.same, _ALL),
        primitive="softmax",
        work=Work.SOME,
    ),
    Operator(
        "layer_norm(Tensor x, Constant? weight, Constant? bias, Tensor? residual, *, "
        "float eps=1e-5, int dims=1, int[] sizes=[], bool in_place=False)",
        "over `dims` trailing dimensions, of `sizes` when they must be these; normalises "
        "x + residual, which broadcast to each other, or, if `in_place`, to x; a second result is "
        "x + residual",
        _FUNCTION | _WANTS | _SMALL | _ROW_MAJOR | Trait.ONE_OR_TWO,
        Result(infer.same, _FIRST),
        primitive="layer_normalization",
        work=Work.SOME,
    ),
    Operator(
        "rms_norm(Tensor x, Constant? weight, Tensor? none, Tensor? residual, *, "
        "float eps=1e-5, int dims=1, int[] sizes=[], bool in_place=False, dtype dtype='')",
        "as `layer_norm`, but divides by √(mean(x²) + `eps`) only; `dtype`: what x must have",
        _FUNCTION | _WANTS | Trait.ONE_OR_TWO,
        Result(infer.same, strides="input"),
        family="layer_norm",
        primitive="layer_normalization",
        work=Work.SOME,
    ),
    Operator(
        "rope(Tensor x, Tensor cos, Tensor sin, *, bool interleaved=False)",
        "rotary position embedding: x·cos + r·sin of as many elements of the last dimension as the "
        "tables have, which broadcast to x otherwise; the other elements stay; r is -b for a, and "
        "a for b, of each pair (a, b): neighbours if `interleaved`, else elements of both halves",
        _FUNCTION | _WANTS | _FALLS_BACK,
        Result(infer.same, slice(3)),
        work=Work.SOME,
    ),
    Operator(
        "group_norm(Tensor x, Constant? weight, Constant? bias, *, float eps=1e-5, int groups=1)",
        "`groups` of channels (dimension 1)",
        _FUNCTION | _WANTS,
        Result(infer.same, strides="input"),
        aten=(
            "aten::group_norm(input, num_groups=groups, weight=weight, bias=bias, eps=eps, "
            "cudnn_enabled=_)",
        ),
        primitive="group_normalization",
        work=Work.SOME,
    ),
    Operator(
        "batch_norm(Tensor x, Float? weight, Float? bias, Float mean, Float variance, *, "
        "float eps=1e-5)",
        "all operands but x are float32",
        _FUSES | _FLOATING | _WANTS | _SMALL,
        Result(infer.same, _FIRST, "input"),
        aten=(
            "aten::batch_norm(input, weight, bias, running_mean, running_var, training=False, "
            "momentum=_|0.0, eps=eps, cudnn_enabled=_|False)",
        ),
        primitive="batch_normalization",
        work=Work.SOME,
    ),
    Operator(
        "attention(Tensor q, Tensor k, Tensor v, Any? mask, Bool? chosen, *, float scale=0.0, "
        "bool causal=False, bool grouped=False, bool swapped=False, bool additive=False, "
        "float fill=0.0, bool fill_where=True, bool in_place=False)",
        "q (batch, heads, target, size), k and v (batch, heads, source, size), where batch or both "
        "batch and heads may be missing; mask broadcasts to (batch, heads, target, source) and is "
        "added, or says where to look if it is bool; with `chosen`, which broadcasts likewise, "
        "scores where it is `fill_where` become `fill` before that; a query that sees no key "
        "gives 0; `scale` (0: 1/√size), `causal`; `grouped`: the heads of q are a multiple of "
        "those of k, and neighbours share one; else k has as many, or one; `swapped`: the result "
        "is (batch, target, heads, size); `additive`: as softmax(q·kᵀ + mask)·v spelled out: a "
        "bool mask, which adds 0 or 1, is refused, and a query that sees no key gives NaN; "
        "`in_place`: the mask is no larger than the scores",
        Trait.CASTS | _FLOATING | _WANTS | Trait.ORDERED | _FALLS_BACK,
        Result(infer.as_many(0), slice(3)),
        primitive="matmul",
        work=Work.HEAVY,
    ),
    Operator(
        "embedding(Constant table, Index ids)",
        "",
        _FLOATING | _WANTS | _ROW_MAJOR,
        Result(infer.embedding, _FIRST),
        aten=("aten::embedding(weight, indices, padding_idx=_, scale_grad_by_freq=_, sparse=_)",),
        family="embedding_bags",
        primitive="reorder",
        work=Work.SOME,
    ),
    Operator(
        "embedding_bag(Constant table, Index ids, Index? offsets, Tensor? weights, *, "
        "Reduction mode='sum', bool last_offset=False)",
        "`mode`: sum mean max; without offsets ids are 2-D and a row is a bag; `last_offset`: the "
        "last one is the end of the last bag; weights of the table's dtype, as many as the ids, "
        "for sums",
        _WANTS | _ROW_MAJOR,
        Result(infer.always(infer.unknown(2)), _FIRST),
        family="embedding_bags",
        primitive="reduction",
        work=Work.SOME,
    ),
    Operator(
        "embedding_bags(Any?[] operands, *, int count=1, Reduction mode='sum', "
        "bool last_offset=False)",
        "tables, ids, offsets or none, weights or none, `count` of each: `embedding_bag` of each "
        "table with its ids, or `embedding` when the mode is `each`",
        result=Result(infer.embedding_bags, kind="tensors"),
        primitive="reduction",
        work=Work.HEAVY,
    ),
    Operator(
        "gather_pairs(Tensor x, Index rows, Index columns)",
        "x[..., rows, columns] for constant int64 rows and columns",
        _FALLS_BACK,
        Result(infer.as_many(-1), _FIRST),
        primitive="reorder",
        work=Work.SOME,
    ),
    Operator(
        "index(Any x, Any?[] indices)",
        "x[indices] of up to 4 tensors of int64 or int32, which broadcast, one after the other; "
        "`none` before them keeps a dimension; negative ones count from the end",
        result=Result(infer.indexed, _FIRST),
        work=Work.LIGHT,
    ),
    Operator(
        "take_along(Any x, Index indices, *, int dim=0)",
        "the elements along a dimension that indices of the same rank choose",
        _KEEPS,
        Result(infer.as_other, _FIRST),
        aten=("aten::gather(self, index, dim=dim, sparse_grad=_)",),
        family="index",
        work=Work.LIGHT,
    ),
    Operator(
        "scatter(Any x, Index indices, Any value, *, int dim=0, bool add=False, bool rows=False)",
        "x, with elements of value, or with it if it has no dimensions, where int64 indices of the "
        "same rank say along a dimension; the last of several for one place counts; `add`: x of "
        "float32, bfloat16 or int64 plus these, one after the other; `rows`: one index for a row",
        _KEEPS | _ROW_MAJOR,
        Result(infer.same, _FIRST),
        aten=(
            "aten::scatter.src(self, dim=dim, index, src)",
            "aten::scatter_add(self, dim=dim, index, src) add=True",
        ),
        primitive="reorder",
        work=Work.LIGHT,
        composed=True,
    ),
    Operator(
        "slice_scatter(Any x, Any value, dim dim, int? start, int? end, int step, *, "
        "bool dense=False)",
        "x, with value in the place of a slice; `dense`: without gaps that x has in memory",
        _WANTS | Trait.KEEPS_GAPS | Trait.MAY_SHARE,
        Result(infer.same, _FIRST),
        primitive="reorder",
        work=Work.LIGHT,
    ),
    Operator(
        "pairwise_dot(Tensor x, Index rows, Index columns)",
        "x[:, rows[i]] · x[:, columns[i]] for each i; x is (batch, features, size), up to 64 "
        "features",
        Trait.CASTS | _FALLS_BACK,
        primitive="matmul",
        work=Work.SOME,
    ),
    _window("max_pool"),
    _window("avg_pool", ", bool include_pad=True"),
    Operator(
        "adaptive_avg_pool(Tensor x, *, int[] sizes=[])",
        "the sizes of x must be multiples of them",
        _WANTS | _FALLS_BACK,
        Result(infer.as_many(0), _ALL, "input"),
        family="pool",
        primitive="pooling",
        work=Work.SOME,
    ),
    Operator(
        "resample(Tensor x, int? height, int? width, *, Resampling algorithm, "
        "float scale_height=0.0, float scale_width=0.0, bool align_corners=False)",
        "scales stand for what is none, and are 0 when they are not known; `algorithm`: "
        "nearest, linear or cubic; x is (batch, channels, height, width), or (batch, channels, "
        "width) of linear ones",
        _WANTS | _FALLS_BACK,
        Result(infer.as_many(0), strides="input"),
        primitive="resampling",
        work=Work.SOME,
    ),
    _reduction(
        "mean(Tensor x, *, int[] dims=[], bool keep=False)",
        "dim",
        "over `dims`, or over all without any; `keep`: they stay, with a size of 1",
    ),
    _reduction(
        "sum(Any x, *, int[] dims=[], bool keep=False, dtype dtype='')",
        "dim_IntList",
        "as `mean`; `dtype`: int64 of a tensor of that, which wraps around, or of bool",
    ),
    _extremum("amax", "largest"),
    _extremum("amin", "smallest"),
    Operator(
        "argmax(Tensor x, *, int[] dims=[], bool keep=False)",
        "the first of the largest elements along a dimension, or of all without one; int64; NaN is "
        "the largest",
        result=Result(infer.reduced, "int64"),
        aten=("aten::argmax(self, dim=dims|[], keepdim=keep)",),
        family="along",
        work=Work.SOME,
        composed=True,
    ),
    Operator(
        "logsumexp(Tensor x, *, int[] dims=[], bool keep=False)",
        "the logarithm of the sum of powers of e over neighbouring `dims`, or over all",
        _FLOATING,
        Result(infer.reduced, _ALL),
        aten=("aten::logsumexp(self, dim=dims, keepdim=keep)",),
        family="along",
        work=Work.SOME,
        composed=True,
    ),
    Operator(
        "topk(Tensor x, *, int k=1, int dim=-1, bool largest=True, bool sorted=True)",
        "the indices of the `k` largest or smallest elements along a dimension, in torch's "
        "order; int64",
        _WANTS,
        Result(infer.counted, "int64"),
        work=Work.SOME,
    ),
    Operator(
        "cumsum(Any x, *, int dim=0, dtype dtype='')",
        "the running sum; `dtype`: int64 of a tensor of int64 or bool, float32 of one of that",
        _KEEPS,
        Result(infer.same),
        work=Work.LIGHT,
    ),
    _triangle("triu", "below"),
    _triangle("tril", "above"),
    Operator(
        "cat(Tensor[] parts, *, int dim=0)",
        "",
        _WANTS | _SMALL | Trait.MAY_SHARE | Trait.PROMOTES,
        Result(infer.as_many(0), _ALL, "all"),
        aten=("aten::cat(tensors, dim=dim)",),
        primitive="reorder",
        work=Work.SOME,
    ),
    Operator(
        "stack(Tensor[] parts, *, int dim=0)",
        "",
        _MAKES | _SMALL | Trait.PROMOTES,
        Result(infer.as_many(1), _ALL),
        aten=("aten::stack(tensors, dim=dim)",),
        family="cat",
        primitive="reorder",
        work=Work.SOME,
    ),
    Operator(
        "pad(Tensor x, int[] pads, *, float value=0.0)",
        "two numbers for each dimension, the last one first",
        _WANTS | Trait.MAY_SHARE | _FALLS_BACK,
        Result(infer.as_many(0), _ALL, "input"),
        aten=("aten::constant_pad_nd(self, pad, value=value)",),
        primitive="reorder",
        work=Work.SOME,
    ),
    Operator(
        "roll(Tensor x, *, int[] shifts=[], int[] dims=[])",
        "",
        _KEEPS,
        Result(infer.same, _ALL, "input"),
        aten=("aten::roll(self, shifts=shifts, dims=dims)",),
        primitive="reorder",
        work=Work.SOME,
    ),
    Operator(
        "write(Any x, Any target, Any value, Index? rows, *, int dim=0, bool wraps=False)",
        "writes `value`, which broadcasts, to `target`, a view of x, or to the `rows` of its "
        "dimension `dim`, and returns x, in the same memory; `wraps`: negative rows count from "
        "the end; nodes that read x as it was come before",
        Trait.WRITES | _KEEPS,
        Result(infer.same, _FIRST),
        primitive="reorder",
    ),
    Operator(
        "to_like(Any x, Any y, *, bool in_place=False)",
        "of what dtype y is; `in_place`: and of what size",
        _KEEPS | Trait.MAY_SHARE | Trait.ROUNDS,
        Result(infer.same, _SECOND, "elements"),
        aten=("aten::type_as(self, other)",),
        family="to",
        primitive="reorder",
        work=Work.LIGHT,
        composed=True,
    ),
    Operator(
        "to(Any x, *, dtype dtype='', bool floating=False)",
        "`dtype`: float32 bfloat16 int64, or float16, which only conversions make and read; "
        "`floating`: x is float32 or bfloat16",
        _KEEPS | _SMALL | Trait.MAY_SHARE | Trait.ROUNDS,
        Result(infer.same, strides="elements"),
        primitive="reorder",
        work=Work.LIGHT,
    ),
)

#: Every operator, by name.
OPERATORS = {row.name: row for row in (*NUMBER_ROWS, *VIEW_ROWS, *COMPUTE_ROWS)}


def having(trait: Trait) -> frozenset[str]:
    """The names of all operators that have one of these traits."""
    return frozenset(name for name, row in OPERATORS.items() if row.traits & trait)


def of_work(work: Work) -> frozenset[str]:
    """The names of all operators that do this much."""
    return frozenset(name for name, row in OPERATORS.items() if row.work is work)


NUMBERS = frozenset(name for name, row in OPERATORS.items() if row.result.kind == "number")
SIZES = frozenset({"size", "numel"})
VIEWS = having(Trait.VIEW)
WRITES = having(Trait.WRITES)
TAKES_POST_OPS = having(Trait.POST_OPS)
