"""What every test of this folder needs: ZenDNN itself, a fixed seed, switches left as they were."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

MISSING = "these tests want a torch with ZenDNN: USE_ZENDNN=1 python setup.py install"


@pytest.fixture(scope="session", autouse=True)
def zendnn_is_installed() -> None:
    """Fails with one sentence rather than with an AttributeError somewhere in a test."""
    zendnn = getattr(torch.backends, "zendnn", None)
    if zendnn is None or not zendnn.is_available():
        pytest.fail(MISSING, pytrace=False)


@pytest.fixture(autouse=True)
def clean_state(zendnn_is_installed: None) -> Iterator[None]:
    """Seeds torch; afterwards nobody else's test may inherit a switch or a thread count."""
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    flags = torch.backends.zendnn.set_flags(True, False)
    yield
    torch.backends.zendnn.set_flags(*flags)
    torch.set_num_threads(threads)
