"""Which aten operators the engine takes: a table from an operator's name to an importer.

An importer reads one call and adds the engine's nodes that do the same, or raises ``Refused`` with
a reason for people. Most are read off the mappings of ``table/operators.py``; here are those
that have more to decide. Dtypes and ranks are mostly unknown before anything runs: plans check
them.
"""

from __future__ import annotations

from functools import partial

from torch.backends.zendnn.frontends.aten import (
    attention,
    dtypes,
    elementwise,
    embeddings,
    half,
    indexing,
    integers,
    norms,
    products,
    views,
    windows,
)
from torch.backends.zendnn.frontends.aten.mappings import MAPPED, Importer, same_number, same_tensor

Rows = tuple[tuple[Importer, str], ...]

#: Importers of products, and the aten operators that they take.
_PRODUCTS: Rows = (
    (
        products.convolution,
        "_convolution _convolution.deprecated _convolution_mode conv1d conv2d conv3d "
        "conv1d.padding conv2d.padding conv3d.padding "
        "conv_transpose1d conv_transpose2d.input conv_transpose3d.input",
    ),
    (products.linear, "linear"),
    (partial(products.product_and_sum, a="mat1", b="mat2", rank=2), "addmm"),
    (partial(products.product_and_sum, a="batch1", b="batch2", rank=3), "baddbmm"),
    (partial(products.product, a="self", b="other"), "matmul"),
    (partial(products.product, a="self", b="mat2", rank=2), "mm"),
    (partial(products.product, a="self", b="mat2", rank=3), "bmm"),
    (products.einsum, "einsum"),
    (attention.attention, "scaled_dot_product_attention"),
    (attention.multi_head_attention, "_native_multi_head_attention"),
    (attention.encoder_layer, "_transformer_encoder_layer_fwd"),
)
#: All others.
_ROWS: Rows = (
    # Functions of elements
    (elementwise.power, "pow.Tensor_Scalar"),
    (partial(elementwise.arithmetic, algorithm="add"), "add.Tensor add.Scalar"),
    (partial(elementwise.arithmetic, algorithm="sub"), "sub.Tensor sub.Scalar"),
    (partial(elementwise.arithmetic, algorithm="sub", swapped=True), "rsub.Tensor rsub.Scalar"),
    (partial(elementwise.arithmetic, algorithm="mul"), "mul.Tensor mul.Scalar"),
    (partial(elementwise.binary, algorithm="div"), "div.Tensor div.Scalar"),
    (elementwise.glu, "glu"),
    (elementwise.masked_fill, "masked_fill.Scalar masked_fill.Tensor"),
    (elementwise.where, "where.self where.ScalarSelf where.ScalarOther"),
    # Along dimensions
    (partial(norms.softmax, log=False), "softmax.int"),
    (partial(norms.softmax, log=True), "log_softmax.int"),
    (norms.layer_norm, "layer_norm"),
    (norms.rms_norm, "rms_norm"),
    (norms.instance_norm, "instance_norm"),
    (norms.vector_norm, "linalg_vector_norm"),
    (partial(norms.variance, root=False), "var var.dim var.correction"),
    (partial(norms.variance, root=True), "std std.dim std.correction"),
    # Tables
    (embeddings.embedding_bag, "embedding_bag embedding_bag.padding_idx"),
    (indexing.index, "index.Tensor"),
    (indexing.topk, "topk"),
    (indexing.largest, "max.dim"),
    (indexing.scatter, "scatter.value"),
    (indexing.add_rows, "index_add"),
    # Windows
    (partial(windows.resample, algorithm="nearest"), "upsample_nearest2d upsample_nearest2d.vec"),
    (
        partial(windows.resample, algorithm="linear"),
        "upsample_linear1d upsample_linear1d.vec upsample_bilinear2d upsample_bilinear2d.vec",
    ),
    (partial(windows.resample, algorithm="cubic"), "upsample_bicubic2d upsample_bicubic2d.vec"),
    (windows.pad, "pad constant_pad_nd"),
    (windows.roll, "roll"),
    # The same tensor or number
    (
        partial(same_tensor, name="input", train=False),
        "dropout feature_dropout alpha_dropout feature_alpha_dropout",
    ),
    (partial(same_tensor, name="self"), "alias detach"),
    (dtypes.convert, "to.dtype to.device to.dtype_layout _to_copy"),
    (dtypes.autocast, "_autocast_to_reduced_precision _autocast_to_full_precision"),
    (same_number, "Int.Tensor Int.Scalar IntImplicit"),
    (elementwise.scalar_of, "ScalarImplicit"),
    # Masks and positions
    *(
        (partial(integers.compare, algorithm=name), f"{name}.Tensor {name}.Scalar")
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
    ),
    *(
        (
            partial(integers.bitwise, algorithm=name),
            f"bitwise_{name}.Tensor bitwise_{name}.Scalar __{name}__.Tensor __{name}__.Scalar",
        )
        for name in ("and", "or", "xor")
    ),
    *(
        (partial(integers.logical, algorithm=name), f"logical_{name}")
        for name in ("and", "or", "xor")
    ),
    (integers.negate, "bitwise_not logical_not"),
    (integers.cumsum, "cumsum"),
    (integers.total, "sum sum.dim_IntList"),
    (integers.arange, "arange arange.start arange.start_step"),
    (partial(integers.filled, value=0.0), "zeros"),
    (partial(integers.filled, value=1.0), "ones"),
    (elementwise.full, "full"),
    # Views
    (views.view_as, "view_as reshape_as"),
    (views.slice_, "slice.Tensor"),
    (views.index_select, "index_select"),
    (views.slice_scatter, "slice_scatter"),
    (views.select_scatter, "select_scatter"),
    (partial(views.split, name="split_size"), "split.Tensor split.sizes"),
    (partial(views.split, name="split_sizes"), "split split_with_sizes"),
    (views.cat, "cat"),
    (views.chunk, "chunk"),
    (views.squeeze, "squeeze squeeze.dims"),
    (views.repeat, "repeat"),
    (views.repeat_elements, "repeat_interleave.self_int"),
    (views.unbind, "unbind.int"),
)

IMPORTERS: dict[str, Importer] = MAPPED | {
    f"aten::{name}": importer
    for importer, names in (*((half.warned_of(row), names) for row, names in _PRODUCTS), *_ROWS)
    for name in names.split()
}
