"""What a graph says of the sizes of its values, before it sees a tensor."""

from __future__ import annotations

from collections.abc import Iterable

from torch.backends.zendnn.graph import Node, Operand, Value
from torch.backends.zendnn.passes._operators import operator
from torch.backends.zendnn.passes._shapes import Shape, unknown


class Sizes:
    """What constants and operators fix; graph inputs and opaque results have no sizes here."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._shapes: dict[Value, Shape] = {}
        for node in nodes:
            self.learn(node)

    def of(self, operand: Operand) -> Shape | None:
        """The shape of a tensor; None when not even its rank is known."""
        if not isinstance(operand, Value):
            return None
        if operand.constant is not None:
            return tuple(operand.constant.shape)
        return self._shapes.get(operand)

    def rank(self, operand: Operand) -> int | None:
        """How many dimensions a tensor has."""
        shape = self.of(operand)
        return None if shape is None else len(shape)

    def learn(self, node: Node) -> None:
        """Note what a node says of its results; nodes are shown in order."""
        rule = operator(node).shape
        try:
            shape = None if rule is None else rule(node, [self.of(x) for x in node.inputs])
        except IndexError:  # the model's own error, raised when it runs
            return
        if shape is not None:
            # What a post-op reads may be larger.
            shape = unknown(len(shape)) if node.post_ops else shape
            self._shapes.update(dict.fromkeys(node.outputs, shape))

    def learn_rank(self, value: Value, rank: int) -> None:
        """Note a rank that somebody else knows."""
        if self.rank(value) != rank:
            self._shapes[value] = unknown(rank)
