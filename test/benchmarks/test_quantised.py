"""benchmarks/quantised.py: torchao's two ways, near the float model and in integers."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from benchmarks import models  # noqa: E402 (torch may be missing)
from benchmarks.quantised import Calibration, dynamic, static  # noqa: E402
from benchmarks.worker import difference  # noqa: E402


def targets(module: Any, inputs: tuple[Any, ...]) -> set[str]:
    """The operators of the exported module, with what its subclasses of tensors consist of."""
    program = torch.export.export(module, inputs).run_decompositions({})
    return {str(node.target) for node in program.graph.nodes if node.op == "call_function"}


def test_a_static_model_is_near_the_float_one_and_quantises_between_layers() -> None:
    module, inputs = models.build("mlp@8")
    with torch.no_grad():
        want = module(*inputs)
        quantised = static(module, inputs, Calibration(models.calibration("mlp@8", module), False))
        got = quantised(*inputs)
    assert 0 < difference(got, want) < 0.05
    found = {str(node.target) for node in quantised.graph.nodes}
    assert {
        "quantized_decomposed.quantize_per_tensor.default",
        "quantized_decomposed.dequantize_per_channel.default",
    } <= found


def test_a_dynamic_model_is_near_the_float_one_and_multiplies_integers() -> None:
    module, inputs = models.build("mlp@8")
    with torch.no_grad():
        want = module(*inputs)
        quantised = dynamic(copy.deepcopy(module))
        got = quantised(*inputs)
        assert "aten._int_mm.default" in targets(quantised, inputs)
    assert 0 < difference(got, want) < 0.05
