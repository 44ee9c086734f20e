"""Rules that mend oneDNN where it computes wrong values, reads memory of others or crashes.

The next implementation takes what one refuses.

Tests: ``test/zendnn/cpu/test_convolution_gradients.py``, ``test/zendnn/plan/test_convolution.py``,
``test/zendnn/plan/test_matmul.py`` and ``test/zendnn/test_reported_failures.py``.
"""

from tools.zendnnify.rules.model import Action, Edit, Phrase, in_code

# In 3.14, upstream clears the end of every tile.
_TILE_OVER_THE_END = "a row's last tile extends into the next row, times zero: a NaN would spread"


def _decline_tiles(gradient: str, file: str, *, after: str, where: str = "true") -> Edit:
    """Make a convolution's gradient refuse AMX tiles; ``where`` is the condition for them."""
    return Edit(
        name=f"decline-tiles-for-{gradient}",
        file=f"src/cpu/x64/{file}",
        anchor=after,
        action=Action.AFTER,
        text=f"    VDISPATCH_CONV(!({where}), VERBOSE_UNSUPPORTED_ISA);\n",
        reason="many gradients are wrong on tiles",
    )


def _clear_own_rows(bound: str, versions: str) -> Edit:
    """End the loop that clears a row of a cell, up to `bound` upstream, where the row ends."""
    loop = "                for (dim_t j = 0; j < {}; ++j)\n                    C_o[j] = 0;\n"
    return Edit(
        name="clear-own-rows-of-gated-cells-only",
        file="src/cpu/x64/rnn/brgemm_cell_common_fwd.cpp",
        anchor=loop.format(bound),
        action=Action.REPLACE,
        text=loop.format("(do_n_tail ? rnn_.n_tail : rnn_.n_block)"),
        reason="the zeros reach into the next row, which another thread may just have computed",
        versions=versions,
    )


PHRASES: tuple[Phrase, ...] = (
    # The copy has rows of as many channels as there are, where images are channels-last.
    in_code(
        "copy-strided-points-into-the-workspace",
        r"\bsp(\)?) \* jcp\.ic_block;",
        r"sp\1 * nstl::min(jcp.ic, jcp.ic_block);",
        "with fewer channels than a block, gradients of weights write past the workspace",
        "src/cpu/x64/jit_avx2_1x1_convolution.cpp",
        "src/cpu/x64/jit_avx512_common_1x1_convolution.cpp",
        "src/cpu/x64/jit_avx512_core_bf16_1x1_convolution.cpp",
    ),
)

EDITS: tuple[Edit, ...] = (
    Edit(
        name="tell-zeros-apart",
        file="src/common/utils.hpp",
        anchor="    return (v1 == v2) || (std::isnan(v1) && std::isnan(v2));\n",
        action=Action.REPLACE,
        text="    return (v1 == v2 && std::signbit(v1) == std::signbit(v2))\n"
        "            || (std::isnan(v1) && std::isnan(v2));\n",
        reason="the cache would give x * a + 0.0 the primitive of x * a - 0.0, which keeps -0.0",
    ),
    Edit(
        name="multiply-pairs-of-other-registers",
        file="src/cpu/x64/jit_avx512_core_bf16_1x1_conv_kernel.hpp",
        anchor="    Xbyak::Zmm zmm_tmp2 = Xbyak::Zmm(30);\n",
        action=Action.REPLACE,
        text="    Xbyak::Zmm zmm_tmp2 = Xbyak::Zmm(isa_has_bf16(jcp.isa) ? 31 : 30);\n",
        reason="with 30 accumulators, register 30 holds the weights; where products of pairs are"
        " emulated, there are at most 10, and register 31 holds a permutation",
    ),
    # The configuration lists its blocked layouts before it knows its block of k. It then takes its
    # own layout for a plain one, whose offsets are wrong beyond the first block of k.
    Edit(
        name="know-the-block-of-k-before-the-layouts",
        file="src/cpu/x64/matmul/brgemm_matmul_utils.cpp",
        anchor="    brgemm_matmul_conf_utils_t bm_conf_utils(bgmmc, isa, attr,\n",
        action=Action.BEFORE,
        text="    bgmmc.wei_k_blk = data_type_vnni_simd_elems(bgmmc.wei_dt, isa);\n",
        reason="AVX2 kernels read wrong weights of layers of over 1,024 inputs and 9 to 16 outputs",
        versions="<3.12",
    ),
    # In a cell's scratchpad, a row may be shorter than a block of columns. Since 3.9 upstream looks
    # at the length of a row, but not at where in it the block starts.
    _clear_own_rows("rnn_.n_block", "<3.9"),
    _clear_own_rows("nstl::min(rnn_.n_block, cell_stride)", ">=3.9"),
    # These convolutions read out of bounds, mostly where the kernel exceeds the image, as do
    # products on AMX tiles. The next implementation takes what they refuse.
    Edit(
        name="dilate-no-single-point",
        file="src/common/convolution.cpp",
        anchor="        dim_t ker_range = 1 + (ker - 1) * (dil + 1);\n",
        action=Action.AFTER,
        text="        if (ker == 1) cd.dilates[i - 2] = 0;\n",
        reason="dilation has no effect on one point, but brgemm kernels crash on narrow images",
    ),
    Edit(
        name="convolve-few-points-elsewhere",
        file="src/cpu/x64/jit_brgemm_conv.cpp",
        anchor="    const convolution_desc_t &cd = *desc();\n    if (cd.use_inversion\n",
        action=Action.BEFORE,
        text="    const cpu_convolution_fwd_pd_t &self = *this;\n"
        "    const auto reaches_over = [](dim_t size, dim_t kernel, dim_t gap) {\n"
        "        return (kernel - 1) * (gap + 1) >= size;\n"
        "    };\n"
        "    if (self.OW() == 1 && self.KSW() > 1) return status::unimplemented;\n"
        "    if (is_superset(isa, avx512_core_amx)\n"
        "            && (self.IC() / self.G() % 2 != 0\n"
        "                    || reaches_over(self.ID(), self.KD(), self.KDD())\n"
        "                    || reaches_over(self.IH(), self.KH(), self.KDH())\n"
        "                    || reaches_over(self.IW(), self.KW(), self.KDW())))\n"
        "        return status::unimplemented;\n",
        reason="it sums memory beside a row where the kernel exceeds the row; on tiles it also does"
        " so for odd channels, and crashes where a kernel is larger than the image",
    ),
    Edit(
        name="lower-no-deep-kernel",
        file="src/cpu/x64/jit_brgemm_conv_utils.cpp",
        anchor="                && IMPLICATION(jcp.id > 1, relo_conv_weights_wi == false)\n",
        action=Action.REPLACE,
        text="                && IMPLICATION(jcp.id > 1 || jcp.kd > 1,\n"
        "                        relo_conv_weights_wi == false)\n",
        reason="lowering copies only the first slice of the weights, which padding may skip",
    ),
    _decline_tiles(
        "gradients-of-images",
        "jit_brgemm_conv_bwd.cpp",
        after="    VDISPATCH_CONV(is_bwd_d(), VERBOSE_BAD_PROPKIND);\n",
        where="is_superset(isa, avx512_core_amx)",
    ),
    _decline_tiles(
        "gradients-of-images-with-strides",
        "jit_brgemm_conv_bwd_strided.cpp",
        after="    const bool is_int8 = one_of(diff_dst_type, u8, s8);\n",
        where="is_superset(isa, avx512_core_amx)",
    ),
    _decline_tiles(
        "gradients-of-images-without-brgemm",
        "jit_avx512_core_amx_convolution.hpp",
        after="            VDISPATCH_CONV(desc()->prop_kind == prop_kind::backward_data,\n"
        "                    VERBOSE_BAD_PROPKIND);\n",
    ),
    _decline_tiles(
        "gradients-of-weights",
        "jit_brgemm_conv_bwd_w.cpp",
        after="    VDISPATCH_CONV(is_bwd_w(), VERBOSE_BAD_PROPKIND);\n",
    ),
    _decline_tiles(
        "gradients-of-weights-without-brgemm",
        "jit_avx512_core_amx_convolution.hpp",
        after="            VDISPATCH_CONV(is_bwd_w(), VERBOSE_BAD_PROPKIND);\n",
    ),
    Edit(
        name="take-no-gradient-of-large-kernels",
        file="src/cpu/x64/jit_avx512_core_bf16_convolution.hpp",
        anchor="            VDISPATCH_CONV(is_bwd_w(), VERBOSE_BAD_PROPKIND);\n",
        action=Action.AFTER,
        text="            VDISPATCH_CONV((KD() - 1) * (KDD() + 1) < ID()\n"
        "                            && (KH() - 1) * (KDH() + 1) < IH()\n"
        "                            && (KW() - 1) * (KDW() + 1) < IW()\n"
        "                            && (OW() > 1 || KSW() == 1),\n"
        "                    VERBOSE_SHAPE_RESTRICTION);\n",
        reason="it reads uninitialised memory where the kernel is as large as the image, or strides"
        " past the only column",
    ),
    Edit(
        name="multiply-no-tile-over-the-end",
        file="src/cpu/x64/matmul/brgemm_matmul_utils.cpp",
        anchor="                && wei_zp_type == none && !use_buffer_a\n"
        "                && !packed_sparse_weights;\n",
        action=Action.AFTER,
        text="        extendable_k_ = false;\n",
        reason=_TILE_OVER_THE_END,
        versions="<3.7.3",
    ),
    Edit(
        name="clear-the-end-of-every-tile",
        file="src/cpu/x64/brgemm/jit_brgemm_amx_uker.cpp",
        anchor="    return brg.rd_block - brg.rdb_tail <= last_bd_block * brg.reduce_dim;\n",
        action=Action.REPLACE,
        text="    return false;\n",
        reason=_TILE_OVER_THE_END,
        versions=">=3.12,<3.14",
    ),
    Edit(
        name="clear-the-end-of-every-tile-of-convolutions",
        file="src/cpu/x64/brgemm/jit_brgemm_kernel.cpp",
        anchor="            && brg.rdb_tail != 0 && last_bdb && is_rd_tail;\n",
        action=Action.REPLACE,
        text="            && brg.rdb_tail != 0 && is_rd_tail;\n",
        reason=_TILE_OVER_THE_END,
        versions=">=3.12,<3.14",
    ),
    # Three kernels accept memory with gaps between images, but then write or read the gaps.
    Edit(
        name="copy-dense-memory-only",
        file="src/cpu/x64/jit_uni_reorder_direct_copy.cpp",
        anchor="    // Direct copy operates only on identical formats.\n",
        action=Action.BEFORE,
        text="    VDISPATCH_REORDER(src_d.is_dense(true) && dst_d.is_dense(true),\n"
        "            VERBOSE_UNSUPPORTED_MEM_STRIDE);\n",
        reason="it copies elements as if contiguous and ignores strides",
    ),
    Edit(
        name="reorder-evenly-spaced-tiles-only",
        file="src/cpu/x64/jit_uni_reorder.cpp",
        anchor="            if (p.nodes[i].is != p.nodes[i].os) {\n"
        "                ok = false;\n"
        "                break;\n"
        "            }\n",
        action=Action.AFTER,
        text="            const auto &inner = p.nodes[i - 1];\n"
        "            if (i > 2\n"
        "                    && p.nodes[i].is\n"
        "                            != inner.is * static_cast<ptrdiff_t>(inner.n)) {\n"
        "                ok = false;\n"
        "                break;\n"
        "            }\n",
        reason="it walks all outer dimensions with the stride of the innermost of them",
    ),
    Edit(
        name="convolve-evenly-spaced-images-only",
        file="src/cpu/gemm_convolution_utils.cpp",
        anchor="        if (src_tag != dst_tag) return status::unimplemented;\n",
        action=Action.AFTER,
        text="        const bool keeps_batch_strides\n"
        "                = utils::one_of(src_tag, ncw, nchw, ncdhw)\n"
        "                && utils::everyone_is(\n"
        "                        data_type::f32, src_d.data_type(), dst_d.data_type())\n"
        "                && cd.prop_kind != prop_kind::backward_weights;\n"
        "        if (!keeps_batch_strides && src_d.dims()[0] > 1\n"
        "                && !(src_d.matches_tag(src_tag) && dst_d.matches_tag(dst_tag)))\n"
        "            return status::unimplemented;\n",
        reason="images may have gaps between them; only float32 in plain layouts respects these",
    ),
    Edit(
        name="multiply-batches-that-follow-each-other",
        file="src/cpu/x64/matmul/brgemm_matmul_utils.cpp",
        anchor="    return max_batch_stride / min_batch_stride == batch;\n",
        action=Action.REPLACE,
        text="    dim_t inner = 1;\n"
        "    for (int d = batch_start_idx; d >= 0; --d) {\n"
        "        if (mdw.dims()[d] == 1) continue;\n"
        "        if (strides[d] != strides[batch_start_idx] * inner) return false;\n"
        "        inner *= mdw.dims()[d];\n"
        "    }\n"
        "    return inner == batch;\n",
        reason="strides of two dimensions may have this ratio by chance; it read other matrices",
        versions="<3.13",
    ),
)
