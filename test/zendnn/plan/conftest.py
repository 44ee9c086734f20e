"""Fixtures of plans: nothing is timed unless a test asks; images have any layout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from torch.backends.zendnn import _C

from ..support.choices import Choices
from ..support.graphs import Builder
from ..support.samples import LAYOUTS


@pytest.fixture(autouse=True)
def untimed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Uses the first implementation, without timing, whatever another test has timed."""
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "0")
    _C._forget_tuning()
    yield
    _C._forget_tuning()


@pytest.fixture
def choices(untimed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Choices:
    """Plans time, and keep their choices in a file of the test's."""
    path = tmp_path / "choices"
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "60")
    monkeypatch.setenv("ZENDNN_TUNING_CACHE", str(path))
    return Choices(path)


@pytest.fixture
def b() -> Builder:
    return Builder()


@pytest.fixture(params=LAYOUTS)
def images(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The layout of images inside a plan."""
    monkeypatch.setenv("ZENDNN_PLAN_LAYOUT", request.param)
    return str(request.param)
