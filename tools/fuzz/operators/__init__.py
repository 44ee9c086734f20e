"""The table of operators in random models: NNSmith's own, and those that it lacks.

NNSmith chooses matching sizes. The table gives each operator's result shape (sizes may be Z3's)
and, once sizes are known, its Python expression and its weights.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from nnsmith.abstract.arith import nnsmith_add, nnsmith_ge, nnsmith_mul
from nnsmith.abstract.dtype import DType
from nnsmith.abstract.op import AbsOpBase, mark_abstract
from nnsmith.abstract.tensor import AbsTensor
from nnsmith.materialize.torch.forward import ALL_TORCH_OPS

from tools.fuzz import functions
from tools.fuzz.operators import changing, keeping, nnsmiths
from tools.fuzz.operators.row import F32, I64, Attributes, Operator, Text, same_rank, up_to

_KEEP: Mapping[str, Any] = {"back": same_rank(1)}


def _functions() -> list[tuple[str, Callable[[], str]]]:
    """Return the functions of the engine's table that NNSmith lacks."""
    return list(functions.expressions({text.partition(".")[2] for text in nnsmiths.CALLS.values()}))


OPERATORS: tuple[Operator, ...] = (
    *(Operator(n, (up_to(5),), keeping.plain(t), **_KEEP) for n, t in keeping.ELEMENTWISE.items()),
    *(Operator(n, (up_to(5),), keeping.drawn(draw), **_KEEP) for n, draw in _functions()),
    *(
        Operator(n, (up_to(5),), keeping.with_dim(t), draw=keeping.any_dim, **_KEEP)
        for n, t in keeping.WITH_DIM.items()
    ),
    *(
        Operator(
            n, (up_to(5),) * 2, changing.pair(t), needs=changing.equal_sizes, back=same_rank(2)
        )
        for n, t in changing.PAIRS.items()
    ),
    Operator("layer_norm", (up_to(5, 2),), keeping.layer_norm, often=4, **_KEEP),
    Operator("rms_norm", (up_to(5, 2),), keeping.rms_norm, often=3, **_KEEP),
    Operator("group_norm", (up_to(5, 3),), keeping.group_norm, often=3, **_KEEP),
    Operator("batch_norm", (up_to(5, 2),), keeping.batch_norm, often=4, **_KEEP),
    Operator(
        "instance_norm",
        ((3, 4),),
        keeping.instance_norm,
        needs=lambda shapes, a: [nnsmith_ge(shapes[0][2], 2)],
        **_KEEP,
    ),
    Operator("prelu", (up_to(5, 2),), keeping.prelu, often=2, **_KEEP),
    Operator("per_channel", (up_to(5),), keeping.per_channel, often=4, **_KEEP),
    Operator("full_weight", (up_to(4),), keeping.full_weight, often=2, **_KEEP),
    Operator("residual_linear", (up_to(4, 2),), keeping.residual_linear, often=3, **_KEEP),
    Operator("mlp", (up_to(4),), keeping.mlp, often=3, **_KEEP),
    Operator("gated_mlp", (up_to(4),), keeping.gated_mlp, often=2, **_KEEP),
    Operator("self_attention", ((3,),), keeping.self_attention, often=4, **_KEEP),
    Operator("packed_attention", ((3,),), keeping.packed_attention, often=2, **_KEEP),
    Operator(
        "recurrent",
        ((3,),),
        keeping.recurrent,
        keeping.recurrent_gives,
        draw=keeping.recurrent_draw,
        often=3,
    ),
    Operator(
        "linear", (up_to(5),), changing.linear, changing.last_out, draw=changing.out, often=10
    ),
    Operator(
        "linear_beside",
        (up_to(4, 2),),
        changing.with_input,
        lambda s, a: [*s[0][:-1], nnsmith_add(s[0][-1], a["out"])],
        draw=lambda ranks: {**changing.out(ranks), "k": random.randrange(2)},
        often=3,
    ),
    Operator(
        "matmul_weight",
        (up_to(5),),
        changing.matmul_weight,
        changing.last_out,
        draw=changing.out,
        often=3,
    ),
    Operator("addmm", ((2,),), changing.addmm, changing.last_out, draw=changing.out, often=3),
    Operator(
        "convolution",
        changing.IMAGES,
        changing.conv,
        changing.conv_gives,
        changing.conv_needs,
        changing.conv_draw,
        often=12,
    ),
    Operator("convolution_same", ((3, 4, 5),), changing.conv_same, often=6, **_KEEP),
    Operator(
        "conv_transpose",
        ((3, 4, 5),),
        changing.conv_transpose,
        changing.conv_transpose_gives,
        draw=changing.conv_transpose_draw,
        often=4,
    ),
    Operator(
        "pool",
        ((3, 4, 5),),
        changing.pool,
        changing.conv_gives,
        changing.conv_needs,
        changing.pool_draw,
        often=6,
    ),
    Operator(
        "adaptive_pool",
        ((3, 4),),
        changing.adaptive,
        lambda s, a: [*s[0][:2], *a["sizes"]],
        draw=lambda ranks: {"sizes": [random.choice([1, 1, 2, 3])] * (ranks[0] - 2)},
        often=2,
    ),
    Operator(
        "global_pool", ((3, 4, 5),), changing.global_pool, lambda s, a: list(s[0][:2]), often=2
    ),
    Operator(
        "mean_keep", (up_to(5),), changing.mean_keep, changing.kept, draw=keeping.any_dim, often=3
    ),
    Operator(
        "select", (up_to(5),), changing.select, changing.selected, draw=keeping.any_dim, often=2
    ),
    Operator(
        "permute",
        (up_to(5, 2),),
        changing.permute,
        lambda s, a: [s[0][i] for i in a["order"]],
        draw=changing.permute_draw,
        often=5,
    ),
    Operator(
        "index_select",
        (up_to(5),),
        changing.index_select,
        changing.indexed,
        draw=changing.index_draw,
        often=2,
    ),
    Operator("scatter", (up_to(4),), changing.scatter, draw=keeping.any_dim, often=2),
    Operator("gather", (up_to(4),), changing.gather, draw=keeping.any_dim, often=1),
    Operator(
        "resize",
        ((4,),),
        changing.resized,
        lambda s, a: [*s[0][:2], *[nnsmith_mul(n, a["k"]) for n in s[0][2:]]],
        draw=lambda ranks: {"k": random.choice([1, 2, 3])},
        often=2,
    ),
    Operator(
        "embedding",
        (up_to(3),),
        changing.embedding,
        lambda s, a: [*s[0], a["out"]],
        draw=changing.out,
        takes=(I64,),
        often=4,
        back=None,
    ),
    Operator(
        "embedding_bag",
        ((2,),),
        changing.embedding_bag,
        lambda s, a: [s[0][0], a["out"]],
        draw=changing.out,
        takes=(I64,),
        often=4,
    ),
    Operator(
        "attention",
        ((3, 4),) * 3,
        changing.attention,
        lambda s, a: [*s[0][:-1], s[2][-1]],
        changing.attention_needs,
        back=same_rank(3),
        takes=(F32,) * 3,
        often=8,
    ),
    Operator(
        "batched_matmul",
        ((2, 3, 4, 5),) * 2,
        changing.batched,
        changing.batched_gives,
        changing.batched_needs,
        changing.batched_draw,
        back=same_rank(2),
        often=6,
    ),
    Operator(
        "stack",
        (up_to(4),) * 2,
        changing.stack,
        changing.stacked,
        changing.equal_sizes,
        keeping.any_dim,
        often=3,
    ),
)


def _nnsmith_class(row: Operator) -> type[AbsOpBase]:
    def attributes(self: Any, inputs: list[AbsTensor]) -> Attributes:
        if "drawn" not in self.extra_attrs:
            self.extra_attrs["drawn"] = row.draw([x.ndims for x in inputs])
        return self.extra_attrs["drawn"]  # type: ignore[no-any-return]

    def init(self: Any) -> None:
        AbsOpBase.__init__(self)
        self.inp_ranks = list(row.ranks)
        self.out_ranks = [row.ranks[0] if row.back else ()]

    def type_transfer(self: Any, inputs: list[AbsTensor]) -> list[AbsTensor]:
        shapes = [list(x.shape) for x in inputs]
        return [AbsTensor(row.gives(shapes, attributes(self, inputs)), row.returns)]

    def requires(self: Any, inputs: list[AbsTensor]) -> list[Any]:
        return row.needs([list(x.shape) for x in inputs], attributes(self, inputs))

    def deduct(self: Any, outputs: list[AbsTensor]) -> list[tuple[int, DType]]:
        assert row.back is not None
        return [(rank, F32) for rank in row.back(outputs[0].ndims)]

    takes = row.takes * len(row.ranks) if len(row.takes) == 1 else row.takes
    body = {
        "__init__": init,
        "in_dtypes": [takes],
        "out_dtypes": [(row.returns,)],
        "same_inp_dims": len(row.ranks) > 1,
        "type_transfer": type_transfer,
        "requires": requires,
        "deduct_inp_ranks_and_dtype": deduct,
        "row": row,
    }
    return mark_abstract("zendnn")(type(row.name, (AbsOpBase,), body))  # type: ignore[no-any-return]


def operator_set() -> list[type[AbsOpBase]]:
    """Return the operators' classes for NNSmith, each repeated by its weight."""
    chosen: list[type[AbsOpBase]] = []
    for kind in ALL_TORCH_OPS:
        if kind.__name__ in nnsmiths.EXPRESSIONS:
            chosen += [kind] * nnsmiths.OFTEN.get(kind.__name__, 1)
    for row in OPERATORS:
        chosen += [_nnsmith_class(row)] * row.often
    return chosen


def text_of(op: AbsOpBase) -> Text:
    """Return an operator's expression and weights; its sizes must be known."""
    row = getattr(op, "row", None)
    if row is None:
        return nnsmiths.EXPRESSIONS[type(op).__name__](op), []
    shapes = [list(x.shape) for x in op.input_like]
    return row.text(shapes, op.extra_attrs.get("drawn", {}))  # type: ignore[no-any-return]


def names() -> list[str]:
    """Return the names of all operators that a model may have."""
    return sorted({kind.__name__ for kind in operator_set()})
