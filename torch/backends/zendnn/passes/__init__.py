"""The passes that rewrite a graph, in the order in which they run, and those that a plan runs.

A pass is a function of a graph that returns how often it changed something; ``_match.each`` makes
one of a rule for single nodes. It sees the graph and nothing else: no shapes, no front end. What
depends on shapes is the plan's; it is named here, so that it can be switched off in the same way.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import NamedTuple

from torch.backends.zendnn.graph import Graph, Pass
from torch.backends.zendnn.passes.attention_layout import attention_layout
from torch.backends.zendnn.passes.defer_sizes import defer_sizes
from torch.backends.zendnn.passes.fold_arithmetic import fold_arithmetic
from torch.backends.zendnn.passes.fold_attention_scale import fold_attention_scale
from torch.backends.zendnn.passes.fold_batch_norm import fold_batch_norm
from torch.backends.zendnn.passes.fold_constants import fold_constants
from torch.backends.zendnn.passes.fold_pad import fold_pad
from torch.backends.zendnn.passes.fold_scalars import fold_scalars
from torch.backends.zendnn.passes.fuse_attention import fuse_attention
from torch.backends.zendnn.passes.fuse_binary import fuse_binary
from torch.backends.zendnn.passes.fuse_casts import fuse_casts
from torch.backends.zendnn.passes.fuse_eltwise import fuse_eltwise
from torch.backends.zendnn.passes.fuse_embedding_bags import fuse_embedding_bags
from torch.backends.zendnn.passes.fuse_layer_norm import fuse_layer_norm
from torch.backends.zendnn.passes.fuse_pairwise_dot import fuse_pairwise_dot
from torch.backends.zendnn.passes.group_embedding_bags import group_embedding_bags
from torch.backends.zendnn.passes.merge_linears import merge_linears
from torch.backends.zendnn.passes.promote_operands import promote_operands
from torch.backends.zendnn.passes.recognise_activations import recognise_activations
from torch.backends.zendnn.passes.recognise_rms_norm import recognise_rms_norm
from torch.backends.zendnn.passes.remove_casts import remove_casts
from torch.backends.zendnn.passes.remove_identities import remove_identities


class _Row(NamedTuple):
    name: str
    function: Pass
    does: str


_TABLE = (
    _Row("fold_constants", fold_constants, "evaluates what constants decide, and sizes too"),
    _Row("remove_identities", remove_identities, "removes what changes nothing"),
    _Row("defer_sizes", defer_sizes, "reads sizes where nobody has to wait for them"),
    _Row("remove_casts", remove_casts, "removes conversions that convert nothing"),
    _Row("fold_scalars", fold_scalars, "makes arithmetic with numbers alpha·x + beta"),
    _Row("recognise_activations", recognise_activations, "finds spelled-out activations"),
    _Row("recognise_rms_norm", recognise_rms_norm, "finds spelled-out rms norms"),
    _Row("fuse_embedding_bags", fuse_embedding_bags, "drops the offsets of equal bags"),
    _Row("group_embedding_bags", group_embedding_bags, "joins the bags of one cat or stack"),
    _Row("fuse_pairwise_dot", fuse_pairwise_dot, "computes only the products that are read"),
    _Row("fuse_attention", fuse_attention, "finds spelled-out attention"),
    _Row("fold_attention_scale", fold_attention_scale, "scales in attention, not before it"),
    _Row("attention_layout", attention_layout, "puts attention's heads side by side"),
    _Row("fold_pad", fold_pad, "pads in convolutions and pools, not before them"),
    _Row("fold_batch_norm", fold_batch_norm, "folds batch norms into weights"),
    _Row("fold_arithmetic", fold_arithmetic, "folds constant arithmetic into weights"),
    _Row("promote_operands", promote_operands, "converts what is combined with float32"),
    _Row("fuse_casts", fuse_casts, "converts in the operators that compute"),
    _Row("fuse_eltwise", fuse_eltwise, "makes activations post-ops"),
    _Row("fuse_binary", fuse_binary, "makes residuals, masks and gates post-ops"),
    _Row("merge_linears", merge_linears, "merges linear layers that read one value"),
    _Row("fuse_layer_norm", fuse_layer_norm, "adds residuals in the norms that read them"),
)

#: What plans do once they know shapes (torch/csrc/zendnn/plan/Description.h lists the same names).
_IN_PLANS = {
    "choose_layout": "times blocks of channels beside channels-last",
    "join_in_place": "writes the parts of a concatenation where they belong",
    "reuse_operands": "writes results over operands that nobody needs any more",
    "share_memory": "lets buffers whose lives do not overlap share memory",
}

_enabled = dict.fromkeys([*(row.name for row in _TABLE), *_IN_PLANS], True)


def names() -> tuple[str, ...]:
    """Return the names of all passes, in the order in which they run; those of plans come last."""
    return tuple(_enabled)


def describe() -> dict[str, str]:
    """Return what each pass does, in one line."""
    return {row.name: row.does for row in _TABLE} | _IN_PLANS


def is_enabled(name: str) -> bool:
    """Return whether the pass runs."""
    _require(name)
    return _enabled[name]


def set_enabled(name: str, enabled: bool) -> None:
    """Switch a pass on or off, for graphs that are optimised from now on."""
    _require(name)
    _enabled[name] = enabled


@contextlib.contextmanager
def disable(*names: str) -> Iterator[None]:
    """Switch passes off for what is optimised inside."""
    for name in names:
        _require(name)
    before = dict(_enabled)
    _enabled.update(dict.fromkeys(names, False))
    try:
        yield
    finally:
        _enabled.update(before)


def off_in_plans() -> tuple[str, ...]:
    """Return the passes that plans made now shall not run."""
    return tuple(name for name in _IN_PLANS if not _enabled[name])


def run(graph: Graph) -> dict[str, int]:
    """Run the passes that are on; return how often each of them changed something.

    Raises:
        RuntimeError: with ``ZENDNN_VERIFY=1``, when a pass breaks an invariant; it names the pass.
    """
    changes = {}
    verify = os.environ.get("ZENDNN_VERIFY") == "1"
    graph.remove_dead()
    for row in _TABLE:
        if _enabled[row.name]:
            changes[row.name] = row.function(graph)
            graph.remove_dead()
            graph.infer_types()
            try:
                if verify:
                    graph.check()
            except AssertionError as error:
                raise RuntimeError(f"the pass {row.name} broke the graph: {error}") from error
    return changes


def _require(name: str) -> None:
    if name not in _enabled:
        raise ValueError(f"there is no pass named {name!r}; the passes are {', '.join(_enabled)}")
