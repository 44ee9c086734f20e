"""What the tests of plans share: nothing is timed, and how images lie is a parameter."""

from __future__ import annotations

import pytest

from ..passes.build import Builder
from .samples import LAYOUTS


@pytest.fixture(autouse=True)
def untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first implementation serves: which one is faster is not the subject here."""
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "0")


@pytest.fixture
def b() -> Builder:
    return Builder()


@pytest.fixture(params=LAYOUTS)
def images(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How a plan lays out images inside."""
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", request.param)
    return str(request.param)
