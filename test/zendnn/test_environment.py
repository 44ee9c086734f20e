"""Environment variables: an invalid value warns once, and the default applies."""

from __future__ import annotations

import pytest

from .common import run_python

CODE = """
import warnings
import torch
from torch import nn

net = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()).eval()
with warnings.catch_warnings(record=True) as caught, torch.no_grad():
    warnings.simplefilter("always")
    torch.empty(1 << 20)  # larger than a huge page
    module = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.script(net)))
    for size in (8, 9):
        x = torch.randn(1, 8, size, size)
        torch.testing.assert_close(module(x), net(x), rtol=1e-4, atol=1e-4)
for warning in caught:
    if "ZENDNN_" in str(warning.message):
        print(str(warning.message).partition(" (Triggered")[0])
"""

#: Prints the import's warnings, which is when some variables are read.
IMPORT = """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch
for warning in caught:
    if "ZENDNN_" in str(warning.message):
        print(str(warning.message).partition(" (Triggered")[0])
"""

TOLD = {
    ("ZENDNN_PLAN_LAYOUT", "nhwc"): "which is none of any channels_last blocked: it stays any",
    ("ZENDNN_WINOGRAD", "yes"): "which is none of 1 0 2: it stays 1",
    ("ZENDNN_TUNING_BUDGET", "fast"): "which is no number from 0 on: it stays 2",
    ("ZENDNN_TUNING_BUDGET", "nan"): "which is no number from 0 on: it stays 2",
    ("ZENDNN_TUNING_BUDGET", "-1"): "which is no number from 0 on: it stays 2",
    ("ZENDNN_HUGE_PAGES", "no"): "which is none of 1 0: it stays 1",
    ("ZENDNN_PLAN_CACHE_CAPACITY", "-1"): "which is no whole number from 0 on: it stays 32",
    ("ZENDNN_PLAN_CACHE_CAPACITY", ""): "which is no whole number from 0 on: it stays 32",
}


@pytest.mark.parametrize(("name", "value"), TOLD, ids=str)
def test_an_invalid_value_warns_once(name: str, value: str) -> None:
    printed = run_python(CODE, **{"ZENDNN_TUNING_BUDGET": "0.05"} | {name: value})
    assert printed == f"{name} is '{value}', {TOLD[name, value]}\n"


def test_an_invalid_value_of_rounding_warns_once_when_torch_is_imported() -> None:
    code = CODE.replace("\nimport torch\n", f"\n{IMPORT}\n", 1) + CODE
    printed = run_python(code, ZENDNN_TUNING_BUDGET="0.05", ZENDNN_EMULATE_PRECISION_CASTS="yes")
    assert printed == (
        "ZENDNN_EMULATE_PRECISION_CASTS is 'yes', which is none of 0 1: it stays 0\n"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ZENDNN_PLAN_LAYOUT", "blocked"),
        ("ZENDNN_WINOGRAD", "2"),
        ("ZENDNN_TUNING_BUDGET", "1e-2"),
        ("ZENDNN_ALLOCATOR_CACHE", "0"),
        ("ZENDNN_HUGE_PAGES", "0"),
        ("ZENDNN_PLAN_CACHE_CAPACITY", "1"),
    ],
)
def test_a_valid_value_does_not_warn(name: str, value: str) -> None:
    assert not run_python(CODE, **{"ZENDNN_TUNING_BUDGET": "0.05"} | {name: value})
