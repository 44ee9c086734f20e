"""What regions hand over, on every front end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..common import stock, values
from ..support.front_ends import frozen

# torch warns that TorchScript is deprecated.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("error:ZenDNN"),
    pytest.mark.usefixtures("fresh_dynamo"),
]

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "columns": lambda y: y[:, 2:],
    "of a view": lambda y: y.t()[2:].unsqueeze(0)[0],
    "chunk": lambda y: y.chunk(2, 1)[1],
    "unbind": lambda y: y.view(6, 2, 4).unbind(1)[1],
    "of sizes": lambda y: y.narrow(1, y.shape[0] // 2, y.shape[0] // 3),
    "of an identity": lambda y: F.dropout(y, 0.5, False)[::2, 1:],
    "of a sum": lambda y: (y + 1).select(0, 3),
}


class Viewed(nn.Module):
    """A view that a plan reads, and what nobody but torch computes."""

    def __init__(self, view: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.view, self.layer = view, nn.Linear(5, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = self.view(F.relu(self.layer(x)))
        below = y.as_strided((3,), (1,), 0) * 2  # reads what lies before the view
        kept = torch.slice_scatter(y, torch.zeros_like(y[:1]), 0, 0, 1)  # keeps its strides
        return F.softmax(y * 3, -1) @ y.new_ones(y.shape[-1]), below, kept


def compiled(model: nn.Module, x: Tensor) -> Any:
    return torch.compile(model, backend="zendnn", options={"rest": "eager"})


def exported(model: nn.Module, x: Tensor) -> Any:
    return torch.backends.zendnn.optimize(torch.export.export(model, (x,)))


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("prepare", [compiled, exported, frozen], ids=lambda f: f.__name__)
def test_views_that_others_read_keep_their_memory(prepare: Callable[..., Any], view: str) -> None:
    model, x = Viewed(VIEWS[view]).eval(), values(6, 5)
    with torch.no_grad():
        with stock():
            want = model(x)
        fast = prepare(model, x)
        fast(x)
        with torch.backends.zendnn.record() as events:
            got = fast(x)
    assert "plan" in {event.route for event in events}
    torch.testing.assert_close(got, want)
    assert [y.stride() for y in got] == [y.stride() for y in want]


class Highway(nn.Module):
    """Functions of each element, and nothing that alone is worth a call."""

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(x + 0.5)
        return gate * torch.tanh(x) + (1 - gate) * x


@pytest.mark.parametrize("prepare", [compiled, exported, frozen], ids=lambda f: f.__name__)
def test_a_chain_of_light_operators_is_one_step(prepare: Callable[..., Any]) -> None:
    model, x = Highway().eval(), values(6, 5)
    with torch.no_grad():
        fast = prepare(model, x)
        fast(x)
        with torch.backends.zendnn.record() as events:
            got = fast(x)
        with stock():
            torch.testing.assert_close(got, model(x))
    (event,) = events
    assert event.route == "plan"
    assert event.implementation.count(", ") >= 5
