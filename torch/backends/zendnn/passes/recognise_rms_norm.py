"""Recognises spelled-out normalisation by the root of the mean square, with its conversions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch.backends.zendnn.graph import Attribute, Graph, Node, Operand, Value
from torch.backends.zendnn.passes._match import (
    affine_of,
    constant,
    integers,
    is_eltwise,
    producer,
    sole,
)


@dataclass(frozen=True)
class _Root:
    """√(mean(x²) + eps), or 1 divided by it."""

    members: tuple[Node, ...]
    x: Operand
    eps: float


def recognise_rms_norm(graph: Graph) -> int:
    """Replace x · rsqrt(mean(x²) + eps) · weight by one norm; return how many."""
    found = 0
    for node in list(graph.nodes):
        if node in graph.nodes and node.op == "binary":
            found += _from_scaling(graph, node)
    return found


def _from_scaling(graph: Graph, scaling: Node) -> bool:
    for x, factor in _factors(scaling):
        root = _root(graph, factor, divides=scaling.attributes["algorithm"] == "div")
        if root is not None and _unconverted(x) is _unconverted(root.x):
            _replace(graph, scaling, root, x)
            return True
    return False


def _factors(node: Node) -> Iterator[tuple[Operand, Operand]]:
    """What is scaled, and by what."""
    if node.post_ops or node.attributes["algorithm"] not in ("mul", "div"):
        return
    a, b = node.inputs
    yield a, b
    if node.attributes["algorithm"] == "mul":
        yield b, a


def _root(graph: Graph, operand: Operand, *, divides: bool) -> _Root | None:
    root = sole(graph, operand, "eltwise")
    if not is_eltwise(root, "sqrt" if divides else "rsqrt"):
        return None
    assert root is not None
    shifted = sole(graph, root.inputs[0], "eltwise")
    affine = affine_of(shifted)
    if shifted is None or affine is None or affine[0] != 1 or affine[1] < 0:
        return None
    mean = sole(graph, shifted.inputs[0], "mean")
    if mean is None or integers(mean, "dims") != (-1,) or not mean.attributes.get("keep"):
        return None
    square = sole(graph, mean.inputs[0], "eltwise", "binary")
    if square is None or square.post_ops:
        return None
    is_product = square.op == "binary" and square.attributes["algorithm"] == "mul"
    if not is_eltwise(square, "square") and not (is_product and len({*square.inputs}) == 1):
        return None
    return _Root((square, mean, shifted, root), square.inputs[0], affine[1])


def _unconverted(x: Operand) -> Operand:
    node = producer(x, "to")
    return x if node is None or node.attributes["dtype"] != "float32" else node.inputs[0]


def _replace(graph: Graph, scaling: Node, root: _Root, x: Operand) -> None:
    """The norm takes the conversion to float32 that comes before it and the one that follows, or
    neither; and the weight, if that is a constant of the result's dtype.
    """
    members = [*root.members, scaling]
    last = scaling
    attributes: dict[str, Attribute] = {"eps": root.eps, "dims": 1}
    wide = next((v for v in (x, root.x) if v is not _unconverted(v)), None)
    narrowed = graph.only_user(scaling.output)
    if wide is not None and narrowed is not None and narrowed.op == "to":
        attributes["dtype"] = narrowed.attributes["dtype"]
        x = _unconverted(x)
        last = narrowed
        members.append(narrowed)
    elif wide is not None:
        attributes["dtype"] = "float32"
        x = wide
    weight = None
    weighing = graph.only_user(last.output)
    if weighing is not None:
        weight = _weight(weighing, last.output, attributes.get("dtype"))
        if weight is not None:
            attributes["dtype"] = str(weight.dtype)
            last = weighing
            members.append(weighing)
    node = graph.add(
        "rms_norm",
        [x, weight, None, None],
        before=last,
        attributes=attributes,
        origin=tuple(label for member in members for label in member.origin),
    )
    graph.take_over(node, last.output)
    graph.remove_dead()


def _weight(node: Node, x: Value, dtype: Attribute | None) -> Value | None:
    """The constant vector that a node multiplies ``x`` by."""
    if node.op != "binary" or node.attributes["algorithm"] != "mul" or node.post_ops:
        return None
    (weight,) = [operand for operand in node.inputs if operand is not x] or [None]
    tensor = constant(weight)
    if tensor is None or not isinstance(weight, Value) or tensor.dim() != 1:
        return None
    return weight if dtype in (None, weight.dtype) else None
