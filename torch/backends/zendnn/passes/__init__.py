"""The passes that rewrite a graph, in the order in which they run, and those that a plan runs.

A pass takes a graph and returns the number of its changes; ``_match.each`` makes one from a rule
for a single node. It sees the graph alone: no shapes, no front end. Passes that need shapes run in
plans, and are named here so that they can be switched off in the same way.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar

from torch.backends.zendnn import _settings
from torch.backends.zendnn.ir.graph import Graph, Pass

#: What each pass does. The module of its name defines the function of its name. Post-ops exist from
#: fuse_eltwise on.
_IN_GRAPHS = {
    "round_as_eager": "rounds bfloat16 wherever eager mode does; off by default",
    "fold_constants": "evaluates what constants decide, and sizes too",
    "remove_identities": "removes what changes nothing",
    "unflatten_linears": "removes views around linear layers",
    "defer_sizes": "reads sizes where nobody has to wait for them",
    "remove_casts": "removes conversions that convert nothing",
    "fold_scalars": "makes arithmetic with numbers alpha·x + beta",
    "recognise_activations": "finds spelled-out activations",
    "recognise_rms_norm": "finds spelled-out rms norms",
    "divide_by_roots": "divides by roots, not multiplies by their reciprocals",
    "recognise_rope": "finds spelled-out rotary position embeddings",
    "fuse_embedding_bags": "drops the offsets of equal bags",
    "group_embedding_bags": "joins the bags of one cat or stack",
    "fuse_pairwise_dot": "computes only the products that are read",
    "fuse_attention": "finds spelled-out attention",
    "fold_attention_scale": "scales in attention, not before it",
    "share_heads": "repeats no heads of keys and values for attention",
    "attention_layout": "puts attention's heads side by side",
    "fold_pad": "pads in convolutions, not before them",
    "fold_batch_norm": "folds batch norms into weights",
    "fold_arithmetic": "folds constant arithmetic into weights",
    "promote_operands": "converts what is combined with float32",
    "fuse_casts": "converts in the operators that compute",
    "fuse_eltwise": "makes activations post-ops",
    "fuse_binary": "makes residuals, masks and gates post-ops",
    "narrow_results": "stores bfloat16 where float32 would be converted to it",
    "merge_linears": "merges linear layers that read one value",
    "fuse_layer_norm": "adds residuals in the norms that read them",
    "round_products": "multiplies float32 in bfloat16; off by default",
}

#: What plans do once they know shapes (kPasses in plan/describe/Description.h has the same names).
_IN_PLANS = {
    "choose_layout": "times blocks of channels beside channels-last",
    "join_in_place": "writes the parts of a concatenation where they belong",
    "reuse_operands": "writes results over operands that nobody needs any more",
    "fuse_pointwise": "makes one step of a chain of functions of each element",
    "share_memory": "lets buffers whose lives do not overlap share memory",
}

_DOES = _IN_GRAPHS | _IN_PLANS
_FUNCTIONS: dict[str, Pass] = {
    name: getattr(importlib.import_module(f"{__name__}.{name}"), name) for name in _IN_GRAPHS
}
#: Passes that users ask for: they cost exactness, or speed.
_OFF_BY_DEFAULT = frozenset({"round_products", "round_as_eager"})
_enabled = {name: name not in _OFF_BY_DEFAULT for name in _DOES}
#: What ``switched`` and ``tuned`` say holds in the thread that entered them: others may optimise
#: at the same time.
_switched: ContextVar[dict[str, bool] | None] = ContextVar("switched", default=None)
_tuning_budget: ContextVar[float | None] = ContextVar("tuning_budget", default=None)


def names() -> tuple[str, ...]:
    """Return the names of all passes, in the order in which they run; those of plans come last."""
    return tuple(_enabled)


def describe() -> dict[str, str]:
    """Return what each pass does, in one line."""
    return dict(_DOES)


def is_enabled(name: str) -> bool:
    """Return whether the pass runs."""
    _require(name)
    return _switches()[name]


def set_enabled(name: str, enabled: bool) -> None:
    """Switch a pass on or off, for graphs that are optimised from now on."""
    _require(name)
    _switches()[name] = enabled


def disable(*names: str) -> contextlib.AbstractContextManager[None]:
    """Switch passes off for what this thread optimises inside."""
    return switched(dict.fromkeys(names, False))


@contextlib.contextmanager
def switched(names: Mapping[str, bool]) -> Iterator[None]:
    """Switch passes on or off for what this thread optimises inside."""
    for name in names:
        _require(name)
    before = _switched.set({**_switches(), **names})
    try:
        yield
    finally:
        _switched.reset(before)


def _switches() -> dict[str, bool]:
    """Return which passes are on, here and now."""
    inside = _switched.get()
    return _enabled if inside is None else inside


@contextlib.contextmanager
def tuned(seconds: float | None) -> Iterator[None]:
    """Let plans that are made inside time implementations for so long, each for all inputs' sizes.

    None stands for what ``ZENDNN_TUNING_BUDGET`` says when a plan builds.
    """
    before = _tuning_budget.set(seconds)
    try:
        yield
    finally:
        _tuning_budget.reset(before)


def tuning_budget() -> float | None:
    """Return the seconds that plans made now may time implementations for; None: the default."""
    return _tuning_budget.get()


def off_in_plans() -> tuple[str, ...]:
    """Return the passes that plans made now shall not run."""
    switches = _switches()
    return tuple(name for name in _IN_PLANS if not switches[name])


def run(graph: Graph, changed: Callable[[str, Graph, int], None] | None = None) -> dict[str, int]:
    """Run the passes that are on; return how often each of them changed something.

    ``changed`` is called after each pass that did, with its name, the graph and how often.

    Raises:
        RuntimeError: with ``ZENDNN_VERIFY=1``, when a pass breaks an invariant; it names the pass.
    """
    changes, switches = {}, _switches()
    verify = _settings.word("ZENDNN_VERIFY") == "1"
    graph.remove_dead()
    graph.infer_types()
    for name, function in _FUNCTIONS.items():
        if switches[name] and (name != "merge_linears" or _may_join()):
            changes[name] = function(graph)
            if changes[name]:
                graph.remove_dead()
                graph.infer_types()
            try:
                if verify:
                    graph.check()
            except AssertionError as error:
                raise RuntimeError(f"the pass {name} broke the graph: {error}") from error
            if changes[name] and changed is not None:
                changed(name, graph, changes[name])
    return changes


def _may_join() -> bool:
    """Return whether plans may hold joined weights, which take as much memory as their parts."""
    return _settings.number("ZENDNN_PACKED_MEMORY") >= 1


def _require(name: str) -> None:
    if name not in _enabled:
        raise ValueError(f"there is no pass named {name!r}; the passes are {', '.join(_enabled)}")
