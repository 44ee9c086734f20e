"""Rules that remove from oneDNN the code that no Zen CPU runs.

Zen has AVX2, and since Zen 4 AVX-512 with VNNI and BF16. These rules drop code for SSE4.1 or AVX
alone, for VNNI without AVX-512, and for FP16 arithmetic. AMX stays, since wheels also run on CPUs
with it. `cmake/ZenDNN.cmake` leaves out the files that become unused.

Tests: ``test/zendnn/test_library.py`` and ``test/zendnn/test_instruction_sets.py``.
"""

from __future__ import annotations

from tools.zendnnify.rules.model import Phrase, in_code

_ISAS = (
    r"\b(?:sse41|avx|avx2_vnni|avx2_vnni_2|avx512_core_fp16|avx512_core_amx_fp16"
    r"|avx10_1_512_amx_fp16)\b"
)
_TYPES = "torch's recurrent layers use only float32 and bfloat16 here"
_REASON = "no Zen CPU runs it or prefers it"
_X64 = "src/cpu/x64"


def _drop(
    name: str, pattern: str, *files: str, reason: str = _REASON, versions: str = ""
) -> Phrase:
    return in_code(name, pattern, "", reason, *files, versions=versions)


PHRASES: tuple[Phrase, ...] = (
    _drop(
        "list-no-other-isa",
        rf"\bCPU_INSTANCE_\w+\([\s\\]*\w+<[^()]*{_ISAS}[^()]*>\)",
        "src/cpu/cpu_*_list.cpp",
        "src/cpu/matmul/cpu_matmul_list.cpp",
    ),
    _drop(
        "list-nothing-of-sse41",
        r"\bCPU_INSTANCE_SSE41\(\w+(?:<[^()]*>)?\)",
        "src/cpu/cpu_*_list.cpp",
    ),
    _drop(
        "create-nothing-of-sse41",
        r"else if \(mayiuse\(sse41\)\) \{\s*return new \w+<sse41>\([^;]*\);\s*\}",
        f"{_X64}/jit_gemm_inner_product_utils.cpp",
        f"{_X64}/jit_uni_layer_normalization.cpp",
    ),
    _drop(
        "choose-no-other-isa",
        rf"\bif \(mayiuse\({_ISAS}\)\) return \w+;",
        f"{_X64}/jit_uni_binary.cpp",
    ),
    _drop(
        "create-nothing-of-other-isa",
        rf"\bcase {_ISAS}: \{{[\s\S]*?\bbreak;\s*\}}",
        f"{_X64}/jit_uni_binary.cpp",
    ),
    _drop(
        "create-no-softmax-of-other-isa",
        rf"\bREG_\w+\(HANDLE_ISA\({_ISAS}\)\);",
        f"{_X64}/jit_uni_softmax.cpp",
    ),
    _drop(
        "choose-no-softmax-of-other-isa",
        rf"\b{_ISAS},\s+(?=avx)|, sse41(?=\}})",
        f"{_X64}/jit_uni_softmax.cpp",
    ),
    _drop(
        "instantiate-no-other-isa",
        rf"\btemplate (?:struct|class) \w+<[^;(){{}}]*{_ISAS}[^;(){{}}]*>;",
        f"{_X64}/jit_brgemm_1x1_conv.cpp",
        f"{_X64}/jit_brgemm_conv*.cpp",
        f"{_X64}/jit_brgemm_deconv.cpp",
        f"{_X64}/jit_brgemm_inner_product.cpp",
        f"{_X64}/jit_uni_batch_normalization*.cpp",
        f"{_X64}/jit_uni_binary_kernel.cpp",
        f"{_X64}/jit_uni_eltwise*.cpp",
        f"{_X64}/jit_uni_i8i8_pooling.cpp",
        f"{_X64}/jit_uni_pool*.cpp",
        f"{_X64}/jit_uni_tbb_batch_normalization.cpp",
        f"{_X64}/jit_uni_x8s8s32x_*.cpp",
        f"{_X64}/matmul/brgemm_matmul.cpp",
        f"{_X64}/shuffle/*.cpp",
    ),
    # Injectors for SSE4.1 stay: recurrent cells and fused depthwise convolutions name them. Since
    # 3.14 injectors differ by the width of vectors only.
    _drop(
        "inject-for-no-other-isa",
        r"\btemplate (?:struct|class) \w+<(?:avx|avx2_vnni_2|avx512_core_fp16)\b[^;(){}]*>;",
        f"{_X64}/injectors/*.cpp",
        versions="<3.14",
    ),
    _drop(
        "create-no-injector-of-other-isa",
        r"\bCASE_(?:EXACT_MATCH|MAYIUSE)\((?:avx|avx2_vnni_2|avx512_core_fp16)\);",
        f"{_X64}/injectors/jit_uni_postops_injector.cpp",
        versions="<3.14",
    ),
    in_code(
        "multiply-by-no-other-isa",
        r"\belse if \(mayiuse\((?:avx|sse41|avx2_vnni)\)\)",
        "else if (false)",
        _REASON,
        f"{_X64}/gemm/gemm_info.cpp",
    ),
    # Before 3.12 upstream lists them on demand only.
    _drop(
        "list-no-sparse-product",
        r"\bCPU_INSTANCE(?:_X64)?\((?:jit_uni|ref)_sparse_matmul_t\)",
        "src/cpu/matmul/cpu_matmul_list.cpp",
        reason="torch's sparse matrices do not reach it",
        versions=">=3.12",
    ),
    _drop(
        "list-no-recurrence-of-other-types",
        r"\bCPU_INSTANCE\(ref_rnn_(?:fwd|bwd)_(?:f16|s8s8|u8s8)_t\)",
        "src/cpu/cpu_rnn_list.cpp",
        reason=_TYPES,
    ),
    _drop(
        "instantiate-no-recurrence-of-other-types",
        r"\btemplate struct _?ref_rnn_common_t<[^;]*data_type::(?:f16|u8|s8)\b[^;]*>;",
        "src/cpu/rnn/ref_rnn.cpp",
        reason=_TYPES,
    ),
    _drop(
        "instantiate-no-cell-of-other-types",
        r"\btemplate rnn_\w+\(\s*ref_rnn_\w+_(?:f16|u8s8|s8s8)_t::\w+\);",
        "src/cpu/rnn/*.cpp",
        reason=_TYPES,
    ),
)
