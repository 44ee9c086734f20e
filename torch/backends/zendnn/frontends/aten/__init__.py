"""Which aten operators the engine takes: a table from an operator's name to an importer.

An importer reads one call and adds the engine's nodes that do the same, or raises ``Refused`` with
a reason for people. Most are read off the mappings of ``operators.py``; here are those that have
more to decide. Dtypes and ranks are mostly unknown before anything runs: plans check them.
"""

from __future__ import annotations

from torch.backends.zendnn.frontends.aten import (
    attention,
    dtypes,
    elementwise,
    embeddings,
    norms,
    products,
    views,
    windows,
)
from torch.backends.zendnn.frontends.aten.mappings import MAPPED, Importer, same_number, same_tensor

#: Importers, and the aten operators that they take.
_ROWS: tuple[tuple[Importer, str], ...] = (
    # Convolutions
    (products.convolution(), "_convolution _convolution.deprecated"),
    (products.convolution(transposed=False), "conv1d conv2d conv3d"),
    (
        products.convolution(transposed=False, words_for_padding=True),
        "conv1d.padding conv2d.padding conv3d.padding _convolution_mode",
    ),
    (
        products.convolution(transposed=True),
        "conv_transpose1d conv_transpose2d.input conv_transpose3d.input",
    ),
    # Products
    (products.linear, "linear"),
    (products.product_and_sum("mat1", "mat2", 2), "addmm"),
    (products.product_and_sum("batch1", "batch2", 3), "baddbmm"),
    (products.product("self", "other"), "matmul"),
    (products.product("self", "mat2", 2), "mm"),
    (products.product("self", "mat2", 3), "bmm"),
    (products.einsum, "einsum"),
    # Functions of elements
    (elementwise.eltwise("affine", alpha=-1.0), "neg"),
    (elementwise.power, "pow.Tensor_Scalar"),
    *((elementwise.arithmetic(op), f"{op}.Tensor {op}.Scalar") for op in ("add", "sub", "mul")),
    (elementwise.arithmetic("sub", swapped=True), "rsub.Tensor rsub.Scalar"),
    (elementwise.binary("div"), "div.Tensor div.Scalar"),
    (MAPPED["aten::maximum"], "max.other"),
    (MAPPED["aten::minimum"], "min.other"),
    (elementwise.masked_fill, "masked_fill.Scalar masked_fill.Tensor"),
    (elementwise.where, "where.self where.ScalarSelf where.ScalarOther"),
    # Along dimensions
    (norms.softmax(log=False), "softmax.int"),
    (norms.softmax(log=True), "log_softmax.int"),
    (norms.layer_norm, "layer_norm"),
    (norms.rms_norm, "rms_norm"),
    (attention.attention, "scaled_dot_product_attention"),
    (attention.multi_head_attention, "_native_multi_head_attention"),
    (attention.encoder_layer, "_transformer_encoder_layer_fwd"),
    # Tables
    (embeddings.embedding_bag, "embedding_bag embedding_bag.padding_idx"),
    (embeddings.arange, "arange arange.start arange.start_step"),
    (embeddings.index, "index.Tensor"),
    # Windows
    *((windows.pool("max_pool", n), f"max_pool{n}d") for n in (1, 2, 3)),
    *((windows.pool("avg_pool", n), f"avg_pool{n}d") for n in (1, 2, 3)),
    *((windows.adaptive_pool(n), f"adaptive_avg_pool{n}d") for n in (1, 2, 3)),
    (windows.resample("nearest"), "upsample_nearest2d upsample_nearest2d.vec"),
    (windows.resample("linear"), "upsample_linear1d upsample_linear1d.vec"),
    (windows.resample("linear"), "upsample_bilinear2d upsample_bilinear2d.vec"),
    (windows.resample("cubic"), "upsample_bicubic2d upsample_bicubic2d.vec"),
    (windows.pad, "pad constant_pad_nd"),
    (windows.roll, "roll"),
    # The same tensor or number
    (
        same_tensor("input", train=False),
        "dropout feature_dropout alpha_dropout feature_alpha_dropout",
    ),
    (same_tensor("self"), "detach"),
    (dtypes.to_dtype, "to.dtype to.device"),
    (dtypes.to_layout, "to.dtype_layout"),
    (dtypes.autocast(None), "_autocast_to_reduced_precision"),
    (dtypes.autocast("float32"), "_autocast_to_full_precision"),
    (same_number("a"), "Int.Tensor Int.Scalar IntImplicit"),
    (elementwise.scalar_of, "ScalarImplicit"),
    (elementwise.full, "full"),
    # Views
    (views.view_as, "view_as reshape_as"),
    (views.slice_, "slice.Tensor"),
    (views.split_equal, "split.Tensor"),
    (views.split_sizes("split_size"), "split.sizes"),
    (views.split_sizes("split_sizes"), "split split_with_sizes"),
    (views.chunk, "chunk"),
    (views.unbind, "unbind.int"),
)

IMPORTERS: dict[str, Importer] = MAPPED | {
    f"aten::{name}": importer for importer, names in _ROWS for name in names.split()
}
