"""Recognises attention that a model spells out: softmax(q·kᵀ · scale + mask)·v."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node, Operand, Value
from torch.backends.zendnn.passes._match import each, is_swap, producer, sole, substitute
from torch.backends.zendnn.table.notation import Attribute

#: Batch, heads, positions, size: plans supply a missing batch and missing heads.
RANKS = (2, 3, 4)


@dataclass(frozen=True)
class Scores:
    """How the scores are made, as far as they were followed from the softmax to the product."""

    members: tuple[Node, ...] = ()
    scale: float = 1.0
    masks: tuple[Operand, ...] = ()
    #: Where scores are replaced, by which number, and where the condition holds or where not.
    chosen: Operand = None
    fill: float = 0.0
    fill_where: bool = True
    #: Whether a mask is added to scores in place, and so no larger.
    in_place: bool = False
    #: How many of factors, replacement and masks, in this order, may still come.
    depth: int = 3

    def after(self, node: Node, **changes: Any) -> Scores:
        """The same with one more node before the others."""
        return replace(self, members=(node, *self.members), **changes)


def fuse_attention(graph: Graph) -> int:
    """Replace two matrix products around a softmax by one attention; return how many."""
    _drop_expansion(graph)
    graph.remove_dead()
    return _fuse(graph)


@each("where")
def _drop_expansion(graph: Graph, node: Node) -> bool:
    """A condition expanded to the size of what it chooses from broadcasts to it anyway."""
    condition, *chosen = node.inputs
    expanded = producer(condition, "expand", "expand_as")
    if expanded is None or _aim(expanded) not in chosen:
        return False
    graph.set_inputs(node, [expanded.inputs[0], *chosen])
    return True


def _aim(expanded: Node) -> Operand:
    """The tensor whose sizes a value is expanded to."""
    if expanded.op == "expand_as":
        return expanded.inputs[1]
    sizes = [producer(number, "size") for number in expanded.inputs[1:]]
    aims = [(-1, -1) if size is None else size.inputs for size in sizes] or [(-1, -1)]
    aim = aims[0][0]
    return aim if aims == [(aim, dim) for dim in range(len(aims))] else -1


@each("matmul")
def _fuse(graph: Graph, last: Node) -> bool:
    weights, v = last.inputs
    narrowed = sole(graph, weights, "to")
    softmax = sole(graph, narrowed.inputs[0] if narrowed else weights, "softmax")
    if softmax is None or softmax.get("log"):
        return False
    scores = _follow(graph, softmax.inputs[0], Scores())
    if scores is None:
        return False
    widened = scores.members[-1].op == "to"
    q, keys = scores.members[0].inputs
    found = {x.rank for x in (q, keys, v) if isinstance(x, Value)} - {None}
    dims = found.pop() if found else None
    dim = softmax.get("dim")
    if found or dims not in (None, *RANKS) or dim not in (-1, 3 if dims is None else dims - 1):
        return False
    if narrowed is not None and not widened and narrowed.get("dtype") != "float32":
        return False

    def add(op: str, *operands: Operand, **attributes: Attribute) -> Value:
        return graph.add(op, operands, before=last, attributes=attributes).output

    transposed = producer(keys, "transpose", "permute")
    assert transposed is not None
    members = [*scores.members, softmax, *([narrowed] if narrowed else []), last]
    dims = dims or 4
    if is_swap(transposed, dims - 2, dims - 1, dims):
        k = transposed.inputs[0]
        members.insert(0, transposed)
    else:
        k = add("transpose", keys, -2, -1)
    if (narrowed is None) == widened:
        # The weights and values are float32; the dtype of queries and keys is unknown.
        q, k = (add("to", operand, dtype="float32") for operand in (q, k))
    mask, *more = scores.masks or (None,)
    for other in more:
        mask = add("binary", mask, other, algorithm="add")
    inputs = [q, k, v, mask]
    # A mask is added whatever its type, and the softmax of nothing is NaN.
    attributes: dict[str, Attribute] = {"causal": False, "swapped": False, "additive": True}
    if scores.in_place:
        attributes["in_place"] = True
    if scores.chosen is not None:
        inputs.append(scores.chosen)
        attributes |= {"fill": scores.fill, "fill_where": scores.fill_where}
    substitute(graph, members, "attention", inputs, scale=scores.scale, **attributes)
    return True


def _follow(graph: Graph, operand: Operand, scores: Scores) -> Scores | None:
    """Follow scores to the product that makes them; the product is the first member then."""
    waiting = [(operand, scores)]
    while waiting:
        operand, scores = waiting.pop()
        node = sole(graph, operand)
        if node is None:
            continue
        match node:
            case Node("to", (x,), attributes={"dtype": "float32"}) if not scores.members:
                waiting.append((x, scores.after(node)))
            case Node("binary", (a, b), attributes={"algorithm": "add"}) if scores.depth == 3:
                # The last one comes first.
                in_place = node.get("in_place")
                if in_place and len({getattr(x, "dtype", None) for x in (a, b)} - {None}) > 1:
                    continue  # the scores are rounded after the mask is added
                for x, mask in [(a, b)] if in_place else [(b, a), (a, b)]:
                    masks = (mask, *scores.masks)
                    after = scores.after(node, masks=masks, in_place=scores.in_place or in_place)
                    waiting.append((x, after))
            case Node("where", (chosen, None, x) | (chosen, x, None)) if (
                scores.chosen is None and scores.depth > 1
            ):
                where, fill = x is node.inputs[2], node.get("value")
                # What is added to -∞ changes nothing, so that masks may come before it too.
                depth = scores.depth if fill == -math.inf else 2
                after = scores.after(node, chosen=chosen, fill=fill, fill_where=where, depth=depth)
                waiting.append((x, after))
            case Node("eltwise", (x,), attributes={"algorithm": "affine", "beta": 0}):
                scale = scores.scale * node.get("alpha")
                waiting.append((x, scores.after(node, scale=scale, depth=1)))
            # A scale of 0 has another meaning.
            case Node("matmul", (_, keys)) if scores.scale and producer(
                keys, "transpose", "permute"
            ):
                return scores.after(node)
    return None
