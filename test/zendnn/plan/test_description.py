"""Invalid descriptions of plans."""

from __future__ import annotations

import pytest
import torch

BAD_TEXTS = {
    "": "not a plan|ends before",
    "hello": "line 1 .*not a plan",
    "zendnn-plan 2\nreturn \n": "version 2 .*optimize the module again",
    "zendnn-plan 3\n%1 = input tensor\n": "ends before its 'return'",
    "zendnn-plan 3\n%2 = eltwise(%1) algorithm=relu\nreturn %2\n": "line 2 .*before it is made",
    "zendnn-plan 3\n%1 = input tensor\n%1 = input tensor\nreturn %1\n": "line 3 .*made twice",
    "zendnn-plan 3\ntune fast\nreturn \n": "line 2 .*'fast' is not a number",
    "zendnn-plan 3\n%1 = input tensor\nnonsense\nreturn %1\n": "line 3 .*not understood",
    "zendnn-plan 3\n%1 = constant 0\nreturn %1\n": "comes with 0 constants and wants 1",
    "zendnn-plan 3\n%1 = input tensor\n%2 = linear(%1, %1) post=add@7\nreturn %2\n": "no operand",
    "zendnn-plan 3\n%1 = input tensor\n%2 = linear(%1, %1) post=add@-1\nreturn %2\n": "no operand",
    "zendnn-plan 3\n%1 = input tensor\n%2 = linear(%1, %1) post=add@2\nreturn %2\n": "no operand",
    "zendnn-plan 3\n%1 = constant 1\n%2 = constant 0\nreturn %1\n": "not in order",
    "zendnn-plan 3x\nreturn \n": "version 3x and",
    "another-plan 2\nreturn \n": "not a plan",
    "zendnn-plan 1\nreturn \n": "version 1",
    "zendnn-plan 3\n%1 = input tensor\n%2 = eltwise(%1) nonsense\nreturn %2\n": "no attribute",
    "zendnn-plan 3\n%1 = input tensor\n%2 = eltwise %1\nreturn %2\n": "not an operator",
    "zendnn-plan 3\n%1 = input tensor\n%2 = opaque(%1)\n": (
        "line 3 .*no operator 'opaque' in this build: optimize the module again"
    ),
    "zendnn-plan 3\n%1 = input tensor\n%2 = triu(%1) diagonl=1\n": "line 3 .*attribute 'diagonl'",
    "zendnn-plan 3\n%1 = input tensor\n%2 = embedding(%1) mode=sum\n": "attribute 'mode'",
    "zendnn-plan 3\n%1 = input tensor\n%2 = triu(%1) diagonal=all\n": "'all' is not a number",
    "zendnn-plan 3\n%1 = input tensor\n%2 = permute(%1, 0)\n": "ends before its 'return'",
    "zendnn-plan 3\n%1 = input numbr\nreturn \n": "line 2 .*no input 'numbr'",
    "zendnn-plan 3\n%1 = input tensor int65\nreturn \n": "line 2 .*no dtype 'int65' in this build",
    "zendnn-plan 3\n%1 = input tensor\n%2 = eltwise(%1) algorithm=erf\nreturn %2\n": (
        "line 3 .*no algorithm 'erf' in this build: optimize the module again"
    ),
    "zendnn-plan 3\n%1 = input tensor\n%2 = eltwise(%1)\nreturn %2\n": "states no 'algorithm'",
    "zendnn-plan 3\n%1 = input tensor\n%2 = compare(%1, %1) algorithm=add\nreturn %2\n": (
        "line 3 .*compare by 'add'"
    ),
    "zendnn-plan 3\n%1 = input tensor\n%2 = integer(%1, %1) algorithm=eq\nreturn %2\n": (
        "line 3 .*integer by 'eq'"
    ),
    "zendnn-plan 3\n%1 = input tensor\n%2 = to(%1) dtype=f32\nreturn %2\n": "no dtype 'f32'",
    "zendnn-plan 3\n%1 = input tensor\n%2 = linear(%1, %1) post=:\nreturn %2\n": "no post-op ''",
    "zendnn-plan 3\n%1 = input number float32\nreturn \n": "line 2 .*no input 'number float32'",
    "zendnn-plan 3\n, = input tensor\nreturn \n": "line 2 .*wants one name",
    "zendnn-plan 3\n, = constant 0\nreturn \n": "line 2 .*wants one name",
    "zendnn-plan x\n": "version x and",
}


@pytest.mark.parametrize("text", BAD_TEXTS, ids=lambda text: repr(text)[-40:])
def test_texts_that_are_no_description(text: str) -> None:
    with pytest.raises(RuntimeError, match=f"ZenDNN plan bad.*({BAD_TEXTS[text]})"):
        torch.classes.zendnn.Plan(text, [], "bad")
