"""``torch.backends.zendnn.prepack``: modules for inference whose weights are packed once.

A packed layer keeps its class's parameters, so that its ``state_dict`` is what it was, and a number
by which the library knows its pack. The operator ``zendnn::prepacked`` gets both. It packs when it
first sees the weights and again when they have changed.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.backends.zendnn import _C
from torch.backends.zendnn.table.dtypes import COMPUTED
from torch.overrides import has_torch_function_unary

Module = TypeVar("Module", bound=nn.Module)

_prepacked = torch.ops.zendnn.prepacked.default


def prepack(module: Module) -> Module:
    """Return a copy of a module for inference, with packed weights; the module itself stays.

    Layers that are exactly ``nn.Linear``, ``nn.Conv1d``, ``nn.Conv2d`` or ``nn.Conv3d``, of float32
    or bfloat16 and of some size, run on weights in ZenDNN's blocked layout; convolutions whose
    padding is a word and all other layers are as they were. For each layer and each size of its
    input, packed weights are timed once against plain ones, and the faster serve. The copy

    - has the same ``state_dict``: plain weights stay, and packed ones take as much memory again.
      What ``load_state_dict`` and other in-place changes write is packed at the next call; changes
      through ``.data`` or NumPy must be followed by ``load_state_dict`` or a new ``prepack``.
    - is not for training: its parameters need no gradients, ``train()`` is an error, and so is a
      call that autograd records, because the input needs a gradient.
    - can be copied, pickled, traced (on plain weights), compiled, autocast and called by threads.

    Args:
        module: any module; it is copied as ``copy.deepcopy`` does and put into ``eval()``.

    Raises:
        TypeError: it is no module.
        RuntimeError: later, from ``train()`` of the copy, or from a call that autograd records.
    """
    if not isinstance(module, nn.Module):
        name = type(module).__name__
        raise TypeError(f"prepack takes a torch.nn.Module, not an object of type {name}")
    with torch.inference_mode(False), torch.no_grad():
        packed = copy.deepcopy(module).eval().requires_grad_(False)
        for layer in packed.modules():
            kind = _KINDS.get(type(layer))
            if kind is not None and _is_worth_it(layer):
                layer.__class__ = kind
                layer.__setstate__(layer.__dict__)
    return packed


_DTYPES = tuple(getattr(torch, name) for name in COMPUTED)
#: Below this many weights a call of the operator costs more than packed weights save.
_SMALLEST = 1 << 15


def _is_worth_it(layer: Any) -> bool:
    weight = layer.weight
    return (
        type(weight) is nn.Parameter
        and weight.dtype in _DTYPES
        and weight.device.type == "cpu"
        and weight.numel() >= _SMALLEST
        and not isinstance(getattr(layer, "padding", ()), str)
    )


class _Prepacked(nn.Module):
    """What packed layers share; comes before the layer's own class."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._layer = torch.ops.zendnn.prepacked_layer()
        forget = torch.ops.zendnn.forget_prepacked_layer
        weakref.finalize(self, forget, self._layer).atexit = False

    def train(self, mode: bool = True) -> Any:
        """Stay in evaluation mode; another is an error."""
        if mode:
            raise RuntimeError(
                "a prepacked layer is for inference: train the module that it was made from"
            )
        return super().train(mode)

    def extra_repr(self) -> str:
        """Say what the layer is, and that it is for inference."""
        return f"{super().extra_repr()}, packed for inference"


def _seen_by_dynamo(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let ``torch.compile`` trace a function; it skips those whose file is in this folder."""
    code: Any = function.__code__
    function.__code__ = code.replace(co_filename=f"<{__name__}>")
    return function


class PrepackedLinear(_Prepacked, nn.Linear):
    """A linear layer on packed weights: (..., in_features) to (..., out_features)."""

    @_seen_by_dynamo
    def forward(self, input: Tensor) -> Tensor:
        """Return ``input @ weight.T + bias``."""
        if not (torch.compiler.is_compiling() or has_torch_function_unary(input)):
            # The operator, too, but in a third of the time that torch.ops takes to get there.
            return _C._prepacked_linear(input, self.weight, self.bias, self._layer)
        if torch.compiler.is_exporting():
            return F.linear(input, self.weight, self.bias)
        return _prepacked(input, self.weight, self.bias, (), (), (), 1, self._layer)


class _PrepackedConvolution(_Prepacked, nn.modules.conv._ConvNd):
    @_seen_by_dynamo
    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if torch.compiler.is_exporting():
            return super()._conv_forward(input, weight, bias)
        padding = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = (0,) * len(padding)
        return _prepacked(
            input, weight, bias, self.stride, padding, self.dilation, self.groups, self._layer
        )


class PrepackedConv1d(_PrepackedConvolution, nn.Conv1d):
    """A convolution over one dimension on packed weights."""


class PrepackedConv2d(_PrepackedConvolution, nn.Conv2d):
    """A convolution over two dimensions on packed weights."""


class PrepackedConv3d(_PrepackedConvolution, nn.Conv3d):
    """A convolution over three dimensions on packed weights."""


_KINDS: dict[type[nn.Module], Any] = {
    nn.Linear: PrepackedLinear,
    nn.Conv1d: PrepackedConv1d,
    nn.Conv2d: PrepackedConv2d,
    nn.Conv3d: PrepackedConv3d,
}


@torch.library.register_fake("zendnn::prepacked")
def _(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    layer: int,
    dtype: torch.dtype | None = None,
) -> Tensor:
    if dtype is not None:
        x, weight = x.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    if weight.dim() == 2:
        return F.linear(x, weight, bias)
    convolve = (F.conv1d, F.conv2d, F.conv3d)[weight.dim() - 3]
    return convolve(x, weight, bias, stride, padding, dilation, groups)
