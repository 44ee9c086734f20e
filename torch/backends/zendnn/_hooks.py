"""Hooks into torch's Python side: tensor methods, printing and ``optimize_for_inference``."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import Any

import torch
import torch._tensor_str as tensor_str
from torch._logging._internal import log_state, register_artifact, register_log
from torch.backends.zendnn import _C, _backend, _device, _settings
from torch.backends.zendnn._info import cpu_name
from torch.backends.zendnn.frontends import optimize_frozen
from torch.backends.zendnn.place import container
from torch.backends.zendnn.place.bind import bind_by_variables

DEVICE = "zendnn"

#: The name of the parent of our loggers.
LOGGER = "torch.backends.zendnn"
#: Python's levels, by those of ``ZENDNN_DEBUG_MODE``.
LEVELS = (logging.CRITICAL, logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)


def _to_zendnn(self: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return this dense CPU tensor as a zendnn tensor, in ZenDNN's own layout.

    Args:
        dtype: float32, bfloat16 or float16 (int8 and uint8 tensors keep theirs); None keeps it.

    Raises:
        RuntimeError: for any other dtype, and for more than five dimensions.
    """
    return torch.ops.aten.to_zendnn(self, dtype)


def _add_tensor_methods() -> None:
    torch.utils.rename_privateuse1_backend(DEVICE)
    torch._register_device_module(DEVICE, _device)
    torch.Tensor.to_zendnn = _to_zendnn
    torch.Tensor.is_zendnn = property(
        lambda self: self.device.type == DEVICE, doc="Whether this is a zendnn tensor."
    )


def _add_printing() -> None:
    """Print a zendnn tensor as its dense equivalent, with its device."""
    dense_text = tensor_str._str_intern

    @functools.wraps(dense_text)
    def text(inp: torch.Tensor, *, tensor_contents: str | None = None) -> str:
        if inp.device.type != DEVICE or tensor_contents is not None:
            recorded = _C._set_recorded(False)  # No recording is about what printing computes.
            try:
                return dense_text(inp, tensor_contents=tensor_contents)
            finally:
                _C._set_recorded(recorded)
        shown = dense_text(inp.detach().to_dense())
        gradient = ", requires_grad=True" if inp.requires_grad and inp.is_leaf else ""
        if inp.grad_fn is not None:
            gradient = f", grad_fn=<{type(inp.grad_fn).__name__}>"
        return f"{shown[:-1]}, device='{inp.device}'{gradient})"

    tensor_str._str_intern = text


def _add_frozen_pass() -> None:
    """Let the engine optimise frozen modules in place of torch's own oneDNN pass.

    ``torch.jit.optimize_for_inference`` freezes the module and then looks this pass up.
    """
    upstream = torch._C._jit_pass_optimize_for_inference

    @functools.wraps(upstream)
    def optimize(module: Any, other_methods: Sequence[str] = ()) -> None:
        if not _C._get_zendnn_enabled():
            upstream(module, list(other_methods))
            return
        methods = ("forward", *other_methods)
        names = [name for name in methods if module._has_method(name)]
        optimize_frozen(module, names)

    torch._C._jit_pass_optimize_for_inference = optimize


def _hide_from_accelerators() -> None:
    """Keep code that looks for an accelerator from finding the CPU."""
    upstream = torch.accelerator.current_accelerator

    @functools.wraps(upstream)
    def current_accelerator(*arguments: Any, **named: Any) -> torch.device | None:
        # Takes none before torch 2.7.
        found: torch.device | None = upstream(*arguments, **named)
        return None if found is not None and found.type == DEVICE else found

    torch.accelerator.current_accelerator = current_accelerator


def _add_configuration() -> None:
    """Let ``torch.__config__.show()`` name ZenDNN, as it names torch's other libraries."""
    upstream = torch.__config__.show

    @functools.wraps(upstream)
    def show() -> str:
        ours = ", ".join(_C._build_info().splitlines())
        if _C._cpu()["emulated_on"]:
            ours += f", CPU: {cpu_name()}"
        return f"{upstream()}  - {ours}\n"

    torch.__config__.show = show


def _register_logs() -> None:
    """Make ``TORCH_LOGS`` know our names; torch reads it once all entry points have run."""
    register_log("zendnn", LOGGER)
    register_artifact(
        "zendnn_graph",
        "Prints the regions of each graph that the backend zendnn compiles, and what is outside.",
        visible=True,
    )
    level = LEVELS[_C._log_levels()[0]]
    if level != logging.WARNING:
        # Without TORCH_LOGS, torch applies its state, unless it has done so: an older torch.
        log_state.enable_log(LOGGER, level)
        logging.getLogger(LOGGER).setLevel(level)


def _choose_threads() -> None:
    """Bind as variables say, or else heed the container, unless the program may have chosen.

    It may have where it imported torch first, and this package later.
    """
    chosen = bind_by_variables() or not getattr(torch.__spec__, "_initializing", False)
    if not chosen and (reported := container.limit_threads()):
        _log(reported)


def _log(sentence: str) -> None:
    """Log at level INFO, as soon as torch has set up its logs: it does so after entry points."""
    logger, upstream = logging.getLogger(LOGGER), torch._logging._init_logs
    if logging.getLogger("torch").handlers:  # an older torch, which has done so
        logger.info(sentence)
        return

    @functools.wraps(upstream)
    def set_up(*arguments: Any, **named: Any) -> None:
        torch._logging._init_logs = upstream
        upstream(*arguments, **named)
        logger.info(sentence)

    torch._logging._init_logs = set_up


@functools.cache
def install() -> None:
    """Hook everything in, once: when the package is imported, as torch does for its entry point."""
    _add_tensor_methods()
    _hide_from_accelerators()
    _add_printing()
    _add_frozen_pass()
    _add_configuration()
    _register_logs()
    _backend.register()
    _choose_threads()
    if _settings.word("ZENDNN_EMULATE_PRECISION_CASTS") == "1":
        from torch.backends.zendnn import passes

        passes.set_enabled("round_as_eager", True)
    if _settings.text("ZENDNN_ROUTE") is not None:
        from torch.backends.zendnn.observe.routing import set_from_environment

        set_from_environment()
