"""Rules that make oneDNN propagate NaN, which its maxima, minima and activations drop.

x86's maxps and minps return their second operand where either operand is NaN. Each form below
therefore puts the operand that may be NaN second, or blends by an ordered comparison, which is
false for NaN.

bfloat16 products multiply pairs. The last element of an odd row has no partner: the kernel
multiplies whatever follows by 0, and 0 times infinity is NaN. So that value must be 0 as well. Rows
of AMX's tiles have 32; convolutions that fill such a row in part take other kernels.

Test: ``test/zendnn/test_nan.py``.
"""

from __future__ import annotations

from tools.zendnnify.rules.model import Action, Edit, Phrase, in_code

_REASON = "torch's result is NaN where its input is"
_LOWEST = "the maximum of a window of -infinity is -infinity, not the lowest finite number"
_PAIRED = "0 times the infinity beside a row is NaN"
_ELTWISE = "src/cpu/x64/injectors/jit_uni_eltwise_injector.cpp"
_POOLING = "src/cpu/x64/jit_uni_pool_kernel.cpp"
_BINARY = "src/cpu/x64/jit_uni_binary_kernel.cpp"
_LISTED = "src/cpu/nchw_pooling.cpp", "src/cpu/nhwc_pooling.cpp", "src/cpu/ref_pooling.cpp"
_MATH = "src/common/math_utils.hpp"
# Predicates of vcmpps. oneDNN's predicate for 'greater' is 'not less or equal', true for NaN.
_GREATER, _UNORDERED, _ORDERED = 14, 3, 7


def _replace(name: str, file: str, anchor: str, text: str) -> Edit:
    return Edit(f"keep-nan-{name}", file, anchor, Action.REPLACE, text, _REASON)


def _phrase(name: str, pattern: str, replacement: str, *files: str) -> Phrase:
    return in_code(f"keep-nan-{name}", pattern, replacement, _REASON, *files)


def _pair(name: str, file: str, anchor: str, text: str) -> Edit:
    return Edit(name, f"src/cpu/x64/{file}", anchor, Action.REPLACE, text, _PAIRED)


def _decline_part_filled_tiles(of: str, file: str) -> Edit:
    """Decline bfloat16 convolutions whose channels leave a part of a tile's row of 32 empty.

    The kernel fills that part with what lies beside the channels. No AMD CPU has tiles.
    """
    types = (
        "            VDISPATCH_CONV((is_bf16_convolution || is_int8_convolution),\n"
        "                    VERBOSE_UNSUPPORTED_DT_CFG);\n"
    )
    after = "            VDISPATCH_CONV(set_default_alg_kind(alg_kind::convolution_direct),\n"
    whole = (
        "            VDISPATCH_CONV(is_int8_convolution || IC() / G() % 32 == 0,\n"
        "                    VERBOSE_SHAPE_RESTRICTION);\n"
    )
    name = f"decline-part-filled-tiles{of}"
    return _pair(name, file, types + after, types + whole + after)


def _bounded(*bounds: tuple[str, str]) -> str:
    """Return code that replaces a value by each bound where their comparison is true."""
    return "".join(
        f"    compute_cmp_mask(vmm_src, table_val({bound}), {predicate});\n"
        f"    blend_with_mask(vmm_src, table_val({bound}));\n"
        for bound, predicate in bounds
    )


def _clamp(low: str, high: str) -> str:
    return _bounded((low, "_cmp_lt_os"), (high, str(_GREATER)))


def _combination(kind: str) -> Edit:
    return _replace(
        f"in-{kind}",
        _BINARY,
        f"        uni_v{kind}ps(v0, v0, v1);\n",
        "    {\n"
        "        if (is_avx512) {\n"
        f"            vcmpps(cmp_mask, v0, v0, {_ORDERED});\n"
        f"            v{kind}ps(v0 | cmp_mask, v0, v1);\n"
        "        } else {\n"
        f"            uni_vcmpps(vreg_one_, v0, v0, {_UNORDERED});\n"
        f"            uni_v{kind}ps(v0, v0, v1);\n"
        "            uni_vorps(v0, v0, vreg_one_);\n"
        "        }\n"
        "    }\n",
    )


PHRASES: tuple[Phrase, ...] = (
    _phrase(
        "in-loops-of-pooling", r"if \(s > (d|d\[0\]|d_val)\)", r"if (s > \1 || s != s)", *_LISTED
    ),
    in_code(
        "keep-nan-of-a-window-in-pooling",
        r"if \(d_val > d\[0\]\)",
        "if (d_val > d[0] || d_val != d_val)",
        _REASON,
        *_LISTED,
        versions=">=3.8",
    ),
    _phrase(
        "in-vectors-of-pooling",
        r"nstl::max\((s|s\[oc\]|src_f32\[oc\]), (mv|d\[oc\]|dst_f32\[oc\])\)",
        r"(\1 > \2 || \1 != \1 ? \1 : \2)",
        *_LISTED,
    ),
    _phrase("in-indices-of-pooling", r"\(s > mv\) \?", "(s > mv || s != s) ?", *_LISTED),
    in_code(
        "pool-from-infinity",
        r"\b(?:(?:nstl::)?numeric_limits<data_t>::lowest\(\)"
        r"|types::lowest_value<float>\(dst_d\.data_type\(\)\))",
        "-std::numeric_limits<float>::infinity()",
        _LOWEST,
        *_LISTED,
    ),
    in_code(
        "keep-relu-of-infinity",
        r"\breturn s > 0 \? s : \(U\)\(s \* alpha\);",
        "return s > 0 ? s : s < 0 && alpha == 0 ? (U)0 : (U)(s * alpha);",
        "a slope of 0 turns -infinity into NaN",
        _MATH,
    ),
    in_code(
        "pair-with-zero-in-brgemm",
        r"\bbrg\.brgattr\.wary_A_k_tail_read\b",
        "(brg.is_bf16 || brg.brgattr.wary_A_k_tail_read)",
        _PAIRED,
        "src/cpu/x64/brgemm/jit_brgemm_kernel.cpp",
    ),
    _phrase("below-a-bound", r"\bs > alpha \? s : \(U\)alpha", "s < alpha ? (U)alpha : s", _MATH),
    _phrase("above-a-bound", r"\bs < beta \? s : \(U\)beta", "s > beta ? (U)beta : s", _MATH),
)

EDITS: tuple[Edit, ...] = (
    _replace(
        "in-relu",
        _ELTWISE,
        "relu_zero_ns_compute_vector_fwd(\n"
        "        const Vmm &vmm_src) {\n"
        "    h->uni_vmaxps(vmm_src, vmm_src, table_val(zero));\n",
        "relu_zero_ns_compute_vector_fwd(\n"
        "        const Vmm &vmm_src) {\n" + _bounded(("zero", "_cmp_lt_os")),
    ),
    _replace(
        "with-a-mask-in-relu",
        _ELTWISE,
        "            case eltwise_relu: return alpha != 0.f;\n",
        "            case eltwise_relu: return true;\n",
    ),
    _replace(
        "in-clip",
        _ELTWISE,
        "    h->uni_vmaxps(vmm_src, vmm_src, table_val(alpha));\n"
        "    h->uni_vminps(vmm_src, vmm_src, table_val(beta));\n",
        _clamp("alpha", "beta"),
    ),
    _replace(
        "with-a-mask-in-clip",
        _ELTWISE,
        "            case eltwise_clip_v2: return false;\n",
        "            case eltwise_clip_v2: return true;\n",
    ),
    _replace(
        "in-hardsigmoid",
        _ELTWISE,
        "    h->uni_vminps(vmm_src, vmm_src, table_val(one));\n"
        "    h->uni_vmaxps(vmm_src, vmm_src, table_val(zero));\n",
        _clamp("zero", "one"),
    ),
    _replace(
        "with-a-mask-in-hardsigmoid",
        _ELTWISE,
        "            case eltwise_hardswish: return false;\n"
        "            case eltwise_hardsigmoid: return false;\n",
        "            case eltwise_hardswish: return true;\n"
        "            case eltwise_hardsigmoid: return true;\n",
    ),
    _replace(
        "in-exp",
        _ELTWISE,
        "    h->uni_vminps(vmm_src, vmm_src, table_val(exp_ln_flt_max_f));\n"
        "    h->uni_vmaxps(vmm_src, vmm_src, vmm_aux(0));\n"
        "    h->uni_vmovups(vmm_aux(0), vmm_src);\n",
        "    h->uni_vmovups(vmm_aux(1), table_val(exp_ln_flt_max_f));\n"
        "    h->uni_vminps(vmm_aux(1), vmm_aux(1), vmm_src);\n"
        "    h->uni_vmaxps(vmm_aux(0), vmm_aux(0), vmm_aux(1));\n"
        "    h->uni_vmovups(vmm_src, vmm_aux(0));\n",
    ),
    _replace(
        "in-relu-after-batch-norm",
        "src/cpu/x64/jit_uni_batch_normalization.cpp",
        "uni_vmaxps(vdata, vdata, vzero);",
        "uni_vmaxps(vdata, vzero, vdata);",
    ),
    _replace(
        "in-relu-after-batch-norm-of-channels",
        "src/cpu/x64/jit_uni_batch_normalization.cpp",
        "uni_vmaxps(v, v, vzero);",
        "uni_vmaxps(v, vzero, v);",
    ),
    _replace(
        "in-relu-after-batch-norm-of-blocks",
        "src/cpu/x64/jit_uni_tbb_batch_normalization.cpp",
        "h_->uni_vmaxps(v, v, vzero_);",
        "h_->uni_vmaxps(v, vzero_, v);",
    ),
    _replace(
        "in-a-single-sigmoid",
        _MATH,
        "    return in < exp_overflow_bound ? (U)(1.f / (1.f + ::expf(in))) : 0.f;\n",
        "    return in >= exp_overflow_bound ? 0.f : (U)(1.f / (1.f + ::expf(in)));\n",
    ),
    _replace(
        "in-a-single-maximum",
        "src/cpu/primitive_attr_postops.cpp",
        "return nstl::max(x, y);",
        "return x != x ? x : nstl::max(x, y);",
    ),
    _replace(
        "in-a-single-minimum",
        "src/cpu/primitive_attr_postops.cpp",
        "return nstl::min(x, y);",
        "return x != x ? x : nstl::min(x, y);",
    ),
    _combination("max"),
    _combination("min"),
    Edit(
        name="pool-vectors-from-infinity",
        file=_POOLING,
        anchor="    mov(tmp_gpr, float2int(nstl::numeric_limits<float>::lowest()));\n",
        action=Action.REPLACE,
        text="    mov(tmp_gpr, float2int(-std::numeric_limits<float>::infinity()));\n",
        reason=_LOWEST,
    ),
    # The accumulator is the second operand, so its NaN stays. The OR adds the input's NaN.
    _replace(
        "in-pooling-by-avx2",
        _POOLING,
        "                    vcmpps(cvtvr, accvr, inpvr, _cmp_lt_os);\n"
        "                    vblendvps(accvr, accvr, inpvr, cvtvr);\n"
        "                    if (jpp.is_training)\n",
        "                    if (jpp.is_training) {\n"
        "                        vcmpps(cvtvr, accvr, inpvr, _cmp_lt_os);\n"
        f"                        vcmpps(vmm_tmp, inpvr, inpvr, {_UNORDERED});\n"
        "                        vorps(cvtvr, cvtvr, vmm_tmp);\n"
        "                        vblendvps(accvr, accvr, inpvr, cvtvr);\n"
        "                    } else {\n"
        f"                        vcmpps(cvtvr, inpvr, inpvr, {_UNORDERED});\n"
        "                        vmaxps(accvr, inpvr, accvr);\n"
        "                        vorps(accvr, accvr, cvtvr);\n"
        "                    }\n"
        "                    if (jpp.is_training)\n",
    ),
    # The mask keeps an accumulator that is NaN. The input is the second operand, so its NaN wins.
    _replace(
        "in-pooling-by-avx512",
        _POOLING,
        "                    vcmpps(k_store_mask, accvr, inpvr, _cmp_lt_os);\n"
        "                    vblendmps(accvr | k_store_mask, accvr, inpvr);\n"
        "                    if (jpp.is_training)\n",
        "                    if (jpp.is_training) {\n"
        "                        const Opmask is_nan(7);\n"
        "                        vcmpps(k_store_mask, accvr, inpvr, _cmp_lt_os);\n"
        f"                        vcmpps(is_nan, inpvr, inpvr, {_UNORDERED});\n"
        "                        korw(k_store_mask, k_store_mask, is_nan);\n"
        "                        vblendmps(accvr | k_store_mask, accvr, inpvr);\n"
        "                    } else {\n"
        f"                        vcmpps(k_store_mask, accvr, accvr, {_ORDERED});\n"
        "                        vmaxps(accvr | k_store_mask, accvr, inpvr);\n"
        "                    }\n"
        "                    if (jpp.is_training)\n",
    ),
    _pair(
        "pair-with-zero-in-gemm",
        "gemm/bf16/jit_avx512_core_gemm_bf16bf16f32_kern.cpp",
        "                case 2: vpbroadcastw(b, b_src); break;\n",
        "                case 2: vpbroadcastw(b, b_src); vpsrld(b, b, 16); break;\n",
    ),
    _pair(
        "pair-with-zero-in-convolution",
        "jit_avx512_core_bf16_conv_kernel.cpp",
        "                        const bool safe_overstep = (src_offset < max_src_offset)\n"
        "                                && !is_src_layout_nxc();\n",
        "                        const bool safe_overstep = false;\n",
    ),
    _pair(
        "pair-with-zero-in-gradient-of-convolution",
        "jit_avx512_core_bf16_conv_kernel.cpp",
        "                        vpbroadcastw(ddst, ptr[aux_reg_dst + aux_ddst_offset]);\n",
        "                        vpbroadcastw(ddst, ptr[aux_reg_dst + aux_ddst_offset]);\n"
        "                        vpsrld(ddst, ddst, 16);\n",
    ),
    _decline_part_filled_tiles("", "jit_avx512_core_amx_convolution.hpp"),
    _decline_part_filled_tiles("-of-points", "jit_avx512_core_amx_1x1_convolution.hpp"),
    _pair(
        "decline-part-filled-tiles-by-brgemm",
        "jit_brgemm_conv_utils.cpp",
        "    jcp.ic = jcp.ic_without_padding;\n",
        "    jcp.ic = jcp.ic_without_padding;\n"
        "    VDISPATCH_CONV_IC(!is_amx(isa) || src_md.data_type != data_type::bf16\n"
        "                    || jcp.prop_kind == prop_kind::backward_weights || jcp.ic % 32 == 0,\n"
        "            VERBOSE_SHAPE_RESTRICTION);\n",
    ),
    # A K that is rounded up reaches into the next row, and past the end of the weights. Only AMX
    # tiles need that.
    Edit(
        name="end-rows-in-convolution-by-brgemm",
        file="src/cpu/x64/jit_brgemm_conv_utils.cpp",
        anchor="    const auto vK = K > 0 ? K : K_tail;\n",
        action=Action.BEFORE,
        text="    const bool in_pairs = src_dt == data_type::bf16;\n"
        "    if ((in_pairs || src_dt == data_type::f32) && !is_bf32 && !is_amx(isa)) {\n"
        "        if (is_relo()) {\n"
        "            K_tail = kh_koef * kw * inp_ic_block;\n"
        "            K = ic >= ic_block ? K_tail : 0;\n"
        "        } else if (exec_type != exec_trans || !in_pairs) {\n"
        "            K_tail = kh_koef * (ic % ic_block);\n"
        "        }\n"
        "    }\n",
        reason=_PAIRED,
    ),
)
