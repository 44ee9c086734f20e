"""Quantises a model to int8 the way each tool's documentation recommends.

*Static* quantisation fixes the scales of activations on calibration inputs: unsigned activations
with a scale for each tensor, signed weights with a scale for each output channel. *Dynamic*
quantisation computes the scales of activations at each call.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Calibration:
    """The inputs on which scales are chosen, and whether the model is a transformer."""

    batches: Sequence[tuple[Tensor, ...]]
    transformer: bool


def static(module: nn.Module, inputs: tuple[Tensor, ...], calibration: Calibration) -> nn.Module:
    """torchao's quantisation after export, with its quantiser for x86.

    Linear and convolution layers, and what lies between them, become integer operations between
    ``quantize`` and ``dequantize``, which a compiler has to fuse.
    """
    import torch

    pt2e: Any = importlib.import_module("torchao.quantization.pt2e.quantize_pt2e")
    x86: Any = importlib.import_module("torchao.quantization.pt2e.quantizer.x86_inductor_quantizer")
    quantiser = x86.X86InductorQuantizer()
    quantiser.set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = pt2e.prepare_pt2e(torch.export.export(module, inputs).module(), quantiser)
    for batch in calibration.batches:
        prepared(*batch)
    converted: nn.Module = pt2e.convert_pt2e(prepared)
    return converted


def dynamic(module: nn.Module) -> nn.Module:
    """torchao's ``quantize_``: linear layers get int8 weights and scales for each row at each call.

    Changes the module.
    """
    torchao: Any = importlib.import_module("torchao.quantization")
    torchao.quantize_(module, torchao.Int8DynamicActivationInt8WeightConfig())
    return module


def openvino_static(model: Any, calibration: Calibration) -> Any:
    """NNCF's quantisation of an OpenVINO model, which leaves a transformer's attention in float."""
    nncf: Any = importlib.import_module("nncf")
    batches = [tuple(tensor.numpy() for tensor in batch) for batch in calibration.batches]
    return nncf.quantize(
        model,
        nncf.Dataset(batches, lambda batch: batch if len(batch) > 1 else batch[0]),
        subset_size=len(batches),
        model_type=nncf.ModelType.TRANSFORMER if calibration.transformer else None,
    )


def onnx_static(exported: bytes, names: Sequence[str], calibration: Calibration) -> bytes:
    """ONNX Runtime's static quantisation, with ``quantize`` and ``dequantize`` nodes.

    Its default is signed activations and one scale for all of a weight, which is slower on x86 and
    less exact.
    """
    quantization: Any = importlib.import_module("onnxruntime.quantization")
    remaining = iter(
        {name: tensor.numpy() for name, tensor in zip(names, batch, strict=True)}
        for batch in calibration.batches
    )

    class Reader(quantization.CalibrationDataReader):
        def get_next(self) -> Any:
            return next(remaining, None)

    return _quantised_onnx(
        exported,
        lambda source, target: quantization.quantize_static(
            source,
            target,
            Reader(),
            quant_format=quantization.QuantFormat.QDQ,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            per_channel=True,
        ),
    )


def onnx_dynamic(exported: bytes) -> bytes:
    """ONNX Runtime's dynamic quantisation of products, a scale for each output channel."""
    quantization: Any = importlib.import_module("onnxruntime.quantization")
    return _quantised_onnx(
        exported,
        lambda source, target: quantization.quantize_dynamic(
            source, target, weight_type=quantization.QuantType.QInt8, per_channel=True
        ),
    )


def _quantised_onnx(exported: bytes, quantise: Any) -> bytes:
    """The model after ONNX Runtime's graph optimisation, then ``quantise``, which take files."""
    preparation: Any = importlib.import_module("onnxruntime.quantization.shape_inference")
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        plain, prepared, quantised = (str(Path(folder, name)) for name in ("a", "b", "c"))
        Path(plain).write_bytes(exported)
        preparation.quant_pre_process(plain, prepared)
        quantise(prepared, quantised)
        return Path(quantised).read_bytes()
