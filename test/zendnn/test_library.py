"""libzendnn: limits of the instruction set, and BLIS behind its GEMM fallback."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.backends.zendnn import _C

from .common import HAS_WIDE_VECTORS, run_python

PRODUCT = """
import torch
torch.manual_seed(0)
a, b = torch.randn(96, 200), torch.randn(200, 130)
error = (torch.mm(a, b) - (a.double() @ b.double()).float()).abs().max().item()
assert error < 1e-4, error
"""
CONVOLUTION = """
import torch, torch.nn.functional as F
torch.manual_seed(0)
x, w = torch.randn(2, 16, 20, 20), torch.randn(32, 16, 3, 3)
error = (F.conv2d(x, w) - F.conv2d(x.double(), w.double()).float()).abs().max().item()
assert error < 1e-4, error
"""
INNER_PRODUCT = """
import torch, torch.nn.functional as F
torch.manual_seed(0)
x, w, b = torch.randn(70, 200), torch.randn(130, 200), torch.randn(130)
got = F.linear(x.to_zendnn(), w.to_zendnn(), b.to_zendnn()).to_dense()
error = (got - F.linear(x.double(), w.double(), b.double()).float()).abs().max().item()
assert error < 1e-4, error
"""


@pytest.mark.parametrize(
    ("code", "isa"),
    [
        pytest.param(PRODUCT, "AVX512_CORE", id="matmul-AVX512_CORE"),  # torch's own on AVX2
        pytest.param(INNER_PRODUCT, "AVX2", id="inner_product-AVX2"),
        pytest.param(INNER_PRODUCT, "AVX512_CORE", id="inner_product-AVX512_CORE"),
        pytest.param(CONVOLUTION, "AVX2", id="convolution-AVX2"),
        pytest.param(CONVOLUTION, "AVX512_CORE", id="convolution-AVX512_CORE"),
    ],
)
def test_an_older_instruction_set_gives_right_results(code: str, isa: str) -> None:
    if code == PRODUCT and not HAS_WIDE_VECTORS:
        pytest.skip("without AVX-512, products are left to torch")
    lines = run_python(code, ZENDNN_VERBOSE="1", ZENDNN_MAX_CPU_ISA=isa)
    executed = [
        line for line in lines.splitlines() if line.startswith("zendnn_verbose,v1,primitive,exec")
    ]
    assert executed
    assert not [line for line in executed if isa == "AVX2" and "avx512" in line]


def test_the_gemm_fallback_is_blis() -> None:
    lines = run_python(INNER_PRODUCT, ZENDNN_VERBOSE="1", ZENDNN_MAX_CPU_ISA="SSE41")
    assert ",inner_product,x64:gemm:blas," in lines


def test_blis_uses_kernels_for_this_kind_of_cpu() -> None:
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    if {"avx512f", "avx512dq", "avx512bw", "avx512vl"} <= set(flags):
        assert _C._blas_kernels() == "skx"
    else:
        assert _C._blas_kernels() != "generic"


def test_the_library_exports_no_symbol_of_zendnn_or_blis() -> None:
    library = Path(torch.__file__).parent / "lib" / "libtorch_zendnn.so"
    names = run_python(
        f"""
import ctypes
library = ctypes.CDLL({str(library)!r})
print([n for n in ("zendnn_engine_create", "zendnn_sgemm", "bli_init") if hasattr(library, n)])
"""
    )
    assert names.strip().splitlines()[-1] == "[]"
