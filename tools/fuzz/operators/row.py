"""What a row of the table of operators says, and what rows share."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nnsmith.abstract.dtype import DType

from tools.fuzz.model import Data

Sizes = list[Any]
Attributes = dict[str, Any]
#: An expression as ``model.Node`` has it, and the weights in it.
Text = tuple[str, list[Data]]

F32, I64, BOOL = DType.float32, DType.int64, DType.bool
FEW = (1, 1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 24, 31, 32, 33, 48, 64, 65)


@dataclass(frozen=True)
class Operator:
    """An operator that NNSmith lacks.

    ``ranks`` lists the ranks that each input may have; ``draw`` chooses attributes for given ranks;
    ``needs`` returns the constraints on sizes, ``gives`` the result's sizes. ``back`` returns the
    inputs' ranks for a result's rank; with it, NNSmith may insert the operator before existing
    ones.
    """

    name: str
    ranks: tuple[tuple[int, ...], ...]
    text: Callable[[list[Sizes], Attributes], Text]
    gives: Callable[[list[Sizes], Attributes], Sizes] = lambda shapes, a: list(shapes[0])
    needs: Callable[[list[Sizes], Attributes], list[Any]] = lambda shapes, a: []
    draw: Callable[[list[int]], Attributes] = lambda ranks: {}
    back: Callable[[int], list[int]] | None = None
    takes: tuple[DType, ...] = (F32,)
    returns: DType = F32
    often: int = 1


def weight(shape: Sequence[int], kind: str = "normal", **more: Any) -> Data:
    return Data("", tuple(shape), kind=kind, **more)


def up_to(last: int, first: int = 1) -> tuple[int, ...]:
    return tuple(range(first, last + 1))


def maybe(text: str, chance: float = 0.5) -> str:
    return text if random.random() < chance else "None"


def same_rank(count: int) -> Callable[[int], list[int]]:
    return lambda rank: [rank] * count
