"""Programs under autocast, which may be on or off where they run, and inside of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses import FakeTensorMode
from torch.backends.zendnn.frontends.fx.calls import hint_of
from torch.backends.zendnn.frontends.fx.reader import attribute
from torch.backends.zendnn.frontends.fx.writer import function_of

log = logging.getLogger(__name__)

#: The key of a node's ``meta`` that says so.
LOWERS = "zendnn_lowers"
#: A dtype that few programs state, so that what has it has been lowered.
_LOW = torch.float16


def note_lowered(module: fx.GraphModule) -> None:
    """Note which results of a functional graph are lowered under autocast, where it can run."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    try:
        with mode, torch.no_grad(), torch.autocast("cpu", _LOW):
            arguments = [_example(node) for node in module.graph.find_nodes(op="placeholder")]
            _Run(module).run(*arguments)
    except Exception as error:  # sizes that depend on data, or what fake tensors cannot do
        log.info("what autocast lowers is not known: %s", str(error).partition("\n")[0])


def _example(node: fx.Node) -> Any:
    """Return an input with the sizes of the export."""
    value = node.meta.get("val")
    if isinstance(value, Tensor):
        sizes, strides = ([hint_of(size) or 0 for size in x] for x in (value.shape, value.stride()))
        return torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)
    return hint_of(value) if isinstance(value, torch.SymInt) else value


class _Run(fx.Interpreter):
    """Runs a graph and compares dtypes with those that it states."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target != torch.ops.zendnn.recurrence.default:
            return super().call_function(target, args, kwargs)
        # What runs in that call obeys autocast, which what describes its results does not see.
        kind, x, states, params, has_biases, layers, *order = args
        op = getattr(torch.ops.aten, kind).input
        state = states if kind == "lstm" else states[0]
        return op(x, state, params, has_biases, layers, 0.0, False, *order)

    def run_node(self, n: fx.Node) -> Any:
        if n.target == torch.ops.aten._assert_tensor_metadata.default:
            return None  # it is about the dtypes of the export
        result, stated = super().run_node(n), n.meta.get("val")
        if isinstance(result, Tensor) and isinstance(stated, Tensor):
            n.meta[LOWERS] = result.dtype == _LOW != stated.dtype
        return result


def autocast_dtype() -> torch.dtype | None:
    """Return what autocast lowers to on CPUs as things stand; None where it is off."""
    if not torch.is_autocast_enabled("cpu"):
        return None
    dtype: torch.dtype = torch.get_autocast_dtype("cpu")
    return dtype


class PlannedProgram(nn.Module):
    """A program on plans that were made for one state of autocast, which they have in them."""

    def __init__(
        self, planned: fx.GraphModule, captured: fx.GraphModule, dtype: torch.dtype | None
    ) -> None:
        super().__init__()
        self.planned = planned
        #: What runs under another state.
        self.captured = captured
        #: What autocast lowered to when the plans were made.
        self.dtype = dtype
        self._run = function_of(planned)

    # What no plan holds has the names that it has in the program, for whoever reads or loads it.

    def named_parameters(self, *arguments: Any, **named: Any) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the parameters of the program."""
        yield from self.planned.named_parameters(*arguments, **named)

    def named_buffers(self, *arguments: Any, **named: Any) -> Iterator[tuple[str, Tensor]]:
        """Yield the buffers of the program."""
        yield from self.planned.named_buffers(*arguments, **named)

    def state_dict(self, *arguments: Any, **named: Any) -> dict[str, Any]:
        """Return the weights of the program."""
        held: dict[str, Any] = self.planned.state_dict(*arguments, **named)
        return held

    def load_state_dict(self, *arguments: Any, **named: Any) -> Any:
        """Give the program other weights."""
        return self.planned.load_state_dict(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__"):  # how it is copied, for example, is its own
                raise
            return getattr(super().__getattr__("planned"), name)

    def __getstate__(self) -> dict[str, Any]:
        return {name: held for name, held in self.__dict__.items() if name != "_run"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._run = function_of(self.planned)

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """Run the plans, or what was captured."""
        if autocast_dtype() != self.dtype:
            return self.captured(*arguments, **named)
        if self.dtype is None:
            return self._run(*arguments, **named)
        with torch.autocast("cpu", enabled=False):
            return self._run(*arguments, **named)


class Lowered(nn.Module):
    """A part of a program that runs under a state of autocast of its own."""

    def __init__(self, part: nn.Module, *state: Any) -> None:
        super().__init__()
        self.part = part
        #: What ``torch.autocast`` takes.
        self.state = state

    def forward(self, *arguments: Any) -> Any:
        """Run the part."""
        with torch.autocast(*self.state):
            return self.part(*arguments)


def keep_autocast(program: fx.GraphModule) -> None:
    """Make modules of the parts that run under autocast, which pickling takes apart otherwise.

    What checks the dtypes of the export goes.
    """
    try:
        wrapped = torch.ops.higher_order.wrap_with_autocast
    except AttributeError:  # an older torch
        return
    graphs = [program]
    for module in graphs:
        for node in list(module.graph.nodes):
            if node.target == torch.ops.aten._assert_tensor_metadata.default:
                module.graph.erase_node(node)
            if node.target is not wrapped:
                continue
            device, dtype, enabled, caches, part, *arguments = node.args
            held, name = attribute(module, part), f"under_autocast_{node.name}"
            module.add_module(name, Lowered(held, device, dtype, enabled, caches))
            with module.graph.inserting_before(node):
                called = module.graph.call_module(name, tuple(arguments))
            called.meta = dict(node.meta)
            node.replace_all_uses_with(called)
            module.graph.erase_node(node)
            graphs.append(held)
        module.graph.eliminate_dead_code()
        module.recompile()
