"""Fixtures of this folder: ZenDNN is installed, the seed is fixed, switches are restored."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

pytest.register_assert_rewrite("zendnn.support")

MISSING = "these tests need a torch with ZenDNN: USE_ZENDNN=1 python setup.py install"


@pytest.fixture(scope="session", autouse=True)
def zendnn_is_installed() -> None:
    """Fails with one sentence instead of an AttributeError in a test."""
    zendnn = getattr(torch.backends, "zendnn", None)
    if zendnn is None or not zendnn.is_available():
        pytest.fail(MISSING, pytrace=False)


@pytest.fixture(autouse=True)
def clean_state(zendnn_is_installed: None) -> Iterator[None]:
    """Seeds torch; restores switches and thread count after the test."""
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    flags = torch.backends.zendnn.set_flags(True, False)
    yield
    torch.backends.zendnn.set_flags(*flags)
    torch.set_num_threads(threads)


@pytest.fixture
def fresh_dynamo(clean_state: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forgets what torch.compile has made, before the test and after it; plans time nothing."""
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", "0")
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
