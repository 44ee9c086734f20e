"""Recognises attention that a model spells out: softmax(q·kᵀ · scale + mask)·v."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from torch.backends.zendnn.graph import Attribute, Graph, Node, Operand, Value
from torch.backends.zendnn.passes._match import affine_of, is_swap, producer, rank, real, sole

#: Batch, heads, positions, size: the last two must be there, and the plan makes up for the others.
RANKS = (2, 3, 4)


@dataclass(frozen=True)
class Scores:
    """What makes the scores, as far as they were followed from the softmax to the product."""

    members: tuple[Node, ...] = ()
    scale: float = 1.0
    masks: tuple[Operand, ...] = ()
    #: Where scores are replaced, by which number, and where the condition holds or where not.
    chosen: Operand = None
    fill: float = 0.0
    fill_where: bool = True
    #: How many of factors, replacement and masks, in this order, may still come.
    depth: int = 3

    def after(self, node: Node, **changes: Any) -> Scores:
        """The same, and one node more, in front of the others."""
        return replace(self, members=(node, *self.members), **changes)


def fuse_attention(graph: Graph) -> int:
    """Replace two matrix products around a softmax by one attention; return how many."""
    fused = 0
    for node in graph.nodes:
        if node.op == "where":
            _drop_expansion(graph, node)
    graph.remove_dead()
    for softmax in list(graph.nodes):
        if softmax.op == "softmax" and _fuse(graph, softmax):
            fused += 1
    return fused


def _drop_expansion(graph: Graph, node: Node) -> None:
    """A condition expanded to the size of what it chooses from broadcasts to it anyway."""
    condition, *chosen = node.inputs
    expanded = producer(condition, "expand", "expand_as")
    if expanded is not None and _aim(expanded) in chosen:
        graph.set_inputs(node, [expanded.inputs[0], *chosen])


def _aim(expanded: Node) -> Operand:
    """The tensor whose sizes a value is expanded to."""
    if expanded.op == "expand_as":
        return expanded.inputs[1]
    sizes = [producer(number, "size") for number in expanded.inputs[1:]]
    aims = [size.inputs for size in sizes if size is not None]
    if not aims or len(aims) != len(sizes):
        return -1
    whole = [(aims[0][0], dim) for dim in range(len(aims))]
    return aims[0][0] if aims == whole else -1


def _fuse(graph: Graph, softmax: Node) -> bool:
    weights = softmax.output
    last = graph.only_user(weights)
    narrowed = last if last is not None and last.op == "to" else None
    if narrowed is not None:
        weights = narrowed.output
        last = graph.only_user(weights)
    if softmax.attributes.get("log") or last is None or not _is_plain_product(last):
        return False
    scores = _follow(graph, softmax.inputs[0], Scores())
    if scores is None or last.inputs[0] is not weights:
        return False
    widened = scores.members[-1].op == "to"
    q, keys = scores.members[0].inputs
    v = last.inputs[1]
    found = {rank(operand) for operand in (q, keys, v)} - {None}
    dims = found.pop() if found else None
    dim = softmax.attributes["dim"]
    if found or dims not in (None, *RANKS) or dim not in (-1, 3 if dims is None else dims - 1):
        return False
    if narrowed is not None and not widened and narrowed.attributes["dtype"] != "float32":
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
        # The weights are float32, and so are the values; of queries and keys we cannot tell.
        q, k = (add("to", operand, dtype="float32") for operand in (q, k))
    mask, *more = scores.masks or (None,)
    for other in more:
        mask = add("binary", mask, other, algorithm="add")
    attributes: dict[str, Attribute] = {
        "scale": scores.scale,
        "causal": False,
        "swapped": False,
        # A mask is added whatever its type, and the softmax of nothing is NaN.
        "additive": True,
    }
    inputs = [q, k, v, mask]
    if scores.chosen is not None:
        inputs.append(scores.chosen)
        attributes |= {"fill": scores.fill, "fill_where": scores.fill_where}
    node = graph.add(
        "attention",
        inputs,
        before=last,
        attributes=attributes,
        origin=tuple(label for member in members for label in member.origin),
    )
    graph.take_over(node, last.output)
    graph.remove_dead()
    return True


def _follow(graph: Graph, operand: Operand, scores: Scores) -> Scores | None:
    """Follow scores to the product that makes them; the product is the first member then."""
    node = sole(graph, operand, "to", "binary", "where", "eltwise", "matmul")
    if node is None or node.post_ops:
        return None
    if node.op == "to":
        if scores.members or node.attributes["dtype"] != "float32":
            return None
        return _follow(graph, node.inputs[0], scores.after(node))
    if node.op == "binary":
        return _follow_masked(graph, node, scores)
    if node.op == "where":
        return _follow_replaced(graph, node, scores)
    if node.op == "eltwise":
        factor = affine_of(node)
        if factor is None or factor[1]:
            return None
        scale = scores.scale * factor[0]
        return _follow(graph, node.inputs[0], scores.after(node, scale=scale, depth=1))
    # A scale of 0 has another meaning.
    transposed = producer(node.inputs[1], "transpose", "permute")
    plain = _is_plain_product(node) and transposed is not None and scores.scale
    return scores.after(node) if plain else None


def _follow_masked(graph: Graph, node: Node, scores: Scores) -> Scores | None:
    if node.attributes["algorithm"] != "add" or scores.depth < 3:
        return None
    a, b = node.inputs
    for operand, mask in ((a, b), (b, a)):
        found = _follow(graph, operand, scores.after(node, masks=(mask, *scores.masks)))
        if found is not None:
            return found
    return None


def _follow_replaced(graph: Graph, node: Node, scores: Scores) -> Scores | None:
    condition, x, y = node.inputs
    if scores.chosen is not None or scores.depth < 2 or (x is None) == (y is None):
        return None
    fill = real(node, "value")
    # What is added to -∞ changes nothing, so that masks may come before it too.
    depth = scores.depth if fill == -math.inf else 2
    chosen = scores.after(node, chosen=condition, fill=fill, fill_where=x is None, depth=depth)
    return _follow(graph, y if x is None else x, chosen)


def _is_plain_product(node: Node) -> bool:
    return node.op == "matmul" and len(node.inputs) == 2 and not node.post_ops
