"""Walks TorchScript graphs: blocks inside blocks, and what a node reads in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.backends.zendnn.frontends.torchscript.calls import TorchNode, TorchValue

#: ``torch._C.Block`` and ``Graph``; torch's stubs know too little of them.
TorchBlock = Any
TorchGraph = Any


def outer_block(graph: TorchGraph) -> TorchBlock:
    """Return the block that holds all others."""
    return graph.return_node().owningBlock()


def blocks_below(block: TorchBlock, *, of_calls: bool = False) -> Iterator[TorchBlock]:
    """Yield a block and the blocks inside it; those that an earlier run made if ``of_calls``."""
    yield block
    for node in list(block.nodes()):
        if of_calls or not is_guarded_call(node):
            for inner in node.blocks():
                yield from blocks_below(inner, of_calls=of_calls)


def is_guarded_call(node: TorchNode) -> bool:
    """Whether a node is a call of a plan with its fallback."""
    return node.kind() == "prim::If" and is_guard(node.inputsAt(0).node())


def is_guard(node: TorchNode) -> bool:
    """Whether a node asks a plan what it takes."""
    return bool(node.kind() == "zendnn::takes")


def captured(node: TorchNode) -> list[TorchValue]:
    """Return what a node reads: its inputs and what its blocks take from outside."""
    read = {value.unique(): value for value in node.inputs()}
    made: set[int] = set()
    for inner in node.blocks():
        for block in blocks_below(inner, of_calls=True):
            made.update(value.unique() for value in block.inputs())
            values = list(block.outputs())
            for member in block.nodes():
                made.update(value.unique() for value in member.outputs())
                values.extend(member.inputs())
            read.update((value.unique(), value) for value in values)
    return [value for key, value in read.items() if key not in made]
