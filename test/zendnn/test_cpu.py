"""What the engine knows of the CPU and of dtypes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.backends.zendnn import _C
from torch.backends.zendnn.table.dtypes import COMPUTED, DTYPES

from .common import CPU, run_python

#: Caps of the ISA, from the narrowest on: what primitives and kernels of ours then use.
CAPS = {
    "SSE41": ("SSE4.1", "none"),
    "AVX2": ("AVX2", "avx2"),
    "AVX512_CORE": ("AVX-512", "avx512"),
    "AVX512_CORE_VNNI": ("AVX-512 with VNNI", "avx512"),
    "AVX512_CORE_BF16": ("AVX-512 with VNNI and bfloat16", "avx512"),
}


def read_cpu(cap: str) -> Any:
    code = "import json, torch; print(json.dumps(torch.backends.zendnn._C._cpu()))"
    return json.loads(run_python(code, ZENDNN_MAX_CPU_ISA=cap))


@pytest.mark.parametrize("cap", CAPS)
def test_a_cap_lowers_the_isa_and_nothing_else(cap: str) -> None:
    whole = read_cpu("ALL")
    isas = [isa for isa, _ in CAPS.values()]
    if whole["isa"] in isas[: isas.index(CAPS[cap][0])]:
        pytest.skip("this CPU has less")
    assert read_cpu(cap) == whole | dict(zip(("isa", "kernels"), CAPS[cap], strict=True))


def test_the_cpu_is_the_one_that_linux_sees() -> None:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    seen = {name.strip(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
    assert CPU["vendor"] == seen["vendor_id"]
    assert CPU["name"].strip() == seen["model name"]
    assert (CPU["family"], CPU["model"]) == (int(seen["cpu family"]), int(seen["model"]))


def test_caches_are_those_that_linux_sees() -> None:
    seen = {}
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        level, kind, size = ((index / x).read_text().strip() for x in ("level", "type", "size"))
        if kind != "Instruction":
            seen[int(level)] = int(size.removesuffix("K")) << 10
    assert {level: size for level, size in enumerate(CPU["caches"], 1) if size} == seen


def test_dtypes_have_torchs_names_and_sizes() -> None:
    assert tuple(_C._dtypes()) == tuple(sorted(COMPUTED))
    for name, size in _C._dtypes().items():
        assert getattr(torch, name).itemsize == size


@torch.jit.script
def number_of(x: torch.Tensor) -> int:
    return x.dtype


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_have_torchs_numbers_and_kinds(name: str) -> None:
    dtype, row = getattr(torch, name), DTYPES[name]
    assert number_of(torch.zeros((), dtype=dtype)) == row.number
    assert dtype.is_floating_point == (row.kind == "float")
    assert dtype.is_complex == (row.kind == "complex")
