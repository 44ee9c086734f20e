"""The backends that are compared, each used the way its own documentation recommends.

To add one, write a function that takes the module, its inputs and the setting and returns a
callable that takes the inputs. Then add it to ``BACKENDS``. Do not import anything heavy at the top
of this file: the function may import it, or the entry may list it in ``modules``.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks import quantised

if TYPE_CHECKING:
    from torch import Tensor, nn

    Call = Callable[..., Tensor]

FLOATS = ("fp32", "bf16")
PRECISIONS = (*FLOATS, "int8")

#: torch does not load backends from other packages, so the model runs on stock torch.
STOCK = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
OURS = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}


@dataclass(frozen=True)
class Setting:
    """The options that are passed to every backend. Only int8 has a calibration."""

    precision: str
    threads: int
    calibration: quantised.Calibration | None = None


@dataclass(frozen=True)
class Backend:
    """A way to run a model.

    ``packages`` are the distributions that must be installed besides torch, and ``quantiser`` is
    the one that int8 needs. ``modules`` are imported before the time of the preparation is
    measured. If ``autocast`` is set, bf16 runs the preparation and the calls under torch.autocast;
    otherwise ``prepare`` has to handle bf16 itself.
    """

    prepare: Callable[[nn.Module, tuple[Tensor, ...], Setting], Call]
    what: str
    packages: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    quantiser: str = ""
    precisions: tuple[str, ...] = FLOATS
    autocast: bool = True
    ours: bool = False
    environment: Mapping[str, str] = field(default_factory=lambda: STOCK)


def _as_it_is(module: nn.Module, inputs: tuple[Tensor, ...], setting: Setting) -> Call:
    call: Call = module
    return call


def _frozen(module: nn.Module, inputs: tuple[Tensor, ...], setting: Setting) -> Call:
    import torch

    jit: Any = torch.jit
    traced = jit.trace(module, inputs, check_trace=False)
    optimised: Call = jit.optimize_for_inference(jit.freeze(traced))
    return optimised


def _compiled(
    backend: str, freezing: bool = True, dynamic: bool = False
) -> Callable[[nn.Module, tuple[Tensor, ...], Setting], Call]:
    """torch.compile; in int8 ``dynamic`` decides when the scales of activations are computed."""

    def prepare(module: nn.Module, inputs: tuple[Tensor, ...], setting: Setting) -> Call:
        import torch

        # Without freezing, weights are inputs of the compiled code and are repacked at each call.
        config: Any = importlib.import_module("torch._inductor.config")
        config.freezing = freezing
        if setting.calibration is not None:
            module = (
                quantised.dynamic(module)
                if dynamic
                else quantised.static(module, inputs, setting.calibration)
            )
        compiled: Call = torch.compile(module, backend=backend, dynamic=False)
        return compiled

    return prepare


def _openvino(module: nn.Module, inputs: tuple[Tensor, ...], setting: Setting) -> Call:
    import torch

    openvino: Any = importlib.import_module("openvino")
    model = openvino.convert_model(
        module,
        input=[tuple(tensor.shape) for tensor in inputs],
        example_input=inputs[0] if len(inputs) == 1 else inputs,
    )
    if setting.calibration is not None:
        model = quantised.openvino_static(model, setting.calibration)
    properties = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": setting.threads,
        # By default OpenVINO uses bf16 wherever the CPU supports it. In int8, that is what the
        # operations compute in that are not quantised.
        "INFERENCE_PRECISION_HINT": "f32" if setting.precision == "fp32" else "bf16",
    }
    request = openvino.compile_model(model, "CPU", properties).create_infer_request()

    def call(*tensors: Tensor) -> Tensor:
        arrays = [tensor.numpy() for tensor in tensors]
        return torch.from_numpy(request.infer(arrays, share_inputs=True, share_outputs=True)[0])

    return call


def _onnxruntime(
    dynamic: bool = False,
) -> Callable[[nn.Module, tuple[Tensor, ...], Setting], Call]:
    def prepare(module: nn.Module, inputs: tuple[Tensor, ...], setting: Setting) -> Call:
        import torch

        onnx: Any = torch.onnx
        onnxruntime: Any = importlib.import_module("onnxruntime")
        names = [f"input{number}" for number in range(len(inputs))]
        file = io.BytesIO()
        onnx.export(module, inputs, file, input_names=names, opset_version=17, dynamo=False)
        exported = file.getvalue()
        if setting.calibration is not None:
            exported = (
                quantised.onnx_dynamic(exported)
                if dynamic
                else quantised.onnx_static(exported, names, setting.calibration)
            )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = setting.threads
        session = onnxruntime.InferenceSession(
            exported, options, providers=["CPUExecutionProvider"]
        )

        def call(*tensors: Tensor) -> Tensor:
            arrays = {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}
            return torch.from_numpy(session.run(None, arrays)[0])

        return call

    return prepare


_DYNAMO = ("torch._dynamo", "torch._inductor")

BACKENDS = {
    "zendnn": Backend(
        _frozen,
        "torch.jit.optimize_for_inference on ZenDNN",
        packages=("torch-zendnn",),
        ours=True,
        environment=OURS,
    ),
    "zendnn_eager": Backend(
        _as_it_is,
        "the module as it is, on ZenDNN",
        packages=("torch-zendnn",),
        ours=True,
        environment=OURS,
    ),
    "zendnn_compiled": Backend(
        _compiled("zendnn", freezing=False),
        'torch.compile(backend="zendnn")',
        packages=("torch-zendnn",),
        modules=_DYNAMO,
        quantiser="torchao",
        precisions=PRECISIONS,
        ours=True,
        environment=OURS,
    ),
    "zendnn_dynamic": Backend(
        _compiled("zendnn", freezing=False, dynamic=True),
        'torch.compile(backend="zendnn"), quantised at each call',
        packages=("torch-zendnn",),
        modules=_DYNAMO,
        quantiser="torchao",
        precisions=("int8",),
        ours=True,
        environment=OURS,
    ),
    "zendnn_inductor": Backend(
        _compiled("inductor", freezing=False),
        "torch.compile on ZenDNN, not frozen",
        packages=("torch-zendnn",),
        modules=_DYNAMO,
        ours=True,
        environment=OURS,
    ),
    "eager": Backend(_as_it_is, "the module as it is"),
    "jit": Backend(_frozen, "torch.jit.optimize_for_inference"),
    "inductor": Backend(
        _compiled("inductor"),
        "torch.compile, frozen",
        modules=_DYNAMO,
        quantiser="torchao",
        precisions=PRECISIONS,
    ),
    "inductor_dynamic": Backend(
        _compiled("inductor", dynamic=True),
        "torch.compile, frozen, quantised at each call",
        modules=_DYNAMO,
        quantiser="torchao",
        precisions=("int8",),
    ),
    "inductor_unfrozen": Backend(
        _compiled("inductor", freezing=False), "torch.compile, not frozen", modules=_DYNAMO
    ),
    "openvino": Backend(
        _openvino,
        "the module converted to OpenVINO",
        packages=("openvino",),
        modules=("openvino",),
        quantiser="nncf",
        precisions=PRECISIONS,
        autocast=False,
    ),
    "onnxruntime": Backend(
        _onnxruntime(),
        "the module exported to ONNX, not in bf16",
        packages=("onnxruntime", "onnx"),
        modules=("onnx", "onnxruntime", "torch.onnx"),
        precisions=("fp32", "int8"),  # its CPU provider has almost no bf16 kernels
    ),
    "onnxruntime_dynamic": Backend(
        _onnxruntime(dynamic=True),
        "the module exported to ONNX, quantised at each call",
        packages=("onnxruntime", "onnx"),
        modules=("onnx", "onnxruntime", "torch.onnx"),
        precisions=("int8",),
    ),
    "zentorch": Backend(
        _compiled("zentorch"),
        "torch.compile on AMD's own library, frozen",
        packages=("zentorch",),
        modules=(*_DYNAMO, "zentorch"),
        quantiser="torchao",
        precisions=PRECISIONS,
    ),
}
