"""Kernels on older instruction sets than this CPU's, down to AVX2."""

from __future__ import annotations

import json

import pytest

from .common import HAS_BFLOAT16, HAS_TILES, run_python
from .support.subprocesses import TESTS, passes

#: Tests of operators on our kernels, in float32 and bfloat16, by file.
OF_OURS = {
    "attention": ("attention", "masks_of_every_shape", "queries_that_see_no_key_give_zero"),
    "normalization": ("group_norm", "group_norm_of_equal_numbers_is_zero"),
    "concatenation": ("concatenations_and_stacks",),
    "embedding": (
        *("embeddings", "embedding_bags", "many_embedding_bags_at_once"),
        "weights_of_bags_in_any_layout",
    ),
    "indexing": (
        *("elements_that_indices_choose", "elements_along_a_dimension"),
        *("logarithms_of_sums_of_powers", "logarithms_of_sums_of_infinite_powers_are_torchs"),
    ),
    "padding": ("padding",),
    "pairs": ("gathered_pairs",),
    "pointwise": (
        *("functions", "functions_of_infinity_and_nan_are_torchs", "binary_operators"),
        *("nan_is_the_larger_and_the_smaller_number", "conversions", "all_numbers_of_float16"),
    ),
    "reduction": (
        *("softmax", "layer_norm", "layer_norm_of_the_sum_of_two_views", "argmax", "triangles"),
        *("sums_and_means_over_any_dimensions", "the_largest_and_the_smallest_elements"),
    ),
    "resampling": (
        *("resampling", "signals_are_resampled"),
        "bilinear_resampling_blends_infinities_as_torch_does",
    ),
    "views": ("views_of_views", "split"),
}
#: Tests of operators on primitives, in float32: AVX2 has no bfloat16.
OF_ZENDNN = {
    "normalization": ("batch_norm",),
    "matmul": ("linear_layers_of_rows_that_repeat", "products_of_views"),
    "pointwise": ("functions_of_images_in_blocks", "prelu"),
    "post_ops": ("functions_as_post_ops", "operands_of_post_ops"),
    "reduction": ("adaptive_pooling", "pooling_between_convolutions"),
}
#: Tests of the kernels and primitives that bfloat16's instructions are for, or AVX-512's.
AS_ON_ZEN4 = (
    *(("attention", name) for name in OF_OURS["attention"]),
    *(("pointwise", name) for name in ("functions", "conversions")),
    *(("reduction", name) for name in ("softmax", "layer_norm")),
    *(("embedding", "embedding_bags"), ("dot", "layers_of_few_outputs")),
    ("matmul", "linear_layers_of_rows_that_repeat"),
    ("post_ops", "functions_as_post_ops"),
)

USED = """
import json, torch
from torch import nn
from torch.backends.zendnn import explain
net = nn.Sequential(nn.Conv2d(4, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 40))
net = net.eval().to(torch.float32)
module = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.script(net)))
with torch.no_grad():
    module(torch.ones(2, 4, 8, 8).to(torch.float32))
(method,) = json.loads(explain(module).json())["methods"]
steps = [step for region in method["regions"] for x in region["built"] for step in x["steps"]]
print(json.dumps([step["implementation"] for step in steps]))
"""


def test_kernels_and_primitives_respect_the_limit() -> None:
    steps = json.loads(run_python(USED, ZENDNN_MAX_CPU_ISA="AVX2"))
    assert any("avx2" in step for step in steps), steps
    assert not any("avx512" in step for step in steps), steps


def test_images_are_in_blocks_of_as_many_channels_as_a_vector_has() -> None:
    two = "nn.Conv2d(8, 24, 3, padding=1), nn.Conv2d(24, 16, 3)"
    code = USED.replace("nn.Conv2d(4, 16, 3)", two)
    steps = json.loads(
        run_python(
            code.replace("(2, 4, 8, 8)", "(2, 8, 8, 8)"),
            ZENDNN_MAX_CPU_ISA="AVX2",
            ZENDNN_PLAN_LAYOUT="blocked",
        )
    )
    convolutions = [step for step in steps if "conv" in step or "jit:" in step]
    assert len(convolutions) >= 2, steps
    assert not any("ref" in step for step in steps), steps


def test_products_are_left_to_torch_without_wide_vectors() -> None:
    lines = run_python(
        """
import torch
x, w = torch.rand(2, 64, 64), torch.rand(64, 64)
torch.mm(x[0], w), torch.bmm(x, x), torch.nn.functional.linear(x, w, w[0])
torch.nn.functional.conv2d(torch.rand(2, 8, 9, 9), torch.rand(8, 8, 3, 3))
print(sorted(kind for kind, calls in torch.backends.zendnn.counters().items() if calls))
""",
        ZENDNN_MAX_CPU_ISA="AVX2",
    )
    assert "convolution" in lines
    assert "matmul" not in lines


@pytest.mark.skipif(not HAS_TILES, reason="this CPU has no AMX tiles, or may not use them")
def test_layers_of_bfloat16_use_tiles() -> None:
    code = USED.replace("float32", "bfloat16").replace("Conv2d(4,", "Conv2d(32,")
    code = code.replace("(2, 4, 8, 8)", "(2, 32, 8, 8)")
    steps = json.loads(run_python(code, ZENDNN_TUNING_BUDGET="0"))
    layers = [step for step in steps if ":avx" in step]
    assert len(layers) == 2, steps
    assert all("amx" in step for step in layers), steps


@pytest.mark.parametrize(
    ("names", "which"), [(OF_OURS, ""), (OF_ZENDNN, "not dtype1")], ids=["ours", "zendnn"]
)
def test_operators_are_right_as_on_zen2(names: dict[str, tuple[str, ...]], which: str) -> None:
    tests = [f"{TESTS}/plan/test_{file}.py::test_{name}" for file in names for name in names[file]]
    passes("-k", which, *tests, ZENDNN_EMULATE="zen2")


@pytest.mark.skipif(not HAS_BFLOAT16, reason="this CPU has no instructions for bfloat16 products")
def test_operators_are_right_as_on_zen4() -> None:
    tests = [f"{TESTS}/plan/test_{file}.py::test_{name}" for file, name in AS_ON_ZEN4]
    passes(*tests, ZENDNN_EMULATE="zen4")


@pytest.mark.parametrize("isa", ["AVX512_CORE", "AVX512_CORE_BF16"])
def test_kernels_of_bfloat16_are_right_with_and_without_products_of_it(isa: str) -> None:
    passes(
        "-k",
        "dtype1 and (attention_is_right or layers_of_few_outputs)",
        str(TESTS / "cpu" / "test_attention.py"),
        str(TESTS / "plan" / "test_dot.py"),
        ZENDNN_MAX_CPU_ISA=isa,
    )


@pytest.mark.skipif(not HAS_TILES, reason="without AMX, test_panels.py itself tests bfloat16")
def test_panels_of_bfloat16_are_right_where_amx_is_not_allowed() -> None:
    passes(
        "-k",
        "dtype1 or plain",
        str(TESTS / "test_panels.py"),
        ZENDNN_MAX_CPU_ISA="AVX512_CORE_BF16",
    )


@pytest.mark.parametrize("isa", ["AVX2", "SSE41"])
def test_kernels_on_planes_are_right_on_fewer_instructions(isa: str) -> None:
    names = "" if isa == "AVX2" else "not our_kernel and not any_windows and not infinite_weights"
    files = (str(TESTS / "cpu" / f"test_{name}.py") for name in ("depthwise", "pooling"))
    passes("-k", names, *files, ZENDNN_MAX_CPU_ISA=isa)


LAYERS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = [(i, o) for i in (1024, 1025, 1032, 3000) for o in (1, 8, 9, 16, 17, 24, 25, 40)]
        self.layers = nn.ModuleList(nn.Linear(*size) for size in sizes)

    def forward(self, x):
        return [layer(x[:, : layer.in_features]) for layer in self.layers]

torch.manual_seed(7)
x = torch.randn(3, 3000)
with torch.no_grad():
    net = torch.jit.trace(Net().eval(), x)
    module = torch.jit.optimize_for_inference(torch.jit.freeze(net))
    module(x)
(region,) = torch.backends.zendnn.explain(module).methods[0].regions
print([built.wrong for built in region.built])
"""


@pytest.mark.parametrize("isa", ["AVX2", "AVX512_CORE"])
def test_layers_of_many_inputs_have_no_wrong_candidate(isa: str) -> None:
    settings = {"ZENDNN_MAX_CPU_ISA": isa, "ZENDNN_TUNING_BUDGET": "60"}
    assert run_python(LAYERS, **settings).strip() == "[()]"
