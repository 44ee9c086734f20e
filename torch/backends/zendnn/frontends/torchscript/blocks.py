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


def blocks_below(block: TorchBlock) -> Iterator[TorchBlock]:
    """Yield a block and the blocks inside it, without those of calls that an earlier run made."""
    yield block
    for node in list(block.nodes()):
        if not is_guarded_call(node):
            for inner in node.blocks():
                yield from blocks_below(inner)


def is_guarded_call(node: TorchNode) -> bool:
    """Whether a node is a call of a plan with its fallback."""
    return node.kind() == "prim::If" and is_guard(node.inputsAt(0).node())


def is_guard(node: TorchNode) -> bool:
    """Whether a node asks a plan what it takes."""
    return bool(node.kind() == "zendnn::takes")


def captured(node: TorchNode) -> list[TorchValue]:
    """Return what a node reads: its inputs and what its blocks take from outside."""
    read = {value.unique(): value for value in node.inputs()}
    for block in node.blocks():
        inside = [value for member in block.nodes() for value in captured(member)]
        local = {value.unique() for member in block.nodes() for value in member.outputs()}
        local.update(value.unique() for value in block.inputs())
        for value in (*inside, *block.outputs()):
            if value.unique() not in local:
                read[value.unique()] = value
    return list(read.values())
