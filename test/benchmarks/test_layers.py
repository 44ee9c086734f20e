"""benchmarks/layers.py: a plan runs each problem, and computes what stock torch does."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from benchmarks import layers as module  # noqa: E402 (torch may be missing)
from benchmarks.problems import Problem  # noqa: E402

pytestmark = [
    pytest.mark.skipif(
        getattr(torch.backends, "zendnn", None) is None, reason="a torch without ZenDNN"
    ),
    # torch warns that TorchScript is deprecated.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]

SMALL = [
    (module.frozen(4, 6, 9, 1, stride=2), (1, 6, 5, 5)),
    (module.frozen(4, 6, 9, 3, residual=True), (1, 6, 9, 9)),
    (module.frozen_function("sin", torch.sin, 3, 8), (3, 8)),
    (module.layer("pool", lambda: torch.nn.MaxPool1d(2), 3, 8, 20), (3, 8, 10)),
    (module.layer("sort", lambda: lambda x: x.sort()[0], 3, 40), (3, 40)),
    (module.layer("conv", lambda: torch.nn.Conv1d(8, 6, 1), 3, 8, 20), (3, 6, 20)),
]


def results(problem: Problem, dtype: Any) -> tuple[list[Any], set[str]]:
    """Both sides' first results, and the routes of ours."""
    with torch.inference_mode():
        ours, stock = problem.make(dtype)
        with torch.backends.zendnn.record() as events:
            values = [ours()]
        with torch.backends.zendnn.flags(enabled=False):
            values.append(stock())
    first = [value[0] if isinstance(value, tuple) else value for value in values]
    return first, {event.route for event in events}


@pytest.mark.parametrize(("problem", "size"), SMALL, ids=[problem.name for problem, _ in SMALL])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_problem_matches_its_name(problem: Problem, size: tuple[int, ...], dtype: Any) -> None:
    values, _ = results(problem, dtype)
    assert [(tuple(value.shape), value.dtype) for value in values] == [(size, dtype)] * 2
    assert problem.flop or problem.values


@pytest.mark.parametrize("problem", module.LAYERS, ids=lambda problem: problem.name)
def test_a_plan_computes_what_stock_torch_does(problem: Problem) -> None:
    torch.manual_seed(0)
    (ours, stock), routes = results(problem, torch.float32)
    assert "plan" in routes
    # Logarithms of negative numbers are NaN.
    torch.testing.assert_close(ours, stock, rtol=1e-3, atol=1e-3, equal_nan=True)
