"""Compiled models, and the routes that they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo.testing
import torch.nn.functional as F
from torch import Tensor, nn

from ..common import values


class Net(nn.Module):
    """A convolution with a batch norm to fold, and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16)
        self.out = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.out(F.relu(self.norm(self.conv(x)), inplace=True).mean((2, 3)))
        return y


IMAGE = values(2, 3, 8, 9)


def routes(function: Callable[..., Any], *inputs: Any) -> set[str]:
    with torch.no_grad(), torch.backends.zendnn.record() as events:
        function(*inputs)
    return {event.route for event in events}
