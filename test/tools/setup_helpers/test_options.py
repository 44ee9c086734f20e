"""tools/setup_helpers/options.py: the numbers that an option takes."""

from __future__ import annotations

import argparse

import pytest

from tools.setup_helpers.options import positive


def test_positive_takes_finite_numbers_above_zero() -> None:
    assert positive(int)("3") == 3
    assert positive(float)("0.5") == 0.5
    for text in ("0", "-1", "inf", "nan"):
        with pytest.raises(argparse.ArgumentTypeError, match=f"{text} is not above zero"):
            positive(float)(text)
