"""Rows of operators that compute no elements: numbers, tensors made of numbers, and views.

``operators.py`` lists them with the others; ``notation.py`` explains the notation.
"""

from __future__ import annotations

from torch.backends.zendnn.table import shapes as infer
from torch.backends.zendnn.table.notation import NONE, Operator, Result, Trait, Work

_VIEW, _ROW_MAJOR = Trait.VIEW, Trait.ROW_MAJOR
_KEEPS, _MAKES = Trait.KEEPS_DIMS, Trait.MAKES_DIMS
_WANTS = Trait.WANTS_DIMS | _MAKES
_ALL, _FIRST = slice(None), slice(1)
_NUMBER = Result(kind="number")


def _number(name: str, *aten: str) -> Operator:
    """Arithmetic of two numbers."""
    return Operator(f"number_{name}(int a, int b)", "", NONE, _NUMBER, aten, "number")


def _view(
    signature: str,
    dims: infer.Rule | None,
    *aten: str,
    doc: str = "",
    traits: Trait = NONE,
    dtype: slice = _ALL,
) -> Operator:
    """The same elements with other sizes or strides."""
    return Operator(signature, doc, _VIEW | traits, Result(dims, dtype), aten, "view")


NUMBER_ROWS = (
    Operator(
        "size(Any x, dim dim, *, int rank=0)",
        "of any tensor; if `rank` is not 0, it has so many dimensions",
        NONE,
        _NUMBER,
        ("aten::size.int(self, dim)",),
    ),
    Operator("numel(Any x)", "of any tensor", NONE, _NUMBER, ("aten::numel(self)",)),
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
        "a float32 tensor without dimensions",
        result=Result(infer.always(()), "float32"),
        work=Work.SOME,
    ),
    Operator(
        "scalar(int n)",
        "an int64 of rank 0",
        result=Result(infer.always(()), "int64"),
        work=Work.LIGHT,
    ),
    Operator(
        "arange(int start, int end, int step)",
        "from `start` on, without `end`",
        _MAKES,
        Result(infer.always((None,)), "int64"),
        work=Work.LIGHT,
    ),
    Operator(
        "full(int[] sizes, *, float value=0.0, dtype dtype='')",
        "`dtype`: float32 bfloat16 int64 bool",
        result=Result(infer.given),
        work=Work.LIGHT,
    ),
)

VIEW_ROWS = (
    _view(
        "view(Any x, int[] sizes)",
        infer.stated,
        "aten::reshape(self, shape)",
        "aten::view(self, size)",
        doc="one size may be -1; also for a reshape",
    ),
    _view(
        "flatten(Any x, dim start, dim end)",
        infer.flattened,
        "aten::flatten.using_ints(self, start_dim, end_dim)",
        traits=_MAKES,
    ),
    _view(
        "unflatten(Any x, dim dim, int[] sizes)",
        infer.unflattened,
        "aten::unflatten.int(self, dim, sizes)",
        doc="one size may be -1",
        traits=_WANTS,
    ),
    _view(
        "transpose(Any x, dim a, dim b)",
        infer.transposed,
        "aten::transpose.int(self, dim0, dim1)",
        "aten::swapaxes(self, axis0, axis1)",
        "aten::swapdims(self, dim0, dim1)",
        "aten::t(self) a=0 b=1",
        "aten::mT(self) a=-2 b=-1",
        traits=_KEEPS,
    ),
    _view("permute(Any x, dim[] dims)", infer.permuted, "aten::permute(self, dims)", traits=_KEEPS),
    _view(
        "unsqueeze(Any x, dim dim)", infer.unsqueezed, "aten::unsqueeze(self, dim)", traits=_MAKES
    ),
    _view("squeeze(Any x, dim dim)", None, "aten::squeeze.dim(self, dim)"),
    _view(
        "expand(Any x, int[] sizes)",
        infer.expanded,
        "aten::expand(self, size, implicit=_)",
        doc="-1 keeps a size",
    ),
    _view(
        "expand_as(Any x, Any other)",
        infer.as_other,
        "aten::expand_as(self, other)",
        doc="to the sizes of another tensor",
        dtype=_FIRST,
    ),
    _view(
        "select(Any x, dim dim, int index)", infer.selected, "aten::select.int(self, dim, index)"
    ),
    _view(
        "slice(Any x, dim dim, int? start, int? end, int step)",
        infer.sliced,
        "aten::slice.Tensor(self, dim, start, end, step)",
        doc="`none` stands for a missing bound",
        traits=_WANTS,
    ),
    Operator(
        "split(Any x, *, int dim=0, int[] sizes=[], int chunks=0)",
        "into parts of these `sizes`, or into `chunks` parts; a single size holds for all parts, "
        "of which the last may be smaller",
        _VIEW | _WANTS,
        Result(infer.split, _ALL, kind="tensors"),
    ),
    Operator(
        "as_strided(Any x, *, int[] input_strides=[], int[] sizes=[], int[] strides=[])",
        "a view, of `sizes` and `strides`, of the memory of x, which has `input_strides` and no "
        "gaps; several elements of it may be one of x",
        _VIEW,
        Result(infer.attribute_sizes, _ALL),
    ),
    _view(
        "contiguous(Any x)",
        infer.same,
        "aten::contiguous(self)",
        doc="a hint that a plan may ignore",
        traits=_KEEPS | _ROW_MAJOR,
    ),
)
