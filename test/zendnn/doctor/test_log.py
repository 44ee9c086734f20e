"""The doctor's reading of verbose logs, of ZenDNN and of several versions of oneDNN."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.backends.zendnn.doctor import log
from torch.backends.zendnn.doctor.findings import Finding, examine

from test.drawing import examples
from test.mutations import changed

from ..common import run_python
from .clean import LOG

#: Of oneDNN 2.6, with a time, and 3.7; a graph, whose primitives follow; other output.
ONEDNN = """
dnnl_verbose,info,oneDNN v2.6.3 (commit 0)
dnnl_verbose,info,cpu,runtime:OpenMP,nthr:1
loading the model
dnnl_verbose,exec,cpu,convolution,ref:any,forward,src_f32::blocked:abcd:f0,,alg:direct,mb1_ic3,6
dnnl_verbose,exec,cpu,reorder,jit:uni,undef,src_f32::blocked:abcd:f0,,,1x3x32x32,2
onednn_verbose,1709.34,primitive,exec,cpu,matmul,gemm:jit:f32,undef,src:f32::blocked:ab,,,1x3:3x4,1
onednn_verbose,v1,graph,exec,cpu,100002,matmul_post_ops,a;b,,in0_f32:0,fpm:strict,kernel,dnnl,0.9
onednn_verbose,v1,primitive,create:cache_miss,cpu,matmul,brg:avx2,undef,src:f32,,,1x3:3x4,0.5
onednn_verbose,v1,primitive,exec,cpu,matmul,brg:avx2,undef,src:f32::blocked:ab,,,1x3:3x4,1
onednn_verbose,v1,primitive,exec,cpu,matmul,brg:avx2,undef,src:f32::blo
"""

ZENDNN = """
zendnn_verbose,v1,info,cpu,runtime:OpenMP,nthr:2
zendnn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src:f32 dst:f32,,,8x3x3x3,5
zendnn_verbose,v1,primitive,exec,cpu,matmul,brg_matmul:avx512_core,undef,src:f32,,,1x72:72x16,7
zendnn_verbose,tune,matmul packed brg_matmul:avx512_core,0.08,linear layer threads 2
zendnn_verbose,torch,a dtype that ZenDNN does not support here,aten::mm,Double 16:1x72:72x16,4
zendnn_verbose,v1,primitive,exec,cpu,matmul,zen:panel:avx512_core,undef,src:f32,,,1x72:72x16,2
zendnn_verbose,plan,0,matmul packed zen:panel:avx512_core,aten::linear,3
zendnn_verbose,eager,eltwise kernel:avx512,aten::sigmoid,Float 64x256,1
"""


def found(text: str) -> dict[str, Finding]:
    """Findings by the names of their checks."""
    read = log.read(text.splitlines())
    return {finding.check: finding for finding in examine(log.CHECKS, read)}


def test_nothing_is_found_in_a_clean_log() -> None:
    assert examine(log.CHECKS, LOG) == ()


def test_reference_kernels_are_found_with_their_part_of_the_time() -> None:
    finding = found(ONEDNN)["reference"]
    assert finding.problem == "convolution ran once on reference kernels"
    assert finding.evidence == "ref:any, mb1_ic3"
    assert finding.cost == 60.0


@pytest.mark.parametrize("name", ["ref_int8:any", "gemm:ref", "simple_ref:any", "ref"])
def test_names_of_reference_kernels_are_known(name: str) -> None:
    assert "reference" in found(f"dnnl_verbose,exec,cpu,matmul,{name},undef,,,,2x2:2x2,1")


def test_reorders_and_threads_are_found() -> None:
    problems = found(ONEDNN)
    assert problems["reorders"].cost == 20.0
    assert problems["one_thread"].evidence == "nthr:1"


def test_a_log_of_several_versions_is_read_once_each() -> None:
    read = log.read(ONEDNN.splitlines())
    assert [(x.kind, x.ms, x.sizes) for x in read.executions] == [
        ("convolution", 6, "mb1_ic3"),
        ("reorder", 2, "1x3x32x32"),
        ("matmul", 1, "1x3:3x4"),
        ("matmul", 1, "1x3:3x4"),
    ]
    assert read.created == 0.5
    assert dict(read.facts) == {"library": "oneDNN v2.6.3", "runtime": "OpenMP", "nthr": "1"}


def test_primitives_in_steps_and_in_trials_do_not_count_twice() -> None:
    read = log.read(ZENDNN.splitlines())
    assert [(x.route, x.kind, x.ms) for x in read.executions] == [
        ("torch", "aten::mm", 4),
        ("plan", "aten::linear", 3),
        ("eager", "aten::sigmoid", 1),
    ]
    assert read.tuned == 12
    assert found(ZENDNN)["left_to_torch"].cost == 50.0
    assert found(ZENDNN)["preparation"].cost == 60.0


def test_another_text_is_refused() -> None:
    with pytest.raises(ValueError, match="has no verbose line: set ZENDNN_VERBOSE=1"):
        log.read(["hello"])


@examples(200)
@given(st.data())
def test_random_logs_are_read_or_refused(data: st.DataObject) -> None:
    text = changed(data.draw, (ONEDNN + ZENDNN).encode(), [b",", b"nan", b"-1", b"exec", b"tune"])
    if "_verbose," in text.decode(errors="replace"):
        read = log.read(text.decode(errors="replace").splitlines())
        assert read.ms >= 0
        examine(log.CHECKS, read)


def test_the_log_of_this_build_is_read() -> None:
    code = """
import torch
z = torch.backends.zendnn
net = torch.nn.Sequential(torch.nn.Linear(256, 128), torch.nn.Softmax(-1)).eval()
module = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.script(net)))
x = torch.ones(64, 256)
with torch.no_grad():
    module(x)
    with z.verbose(2):
        module(x), torch.sigmoid(x), torch.mm(x.double(), x.double().t())
"""
    read = log.read(run_python(code).splitlines())
    assert {("plan", "aten::linear"), ("eager", "aten::sigmoid"), ("torch", "aten::mm")} <= {
        (x.route, x.kind) for x in read.executions
    }
    assert not [x for x in read.executions if x.kind == "matmul"], "it is a part of a step"
