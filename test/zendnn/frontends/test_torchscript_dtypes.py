"""Which tensors have integer dtypes, as far as a graph without dtypes shows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.backends.zendnn.frontends.torchscript.dtypes import whole_values

from ..common import values

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]

Function = Callable[[Tensor], Tensor]


def shown(function: Function, x: Tensor) -> tuple[bool, bool]:
    """Whether the graph of a function shows that its input, and its result, are integers."""
    graph = torch.jit.trace(function, x).graph
    known = whole_values(graph.nodes())
    (argument,), (result,) = graph.inputs(), graph.outputs()
    return argument.unique() in known, result.unique() in known


IDS = torch.tensor([[1, 2, 3], [4, 5, 6]])
FLOATS = values(2, 3)
TABLE = values(8, 4)

#: Functions with integer (or bool) results for any input.
MAKE_WHOLE: dict[str, Function] = {
    "comparison": lambda x: x > 0,
    "logic": lambda x: torch.logical_not(x),
    "argmax": lambda x: x.argmax(-1),
    "conversion": lambda x: x.to(torch.int64),
    "zeros of a dtype": lambda x: torch.zeros_like(x, dtype=torch.int32),
    "range": lambda x: torch.arange(3, dtype=torch.int64),
    "sum of two": lambda x: (x > 0) + (x < 1),
    "view of one": lambda x: (x > 0).reshape(-1).unsqueeze(0).transpose(0, 1),
    "arithmetic with integers": lambda x: x.argmax(-1) * 3 - 1,
    "remainder": lambda x: x.argmax(-1) % 2,
    "largest": lambda x: x.argmax(-1).amax(),
    "running sum": lambda x: (x > 0).cumsum(0),
    "filled where": lambda x: x.argmax(-1).masked_fill(x[:, 0] > 0, 7),
    "type of another": lambda x: x.type_as(x.argmax(-1)),
}
#: Functions with other results, although they compute with integers.
MAKE_FLOATS: dict[str, Function] = {
    "arithmetic with a float": lambda x: x.argmax(-1) * 0.5,
    "arithmetic with floats": lambda x: x + (x > 0),
    "conversion back": lambda x: (x > 0).to(torch.float32),
    "conversion to half": lambda x: (x > 0).to(torch.float16),
    "conversion to bfloat16": lambda x: (x > 0).to(torch.bfloat16),
    "division": lambda x: x.argmax(-1) / 2,
    "running sum of a dtype": lambda x: (x > 0).cumsum(0, dtype=torch.float32),
    "table": lambda x: F.embedding(x.argmax(-1), TABLE),
    "function": lambda x: torch.tanh(x.argmax(-1)),
    "type of another": lambda x: (x > 0).type_as(x),
    "zeros": lambda x: torch.zeros_like(x),
}
#: Functions that read their input as indices.
READ_WHOLE: dict[str, Function] = {
    "table": lambda x: F.embedding(x, TABLE),
    "bags": lambda x: F.embedding_bag(x, TABLE),
    "row of a table": lambda x: TABLE.index_select(0, x.reshape(-1)),
    "gathered": lambda x: TABLE.gather(0, x),
    "one hot": lambda x: F.one_hot(x),
    "smallest": lambda x: F.one_hot(x.amin(0)),
    "table of the sum of ids and ids": lambda x: F.embedding((x + x).clamp(0, 7), TABLE),
    "table of a view": lambda x: F.embedding(x.flatten().contiguous()[1:], TABLE),
}


@pytest.mark.parametrize("name", MAKE_WHOLE)
def test_some_operators_always_have_integer_results(name: str) -> None:
    function = MAKE_WHOLE[name]
    assert not function(FLOATS).is_floating_point()
    assert shown(function, FLOATS)[1]


@pytest.mark.parametrize("name", MAKE_FLOATS)
def test_results_that_may_be_floats_are_not_known_as_integers(name: str) -> None:
    function = MAKE_FLOATS[name]
    assert function(FLOATS).is_floating_point()
    assert not shown(function, FLOATS)[1]


@pytest.mark.parametrize("name", READ_WHOLE)
def test_inputs_that_are_read_as_indices_are_integers(name: str) -> None:
    assert shown(READ_WHOLE[name], IDS)[0]


def test_an_input_of_arithmetic_may_have_any_dtype() -> None:
    assert shown(lambda x: x * 2 + 1, FLOATS) == (False, False)
    assert shown(lambda x: x * 2 + 1, IDS) == (False, False)


def test_knowledge_from_an_index_propagates_both_ways() -> None:
    """Ids are integers since they index a table, and so are other values computed from them."""
    graph = torch.jit.trace(lambda x: (F.embedding(x, TABLE), x.unsqueeze(0) + 1), IDS).graph
    known = whole_values(graph.nodes())
    (both,) = [node for node in graph.nodes() if node.kind() == "prim::TupleConstruct"]
    assert [value.unique() in known for value in both.inputs()] == [False, True]
