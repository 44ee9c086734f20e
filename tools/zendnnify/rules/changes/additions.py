"""Rules that add what we have written to oneDNN: implementations, counters and emulation.

Tests: ``test/zendnn/test_panels.py``, ``test/zendnn/test_events.py`` and
``test/zendnn/test_emulation.py``.
"""

from tools.zendnnify.rules.model import Action, Edit

_ISA = "src/cpu/x64/cpu_isa_traits.cpp"
_PLATFORM = "src/cpu/platform.cpp"
_EXECUTE = "src/common/primitive_iface.cpp"
_CONVOLUTIONS = "src/cpu/cpu_convolution_list.cpp"
_REORDERS = "src/cpu/reorder/cpu_reorder"
_MATMULS = "src/cpu/matmul/cpu_matmul_list.cpp"


def _declare(implementation: str, file: str, *, after: str, name: str = "") -> Edit:
    """Include the header of a hand-written source; ``name`` tells several edits apart."""
    return Edit(
        name=f"declare-{(name or implementation).replace('_', '-')}",
        file=file,
        anchor=f'#include "{after}"\n',
        action=Action.AFTER,
        text=f'#include "third_party/zendnn/{implementation}.h"\n',
        reason="what it declares is hand-written",
    )


def _list_panel_matmul(before: str, versions: str) -> Edit:
    """List our product before the first one of ZenDNN's on x86-64, whose description is large."""
    return Edit(
        name="list-panel-matmul",
        file=_MATMULS,
        anchor=f"        CPU_INSTANCE_AMX(brgemm_matmul_t<{before}>)\n",
        action=Action.BEFORE,
        text="        CPU_INSTANCE_AVX512(panel_matmul_t)\n",
        reason="it prefetches weights while it computes; the others rely on the hardware",
        versions=versions,
    )


def _list_panel_convolutions(name: str, types: str, versions: str) -> Edit:
    """List our convolutions for `types` right after ZenDNN's depthwise one."""
    return Edit(
        name=f"list-panel-convolutions-{name}",
        file=_CONVOLUTIONS,
        anchor=f"        {{{{forward, {types}}}, {{\n"
        "            CPU_INSTANCE_AVX512(brdgmm_dw_convolution_fwd_t)\n",
        action=Action.AFTER,
        text="            CPU_INSTANCE_AVX512(panel_convolution_t)\n"
        "            CPU_INSTANCE_AVX512(panel_plain_convolution_t)\n",
        reason="as for matmul: channels-last and plain convolutions are matrix products",
        versions=versions,
    )


EDITS: tuple[Edit, ...] = (
    _declare("emulation", _ISA, after="cpu/x64/cpu_isa_traits.hpp", name="emulated-isa"),
    Edit(
        name="limit-emulated-isa",
        file=_ISA,
        anchor="    return max_cpu_isa_val;\n",
        action=Action.REPLACE,
        text="    const unsigned emulated = zendnn_emulated()->isa_bits;\n"
        "    return emulated == 0 ? max_cpu_isa_val\n"
        "                         : static_cast<cpu_isa_t>(max_cpu_isa_val & emulated);\n",
        reason="an emulated CPU has no wider instruction sets, whatever else limits them",
    ),
    _declare("emulation", _PLATFORM, after="cpu/platform.hpp", name="emulated-caches"),
    Edit(
        name="emulate-caches",
        file=_PLATFORM,
        anchor="unsigned get_per_core_cache_size(int level) {\n",
        action=Action.AFTER,
        text="    if (const unsigned emulated = zendnn_emulated_cache(level))\n"
        "        return emulated;\n",
        reason="blocks of products and convolutions follow the caches",
    ),
    Edit(
        name="emulate-cores",
        file=_PLATFORM,
        anchor="unsigned get_num_cores() {\n",
        action=Action.AFTER,
        text="    if (const unsigned emulated = zendnn_emulated()->cores)\n"
        "        return emulated / zendnn_emulated()->sockets;\n",
        reason="the ways to share work among threads follow the cores of a socket",
    ),
    Edit(
        name="declare-execution-counter",
        file=_EXECUTE,
        anchor='#include "stack_checker.hpp"\n',
        action=Action.AFTER,
        text='#include "third_party/zendnn/execution_counters.h"\n',
        reason="the counter below is hand-written",
    ),
    Edit(
        name="count-execution",
        file=_EXECUTE,
        anchor="    auto stream = ctx.stream();\n    status_t status = success;\n",
        action=Action.AFTER,
        text="    const bool is_printed = zendnn_count_execution(\n"
        "            static_cast<int>(primitive_iface->pd()->impl()->kind()),\n"
        "            primitive_iface->pd()->impl()->name());\n",
        reason="every execution passes here; the counters say which primitives ran",
    ),
    Edit(
        name="print-execution-once",
        file=_EXECUTE,
        anchor="    if (get_verbose(verbose_t::exec_profile,\n",
        action=Action.REPLACE,
        text="    if (!is_printed && get_verbose(verbose_t::exec_profile,\n",
        reason="a plan already prints a line for each of its steps",
    ),
    _declare("panel_matmul", _MATMULS, after="cpu/x64/matmul/jit_uni_sparse_matmul.hpp"),
    _list_panel_matmul(before="avx512_core_amx_fp16", versions="<3.12"),
    _list_panel_matmul(before="avx10_2_amx_2", versions=">=3.12"),
    _declare("panel_convolution", _CONVOLUTIONS, after="cpu/x64/jit_uni_x8s8s32x_convolution.hpp"),
    _declare(
        "panel_plain_convolution", _CONVOLUTIONS, after="cpu/x64/jit_uni_x8s8s32x_convolution.hpp"
    ),
    # Since 3.13 a key is a pattern of types, and one list serves both results of bfloat16.
    _list_panel_convolutions("f32", "f32, f32, f32", "<3.13"),
    _list_panel_convolutions("f32", '"f32:xf:*"', ">=3.13"),
    _list_panel_convolutions("bf16-f32", "bf16, bf16, f32", "<3.13"),
    _list_panel_convolutions("bf16", "bf16, bf16, bf16", "<3.13"),
    _list_panel_convolutions("bf16", '"bf16:bf16:*"', ">=3.13"),
    _declare(
        "panel_reorder", f"{_REORDERS}.hpp", after="cpu/x64/matmul/brgemm_matmul_reorders.hpp"
    ),
    Edit(
        name="list-panel-reorder-float",
        file=f"{_REORDERS}_regular_f32_f32.cpp",
        anchor="        {{f32, f32, 0}, {\n",
        action=Action.AFTER,
        text="            CPU_REORDER_INSTANCE(x64::panel_reorder_t)\n",
        reason="the generic reorder packs element by element",
    ),
    Edit(
        name="list-panel-reorder-bfloat16",
        file=f"{_REORDERS}_regular_bf16.cpp",
        anchor="        {{bf16, data_type::undef, 0}, {\n",
        action=Action.AFTER,
        text="            CPU_REORDER_INSTANCE(x64::panel_reorder_t)\n",
        reason="the generic reorder packs element by element",
    ),
)
