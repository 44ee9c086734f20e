"""States: inputs, such as caches, that a graph writes parts of in place, as plans can do.

Each read of such an input after its write reads what was written. Other inputs may share its
memory: a plan compares addresses before each run, and ``schedule.py`` keeps the graph's order
around regions.
"""

from __future__ import annotations

from collections.abc import Container
from functools import partial

from torch import fx
from torch.backends.zendnn.frontends.aten.writes import WRITES
from torch.backends.zendnn.frontends.calls import Refused
from torch.backends.zendnn.frontends.fx.calls import FxCall, operator_key
from torch.backends.zendnn.frontends.fx.mutation import base, writes, written
from torch.backends.zendnn.ir.node import Value


def find_states(graph: fx.Graph, constants: Container[fx.Node]) -> set[fx.Node]:
    """Return the inputs and attributes to which a graph writes only in ways that plans know.

    What reads the results of such writes reads their targets from here on.
    """
    *nodes, output = graph.nodes
    writers: dict[fx.Node, list[fx.Node]] = {}
    for node in nodes:
        if writes(node):
            writers.setdefault(base(node.args[0]), []).append(node)
    found = set()
    for root, those in writers.items():
        known = all(operator_key(node.target) in WRITES for node in those)
        parts = any(operator_key(n.target) != "aten::copy_" or n.args[0] is not root for n in those)
        free = root.op in ("placeholder", "get_attr") and root not in constants
        if free and known and parts and root not in output.all_input_nodes:
            found.add(root)
            for node in those:
                node.replace_all_uses_with(node.args[0])
    for node in nodes:
        if node.target == written and base(node) in found:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    return found


def _write(call: FxCall, value: Value, *rows: Value, **attributes: int | bool) -> None:
    scope, target = call.scope, call.operand_of(call.node.args[0])
    root = base(call.node.args[0])
    whole = scope.operand(root)
    if not (isinstance(whole, Value) and isinstance(target, Value) and whole.is_state):
        raise Refused("what it writes to is not known")
    if not target.is_state:
        raise Refused("what it writes to is a copy")
    scope.bind(root, call.step("write", [whole, target, value, *rows], **attributes))


#: Importers of writes to states.
STATE_WRITES = {name: partial(importer, write=_write) for name, importer in WRITES.items()}
