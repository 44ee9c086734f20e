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

if TYPE_CHECKING:
    from torch import Tensor, nn

    Call = Callable[..., Tensor]

PRECISIONS = ("fp32", "bf16")

#: torch does not load backends from other packages, so the model runs on stock torch.
STOCK = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
OURS = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}


@dataclass(frozen=True)
class Setting:
    """The options that are passed to every backend."""

    precision: str
    threads: int


@dataclass(frozen=True)
class Backend:
    """A way to run a model.

    ``packages`` are the distributions that must be installed besides torch. ``modules`` are
    imported before the time of the preparation is measured. If ``autocast`` is set, bf16 runs the
    preparation and the calls under torch.autocast; otherwise ``prepare`` has to handle bf16 itself.
    """

    prepare: Callable[[nn.Module, tuple[Tensor, ...], Setting], Call]
    what: str
    packages: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    precisions: tuple[str, ...] = PRECISIONS
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
    backend: str, freezing: bool = True
) -> Callable[[nn.Module, tuple[Tensor, ...], Setting], Call]:
    def prepare(module: nn.Module, inputs: tuple[Tensor, ...], setting: Setting) -> Call:
        import torch

        # Without freezing, weights are inputs of the compiled code and are repacked at each call.
        config: Any = importlib.import_module("torch._inductor.config")
        config.freezing = freezing
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
    properties = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": setting.threads,
        # By default OpenVINO uses bf16 wherever the CPU supports it.
        "INFERENCE_PRECISION_HINT": {"fp32": "f32", "bf16": "bf16"}[setting.precision],
    }
    request = openvino.compile_model(model, "CPU", properties).create_infer_request()

    def call(*tensors: Tensor) -> Tensor:
        arrays = [tensor.numpy() for tensor in tensors]
        return torch.from_numpy(request.infer(arrays, share_inputs=True, share_outputs=True)[0])

    return call


def _onnxruntime(module: nn.Module, inputs: tuple[Tensor, ...], setting: Setting) -> Call:
    import torch

    onnx: Any = torch.onnx
    onnxruntime: Any = importlib.import_module("onnxruntime")
    names = [f"input{number}" for number in range(len(inputs))]
    exported = io.BytesIO()
    onnx.export(module, inputs, exported, input_names=names, opset_version=17, dynamo=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = setting.threads
    session = onnxruntime.InferenceSession(
        exported.getvalue(), options, providers=["CPUExecutionProvider"]
    )

    def call(*tensors: Tensor) -> Tensor:
        arrays = {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}
        return torch.from_numpy(session.run(None, arrays)[0])

    return call


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
    "inductor": Backend(_compiled("inductor"), "torch.compile, frozen", modules=_DYNAMO),
    "inductor_unfrozen": Backend(
        _compiled("inductor", freezing=False), "torch.compile, not frozen", modules=_DYNAMO
    ),
    "openvino": Backend(
        _openvino,
        "the module converted to OpenVINO",
        packages=("openvino",),
        modules=("openvino",),
        autocast=False,
    ),
    "onnxruntime": Backend(
        _onnxruntime,
        "the module exported to ONNX, fp32 only",
        packages=("onnxruntime", "onnx"),
        modules=("onnx", "onnxruntime", "torch.onnx"),
        precisions=("fp32",),  # its CPU provider has almost no bf16 kernels
    ),
    "zentorch": Backend(
        _compiled("zentorch"),
        "torch.compile on AMD's own library, frozen",
        packages=("zentorch",),
        modules=(*_DYNAMO, "zentorch"),
    ),
}
