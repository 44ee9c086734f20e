"""Recognises spelled-out RMS norms, with their conversions."""

from __future__ import annotations

from torch.backends.zendnn.ir.graph import Graph
from torch.backends.zendnn.ir.node import Node, Operand, Value
from torch.backends.zendnn.passes._match import chain, each, is_one_of, producer, substitute
from torch.backends.zendnn.table.dtypes import COMPUTED
from torch.backends.zendnn.table.notation import Attribute

#: What makes the mean square, the last operator first.
_MEAN_SQUARE = ("eltwise.affine", "mean", "eltwise.square binary.mul")


@each("binary.mul", "binary.div")
def recognise_rms_norm(graph: Graph, scaling: Node) -> bool:
    """Replace x · rsqrt(mean(x²) + eps) · weight by one norm; return how many."""
    divides = scaling.get("algorithm") == "div"
    root = "eltwise.sqrt" if divides else "eltwise.rsqrt"
    a, b = scaling.inputs
    in_place = scaling.get("in_place")
    for x, factor in [(a, b)] if divides or in_place else [(a, b), (b, a)]:
        nodes = chain(graph, factor, root, *_MEAN_SQUARE)
        if not nodes or not _is_root(*nodes):
            continue
        squared = nodes[-1].inputs[0]
        # In place, the result has the dtype of x, converted or not.
        if x is squared or (not in_place and _unconverted(x) is _unconverted(squared)):
            _replace(graph, [*nodes[::-1], scaling], x, nodes[1].get("beta"))
            return True
    return False


def _is_root(root: Node, shifted: Node, mean: Node, square: Node) -> bool:
    """Whether these make √(mean(x²) + eps) along the last dimension, or 1 divided by it."""
    return (
        shifted.get("alpha") == 1
        and shifted.get("beta") >= 0
        and mean.get("dims") == (-1,)
        and mean.get("keep")
        and len({*square.inputs}) == 1
    )


def _unconverted(x: Operand) -> Operand:
    node = producer(x, "to")
    return x if node is None or node.get("dtype") != "float32" else node.inputs[0]


def _conversion(graph: Graph, last: Node) -> Node | None:
    """The only reader of a node, if it converts to a dtype that norms compute in."""
    node = graph.only_user(last.output)
    return node if node is not None and node.get("dtype") in COMPUTED and node.op == "to" else None


def _replace(graph: Graph, members: list[Node], x: Operand, eps: float) -> None:
    """Replace the members by a norm.

    It absorbs the conversion to float32 before it together with the one after it, or neither, and
    the weight, if that is a constant of the result's dtype, before or after that conversion.
    """
    attributes: dict[str, Attribute] = {"eps": eps, "dims": 1}
    wide = next((v for v in (x, members[0].inputs[0]) if v is not _unconverted(v)), None)
    narrowed = _conversion(graph, members[-1])
    if wide is not None and narrowed is not None:
        attributes["dtype"] = narrowed.get("dtype")
        x = _unconverted(x)
        members.append(narrowed)
    elif wide is not None:
        attributes["dtype"] = "float32"
        x = wide
    weighing = graph.only_user(members[-1].output)
    weight = _weight(weighing, members[-1].output, attributes.get("dtype"))
    if weighing is not None and weight is not None:
        attributes["dtype"] = str(weight.dtype)
        members.append(weighing)
    narrowed = _conversion(graph, members[-1])
    if wide is x and narrowed is not None:
        narrow, dtype = _unconverted(x), narrowed.get("dtype")
        if isinstance(narrow, Value) and narrow.dtype in (None, dtype):
            attributes["dtype"], x = dtype, narrow
            members.append(narrowed)
    substitute(graph, members, "rms_norm", [x, weight, None, None], **attributes)


def _weight(node: Node | None, x: Value, dtype: Attribute | None) -> Value | None:
    """The constant vector that a node multiplies ``x`` by."""
    if node is None or not is_one_of(node, ("binary.mul",)):
        return None
    vectors = (v for v in node.values() if v is not x and v.constant is not None and v.rank == 1)
    return next((v for v in vectors if dtype in (None, v.dtype)), None)
