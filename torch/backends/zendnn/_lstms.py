"""Lets Dynamo capture LSTMs in the graphs around them, which run each in one call.

Dynamo ends a graph at each recurrent module unless ``torch._dynamo.config.allow_rnn`` is set, which
is for all backends. It still does at GRUs and RNNs, since it would trace them for one number of
steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

#: The part of Dynamo that ends graphs at recurrent modules.
BUILDER = "torch._dynamo.variables.builder"


def capture(builder: Any, *, backend: Callable[..., Any]) -> None:
    """Let Dynamo capture LSTMs in inference where it compiles for a backend."""
    of = getattr(builder, "VariableBuilder", None)
    upstream = getattr(of, "wrap_module", None)
    if upstream is None:  # another torch, in which LSTMs end graphs
        return

    @functools.wraps(upstream)
    def wrap_module(self: Any, value: Any) -> Any:
        if not isinstance(value, torch.nn.LSTM) or not _is_inference(value):
            return upstream(self, value)
        from torch.backends.zendnn.frontends.fx.functions import compiling_backend  # slow

        compiling = compiling_backend()
        if getattr(compiling, "compiler_fn", compiling) is not backend:
            return upstream(self, value)
        settings: Any = torch._dynamo.config
        with settings.patch(allow_rnn=True):
            return upstream(self, value)

    builder.VariableBuilder.wrap_module = wrap_module


def _is_inference(lstm: torch.nn.LSTM) -> bool:
    drops = lstm.training and lstm.dropout > 0
    return not (drops or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"))
