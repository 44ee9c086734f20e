"""Makes operators of their in-place twins where nobody can tell the difference.

torch's own pass takes ``x.add_(y)`` for ``x.add(y)``, whose result may have a wider dtype than x,
or another size. ``zendnn::in_place`` behind such an operator converts its result to the dtype of x,
and raises torch's errors of the in-place twin.
"""

from __future__ import annotations

import torch
from torch.backends.zendnn.frontends.calls import ANY
from torch.backends.zendnn.frontends.torchscript.aliases import IN_PLACE, Aliases
from torch.backends.zendnn.frontends.torchscript.blocks import (
    TorchGraph,
    blocks_below,
    outer_block,
)
from torch.backends.zendnn.frontends.torchscript.calls import (
    TorchNode,
    TorchScriptCall,
    qualified,
)
from torch.backends.zendnn.ir.node import Value

_DROPOUTS = qualified("aten", "dropout feature_dropout alpha_dropout feature_alpha_dropout")
#: Operators whose result may have another dtype or size than their first argument.
_PROMOTING = qualified(
    "aten",
    "add sub mul div subtract multiply divide true_divide floor_divide pow float_power remainder "
    "fmod atan2 arctan2 addcmul addcdiv clamp clamp_max clamp_min clip hypot copysign xlogy ldexp "
    "nextafter igamma igammac heaviside lerp gcd lcm cumsum cumprod addmm addmv addr addbmm "
    "baddbmm _add_relu masked_scatter eq ne lt le gt ge less less_equal greater greater_equal "
    "not_equal logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor "
    "bitwise_left_shift bitwise_right_shift "
    # Of integers, these make floating-point numbers.
    "acos acosh arccos arccosh asin asinh arcsin arcsinh atan atanh arctan arctanh cos cosh "
    "deg2rad digamma erf erfc erfinv exp exp2 expm1 i0 lgamma log log10 log1p log2 logit mvlgamma "
    "polygamma rad2deg reciprocal rsqrt sigmoid sin sinc sinh sqrt square tan tanh",
)


def remove_mutation(graph: TorchGraph, aliases: Aliases) -> None:
    """Rewrite in-place operators on tensors that nobody else holds."""
    # torch's pass takes constants for new tensors, and what is written to them would be lost.
    constants = (node.output() for node in graph.findAllNodes("prim::Constant"))
    if any(map(aliases.has_writers, constants)):
        return
    before = set(_promoting(graph))
    torch._C._jit_pass_remove_mutation(graph)
    for node in _promoting(graph):
        if node not in before:
            result = node.output()
            mark = graph.create(IN_PLACE, [result, node.inputsAt(0)], 1)
            mark.insertAfter(node)
            result.replaceAllUsesAfterNodeWith(mark, mark.output())


def remove_dropout(graph: TorchGraph) -> None:
    """Replace each dropout that drops nothing by its input, which it returns itself."""
    for block in blocks_below(outer_block(graph)):
        for node in block.nodes():
            if node.kind() in _DROPOUTS and node.inputsAt(2).toIValue() is False:
                node.output().replaceAllUsesWith(node.inputsAt(0))


def _promoting(graph: TorchGraph) -> list[TorchNode]:
    return [
        node
        for block in blocks_below(outer_block(graph))
        for node in block.nodes()
        if node.kind() in _PROMOTING
    ]


def import_in_place(call: TorchScriptCall) -> None:
    """Import ``zendnn::in_place``."""
    result, target = (call.operand_of(value) for value in call.node.inputs())
    maker = result.producer if isinstance(result, Value) else None
    if maker is None or maker.op not in ("binary", "eltwise") or maker.inputs[0] is not target:
        taken = [call.tensor(name, ANY) for name in ("result", "target")]
        call.result("to_like", taken, in_place=True)
        return
    assert isinstance(result, Value)
    if maker.op == "binary":
        maker.attributes["in_place"] = True
    result.source = call.outputs[0]  # so that nothing outside reads what the operator itself made
    call.identity(result)
