"""Which aten operators the engine takes: a table from an operator's name to an importer.

An importer reads one call and adds the engine's nodes that do the same, or raises ``Refused`` with
a reason for people. Most are read off the mappings of ``operators.py``; here are those that have
more to decide. Dtypes and ranks are mostly unknown before anything runs: plans check them.
"""

from __future__ import annotations

from torch.backends.zendnn.frontends.aten.attention import (
    attention,
    encoder_layer,
    multi_head_attention,
)
from torch.backends.zendnn.frontends.aten.dtypes import autocast, to_dtype, to_layout
from torch.backends.zendnn.frontends.aten.elementwise import (
    binary,
    eltwise,
    full,
    masked_fill,
    on_numbers,
    power,
    scalar_of,
    where,
)
from torch.backends.zendnn.frontends.aten.embeddings import arange, embedding_bag, index
from torch.backends.zendnn.frontends.aten.mappings import MAPPED, Importer, same_number, same_tensor
from torch.backends.zendnn.frontends.aten.norms import layer_norm, rms_norm, softmax
from torch.backends.zendnn.frontends.aten.products import (
    convolution,
    einsum,
    linear,
    product,
    product_and_sum,
)
from torch.backends.zendnn.frontends.aten.views import (
    chunk,
    slice_,
    split_equal,
    split_sizes,
    unbind,
    view_as,
)
from torch.backends.zendnn.frontends.aten.windows import adaptive_pool, pad, pool, resample, roll

WITH_EITHER = ("Tensor", "Scalar")
RESAMPLINGS = (
    ("nearest2d", "nearest"),
    ("linear1d", "linear"),
    ("bilinear2d", "linear"),
    ("bicubic2d", "cubic"),
)
PLAIN_POOL = ((1, "1d"), (2, "2d"), (3, "3d"))

IMPORTERS: dict[str, Importer] = MAPPED | {
    # Convolutions
    "aten::_convolution": convolution(),
    "aten::_convolution.deprecated": convolution(),
    **{f"aten::conv{n}d": convolution(transposed=False) for n in (1, 2, 3)},
    **{
        f"aten::conv{n}d.padding": convolution(transposed=False, words_for_padding=True)
        for n in (1, 2, 3)
    },
    "aten::_convolution_mode": convolution(transposed=False, words_for_padding=True),
    "aten::conv_transpose1d": convolution(transposed=True),
    "aten::conv_transpose2d.input": convolution(transposed=True),
    "aten::conv_transpose3d.input": convolution(transposed=True),
    # Products
    "aten::linear": linear,
    "aten::addmm": product_and_sum("mat1", "mat2", 2),
    "aten::baddbmm": product_and_sum("batch1", "batch2", 3),
    "aten::matmul": product("self", "other"),
    "aten::einsum": einsum,
    "aten::mm": product("self", "mat2", 2),
    "aten::bmm": product("self", "mat2", 3),
    # Functions of elements
    "aten::neg": eltwise("affine", alpha=-1.0),
    "aten::pow.Tensor_Scalar": power,
    **{
        f"aten::{name}.{overload}": on_numbers(f"number_{name}", binary(name))
        for name in ("add", "sub", "mul")
        for overload in WITH_EITHER
    },
    **{
        f"aten::rsub.{overload}": on_numbers(
            "number_sub", binary("sub", swapped=True), swapped=True
        )
        for overload in WITH_EITHER
    },
    **{f"aten::div.{overload}": binary("div") for overload in WITH_EITHER},
    "aten::masked_fill.Scalar": masked_fill,
    "aten::masked_fill.Tensor": masked_fill,
    **{f"aten::where.{overload}": where for overload in ("self", "ScalarSelf", "ScalarOther")},
    # Along dimensions
    "aten::softmax.int": softmax(log=False),
    "aten::log_softmax.int": softmax(log=True),
    "aten::layer_norm": layer_norm,
    "aten::rms_norm": rms_norm,
    "aten::scaled_dot_product_attention": attention,
    "aten::_native_multi_head_attention": multi_head_attention,
    "aten::_transformer_encoder_layer_fwd": encoder_layer,
    # Tables
    "aten::embedding_bag": embedding_bag,
    "aten::embedding_bag.padding_idx": embedding_bag,
    "aten::arange": arange,
    "aten::arange.start": arange,
    "aten::arange.start_step": arange,
    "aten::index.Tensor": index,
    # Windows
    **{f"aten::max_pool{name}": pool("max_pool", n) for n, name in PLAIN_POOL},
    **{f"aten::avg_pool{name}": pool("avg_pool", n) for n, name in PLAIN_POOL},
    **{f"aten::adaptive_avg_pool{name}": adaptive_pool(n) for n, name in PLAIN_POOL},
    **{
        f"aten::upsample_{name}{overload}": resample(algorithm)
        for name, algorithm in RESAMPLINGS
        for overload in ("", ".vec")
    },
    "aten::pad": pad,
    "aten::constant_pad_nd": pad,
    "aten::roll": roll,
    # The same tensor or number
    **{
        f"aten::{name}": same_tensor("input", train=False)
        for name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
    },
    "aten::detach": same_tensor("self"),
    "aten::to.dtype": to_dtype,
    "aten::to.dtype_layout": to_layout,
    "aten::to.device": to_dtype,
    "aten::_autocast_to_reduced_precision": autocast(None),
    "aten::_autocast_to_full_precision": autocast("float32"),
    "aten::Int.Tensor": same_number("a"),
    "aten::Int.Scalar": same_number("a"),
    "aten::IntImplicit": same_number("a"),
    "aten::ScalarImplicit": scalar_of,
    "aten::full": full,
    # Views
    "aten::view_as": view_as,
    "aten::reshape_as": view_as,
    "aten::slice.Tensor": slice_,
    "aten::split.Tensor": split_equal,
    "aten::split.sizes": split_sizes("split_size"),
    "aten::split": split_sizes("split_sizes"),
    "aten::split_with_sizes": split_sizes("split_sizes"),
    "aten::chunk": chunk,
    "aten::unbind.int": unbind,
}
