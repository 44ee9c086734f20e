"""``torch.backends.zendnn.kernel_logger``: what kernels were given, and what ran."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from .common import CPU, of_products, stock, values

LOG = torch.backends.zendnn.kernel_logger

Entry = dict[str, Any]


@pytest.fixture(autouse=True)
def _empty_log() -> Iterator[None]:
    LOG.clear()
    yield
    LOG.disable()
    LOG.clear()


def logged(function: Callable[[], object]) -> list[Entry]:
    """The entries of ``function``'s calls."""
    LOG.enable()
    function()
    LOG.disable()
    entries: list[Entry] = json.loads(LOG.json())["calls"]
    return entries


@of_products
def test_an_entry_has_operands_attributes_implementation_and_time() -> None:
    x, weight = values(1, 16, 20, 20), values(32, 8, 3, 3)
    bias = values(32)
    with torch.no_grad():
        (entry,) = logged(lambda: F.conv2d(x, weight, bias, stride=2, padding=1, groups=2))
    assert entry["operator"] == "aten::_convolution"
    first, second, third = entry["operands"]
    assert first == {
        "name": "input",
        "shape": [1, 16, 20, 20],
        "strides": [6400, 400, 20, 1],
        "dtype": "float32",
    }
    assert (second["name"], third["name"]) == ("weight", "bias")
    assert entry["attributes"]["stride"] == [2, 2]
    assert entry["attributes"]["padding"] == [1, 1]
    assert entry["attributes"]["groups"] == 2
    assert (entry["route"], entry["reason"]) == ("eager", "")
    assert "convolution " in entry["implementation"]
    assert entry["ms"] > 0


def test_an_entry_of_torch_has_the_reason() -> None:
    x, y = values(40, 40).double(), values(4, 64)
    with stock():
        (off,) = logged(lambda: torch.softmax(y, -1))
    LOG.clear()
    (dtype,) = logged(lambda: torch.mm(x, x.t()))
    assert (off["route"], off["reason"]) == ("torch", "ZenDNN is switched off")
    assert dtype["reason"] == "a dtype that ZenDNN does not support here"
    assert dtype["operands"][1]["strides"] == [1, 40]
    assert dtype["implementation"] == ""


def test_lists_of_tensors_missing_tensors_and_numbers_are_logged() -> None:
    x = values(4, 64)
    cat, norm, clamp = logged(
        lambda: (torch.cat([x, x]), F.layer_norm(x, (64,)), torch.clamp(x, max=float("inf")))
    )
    assert [len(operand["list"]) for operand in cat["operands"]] == [2]
    assert norm["attributes"]["weight"] is None
    assert norm["attributes"]["eps"] == 1e-5
    assert clamp["attributes"] == {"min": None, "max": "inf"}


def test_a_region_has_its_description_constants_and_steps() -> None:
    module = nn.Sequential(nn.Linear(256, 128), nn.Softmax(-1)).eval()
    frozen = torch.jit.freeze(torch.jit.script(module))
    plan, x = torch.jit.optimize_for_inference(frozen), values(64, 256)
    with torch.no_grad():
        *_, entry = logged(lambda: plan(x))  # after what TorchScript's optimiser compares
    assert entry["operator"].startswith("zendnn::")
    assert [x["shape"] for x in entry["operands"]] == [[64, 256]]
    assert "softmax" in entry["attributes"]["description"]
    assert {"shape": [128, 256], "strides": [256, 1], "dtype": "float32"} in [
        {name: x[name] for name in ("shape", "strides", "dtype")}
        for x in entry["attributes"]["constants"]
    ]
    assert [(step["operator"], step["route"]) for step in entry["steps"]] == [
        ("aten::linear", "plan"),
        ("aten::softmax", "plan"),
    ]
    assert entry["steps"][0]["operands"][0]["shape"] == [64, 256]


def test_views_allocations_and_printing_are_no_kernel_calls() -> None:
    x = values(4, 64)
    entries = logged(lambda: (torch.empty(3), x.t(), x.view(-1), repr(x), torch.sigmoid(x.t())))
    assert [entry["operator"] for entry in entries] == ["aten::sigmoid"]
    assert entries[0]["implementation"] == f"eltwise kernel:{CPU['kernels']}"


def test_the_log_grows_until_it_is_cleared() -> None:
    x = values(4, 64)
    logged(lambda: torch.sigmoid(x))
    torch.sigmoid(x)
    assert len(logged(lambda: torch.softmax(x, -1))) == 2
    LOG.enable()
    torch.sigmoid(x)
    LOG.clear()
    torch.softmax(x, -1)
    LOG.enable()
    assert [entry["operator"] for entry in json.loads(LOG.json())["calls"]] == ["aten::_softmax"]


def test_a_log_holds_no_memory_of_tensors() -> None:
    x = values(1000, 1000)
    kept = torch.utils.weak.WeakTensorKeyDictionary({x: 1})
    logged(functools.partial(torch.sigmoid, x))
    del x
    assert len(kept) == 0
    assert len(LOG.json()) < 2000
