"""Fixtures of plans: nothing is timed, and the layout of images is a parameter."""

from __future__ import annotations

import pytest

from ..passes.build import Builder
from .samples import LAYOUTS


@pytest.fixture(autouse=True)
def untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses the first implementation, without timing."""
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "0")


@pytest.fixture
def b() -> Builder:
    return Builder()


@pytest.fixture(params=LAYOUTS)
def images(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The layout of images inside a plan."""
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", request.param)
    return str(request.param)
