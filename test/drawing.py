"""How tests draw random examples, and how many.

The hypothesis profile scales their number; see ``test/conftest.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

#: A function that draws from a strategy, in a test or in a composite strategy.
Draw = Callable[..., Any]


def examples(count: int, **more: Any) -> settings:
    """Settings for ``count`` examples under the default profile, scaled for other profiles.

    Call it when the tests are imported: pytest has loaded ``--hypothesis-profile`` by then.
    """
    return settings(max_examples=max(1, count * settings().max_examples // 100), **more)


def property_test(test: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a test 60 examples, which are few enough to be fast."""
    tested: Callable[..., Any] = examples(60)(test)
    return tested


def one_of(draw: Draw, choices: Sequence[Any]) -> Any:
    """One of the choices, drawn by index, so that it shrinks to the first."""
    return choices[draw(st.integers(0, len(choices) - 1))]
