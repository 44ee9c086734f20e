"""How torch takes composite operators apart while it traces.

Operators that the engine has stay whole. An operator that cannot be functional in torch's own way
is taken apart in another.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import SymInt, Tensor
from torch._decomp import decomposition_table
from torch._ops import OpOverload
from torch.backends.zendnn.frontends.aten import IMPORTERS
from torch.backends.zendnn.frontends.fx.calls import operator_of
from torch.export import ExportedProgram

#: The functions that replace torch's own way; one that returns NotImplemented keeps the operator.
Ways = Mapping[OpOverload, Callable[..., Any]]

_aten = torch.ops.aten


@contextlib.contextmanager
def whole_operators() -> Iterator[None]:
    """Keep torch from taking apart operators that the engine has, while AOTAutograd traces."""
    try:
        from torch._export.utils import _special_op_to_preserve_cia
    except ImportError:  # an older torch
        yield
        return
    kept = dict.fromkeys(_whole(), _special_op_to_preserve_cia)
    ways = {**kept, **_OWN_WAYS, **_IN_ONE_CALL, **_PARTLY_WHOLE}
    with _overridden(ways), _under_autocast(_IN_LAYERS):
        yield


def functional(program: ExportedProgram) -> ExportedProgram:
    """Return a functional program, in which operators that the engine has are whole.

    Raises:
        RuntimeError: torch cannot make it functional.
    """
    try:
        from torch._export.utils import _collect_all_valid_cia_ops, _get_decomp_for_cia
    except ImportError:  # an older torch
        return program.run_decompositions({**DECOMPOSITIONS})
    # What stays whole is a copy to torch, although broadcast_tensors and others return views.
    apart = {op: _get_decomp_for_cia(op) for op in _collect_all_valid_cia_ops() - _whole()}
    ways = {**apart, **_IN_ONE_CALL, **_PARTLY_WHOLE, **DECOMPOSITIONS}
    with _overridden(_OWN_WAYS), _under_autocast(_IN_LAYERS):
        return program.run_decompositions(ways)


def _whole() -> set[OpOverload]:
    from torch._export.utils import _is_preservable_cia_op

    known = set(filter(_is_preservable_cia_op, filter(None, map(operator_of, IMPORTERS))))
    # type_as may return its operand, which its schema does not say.
    return known - {_aten.type_as.default}


def _overridden(ways: Ways) -> contextlib.AbstractContextManager[None]:
    try:
        from torch.export.exported_program import _override_composite_implicit_decomp
    except ImportError:  # an older torch
        return contextlib.nullcontext()
    result: contextlib.AbstractContextManager[None] = _override_composite_implicit_decomp(
        dict(ways)
    )
    return result


def _fill_diagonal(x: Tensor, value: Any, wrap: bool = False) -> Tensor:
    """Write to a view of diagonal, which can be functional; torch's own, of as_strided, cannot."""
    if x.dim() != 2 or wrap:
        return _taken_apart(_aten.fill_diagonal_.default, x, value, wrap)
    x.diagonal().fill_(value)
    return x


def _dropout(x: Tensor, p: float, train: bool) -> Any:
    """Return the operand itself in inference, of which torch's own way would forget the writes."""
    return NotImplemented if train else _aten.alias.default(x)


def _keep_products(equation: str, tensors: Sequence[Tensor], **named: Any) -> Any:
    """Take einsum apart if it has one operand, of which it may return a view."""
    if len(tensors) > 1:
        return NotImplemented
    return _taken_apart(_aten.einsum.default, equation, tensors, **named)


def _keep_own_statistics(x: Tensor, *arguments: Any) -> Any:
    """Take instance_norm apart if it writes running statistics, which its schema does not say."""
    _, _, mean, variance, *_ = arguments
    if mean is None and variance is None:
        return NotImplemented
    return _taken_apart(_aten.instance_norm.default, x, *arguments)


def _roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    """Take roll apart if it keeps strides, which torch's fake tensors do not foretell."""
    if not dims or any(isinstance(size, SymInt) for size in x.shape) or x.is_contiguous():
        return NotImplemented
    for shift, dim in zip(shifts, dims, strict=True):
        size = x.shape[dim]
        start = -shift % max(size, 1)
        x = torch.cat([x.narrow(dim, start, size - start), x.narrow(dim, 0, start)], dim)
    return x


def _recurrence(kind: str) -> Callable[..., Any]:
    """Return the way to compute an LSTM, a GRU or an RNN in one call, by eager mode's kernels.

    In steps, as torch traces it, is dropout in training.
    """
    op = getattr(_aten, kind).input

    def in_one_call(
        x: Tensor,
        states: Any,
        params: Sequence[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        if train and dropout:
            return decomposition_table[op](
                *(x, states, params, has_biases, num_layers),
                *(dropout, train, bidirectional, batch_first),
            )
        several = [states] if isinstance(states, Tensor) else list(states)
        result = torch.ops.zendnn.recurrence(
            kind, x, several, list(params), has_biases, num_layers, bidirectional, batch_first
        )
        return tuple(result)

    return in_one_call


def _lstm(*arguments: Any) -> Any:
    """Make layers of it, each one operator, as eager mode does."""
    from torch._decomp.decompositions import lstm_impl

    # torch.export switches oneDNN off meanwhile, so that programs run anywhere.
    with torch.backends.mkldnn.flags(enabled=True):
        return lstm_impl(*arguments)


@contextlib.contextmanager
def _under_autocast(ways: Ways) -> Iterator[None]:
    """Take operators apart above autocast, which lowers what they are made of, not themselves."""
    with torch.library._scoped_library("aten", "IMPL") as library:
        for op, way in ways.items():
            library.impl(op, way, "AutocastCPU")
        yield


def _taken_apart(op: OpOverload, *arguments: Any, **named: Any) -> Any:
    return op._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *arguments, **named)


_OWN_WAYS: Ways = {
    _aten.fill_diagonal_.default: _fill_diagonal,
    **dict.fromkeys(
        (
            _aten.dropout.default,
            _aten.feature_dropout.default,
            _aten.alpha_dropout.default,
            _aten.feature_alpha_dropout.default,
        ),
        _dropout,
    ),
}
_IN_ONE_CALL: Ways = {
    getattr(_aten, kind).input: _recurrence(kind)
    for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu")
}
_IN_LAYERS: Ways = {op: decomposition_table[op] for op in _IN_ONE_CALL} | {_aten.lstm.input: _lstm}
_PARTLY_WHOLE: Ways = {
    _aten.einsum.default: _keep_products,
    _aten.instance_norm.default: _keep_own_statistics,
}
#: How operators that are no composites are taken apart.
DECOMPOSITIONS: Ways = {_aten.roll.default: _roll}
