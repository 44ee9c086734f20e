"""The one table of instruction sets, from the narrowest to the widest. It imports no torch.

From it the build generates C++'s ``Isa``, the sets that can be emulated, and what kernels are
compiled with.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class InstructionSet:
    """A row of the table.

    Attributes:
        name: C++'s enumerator of ``Isa``, and the namespace of the kernels compiled for it.
        primitive: the end of libzendnn's enumerator.
        title: what people read, also in files of tuning choices.
        flag: what Linux shows for the last part of it; empty where it shows nothing.
        options: the compiler's, for kernels; empty where there are none.
    """

    name: str
    primitive: str
    title: str
    flag: str
    options: tuple[str, ...] = ()


_AVX2 = ("-mavx2", "-mfma", "-mf16c")  # each CPU with the first has all
_AVX512 = (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl")
_WIDE = (*_AVX512, "-mprefer-vector-width=512")
_BF16 = (*_WIDE, "-mavx512bf16")

INSTRUCTION_SETS = {
    row.name: row
    for row in (
        InstructionSet("sse41", "sse41", "SSE4.1", "sse4_1"),
        InstructionSet("avx", "avx", "AVX", "avx"),
        InstructionSet("avx2", "avx2", "AVX2", "avx2", _AVX2),
        InstructionSet("avx2_vnni", "avx2_vnni", "AVX2 with VNNI", "avx_vnni"),
        InstructionSet("avx2_bf16", "avx2_vnni_2", "AVX2 with VNNI and bfloat16", ""),
        InstructionSet("avx512", "avx512_core", "AVX-512", "avx512bw", _WIDE),
        InstructionSet("avx512_vnni", "avx512_core_vnni", "AVX-512 with VNNI", "avx512_vnni"),
        InstructionSet(
            "avx512_bf16",
            "avx512_core_bf16",
            "AVX-512 with VNNI and bfloat16",
            "avx512_bf16",
            _BF16,
        ),
        InstructionSet(
            "avx512_fp16", "avx512_core_fp16", "AVX-512 with VNNI, bfloat16 and more", "avx512_fp16"
        ),
        # Which no AMD CPU has.
        InstructionSet(
            "amx",
            "avx512_core_amx",
            "AVX-512 and AMX",
            "amx_bf16",
            (*_BF16, "-mamx-tile", "-mamx-bf16"),
        ),
    )
}
