"""The upstream test files that run, and their tests that cannot pass on ours, with reasons."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml


@dataclass(frozen=True)
class Suite:
    """A test file of upstream, below its folder `test`.

    `shards` is the number of processes that share it. `quick` is the expression (pytest's -k) for
    CI's part, empty for none. With `operators` it runs only for OpInfos that reach a kernel of
    ours. With `compiled` it is about torch.compile and torch.export: ours runs it with our backend
    in the place of all others, stock with AOTAutograd alone or with Inductor.
    """

    file: str
    shards: int = 1
    operators: bool = False
    quick: str = ""
    compiled: bool = False


#: In test_nn.py. Convolutions have their own file, and upsampling has too many tests.
_LAYERS = (
    "(Linear or LSTM or GRU or LayerNorm or layer_norm or RMSNorm or rms_norm or gelu or silu"
    " or softmax or attention or Transformer) and not bilinear and not interpolate"
    " and not upsampl and not grid and not gumbel and not masked_softmax"
)

SUITES = (
    Suite("dynamo/test_backends.py", compiled=True),
    Suite("export/test_export.py", 2, compiled=True),
    Suite("export/test_unflatten.py", compiled=True),
    Suite("functorch/test_eager_transforms.py"),
    Suite("inductor/test_torchinductor.py", 2, compiled=True),
    Suite("inductor/test_torchinductor_dynamic_shapes.py", 2, compiled=True),
    Suite("jit/test_freezing.py", quick="Test"),
    Suite("nn/test_convolution.py", 2, quick="Test"),
    Suite("nn/test_dropout.py", quick="Test"),
    Suite("nn/test_embedding.py", quick="Test"),
    Suite("nn/test_multihead_attention.py", quick="Test"),
    Suite("nn/test_packed_sequence.py"),
    Suite("nn/test_pooling.py", quick="(MaxPool2d or max_pool2d) and not float64"),
    Suite("test_autograd.py", 2),
    Suite(
        "test_linalg.py",
        3,
        quick="(mm or matmul or einsum) and not (int or complex or tunable or large or brute)",
    ),
    Suite("test_modules.py", 4),
    Suite("test_multiprocessing.py", quick="autograd or fork"),
    Suite("test_native_mha.py", quick="Test"),
    Suite("test_nn.py", 4, quick=_LAYERS),
    Suite(
        "test_ops.py",
        6,
        operators=True,
        quick="(noncontiguous or variant_consistency or test_out) and (float32 or bfloat16)"
        " and not linalg and not cholesky and not refs",
    ),
    Suite("test_ops_fwd_gradients.py", 3, operators=True),
    Suite("test_ops_gradients.py", 6, operators=True),
    Suite("test_proxy_tensor.py", 2, operators=True),
    Suite("test_torch.py", 2),
    Suite(
        "test_transformers.py",
        4,
        quick="SDPACpuOnly and (n_head_3 and q_seq_len_514 and batch_size_2 and mask_dim_2"
        " or inf or nan or masked_out)",
    ),
)

#: Upstream files that these import.
IMPORTED = (
    "autograd/test_complex.py",
    "autograd/test_functional.py",
    "autograd/test_logging.py",
    "export/testing.py",
    "functorch/common_utils.py",
    "functorch/functorch_additional_op_db.py",
    "inductor/test_torchinductor.py",
    "test_cpp_extensions_open_device_registration.py",
)

#: Replacements for later versions of torch, by regular expressions for whole lines and parts. In
#: torch.testing, the class for a device inherits from the one in the file, so
#: `super(self.__class__, self)` would call itself. aten has no overloads with names of dimensions
#: any more, which one file lists.
REWORDED: Mapping[str, str] = {
    r"super\(self\.__class__, self\)": "super()",
    r"^ *aten\.\w+\.\w*(?:names|imname)\w*,\n": "",
}

#: Tests that pass on stock torch but cannot pass on ours, with reasons.
LEFT_OUT: Mapping[str, str] = {
    "export/test_export.py::TestExport::test_export_with_fake_tensor_inputs": "its weights are "
    "fake tensors, which have no numbers to pack",
    "export/test_export.py::TestExport::test_export_with_fake_tensor_inputs_on_cuda_devices": "its "
    "weights are fake tensors, which have no numbers to pack",
    "export/test_export.py::TestExport::test_tolist": "it calls a program with another dtype than "
    "it was exported for, which ours refuses",
    "export/test_unflatten.py::TestUnflatten::test_unflatten_preserve_with_unused_input": "it "
    "edits the graph of a program, which torch itself then refuses to decompose",
    "jit/test_freezing.py::TestFrozenOptimizations::test_scalar_mul": "it looks for nodes of "
    "upstream's own pass; here they are steps of a plan "
    "(test_one_value_times_several_numbers compares that module's results)",
}


#: A file that repeats the tests of another one for dynamic sizes, under names made of theirs.
_DYNAMIC = ("inductor/test_torchinductor.py", "inductor/test_torchinductor_dynamic_shapes.py")
_DYNAMIC_NAME = (r"CpuTests::(\w+)_cpu", r"DynamicShapesCpuTests::\1_dynamic_shapes_cpu")


def _inductors(file: Path) -> Mapping[str, str]:
    tests = yaml.safe_load(file.read_text(encoding="utf-8"))
    named = {
        f"{suite}::{test}": reason
        for suite, reasons in tests.items()
        for reason, those in reasons.items()
        for test in those
    }
    repeated = {
        re.sub(*_DYNAMIC_NAME, test.replace(*_DYNAMIC)): reason
        for test, reason in named.items()
        if test.startswith(_DYNAMIC[0])
    }
    return named | repeated


#: Tests that pass with Inductor but cannot pass with another backend, with reasons.
INDUCTORS = _inductors(Path(__file__).with_name("inductor.yaml"))
