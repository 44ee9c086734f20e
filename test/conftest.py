"""Fixtures of all tests: the same random numbers in every run."""

from __future__ import annotations

import random
import sys

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "reproducible",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
# `--hypothesis-profile=long` draws new examples in each run, or those of `--hypothesis-seed`.
settings.register_profile(
    "long",
    parent=settings.get_profile("reproducible"),
    derandomize=False,
    max_examples=2000,
    print_blob=True,
)
# Of `make nightly`: ten times the examples of `make test`, the same in each run.
settings.register_profile("nightly", parent=settings.get_profile("reproducible"), max_examples=1000)
settings.load_profile("reproducible")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Seed Python's generator and, in tests that use it, torch's."""
    random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
