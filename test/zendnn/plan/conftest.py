"""Fixtures of plans: nothing is timed unless a test asks; images have any layout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..passes.build import Builder
from .choices import Choices
from .samples import LAYOUTS


@pytest.fixture(autouse=True)
def untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses the first implementation, without timing."""
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "0")


@pytest.fixture
def choices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Choices]:
    """Plans time, and keep their choices in a file of the test's."""
    path = tmp_path / "choices"
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "60")
    monkeypatch.setenv("ZENDNN_TUNING_CACHE", str(path))
    Choices.forget()
    yield Choices(path)
    Choices.forget()


@pytest.fixture
def b() -> Builder:
    return Builder()


@pytest.fixture(params=LAYOUTS)
def images(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The layout of images inside a plan."""
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", request.param)
    return str(request.param)
