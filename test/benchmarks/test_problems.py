"""benchmarks/problems.py: problems match their names and their numbers."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402 (torch may be missing)
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from benchmarks import limit  # noqa: E402
from benchmarks import problems as module  # noqa: E402
from benchmarks.layers import LAYERS  # noqa: E402

DTYPES = (torch.float32, torch.bfloat16)


@pytest.fixture(autouse=True)
def small_caches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(limit, "cold_bytes", lambda: 16 * limit.MIB)
    module._pool.cache_clear()
    yield
    module._pool.cache_clear()


def results(problem: module.Problem, dtype: Any) -> list[Any]:
    """Both sides' results, without an RNN's state."""
    with torch.inference_mode():
        values = [call() for call in problem.make(dtype)]
    return [value[0] if isinstance(value, tuple) else value for value in values]


def test_names_of_problems_are_unique_and_models_are_known() -> None:
    names = [problem.name for problem in (*module.PROBLEMS, *LAYERS)]
    assert len(names) == len(set(names))
    used = {model for problem in module.PROBLEMS for model in problem.models}
    assert used == set(module.MODELS)


SMALL = [
    (module.linear(3, 4, 5), (3, 5)),
    (module.mm(3, 4, 5, "nn"), (3, 5)),
    (module.mm(3, 4, 5, "tn"), (3, 5)),
    (module.mm(3, 4, 5, "nt"), (3, 5)),
    (module.addmm(3, 4, 5), (3, 5)),
    (module.addmv(3, 4), (3,)),
    (module.bmm(2, 3, 4, 5), (2, 3, 5)),
    (module.bmm(2, 3, 4, 5, form="nt"), (2, 3, 5)),
    (module.baddbmm(2, 3, 4, 5), (2, 3, 5)),
    (module.convolution(4, 6, 9, 3), (1, 6, 9, 9)),
    (module.convolution(4, 6, 9, 3, stride=2, groups=2), (1, 6, 5, 5)),
    (module.convolution(4, 4, 9, 3, groups=4), (1, 4, 9, 9)),
    (module.convolution(4, 6, 8, 4, stride=4, padding=0), (1, 6, 2, 2)),
    (module.convolution(4, 6, (9,), 3, padding=0), (1, 6, 7)),
    (module.convolution(4, 6, (3, 9, 9), (1, 3, 3), stride=2), (1, 6, 2, 5, 5)),
    (module.convolution(4, 6, 5, 4, stride=2, padding=1, transposed=True), (1, 6, 10, 10)),
    (module.attention(2, 3, 5, 7, 8), (2, 3, 5, 8)),
    (module.attention(2, 3, 5, 5, 8, causal=True), (2, 3, 5, 8)),
    (module.attention(2, 4, 5, 7, 8, key_heads=2), (2, 4, 5, 8)),
    (module.max_pool(3, 9, 3, stride=2, padding=1), (1, 3, 5, 5)),
    (module.batch_norm(3, 5, batch=2), (2, 3, 5, 5)),
    (module.batch_norm(3, 5, batch=2, training=True), (2, 3, 5, 5)),
    (module.norm("layer_norm", 3, 8), (3, 8)),
    (module.norm("rms_norm", 3, 8), (3, 8)),
    (module.elementwise("gelu", torch.nn.functional.gelu, 3, 8, "other"), (3, 8)),
    (module.embedding_bag("sum", 50, 8, 3, 2), (3, 8)),
    (module.embedding_bag("sum", 50, 8, 3, 2, weighted=True), (3, 8)),
    (module.embedding_bag("sum", 50, 8, 3, 2, padding=0), (3, 8)),
    (module.embedding_bag("max", 50, 8, 3, 2), (3, 8)),
    (module.embedding_bag("rows", 50, 8, 3, 2), (6, 8)),
    (module.recurrent("LSTM", 7, 2, 3, 4), (7, 2, 4)),
    (module.recurrent("GRU", 7, 2, 3, 4, layers=2), (7, 2, 4)),
]
named = pytest.mark.parametrize(
    ("problem", "size"), SMALL, ids=lambda x: x.name if isinstance(x, module.Problem) else ""
)


@named
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_problem_matches_its_name(
    problem: module.Problem, size: tuple[int, ...], dtype: Any
) -> None:
    for result in results(problem, dtype):
        assert (tuple(result.shape), result.dtype) == (size, dtype)
    assert problem.flop or problem.values


@named
def test_operation_counts_match_torchs(problem: module.Problem, size: tuple[int, ...]) -> None:
    _, stock = problem.make(torch.float32)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        stock()
    counted = counter.get_total_flops()
    if counted and problem.operator not in ("LSTM", "GRU"):  # counted only in part
        half = 2 if "causal" in problem.size else 1  # the counter ignores masks
        assert problem.flop == counted / half


def test_cold_tensors_rotate_through_a_large_memory() -> None:
    tensors = module.cold(torch.float32, 1024, 1024)
    first = [next(tensors) for _ in range(4)]
    starts = [tensor.data_ptr() for tensor in first]
    assert [b - a for a, b in itertools.pairwise(starts)] == [4 * limit.MIB] * 3
    assert next(tensors).data_ptr() == starts[0]


@pytest.mark.parametrize(("rows", "cold"), [(1, True), (16, True), (17, False)])
def test_large_weights_are_cold_for_few_rows(rows: int, cold: bool) -> None:
    weights = module._weights(rows, torch.float32, 1024, 1024)
    assert (next(weights).data_ptr() != next(weights).data_ptr()) == cold
    small = module._weights(rows, torch.float32, 8, 8)
    assert next(small).data_ptr() == next(small).data_ptr()


def test_packed_weights_are_compared_with_as_many_plain_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = []

    def prepack(layer: Any) -> Any:
        assert layer.weight.untyped_storage().nbytes() == layer.weight.nbytes
        assert not layer.weight.is_inference()
        result.append(copy.deepcopy(layer))
        return result[-1]

    monkeypatch.setattr(module, "_prepack", lambda: prepack)
    problem = module.packed(1, 1024, 1024)
    assert problem.present()
    with torch.inference_mode():
        calls: Any = problem.make(torch.float32)
        packed, plain = calls
        wanted = {tuple(plain().flatten().tolist()) for _ in range(4)}
        assert {tuple(packed().flatten().tolist()) for _ in range(4)} == wanted
    assert len(result) == 4
    monkeypatch.setattr(module, "_prepack", lambda: None)
    assert not problem.present()
